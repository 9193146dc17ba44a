package mcp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// stateOfNone is the folder of the state of a user for whom no gateway has started a server.
func stateOfNone(t *testing.T) string {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir, err := started.Dir("")
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Dir(dir)
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	return state
}

// TestTheServerOfASlowerGatewayHidesNone: two were started at the same time, and the one that was
// marked last has ended.
func TestTheServerOfASlowerGatewayHidesNone(t *testing.T) {
	state, o := stateOfNone(t), &options{start: "127.0.0.1:4222"}
	mark := func(address string, pid int) string {
		file := ownMark(state, address, strconv.Itoa(pid))
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	mark("127.0.0.1:42222", os.Getpid())
	if o.ownRuns() {
		t.Error("a server at another address counts")
	}
	over := exec.Command("go", "version") // any that ends
	if err := over.Run(); err != nil {
		t.Fatal(err)
	}
	runs, ended := mark(o.start, os.Getpid()), mark(o.start, over.Process.Pid)
	if !o.ownRuns() {
		t.Error("the server that runs is hidden")
	}
	if err := os.Remove(runs); err != nil {
		t.Fatal(err)
	}
	if o.ownRuns() {
		t.Error("one that has ended counts")
	}
	if _, err := os.Stat(ended); !os.IsNotExist(err) {
		t.Errorf("its mark stays: %v", err)
	}
}

// TestAServerThatServesAtOnceIsNoOneElses: it may before whoever starts it has marked it.
func TestAServerThatServesAtOnceIsNoOneElses(t *testing.T) {
	state, o := stateOfNone(t), &options{start: "127.0.0.1:4222"}
	server := exec.Command("sleep", "60")
	pid, err := marked(state, o.start, func() (*os.Process, error) {
		err := server.Start()
		if !o.ownRuns() {
			t.Error("it serves, and no gateway has started it")
		}
		return server.Process, err
	})
	if err != nil || pid != server.Process.Pid {
		t.Fatalf("it is process %d: %v", pid, err)
	}
	if !o.ownRuns() {
		t.Error("it is not marked")
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // it was killed
	if o.ownRuns() {
		t.Error("it has ended, and a mark of who has started it stays")
	}
}

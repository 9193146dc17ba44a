//go:build unix

package testenv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

func TestALongRunDoesAllCases(t *testing.T) {
	for value, want := range map[string]int{"": 3, "0": 3, "1": 100} {
		t.Setenv("SAGENBAUM_LONG", value)
		if got := testenv.Cases(3, 100); got != want {
			t.Errorf("SAGENBAUM_LONG=%q runs %d cases, want %d", value, got, want)
		}
	}
}

// asked is what TestPlayed does, when it is set.
const asked = "SAGENBAUM_TEST_PLAYED"

// TestPlayed is played by TestAnEndInAProcessOfItsOwnIsTheTests.
func TestPlayed(t *testing.T) {
	how := os.Getenv(asked)
	if how == "" {
		t.Skip("played by another test")
	}
	testenv.Alone(t, func(t *testing.T) {
		switch how {
		case "fail":
			t.Error("failed in the child")
		case "skip":
			t.Skip("skipped in the child")
		case "exit":
			os.Exit(0)
		}
	})
}

func TestAnEndInAProcessOfItsOwnIsTheTests(t *testing.T) {
	for how, want := range map[string]string{
		"fail": "--- FAIL: TestPlayed", "skip": "--- SKIP: TestPlayed", "pass": "--- PASS: TestPlayed",
		"exit": "--- FAIL: TestPlayed", // nothing was tested
	} {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command(self, "-test.run=^TestPlayed$", "-test.v")
		command.Env = append(os.Environ(), asked+"="+how)
		out, err := command.CombinedOutput()
		if failed := err != nil; !strings.Contains(string(out), want) || failed != strings.Contains(want, "FAIL") {
			t.Errorf("%s in the child: %v\n%s\nwant %s", how, err, out, want)
		}
	}
}

// A file-size limit is met by the test that asked for it, and by nobody else.
func TestAFileSizeLimitStaysInItsProcess(t *testing.T) {
	here := func() (limit syscall.Rlimit) {
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		return limit
	}
	before := here()
	testenv.Alone(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		lift := testenv.LimitFileSize(t, 1000)
		if err := os.WriteFile(file, make([]byte, 1001), 0o600); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("a write over the limit: %v", err)
		}
		lift()
		if err := os.WriteFile(file, make([]byte, 1001), 0o600); err != nil {
			t.Errorf("after the limit was lifted: %v", err)
		}
	})
	if after := here(); after != before {
		t.Errorf("the limit of this process is %+v, was %+v", after, before)
	}
}

// said is a test that notes its failures.
type said struct {
	testing.TB
	errors []string
	ended  func()
}

func (s *said) Errorf(format string, args ...any) {
	s.errors = append(s.errors, fmt.Sprintf(format, args...))
}
func (s *said) Cleanup(f func()) { s.ended = f }

func TestADoubledKeyOfALogLineIsFound(t *testing.T) {
	for want, write := range map[string]func(*slog.Logger){
		"":       func(l *slog.Logger) { l.With("a", 1).WithGroup("g").Info("fine", "a", 2, "b", 3) },
		`"b"`:    func(l *slog.Logger) { l.Info("in one call", "b", 1, "b", 2) },
		`"a"`:    func(l *slog.Logger) { l.With("a", 1).With("b", 1).Debug("of the logger", "a", 2) },
		`"g.a"`:  func(l *slog.Logger) { l.WithGroup("g").With("a", 1).Info("in a group", "a", 2) },
		`"with"`: func(l *slog.Logger) { l.With("with", 1).With("with", 2) },
	} {
		var out bytes.Buffer
		s := &said{TB: t}
		log := slog.New(testenv.KeysOnce(s, slog.NewTextHandler(&out, nil)))
		write(log)
		if want == "" && len(s.errors) > 0 || want != "" && (len(s.errors) != 1 || !strings.Contains(s.errors[0], want)) {
			t.Errorf("%q is said, want the key %s", s.errors, want)
		}
		if debug := strings.Contains(out.String(), "level=DEBUG"); debug {
			t.Error("the handler behind it takes no debug lines, and got one")
		}
		s.ended()
		log.Info("after the test", "x", 1, "x", 2)
		if len(s.errors) > 1 || !strings.Contains(out.String(), "after the test") {
			t.Errorf("after the test: %q, and it has written %s", s.errors, &out)
		}
	}
}

// Work takes processor time, and waiting takes none.
func TestCPUCountsWorkAndNoWaiting(t *testing.T) {
	before := testenv.CPU()
	<-time.After(300 * time.Millisecond)
	if waited := testenv.CPU() - before; waited > 200*time.Millisecond {
		t.Errorf("a wait of 300 ms took %v of the processor", waited)
	}
	before, sum := testenv.CPU(), byte(0)
	for data := make([]byte, 1<<16); testenv.CPU() == before; {
		for i := range data {
			sum += data[i]
		}
	}
	if sum != 0 {
		t.Error(sum)
	}
}

func TestAPortIsGivenOnceWhileItsProcessRuns(t *testing.T) {
	ports, err := testenv.FreePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		address := fmt.Sprintf("127.0.0.1:%d", port)
		// What FreePorts of another process asks first.
		if mark, err := net.ListenPacket("udp", address); err == nil {
			mark.Close()
			t.Errorf("port %d can be given a second time", port)
		}
		for range 2 {
			var listener net.Listener
			err := testenv.Listen(func() (err error) {
				listener, err = net.Listen("tcp", address)
				return err
			})
			if err != nil {
				t.Errorf("nothing can listen on a port that was given: %v", err)
				break
			}
			listener.Close()
		}
	}
}

// A port is listened on again, while other tests start processes that have what this one has open.
func TestAServerListensAgainBesideProcessesThatStart(t *testing.T) {
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	defer starting.Wait()
	defer cancel()
	starting.Go(func() {
		for ctx.Err() == nil {
			_ = exec.CommandContext(ctx, "/bin/sh", "-c", "").Run() // what becomes of it is nothing here
		}
	})
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	inUse := 0
	for end := time.Now().Add(testenv.Patience); inUse < 3; {
		if time.Now().After(end) {
			t.Fatalf("the port was in use %d times", inUse)
		}
		var listener net.Listener
		err := testenv.Listen(func() (err error) {
			if listener, err = net.Listen("tcp", address); err != nil {
				inUse++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
	}
	other := errors.New("another error")
	if err := testenv.Listen(func() error { return other }); err != other {
		t.Errorf("another error is %v", err)
	}
}

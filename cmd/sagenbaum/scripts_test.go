package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// The scripts of testdata/scripts run the binary as an operator does. `server` starts
// one with a plan in quarantine (stuck), one whose undo finds no worker (lonely) and an
// open one (open); `exits N COMMAND...` runs a command that must end with that code.
func TestScripts(t *testing.T) {
	bin := t.TempDir()
	if err := os.Symlink(cmdtest.Program(t), filepath.Join(bin, "sagenbaum")); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "scripts"),
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("HOME", home)
			env.Setenv("USER", "tester")
			env.Setenv(cmdtest.AsCommand, "1")
			return os.Mkdir(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": scriptServer, "exits": scriptExits,
		},
		Condition: func(cond string) (bool, error) {
			_, err := exec.LookPath(cond)
			return err == nil, nil
		},
	})
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if code != want {
		ts.Fatalf("%v ends with %d, want %d", args[1:], code, want)
	}
}

func scriptServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: server")
	}
	s := serveScript(ts)
	ts.Setenv("SAGENBAUM_SERVER", s.URL)
	if creds, ok := cmdtest.LocalOf(s.URL); ok {
		ts.Setenv("SAGENBAUM_CREDS", creds)
	}
}

// serveScript starts a server with its plans.
func serveScript(ts *testscript.TestScript) *cmdtest.Served {
	dir := filepath.Join(ts.Getenv("WORK"), "data")
	self, err := os.Executable()
	ts.Check(err)
	command := exec.Command(self, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--stop-on-eof", "-o", "json")
	command.Env = cmdtest.Environment(ts.Getenv("HOME"))
	s, err := cmdtest.StartServed(dir, command)
	ts.Check(err)
	ts.Defer(func() {
		s.Stdin.Close()
		late := time.AfterFunc(testenv.Patience, func() { s.Command.Process.Kill() })
		defer late.Stop()
		s.Command.Wait()
	})
	ts.Check(scriptPlans(s.URL))
	return s
}

// scriptPlans leaves the plans of the scripts.
func scriptPlans(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	conn, err := cmdtest.AsLocal(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "tester",
		Contracts: []contract.Contract{
			{Capability: "mail.send", Class: contract.Irreversible},
			{Capability: "room.book", Class: contract.Compensable, Inverse: &contract.Inverse{Call: "room.free"}},
		}})
	if err != nil {
		return err
	}
	for id, capability := range map[string]string{"stuck": "mail.send", "lonely": "room.book", "open": "room.book"} {
		plan, err := agent.Begin(ctx, coordinator.PlanSpec{ID: id, Owner: "travel", Label: "book a trip to Nara"})
		if err != nil {
			return err
		}
		if err := plan.Savepoint(ctx, "start"); err != nil {
			return err
		}
		if err := plan.Report(ctx,
			coordinator.Action{ID: "first", Capability: capability, Input: map[string]int{"n": 1}},
			coordinator.Outcome{}); err != nil {
			return err
		}
	}
	return agent.Close(ctx)
}

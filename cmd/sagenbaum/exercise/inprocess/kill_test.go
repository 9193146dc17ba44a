//go:build exercise

// Package inprocess kills programs that have agent, server and worker in one process.
package inprocess

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// asProgram has this binary be the program that is killed, in a folder.
const asProgram = "SAGENBAUM_EXERCISE_PROGRAM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asProgram); dir != "" {
		if err := program(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	tenant = "default"
	plan   = "p"
	files  = 4
	// planTime undoes the plan of a program that was killed before it failed it.
	planTime = 2 * time.Second
)

func fileOf(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("file%d", n)) }

// program starts all on the folder. Where there is no plan yet it writes files, and fails; it says
// each step once it is taken. Then it waits for the end of the plan, and says that.
func program(ctx context.Context, dir string) error {
	s, err := host.Start(ctx, host.LocalConfig{Dir: filepath.Join(dir, "data")})
	if err != nil {
		return err
	}
	conn, err := s.Connect()
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tenant, Name: "files"})
	if err != nil {
		return err
	}
	if err := w.Handle("file.delete", remove); err != nil {
		return err
	}
	if _, err := os.Stat(fileOf(dir, 0)); err != nil {
		if err := write(ctx, s, dir); err != nil {
			return err
		}
	}
	answer, err := s.Host().Ask(tenant, api.PlanOutcome.Name,
		api.OutcomeQuery{Plan: plan, Ended: true, WaitMs: time.Minute.Milliseconds()})
	if err != nil {
		return err
	}
	fmt.Println(answer.(api.OutcomeAnswer).State)
	return s.Close()
}

// write takes the actions of the plan, and fails it.
func write(ctx context.Context, s *host.Local, dir string) error {
	conn, err := s.Connect()
	if err != nil {
		return err
	}
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: tenant, Agent: "writer",
		Contracts: []contract.Contract{{Capability: "file.write", Class: contract.Compensable,
			OnInDoubt: contract.InDoubtCompensate, Settle: time.Second,
			Inverse:   &contract.Inverse{Call: "file.delete", With: map[string]any{"path": "=input"}}}}})
	if err != nil {
		return err
	}
	p, err := c.Begin(ctx, coordinator.PlanSpec{ID: plan, Deadline: planTime})
	if err != nil {
		return err
	}
	for n := range files {
		_, err := p.Do(ctx, coordinator.Action{Capability: "file.write", Input: fileOf(dir, n)},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				err := os.WriteFile(fileOf(dir, n), nil, 0o600)
				fmt.Println("wrote")
				return coordinator.Outcome{}, err
			})
		if err != nil {
			return err
		}
		fmt.Println("acknowledged")
	}
	err = p.Fail(ctx, "it is killed anyway")
	fmt.Println("failed")
	return err
}

// remove is the worker's: gone already is done, too.
func remove(_ context.Context, c api.Command) (worker.Result, error) {
	var in struct{ Path string }
	if err := json.Unmarshal(c.Arguments, &in); err != nil {
		return worker.Result{}, err
	}
	err := os.RemoveAll(in.Path)
	fmt.Println("removed")
	return worker.Result{}, err
}

// run runs the program in a folder, and kills it with -9 once it has said so many steps; 0: it runs
// to its end. It returns the last step.
func run(t *testing.T, dir string, steps int) (last string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = lines.Text()
		if said++; said == steps {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); steps == 0 && err != nil {
		t.Fatal(err)
	}
	return last
}

// Killed after any of its steps, the program undoes at its next start whatever it has done.
func TestAKillLosesNothing(t *testing.T) {
	for steps := 1; steps <= 3*files+2; steps++ {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			dir := t.TempDir()
			killed := run(t, dir, steps)
			if _, err := os.Stat(fileOf(dir, 0)); err != nil { // it would begin again
				if err := os.WriteFile(fileOf(dir, 0), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(fileOf(dir, 0))
			}
			if end := run(t, dir, 0); end != ledger.StateCompensated {
				t.Errorf("killed after %q, the plan is %s", killed, end)
			}
			for n := 1; n < files; n++ {
				if _, err := os.Stat(fileOf(dir, n)); err == nil {
					t.Errorf("killed after %q, file %d is left", killed, n)
				}
			}
		})
	}
}

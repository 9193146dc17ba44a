//go:build exercise

package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// raised is a source file with the value of a constant one higher.
func raised(t *testing.T, file, constant string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^(const ` + constant + ` = )(\d+)$`)
	found := declared.FindStringSubmatch(string(text))
	if found == nil {
		t.Fatalf("%s declares no %s", file, constant)
	}
	value, err := strconv.Atoi(found[2])
	if err != nil {
		t.Fatal(err)
	}
	return rewritten(t, file, found[0], found[1]+strconv.Itoa(value+1))
}

// rewritten is a source file in which one text, which is there once, is another one.
func rewritten(t *testing.T, file, was, is string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), was); n != 1 {
		t.Fatalf("%s has %q %d times", file, was, n)
	}
	changed := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), was, is, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return changed
}

// laterVersion builds this program as the version after this one: it writes for a
// later reader, and folds by other rules.
func laterVersion(t *testing.T) (path string) {
	t.Helper()
	limits, codec := cmdtest.InCheckout(t, "ledger", "limits.go"), cmdtest.InCheckout(t, "ledger", "codec.go")
	fold := cmdtest.InCheckout(t, "executor", "state.go")
	replace := map[string]string{
		limits: raised(t, limits, "ReaderVersion"),
		codec:  rewritten(t, codec, "version := uint64(1)", "version := uint64(ReaderVersion)"),
		fold:   raised(t, fold, "FoldVersion"),
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "sagenbaum-later")
	cmdtest.Build(t, path, "-overlay", list)
	return path
}

// serveLater runs a later version on a folder.
func serveLater(t *testing.T, path, dir string) *cmdtest.Served {
	t.Helper()
	command := cmdtest.Sagenbaum(t, "serve", "--data", dir, "--stop-on-eof", "-o", "json", "--listen", "127.0.0.1:0",
		"--tenant", "default")
	command.Path, command.Args[0] = path, path
	return cmdtest.ServeAs(t, dir, command)
}

// TestWhatALaterVersionWroteHaltsThisOneAndTheUpgradeGoesOn: two real binaries take
// turns on one folder. The tenant that the later one has held is halted under this one
// and says which version it needs; nothing of it is dispatched or skipped, another
// tenant goes on, and under the later one its plan is undone.
func TestWhatALaterVersionWroteHaltsThisOneAndTheUpgradeGoesOn(t *testing.T) {
	t.Parallel()
	later, dir := laterVersion(t), cmdtest.DataDir(t)
	// The second tenant is added under this version: the later one would hold it, too.
	both := []string{"--listen", "127.0.0.1:0", "--tenant", "default", "--tenant", "second"}
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0")
	cmdtest.UnservedPlan(t, cmdtest.Dial(t, s.URL), "default", "p1")
	s.End(t).Wants(t, "this version", cli.ExitGood)

	s = serveLater(t, later, dir)
	if v := cmdtest.Decoded[api.Status](t,
		s.Ask(t, "default", "status", "-o", "json")); v.Mode != api.ModeHolding || v.Held != 1 {
		t.Fatalf("under the later version: %+v", v)
	}
	// Nobody serves the undo yet: whoever holds the tenant next has a command to send.
	s.Ask(t, "default", "plan", "cancel", "p1", "--reason", "sold out").Wants(t, "cancel", cli.ExitGood)
	cmdtest.Until(t, t.Context(), "the plan unwinds", func() bool {
		return cmdtest.Decoded[api.Status](t, s.Ask(t, "default", "status", "-o", "json")).InFlight == 1
	})
	s.End(t).Wants(t, "the later version", cli.ExitGood)

	for range 2 { // a restart changes nothing
		s = cmdtest.ServeFor(t, dir, both...)
		calls := serveUndos(t, cmdtest.Dial(t, s.URL))
		needs := fmt.Sprintf("needs version %d of the reader, this is version %d", ledger.ReaderVersion+1,
			ledger.ReaderVersion)
		for _, question := range []string{"status", "doctor"} {
			r := s.Ask(t, "default", question)
			if r.Wants(t, question, cli.ExitLook); !strings.Contains(r.Stdout, "halted") ||
				!strings.Contains(r.Stdout, needs) {
				t.Errorf("%s says\n%s", question, r.Stdout)
			}
			if question == "doctor" &&
				!strings.Contains(r.Stdout,
					"a newer sagenbaum wrote this: run that version or a later one on the same folder") {
				t.Errorf("the doctor advises\n%s", r.Stdout)
			}
		}
		s.Ask(t, "second", "status").Wants(t, "the other tenant", cli.ExitGood)
		if n := calls.Load(); n != 0 {
			t.Errorf("%d commands of a halted tenant", n)
		}
		s.End(t).Wants(t, "this version, halted", cli.ExitGood)
	}

	s = serveLater(t, later, dir)
	calls := serveUndos(t, cmdtest.Dial(t, s.URL))
	cmdtest.Until(t, t.Context(), "the plan is undone", func() bool {
		plan := cmdtest.Decoded[api.Plan](t, s.Ask(t, "default", "plan", "show", "p1", "-o", "json"))
		return plan.State == ledger.StateCompensated
	})
	if n := calls.Load(); n != 1 {
		t.Errorf("%d commands under the later version, want 1", n)
	}
	s.End(t).Wants(t, "the later version", cli.ExitGood)
}

// serveUndos serves every undo of the default tenant, and counts the commands.
func serveUndos(t *testing.T, conn *nats.Conn) *atomic.Int32 {
	t.Helper()
	calls := new(atomic.Int32)
	_, err := conn.QueueSubscribe("undo.default.>", "workers", func(m *nats.Msg) {
		calls.Add(1)
		var c api.Command
		err := json.Unmarshal(m.Data, &c)
		body, err2 := json.Marshal(c.Answer(api.Reply{Status: api.StatusDone}))
		if err := errors.Join(err, err2, m.Respond(body)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return calls
}

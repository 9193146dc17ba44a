package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
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
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("SKIPPED: no later version can be built: %v", err)
	}
	replace := map[string]string{}
	for file, changed := range map[string]string{
		"../../ledger/limits.go": raised(t, "../../ledger/limits.go", "ReaderVersion"),
		"../../ledger/codec.go": rewritten(t, "../../ledger/codec.go", "version := uint64(1)",
			"version := uint64(ReaderVersion)"),
		"../../executor/doc.go": raised(t, "../../executor/doc.go", "FoldVersion"),
	} {
		absolute, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replace[absolute] = changed
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
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", path,
		".").CombinedOutput(); err != nil {
		t.Fatalf("cannot build a later version: %v\n%s", err, out)
	}
	return path
}

// serveLater runs a later version on a folder.
func serveLater(t *testing.T, path, dir string) *served {
	t.Helper()
	command := sagenbaum(t, "serve", "--data", dir, "--stop-on-eof", "-o", "json", "--listen", "127.0.0.1:0",
		"--tenant", "default")
	command.Path, command.Args[0] = path, path
	return serveAs(t, dir, command)
}

// TestWhatALaterVersionWroteHaltsThisOneAndTheUpgradeGoesOn: two real binaries take
// turns on one folder. The tenant that the later one has held is halted under this one
// and says which version it needs; nothing of it is dispatched or skipped, another
// tenant goes on, and under the later one its plan is undone.
func TestWhatALaterVersionWroteHaltsThisOneAndTheUpgradeGoesOn(t *testing.T) {
	if !testenv.Long() {
		t.Skip("builds a second binary, for minutes: a long run does")
	}
	t.Parallel()
	later, dir := laterVersion(t), dataDir(t)
	// The second tenant is added under this version: the later one would hold it, too.
	both := []string{"--listen", "127.0.0.1:0", "--tenant", "default", "--tenant", "second"}
	s := serveFor(t, dir, "--listen", "127.0.0.1:0")
	unservedPlan(t, dial(t, s.url), "p1")
	s.end(t).wants(t, "this version", cli.ExitGood)

	s = serveLater(t, later, dir)
	if v := decoded[view.Status](t,
		s.ask(t, "default", "status", "-o", "json")); v.Mode != view.ModeHolding || v.Held != 1 {
		t.Fatalf("under the later version: %+v", v)
	}
	// Nobody serves the undo yet: whoever holds the tenant next has a command to send.
	s.ask(t, "default", "plan", "cancel", "p1", "--reason", "sold out").wants(t, "cancel", cli.ExitGood)
	until(t, t.Context(), "the plan unwinds", func() bool {
		return decoded[view.Status](t, s.ask(t, "default", "status", "-o", "json")).InFlight == 1
	})
	s.end(t).wants(t, "the later version", cli.ExitGood)

	for range 2 { // a restart changes nothing
		s = serveFor(t, dir, both...)
		calls := serveUndos(t, dial(t, s.url))
		needs := fmt.Sprintf("needs version %d of the reader, this is version %d", ledger.ReaderVersion+1,
			ledger.ReaderVersion)
		for _, question := range []string{"status", "doctor"} {
			r := s.ask(t, "default", question)
			if r.wants(t, question, cli.ExitLook); !strings.Contains(r.stdout, "halted") ||
				!strings.Contains(r.stdout, needs) {
				t.Errorf("%s says\n%s", question, r.stdout)
			}
			if question == "doctor" &&
				!strings.Contains(r.stdout,
					"a newer sagenbaum wrote this: run that version or a later one on the same folder") {
				t.Errorf("the doctor advises\n%s", r.stdout)
			}
		}
		s.ask(t, "second", "status").wants(t, "the other tenant", cli.ExitGood)
		if n := calls.Load(); n != 0 {
			t.Errorf("%d commands of a halted tenant", n)
		}
		s.end(t).wants(t, "this version, halted", cli.ExitGood)
	}

	s = serveLater(t, later, dir)
	calls := serveUndos(t, dial(t, s.url))
	until(t, t.Context(), "the plan is undone", func() bool {
		plan := decoded[view.Plan](t, s.ask(t, "default", "plan", "show", "p1", "-o", "json"))
		return plan.State == ledger.StateCompensated
	})
	if n := calls.Load(); n != 1 {
		t.Errorf("%d commands under the later version, want 1", n)
	}
	s.end(t).wants(t, "the later version", cli.ExitGood)
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

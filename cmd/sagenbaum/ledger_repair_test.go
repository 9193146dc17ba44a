package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/view"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// A flipped bit of the ledger's file is seen by status and doctor, the stream is made
// anew from the tiles, which lie elsewhere, and every audit shows it.
func TestADamagedLedgerIsSeenAndRepairedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dir, tiles := dataDir(t), filepath.Join(t.TempDir(), "tiles")
	s := serveFor(t, dir, "--tiles", tiles)
	for i := range 8 {
		s.ask(t, "default", "fact", "put", fmt.Sprintf("key%d", i), "1").wants(t, "fact put", cli.ExitGood)
	}
	s.ask(t, "default", "ledger", "scrub").wants(t, "ledger scrub", cli.ExitGood)
	s.ask(t, "default", "rebuild", "--check").wants(t, "rebuild --check", cli.ExitGood)
	rebuilt := s.ask(t, "default", "rebuild", "-o", "json")
	rebuilt.wants(t, "rebuild", cli.ExitGood)
	if v := decoded[map[string]uint64](t, rebuilt); v["applied"] < 8 {
		t.Errorf("rebuild said %s", rebuilt.stdout)
	}
	s.ask(t, "default", "ledger", "repair", "--reason", "none").wants(t, "ledger is whole", cli.ExitFailed, "not halted")
	s.ask(t, "default", "ledger", "repair").wants(t, "ledger repair without a reason", cli.ExitUsage, "--reason")
	s.end(t)

	blocks, err := filepath.Glob(dir + "/nats/jetstream/*/streams/SAGA_default/msgs/*.blk")
	if err != nil || len(blocks) == 0 {
		t.Fatal(err)
	}
	b, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(b), "key5")
	if at < 0 {
		t.Fatal("the fact is not in the block")
	}
	b[at] ^= 2
	if err := os.WriteFile(blocks[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"state", "snapshots"} {
		if err := os.RemoveAll(filepath.Join(dir, "executor", name)); err != nil {
			t.Fatal(err)
		}
	}
	s = serveFor(t, dir, "--tiles", tiles)
	s.ask(t, "default", "status").wants(t, "status of a halted tenant", cli.ExitLook)
	doctor := s.ask(t, "default", "doctor")
	doctor.wants(t, "doctor of a halted tenant", cli.ExitLook)
	if !strings.Contains(doctor.stdout, "ledger repair --dry-run") {
		t.Errorf("doctor does not say what to do:\n%s", doctor.stdout)
	}
	dry := s.ask(t, "default", "ledger", "repair", "--dry-run", "--reason", "look first")
	dry.wants(t, "ledger repair --dry-run", cli.ExitGood)
	done := s.ask(t, "default", "ledger", "repair", "--reason", "a flipped bit", "--actor", "alice", "-o", "json")
	done.wants(t, "ledger repair", cli.ExitGood)
	if v := decoded[view.RepairAnswer](t, done); v.Lost != "none" || v.Kept == "" {
		t.Errorf("repair said %+v", v)
	}
	s.ask(t, "default", "rebuild").wants(t, "rebuild behind a repair", cli.ExitGood)
	s.ask(t, "default", "fact", "get", "key5").wants(t, "fact get", cli.ExitGood)
	listed := s.ask(t, "default", "ledger", "ls")
	listed.wants(t, "ledger ls", cli.ExitGood)
	if !strings.Contains(listed.stdout, "alice") || !strings.Contains(listed.stdout, "a flipped bit") {
		t.Errorf("ledger ls does not show the repair:\n%s", listed.stdout)
	}
	tail := s.ask(t, "default", "ledger", "tail", "--since", "1") // also what was before it
	if !strings.HasPrefix(tail.stdout, "1.0-") || !strings.Contains(tail.stdout, "ledger_repaired") {
		t.Errorf("ledger tail:\n%s%s", tail.stdout, tail.stderr)
	}
	s.ask(t, "default", "ledger", "scrub").wants(t, "ledger scrub", cli.ExitGood)
	if doctor = s.ask(t, "default", "doctor"); doctor.code != cli.ExitGood {
		t.Errorf("doctor:\n%s", doctor.stdout)
	}
	s.end(t)
}

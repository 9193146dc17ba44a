package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A flipped bit of the ledger's file is seen by status and doctor, the stream is made
// anew from the tiles, which lie elsewhere, and every audit shows it.
func TestADamagedLedgerIsSeenAndRepairedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dir, tiles := cmdtest.DataDir(t), filepath.Join(t.TempDir(), "tiles")
	s := cmdtest.ServeFor(t, dir, "--tiles", tiles)
	for i := range 8 {
		s.Ask(t, "default", "fact", "put", fmt.Sprintf("key%d", i), "1").Wants(t, "fact put", cli.ExitGood)
	}
	s.Ask(t, "default", "ledger", "scrub").Wants(t, "ledger scrub", cli.ExitGood)
	s.Ask(t, "default", "rebuild", "--check").Wants(t, "rebuild --check", cli.ExitGood)
	rebuilt := s.Ask(t, "default", "rebuild", "-o", "json")
	rebuilt.Wants(t, "rebuild", cli.ExitGood)
	if v := cmdtest.Decoded[map[string]uint64](t, rebuilt); v["applied"] < 8 {
		t.Errorf("rebuild said %s", rebuilt.Stdout)
	}
	s.Ask(t, "default", "ledger", "repair", "--reason", "none").Wants(t, "ledger is whole", cli.ExitFailed, "not halted")
	s.Ask(t, "default", "ledger", "repair").Wants(t, "ledger repair without a reason", cli.ExitUsage, "--reason")
	s.End(t)

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
	s = cmdtest.ServeFor(t, dir, "--tiles", tiles)
	s.Ask(t, "default", "status").Wants(t, "status of a halted tenant", cli.ExitLook)
	ask := asking(t, s.URL)
	f := ask.Advised(t, "executor")
	if said := ask.Follow(t, f); !strings.Contains(said, "would be     sequences 1 to ") ||
		!strings.Contains(f.Next, "ledger repair --dry-run") || !strings.Contains(f.Next, "then the same without --dry-run") {
		t.Errorf("%+v says %s", f, said)
	}
	done := s.Ask(t, "default", "ledger", "repair", "--reason", "a flipped bit", "--actor", "alice", "-o", "json")
	done.Wants(t, "ledger repair", cli.ExitGood)
	if v := cmdtest.Decoded[api.RepairAnswer](t, done); v.Lost != "none" || v.Kept == "" {
		t.Errorf("repair said %+v", v)
	}
	s.Ask(t, "default", "rebuild").Wants(t, "rebuild behind a repair", cli.ExitGood)
	s.Ask(t, "default", "fact", "get", "key5").Wants(t, "fact get", cli.ExitGood)
	listed := s.Ask(t, "default", "ledger", "ls")
	listed.Wants(t, "ledger ls", cli.ExitGood)
	if !strings.Contains(listed.Stdout, "alice") || !strings.Contains(listed.Stdout, "a flipped bit") {
		t.Errorf("ledger ls does not show the repair:\n%s", listed.Stdout)
	}
	tail := s.Ask(t, "default", "ledger", "tail", "--since", "1") // also what was before it
	if !strings.HasPrefix(tail.Stdout, "1.0-") || !strings.Contains(tail.Stdout, "ledger_repaired") {
		t.Errorf("ledger tail:\n%s%s", tail.Stdout, tail.Stderr)
	}
	s.Ask(t, "default", "ledger", "scrub").Wants(t, "ledger scrub", cli.ExitGood)
	isProvenRepaired(t, s)
	ask.Content(t)
	s.End(t)
}

// isProvenRepaired wants the root in the record of a repair to be that of what an export has before it.
func isProvenRepaired(t *testing.T, s *cmdtest.Served) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle")
	s.Ask(t, "default", "ledger", "export", "-f", file).Wants(t, "ledger export", cli.ExitGood)
	key := cmdtest.Decoded[api.Status](t, s.Ask(t, "default", "status", "-o", "json")).Checkpoint.Key
	if r := cmdtest.CheckedFile(t, file, verify.Options{Keys: []string{key}}); r.Verdict != verify.Proven ||
		len(r.Repairs) != 1 || r.Repairs[0].Lost != "none" {
		t.Errorf("a bundle of a repaired ledger:\n%s", r.Text("bundle"))
	}
}

// TestARepairIsOfOneHost: of several halted hosts each would repair from its own tiles. Their names are
// said, and none of them is asked; with one of them, or with a holder beside them, it is.
func TestARepairIsOfOneHost(t *testing.T) {
	t.Parallel()
	a := api.Host{Host: "host-a", Mode: api.ModeHalted, Applied: 12}
	b := api.Host{Host: "host-b", Mode: api.ModeHalted, Applied: 9}
	for _, c := range []struct {
		hosts []api.Host
		asks  bool
	}{
		{[]api.Host{a, b}, false},
		{[]api.Host{a, b, {Host: "host-c", Mode: api.ModeStandby}}, false},
		{[]api.Host{a}, true},
		{[]api.Host{a, b, {Host: "host-c", Mode: api.ModeHolding}}, true},
		{nil, true},
	} {
		url := answering(t, map[string]func([]byte) any{"status": inMode(api.ModeHalted)})
		asked := make(chan []byte, 1)
		conn := cmdtest.Dial(t, url)
		for _, h := range c.hosts {
			answers(t, conn, api.HostsSubject("default"), func([]byte) any { return api.HostAnswer{Host: h} })
		}
		answers(t, conn, api.AdminSubject("default", "ledger.repair"), func(data []byte) any {
			asked <- data
			return api.RepairAnswer{DryRun: true, Lost: "none", Carried: "none", Dropped: "none"}
		})
		r := cmdtest.Run(t, "ledger", "repair", "--server", url, "--dry-run", "--reason", "look first")
		if c.asks {
			r.Wants(t, "ledger repair", cli.ExitGood)
		} else {
			r.Wants(t, "ledger repair", cli.ExitFailed, "host-a (folded to 12), host-b (folded to 9)", "all of them but the one")
		}
		if len(asked) == 1 != c.asks {
			t.Errorf("%+v: asked %d times", c.hosts, len(asked))
		}
	}
}

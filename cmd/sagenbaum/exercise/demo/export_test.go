//go:build exercise

package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/verify"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// exportLedger exports the ledger of the demo whole, in part and one plan of it: nothing
// is found in any, and what is exported in two runs is what is exported in one.
func exportLedger(t *testing.T, s *cmdtest.Served) {
	dir := t.TempDir()
	whole, plan, rest := filepath.Join(dir, "whole"), filepath.Join(dir, "plan"), filepath.Join(dir, "rest")
	s.Ask(t, demo.Tenant, "ledger", "export", "-f", whole).Wants(t, "ledger export", cli.ExitGood)
	r := cmdtest.CheckedFile(t, whole, verify.Options{AtRest: true})
	if len(r.Findings) > 0 || r.Plans[ledger.StateCompensated] != 3 || r.Plans[ledger.StateResolved] != 1 ||
		r.Held != 0 || r.First != 1 {
		t.Errorf("the bundle of the demo: %+v", r)
	}
	for _, d := range r.Doubts {
		if d.About != "signatures" {
			t.Errorf("%+v", d)
		}
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(whole, data[:len(data)*2/3], 0o600); err != nil {
		t.Fatal(err)
	}
	s.Ask(t, demo.Tenant, "ledger", "export", "-f", whole).Wants(t, "an export that goes on", cli.ExitGood)
	if again := cmdtest.CheckedFile(t, whole, verify.Options{}); again.Size < r.Size || len(again.Findings) > 0 {
		t.Errorf("the bundle that was continued: %+v", again)
	}
	s.Ask(t, demo.Tenant, "ledger", "export", "--plan", "act-three", "-f", plan).Wants(t, "export of a plan",
		cli.ExitGood)
	if p := cmdtest.CheckedFile(t, plan, verify.Options{}); len(p.Findings) > 0 || p.Withheld == 0 ||
		p.Plans[ledger.StateResolved] != 1 || len(p.Plans) != 1 {
		t.Errorf("the bundle of a plan: %+v", p)
	}
	s.Ask(t, demo.Tenant, "ledger", "export", "--since", "20", "-f", rest).Wants(t, "export of the rest", cli.ExitGood)
	if p := cmdtest.CheckedFile(t, rest, verify.Options{}); len(p.Findings) > 0 || p.First != 20 {
		t.Errorf("the bundle of the rest: %+v", p)
	}
	s.Ask(t, demo.Tenant, "ledger", "export", "--since", "30", "-f", rest).Wants(t, "another export into a file",
		cli.ExitFailed, "holds something else")
	s.Ask(t, demo.Tenant, "ledger", "export", "--since", "9999", "-f", rest+"2").Wants(t,
		"export from what is not there", cli.ExitFailed, "9999")
	if _, err := os.Stat(rest + "2"); err == nil {
		t.Error("a failed export leaves an empty file")
	}
	s.Ask(t, demo.Tenant, "ledger", "export", "--plan", "absent", "-f", plan).Wants(t, "export of no plan",
		cli.ExitFailed, "never opened")
	s.Ask(t, demo.Tenant, "ledger", "export").Wants(t, "export to nowhere", cli.ExitUsage, "-f FILE")
	s.Ask(t, demo.Tenant, "ledger", "export", "--plan", "p", "--since", "2", "-f", plan).Wants(t, "both", cli.ExitUsage,
		"exclude")
	if left, _ := filepath.Glob(filepath.Join(dir, ".export-*")); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
	filtered := s.Ask(t, demo.Tenant, "ledger", "tail", "--since", "1", "--filter",
		`kind == "resolved" && class == "operator"`)
	filtered.Wants(t, "ledger tail --filter", cli.ExitGood)
	if !strings.Contains(filtered.Stdout, "resolved") || strings.Count(filtered.Stdout, "\n") != 1 {
		t.Errorf("--filter prints\n%s", filtered.Stdout)
	}
	s.Ask(t, demo.Tenant, "ledger", "tail", "--filter", "record.term > 1").Wants(t, "a filter that is never answered",
		cli.ExitGood, "could not be answered")
	s.Ask(t, demo.Tenant, "ledger", "tail", "--filter", "kid").Wants(t, "a filter that is none", cli.ExitUsage,
		"did you mean kind")
}

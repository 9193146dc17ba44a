package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
)

// TestTheListSaysWhichTenantsAreSuspended, by whom and why, as the status of each does.
func TestTheListSaysWhichTenantsAreSuspended(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	s.Ask(t, "default", "tenant", "add", "shop").Wants(t, "tenant add", cli.ExitGood)
	if r := s.Ask(t, "default", "tenant", "ls"); strings.Contains(r.Stdout, "suspended") {
		t.Errorf("none is suspended: %s", r.Stdout)
	}
	s.Ask(t, "default", "tenant", "suspend", "shop", "--reason", "not paid", "--actor", "ana").
		Wants(t, "tenant suspend", cli.ExitGood)
	cmdtest.Eventually(t, "ls says it", func() (string, bool) {
		ls := s.Ask(t, "default", "tenant", "ls")
		return ls.Stdout, strings.Contains(ls.Stdout, "holding, suspended") &&
			strings.Contains(ls.Stdout, "suspended by ana: not paid")
	})
	said := s.Ask(t, "default", "tenant", "ls", "--filter", "tenant.status.may.suspended", "-o", "json")
	said.Wants(t, "tenant ls -o json", cli.ExitGood)
	if !strings.Contains(said.Stdout, `"suspended": true`) || strings.Contains(said.Stdout, `"default"`) {
		t.Errorf("as JSON: %s", said.Stdout)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheListCountsWhatWaitsAsTheStatusDoes: also what could not be sent, which no worker has missed.
func TestTheListCountsWhatWaitsAsTheStatusDoes(t *testing.T) {
	t.Parallel()
	url := answering(t, map[string]func([]byte) any{api.TenantStatus.Name: func([]byte) any {
		return api.StatusAnswer{Status: api.Status{Tenant: "default", Mode: api.ModeHolding, Waiting: []api.Waiting{
			{Capability: "a.b", Tries: 2, Problem: "there is no key of this tenant"},
			{Capability: "a.c", Tries: 1}, {Capability: "a.d", Working: true}}}}
	}})
	answers(t, cmdtest.Dial(t, url), api.ServerSubject(api.TenantLs), func([]byte) any {
		return api.TenantsAnswer{Tenants: []string{"default"}}
	})
	r := cmdtest.Run(t, "tenant", "ls", "--server", url)
	r.Wants(t, "tenant ls", cli.ExitLook)
	if !strings.Contains(r.Stdout, "  WAITING") || strings.Contains(r.Stdout, "WORKER") {
		t.Errorf("the list is\n%s", r.Stdout)
	}
	help := cmdtest.Run(t, "tenant", "ls", "--help").Stdout
	if !strings.Contains(help, "WAITING counts") {
		t.Errorf("its help does not say what that is:\n%s", help)
	}
}

// TestTheDoctorNamesSomeOfManyForgottenTenants, and where all of them are.
func TestTheDoctorNamesSomeOfManyForgottenTenants(t *testing.T) {
	t.Parallel()
	var many []string
	for n := range 1000 {
		many = append(many, fmt.Sprintf("t%04d", n))
	}
	f := doctor.ExamineForgotten(many)
	if f.State != "FAIL" || !strings.Contains(f.Text, "the tiles of 1000 tenants are here") ||
		len(f.Details) != status.StuckShown+1 || !strings.Contains(f.Details[0], "t0000") ||
		!strings.HasPrefix(f.Details[status.StuckShown], "and 990 more: sagenbaum tenant ls") ||
		!strings.Contains(f.Next, "tenant add t0000") || !strings.Contains(f.Next, "each") {
		t.Errorf("it says %+v", f)
	}
	if f := doctor.ExamineForgotten(many[:1]); len(f.Details) != 0 ||
		!strings.Contains(f.Text, "tenant t0000 are here") {
		t.Errorf("of one it says %+v", f)
	}
	if f := doctor.ExamineForgotten(nil); f.State != "ok" {
		t.Errorf("of none it says %+v", f)
	}
}

// TestATenantIsShownWithAllThatIsSetOfIt, in the words of the flags that set it, and what is the default:
// also to an operator of that tenant alone.
func TestATenantIsShownWithAllThatIsSetOfIt(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	s.Ask(t, "default", "tenant", "limits", "default", "--actor", "ana", "--reason", "contract 4711",
		"--records", "500", "--default-deadline", "36h", "--bytes", "33554432", "--require-names").
		Wants(t, "tenant limits", cli.ExitGood)
	creds := s.User(t, "one", "operator")
	wants := []string{"\nchanged      ", ", by ana: contract 4711\n", "\nrequires     a writer for plans",
		"\nopen plans   1000000 (default)\n", "\nrecords      500\n", "\nbytes        33554432\n",
		"\ndefault deadline 36h0m0s\n", "\nconnections  10000 (default)\n",
		"\nheld conditions 10000000 (default)\n", "\nfacts        10000000 (default)\n"}
	for _, as := range [][]string{nil, {"--creds", creds}} {
		cmdtest.Eventually(t, "it is shown", func() (string, bool) {
			args := append([]string{"tenant", "show", "default", "--server", s.URL}, as...)
			r := cmdtest.Run(t, args...)
			for _, text := range wants {
				if !strings.Contains(r.Stdout, text) {
					return fmt.Sprintf("%v\n%s%s\nwithout %q", as, r.Stdout, r.Stderr, text), false
				}
			}
			return "", true
		})
	}
	shown := cmdtest.Decoded[api.Status](t, s.Ask(t, "default", "status", "-o", "json"))
	if shown.Entry == nil || shown.Entry.Limits.Records != 500 || shown.Entry.Limits.OpenPlans != 0 ||
		shown.Effective == nil || shown.Effective.OpenPlans != 1_000_000 || shown.Effective.Connections != 10_000 {
		t.Errorf("as JSON: %+v, %+v", shown.Entry, shown.Effective)
	}
	s.Ask(t, "default", "tenant", "limits", "default", "--records", "default", "--actor", "ana").
		Wants(t, "tenant limits", cli.ExitGood)
	cmdtest.Eventually(t, "the default is shown", func() (string, bool) {
		r := s.Ask(t, "default", "tenant", "show", "default")
		return r.Stdout, strings.Contains(r.Stdout, "\nrecords      no limit (default)\n")
	})
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheHelpOfADefaultDeadlineSaysWhatItTakes, and what is so without one.
func TestTheHelpOfADefaultDeadlineSaysWhatItTakes(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"add", "limits"} {
		help := cmdtest.Run(t, "tenant", verb, "--help").Stdout
		if !strings.Contains(help, `a plan which names no deadline is open, also as in 24h, or "default": none`) {
			t.Errorf("tenant %s --help:\n%s", verb, help)
		}
	}
}

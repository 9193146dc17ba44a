package render

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// No word about a lease promises what does not come.
func TestTheWordOfALeaseSaysWhatBecomesOfIt(t *testing.T) {
	for want, l := range map[string]api.Lease{
		"true, it fires as soon as the clock allows":    {Truth: "true"},
		"true, held: the cascade was cut, see plan why": {Truth: "true", Cascade: "cut"},
		"given up":                                  {Truth: "true", Cascade: "given up"},
		"true, resumed by its owner":                {Truth: "true", Cascade: "resumed"},
		"unknown, resumed by its owner":             {Truth: "unknown", Cascade: "resumed"},
		"suspended until the plan is back at lunch": {Truth: "unknown", Suspended: "lunch"},
		"suspended until the plan goes on":          {Truth: "unknown", Suspended: api.SuspendedPart},
		"retired when the plan was committed":       {Truth: "unknown", Retired: "the plan was committed"},
		"fired":                                     {Truth: "true", Fired: true},
		"moot, it never fires":                      {Truth: "false", Moot: true},
		"unknown":                                   {Truth: "unknown"},
	} {
		if got := LeaseWord(l); got != want {
			t.Errorf("%+v is %q, want %q", l, got, want)
		}
		var shown strings.Builder
		l.Name, l.Condition, l.Waits = "n", "c", []string{"fact k"}
		writeLeases(&shown, cli.Pen{}, "", []api.Lease{l})
		if !strings.HasPrefix(shown.String(), "lease n: c  "+want) ||
			strings.Contains(shown.String(), "waits for") != asked(l) {
			t.Errorf("plan show says %q, want %q", shown.String(), want)
		}
	}
	for want, moot := range map[string][]string{"no future makes it true": nil, "a; b": {"a", "b"}} {
		if got := mootWhy(api.Lease{MootWhy: moot}); got != want {
			t.Errorf("moot because %q, want %q", got, want)
		}
	}
}

// What was not read is not called unknown.
func TestAReadingSaysWhetherThereIsSuchAFact(t *testing.T) {
	for want, r := range map[string]api.Reading{
		`facts["k"] = 7  (record 14)`:              {Name: `facts["k"]`, Present: true, Value: "7", Sequence: 14},
		`facts["k"]: present (record 14)`:          {Name: `facts["k"]`, Present: true, Sequence: 14},
		`facts["k"]: no such fact`:                 {Name: `facts["k"]`},
		`facts.exists("job/"): decided by no fact`: {Name: `facts.exists("job/")`},
		`facts.exists("job/") = "job/a"`:           {Name: `facts.exists("job/")`, Present: true, Value: `"job/a"`},
		`count("k") = 0`:                           {Name: `count("k")`, Present: true, Value: "0"},
		`first_at("k"): no occurrence`:             {Name: `first_at("k")`},
		`plan.status = "open"`:                     {Name: "plan.status", Present: true, Value: `"open"`},
	} {
		if got := readingText(r); got != want {
			t.Errorf("%+v reads %q, want %q", r, got, want)
		}
	}
	for n, want := range map[uint64]string{1: "1 other lease", 2: "2 other leases"} {
		if got := otherLeases(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

// What waits to be decided is due now, not some time ago.
func TestNothingIsDueInThePast(t *testing.T) {
	now := time.Unix(1000, 0)
	for ns, want := range map[int64]string{0: "-", 1: "now", now.UnixNano(): "now",
		now.Add(5 * time.Minute).UnixNano(): "in 5m00s"} {
		if got := DueText(ns, now); got != want {
			t.Errorf("%d: %q, want %q", ns, got, want)
		}
	}
}

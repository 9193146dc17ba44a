package doctor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestWhatMayPassIsLookedAtAgain: until it has passed, and no longer than patience, but twice in any
// case; what lasts is told at once.
func TestWhatMayPassIsLookedAtAgain(t *testing.T) {
	lasting, passing := broken("a", "mend", "lasting"), broken("b", "wait", "of a moment").mayPass(true)
	for what, c := range map[string]struct {
		looks       func(n int) []Finding
		took        time.Duration // of one look
		least, most int
		state       string
	}{
		"lasting":     {func(int) []Finding { return []Finding{lasting} }, 0, 1, 1, "FAIL"},
		"well":        {func(int) []Finding { return []Finding{ok("a", "").mayPass(true)} }, 0, 1, 1, "ok"},
		"passing":     {func(int) []Finding { return []Finding{passing} }, 0, 3, 8, "FAIL"},
		"a long look": {func(int) []Finding { return []Finding{passing} }, time.Minute, 2, 2, "FAIL"},
		"passed at last": {func(n int) []Finding {
			return []Finding{[]Finding{passing, passing, ok("b", "")}[n]}
		}, 0, 3, 3, "ok"},
		"lasting beside": {func(n int) []Finding { return [][]Finding{{lasting, passing}, {lasting}}[n] }, 0, 2, 2, "FAIL"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, looks := time.Now(), 0
			findings := examined(t.Context(), func() []Finding {
				<-time.After(c.took)
				looks++
				return c.looks(looks - 1)
			})
			if looks < c.least || looks > c.most || findings[len(findings)-1].State != c.state ||
				time.Since(began) > 2*patience+2*c.took {
				t.Errorf("%s: %d looks in %s, %+v", what, looks, time.Since(began), findings)
			}
		})
	}
}

// TestWhichFindingsMayPass: those of a takeover, of what has just begun, and of answers that did not
// come. Others are told at once.
func TestWhichFindingsMayPass(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	waits := func(w api.Waiting) Finding { return ExamineWorkers(api.Status{Waiting: []api.Waiting{w}}, now)[0] }
	mode := func(mode string, problem string) Finding {
		return ExamineMode(api.Status{Tenant: "t", Mode: mode, Problem: problem}, now)
	}
	page := func(d time.Duration) Finding {
		return ExaminePages(api.Status{Unpaged: 1, OldestPage: &api.UntakenPage{AtNs: ago(d)}}, now)
	}
	stale := func() (access.Answer, error) { return access.Answer{Stale: "half a line"}, nil }
	self := &cli.Settings{Self: &access.Credentials{Role: access.Local}}
	for what, c := range map[string]struct {
		is   Finding
		pass bool
	}{
		"no holder":           {mode(api.ModeStandby, ""), true},
		"starting":            {mode("starting", ""), true},
		"no room for now":     {mode(api.ModeHolding, "the stream takes nothing"), true},
		"held":                {mode(api.ModeHolding, ""), false},
		"halted":              {mode(api.ModeHalted, "a hole"), false},
		"degraded":            {mode(api.ModeDegraded, "full"), false},
		"a worker":            {waits(api.Waiting{Tries: 1, SinceNs: ago(time.Second)}), true},
		"a listener":          {waits(api.Waiting{Tries: 1, Heard: true, SinceNs: ago(time.Second)}), true},
		"a function":          {waits(api.Waiting{Tries: 1, Handler: "f", SinceNs: ago(time.Second)}), true},
		"a worker for long":   {waits(api.Waiting{Tries: 9, SinceNs: ago(time.Minute)}), false},
		"a worker that works": {waits(api.Waiting{Working: true, SinceNs: ago(time.Hour)}), false},
		"a page":              {page(time.Second), true},
		"a page for long":     {page(time.Minute), false},
		"a late answer":       {problem("x", &cli.Failure{Code: cli.ExitNoServer}), true},
		"a refusal":           {problem("x", &cli.Failure{Code: cli.ExitNotAllowed}), false},
		"another error":       {problem("x", errors.New("no")), false},
		"a file of users":     {examineUsers(self, stale), true},
	} {
		if c.is.passing != c.pass {
			t.Errorf("%s: %+v", what, c.is)
		}
	}
}

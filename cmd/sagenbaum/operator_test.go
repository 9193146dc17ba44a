package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// answering is an executor of a test's own making on a real server: a function
// per verb.
func answering(t *testing.T, verbs map[string]func(data []byte) any) string {
	t.Helper()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn := cmdtest.Dial(t, server.URL())
	for verb, answer := range verbs {
		answers(t, conn, api.QuerySubject("default", verb), answer)
	}
	return server.URL()
}

// answers has a connection answer on a subject from now on.
func answers(t *testing.T, conn *nats.Conn, subject string, answer func(data []byte) any) {
	t.Helper()
	_, err := conn.Subscribe(subject, func(m *nats.Msg) {
		body, err := json.Marshal(answer(m.Data))
		if err != nil {
			panic(err)
		}
		_ = m.Respond(body)
	})
	must(t, errors.Join(err, conn.Flush()))
}

func TestQuarantineLsReadsPageAfterPage(t *testing.T) {
	t.Parallel()
	const total = 450
	url := answering(t, map[string]func([]byte) any{"quarantine.ls": func(data []byte) any {
		var q api.ListQuery
		if err := json.Unmarshal(data, &q); err != nil {
			return api.Problem{Text: err.Error()}
		}
		var answer api.PlansAnswer
		for n := range total {
			id := fmt.Sprintf("p%03d", n)
			if id <= q.After {
				continue
			}
			if len(answer.Plans) == min(q.Limit, 7) { // pages are cut shorter than asked, as by bytes
				answer.Next = answer.Plans[len(answer.Plans)-1].Plan
				break
			}
			answer.Plans = append(answer.Plans,
				api.Plan{Plan: id, State: ledger.StateQuarantined, Orphans: []string{"x"}})
		}
		return answer
	}})
	for _, c := range []struct {
		args  []string
		first string
		count int
		more  string
	}{
		{[]string{"--limit", "1000"}, "p000", total, ""},
		{[]string{"--limit", "10"}, "p000", 10, "p009"},
		{[]string{"--limit", "1000", "--after", "p440"}, "p441", 9, ""},
	} {
		args := append([]string{"quarantine", "ls", "--server", url}, c.args...)
		answer := cmdtest.Decoded[api.PlansAnswer](t, cmdtest.Run(t, append(args, "-o", "json")...))
		if len(answer.Plans) != c.count || answer.Plans[0].Plan != c.first || answer.Next != c.more {
			t.Errorf("%v: %d plans, next %q, want %d and %q", c.args, len(answer.Plans), answer.Next, c.count, c.more)
		}
		said := cmdtest.Run(t, args...)
		if rows := strings.Count(said.Stdout, "\n") - 1; rows != c.count ||
			strings.Contains(said.Stderr, "there are more") != (c.more != "") {
			t.Errorf("%v: %d rows, stderr %q", c.args, rows, said.Stderr)
		}
	}
}

func TestPagesThatGoInACircleEnd(t *testing.T) {
	t.Parallel()
	url := answering(t, map[string]func([]byte) any{"quarantine.ls": func([]byte) any {
		return api.PlansAnswer{Plans: []api.Plan{}, Next: "p1"}
	}})
	cmdtest.Run(t, "quarantine", "ls", "--server", url).Wants(t, "quarantine ls", cli.ExitFailed,
		"in a circle at p1")
}

func TestCancelWaitsNoLongerThanItWasTold(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	cmdtest.UnservedPlan(t, cmdtest.Dial(t, s.URL), "default", "p1")
	started := time.Now()
	r := s.Ask(t, "default", "plan", "cancel", "p1", "--wait", "--wait-timeout", "700ms")
	r.Wants(t, "a wait that is too short", cli.ExitLook, "p1 has not ended after 700ms",
		"action 1 room.book: dispatched to room.free", "next: sagenbaum plan tree p1")
	if !strings.Contains(r.Stdout, "p1 unwinding") {
		t.Errorf("stdout is %q", r.Stdout)
	}
	if took := time.Since(started); took > 40*time.Second {
		t.Errorf("it took %s", took)
	}
	s.Ask(t, "default", "plan", "cancel", "p1", "--wait", "--wait-timeout", "0s").Wants(t, "no wait", cli.ExitUsage,
		"--wait-timeout 1m")
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// The end follows the resolution within milliseconds: that is what is printed.
func TestResolveTellsWhatThePlanBecomes(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	conn := cmdtest.Dial(t, s.URL)
	for i := range 3 {
		id := fmt.Sprintf("p%d", i)
		cmdtest.OpenPlan(t, conn, "default", id)
		cancelled := s.Ask(t, "default", "plan", "cancel", id)
		if cancelled.Wants(t, "cancel", cli.ExitGood); !strings.Contains(cancelled.Stdout, id+" quarantined") {
			t.Errorf("cancel says %q", cancelled.Stdout)
		}
		r := s.Ask(t, "default", "quarantine", "resolve", id, "1", "--as", "done", "--reason", "by hand", "--evidence",
			"ticket:7")
		if r.Wants(t, "resolve", cli.ExitGood); !strings.Contains(r.Stdout, "plan now resolved") {
			t.Errorf("resolve says %q", r.Stdout)
		}
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestWhatIsStoredIsNoFailure: a host that cannot go on right after it has folded a record leaves
// nothing to ask, and the record acts all the same.
func TestWhatIsStoredIsNoFailure(t *testing.T) {
	t.Parallel()
	for line, next := range map[string]string{
		"plan erase p1 --reason why":              "plan show p1",
		"plan unwind p1 --reason why":             "plan show p1",
		"plan unwind p1 --action a --reason why":  "plan show p1",
		"plan unwind p1 --wait --reason why":      "plan show p1",
		"plan cancel p1":                          "plan show p1",
		"plan cancel p1 --wait":                   "plan show p1",
		"plan report p1 a --present --reason why": "plan show p1",
		"plan resume p1 --reason why":             "plan show p1",
		"quarantine skip p1 b --reason why":       "plan show p1",
		"clock confirm --reason why":              "clock show",
		"fact put k 1":                            "fact get k",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			r := cmdtest.Run(t, append(strings.Fields(line), "--server", degradedAfter(t, 1))...)
			r.Wants(t, line, cli.ExitLook, "record 1 is stored", "tenant default is degraded: the disk is full",
				"next: sagenbaum doctor; then sagenbaum "+next)
		})
	}
}

// degradedAfter is a server with a ledger whose host degrades when it has said what became of the
// record at a sequence.
func degradedAfter(t *testing.T, sequence uint64) string {
	t.Helper()
	var folded atomic.Bool
	degraded := api.Problem{Text: "tenant default is degraded: the disk is full", Again: true}
	unless := func(answer any) func([]byte) any {
		return func([]byte) any {
			if folded.Load() {
				return degraded
			}
			return answer
		}
	}
	plan := api.Plan{Plan: "p1", State: ledger.StateUnwinding, SecondApprover: true,
		Cuts: []api.Cut{{Lease: "l", Action: "a", Cut: "1.0-" + strings.Repeat("9f", 32)}}, Quarantined: 1,
		Actions: []api.Action{{Action: "a", Number: 1, Undo: "held", Capability: "x.y", Outcome: "in_doubt"},
			{Action: "b", Number: 2, Undo: cli.UndoQuarantined, Capability: "x.y", Compensation: "x.z"}}}
	url := answering(t, map[string]func([]byte) any{
		"plan.show": unless(api.PlanAnswer{Plan: plan}),
		"status":    func([]byte) any { return degraded },
		"fact.get":  func([]byte) any { return degraded },
		"plan.outcome": func(data []byte) any {
			answer := unless(api.OutcomeAnswer{State: ledger.StateUnwinding, Applied: sequence})(data)
			folded.Store(true)
			return answer
		},
	})
	_, err := jetstream.Open(t.Context(),
		jetstream.Config{Conn: cmdtest.Dial(t, url), Tenant: "default", AcceptLossyBroker: true})
	must(t, err)
	return url
}

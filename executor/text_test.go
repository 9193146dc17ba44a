package executor_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestNoTextForPeopleStopsAnAct: in JSON no library of ours has cut it. Under a holder that
// refused it, it stays refused, as that holder's records say.
func TestNoTextForPeopleStopsAnAct(t *testing.T) {
	long := strings.Repeat("caf\xe9 ", 1500)
	for what, c := range map[string]struct{ subject, record, state string }{
		"a plan fails":        {"agent.a1.p", `"plan":"p","plan_failed":{"reason":"` + long + `"}`, "compensated"},
		"a plan is cancelled": {"agent.a1.p", `"plan":"p","planCancelled":{"reason":"` + long + `"}`, "compensated"},
		"half a pair":         {"agent.a1.p", `"plan":"p","plan_failed":{"reason":"\ud83d"}`, "compensated"},
		"a supervisor blocks": {"verdict.guard",
			`"plan":"p","action":"1","verdict_given":{"outcome":"VERDICT_OUTCOME_BLOCK","scope":"SCOPE_PLAN","reason":"` +
				long + `"}`, "compensated"},
		"an operator undoes": {"operator.ann",
			`"plan":"p","compensation_requested":{"actor":"ann","reason":"` + long + `"}`, "compensated"},
	} {
		t.Run(what, func(t *testing.T) {
			for _, old := range []bool{false, true} {
				s := newSchedule(t)
				if old {
					s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
						Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1",
							FoldVersion: ledger.TextsSince - 1}}}))
				}
				s.play("open 1 1+")
				got := s.raw("saga.t."+c.subject, ledger.ContentTypeJSON,
					fmt.Appendf(nil, `{"records":[{%s}]}`, c.record))
				if refused := got[0].Verdict == Refused; refused != old {
					t.Fatalf("under an earlier holder: %v, %+v", old, got)
				}
				if old {
					s.wantState("p", "open", "1=held")
					continue
				}
				s.play("turn 1=done turn turn")
				s.wantState("p", c.state, "1=compensated")
			}
		})
	}
}

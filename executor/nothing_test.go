package executor_test

import (
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAnAnswerThatSaysNothingRulesNothingOut: a probe that is limited, broken or empty does
// not say that the effect is absent, whatever its contract compares.
func TestAnAnswerThatSaysNothingRulesNothingOut(t *testing.T) {
	for _, expression := range []string{
		`probe.state == "active" ? "present" : "absent"`,
		`probe.state != "active" ? "absent" : "present"`,
		`probe.state in ["active"] ? "present" : "absent"`,
		`probe.items.exists(i, i.state == "active") ? "present" : "absent"`,
		`probe.items.all(i, i.state != "active") ? "absent" : "present"`,
	} {
		for _, c := range []struct{ output, want string }{
			{"", "quarantined"}, {"null", "quarantined"}, {"{}", "quarantined"},
			{`{"error":"rate limited"}`, "quarantined"}, {`{"items":[{}]}`, "quarantined"},
			{`{"state":"gone","items":[{"state":"gone"}]}`, "failed"},
			{`{"state":"active","items":[{"state":"active"}]}`, "compensated"},
		} {
			s := newSchedule(t)
			s.must(s.agent("p", opened(0)))
			s.must(s.agent("p", pair("a", probed(&pb.Probe{Call: questionTo("probe.a", "input.id"),
				Answer: expression}))...))
			s.worker = func(k Command) *api.Reply {
				if k.Command.Capability == "probe.a" {
					return &api.Reply{Status: api.StatusDone, Output: []byte(c.output)}
				}
				return &api.Reply{Status: api.StatusDone}
			}
			s.play("a=lost fail turn @1m turn @2m turn @3m turn @5m turn")
			if got := s.show("p"); got.State != c.want {
				t.Errorf("%s of %q: %s, want %s: %s", expression, c.output, got.State, c.want,
					got.Actions[0].Note)
			} else if note := got.Actions[0].Note; c.want == "quarantined" &&
				!strings.Contains(note, "it reads what is not there") {
				t.Errorf("%s of %q: its owner reads %q", expression, c.output, note)
			}
		}
	}
}

// TestACheckThatSaysNothingConfirmsNothing: the owner hears of an undo whose check had no
// answer.
func TestACheckThatSaysNothingConfirmsNothing(t *testing.T) {
	for output, want := range map[string]string{
		"": "quarantined", "{}": "quarantined", `{"error":"rate limited"}`: "quarantined",
		`{"state":"gone"}`: "compensated",
	} {
		s := newSchedule(t)
		s.must(s.agent("p", opened(0)))
		s.must(s.agent("p", pair("a", checked(questionTo("verify.a", "input.id"), `verify.state != "active"`))...))
		s.must(s.agent("p", completed("a")))
		s.worker = func(k Command) *api.Reply {
			if k.Command.Capability == "verify.a" {
				return &api.Reply{Status: api.StatusDone, Output: []byte(output)}
			}
			return &api.Reply{Status: api.StatusDone}
		}
		s.play("fail turn @1m turn @2m turn @3m turn @5m turn")
		if got := s.show("p"); got.State != want {
			t.Errorf("%q: %s, want %s: %s", output, got.State, want, got.Actions[0].Note)
		}
	}
}

// TestAFailureThatSaysNothingIsTriedAgain: it is neither done nor final.
func TestAFailureThatSaysNothingIsTriedAgain(t *testing.T) {
	for _, change := range []func(*pb.CompensationRegistered){
		func(c *pb.CompensationRegistered) { c.Done = `error.code != "locked"` },
		func(c *pb.CompensationRegistered) { c.Stop = `!(error.code in ["locked"])` },
		func(c *pb.CompensationRegistered) { c.Done = `result.state != "there"` },
		func(c *pb.CompensationRegistered) { c.Stop = `error.message != "later"` },
	} {
		s := newSchedule(t)
		s.must(s.agent("p", opened(0)))
		s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Attempts = 2
			change(c)
		})...))
		s.must(s.agent("p", completed("a")))
		sent := 0
		s.worker = func(Command) *api.Reply {
			if sent++; sent == 1 {
				return &api.Reply{Status: api.StatusFailed}
			}
			return &api.Reply{Status: api.StatusDone}
		}
		s.play("fail turn @1m turn @2m turn")
		if got := s.show("p"); got.State != "compensated" || sent != 2 {
			t.Errorf("%s after %d attempts: %+v", got.State, sent, got.Actions[0])
		}
	}
}

// TestAnUndoThatHadNoBlobIsNotDone, whatever its contract says of that.
func TestAnUndoThatHadNoBlobIsNotDone(t *testing.T) {
	for status, attempts := range map[string]int{api.StatusStop: 1, api.StatusFailed: 2} {
		s := newSchedule(t)
		s.must(s.agent("p", opened(0)))
		s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Attempts, c.Done = 2, `error.code in ["gone", "blob_missing"]`
		})...))
		s.must(s.agent("p", completed("a")))
		sent := 0
		s.worker = func(Command) *api.Reply {
			sent++
			return &api.Reply{Status: status, Code: api.CodeBlob}
		}
		s.play("fail turn @1m turn @2m turn")
		if got := s.show("p"); got.State != "quarantined" || sent != attempts {
			t.Errorf("%s: %s after %d attempts: %+v", status, got.State, sent, got.Actions[0])
		}
	}
}

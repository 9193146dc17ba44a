package executor_test

import (
	"fmt"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// numbered is a schedule whose plan p holds conditions; old: it was opened under an earlier holder.
func numbered(t *testing.T, old bool, conditions ...string) *schedule {
	t.Helper()
	s := newSchedule(t)
	if old {
		s.underHolder(ledger.NumbersSince - 1)
	}
	var list []*pb.Trigger
	for i, text := range conditions {
		list = append(list, when(fmt.Sprint("t", i), text))
	}
	s.must(s.agent("p", opened(0, list...)))
	return s
}

// asserts stores facts of a source.
func (s *schedule) asserts(key string, values ...string) {
	s.t.Helper()
	for _, value := range values {
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "s"}, &pb.Record{
			Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: []byte(value)}}}))
	}
}

// TestAConditionReadsNumbersAsWhenItWasArmed: exactly, and as doubles where an earlier holder has
// armed it, also under a later one and after a start.
func TestAConditionReadsNumbersAsWhenItWasArmed(t *testing.T) {
	for _, old := range []bool{false, true} {
		s := numbered(t, old, `facts["a"] == facts["b"]`)
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
			Term: 3, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: FoldVersion}}}))
		s.state = OpenWith(s.kv, "t", s, s.programs)
		s.must(s.agent("q", opened(0, when("same", `facts["a"] == facts["b"]`))))
		s.asserts("a", "18446744073709551615")
		s.asserts("b", "18446744073709551614")
		s.turn()
		for plan, doubles := range map[string]bool{"p": old, "q": false} {
			if fired := s.planOf(plan).Row.Fired != nil; fired != doubles {
				t.Errorf("armed under an earlier holder %v: plan %s has fired: %v", old, plan, fired)
			}
		}
	}
}

// TestAnotherSpellingIsNoChange for since(), also of a fact that was evicted. An earlier holder
// compared bytes.
func TestAnotherSpellingIsNoChange(t *testing.T) {
	for _, old := range []bool{false, true} {
		for what, c := range map[string]struct {
			first, then string
			same        bool
		}{
			"order of keys":      {`{"step":1,"of":2}`, `{"of":2,"step":1}`, true},
			"spelling":           {`{"step":1}`, `{ "step": 1.0 }`, true},
			"an escape":          {`"a"`, `"\u0061"`, true},
			"the same bytes":     {`[1]`, `[1]`, true},
			"another value":      {`{"step":1}`, `{"step":2}`, false},
			"beyond what floats": {`18446744073709551615`, `18446744073709551614`, false},
		} {
			for _, evicts := range []bool{false, true} {
				s := numbered(t, old)
				s.asserts("k", c.first)
				began := s.state.FactRow("k").ChangedNs
				if evicts {
					s.must(s.append(holder, &pb.Record{Term: map[bool]uint64{false: 1, true: 2}[old], EpochNs: s.now,
						Kind: &pb.Record_FactEvicted{FactEvicted: &pb.FactEvicted{Key: "k",
							Fact: s.state.FactRow("k").Source}}}))
				}
				s.now += second
				s.asserts("k", c.then)
				want := c.same && (!old || c.first == c.then)
				if same := s.state.FactRow("k").ChangedNs == began; same != want {
					t.Errorf("%s, old %v, evicted %v: is the same %v, want %v", what, old, evicts, same, want)
				}
			}
		}
	}
}

// TestAnUndoIsCalledWithExactNumbers: what is computed of an id has all of its digits.
func TestAnUndoIsCalledWithExactNumbers(t *testing.T) {
	for _, old := range []bool{false, true} {
		s := numbered(t, old)
		records := pair("1", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Bindings = []*pb.Binding{{Name: "next", Expression: "input.id + 1"},
				{Name: "name", Expression: "string(input.total)"}}
		})
		records[0].Payload.Input = []byte(`{"id":18446744073709551615,"total":1500000.00}`)
		s.must(s.agent("p", records...))
		s.must(s.agent("p", completed("1")))
		s.must(s.agent("p", planFailed()))
		for records := s.decide(nil); len(records) > 0; records = s.decide(nil) {
			s.must(s.append(holder, records...))
		}
		want := `{"next":18446744073709551616,"name":"1500000"}`
		if old {
			want = `{"next":18446744073709552000,"name":"1.5e+06"}`
		}
		commands := s.state.Commands()
		if len(commands) != 1 || string(commands[0].Arguments) != want {
			t.Errorf("under an earlier holder %v: %+v, want %s", old, commands, want)
		}
	}
}

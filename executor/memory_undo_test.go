package executor_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// byFact makes a pair's inverse one in working memory; each binding is name, CEL.
func byFact(capability string, bindings ...string) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
	return func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Capability, c.Actuator = capability, ledger.ActuatorMemory
		for i := 0; i < len(bindings); i += 2 {
			c.Bindings = append(c.Bindings, &pb.Binding{Name: bindings[i], Expression: bindings[i+1]})
		}
	}
}

// TestAnUndoInWorkingMemoryIsOneCommitWithItsFact, which refers to the forward by
// address and wakes leases like any other.
func TestAnUndoInWorkingMemoryIsOneCommitWithItsFact(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("q", opened(0, &pb.Trigger{Name: "x", Condition: `facts["branch/a"].state == "gone"`})))
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("p",
		pair("a", byFact(ledger.CapabilityAssert, "key", `"branch/" + input.id`, "value",
			`{"state": "gone", "ref": output.ref}`))...))
	w.must(w.agent("p", completed("a")))
	w.must(w.agent("p", pair("b", byFact(ledger.CapabilityRetract, "key", `"open/" + input.id`))...))
	w.must(w.agent("p", completed("b")))
	w.must(w.append(sensor, asserted("open/b", `true`)))
	w.must(w.agent("p", planFailed()))
	w.turn()
	w.wantState("p", ledger.StateCompensated, "a=compensated b=compensated")
	w.wantState("q", ledger.StateFailed, "")
	for id, key := range map[string]string{"a": "branch/a", "b": "open/b"} {
		row, registered := w.state.FactRow(key), w.actionOf("p", id).Fixed.Registered
		at := row.Source
		if row.Retracted {
			at = row.Tombstone
		}
		e := w.entryAt(at)
		if !row.Undo || row.Plan != "p" || row.Action != id || !SameAddress(row.About, registered) ||
			!SameAddress(e.Record.About, registered) {
			t.Fatalf("%v", row)
		}
		if w.entryAt(row.Cause).Record.GetCompensationDispatched() == nil {
			t.Fatalf("the cause of fact %s is no dispatch", key)
		}
		next := w.entryAt(&pb.Address{Sequence: at.Sequence, Index: at.Index + 1})
		if next.Record.GetCompensationSucceeded() == nil || next.Record.Action != id {
			t.Fatalf("behind fact %s stands %v", key, next.Record)
		}
	}
	if row := w.state.FactRow("branch/a"); string(row.Value) != `{"ref":"a","state":"gone"}` &&
		string(row.Value) != `{"state":"gone","ref":"a"}` {
		t.Fatalf("%s", row.Value)
	}
	if rows.Digest(w.refold(1)) != rows.Digest(w.kv) {
		t.Fatal("another state when folded anew")
	}
}

// TestAFactOfTheHolderCountsOnlyAsTheUndoUnderWay: what no dispatch asks for, what
// differs from it and a second copy are void, and no undo succeeds without its fact.
func TestAFactOfTheHolderCountsOnlyAsTheUndoUnderWay(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("p", pair("a", byFact(ledger.CapabilityAssert, "key", `"k"`, "value", `1`))...))
	w.must(w.agent("p", completed("a")))
	w.must(w.agent("p", pair("b")...))
	w.must(w.agent("p", completed("b")))
	fact := func(key, value, action string, cause *pb.Address) *pb.Record {
		r := asserted(key, value)
		r.Plan, r.Action, r.Term, r.EpochNs, r.Cause = "p", action, 1, w.now, cause
		r.About = w.actionOf("p", action).Fixed.Registered
		return r
	}
	success := func() *pb.Record {
		a := w.actionOf("p", "a")
		return &pb.Record{Plan: "p", Action: "a", Term: 1, EpochNs: w.now, About: a.Fixed.Registered, Cause: a.Row.Dispatched,
			Kind: &pb.Record_CompensationSucceeded{CompensationSucceeded: &pb.CompensationSucceeded{Attempt: 1}}}
	}
	void := func(r *pb.Record, want string) {
		t.Helper()
		if got := w.append(holder, r)[0]; got.Verdict != Void || !strings.Contains(got.Reason, want) {
			t.Fatalf("%+v, want void: %s", got, want)
		}
	}
	void(fact("k", "1", "a", w.actionOf("p", "a").Fixed.Registered), "plan p is open")
	w.must(w.agent("p", planFailed()))
	var dispatched *pb.Address
	for range 9 { // until a is dispatched, without an answer for it
		if dispatched = w.actionOf("p", "a").Row.Dispatched; dispatched != nil {
			break
		}
		var answers []Answer
		for _, c := range w.state.Commands() {
			answers = append(answers, *w.work(c))
		}
		w.must(w.append(holder, w.decide(answers)...))
	}
	commands := w.state.Commands()
	if len(commands) != 1 || commands[0].Actuator != ledger.ActuatorMemory ||
		string(commands[0].Arguments) != `{"key":"k","value":1}` {
		t.Fatalf("%+v", commands)
	}
	if again := w.state.InFlight(); len(again) != 1 || again[0].Actuator != ledger.ActuatorMemory {
		t.Fatalf("what a restart sends again: %+v", again)
	}
	void(fact("k", "1", "b", dispatched), "the compensation of action b asserts no fact")
	void(fact("k", "2", "a", dispatched), "with another value or key")
	void(fact("j", "1", "a", dispatched), "with another value or key")
	void(fact("k", "1", "a", w.actionOf("p", "b").Row.Dispatched), "was dispatched at")
	void(success(), `has not changed fact "k"`)
	w.must(w.append(holder, fact("k", "1", "a", dispatched)))
	void(fact("k", "1", "a", dispatched), "a copy")
	w.turn(Answer{Plan: "p", Number: 1, Purpose: ledger.PurposeUndo, Attempt: 1,
		Reply: &api.Reply{Status: api.StatusDone}})
	w.wantState("p", ledger.StateCompensated, "a=compensated b=compensated")
	if n := count[*pb.Record_FactAsserted](w); n != 7 { // one of them counts
		t.Fatalf("%d facts", n)
	}
	void(fact("k", "1", "a", dispatched), "plan p is compensated")
	bare := asserted("k", "1")
	bare.Term = 1
	if got := w.append(holder, bare)[0]; got.Verdict != Refused || !strings.Contains(got.Reason, "is not a plan id") {
		t.Fatalf("a fact of the holder about no action: %+v", got)
	}
}

// TestAnUndoInWorkingMemoryWithBadArgumentsIsItsOwners, with the reason.
func TestAnUndoInWorkingMemoryWithBadArgumentsIsItsOwners(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{`output.nothing`, `1`, "key: missing"},
		{`7`, `1`, "key: not a text: 7"},
		{`""`, `1`, "key: 0 bytes"},
		{`string(output)`, `1`, ""},
		{`"k"`, `output.large`, fmt.Sprintf("value: %d bytes", ledger.UndoFactMax+3)},
	} {
		w := newWorld(t)
		w.must(w.agent("p", opened(0)))
		w.must(w.agent("p", pair("a", byFact(ledger.CapabilityAssert, "key", c.key, "value", c.value))...))
		out := completed("a")
		out.Payload.Output = fmt.Appendf(nil, `{"large":%q}`, strings.Repeat("x", ledger.UndoFactMax+1))
		w.must(w.agent("p", out, planFailed()))
		w.turn()
		w.wantState("p", ledger.StateQuarantined, "a=quarantined")
		note := w.show("p").Actions[0].Note
		if !strings.Contains(note, "cannot build the call of fact.assert: ") || !strings.Contains(note, c.want) {
			t.Errorf("%s: %s", c.key, note)
		}
	}
}

// TestAnUndoOfWorkingMemoryGoesOnAfterAFailedAttempt: a failure is tried again, and
// what its worker's record says late counts with the fact.
func TestAnUndoOfWorkingMemoryGoesOnAfterAFailedAttempt(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("p", pair("a", byFact(ledger.CapabilityRetract, "key", `"k"`))...))
	w.must(w.agent("p", completed("a"), planFailed()))
	w.worker = func(c Command) *api.Reply {
		if c.Attempt == 1 {
			return nil // never, of a host's; the fold takes it all the same
		}
		return &api.Reply{Status: api.StatusDone}
	}
	w.turn()
	w.must(w.append(sensor, asserted("k", `1`)))
	w.now += 10 * second
	w.turn()
	w.wantState("p", ledger.StateCompensated, "a=compensated")
	if row := w.state.FactRow("k"); !row.Retracted || len(row.Value) != 0 || row.Action != "a" {
		t.Fatalf("%v", row)
	}
}

// TestAFactThatNamesAnActionRefersToItByAddress.
func TestAFactThatNamesAnActionRefersToItByAddress(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	w.do("p", "a")
	r := asserted("k", `1`)
	r.Plan, r.Action = "p", "a"
	w.must(w.append(sensor, r))
	registered := w.actionOf("p", "a").Fixed.Registered
	if row := w.state.FactRow("k"); row.Undo || row.By != "sensor" || !SameAddress(row.About, registered) {
		t.Fatalf("%v", row)
	}
	r.About = w.state.FactRow("k").Source
	if got := w.append(sensor, r)[0]; got.Verdict != Refused || !strings.Contains(got.Reason, "about: ") {
		t.Fatalf("%+v", got)
	}
}

// TestAFactOfWhatIsNotRegisteredIsRefused: a typing error must not look like
// provenance.
func TestAFactOfWhatIsNotRegisteredIsRefused(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	w.do("p", "a")
	w.must(w.append(sensor, asserted("k", `1`)))
	for _, c := range []struct{ plan, action, want string }{
		{"nope", "", "plan nope was never opened"},
		{"nope", "a", "action a of plan nope is not registered"},
		{"p", "no", "action no of plan p is not registered"},
	} {
		for _, r := range []*pb.Record{asserted("k", `2`), forgotten("k")} {
			r.Plan, r.Action = c.plan, c.action
			if got := w.append(sensor, r)[0]; got.Verdict != Refused || got.Reason != c.want {
				t.Errorf("%+v, want %s", got, c.want)
			}
		}
	}
	if row := w.state.FactRow("k"); string(row.Value) != "1" || row.Plan != "" {
		t.Errorf("%v", row)
	}
	ofPlan := asserted("k", `3`)
	ofPlan.Plan = "p"
	w.must(w.append(sensor, ofPlan))
}

package executor_test

import (
	"bytes"
	"fmt"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"golang.org/x/mod/sumdb/note"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// madeLedgers are golden ledgers of what no script is about.
var madeLedgers = []struct {
	name string
	log  func(t *testing.T) []ledger.Message
}{
	{"working-memory", goldenOfMemory},
	{"clock-and-checkpoint", goldenOfClock},
	{"json", goldenInJSON},
	{"nothing-that-is-read", goldenOfRefusals},
	{"later-version", goldenOfLaterVersion},
	{"repaired", goldenOfRepair},
	{"signed", goldenOfSigned},
	{"erased", goldenOfErasure},
	{"parts", goldenOfParts},
	{"cancelled", goldenOfCancels},
	{"resumed", goldenOfWriters},
	{"ahead", goldenOfRuns},
	{"numbers", goldenOfNumbers},
	{"reported", goldenOfReports},
	{"moved", goldenOfMoves},
	{"adopted", goldenOfAdoptions},
	{"beside", goldenOfWhatIsBeside},
	{"attached", goldenOfTokens},
	{"vetoed", goldenOfVerdicts},
	{"found", goldenOfWhatCommitsFind},
	{"anytime", goldenOfLateReports},
}

// goldenOfLateReports has effects reported of what is committed, waits to be, or was resolved.
func goldenOfLateReports(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a:probe+for=1h own:a=x1 b:for=1h+probe own:b=x2 commit turn effect:a=,x9 turn undo:!a~1 turn")
	s.play("q/open q/a:probe q/own:a=x3 q/b q/b? q/commit turn q/effect:a=,x8 turn q/resolve:b turn")
	s.play("r/open:accept r/a:for=1h r/a? r/commit turn r/effect:a=x4,x5 turn r/undo: turn")
	s.play("u/open u/a:probe u/own:a=x6 u/b:askme u/b? u/fail turn u/resolve:b turn u/effect:a=,x7 turn")
	return s.log
}

// goldenOfWhatCommitsFind has commits that find more than one effect of an action, of which more is
// reported while a part of the plan is undone.
func goldenOfWhatCommitsFind(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.seen("x7")
	const committed = "open f:probe f? g f.probe=x7+x8 g+ commit @30m turn own:f=x7 g=stop judge:g=block turn "
	s.play(committed + "effect:f=,x9 turn resolve:g turn")
	s.play("u/open u/f:probe u/f? f.probe=x7+x8 u/commit @2h turn u/own:f=x7 turn u/accept:f turn")
	return s.log
}

// goldenOfVerdicts has verdicts on what a part of its plan has undone, or undoes, in the plan itself and
// in a committed child, before the commit and after it.
func goldenOfVerdicts(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open b b+ q/open^ q/c q/c+ q/commit c=late undo:!plan:q turn")
	s.play("q/judge:c=block* q/tell:c#1=done turn")
	s.play("r/open r/b r/b+ u/open^r. u/d u/d+ u/commit r/undo:!plan:u turn r/commit:1 turn")
	s.play("u/judge:d=block u/judge:d=block* turn")
	s.play("v/open v/b v/b+ v/a v/a+ v/undo:!a turn v/judge:a=block* turn")
	return s.log
}

// goldenOfWhatIsBeside has undos, and a delivery, that read other actions, facts and what their plan
// was opened with, which change meanwhile; and a plan that is undone after its commit.
func goldenOfWhatIsBeside(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("fact:a=1.10 fact:b=2 open:input a:beside a+ b:beside+probe fact:a=3 forget:b own:b=x7")
	s.play("c:beside c? fail turn @1m")
	s.play("q/open:input !q/open q/a:beside q/a? q/b:beside q/own:b=x8 q/d:staged+beside fact:a=4")
	s.play("q/commit turn @2m q/undo turn")
	return s.log
}

// goldenOfTokens has child plans of other agents, of a plan that goes to another agent, and back.
func goldenOfTokens(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open:token a a+ as:eve q/open:token^ q/b q/b+ adopt:bob r/open:token^ turn as: s/open:token^ turn")
	s.play("as:bob resume t/open^ t/c t/c+ t/commit adopt:a1 u/open:token^ turn as:a1 resume as:eve q/commit turn")
	s.play("v/open:token^q as:a1 d d+ commit turn undo turn turn")
	return s.log
}

// goldenOfAdoptions has plans that go to another agent, and back, while the first one goes on.
func goldenOfAdoptions(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open:idle=9m a a+ b adopt:bob#2 =again !c b? as:bob !d resume d d+")
	s.play("as: !d? !resume !commit !again as:bob save:s")
	s.play("adopt:a1 !e as: !e resume e e+ as:bob !d? as:a1 !adopt:bob#2 fail turn turn !adopt:bob")
	s.play("q/open q/a q/a+ q/adopt:bob r/open^q r/b r/b+ as:bob q/resume q/c q/c+ q/commit turn q/undo turn turn")
	return s.log
}

// goldenOfMoves has deadlines that are moved, earlier, later and too late, and what reads them.
func goldenOfMoves(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open:due=5s a:due=1s a+ @9s move:30s moves:40s !moves:20s#2 moves:20s =again !move:1s @14s @15s turn")
	s.play("q/open@30s q/a q/a+ q/save:s q/b q/b+ q/back:s turn turn q/moves:50s @50s !q/move:60s turn")
	return s.log
}

// goldenOfReports has effects that operators report: in doubt, failed, one too many, undone blindly,
// known already, as a second operator has to confirm; and what their agent says of them later.
func goldenOfReports(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a a? b b- c:probe c+ d:probe+offer=1m d? d.probe=nobody,present turn @1m @2m")
	s.play("effect:a=x7 effect:b=x8 =effect:b=x8 effect:c=,x10 !effect:a=x70 turn =b? own:a=x9 turn @3m")
	s.play("fail turn !effect:z=x")
	s.play("q/open q/a q/a? q/fail turn q/effect:a=x1 turn")
	s.play("r/open:second r/a r/a? r/effect:a=x1 r/effect:a@ana=x1 r/own:a= r/commit turn !r/effect:a=x2")
	return s.log
}

// goldenOfNumbers has facts of one value in several spellings, ids that no double tells apart, in
// conditions and in an undo, and a duration that is refused.
func goldenOfNumbers(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.memoryMax = 60
	s.must(s.agent("p", opened(0, when("same", `facts["a"] == facts["b"]`),
		when("stuck", `elapsed(since("step"), duration("30s")) && facts["price"] + facts["price"] == 20.2`))))
	records := pair("1", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Bindings = []*pb.Binding{{Name: "next", Expression: "1 + input.id"}}
	})
	records[0].Payload.Input = []byte(`{"id":18446744073709551615}`)
	s.must(s.agent("p", records...))
	s.must(s.agent("p", completed("1")))
	s.agent("p", pair("2", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.TimeoutNs = 30_000 })...)
	s.asserts("a", "18446744073709551615")
	s.asserts("b", "18446744073709551614")
	s.asserts("price", "10.10")
	s.asserts("step", `{"n":1,"of":2}`)
	s.play(`turn @20s`)
	s.asserts("step", `{"of":2.0,"n":1}`)
	s.play("turn @31s turn 1=done turn turn")
	return s.log
}

// goldenOfCancels has a plan that its agent cancels, and one that an operator does, with
// an effect in doubt that is not there.
func goldenOfCancels(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a a+ b b- c c+ cancel turn q/open q/a q/a+")
	s.must(s.agent("q", append(pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.b"}}
	}), inDoubt("b"))...))
	s.play("b.probe=absent q/stop turn")
	return s.log
}

// goldenOfRuns has undos that are dispatched ahead: all of them done, one that fails, and a
// pair that comes late.
func goldenOfRuns(t *testing.T) []ledger.Message {
	s := newRun(t)
	s.play("open a a+ b b+ c c+ fail turn q/open q/a q/a+ q/b q/b+ q/c q/c+ b=fail,done q/fail turn @2s")
	s.play("r/open r/a r/a+ r/b r/b+ b=late r/fail turn r/c r/c+ turn r/tell:b#1=done turn")
	return s.log
}

// goldenOfWriters has a plan that a second process writes to before it resumes it, and
// whose first process goes on after that.
func goldenOfWriters(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.must(s.agent("p", by("w1", append([]*pb.Record{opened(0)}, pair("1")...)...)...))
	s.agent("p", by("w2",
		pair("1", func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) { f.Capability = "do.else" })...)...)
	s.agent("p", by("w2", completed("1"))...)
	s.must(s.agent("p", by("w2", resumed())...))
	s.must(s.agent("p", by("w2", pair("2")...)...))
	s.must(s.agent("p", by("w1", completed("1"))...))
	s.agent("p", by("w1", pair("3")...)...)
	s.must(s.agent("p", by("w1", failedForward("3"))...))
	s.must(s.agent("p", by("w2", completed("2"), planFailed())...))
	s.play("turn turn")
	return s.log
}

// goldenOfMemory has facts that come, change, leave memory, are read and come back.
func goldenOfMemory(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.memoryMax = 60
	s.must(s.agent("p", append([]*pb.Record{opened(epoch0+100*second, when("both", `facts["x"] == 2 && facts["y"] == 1`))},
		pair("a")...)...))
	for _, word := range []string{"fact:x=1", "fact:y=1", `fact:z="0123456789"`, "fact:v=[1,2,3]", "turn", "forget:v",
		"@1s", "a+", "turn"} {
		s.play(word)
	}
	s.must(s.append(ops, evictAsked("y")))
	s.turn()
	s.must(s.append(ops, restoreAsked("y")))
	s.turn()
	s.play("fact:x=2 turn @101s")
	return s.log
}

// goldenOfClock has what the fold only counts, and a clock that goes back.
func goldenOfClock(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open@5s a a+")
	s.must(s.append(ops,
		&pb.Record{Kind: &pb.Record_ClockConfirmed{ClockConfirmed: &pb.ClockConfirmed{Actor: "ops", Reason: "looked at it",
			WallNs: epoch0}}}))
	s.must(s.append(holder,
		&pb.Record{Term: 1, EpochNs: s.now, Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{}}}))
	s.now -= 3600 * second
	s.play("b b?")
	s.now = epoch0
	s.play("@6s")
	return s.log
}

// goldenOfRepair has a repair where its tiles end, which counts in any term, and one
// that stands elsewhere.
func goldenOfRepair(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a a+")
	repaired := func(through, size uint64) *pb.Record {
		return &pb.Record{Term: 1, EpochNs: s.now, Kind: &pb.Record_LedgerRepaired{LedgerRepaired: &pb.LedgerRepaired{
			Through: through, Size: size, Root: make([]byte, ledger.LeafSize), OldLast: through + 2,
			Lost: []*pb.SequenceRange{{From: through + 1, To: through + 2}}, Problem: "a record is missing",
			Reason: "a flipped bit", Actor: "ops",
		}}}
	}
	m := s.state.Meta()
	s.must(s.append(holder, repaired(m.Applied.Sequence, m.Records)))
	s.append(holder, repaired(1, 1))
	s.play("fail turn")
	s.wantState("p", ledger.StateCompensated, "a=compensated")
	return s.log
}

// goldenKey makes a key of the tenant from a seed.
func goldenKey(t *testing.T, seed byte) (note.Signer, string) {
	t.Helper()
	private, public, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 64)), ledger.Origin("t"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, public
}

// goldenOfSigned has checkpoints and rotations, those that count and those that do not.
func goldenOfSigned(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a a+")
	one, oneKey := goldenKey(t, 1)
	two, twoKey := goldenKey(t, 2)
	_, threeKey := goldenKey(t, 3)
	checkpoint := func(size uint64, by note.Signer) *pb.Record {
		root := ledger.LeafHash([]byte{byte(size)})
		signed, err := note.Sign(&note.Note{Text: ledger.Checkpoint{Origin: ledger.Origin("t"), Size: size,
			Root: root}.Text()}, by)
		if err != nil {
			t.Fatal(err)
		}
		return &pb.Record{Term: 1,
			Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{Size: size, Root: root[:],
				Note: string(signed)}}}
	}
	rotated := func(by note.Signer, old, next string) *pb.Record {
		k := &pb.KeyRotated{OldKey: old, NewKey: next, Size: s.state.Meta().Records, Reason: "a year is over", Actor: "ops"}
		if by != nil {
			signature, err := by.Sign([]byte(ledger.RotationText("t", k)))
			if err != nil {
				t.Fatal(err)
			}
			k.Signature = signature
		}
		return &pb.Record{Term: 1, Kind: &pb.Record_KeyRotated{KeyRotated: k}}
	}
	s.must(s.append(holder, checkpoint(3, one)))
	s.must(s.append(holder, checkpoint(3, two))) // none is larger: the first one stays
	s.must(s.append(holder, checkpoint(2, two)))
	for _, record := range []*pb.Record{
		checkpoint(100, one),                                         // ahead
		rotated(two, twoKey, threeKey), rotated(two, oneKey, twoKey), // not the key that signed, not signed by it
	} {
		if got := s.append(holder, record); got[0].Verdict != Void {
			t.Fatalf("%v counts", record)
		}
	}
	s.must(s.append(holder, rotated(one, oneKey, twoKey)))
	if got := s.append(holder, rotated(one, oneKey, threeKey)); got[0].Verdict != Void {
		t.Fatal("a key that is not in force any more is rotated")
	}
	s.must(s.append(holder, checkpoint(s.state.Meta().Records, two)))
	s.must(s.append(holder, rotated(nil, twoKey, threeKey))) // lost
	if s.state.Key() != threeKey || s.state.Signed().Signed.Size < 10 {
		t.Fatalf("key %s, checkpoint %v", s.state.Key(), s.state.Signed())
	}
	s.play("fail turn")
	return s.log
}

// goldenOfErasure has a plan that was erased by force while it was undone, and one that
// was undone after it had been committed and erased.
func goldenOfErasure(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a:sealed a+ b b+ !erase erase:force fail turn destroyed")
	s.wantState("p", ledger.StateQuarantined, "a=quarantined b=compensated")
	s.play("q/open q/a:sealed q/a+ q/commit turn q/erase q/destroyed q/undo turn")
	s.wantState("q~1", ledger.StateQuarantined, "a=quarantined")
	return s.log
}

// goldenOfParts has plans of which single actions were undone, with what came after them: for a
// verdict, a condition, a request, in a parent, while a commit waited, and after it.
func goldenOfParts(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a a+ b:own b+ c<a c+ judge:c=block turn fact:b=1 turn !commit commit:2 turn")
	s.wantState("p", ledger.StateCommitted, "a=retired b=compensated c=compensated")
	s.play("q/open q/a q/a+ q/b:own* q/b+ q/undo:!b turn q/c q/c- q/judge:a=block* turn")
	s.wantState("q", ledger.StateCompensated, "a=compensated b=compensated c=skipped")
	s.play("r/open r/a r/a+ r/b r/b+ r/commit turn r/undo:!b turn")
	s.wantState("r~1", ledger.StateCompensated, "a=skipped b=compensated")
	return s.log
}

// goldenInJSON is a plan of a client that has no protobuf.
func goldenInJSON(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	for _, commit := range []struct{ subject, text string }{
		{"saga.t.agent.py.p",
			`{"records":[{"plan":"p","planOpened":{"label":"from a foreign client","triggers":[{"name":"stop","condition":"facts[\"stop\"] == true"}]}}]}`},
		{"saga.t.agent.py.p", ` { "minReader" : 1 , "records" : [
			{"plan":"p","action":"a","forwardRegistered":{"capability":"do.a","class":"CLASS_COMPENSABLE"},"payload":{"input":"eyJpZCI6MX0="}},
			{"plan":"p","action":"a","compensation_registered":{"capability":"undo.a","bindings":[{"name":"id","expression":"input.id"}]}} ] }`},
		{"saga.t.agent.py.p",
			`{"min_reader":1,"records":[{"plan":"p","action":"a","forwardCompleted":{"externalRef":"x7"}}]}`},
		// half a pair
		{"saga.t.agent.py.p", `{"records":[{"plan":"p","action":"b","forwardRegistered":{"capability":"do.b"}}]}`},
		{"saga.t.agent.py.p", `{"records":[{"plan":"p","fromALaterVersion":{}}]}`},
		{"saga.t.agent.py.p", `{"frames":[]}`},
		{"saga.t.fact.sensor", `{"records":[{"factAsserted":{"key":"stop","value":"dHJ1ZQ=="}}]}`},
	} {
		s.raw(commit.subject, ledger.ContentTypeJSON, []byte(commit.text))
	}
	s.turn()
	s.wantState("p", ledger.StateQuarantined, "a=compensated") // b is its owner's
	return s.log
}

// goldenOfRefusals is a plan in between what is none of its ledger's.
func goldenOfRefusals(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a a+")
	newer, err := ledger.EncodeCommit([]*pb.Record{completed("a")})
	if err != nil {
		t.Fatal(err)
	}
	newer[1] = 99 // far from any version that will come
	for _, m := range []ledger.Message{
		{Subject: "saga.t.agent.a1.p", Data: nil},
		{Subject: "saga.t.agent.a1.p", Data: []byte("garbage")},
		{Subject: "saga.t.agent.a1.p", Data: newer},
		{Subject: "saga.t.nonsense", Data: []byte{8, 1}},
		{Subject: "saga.elsewhere.executor", Data: []byte{8, 1, 18, 0}},
		{Subject: "saga.t.operator.ann", ContentType: "text/html", Data: []byte("<p>")},
		{Subject: "saga.t.worker.w1", ContentType: ledger.ContentTypeJSON, Data: []byte("{")},
		{Subject: "saga.t.executor", Data: []byte{8, 1, 18, 2, 10, 0}},
	} {
		s.raw(m.Subject, m.ContentType, m.Data)
	}
	s.play("=again !lone:x turn fail turn")
	return s.log
}

// goldenOfLaterVersion is a plan whose writers say more than this version reads.
func goldenOfLaterVersion(t *testing.T) []ledger.Message {
	s := newSchedule(t)
	s.play("open a a+ b b+ fail turn")
	return withUnknownFields(t, s)
}

// unknownField is one that no version has.
const unknownField = 900

// withUnknownFields plays the records of a ledger again, each with a field in it that
// this version does not know; who decides knows the field as little.
func withUnknownFields(t *testing.T, played *schedule) []ledger.Message {
	t.Helper()
	s := newSchedule(t)
	for _, m := range played.log[1:] {
		source, _ := ledger.ParseSubject(m.Subject)
		if source.Class == ledger.ClassExecutor {
			continue
		}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		data := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), ledger.ReaderVersion)
		for _, e := range entries {
			body := protowire.AppendTag(bytes.Clone(e.Body), unknownField, protowire.BytesType)
			body = protowire.AppendString(body, fmt.Sprint("of a later version, ", m.Sequence))
			data = protowire.AppendBytes(protowire.AppendTag(data, 2, protowire.BytesType), body)
		}
		s.must(s.raw(m.Subject, m.ContentType, data))
	}
	s.turn()
	return s.log
}

package executor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Calls that nobody takes, and owners who answer before they are asked.
var unservedSchedules = []struct{ name, script, want string }{
	{"nobody serves it, and there is time", "open a a+ a=nobody fail turn @59m59s", "unwinding: a=dispatched []"},
	{"nobody serves it (S50)", "open a a+ a=nobody fail turn @1h", "quarantined: a=quarantined []"},
	{"its contract allows less", "open a:offer=1m a+ a=nobody fail turn @60s", "quarantined: a=quarantined []"},
	{"its contract allows more", "open a:offer=720h a+ a=nobody fail turn @719h", "unwinding: a=dispatched []"},
	{"it counts from the attempt, not from the plan", "open a:offer=1m a+ @2m a=nobody fail turn @179s",
		"unwinding: a=dispatched []"},
	{"what came before waits, other branches do not", "open a a+ b b+ c<a c+ b=nobody fail turn @1h",
		"quarantined: a=owed b=quarantined c=compensated [c]"},
	{"a worker comes in time", "open a:offer=1m a+ a=nobody fail turn @50s reply:a#1 @2m",
		"compensated: a=compensated []"},
	{"retry when there is a worker again", "open a:offer=1m a+ a=nobody fail turn @1m a=done retry:a turn",
		"compensated: a=compensated [a]"},
	{"retry, and still nobody", "open a:offer=1m a+ a=nobody fail turn @1m retry:a turn @119s",
		"unwinding: a=dispatched []"},
	{"retry, and nobody again", "open a:offer=1m a+ a=nobody fail turn @1m retry:a turn @2m",
		"quarantined: a=quarantined []"},
	{"other attempts are not spent", "open a:offer=1m a+ a=fail,nobody fail turn @1s @70s",
		"quarantined: a=quarantined []"},
	{"a worker is gone behind an attempt without an answer",
		"open a:blind+offer=1m a+ a=lost,nobody a.probe=present,absent fail turn @10s @90s", "compensated: a=compensated []"},
	{"and the effect stands", "open a:blind+offer=1m a+ a=lost,nobody a.probe=present fail turn @10s @90s",
		"quarantined: a=quarantined []"},
	{"and nobody answers the probe either", "open a:blind+offer=1m a+ a=lost,nobody a.probe=present,nobody fail turn " +
		"@10s @90s @150s", "quarantined: a=quarantined []"},
	{"nobody answers the probe", "open a:probe+offer=1m a? a.probe=nobody fail turn @59s", "unwinding: a=dispatched []"},
	{"nobody has answered the probe", "open a:probe+offer=1m a? a.probe=nobody fail turn @61s",
		"quarantined: a=quarantined []"},
	{"nobody answers the check", "open a:verify+offer=1m a+ a.verify=nobody fail turn @1m",
		"quarantined: a=quarantined [a]"},
	{"its forward failed meanwhile", "open a a=nobody fail turn a- @1h", "unwinding: a=dispatched []"},

	{"resolved while it is on its way", "open a a+ a=nobody fail turn resolve:a turn", "resolved: a=resolved []"},
	{"skipped while it is on its way", "open a a+ b b+ b=nobody fail turn skip:b turn",
		"resolved: a=compensated b=resolved [a]"},
	{"halted while it is on its way", "open a a+ b b+ b=nobody fail turn halt:b turn", "resolved: a=owed b=resolved []"},
	{"resolved while it waits", "open a a+ a=fail fail turn resolve:a turn @1h", "resolved: a=resolved []"},
	{"resolved before its turn", "open a a+ b b+ b=nobody fail turn resolve:a b=done turn reply:b#1",
		"resolved: a=resolved b=compensated []"},
	{"resolved in a quarantined plan, before its turn", "open a a+ b b+ b=stop fail turn resolve:a turn",
		"quarantined: a=resolved b=quarantined []"},
	{"resolved while it settles", "open a:settle=1h fail turn resolve:a turn", "resolved: a=resolved []"},
	{"resolved while the probe is asked", "open a:probe a? a.probe=nobody fail turn resolve:a turn",
		"resolved: a=resolved []"},
	{"resolved while the check is asked", "open a:verify a+ a.verify=nobody fail turn resolve:a turn",
		"resolved: a=resolved [a]"},
	{"resolved while two must agree", "open:second a a+ a=nobody fail turn resolve:a turn resolve:a@bob turn",
		"resolved: a=resolved []"},
	{"nothing is owed", "open a a+ !resolve:a fail turn !resolve:a !retry:a", "compensated: a=compensated [a]"},
	{"done came first", "open a a+ a=late fail turn tell:a#1=done !resolve:a !retry:a turn",
		"compensated: a=compensated []"},
	{"a retry of what is on its way takes force", "open a a+ a=nobody fail turn !retry:a a=done force:a turn",
		"compensated: a=compensated [a]"},
	{"a retry of what waits skips the pause", "open a a+ a=fail,done fail turn retry:a turn",
		"compensated: a=compensated [a]"},
	{"a retry of an unanswered probe asks again", "open a:probe a? a.probe=nobody fail turn a.probe=present retry:a turn",
		"compensated: a=compensated [a]"},
	{"a retry of what settles does not end that", "open a:settle=1h fail turn retry:a turn", "unwinding: a=settling []"},
	{"a retry before its turn keeps the order", "open a:approve a+ b b+ b=late fail turn retry:a !retry:a turn " +
		"tell:b#1=done turn", "compensated: a=compensated b=compensated [a]"},

	{"done behind a forced retry", "open a a+ a=nobody fail turn force:a turn reply:a#1 turn",
		"compensated: a=compensated []"},
	{"done behind the owner's answer is a duty", "open a a+ a=nobody fail turn resolve:a turn reply:a#1",
		"quarantined: a=resolved a~1=quarantined []"},
	{"a report behind the owner's answer is a duty", "open a a+ a=late fail turn skip:a turn tell:a#1=done " +
		"=tell:a#1=done turn !retry:a~1", "quarantined: a=resolved a~1=quarantined []"},
	{"and its owner answers", "open a a+ a=late fail turn skip:a turn tell:a#1=done turn resolve:a~1 turn",
		"resolved: a=resolved a~1=resolved []"},
	{"one word, one duty", "open a a+ a=nobody fail turn resolve:a turn reply:a#1 reply:a#1 =tell:a#1=done turn",
		"quarantined: a=resolved a~1=quarantined []"},
	{"done in the same turn as the answer", "open a a+ b< b+ a=late fail turn skip:a tell:a#1=done turn",
		"quarantined: a=resolved b=compensated a~1=quarantined [b]"},
	{"done behind a quarantine is told there", "open a:offer=1m a+ a=nobody-more fail turn @1m reply:a#1 turn",
		"quarantined: a=quarantined []"},
	{"and needs no second answer", "open a:offer=1m a+ a=nobody fail turn @1m reply:a#1 resolve:a turn reply:a#1",
		"resolved: a=resolved []"},
	{"failed behind the answer is nothing", "open a a+ a=late fail turn skip:a turn !tell:a#1=fail turn",
		"resolved: a=resolved []"},
	{"done behind the answer of a plan that is open again", "open a a+ save:s b b+ b=late back:s turn skip:b turn " +
		"tell:b#1=done turn", "quarantined: a=held b=resolved b~1=quarantined []"},
}

func TestUnservedSchedules(t *testing.T) {
	for _, c := range unservedSchedules {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			s.play(c.script)
			if got := s.outcome(); got != c.want {
				t.Errorf("%s\ngives %s\nwant  %s", c.script, got, c.want)
			}
			s.wantRefolded()
		})
	}
}

// held is what one record of the holder about action a says now.
func (s *schedule) held(at time.Duration, r *pb.Record) Result {
	s.t.Helper()
	a := s.actionOf("p", "a")
	r.Plan, r.Action, r.About, r.Cause, r.Term, r.EpochNs = "p", "a", a.Fixed.Registered, a.Row.Dispatched, 1,
		epoch0+int64(at)
	return s.append(holder, r)[0]
}

func unservedAttempt(attempt uint32, inDoubt bool) *pb.Record {
	return &pb.Record{Kind: &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
		Attempt: attempt, Code: CodeUnserved, Message: "nobody", Unserved: true, InDoubt: inDoubt}}}
}

// TestTheFoldCountsItselfForHowLongNobodyServes: a holder that gives a call up too early,
// or forgets that a worker may have it, is not believed.
func TestTheFoldCountsItselfForHowLongNobodyServes(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ a=nobody fail turn")
	if r := s.held(time.Hour-1, unservedAttempt(1, false)); r.Verdict != Void ||
		!strings.Contains(r.Reason, "may take the undo of action a until") {
		t.Fatalf("%+v", r)
	}
	if r := s.held(time.Hour, unservedAttempt(1, false)); r.Verdict != Effective {
		t.Fatalf("%+v", r)
	}
	s.turn()
	if a := s.show("p").Actions[0]; a.Undo != "quarantined" || a.Note != "nobody" {
		t.Fatalf("%+v", a)
	}

	s = newSchedule(t) // a lost attempt came first, and its worker asked for time
	s.play("open a:offer=1m a+ a=lost,nobody fail turn @2s")
	if r := s.held(10*time.Minute, unservedAttempt(2, false)); r.Verdict != Void ||
		!strings.Contains(r.Reason, "the record has no doubt") {
		t.Fatalf("%+v", r)
	}
	s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"}, &pb.Record{Plan: "p", Action: "a",
		Kind: &pb.Record_CompensationProgressed{CompensationProgressed: &pb.CompensationProgressed{
			Attempt: 2, Key: undoKey("a"), UntilNs: epoch0 + int64(5*time.Minute)}}}))
	if r := s.held(6*time.Minute-1, unservedAttempt(2, true)); r.Verdict != Void {
		t.Fatalf("%+v", r)
	}
	if r := s.held(6*time.Minute, unservedAttempt(2, true)); r.Verdict != Effective {
		t.Fatalf("%+v", r)
	}

	s = newSchedule(t)
	s.play("open a:probe+offer=1m a? a.probe=nobody fail turn")
	answer := func(presence pb.Presence) *pb.Record {
		return &pb.Record{Kind: &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{
			Attempt: 1, Question: pb.Question_QUESTION_EFFECT, Presence: presence, Unserved: true}}}
	}
	if r := s.held(59*time.Second, answer(0)); r.Verdict != Void {
		t.Fatalf("%+v", r)
	}
	if r := s.held(2*time.Minute, answer(pb.Presence_PRESENCE_ABSENT)); r.Verdict != Void ||
		!strings.Contains(r.Reason, "found something") {
		t.Fatalf("%+v", r)
	}
	s.wantRefolded()
}

// TestAnUnservedUndoSaysSo: to its owner, in the attempt, in the reason; and the guard over
// the clock holds it.
func TestAnUnservedUndoSaysSo(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:offer=1m a+ a=nobody fail turn")
	if c := s.state.InFlight(); len(c) != 1 || c[0].UnservedNs != epoch0+int64(time.Minute) {
		t.Fatalf("%+v", c)
	}
	s.hold = true
	s.play("@1h")
	s.hold = false
	if got := s.outcome(); got != "unwinding: a=dispatched []" {
		t.Fatalf("a clock that has jumped has ended it: %s", got)
	}
	s.play("@61m")
	const why = "no worker serves undo.a for 1m0s"
	a := s.show("p").Actions[0]
	pages := s.state.Unpaged()
	if a.Note != why || len(pages) != 1 || pages[0].Reason != why || pages[0].Kind != api.PageQuarantined {
		t.Fatalf("%+v, %+v", a, pages)
	}
	undos, _, err := view.NewReader(s.kv, "t", nil).Undos(api.UndoQuery{Plan: "p"})
	if err != nil || len(undos) != 1 || undos[0].State != "failed" || undos[0].Code != "unserved" {
		t.Fatalf("%+v, %v", undos, err)
	}

	s = newSchedule(t) // its owner answers, and a worker says done: both are kept
	s.play("open a:offer=1m a+ a=nobody-more fail turn @1m reply:a#1")
	if a := s.show("p").Actions[0]; !strings.Contains(a.Note, why+
		"; attempt 1 of it was carried out by w1, which said so only at ") {
		t.Fatalf("%+v", a)
	}
	s = newSchedule(t)
	s.play("open a a+ a=late fail turn skip:a turn reply:a#1")
	shown := s.show("p")
	if d := shown.Actions[1]; d.Action != "a~1" || d.Note != NoteUndone ||
		!strings.Contains(shown.Actions[0].Note, "; that is owed as a~1") {
		t.Fatalf("%+v", shown.Actions)
	}
	s.wantRefolded()
}

// TestWhatCameOfAnEarlierCallIsNothingNew: a holder's record of an attempt, or of a question, that
// another one has followed changes nothing, and none may be left out.
func TestWhatCameOfAnEarlierCallIsNothingNew(t *testing.T) {
	failed := func(attempt uint32) *pb.Record {
		return &pb.Record{Kind: &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
			Attempt: attempt, Code: "locked"}}}
	}
	dispatched := func(attempt uint32) *pb.Record {
		return &pb.Record{Kind: &pb.Record_CompensationDispatched{CompensationDispatched: &pb.CompensationDispatched{
			Attempt: attempt, Capability: "undo.a", Key: undoKey("a"), HasForwardOutput: true}}}
	}
	found := func(attempt uint32) *pb.Record {
		return &pb.Record{Kind: &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{
			Attempt: attempt, Question: pb.Question_QUESTION_EFFECT, Presence: pb.Presence_PRESENCE_PRESENT}}}
	}
	for name, c := range map[string]struct {
		script string
		record func(uint32) *pb.Record
		now    uint32 // the one that counts
	}{
		"an attempt that has failed": {"open a a+ a=fail,late fail turn @5s turn", failed, 2},
		"a dispatch":                 {"open a a+ a=fail fail turn", dispatched, 2},
		"a question":                 {"open a:probe a? a.probe=inconclusive,late fail turn @5s turn", found, 2},
	} {
		for of := range c.now + 2 {
			s := newSchedule(t)
			s.play(c.script)
			want := Void
			if of == c.now {
				want = Effective
			}
			if r := s.held(6*time.Second, c.record(of)); r.Verdict != want {
				t.Errorf("%s, number %d of %d: %+v", name, of, c.now, r)
			}
		}
	}
}

// TestACallLandsWithoutARecordOfItsOwn: a commit that waits for the answer to a question is not
// made after all. Its host hears that no one waits for that answer.
func TestACallLandsWithoutARecordOfItsOwn(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:probe a? a.probe=late commit turn @10m turn")
	if calls := s.state.InFlight(); len(calls) != 1 || calls[0].Purpose != api.PurposeProbe {
		t.Fatalf("%+v are in flight", calls)
	}
	s.state.Landed()
	s.play("fail")
	s.must(s.append(holder, s.decide(nil)...))
	if landed := s.state.Landed(); !slices.Contains(landed, About{Plan: "p", Action: "a"}) {
		t.Errorf("%+v have landed", landed)
	}
}

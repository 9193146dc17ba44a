package executor_test

import (
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// lastActs are schedules of irreversible acts, at the end of their plan and before it.
var lastActs = []scheduled{
	{"an irreversible last act stops nothing", "open:last a a+ b b+ c:irr c+ fail turn",
		"quarantined: a=compensated b=compensated c=quarantined [b a]"},
	{"nor do several", "open:last a a+ b:irr b+ c:irr c+ fail turn",
		"quarantined: a=compensated b=quarantined c=quarantined [a]"},
	{"nor one that only failed acts came after", "open:last a a+ b:irr b+ c c- fail turn",
		"quarantined: a=compensated b=quarantined c=skipped [a]"},
	{"one before others that are undone does", "open:last a a+ b:irr b+ c c+ d:irr d+ fail turn",
		"quarantined: a=owed b=quarantined c=compensated d=quarantined [c]"},
	{"in another branch it stops nothing", "open:last a a+ b<a:irr b+ c<a c+ fail turn",
		"quarantined: a=compensated b=quarantined c=compensated [c a]"},
	{"what an earlier unwind has undone does not count", "open:last a a+ b:irr b+ save:s c c+ back:s turn fail turn",
		"quarantined: a=compensated b=quarantined c=compensated [c a]"},
	{"the last act of a plan that says halt", "open:halt a a+ b:irr b+ fail turn", "quarantined: a=owed b=quarantined []"},
	{"an irreversible pivot", "open:last a a+ b:irr+pivot b+ fail turn", "quarantined: a=owed b=quarantined []"},
	{"and its owner's answer", "open:last a a+ b:irr b+ fail turn resolve:b turn",
		"resolved: a=compensated b=resolved [a]"},
	{"which comes first and says halt", "open:last+1 a a+ b:irr b+ a=late fail turn halt:b tell:a#1=done turn",
		"resolved: a=compensated b=resolved []"},
	{"what joins after it is undone first", "open:last a a+ b:irr b+ a=late fail turn c c+ turn tell:a#1=done turn",
		"quarantined: a=compensated b=quarantined c=compensated [c]"},
}

func TestALastActStopsNothing(t *testing.T) { playAll(t, lastActs) }

// TestALastActOfAChildLetsItsParentGo says what becomes of p and of its child q.
func TestALastActOfAChildLetsItsParentGo(t *testing.T) {
	for _, c := range []struct{ setup, p, q string }{
		{"open:last a a+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=compensated plan:q=quarantined [x a]", "quarantined: x=compensated y=quarantined"},
		// What was undone in the child came after what is irreversible in the parent.
		{"open:last a a+ b:irr b+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=owed b=quarantined plan:q=quarantined [x]", "quarantined: x=compensated y=quarantined"},
		{"open:last a a+ b:irr b+ q/open:last^ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=compensated b=quarantined plan:q=quarantined [a]", "quarantined: y=quarantined"},
		// In the middle of the child, or with its word on it, it stops the parent.
		{"open:last a a+ q/open:last^ q/x:irr q/x+ q/y q/y+ q/commit fail turn",
			"quarantined: a=owed plan:q=quarantined [y]", "quarantined: x=quarantined y=compensated"},
		{"open:last a a+ q/open:halt^ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=owed plan:q=quarantined []", "quarantined: y=quarantined"},
		{"open:last a a+ q/open:last^ q/y:irr q/y+ q/commit b b+ fail turn",
			"quarantined: a=owed plan:q=quarantined b=compensated [b]", "quarantined: y=quarantined"},
		// It waited for its owner before its parent unwound.
		{"open:last a a+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/fail turn fail turn",
			"quarantined: a=compensated plan:q=quarantined [x a]", "quarantined: x=compensated y=quarantined"},
		{"open:last a a+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/commit fail turn q/resolve:y turn",
			"resolved: a=compensated plan:q=resolved [x a]", "resolved: x=compensated y=resolved"},
		// Several children end before their parent does: the second entry to be its owner's stands on what
		// the first has undone.
		{"open:last a a+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/fail turn r/open:last^ r/u r/u+ r/v:irr r/v+ " +
			"r/fail turn fail turn", "quarantined: a=owed plan:q=quarantined plan:r=quarantined [x u]",
			"quarantined: x=compensated y=quarantined"},
		{"open:last a a+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/fail turn r/open:last^ r/u r/u+ r/v:irr r/v+ " +
			"r/commit fail turn", "quarantined: a=owed plan:q=quarantined plan:r=quarantined [x u]",
			"quarantined: x=compensated y=quarantined"},
		// A child that goes on itself stops its parent no more than one that does not.
		{"open:last a a+ q/open:continue^ q/x q/x+ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=compensated plan:q=quarantined [x a]", "quarantined: x=compensated y=quarantined"},
		// What an earlier unwind of the child has undone does not count, as in one plan.
		{"open:last a a+ b:irr b+ q/open:last^ q/save:s q/x q/x+ q/back:s turn q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=compensated b=quarantined plan:q=quarantined [x a]",
			"quarantined: x=compensated y=quarantined"},
	} {
		s := newSchedule(t)
		s.play(c.setup)
		if got := s.outcome(); got != c.p {
			t.Errorf("%s\n got %s\nwant %s", c.setup, got, c.p)
		}
		if got := s.show("q").State + ": " + s.undos("q"); got != c.q {
			t.Errorf("%s\n got %s\nwant %s", c.setup, got, c.q)
		}
	}
}

// TestAnEarlierHolderDoesNotKnowOfLastActs: it refuses a plan that says so, and lets those halt that
// say nothing, also once a later one has taken over.
func TestAnEarlierHolderDoesNotKnowOfLastActs(t *testing.T) {
	s := newSchedule(t)
	s.underHolder(ledger.LastActSince - 1)
	s.play("!q/open:last open a a+ b:irr b+ r/open:continue r/q:irr")
	s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 3, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: FoldVersion}}}))
	s.play("fail turn")
	if got := s.outcome(); got != "quarantined: a=owed b=quarantined []" {
		t.Error(got)
	}
	if got := s.show("q"); got.State != ledger.StateFailed || got.OnUndoFailure != "halt" {
		t.Errorf("the plan that was refused: %+v", got)
	}
	s.wantRefolded()
}

// TestWhatComesBeforeTheFirstHolder counts as under one of this version: an agent may come before the
// executor does.
func TestWhatComesBeforeTheFirstHolder(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"open:last a a+ b:irr b+ fail", "turn", "quarantined: a=compensated b=quarantined [a]"},
		{"open a a+ b:held*+for=1h b+ commit", "turn fact:b=1 turn", "committed: a=retired b=retired [b a]"},
		{"open a:probe a? effect:a=x7,x8 fail", "turn", "compensated: a=compensated a~1=compensated [a~1 a]"},
	} {
		s := newSchedule(t)
		w := s.world
		w.kv, w.log, w.audited = rows.NewMemoryKV(), nil, 0
		w.audit = audit.NewWith("t", w.programs)
		w.state = OpenWith(w.kv, "t", w, w.programs)
		s.play(c.before)
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
			Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: FoldVersion}}}))
		s.play(c.after)
		if got := s.outcome(); got != c.want {
			t.Errorf("%s, and then %s: %s, want %s", c.before, c.after, got, c.want)
		}
		s.wantRefolded()
	}
}

// TestWhatAnUnwindStopsAtIsNamed before it begins.
func TestWhatAnUnwindStopsAtIsNamed(t *testing.T) {
	for _, c := range []struct{ setup, want string }{
		{"open:last a a+ b:irr b+", ""},
		{"open:last a a+ b:irr b+ c c-", ""},
		{"open:last a:irr a+ b b+", ""},
		{"open:last a a+ b:irr b+ c c+ d:irr d+", "b"},
		{"open:halt a a+ b:irr b+", "b"},
		{"open:continue a a+ b:irr b+ c c+", ""},
		{"open:last a a+ b:irr+pivot b+", "b"},
		{"open:last a a+ b:irr b? c c?", "b"},
		{"open:last a a+ b:irr b+ save:s c c+ back:s turn", ""},
		{"open:last a a+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/z q/z+", "q/y"},
		{"open:last a a+ b:irr b+ q/open:last^ q/x q/x+", "b"},
		{"open:last a a+ b:irr b+ c c+ c=late fail turn", "b"},
		{"open:last a a+ b:irr b+ c c+ fail turn", "b"},
		{"open:halt a a+ save:s b b+ back:s turn c:irr c+", "c"},
		{"open:last a a+ save:s b b+ back:s turn c:irr c+ d d+", "c"},
		{"open:last a a+ save:s b b+ back:s turn c:irr c+", ""},
		{"open:halt a a+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/commit", "q/y"},
		{"open:last a a+ q/open:continue^ q/x q/x+ q/y:irr q/y+ q/commit", ""},
		{"open:last a a+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/commit b b+", "q/y"},
		{"open:last a a+ q/open:last^ q/y:irr q/y+ q/commit b b+", "q/y"},
		{"open:last a a+ q/open:last^ q/y:irr+pivot q/y+ q/commit", "q/y"},
		{"open:last a a+ b:irr b+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/commit", "b"},
		{"open:last a a+ b:irr b+ q/open:last^ q/x q/x+ q/y:irr q/y+ q/fail turn", "b"},
		{"open:last a a+ b:irr b+ c c+ commit turn", "b"},
		{"open:last a a+ q/open:last^ q/x:irr q/x+ q/y q/y+ q/commit commit turn", "q/x"},
	} {
		s := newSchedule(t)
		s.play(c.setup)
		shown, err := view.NewReader(s.kv, "t", nil).Preview(api.PreviewQuery{Plan: "p"}, s.now)
		if got := strings.Join(shown.Stops, " "); err != nil || got != c.want {
			t.Errorf("%s: stops at %q, want %q (%v)", c.setup, got, c.want, err)
		}
		if s.show("p").State == "committed" {
			s.play("undo: turn")
			continue
		}
		s.word("fail")
		s.turn()
		a := s.actionOf("p", "a").Row.Undo
		if stops := len(shown.Stops) > 0; stops != (a == rowspb.Undo_UNDO_OWED) && a != rowspb.Undo_UNDO_QUARANTINED {
			t.Errorf("%s: stops at %q, and then: %s", c.setup, shown.Stops, s.outcome())
		}
	}
}

// TestARefusedOpeningHalts: its plan is undone all the same, whatever it has said.
func TestARefusedOpeningHalts(t *testing.T) {
	for said := range pb.OnUndoFailure_name {
		s := newSchedule(t)
		open := opened(0)
		open.GetPlanOpened().OnUndoFailure, open.GetPlanOpened().Concurrency = pb.OnUndoFailure(said), ledger.ConcurrencyMax+1
		if got := s.agent("p", open); got[0].Verdict != Refused {
			t.Fatalf("an opening that asks for too much: %+v", got)
		}
		s.play("a a+ b:irr b+ turn")
		if got := s.outcome(); got != "quarantined: a=owed b=quarantined []" {
			t.Errorf("%d: %s", said, got)
		}
	}
}

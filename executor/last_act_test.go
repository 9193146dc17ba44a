package executor_test

import (
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// lastActs are schedules of irreversible acts, at the end of their plan and before it.
var lastActs = []struct{ name, setup, want string }{
	{"an irreversible last act stops nothing", "open a a+ b b+ c:irr c+ fail turn",
		"quarantined: a=compensated b=compensated c=quarantined [b a]"},
	{"nor do several", "open a a+ b:irr b+ c:irr c+ fail turn",
		"quarantined: a=compensated b=quarantined c=quarantined [a]"},
	{"nor one that only failed acts came after", "open a a+ b:irr b+ c c- fail turn",
		"quarantined: a=compensated b=quarantined c=skipped [a]"},
	{"one before others that are undone does", "open a a+ b:irr b+ c c+ d:irr d+ fail turn",
		"quarantined: a=owed b=quarantined c=compensated d=quarantined [c]"},
	{"in another branch it stops nothing", "open a a+ b<a:irr b+ c<a c+ fail turn",
		"quarantined: a=compensated b=quarantined c=compensated [c a]"},
	{"what an earlier unwind has undone does not count", "open a a+ b:irr b+ save:s c c+ back:s turn fail turn",
		"quarantined: a=compensated b=quarantined c=compensated [c a]"},
	{"the last act of a plan that says halt", "open:halt a a+ b:irr b+ fail turn", "quarantined: a=owed b=quarantined []"},
	{"an irreversible pivot", "open a a+ b:irr+pivot b+ fail turn", "quarantined: a=owed b=quarantined []"},
	{"and its owner's answer", "open a a+ b:irr b+ fail turn resolve:b turn", "resolved: a=compensated b=resolved [a]"},
	{"which comes first and says halt", "open:1 a a+ b:irr b+ a=late fail turn halt:b tell:a#1=done turn",
		"resolved: a=compensated b=resolved []"},
	{"what joins after it is undone first", "open a a+ b:irr b+ a=late fail turn c c+ turn tell:a#1=done turn",
		"quarantined: a=compensated b=quarantined c=compensated [c]"},
}

func TestALastActStopsNothing(t *testing.T) {
	for _, c := range lastActs {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			s.play(c.setup)
			if got := s.outcome(); got != c.want {
				t.Fatalf("%s\ngives %s\nwant  %s", c.setup, got, c.want)
			}
			s.wantRefolded()
		})
	}
}

// TestALastActOfAChildLetsItsParentGo says what becomes of p and of its child q.
func TestALastActOfAChildLetsItsParentGo(t *testing.T) {
	for _, c := range []struct{ setup, p, q string }{
		{"open a a+ q/open^ q/x q/x+ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=compensated plan:q=quarantined [x a]", "quarantined: x=compensated y=quarantined"},
		// What was undone in the child came after what is irreversible in the parent.
		{"open a a+ b:irr b+ q/open^ q/x q/x+ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=owed b=quarantined plan:q=quarantined [x]", "quarantined: x=compensated y=quarantined"},
		{"open a a+ b:irr b+ q/open^ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=compensated b=quarantined plan:q=quarantined [a]", "quarantined: y=quarantined"},
		// In the middle of the child, or with its word on it, it stops the parent.
		{"open a a+ q/open^ q/x:irr q/x+ q/y q/y+ q/commit fail turn",
			"quarantined: a=owed plan:q=quarantined [y]", "quarantined: x=quarantined y=compensated"},
		{"open a a+ q/open:halt^ q/y:irr q/y+ q/commit fail turn",
			"quarantined: a=owed plan:q=quarantined []", "quarantined: y=quarantined"},
		{"open a a+ q/open^ q/y:irr q/y+ q/commit b b+ fail turn",
			"quarantined: a=owed plan:q=quarantined b=compensated [b]", "quarantined: y=quarantined"},
		// It waited for its owner before its parent unwound.
		{"open a a+ q/open^ q/x q/x+ q/y:irr q/y+ q/fail turn fail turn",
			"quarantined: a=compensated plan:q=quarantined [x a]", "quarantined: x=compensated y=quarantined"},
		{"open a a+ q/open^ q/x q/x+ q/y:irr q/y+ q/commit fail turn q/resolve:y turn",
			"resolved: a=compensated plan:q=resolved [x a]", "resolved: x=compensated y=resolved"},
		// What the entry of one child lets go is that of another, which waits for its owner already.
		{"open a a+ q/open^ q/x q/x+ q/y:irr q/y+ q/fail turn r/open^ r/u r/u+ r/v:irr r/v+ r/fail turn fail turn",
			"quarantined: a=owed plan:q=quarantined plan:r=quarantined [x u]", "quarantined: x=compensated y=quarantined"},
		{"open a a+ q/open^ q/x q/x+ q/y:irr q/y+ q/fail turn r/open^ r/u r/u+ r/v:irr r/v+ r/commit fail turn",
			"quarantined: a=owed plan:q=quarantined plan:r=quarantined [x u]", "quarantined: x=compensated y=quarantined"},
		{"open a a+ q/open^ q/y:irr q/y+ q/fail turn r/open^ r/u r/u+ r/v:irr r/v+ r/fail turn fail turn",
			"quarantined: a=owed plan:q=quarantined plan:r=quarantined [u]", "quarantined: y=quarantined"},
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

// TestALastActStopsWhatOpenedBefore: a plan goes by the holder under which it was opened.
func TestALastActStopsWhatOpenedBefore(t *testing.T) {
	for version, want := range map[uint32]string{
		ledger.LastActSince - 1: "quarantined: a=owed b=quarantined []",
		ledger.LastActSince:     "quarantined: a=compensated b=quarantined [a]",
	} {
		s := newSchedule(t)
		s.underHolder(version)
		s.play("open a a+ b:irr b+")
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
			Term: 3, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: FoldVersion}}}))
		s.play("fail turn")
		if got := s.outcome(); got != want {
			t.Errorf("opened under fold %d: %s, want %s", version, got, want)
		}
	}
}

// TestWhatAnUnwindStopsAtIsNamed before it begins.
func TestWhatAnUnwindStopsAtIsNamed(t *testing.T) {
	for _, c := range []struct{ setup, want string }{
		{"open a a+ b:irr b+", ""},
		{"open a a+ b:irr b+ c c-", ""},
		{"open a:irr a+ b b+", ""},
		{"open a a+ b:irr b+ c c+ d:irr d+", "b"},
		{"open:halt a a+ b:irr b+", "b"},
		{"open:continue a a+ b:irr b+ c c+", ""},
		{"open a a+ b:irr+pivot b+", "b"},
		{"open a a+ b:irr b? c c?", "b"},
		{"open a a+ b:irr b+ save:s c c+ back:s turn", ""},
		{"open a a+ q/open^ q/x q/x+ q/y:irr q/y+ q/z q/z+", "q/y"},
		{"open a a+ b:irr b+ q/open^ q/x q/x+", "b"},
		{"open a a+ b:irr b+ c c+ c=late fail turn", "b"},
		{"open a a+ b:irr b+ c c+ fail turn", "b"},
	} {
		s := newSchedule(t)
		s.play(c.setup)
		shown, err := view.NewReader(s.kv, "t", nil).Preview(api.PreviewQuery{Plan: "p"}, s.now)
		if got := strings.Join(shown.Stops, " "); err != nil || got != c.want {
			t.Errorf("%s: stops at %q, want %q (%v)", c.setup, got, c.want, err)
		}
	}
}

// TestARefusedOpeningThatSaysHaltHalts: its plan is undone all the same, as it was declared.
func TestARefusedOpeningThatSaysHaltHalts(t *testing.T) {
	for said, want := range map[pb.OnUndoFailure]string{
		pb.OnUndoFailure_ON_UNDO_FAILURE_HALT:        "quarantined: a=owed b=quarantined []",
		pb.OnUndoFailure_ON_UNDO_FAILURE_UNSPECIFIED: "quarantined: a=compensated b=quarantined [a]",
	} {
		s := newSchedule(t)
		open := opened(0)
		open.GetPlanOpened().OnUndoFailure, open.GetPlanOpened().Concurrency = said, ledger.ConcurrencyMax+1
		if got := s.agent("p", open); got[0].Verdict != Refused {
			t.Fatalf("an opening that asks for too much: %+v", got)
		}
		s.play("a a+ b:irr b+ turn")
		if got := s.outcome(); got != want {
			t.Errorf("%v: %s, want %s", said, got, want)
		}
	}
}

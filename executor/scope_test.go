package executor_test

import (
	"fmt"
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

// TestWhatAVerdictConditionOrRequestUndoes: an action and what came after it in the plan's
// order, and the plan goes on; or the whole plan, where it says so.
func TestWhatAVerdictConditionOrRequestUndoes(t *testing.T) {
	for _, c := range []struct{ name, play, want string }{
		{"a verdict", "open a a+ b b+ c c+ judge:b=block turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"a verdict on the plan", "open a a+ b b+ c c+ judge:b=block* turn",
			"compensated: a=compensated b=compensated c=compensated [c b a]"},
		{"a condition", "open a a+ b:own b+ c c+ fact:b=1 turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"a condition on the plan", "open a a+ b:own* b+ c c+ fact:b=1 turn",
			"compensated: a=compensated b=compensated c=compensated [c b a]"},
		{"a request", "open a a+ b b+ c c+ undo:!b turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"another branch stays", "open a a+ b<a b+ c<a c+ d<b d+ judge:b=block turn",
			"open: a=held b=compensated c=held d=compensated [d b]"},
		{"of a branch that failed", "open a a+ b<a b- c<b c+ undo:!b turn",
			"open: a=held b=skipped c=compensated [c]"},
		{"nothing came after it", "open a a+ b<a b+ judge:b=redirect turn",
			"open: a=held b=compensated [b]"},
		{"it had not crossed", "open a a+ b judge:b=block b- turn", "open: a=held b=held []"},
		{"one after the other", "open a a+ b<a b+ c<a c+ judge:b=block turn judge:c=block turn",
			"open: a=held b=compensated c=compensated [b c]"},
		{"two at once", "open a a+ b<a b+ c<a c+ judge:b=block judge:c=block turn",
			"open: a=held b=compensated c=compensated [b c]"},
		{"the plan, then an action of it", "open a a+ b b+ judge:b=block* judge:b=block turn",
			"compensated: a=compensated b=compensated [b a]"},
		{"an action, then its plan", "open a a+ b b+ judge:b=block judge:b=block* turn",
			"compensated: a=compensated b=compensated [b a]"},
		{"then the agent goes on", "open a a+ b b+ judge:b=block turn c c+ commit:1 turn",
			"committed: a=retired b=compensated c=retired [b]"},
		{"then the agent fails", "open a a+ b b+ judge:b=block turn c c+ fail turn",
			"compensated: a=compensated b=compensated c=compensated [b c a]"},
		{"the agent fails first", "open a a+ b b+ c c+ undo:!b fail turn",
			"compensated: a=compensated b=compensated c=compensated [c b a]"},
		{"it waits for an owner", "open a a+ b b+ c:approve c+ judge:b=block turn",
			"quarantined: a=held b=owed c=quarantined []"},
		{"who lets it go on", "open a a+ b b+ c:approve c+ judge:b=block turn retry:c turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"who leaves it, and all it came after",
			"open a a+ b b+ c:approve c+ judge:b=block turn halt:c turn @5s @10s",
			"open: a=held b=held c=resolved []"},
		{"of a committed plan", "open a a+ b b+ c c+ commit turn undo:!b turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"of a committed plan, a branch", "open a a+ b<a b+ c<a c+ commit turn undo:!b turn",
			"committed: a=retired b=retired c=retired [b]"},
		{"what came late of another that was undone",
			"open a a+ b<a:may b? c<a c+ b.probe=absent undo:!b turn @1m undo:!c b+ turn @2m",
			"open: a=held b=compensated c=compensated b~1=compensated [b b~1 c]"},
		{"what is not there", "open a a+ !undo:!z turn", "open: a=held []"},
		{"what is undone", "open a a+ b b+ undo:!b turn !undo:!b turn",
			"open: a=held b=compensated [b]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			if s.play(c.play); s.outcome() != c.want {
				t.Errorf("%s\n%s\nwant %s", c.play, s.outcome(), c.want)
			}
		})
	}
}

// TestAVerdictReachesACommittedPlan inside its undo windows, as an operator's request does: by a
// plan of its own, once, as far as its scope says. What is not undone for it is refused.
func TestAVerdictReachesACommittedPlan(t *testing.T) {
	for _, c := range []struct{ name, play, want string }{
		{"an action", "judge:b=block turn", "committed: a=retired b=retired c=retired [c b]"},
		{"the plan", "judge:b=block* turn", "committed: a=retired b=retired c=retired [c b a]"},
		{"a redirect", "judge:c=redirect turn", "committed: a=retired b=retired c=retired [c]"},
		{"allow", "judge:b=allow turn", "committed: a=retired b=retired c=retired []"},
		{"inside its window", "@59s judge:a=block turn", "committed: a=retired b=retired c=retired [c b a]"},
		{"after another window has closed", "@61s judge:c=block turn",
			"committed: a=retired b=retired c=retired [c]"},
		{"after its window has closed", "@61s !judge:a=block !judge:c=block* turn",
			"committed: a=retired b=retired c=retired []"},
		{"what is undone already", "judge:b=block turn judge:c=block judge:b=redirect turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"more than is undone", "judge:b=block turn !judge:a=block !judge:b=block* turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"after a request", "undo:!b turn judge:c=block !judge:a=block turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"then a request", "judge:b=block !undo:!a turn", "committed: a=retired b=retired c=retired [c b]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			if s.play("open a:for=1m a+ b b+ c c+ commit turn " + c.play); s.outcome() != c.want {
				t.Errorf("%s\n%s\nwant %s", c.play, s.outcome(), c.want)
			}
		})
	}
}

// TestAVerdictOnWhatIsPartOfACommittedPlan undoes the child as a whole, and what came after it; one
// on what has nothing to undo is kept, and undoes nothing.
func TestAVerdictOnWhatIsPartOfACommittedPlan(t *testing.T) {
	for _, c := range []struct{ play, want string }{
		{"open a a+ q/open^a q/b q/b+ q/c q/c+ q/commit d d+ commit turn q/judge:b=block turn",
			"committed: a=retired plan:q=retired d=retired [d c b]"},
		{"open a a+ q/open^a q/b q/b+ q/commit d<a d+ commit turn q/judge:b=block turn q/judge:b=block turn",
			"committed: a=retired plan:q=retired d=retired [b]"},
		{"open a a+ q/open^a q/b q/b+ q/commit d<a d+ commit turn q/judge:b=block* turn",
			"committed: a=retired plan:q=retired d=retired [d b a]"},
		{"open a a+ q/open^a q/b:for=1m q/b+ q/commit commit turn @2m !q/judge:b=block turn",
			"committed: a=retired plan:q=retired []"},
		{"open a a+ b b- commit turn judge:b=block turn", "committed: a=retired b=retired []"},
		{"open a a+ b b+ judge:b=block turn commit:1 turn judge:b=block turn",
			"committed: a=retired b=compensated [b]"},
	} {
		s := newSchedule(t)
		if s.play(c.play); s.outcome() != c.want {
			t.Errorf("%s\n%s\nwant %s", c.play, s.outcome(), c.want)
		}
	}
}

// TestWhyACommittedPlanIsUndone: the verdict, of the plan and of the one that undoes it.
func TestWhyACommittedPlanIsUndone(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+ commit turn judge:b=block turn")
	if said := s.state.Notices(); !slices.ContainsFunc(said, func(n Notice) bool {
		return n.Plan == "p" && n.State == ledger.StateCommitted && n.UndoneAs == "p~1" && n.Agent == "a1" &&
			n.Reason == "verdict block on action b by compliance: policy 7"
	}) {
		t.Errorf("%+v", said)
	}
	for _, plan := range []string{"p", "p~1"} {
		why, err := view.NewReader(s.kv, "t", nil).Why(api.WhyQuery{Plan: plan})
		if err != nil || len(why.Steps) != 1 || why.Steps[0].Said != "block" || why.Steps[0].SaidOf != "b" ||
			why.Steps[0].Actor != "compliance" || why.Steps[0].Reason != "policy 7" ||
			why.Steps[0].SaidPlan != "p" || why.Steps[0].Capability != "do.b" || why.Steps[0].Origin != "p" {
			t.Errorf("%s: %+v, %v", plan, why.Steps, err)
		}
	}
	if got := s.show("p~1").Reason; got != "verdict block on action b by compliance: policy 7" {
		t.Error(got)
	}
}

// TestUnderAnEarlierHolderAVerdictReachesNoCommittedPlan: the ledger means what it meant.
func TestUnderAnEarlierHolderAVerdictReachesNoCommittedPlan(t *testing.T) {
	s := newSchedule(t)
	s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1",
			FoldVersion: ledger.ReachesSince - 1}}})
	if s.play("open a a+ commit turn judge:a=block turn"); s.outcome() != "committed: a=retired []" {
		t.Error(s.outcome())
	}
}

// TestWhatTurnedIsActedUponAfterAnotherPart, though its condition is true no more: it turned while
// its plan was armed.
func TestWhatTurnedIsActedUponAfterAnotherPart(t *testing.T) {
	for _, c := range []struct{ name, play, want string }{
		{"a wider one", "open a a+ b:own b+ c:own c+ fact:c=1 fact:b=1 forget:b turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"of another branch", "open a a+ b<a:own b+ c<a:own c+ fact:c=1 fact:b=1 forget:b turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"of the plan", "open a a+ b:own* b+ c:own c+ fact:c=1 fact:b=1 forget:b turn",
			"compensated: a=compensated b=compensated c=compensated [c b a]"},
		{"a narrower one, which was undone", "open a a+ b:own b+ c:own c+ fact:b=1 fact:c=1 forget:c turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"beside a request", "open a a+ b<a:own b+ c<a c+ fact:b=1 forget:b undo:!c turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"of the plan, beside a request", "open a a+ b<a:own* b+ c<a c+ fact:b=1 forget:b undo:!c turn",
			"compensated: a=compensated b=compensated c=compensated [c b a]"},
		{"beside a savepoint", "open a:own a+ save:s b b+ fact:a=1 forget:a back:s turn",
			"open: a=compensated b=compensated [b a]"},
		{"an owner left the part", "open a a+ b:own b+ c:approve+own c+ fact:c=1 fact:b=1 forget:b turn halt:c turn",
			"open: a=held b=held c=resolved []"},
		{"of the plan, on what was undone", "open a a+ b b+ c:own c+ fact:c=1 judge:c=block* turn",
			"compensated: a=compensated b=compensated c=compensated [c b a]"},
		{"a commit that waits",
			"open:settle a a+ b:own b+ c<a:own c+ d<a:probe d? commit fact:c=1 fact:b=1 forget:b turn @1m",
			"committed: a=retired b=compensated c=compensated d=retired [c b]"},
		{"in a committed child", "open a a+ q/open^a q/b:own q/b+ q/c:own* q/c+ q/commit fact:b=1 fact:c=1 forget:c turn",
			"compensated: a=compensated plan:q=compensated [c b a]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			if s.play(c.play); s.outcome() != c.want {
				t.Errorf("%s\n%s\nwant %s", c.play, s.outcome(), c.want)
			}
		})
	}
}

// TestWhatTurnsBetweenAFiringAndItsUnwindIsActedUpon, and no part is asked for then: the plan is
// about to unwind.
func TestWhatTurnsBetweenAFiringAndItsUnwindIsActedUpon(t *testing.T) {
	for fired, want := range map[string]string{
		"c": "open: a=held b=compensated c=compensated d=held [c b]",
		"d": "compensated: a=compensated b=compensated c=compensated d=compensated [d c b a]",
	} {
		s := newSchedule(t)
		s.play("open a a+ b<a:own b+ c<a:own c+ d<a:own* d+ fact:" + fired + "=1")
		records := s.state.Decide(Input{EpochNs: s.now, SizeMax: 60 << 10})
		if len(records) < 2 || records[0].GetLeaseFired() == nil {
			t.Fatalf("%v", records)
		}
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records[0]))
		s.play("fact:b=1 forget:b !undo:!b turn")
		if got := s.outcome(); got != want {
			t.Errorf("%s: %s, want %s", fired, got, want)
		}
	}
}

// TestASecondVerdictInACommittedChildUndoesNoMore: its parent undoes the child already.
func TestASecondVerdictInACommittedChildUndoesNoMore(t *testing.T) {
	for play, want := range map[string]string{
		"q/judge:b=block q/judge:c=block turn":      "open: a=held plan:q=compensated d=compensated [c b]",
		"q/judge:b=block turn q/judge:c=block turn": "open: a=held plan:q=compensated d=compensated [c b]",
	} {
		s := newSchedule(t)
		s.play("open a a+ q/open^a q/b q/b+ q/c q/c+ q/commit d d+ d=late " + play + " tell:d#1=done turn")
		if got := s.outcome(); got != want { // d by report
			t.Errorf("%s: %s, want %s", play, got, want)
		}
	}
}

// TestAnAgentKnowsOfEveryPartThatWasUndone: it is told when it begins and when the plan goes
// on, and a commit that does not know of it is refused.
func TestAnAgentKnowsOfEveryPartThatWasUndone(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+ judge:b=block turn")
	said := slices.DeleteFunc(s.state.Notices(), func(n Notice) bool { return n.FromAction == "" })
	if len(said) != 2 || said[0].State != ledger.StateUnwinding || said[1].State != ledger.StateOpen ||
		said[0].FromAction != "b" || said[1].FromAction != "b" || said[1].Parts != 1 ||
		said[1].Reason != "verdict block on action b by compliance: policy 7" {
		t.Fatalf("%+v", said)
	}
	s.play("!commit commit:1 turn")
	if got := s.show("p").State; got != ledger.StateCommitted {
		t.Fatal(got)
	}
}

// TestACommittedChildIsUndoneAsAWhole, in its parent, for a verdict on one of its actions; the
// parent goes on.
func TestACommittedChildIsUndoneAsAWhole(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a q/b q/b+ q/c q/c+ q/commit d<a d+ q/judge:b=block turn")
	if got := s.outcome(); got != "open: a=held plan:q=compensated d=held [c b]" {
		t.Error(got)
	}
	s.play("undo:!a turn")
	if got := s.outcome(); got != "open: a=compensated plan:q=compensated d=compensated [c b d a]" {
		t.Error(got)
	}
}

// TestACommittedChildIsUndoneInTheNearestPlanAboveThatGoesOn, and no other above it.
func TestACommittedChildIsUndoneInTheNearestPlanAboveThatGoesOn(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a q/b q/b+ r/open^q.b r/c r/c+ r/commit r/judge:c=block turn")
	if got := s.outcome(); got != "open: a=held plan:q=held [c]" {
		t.Error(got)
	}
	s.wantState("q", ledger.StateOpen, "b=held plan:r=compensated")
	s.play("q/commit:1 q/judge:b=block turn")
	if got := s.outcome(); got != "open: a=held plan:q=compensated [c b]" {
		t.Error(got)
	}
}

// TestAPartOfAPlanThatGoesBackElsewhereUndoesAllOfIt: it goes back to one place.
func TestAPartOfAPlanThatGoesBackElsewhereUndoesAllOfIt(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a q/b q/b+ q/commit save:s c c+ c=late back:s turn q/judge:b=block turn")
	s.play("tell:c#1=done turn")
	if got := s.outcome(); got != "compensated: a=compensated plan:q=compensated c=compensated [b a]" { // c by report
		t.Error(got)
	}
}

// TestACommitThatWaitsGoesOnWithoutWhatWasUndone.
func TestACommitThatWaitsGoesOnWithoutWhatWasUndone(t *testing.T) {
	s := newSchedule(t)
	s.play("open:settle a a+ b:own b+ c<a:probe c? commit")
	if got := s.show("p").State; got != ledger.StateCommitting {
		t.Fatal(got)
	}
	s.play("fact:b=1 turn @1m")
	if got := s.outcome(); got != "committed: a=retired b=compensated c=retired [b]" {
		t.Error(got)
	}
}

// TestUnderAnEarlierHolderWhatSaysNothingUndoesThePlan: what a ledger means does not change
// with the version that reads it.
func TestUnderAnEarlierHolderWhatSaysNothingUndoesThePlan(t *testing.T) {
	for version, want := range map[uint32]string{
		0:                      "compensated: a=compensated b=compensated [b a]",
		ledger.ScopedSince - 1: "compensated: a=compensated b=compensated [b a]",
		ledger.ScopedSince:     "open: a=held b=compensated [b]",
	} {
		s := newSchedule(t)
		s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
			Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: version}}})
		if s.play("open a a+ b:own b+ fact:b=1 turn"); s.outcome() != want {
			t.Errorf("%d: %s, want %s", version, s.outcome(), want)
		}
	}
}

// TestWhetherAnActionCanBeUndone: it would be without an owner's word, and then nothing of it
// is left.
func TestWhetherAnActionCanBeUndone(t *testing.T) {
	for _, test := range []struct{ play, action, want string }{
		{"open a a+ b b+ c c+", "b", "can with c"},
		{"open a a+ b<a b+ c<a c+", "b", "can"},
		{"open a a+ b:irr b+", "b", "cannot: irreversible: do.b has no inverse"},
		{"open a a+ b:irr b+", "a", "cannot with b: it waits for an owner's answer about what came after it"},
		{"open a a+ b:irr b+ c c+", "c", "can"},
		{"open a a+ b:approve b+", "b", "cannot: the contract asks for its owner's word before undo.b"},
		{"open a:for=1m a+", "a", "can until 1m0s"},
		{"open a:for=1m a+ @90s", "a", "cannot until 1m0s: its undo window closed at 2026-01-02T03:05:05Z"},
		{"open a:for=1m a+ commit turn", "a", "can until 1m0s"},
		{"open a:for=1m a+ commit turn @90s", "a",
			"cannot until 1m0s: undo windows have closed: action a of plan p (do.a) at 2026-01-02T03:05:05Z"},
		{"open a a+ b b-", "b", "can: never crossed the boundary: the forward is known to have failed"},
		{"open a a+ b:probe b?", "b", "can"},
		{"open a a+ b b+ undo:!b turn", "b", "cannot: action b of plan p is compensated"},
		{"open a a+ fail turn", "a", "cannot: plan p is compensated"},
		{"open a a+ q/open^a q/b q/b+ q/commit c<a c+", "a", "can with c, q/b"},
		{"open a a+", "z", "unknown"},
	} {
		s := newSchedule(t)
		s.play(test.play)
		shown, err := view.NewReader(s.kv, "t", nil).Preview(api.PreviewQuery{Plan: "p", Action: test.action},
			s.now)
		if got := s.undoableText(shown.Undoable); err != nil || got != test.want {
			t.Errorf("%s of %s: %s, %v, want %s", test.action, test.play, got, err, test.want)
		}
	}
}

// undoableText is as in "cannot with c until 1m0s: why".
func (s *schedule) undoableText(u *api.Undoable) string {
	if u == nil {
		return "unknown"
	}
	text := map[bool]string{true: "can", false: "cannot"}[u.Can]
	if len(u.With) > 0 {
		text += " with " + strings.Join(u.With, ", ")
	}
	if u.ClosesNs != 0 {
		text += " until " + time.Duration(u.ClosesNs-epoch0).String()
	}
	if u.Why != "" {
		text += ": " + u.Why
	}
	return text
}

// TestAPreviewOfAPart plays what the request does.
func TestAPreviewOfAPart(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+ c c+")
	shown, err := view.NewReader(s.kv, "t", nil).Preview(api.PreviewQuery{Plan: "p", Action: "b"}, s.now)
	if err != nil || shown.End != ledger.StateOpen || len(shown.Steps) != 2 ||
		shown.Steps[0].Action != "c" || shown.Steps[1].Action != "b" {
		t.Errorf("%+v, %v", shown, err)
	}
	for _, id := range []string{"z", "id:z", "id:2"} {
		shown, err = view.NewReader(s.kv, "t", nil).Preview(api.PreviewQuery{Plan: "p", Action: id}, s.now)
		if err != nil || !strings.Contains(shown.Refused, fmt.Sprintf("no action %q", strings.TrimPrefix(id, "id:"))) {
			t.Errorf("%s: %+v, %v", id, shown, err)
		}
	}
}

// TestAConditionIsHeldAfterTheCommit until the first undo window closes of what it would undo, by the
// plan of its own that a verdict would open; one that was true before refuses the commit.
func TestAConditionIsHeldAfterTheCommit(t *testing.T) {
	const abc = "open a a+ b:held+for=1m b+ c c+ "
	for _, c := range []struct{ name, play, want string }{
		{"the action, and what came after it", abc + "commit turn fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"the plan", "open a a+ b:held*+for=1m b+ c c+ commit turn fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c b a]"},
		{"before its holder has read the commit", abc + "commit fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"once", abc + "commit turn fact:b=1 turn forget:b fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"true before", abc + "fact:b=1 !commit turn", "open: a=held b=compensated c=compensated [c b]"},
		{"true no more", abc + "fact:b=1 forget:b !commit turn",
			"open: a=held b=compensated c=compensated [c b]"},
		{"at the last instant", abc + "commit turn @59s999ms fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"when the window has closed", abc + "commit turn @60s fact:b=1 turn @2m",
			"committed: a=retired b=retired c=retired []"},
		{"in its window, and its holder came after it",
			abc + "commit turn @59s fact:b=1 @61s turn @2m",
			"committed: a=retired b=retired c=retired [c]"},
		{"of what has none", "open a a+ b:own b+ c c+ commit turn fact:b=1 turn",
			"committed: a=retired b=retired c=retired []"},
		{"the window of what came after it closes first",
			"open a a+ b:held+for=1h b+ c:for=1m c+ commit turn @61s fact:b=1 turn",
			"committed: a=retired b=retired c=retired []"},
		{"the window of what came before it does not matter",
			"open a:for=1m a+ b:held+for=1h b+ c c+ commit turn @61s fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"of an action that did not happen", "open a a+ b:held+for=1m b- c c+ commit turn fact:b=1 turn",
			"committed: a=retired b=retired c=retired []"},
		{"two of them", "open a a+ b:held+for=1m b+ c:held+for=1m c+ commit turn fact:c=1 turn fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c]"},
		{"two of them, at once",
			"open a a+ b:held+for=1m b+ c:held*+for=1m c+ commit turn fact:c=1 fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c b a]"},
		{"after a request", abc + "commit turn undo:!c turn fact:b=1 turn",
			"committed: a=retired b=retired c=retired [c]"},
		{"then a request", abc + "commit turn fact:b=1 turn !undo:!a turn",
			"committed: a=retired b=retired c=retired [c b]"},
		{"of a commit that waited", "open a:probe a? b:held+for=1h b+ a.probe=present commit turn @1m fact:b=1 turn",
			"committed: a=retired b=retired [b]"},
		{"of a child", "open a a+ q/open^a q/b:held+for=1m q/b+ q/c q/c+ q/commit d d+ commit turn fact:b=1 turn",
			"committed: a=retired plan:q=retired d=retired [d c b]"},
		{"of a child, before the commit of its root",
			"open a a+ q/open^a q/b:held+for=1m q/b+ q/commit d d+ fact:b=1 turn",
			"open: a=held plan:q=compensated d=compensated [d b]"},
		{"of a child, the plan", "open a a+ q/open^a q/b:held*+for=1m q/b+ q/commit d d+ commit turn fact:b=1 turn",
			"committed: a=retired plan:q=retired d=retired [d b a]"},
		{"beside a part that is being undone",
			"open a a+ q/open^a q/c q/c- q/fail turn b:held+for=1m b+ commit turn q/c+ fact:b=1 turn",
			"committed: a=retired plan:q=compensated b=retired [c~1 b]"},
		{"of a child, when its window has closed",
			"open a a+ q/open^a q/b:held+for=1m q/b+ q/commit d d+ commit turn @61s fact:b=1 turn",
			"committed: a=retired plan:q=retired d=retired []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			if s.play(c.play); s.outcome() != c.want {
				t.Errorf("%s\n%s\nwant %s", c.play, s.outcome(), c.want)
			}
			if strings.Contains(c.play, "@61s") || strings.Contains(c.play, "fact:b=1 turn") {
				if held := s.state.Meta().Conditions; held != 0 && s.show("p").HeldConditions == 0 {
					t.Errorf("%d conditions are counted as held", held)
				}
			}
		})
	}
}

// TestWhyACommittedPlanIsUndoneForACondition: what turned, of the plan and of the one that undoes it;
// the agent is told, and what is held is shown.
func TestWhyACommittedPlanIsUndoneForACondition(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b:held+for=1m b+ commit turn")
	if p := s.show("p"); p.HeldConditions != 1 || p.HeldUntilNs != p.EndedNs+int64(time.Minute) {
		t.Errorf("%d conditions, until %d", p.HeldConditions, p.HeldUntilNs)
	}
	s.play("!erase")
	s.play("fact:b=1 turn")
	const reason = `lease held: "b" in facts`
	if said := s.state.Notices(); !slices.ContainsFunc(said, func(n Notice) bool {
		return n.Plan == "p" && n.State == ledger.StateCommitted && n.UndoneAs == "p~1" && n.Reason == reason
	}) {
		t.Errorf("%+v", said)
	}
	for _, plan := range []string{"p", "p~1"} {
		why, err := view.NewReader(s.kv, "t", nil).Why(api.WhyQuery{Plan: plan})
		if err != nil || len(why.Steps) != 1 || why.Steps[0].Lease != "held" || why.Steps[0].Action != "b" ||
			why.Steps[0].Plan != "p" {
			t.Errorf("%s: %+v, %v", plan, why.Steps, err)
		}
	}
	if p := s.show("p"); p.HeldConditions != 0 || p.UndoneAs != "p~1" || s.show("p~1").Reason != reason {
		t.Errorf("%+v", p)
	}
}

// TestAConditionOnTheClockIsAskedAsOfItsLastInstant: what came true inside the window is undone, also
// when its holder comes after it, or others have written since; what comes true with its end is not.
func TestAConditionOnTheClockIsAskedAsOfItsLastInstant(t *testing.T) {
	for _, c := range []struct{ timer, first, want string }{
		{"59s", "turn", "committed: a=retired b=retired c=retired [c]"},
		{"59s", "fact:z=1 turn", "committed: a=retired b=retired c=retired [c]"},
		{"60s", "turn", "committed: a=retired b=retired c=retired []"},
		{"60s", "fact:z=1 turn", "committed: a=retired b=retired c=retired []"},
	} {
		s := newSchedule(t)
		s.play("open a a+ b:timer=" + c.timer + "+for=1m b+ c c+ commit turn")
		s.now += int64(2 * time.Minute)
		if s.play(c.first); s.outcome() != c.want {
			t.Errorf("%s, %s: %s", c.timer, c.first, s.outcome())
		}
	}
}

// TestWhatHasTurnedSinceTheCommitIsUndone, whoever asks first, and whatever the plans are called: an
// undo of less does not lose it.
func TestWhatHasTurnedSinceTheCommitIsUndone(t *testing.T) {
	const abc = "open a a+ b:held*+for=1h b+ c c+ commit turn "
	const tree = "open a:held*+for=1h a+ d d+ NAME/open^d NAME/b:held+for=1h NAME/b+ NAME/commit commit turn "
	const timer = "open a a+ b:timer=30s+for=1h b+ c c+ commit turn "
	for _, c := range []struct{ play, want, end, reason string }{
		{abc + "fact:b=1 judge:c=block turn", "[c b a]", "compensated",
			"verdict block on action c by compliance: policy 7; also for lease held of action b"},
		{abc + "fact:b=1 undo:!c turn", "[c b a]", "compensated", "; also for lease held of action b"},
		{abc + "fact:b=1 forget:b undo:!c turn", "[c b a]", "compensated", "; also for lease held of action b"},
		{abc + "judge:c=block fact:b=1 turn", "[c]", "compensated", "verdict block on action c by compliance: policy 7"},
		{abc + "fact:b=1 undo:!a turn", "[c b a]", "compensated", ""}, // it reaches no further
		{"open a a+ b:held+for=1h b+ c:held+for=1h c+ d:held+for=1h d+ commit turn " +
			"fact:d=1 fact:c=1 fact:b=1 turn", "[d c b]", "compensated",
			`lease held: "d" in facts; also for lease held of action b, and 1 more`},
		{tree + "fact:a=1 fact:b=1 turn", "[b d a]", "compensated", `lease held: "a" in facts`},
		{tree + "fact:b=1 fact:a=1 turn", "[b d a]", "compensated",
			`lease held: "b" in facts (child plan NAME); also for lease held of action a`},
		// Its holder is late: what time alone has made true is undone, too.
		{timer + "LATER undo:!c turn", "[c b]", "compensated", "; also for lease timer of action b"},
		{timer + "undo:!c turn", "[c]", "compensated", ""},
	} {
		for _, name := range []string{"e", "q"} {
			play := strings.ReplaceAll(c.play, "NAME", name)
			s := newSchedule(t)
			before, after, late := strings.Cut(play, "LATER ")
			s.play(before)
			if late {
				s.now += int64(31 * time.Second)
				s.play(after)
			}
			u := s.show("p~1")
			_, undone, _ := strings.Cut(s.outcome(), " [")
			if "["+undone != c.want || u.State != c.end {
				t.Errorf("%s\n%s, %s", play, s.outcome(), u.State)
			}
			reason := strings.ReplaceAll(c.reason, "NAME", name)
			if !strings.HasSuffix(u.Reason, reason) || strings.Contains(u.Reason, "also") != strings.Contains(reason, "also") {
				t.Errorf("%s\n%s", play, u.Reason)
			}
			if n := s.state.Meta().Conditions; n != 0 {
				t.Errorf("%s: %d conditions are held", play, n)
			}
		}
	}
}

// TestAWindowCountsFromTheCommitIfNoOneKnowsOfTheCompletion: what becomes known later does not
// shorten or begin it.
func TestAWindowCountsFromTheCommitIfNoOneKnowsOfTheCompletion(t *testing.T) {
	for _, c := range []struct {
		play  string
		until time.Duration // after the commit; 0: it is not held
	}{
		{"open:accept b:held+for=1h b? commit turn", time.Hour},
		{"open:accept b:held+for=1h+until=1m b? commit turn", time.Minute},
		{"open:accept b:held+for=1h commit turn", time.Hour},
		{"open:accept b:held+for=1h b? commit turn @1m b+ turn", time.Hour},
		{"open b:probe+held+for=1h b? b.probe=present commit turn @1m turn", time.Hour},
		{"open b:held+for=1h b? commit turn @1m turn accept:b turn", time.Hour},
		{"open b:held+for=1h b- commit turn", 0},
	} {
		s := newSchedule(t)
		s.play(c.play)
		p := s.show("p")
		if got := time.Duration(p.HeldUntilNs - p.EndedNs); (c.until != 0) != (p.HeldConditions == 1) ||
			c.until != 0 && got.Round(time.Second) != c.until.Round(time.Second) {
			t.Errorf("%s: %d, until %v after the commit, want %v", c.play, p.HeldConditions, got, c.until)
		}
		if c.until == 0 {
			continue
		}
		s.now = p.HeldUntilNs - 1
		s.play("fact:b=1 turn")
		if s.planOf("p~1") == nil {
			t.Errorf("%s: it is not undone", c.play)
		}
	}
}

// TestWhatIsCutShortAfterTheCommitWaitsForItsOwner, also when its window has closed since: what has
// turned true inside of it is the owner's to answer.
func TestWhatIsCutShortAfterTheCommitWaitsForItsOwner(t *testing.T) {
	for _, c := range []struct {
		open, late string
		resume     bool
		want       string
	}{
		{"b:held+for=1m", "", true, "[x c b]"},
		{"b:held+for=1m", "@61s fact:z=1 turn", true, "[x c]"}, // b is its owner's: its window has closed
		{"b:held+for=1m", "@61s fact:z=1 turn", false, "[x]"},
		{"b:held+for=1m+timer=5h", "@61s fact:z=1 turn", true, "[x c]"},
		{"b:held+for=1h", "@2m fact:z=1 turn", true, "[x c b]"},
		{"b:held+for=1h", "@2m fact:z=1 turn", false, "[x]"},
	} {
		s := newSchedule(t)
		s.limits = CascadeLimits{Depth: 1}
		answer := s.worker
		s.worker = func(call Command) *api.Reply {
			if call.Plan == "q" {
				s.must(s.made("q", call.Action, "b", "1"))
			}
			return answer(call)
		}
		s.play("open a a+ " + c.open + " b+ c c+ commit turn q/open q/x:own q/x+ turn fact:x=1 turn")
		if c.late != "" {
			s.play(c.late)
		}
		if p := s.planOf("p").Row; len(s.cut()) != 1 || p.HeldOn == 0 {
			t.Errorf("%s %s: cut is %v, and %d conditions are held", c.open, c.late, s.cut(), p.HeldOn)
		}
		s.owner("ann", "p", c.resume)
		s.play("turn")
		if _, undone, _ := strings.Cut(s.outcome(), " ["); "["+undone != c.want {
			t.Errorf("%s %s: %s, want %s", c.open, c.late, s.outcome(), c.want)
		}
		if s.play("@2h fact:y=1 turn"); len(s.cut()) != 0 || s.state.Meta().Conditions != 0 {
			t.Errorf("%s %s: cut is %v, and %d conditions are held", c.open, c.late, s.cut(),
				s.state.Meta().Conditions)
		}
		s.wantRefolded()
	}
}

// TestAConditionWaitsForAPartWithoutTheClock: while a part of a committed plan is its owner's, nothing
// wakes the holder; the page says what waits, and the end of the part has the condition fired.
func TestAConditionWaitsForAPartWithoutTheClock(t *testing.T) {
	const part = "open a a+ q/open^a q/c q/c- q/fail turn "
	for _, c := range []struct{ b, fact string }{{"b:timer=30s+for=1h", ""}, {"b:held+for=1h", "fact:b=1 "}} {
		s := newSchedule(t)
		s.play(part + c.b + " b+ commit turn q/c+ c~1=stop turn @31s " + c.fact + "turn @10m turn")
		if ns, ok := s.state.NextWake(); ok && ns < s.now+int64(time.Minute) || s.state.HasWork() {
			t.Errorf("%s: it wakes at %d, now is %d; work: %v", c.b, ns, s.now, s.state.HasWork())
		}
		if pages := s.state.Unpaged(); len(pages) != 1 ||
			!strings.HasSuffix(pages[0].Reason, "; until then no condition undoes plan p, which is committed") {
			t.Errorf("%s: %+v", c.b, pages)
		}
		s.play("q/resolve:c~1 turn")
		if want := "committed: a=retired plan:q=resolved b=retired [b]"; s.outcome() != want {
			t.Errorf("%s: %s, want %s", c.b, s.outcome(), want)
		}
		s.wantRefolded()
	}
}

// TestWhatDidNotHappenHoldsNoConditionAfterTheCommit, when that becomes known inside its window; what
// had turned true before is undone, as in an open plan.
func TestWhatDidNotHappenHoldsNoConditionAfterTheCommit(t *testing.T) {
	const open = "open:accept a a+ b:held+until=1h b? c c+ commit turn "
	for play, want := range map[string]string{
		"b- fact:b=1 turn":          "committed: a=retired b=retired c=retired []",
		"fact:b=1 b- turn":          "committed: a=retired b=retired c=retired [c]",
		"b- fact:b=1 undo:!c turn":  "committed: a=retired b=retired c=retired [c]",
		"fact:b=1 turn b- turn @2m": "committed: a=retired b=retired c=retired [c b]",
	} {
		s := newSchedule(t)
		if s.play(open + play); s.outcome() != want || s.state.Meta().Conditions != 0 {
			t.Errorf("%s: %s, want %s; %d conditions are held", play, s.outcome(), want, s.state.Meta().Conditions)
		}
		s.wantRefolded()
	}
}

// TestManyWindowsThatCloseAtOnce are given up by a few records: no record is slow for them, and what
// they hold reads no fact any more.
func TestManyWindowsThatCloseAtOnce(t *testing.T) {
	s := newSchedule(t)
	const plans = 150
	for i := range plans {
		s.play(strings.ReplaceAll("P/open P/b:held+until=1h P/b+ P/commit", "P", fmt.Sprintf("p%d", i)))
	}
	s.play("turn")
	s.now = epoch0 + int64(time.Hour)
	held := []uint64{s.state.Meta().Conditions}
	for i := range 3 {
		s.play(fmt.Sprintf("z%d/open", i))
		held = append(held, s.state.Meta().Conditions)
	}
	if want := []uint64{150, 86, 22, 0}; !slices.Equal(held, want) {
		t.Errorf("%v are held, want %v", held, want)
	}
	if s.play("turn"); s.state.HasWork() {
		t.Error("something is to be done")
	}
	s.wantRefolded()
}

package executor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/executor/view"
)

// committing are schedules in which a plan is committed with actions in doubt (I36).
var committing = []struct{ name, words, want string }{
	{"its owner is asked", "open a a+ b b? commit turn @1000h", "committing: a=held b=quarantined []"},
	{"it did not happen", "open a a+ b b? commit turn resolve:b turn", "committed: a=retired b=retired []"},
	{"it did, and stays", "open a a+ b b? commit turn accept:b turn", "committed: a=retired b=retired []"},
	{"its owner does not care", "open a a+ b b? commit turn skip:b turn", "committed: a=retired b=retired []"},
	{"nothing is undone that could be lost", "open a a+ b b? commit turn !lost:b !halt:b turn",
		"committing: a=held b=quarantined []"},
	{"one of two is answered", "open a a? b b? commit turn resolve:b turn", "committing: a=quarantined b=held []"},
	{"each is", "open a a? b b? commit turn resolve:b turn skip:a turn", "committed: a=retired b=retired []"},
	{"two operators say so", "open:second b b? commit turn resolve:b@ann turn", "committing: b=quarantined []"},
	{"and the second agrees", "open:second b b? commit turn resolve:b@ann turn resolve:b@bob turn",
		"committed: b=retired []"},
	{"no outcome is doubt", "open a commit turn @1h", "committing: a=quarantined []"},
	{"a failed forward is none, nor what has no effect", "open a a- b:eff c c+ commit turn",
		"committed: a=retired b=retired c=retired []"},
	{"what was rewound is none", "open a a+ save:s b b? back:s turn commit turn",
		"committed: a=retired b=compensated [b]"},
	{"the plan accepts it", "open:accept a a? b commit turn", "committed: a=retired b=retired []"},
	{"the plan says that it does not", "open:settle a a? commit turn", "committing: a=quarantined []"},
	{"an irreversible one", "open a:irr a? commit turn", "committing: a=quarantined []"},

	// The world is asked.
	{"present", "open b:probe b? commit turn", "committed: b=retired []"},
	{"absent", "open b:probe b? b.probe=absent commit turn", "committed: b=retired []"},
	{"absent, and asked too early", "open b:probe+settle=1m b? b.probe=absent commit turn @59s", "committing: b=held []"},
	{"and asked again", "open b:probe+settle=1m b? b.probe=absent commit turn @1m", "committed: b=retired []"},
	{"and there by then", "open b:probe+settle=1m b? b.probe=absent,present commit turn @1m", "committed: b=retired []"},
	{"also where an undo would be refused", "open b:probe+refused+settle=1m b? b.probe=absent commit turn @59s",
		"committing: b=held []"},
	{"also where an undo would be blind", "open b:blind b? b.probe=absent commit turn", "committed: b=retired []"},
	{"its caller has the first word", "open b:probe+timeout=5s+grace=2s b.probe=absent commit turn @2s",
		"committing: b=held []"},
	{"and then the world", "open b:probe+timeout=5s+grace=2s+may b.probe=absent commit turn @2.5s @12s",
		"committed: b=retired []"},
	{"it does not know", "open b:probe b? b.probe=inconclusive commit turn @1s", "committing: b=quarantined []"},
	{"it does not know at first", "open b:probe b? b.probe=inconclusive,absent commit turn @1s",
		"committed: b=retired []"},
	{"it does not answer", "open b:probe b? b.probe=lost commit turn @1s", "committing: b=quarantined []"},
	{"it is asked again by the owner", "open b:probe b? b.probe=inconclusive commit turn @1s b.probe=present retry:b turn",
		"committed: b=retired []"},
	{"and knows as little", "open b:probe b? b.probe=inconclusive commit turn @1s retry:b turn @2s",
		"committing: b=quarantined []"},
	{"there is nobody to ask again", "open b b? commit turn !retry:b", "committing: b=quarantined []"},
	{"it finds two", "open b:probe b? b.probe=duplicate commit turn", "committing: b=quarantined []"},
	{"it finds two, and one was removed", "open b:probe b? b.probe=duplicate commit turn resolve:b turn",
		"committed: b=retired []"},
	{"it finds two, and both are undone", "open b:probe b? b.probe=duplicate commit turn fail turn",
		"compensated: b=compensated b~1=compensated [b~1 b]"},

	// Its agent reports after all.
	{"it completed", "open b b? commit turn b+ turn", "committed: b=retired []"},
	{"it failed", "open b b? commit turn b- turn", "committed: b=retired []"},
	{"it completed while the probe was out", "open b:probe b? b.probe=late commit turn b+ turn",
		"committed: b=retired []"},
	{"it failed while the probe waits", "open b:probe+settle=1m b? b.probe=absent commit turn b- turn",
		"committed: b=retired []"},
	{"it is given up only now", "open b:probe+timeout=5s+grace=2s+may commit b? b.probe=absent @4s @5s",
		"committed: b=retired []"},
	{"absent, and given up only now", "open a:probe+timeout=1s a.probe=absent b b? commit turn @5s a? a.probe=present @6s",
		"committing: a=held b=quarantined []"},

	{"a doubt that comes back moves what no other waits for",
		"open a:probe b:probe+may a.probe=absent b.probe=absent,present commit turn @3s a? @32s @40s",
		"committed: a=retired b=retired []"},

	// It can still be undone.
	{"its agent fails it", "open a a+ b b? commit turn fail turn", "compensated: a=compensated b=compensated [b a]"},
	{"its agent cancels it", "open a a+ b b? commit cancel turn", "compensated: a=compensated b=compensated [b a]"},
	{"an operator cancels it", "open a a+ b b? commit turn stop turn", "compensated: a=compensated b=compensated [b a]"},
	{"an operator has it undone", "open a a+ b b? commit turn undo turn",
		"compensated: a=compensated b=compensated [b a]"},
	{"not back to a savepoint", "open a a+ save:s b b? commit turn !undo:s !back:s !save:t",
		"committing: a=held b=quarantined []"},
	{"a verdict undoes it", "open a a+ b b? commit turn judge:a=block* turn",
		"compensated: a=compensated b=compensated [b a]"},
	{"while the probe is out", "open a a+ b:probe b? b.probe=late commit turn fail b.probe=absent turn",
		"compensated: a=compensated b=skipped [a]"},
	{"while it settles", "open a a+ b:probe+settle=1m b? b.probe=absent commit turn fail turn @1m",
		"compensated: a=compensated b=skipped [a]"},
	{"what the probe has found by then counts", "open a:probe a? a.probe=absent b b? commit turn fail turn",
		"compensated: a=skipped b=compensated [b]"},
	{"so does what its owner has said", "open a a? b b? commit turn resolve:a fail turn",
		"resolved: a=skipped b=compensated [b]"},
	{"nothing crossed, and nothing is undone", "open a:probe a? a.probe=absent b b? commit turn b- fail turn",
		"failed: a=skipped b=skipped []"},
	{"its deadline is over", "open@5s a a+ b b? commit turn @1h", "committing: a=held b=quarantined []"},
	{"also when it is answered after it", "open@5s a a+ b b? commit turn @1h resolve:b turn",
		"committed: a=retired b=retired []"},
	{"no action joins it", "open a a? commit turn !b resolve:a turn", "committing: a=held []"},
	{"what it claims is its owner's", "open a a? commit turn !b resolve:a resolve:b turn", "committed: a=retired []"},
	{"also when that is answered first", "open a a? commit turn !b resolve:b resolve:a turn", "committed: a=retired []"},
	{"or its agent's, who takes it back", "open a a? commit turn !b resolve:a turn b- turn", "committed: a=retired []"},
	{"and the plan can be undone beside it", "open a a+ c c? commit turn !b fail turn",
		"quarantined: a=compensated c=compensated [c a]"},
	{"what is claimed under a child keeps its root", "open a a? q/open^ q/x q/x+ q/commit commit turn !q/b resolve:a turn",
		"committing: a=held plan:q=held []"},
	{"until the owner of that answers",
		"open a a? q/open^ q/x q/x+ q/commit commit turn !q/b resolve:a turn q/resolve:b turn",
		"committed: a=retired plan:q=retired []"},
	{"no child does", "open a a? commit turn q/open^ q/x q/x+ turn", "committing: a=quarantined [x]"},
	{"the commit once more", "open a a? commit =commit turn =commit resolve:a turn =commit", "committed: a=retired []"},
	{"what was rewound completes late: the commit goes on after it", "open c c? save:s b back:s turn commit turn b+ turn",
		"committing: c=quarantined b=compensated b~1=compensated [b b~1]"},
	{"and ends", "open c c? save:s b back:s turn commit turn b+ turn resolve:c turn",
		"committed: c=retired b=compensated b~1=compensated [b b~1]"},
	{"and all of it is undone", "open c c? save:s b back:s turn commit turn b+ turn fail turn",
		"compensated: c=compensated b=compensated b~1=compensated [b b~1 c]"},

	// Child plans.
	{"a child is committed with its doubt", "open a a+ q/open^ q/x q/x? q/commit turn", "open: a=held plan:q=held []"},
	{"its root is not", "open a a+ q/open^ q/x q/x? q/commit commit turn", "committing: a=held plan:q=held []"},
	{"the owner of the child answers", "open a a+ q/open^ q/x q/x? q/commit commit turn q/resolve:x turn",
		"committed: a=retired plan:q=retired []"},
	{"its probe answers", "open a a+ q/open^ q/x:probe q/x? q/commit commit turn",
		"committed: a=retired plan:q=retired []"},
	{"its agent reports", "open a a+ q/open^ q/x q/x? q/commit commit turn q/x+ turn",
		"committed: a=retired plan:q=retired []"},
	{"its root is undone meanwhile", "open a a+ q/open^ q/x q/x? q/commit commit turn fail turn",
		"compensated: a=compensated plan:q=compensated [x a]"},
	{"a verdict on it undoes the root", "open a a+ q/open^ q/x q/x? q/commit commit turn q/judge:x=block* turn",
		"compensated: a=compensated plan:q=compensated [x a]"},
	{"what was rewound in it completes late: its root's",
		"open a a? q/open^ q/x q/x+ q/save:s q/y q/back:s turn q/commit commit turn q/y+ turn fail turn",
		"compensated: a=compensated plan:q=compensated [y y~1 x a]"},
	{"a child that failed, and does more",
		"open a a? q/open^ q/x q/x+ q/fail turn commit turn q/y q/y+ y=late turn resolve:a turn",
		"committing: a=held plan:q=held [x]"},
	{"and has it undone",
		"open a a? q/open^ q/x q/x+ q/fail turn commit turn q/y q/y+ y=late turn resolve:a turn q/tell:y#1=done turn",
		"committed: a=retired plan:q=compensated [x]"},

	// A committed plan that is undone later.
	{"what did not happen is not undone", "open a a+ b b? commit turn resolve:b turn undo turn",
		"committed: a=retired b=retired [a]"},
	{"what did is", "open a a+ b b? commit turn accept:b turn undo turn", "committed: a=retired b=retired [b a]"},
	{"also where a probe did not know", "open b:probe b? b.probe=lost commit @5m turn @7m accept:b fail turn",
		"resolved: b=compensated [b]"},
	{"what nobody knows is asked about", "open a a+ b:probe b? b.probe=inconclusive commit turn @1s skip:b turn " +
		"b.probe=absent undo turn", "committed: a=retired b=retired [a]"},
}

// TestACommitNamesTheActsThatItWaitsFor: whoever asks is told of acts that were claimed by
// records which were refused, beside the actions in doubt.
func TestACommitNamesTheActsThatItWaitsFor(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a? q/open^ q/x q/x+ q/commit commit turn !b !q/c")
	named := func() (names string) {
		for _, d := range view.NewReader(s.kv, "t", s).Doubts("p") {
			names += d.Action + " "
			if !d.Owner || !strings.Contains(d.Waits, "its owner's word") {
				t.Errorf("%+v", d)
			}
		}
		return names
	}
	if got := named(); got != "a b q/c " {
		t.Fatalf("it waits for %q", got)
	}
	why, err := view.NewReader(s.kv, "t", s).Why(api.WhyQuery{Plan: "p"})
	if err != nil || len(why.Waits) != 3 || why.Waits[2].Action != "q/c" {
		t.Fatalf("%+v, %v", why.Waits, err)
	}
	s.play("resolve:a turn resolve:b")
	if got := named(); got != "q/c " {
		t.Fatalf("it waits for %q", got)
	}
	s.play("q/resolve:c turn")
	if got := named() + s.show("p").State; got != "committed" {
		t.Fatalf("it is %q", got)
	}
}

// TestACommitSettlesDoubtFirst: what the plan is, and what was undone.
func TestACommitSettlesDoubtFirst(t *testing.T) {
	for _, c := range committing {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			s.play(c.words)
			if got := s.outcome(); got != c.want {
				t.Fatalf("%s\nis   %s\nwant %s", c.words, got, c.want)
			}
			s.wantRefolded()
		})
	}
}

// openDoubts are schedules in which the world is asked about a doubt while the plan is open.
var openDoubts = []struct{ name, words, want string }{
	{"not before it has lasted", "open b:probe b? b.probe=duplicate turn @59s fail b.probe=present turn",
		"compensated: b=compensated [b]"},
	{"it is there", "open b:probe b? turn @1m b.probe=absent fail turn @1h", "compensated: b=compensated [b]"},
	{"it is not there, and is called once more",
		"open a a+ b:probe b? b.probe=absent turn @1m b.probe=present fail turn",
		"compensated: a=compensated b=compensated [b a]"},
	{"nothing is there at all", "open b:probe b? b.probe=absent turn @1m fail turn", "failed: b=skipped []"},
	{"it is asked for its commit, too", "open b:probe b? b.probe=absent turn @1m b.probe=late commit turn",
		"committing: b=held []"},
	{"the contract says when", "open b:probe+later=5s b? turn @5s b.probe=late commit turn",
		"committed: b=retired []"},
	{"and not before it", "open b:probe+later=5s b? turn @4s b.probe=late commit turn", "committing: b=held []"},
	{"there is no one to ask", "open b b? turn @1h commit turn", "committing: b=quarantined []"},
	{"absent, while it may land", "open b:probe+may+settle=5m b? b.probe=absent,present turn @1m @5m commit turn",
		"committed: b=retired []"},
	{"and not asked again before it may not",
		"open b:probe+may+settle=5m b? b.probe=absent turn @1m @4m commit turn",
		"committing: b=held []"},
	{"also where an undo would be refused",
		"open b:probe+refused+settle=5m b? b.probe=absent,present turn @1m @5m " +
			"b.probe=late commit turn", "committed: b=retired []"},
	{"no outcome, and its caller has a bound",
		"open b:probe+timeout=2m+grace=2s+settle=30s b.probe=absent turn @1m @2m1s @2m2s " +
			"@2m32s fail turn @5m turn", "failed: b=skipped []"},
	{"it is not asked before that",
		"open b:probe+timeout=2m+grace=2s b.probe=absent turn @2m1s b.probe=present fail turn @5m",
		"compensated: b=compensated [b]"},
	{"no outcome, and no bound: absent says nothing",
		"open b:probe b.probe=absent,absent,present turn @1m @2m @10m @1h fail turn @2h",
		"compensated: b=compensated [b]"},
	{"present does", "open b:probe turn @1m b.probe=absent fail turn @1h", "compensated: b=compensated [b]"},
	{"its caller says more", "open b:probe b? turn b+ @1m b.probe=absent fail turn",
		"compensated: b=compensated [b]"},
	{"it completes after all", "open b:probe b? b.probe=absent turn @1m b+ fail turn",
		"compensated: b=compensated [b]"},
	{"while the question is out", "open b:probe b? b.probe=late turn @1m b+ commit turn",
		"committed: b=retired []"},
	{"it fails while the question is out", "open b:probe b? b.probe=late turn @1m b- fail turn",
		"failed: b=skipped []"},
	{"given up after absent: asked about again",
		"open b:probe+timeout=5s+grace=1s b.probe=absent,present turn @1m b? turn @2m1s " +
			"b.probe=late fail turn", "compensated: b=compensated [b]"},
	{"the probe does not know",
		"open b:probe b? b.probe=inconclusive turn @1m @2m b.probe=late @30m commit b.probe=present turn",
		"committed: b=retired []"},
	{"and is asked again", "open b:probe b? b.probe=inconclusive,present turn @1m @1m15s b.probe=late commit turn",
		"committed: b=retired []"},
	{"no worker serves it, and then one does",
		"open b:probe+offer=1m b? b.probe=nobody,nobody,present turn @1m @2m @3m @4m @5m b.probe=late commit turn",
		"committed: b=retired []"},
	{"which costs no attempt",
		"open b:probe+offer=1m b? b.probe=nobody,inconclusive,present turn @1m @2m @3m @3m15s b.probe=late commit turn",
		"committed: b=retired []"},
	{"and pauses as long", "open b:probe+offer=5m b? b.probe=nobody,present turn @1m @6m @10m b.probe=late commit turn",
		"committing: b=held []"},
	{"it does not answer", "open b:probe b? b.probe=lost turn @1m @2m @3m b.probe=late commit turn",
		"committing: b=held []"},

	// There is more than one.
	{"the extra one is undone", "open a a+ b:probe b? b.probe=duplicate turn @1m turn",
		"open: a=held b=held b~1=compensated [b~1]"},
	{"and the plan goes on", "open b:probe b? b.probe=duplicate turn @1m turn c c+ commit turn",
		"committed: b=retired b~1=compensated c=retired [b~1]"},
	{"and is undone later", "open b:probe b? b.probe=duplicate turn @1m turn c c+ fail turn",
		"compensated: b=compensated b~1=compensated c=compensated [b~1 c b]"},
	{"no commit comes before that", "open b:probe b? b.probe=duplicate turn b~1=late @1m !commit b~1=done turn",
		"unwinding: b=held b~1=dispatched []"},
	{"its undo does not say which", "open b:blind b? b.probe=duplicate turn @1m turn resolve:b~1 turn",
		"open: b=held b~1=resolved []"},
	{"the plan is undone meanwhile", "open b:probe b? b.probe=duplicate turn @1m fail turn",
		"compensated: b=compensated b~1=compensated [b~1 b]"},

	// An end that begins while the question is out asks for itself.
	{"an unwind asks once more", "open b:probe b? b.probe=late turn @1m fail turn settle:b=absent turn",
		"failed: b=skipped []"},
	{"after what came after it",
		"open b:probe b? b.probe=late turn @1m c c+ c=late fail turn tell:c#1=done turn " +
			"settle:b=absent turn", "compensated: b=skipped c=compensated []"},
	{"a commit asks once more", "open b:probe b? b.probe=late turn @1m commit turn settle:b=absent turn",
		"committed: b=retired []"},
	{"one that is too early is asked again", "open b:probe+may+settle=5m b? b.probe=late turn @1m fail turn " +
		"settle:b=absent turn b.probe=present @5m turn", "compensated: b=compensated [b]"},
	{"a commit that accepts doubt does not", "open:accept b:probe b? b.probe=late turn @1m commit turn",
		"committed: b=retired []"},
	{"a part of the plan is undone beside it",
		"open b:probe b? save:s c c+ b.probe=late turn @1m back:s turn settle:b=absent " +
			"turn fail turn", "compensated: b=skipped c=compensated [c]"},
	{"its owner is faster", "open b:probe b? b.probe=late turn @1m c c+ c=stop fail turn resolve:b resolve:c turn",
		"resolved: b=resolved c=resolved []"},
	{"a child is committed with it", "open a a+ q/open^ q/b:probe q/b? b.probe=late turn @1m q/commit commit turn",
		"committing: a=held plan:q=held []"},
	{"and its root asks once more", "open a a+ q/open^ q/b:probe q/b? b.probe=late turn @1m q/commit commit turn " +
		"q/settle:b=absent turn", "committed: a=retired plan:q=retired []"},
}

// TestAnOpenPlanAsksAboutDoubt: what is known of an action counts from then on, and no question is
// asked twice at once.
func TestAnOpenPlanAsksAboutDoubt(t *testing.T) {
	for _, c := range openDoubts {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			s.play(c.words)
			if got := s.outcome(); got != c.want {
				t.Fatalf("%s\nis   %s\nwant %s", c.words, got, c.want)
			}
			s.wantRefolded()
		})
	}
}

// TestNoCommitLandsBeforeAnExtraEffectIsOwed: its holder has only read of it.
func TestNoCommitLandsBeforeAnExtraEffectIsOwed(t *testing.T) {
	s := newSchedule(t)
	s.play("open b:probe b? b.probe=late turn @1m")
	row := s.actionOf("p", "b")
	s.must(s.append(holder, &pb.Record{Plan: "p", Action: "b", About: row.Fixed.Registered, Term: s.state.Meta().Term,
		EpochNs: s.now, Kind: &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{Attempt: 1,
			Question: pb.Question_QUESTION_EFFECT, Presence: pb.Presence_PRESENCE_DUPLICATE, Duplicates: []string{"x"}}}}))
	s.play("!commit turn turn commit")
	if got := s.outcome(); got != "committed: b=retired b~1=compensated [b~1]" {
		t.Fatal(got)
	}
}

// TestAnAgentHearsWhatIsKnownOfADoubt: while the plan is open, and it stays so.
func TestAnAgentHearsWhatIsKnownOfADoubt(t *testing.T) {
	for _, c := range [...]struct{ answer, want string }{
		{"present", "present"}, {"absent", "absent"}, {"duplicate", "duplicate"},
		{"inconclusive", "inconclusive"},
	} {
		s := newSchedule(t)
		s.play("open b:probe b? b.probe=" + c.answer + " turn @1m")
		s.at(2 * time.Minute)
		var heard []string
		for _, n := range s.state.Notices() {
			if n.Presence != "" {
				heard = append(heard, n.Plan+" "+n.Action+" "+n.State+" "+n.Presence)
			}
		}
		if want := "p b open " + c.want; strings.Join(heard, ", ") != want {
			t.Errorf("%s: heard %q, want %q", c.answer, heard, want)
		}
	}
}

// TestWhatAnOpenPlanAsksIsTold: plan why and plan show say what a doubt waits for.
func TestWhatAnOpenPlanAsksIsTold(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:probe b:probe b? b.probe=late turn")
	waits := func() string {
		why, err := view.NewReader(s.kv, "t", s).Why(api.WhyQuery{Plan: "p"})
		last := len(why.Waits) - 1
		if err != nil || last < 0 || why.Waits[last].Action != "b" ||
			why.Waits[last].For != s.show("p").Actions[1].WaitsFor {
			t.Fatalf("%+v, %v", why.Waits, err)
		}
		return why.Waits[last].For
	}
	if got := waits(); !strings.HasPrefix(got, "a question to probe.b at ") {
		t.Fatalf("it waits for %s", got)
	}
	s.play("@1m")
	s.play("a+")
	if got := waits(); got != "an answer of probe.b, whether it has happened" {
		t.Fatalf("it waits for %s", got)
	}
}

// TestAChildIsRetiredByItsRootOnly: a committed child holds its set until its root
// commits, whatever a holder says of it meanwhile.
func TestAChildIsRetiredByItsRootOnly(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	w.must(w.agent("q", openedUnder("p")))
	w.do("q", "a")
	w.must(w.agent("q", planCommitted()))
	w.turn()
	results := w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, &pb.Record{
		Plan: "q", Term: 1, Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 1}}})
	if results[0].Verdict != Void || w.state.Meta().Held != 1 {
		t.Fatalf("%+v, %d held", results, w.state.Meta().Held)
	}
	w.must(w.agent("p", planFailed()))
	w.turn()
	w.wantState("q", ledger.StateCompensated, "a=compensated")
}

// foundBeside has a commit find two effects of an action, beside a part that waits for its owner.
const foundBeside = "open a:probe a? c a.probe=x7+x8 c+ commit @10m turn own:a=x7 c=stop judge:c=block turn "

// TestWhatACommitFoundTooMuchIsItsOwners, though the agent says that one of them is its own: to that there
// is another one, which no one has answered for, and which is undone with its plan.
func TestWhatACommitFoundTooMuchIsItsOwners(t *testing.T) {
	const found = "open a:probe+for=9h a? a.probe=x7+x8 commit @10m turn "
	const both = "compensated: a=compensated a~1=compensated [a~1 a]"
	for _, c := range []struct{ script, sent, want string }{
		{found + "own:a=x7 turn", "", "committing: a=quarantined []"},
		{found + "own:a= turn !effect:a= turn", "", "committing: a=quarantined []"},
		{found + "a- turn", "", "committing: a=quarantined []"},

		// Its owner answers.
		{found + "own:a=x7 resolve:a turn undo turn", "a=x7", "committed: a=retired [a]"},
		{found + "own:a=x7 accept:a turn", "", "committed: a=retired []"},
		{found + "own:a=x7 skip:a turn", "", "committed: a=retired []"},
		{found + "a.probe=x7 own:a=x7 retry:a turn", "", "committed: a=retired []"},
		{found + "a.probe=x7 retry:a own:a=x7 turn", "", "committed: a=retired []"},
		{found + "a.probe=absent own:a=x7 retry:a turn undo turn", "a=x7", "committed: a=retired [a]"},
		{found + "a.probe=x8+x9 own:a=x7 retry:a turn", "", "committing: a=quarantined []"},
		{found + "a.probe=inconclusive own:a=x7 retry:a turn @1h turn @2h turn", "", "committing: a=quarantined []"},

		// It is undone, by the name that its agent gives it, and what is beside it by that of each.
		{found + "own:a=x7 turn stop turn", "a~1=x8 a=x7", both},
		{found + "own:a= turn stop turn", "a~1=x8 a=x7", both},
		{found + "own:a=x8 turn stop turn", "a~1=x7 a=x8", both},
		{found + "stop own:a=x8 turn", "a~1=x7 a=x8", both},
		{found + "own:a=x9 turn stop turn", "a~2=x8 a~1=x7 a=x9",
			"compensated: a=compensated a~1=compensated a~2=compensated [a~2 a~1 a]"},
		{found + "own:a=x7 a.probe=x8+x9 retry:a turn stop turn", "a~2=x9 a~1=x8 a=x7",
			"compensated: a=compensated a~1=compensated a~2=compensated [a~2 a~1 a]"},

		// As a part, and beside one.
		{"open a:probe a? c a.probe=x7+x8 c+ commit @10m turn own:a=x7 judge:a=block turn", "a~1=x8 c= a=x7",
			"committed: a=compensated c=compensated a~1=compensated [a~1 c a]"},
		{"open a:probe a? c a.probe=x7+x8 c+ commit @10m turn own:a=x7 judge:c=block turn", "c=",
			"committing: a=quarantined c=compensated [c]"},
		{"open a:probe a? c a.probe=x7+x8 c+ commit @10m turn own:a=x7 judge:c=block turn stop turn", "c= a~1=x8 a=x7",
			"compensated: a=compensated c=compensated a~1=compensated [c a~1 a]"},

		// Beside a part that waits for its owner more is reported: what was found is undone with it.
		{foundBeside + "effect:a=,x8 turn resolve:c turn", "c= a~1=x8",
			"committed: a=retired c=resolved a~1=compensated [a~1]"},
		{foundBeside + "effect:a=,x9 turn resolve:c turn", "c= a~2=x9 a~1=x8",
			"committed: a=retired c=resolved a~1=compensated a~2=compensated [a~2 a~1]"},
		{foundBeside + "effect:a=,x9,x8 turn resolve:c turn", "c= a~2=x9 a~1=x8",
			"committed: a=retired c=resolved a~1=compensated a~2=compensated [a~2 a~1]"},
		{foundBeside + "resolve:c turn", "c=", "committing: a=quarantined c=resolved []"},

		{"open q/open^ q/a:probe q/a? a.probe=x7+x8 q/commit commit @10m turn q/own:a=x8 turn", "",
			"committing: plan:q=held []"},
		{"open q/open^ q/a:probe q/a? a.probe=x7+x8 q/commit commit @10m turn q/own:a=x8 turn stop turn turn", "a~1=x7 a=x8",
			"compensated: plan:q=compensated [a~1 a]"},
	} {
		playOne(t, c.script, c.sent+"; "+c.want, func(s *schedule) func() string {
			sent := s.seen("x7")
			return func() string { return strings.Join(*sent, " ") + "; " + s.outcome() }
		})
	}
}

// TestUnderEarlierHoldersWhatACommitFoundIsForgotten: it is folded as it was decided.
func TestUnderEarlierHoldersWhatACommitFoundIsForgotten(t *testing.T) {
	for _, c := range []struct {
		since        uint32
		script, want string
	}{
		{ledger.SurplusSince, "open a:probe+for=9h a? a.probe=x7+x8 commit @10m turn own:a=x7 turn",
			"committed: a=retired []"},
		{ledger.AllFoundSince, foundBeside + "effect:a=,x8 turn resolve:c turn",
			"committed: a=retired c=resolved a~1=compensated [a~1]"},
		{ledger.AllFoundSince, foundBeside + "effect:a=,x9 turn resolve:c turn",
			"committed: a=retired c=resolved a~1=compensated [a~1]"},
	} {
		playOne(t, c.script, c.want, func(s *schedule) func() string {
			s.underHolder(c.since - 1)
			s.seen("x7")
			return s.outcome
		})
	}
}

// TestWhatAnEarlierHolderHasForgottenALaterOneAsks about: what it found is there still.
func TestWhatAnEarlierHolderHasForgottenALaterOneAsks(t *testing.T) {
	for script, want := range map[string]string{
		"resolve:c turn":             "committing: a=quarantined c=resolved []",
		"effect:a=,x9 turn":          "quarantined: a=held c=quarantined a~1=compensated a~2=compensated [a~2 a~1]",
		"effect:a=,x8 turn":          "quarantined: a=held c=quarantined a~1=compensated [a~1]",
		"resolve:c turn stop turn":   "resolved: a=compensated c=resolved a~1=compensated [a~1 a]",
		"resolve:c turn skip:a turn": "committed: a=retired c=resolved []",
	} {
		s := newSchedule(t)
		s.underHolder(ledger.SurplusSince - 1)
		s.seen("x7")
		s.play(foundBeside)
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{Term: 3,
			Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: FoldVersion}}}))
		if s.play(script); s.outcome() != want {
			t.Errorf("%s: %s", script, s.outcome())
		}
		s.wantRefolded()
	}
}

// TestWhatACommitFoundIsOneOfTheExtraEffects that an action may have.
func TestWhatACommitFoundIsOneOfTheExtraEffects(t *testing.T) {
	s := newSchedule(t)
	s.deciding = true
	s.seen("x7")
	s.play(foundBeside)
	for i := range 8 {
		names := make([]string, 32)
		for j := range names {
			names[j] = fmt.Sprintf("v%d-%d", i, j)
		}
		want := Effective
		if i == 7 {
			want = Refused
		}
		if r := s.effect("ops", "a", "", names...); r.Verdict != want {
			t.Errorf("report %d: %+v", i, r)
		}
		if i == 7 {
			if r := s.effect("ops", "a", "", names[1:]...); r.Verdict != Effective {
				t.Errorf("one less: %+v", r)
			}
		}
	}
	s.wantRefolded()
}

// TestACommitWaitsForNoForwardThatHasCompleted: what its owner has had asked about again is asked
// once more as soon as the agent has said so, and not when the forward could land no more.
func TestACommitWaitsForNoForwardThatHasCompleted(t *testing.T) {
	s := newSchedule(t)
	found := []string{`{"presence":"duplicate","external_ref":["x","y"]}`, `{"presence":"absent"}`}
	s.worker = func(Command) *api.Reply {
		output := found[0]
		found = found[len(found)-1:]
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(output)}
	}
	s.play("open a:probe+settle=5m commit turn @10s turn retry:a turn")
	s.wantState("p", ledger.StateCommitting, "a=held")
	s.play("own:a=x turn")
	s.wantState("p", ledger.StateCommitted, "a=retired")
	s.wantRefolded()
}

// TestADutyAfterTheCommitIsNoneThatItRetires: a forward that is given up after it was undone leaves
// one, and its plan may be committed, and not retired yet.
func TestADutyAfterTheCommitIsNoneThatItRetires(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b undo:!b turn @1h turn commit:1 b? turn")
	if got := s.show("p"); got.State != ledger.StateCommitted {
		t.Errorf("it is %s: %s", got.State, s.undos("p"))
	}
	s.wantRefolded()
}

// TestARetirementWaitsForNoPart: a condition that has turned since the commit waits until a part of
// the plan is undone, which its owner may have to do; what the plan gives up does not.
func TestARetirementWaitsForNoPart(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a q/c q/c- q/fail turn b:held+for=1h b+ commit q/c+ c~1=stop fact:b=1 turn")
	if !s.planOf("p").Row.Retired || s.state.HasWork() {
		t.Errorf("it is retired: %v; work: %v", s.planOf("p").Row.Retired, s.state.HasWork())
	}
	s.play("q/resolve:c~1 turn")
	if want := "committed: a=retired plan:q=resolved b=retired [b]"; s.outcome() != want {
		t.Errorf("%s, want %s", s.outcome(), want)
	}
	s.wantRefolded()
}

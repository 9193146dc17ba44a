package executor_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// delivery is a schedule, and what becomes of plan p and of the plans beside it.
type delivery struct{ name, words, want string }

// beside are the plans of a delivery, each with its state and its actions, and in brackets what
// workers did, in that order.
func (s *schedule) beside() string {
	s.t.Helper()
	var all []string
	for _, id := range []string{"p", "p~0", "q~0", "r~0", "p~1"} {
		if s.planOf(id) != nil && (id != "p" || len(all) == 0) {
			all = append(all, strings.TrimSpace(id+" "+s.show(id).State+": "+s.undos(id)))
		}
	}
	short := strings.NewReplacer("compensated", "done", "quarantined", "owner", "delivered", "done",
		"delivering", "unwinding", "dropped", "skipped")
	return short.Replace(strings.Join(all[1:], ", ")) + " [" + strings.Join(s.undone, " ") + "]"
}

func playDeliveries(t *testing.T, list []delivery) {
	t.Helper()
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			playOne(t, c.words, c.want, func(s *schedule) func() string { return s.beside })
		})
	}
}

// playOne plays a schedule, compares what its world says of it then, and folds its ledger again.
func playOne(t *testing.T, words, want string, world func(*schedule) func() string) {
	t.Helper()
	s := newSchedule(t)
	says := world(s)
	s.play(words)
	if got := says(); got != want {
		t.Errorf("%s\ngives %s\nwant  %s", words, got, want)
	}
	s.wantRefolded()
}

// TestWhatIsStagedIsDelivered when its root is committed, in the order in which it was staged.
func TestWhatIsStagedIsDelivered(t *testing.T) {
	playDeliveries(t, []delivery{
		{"in order", "open a a+ m:staged b b+ n:staged commit turn",
			"p~0 done: n=done m=done [m n]"},
		{"with the commit of a child", "open a a+ q/open^ q/m:staged q/commit n:staged commit turn",
			"p~0 done: n=done plan:q~0=done, q~0 done: m=done [m n]"},
		{"a child alone is not", "open a a+ q/open^ q/m:staged q/commit turn fail turn",
			" [a]"},
		{"without what was dropped", "open m:staged n:staged undo:!n turn commit:1 turn",
			"p~0 done: m=done [m]"},
		{"after doubt", "open a:probe a? m:staged commit turn @40s a.probe=present @80s",
			"p~0 done: m=done [m]"},
		{"that is accepted", "open:accept a a? m:staged commit turn",
			"p~0 done: m=done [m]"},
		{"a block while the commit waits", "open a:probe a? m:staged commit judge:m=block turn",
			" []"},
		{"with a part of a part", "open q/open^ r/open^q. r/m:staged r/commit q/n:staged q/commit commit turn",
			"p~0 done: plan:q~0=done, q~0 done: n=done plan:r~0=done, r~0 done: m=done [m n]"},
		{"and no condition of the plan is held on it", "open:idle=1m m:staged commit m=late turn @5m turn",
			"p~0 unwinding: m=dispatched []"},
		{"in a tree of three", "open q/open^ q/m:staged q/n:staged q/commit x:staged commit turn",
			"p~0 done: x=done plan:q~0=done, q~0 done: n=done m=done [m n x]"},
	})
}

// TestEachDeliveryHasTheInputOfItsAct, where others are staged beside it, some were dropped, and some
// are of a part under the same id.
func TestEachDeliveryHasTheInputOfItsAct(t *testing.T) {
	for words, want := range map[string]string{
		"open m:staged+reads commit turn": `m{"id":"m"}`,
		"open a a+ m:staged+reads b b+ n:staged+reads x:staged+reads commit turn": `m{"id":"m"} n{"id":"n"} ` +
			`x{"id":"x"}`,
		"open m:staged+reads n:staged+reads undo:!m turn x:staged+reads commit:1 turn": `x{"id":"x"}`,
		"open x:staged+reads q/open^ q/m:staged+reads q/n:staged+reads q/commit m:staged+reads commit turn": `x{"id":"x"} ` +
			`m{"id":"m"} n{"id":"n"} m{"id":"m"}`,
	} {
		s := newSchedule(t)
		answers, sent := s.worker, []string{}
		s.worker = func(c Command) *api.Reply {
			if c.Delivers {
				sent = append(sent, c.Action+string(c.Arguments))
			}
			return answers(c)
		}
		s.play(words)
		if got := strings.Join(sent, " "); got != want {
			t.Errorf("%s\nsends %s\nwant  %s", words, got, want)
		}
		s.wantRefolded()
	}
}

// TestNothingOfADeliveryIsUnsureOnceItIsMade: the doubt of an attempt before is over with it.
func TestNothingOfADeliveryIsUnsureOnceItIsMade(t *testing.T) {
	for _, words := range []string{"open m:staged+kept=1h commit m=lost,done turn @40s @80s",
		"open m:staged commit m=lost,done turn @60s p~0/retry:m turn",
		"open m:staged+found commit m=lost m.probe=present turn @40s @80s"} {
		s := newSchedule(t)
		s.play(words)
		row := rows.Actions.Find(rows.Over(s.kv), rows.Action{Plan: "p~0", N: 1})
		if row == nil || row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED || row.Unsure != 0 {
			t.Errorf("%s: %+v", words, row)
		}
	}
}

// TestWhatIsStoppedIsAskedAboutWithTheWholeReason: which condition has stopped it, and of which part.
func TestWhatIsStoppedIsAskedAboutWithTheWholeReason(t *testing.T) {
	s := newSchedule(t)
	answers, asked := s.worker, ""
	s.worker = func(c Command) *api.Reply {
		if c.Purpose == api.PurposeProbe && c.Action == "m" {
			asked = string(c.Arguments)
		}
		return answers(c)
	}
	s.play("open q/open^ q/b:held+for=1h q/b+ q/commit m:staged+found commit m=lost " +
		"m.probe=lost,absent turn fact:b=1 turn @1m turn @2m")
	if want := "(child plan q)"; !strings.Contains(asked, want) || s.outcome() == "" {
		t.Errorf("it was asked with %s, want %s; %s", asked, want, s.outcome())
	}
	s.wantRefolded()
}

// TestABlockDropsAtOnceWhatAPartHasStaged: the part was committed as a whole, and its parent goes on.
func TestABlockDropsAtOnceWhatAPartHasStaged(t *testing.T) {
	playAll(t, []scheduled{{"", "open a a+ q/open^ q/m:staged q/commit q/judge:m=block turn",
		"open: a=held plan:q=skipped []"}})
}

// TestWhatMayHaveBeenDeliveredIsNotRepeated unless the provider knows the key, or a probe finds
// nothing once it can land no more.
func TestWhatMayHaveBeenDeliveredIsNotRepeated(t *testing.T) {
	playDeliveries(t, []delivery{
		{"a known failure is", "open m:staged commit m=fail,done turn @2s @5s",
			"p~0 done: m=done [m]"},
		{"as often as the contract says", "open m:staged commit m=fail turn @2s @5s",
			"p~0 owner: m=owner []"},
		{"a stop is not", "open m:staged n:staged commit m=stop turn @5s",
			"p~0 owner: n=owed m=owner []"},
		{"its worker does not know", "open m:staged n:staged commit m=doubt,done turn @5s",
			"p~0 owner: n=owed m=owner []"},
		{"its worker does not know, and the key is known", "open m:staged+kept=1h commit m=doubt,done turn @5s",
			"p~0 done: m=done [m]"},
		{"its worker does not know, and a probe finds nothing", "open m:staged+found commit m=doubt,done " +
			"m.probe=absent turn @40s @80s @160s", "p~0 done: m=done [m]"},
		{"no answer", "open m:staged n:staged commit m=lost turn @60s",
			"p~0 owner: n=owed m=owner []"},
		{"no answer, and its owner goes on", "open m:staged n:staged commit m=lost turn @60s p~0/resolve:m turn",
			"p~0 resolved: n=done m=resolved [n]"},
		{"and says halt", "open m:staged n:staged commit m=lost turn @60s p~0/halt:m turn",
			"p~0 resolved: n=owed m=resolved []"},
		{"and has it sent again", "open m:staged n:staged commit m=lost,done turn @60s p~0/retry:m turn",
			"p~0 done: n=done m=done [m n]"},
		{"the key is known", "open m:staged+kept=1h commit m=lost,done turn @40s @80s",
			"p~0 done: m=done [m]"},
		{"the key is forgotten by when it may land", "open m:staged+kept=61s commit m=lost,done turn @32s @80s",
			"p~0 owner: m=owner []"},
		{"the key is known by then", "open m:staged+kept=62s commit m=lost,done turn @31s @31.5s @80s",
			"p~0 done: m=done [m]"},
		{"the key is forgotten", "open m:staged+kept=31s commit m=lost,done turn @40s @80s",
			"p~0 owner: m=owner []"},
		{"a known failure says nothing of the one before", "open m:staged+kept=70s commit m=lost,fail,done turn " +
			"@40s @80s",
			"p~0 owner: m=owner []"},
		{"and is not dropped after it", "open m:staged+kept=1h commit m=lost,fail turn @40s p~0/stop turn",
			"p~0 owner: m=owner []"},
		{"a probe finds it", "open m:staged+found commit m=lost m.probe=present turn @40s @80s",
			"p~0 done: m=done []"},
		{"a probe finds nothing, too early", "open m:staged+found commit m=lost,done m.probe=absent turn @35s",
			"p~0 unwinding: m=waiting []"},
		{"a probe finds nothing", "open m:staged+found commit m=lost,done m.probe=absent turn @40s @80s @160s",
			"p~0 done: m=done [m]"},
		{"a probe finds two", "open m:staged+found commit m=lost m.probe=duplicate turn @40s @80s",
			"p~0 owner: m=owner []"},
		{"a probe knows nothing", "open m:staged+found commit m=lost m.probe=inconclusive turn @40s @80s " +
			"@160s @320s",
			"p~0 owner: m=owner []"},
		{"an answer comes late", "open m:staged commit m=late turn p~0/tell:m#1=done turn",
			"p~0 done: m=done []"},
		{"after it is its owner's", "open m:staged commit m=lost turn @60s p~0/tell:m#1=done turn",
			"p~0 owner: m=owner []"},
		{"after the owner's answer", "open m:staged commit m=lost turn @60s p~0/skip:m turn " +
			"p~0/tell:m#1=done turn",
			"p~0 owner: m=resolved m~1=owner []"},
		{"the plan continues", "open:continue m:staged n:staged commit m=stop turn @5s",
			"p~0 owner: n=done m=owner [n]"},
	})
}

// TestWhatWasDeliveredTwiceIsItsOwners: where the provider need not know the key of the one attempt
// when it gets the other, each that is done is an act.
func TestWhatWasDeliveredTwiceIsItsOwners(t *testing.T) {
	const again = " commit m=lost,done turn @60s p~0/retry:m turn "
	playDeliveries(t, []delivery{
		{"the first is done after the second", "open m:staged" + again + "p~0/tell:m#1=done turn",
			"p~0 owner: m=done m~1=owner [m]"},
		{"and its owner answers", "open m:staged" + again + "p~0/tell:m#1=done turn p~0/accept:m~1 turn",
			"p~0 resolved: m=done m~1=resolved [m]"},
		{"it is said once", "open m:staged" + again + "p~0/tell:m#1=done !p~0/tell:m#1=done turn",
			"p~0 owner: m=done m~1=owner [m]"},
		{"the second says so again", "open m:staged" + again + "!p~0/tell:m#2=done turn",
			"p~0 done: m=done [m]"},
		{"the provider knew the key", "open m:staged+kept=1h commit m=lost,done turn @40s @80s !p~0/tell:m#1=done turn",
			"p~0 done: m=done [m]"},
		{"it had forgotten it", "open m:staged+kept=31s" + again + "p~0/tell:m#1=done turn",
			"p~0 owner: m=done m~1=owner [m]"},
		{"a probe had found nothing", "open m:staged+found commit m=lost,done m.probe=absent turn @40s @80s @160s " +
			"p~0/tell:m#1=done turn", "p~0 owner: m=done m~1=owner [m]"},
		{"under another key", "open m:staged commit m=lost,done turn @60s p~0/newkey:m turn p~0/tell:m#1=done turn",
			"p~0 owner: m=done m~1=owner [m]"},
		{"the first is done while the second is out", "open m:staged commit m=lost,late turn @60s p~0/retry:m turn " +
			"p~0/tell:m#1=done turn", "p~0 owner: m=done m~1=owner []"},
		{"and both are said at once", "open m:staged commit m=lost,late turn @60s p~0/retry:m turn " +
			"p~0/tell:m#1=done p~0/tell:m#2=done turn", "p~0 owner: m=done m~1=owner []"},
		{"and the second, too", "open m:staged commit m=lost,late turn @60s p~0/retry:m turn " +
			"p~0/tell:m#1=done turn !p~0/tell:m#2=done turn", "p~0 owner: m=done m~1=owner []"},
		{"and the second has failed", "open m:staged commit m=lost,fail turn @60s p~0/retry:m turn " +
			"p~0/tell:m#1=done turn", "p~0 done: m=done []"},
		{"after it was taken up", "open:last a:for=1h a+ m:staged" + again + "undo turn p~0/tell:m#1=done turn",
			"p~0 owner: m=owner, p~1 owner: a=done m=skipped plan:p~0=owner [m a]"},
	})
}

// TestAnAnswerToTheFirstAttemptComesAfterTheSecondWasDone: the worker of the first was slow.
func TestAnAnswerToTheFirstAttemptComesAfterTheSecondWasDone(t *testing.T) {
	s := newSchedule(t)
	s.play("open m:staged commit m=lost,done turn @60s p~0/retry:m turn")
	records := s.decide([]Answer{{Plan: "p~0", Number: 1, Purpose: ledger.PurposeUndo, Attempt: 1,
		Reply: &api.Reply{Status: api.StatusDone}}})
	s.deciding = true
	s.must(s.append(holder, records...))
	s.play("turn")
	if got, want := s.beside(), "p~0 owner: m=done m~1=owner [m]"; got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	s.wantRefolded()
}

// TestAWorkersDoubtIsSaidInItsWords, to the owner of a delivery. An undo is tried again.
func TestAWorkersDoubtIsSaidInItsWords(t *testing.T) {
	s := newSchedule(t)
	s.play("open m:staged commit m=doubt turn")
	if a := s.show("p~0").Actions[0]; a.Undo != "quarantined" || !strings.Contains(a.Note, "bad_gateway: 502") {
		t.Errorf("the delivery is %s: %s", a.Undo, a.Note)
	}
	s.wantRefolded()
	playAll(t, []scheduled{{"an undo", "open a a+ a=doubt,done fail turn @2s @5s", "compensated: a=compensated [a]"}})
}

// TestAnAttemptThatItsOwnerGivesUpMayHaveBeenMade: what is stopped after that is not dropped.
func TestAnAttemptThatItsOwnerGivesUpMayHaveBeenMade(t *testing.T) {
	playDeliveries(t, []delivery{
		{"before the next", "open m:staged commit m=late turn p~0/force:m p~0/stop turn",
			"p~0 owner: m=owner []"},
		{"after the next has failed", "open m:staged commit m=late,fail turn p~0/force:m turn p~0/stop turn",
			"p~0 owner: m=owner []"},
		{"and the provider knows the key", "open m:staged+kept=1h commit m=late,fail turn p~0/force:m turn " +
			"p~0/stop turn", "p~0 owner: m=owner []"},
	})
}

// TestAFailedCopySaysNothingOfAnEarlierOne: that may be at work, so the attempt is in doubt. Where
// no copy may be sent, as its provider knows no keys, what a worker reports is all there is.
func TestAFailedCopySaysNothingOfAnEarlierOne(t *testing.T) {
	for _, c := range []struct {
		name, words string
		reached     bool
		want        string
	}{
		{"the first copy", "open m:staged+kept=1h commit m=late turn", false, "p~0 failed: m=skipped []"},
		{"a later one", "open m:staged+kept=1h commit m=late turn", true, "p~0 owner: m=owner []"},
		{"and a probe finds nothing", "open m:staged+found commit m=late m.probe=absent turn", true,
			"p~0 failed: m=skipped []"},
	} {
		s := newSchedule(t)
		s.play(c.words)
		s.turn(Answer{Plan: "p~0", Number: 1, Purpose: ledger.PurposeUndo, Attempt: 1, Reached: c.reached,
			Reply: &api.Reply{Status: api.StatusFailed, Code: "locked"}})
		s.play("p~0/stop turn @90s")
		if got := s.beside(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		s.wantRefolded()
	}
	playDeliveries(t, []delivery{
		{"of an attempt that may have copies", "open m:staged+kept=1h commit m=late turn " +
			"p~0/tell:m#1=fail turn p~0/stop turn",
			"p~0 owner: m=owner []"},
		{"of one that has none", "open m:staged commit m=late turn p~0/tell:m#1=fail turn p~0/stop turn",
			"p~0 failed: m=skipped []"},
	})
}

// TestWhatAnOwnerLeavesAsItIsIsNotDelivered: what is staged in a child, whose root is never
// committed, and what a delivery has not come to. Nothing of it is missing at the end.
func TestWhatAnOwnerLeavesAsItIsIsNotDelivered(t *testing.T) {
	for _, c := range []struct{ words, p, q string }{
		{"open q/open^ q/m:staged q/commit a a+ a=stop fail turn halt:a turn",
			"resolved: plan:q=owed a=resolved", "committed: m=retired"},
		{"open r/open^ r/b r/b+ q/open^r.b q/m:staged q/commit r/commit a a+ a=stop fail turn halt:a turn",
			"resolved: plan:r=owed a=resolved", "committed: m=retired"},
		{"open n:staged q/open^ q/m:staged q/commit commit n=stop turn p~0/halt:n turn",
			"committed: n=resolved plan:q=retired", "committed: m=retired"},
		{"open q/open^ q/m:staged q/commit m:staged n:staged commit m=done,stop turn p~0/halt:m turn",
			"committed: plan:q=retired m=resolved n=owed", "committed: m=delivered"},
	} {
		s := newSchedule(t)
		s.play(c.words)
		if p, q := s.show("p").State+": "+s.undos("p"), s.show("q").State+": "+s.undos("q"); p != c.p || q != c.q {
			t.Errorf("%s:\np %s, want %s\nq %s, want %s", c.words, p, c.p, q, c.q)
		}
		for _, v := range s.audit.End() {
			t.Errorf("%s: %+v", c.words, v)
		}
		s.wantRefolded()
	}
}

// TestWhatUndoesACommittedPlanStopsItsDelivery: what was delivered is its owner's.
func TestWhatUndoesACommittedPlanStopsItsDelivery(t *testing.T) {
	playDeliveries(t, []delivery{
		{"before it", "open a:for=1h a+ m:staged n:staged commit undo turn",
			"p~0 failed: n=skipped m=skipped, p~1 done: a=done m=skipped n=skipped plan:p~0=skipped [a]"},
		{"after it", "open a:for=1h a+ m:staged commit turn undo turn",
			"p~0 owner: m=owner, p~1 owner: a=owed m=skipped plan:p~0=owner [m]"},
		{"after it, and the last goes", "open:last a:for=1h a+ m:staged n:staged commit turn undo turn",
			"p~0 owner: n=owner m=owner, p~1 owner: a=done m=skipped n=skipped plan:p~0=owner [m n a]"},
		{"and its owner answers", "open a:for=1h a+ m:staged commit turn undo turn p~0/accept:m turn",
			"p~0 resolved: m=resolved, p~1 resolved: a=done m=skipped plan:p~0=resolved [m a]"},
		{"while one is out", "open:last a:for=1h a+ m:staged n:staged commit m=late turn undo turn",
			"p~0 unwinding: n=owed m=dispatched, p~1 unwinding: a=owed m=skipped n=skipped " +
				"plan:p~0=dispatched []"},
		{"which is done", "open:last a:for=1h a+ m:staged n:staged commit m=late turn undo turn " +
			"p~0/tell:m#1=done turn",
			"p~0 owner: n=skipped m=owner, p~1 owner: a=done m=skipped n=skipped plan:p~0=owner [a]"},
		{"which has failed", "open:last a:for=1h a+ m:staged n:staged commit m=late turn undo turn " +
			"p~0/tell:m#1=fail turn",
			"p~0 failed: n=skipped m=skipped, p~1 done: a=done m=skipped n=skipped plan:p~0=skipped [a]"},
		{"which waits", "open:last a:for=1h a+ m:staged n:staged commit m=fail turn undo turn",
			"p~0 failed: n=skipped m=skipped, p~1 done: a=done m=skipped n=skipped plan:p~0=skipped [a]"},
		{"in doubt, and a probe finds nothing", "open:last a:for=1h a+ m:staged+found commit m=lost " +
			"m.probe=late turn " +
			"undo turn p~0/settle:m=absent @35s @70s",
			"p~0 failed: m=skipped, p~1 done: a=done m=skipped plan:p~0=skipped [a]"},
		{"in doubt, and a probe finds it", "open:last a:for=1h a+ m:staged+found commit m=lost " +
			"m.probe=late turn " +
			"undo turn p~0/settle:m=present turn",
			"p~0 owner: m=owner, p~1 owner: a=done m=skipped plan:p~0=owner [a]"},
		{"in doubt, and no one knows", "open:last a:for=1h a+ m:staged+found commit m=lost " +
			"m.probe=inconclusive turn " +
			"undo turn @40s @90s @200s",
			"p~0 owner: m=owner, p~1 owner: a=done m=skipped plan:p~0=owner [a]"},
		{"its owner's already", "open:last a:for=1h a+ m:staged n:staged commit m=stop turn undo turn",
			"p~0 owner: n=skipped m=owner, p~1 owner: a=done m=skipped n=skipped plan:p~0=owner [a]"},
		{"answered by its owner", "open:last a:for=1h a+ m:staged n:staged commit m=stop turn " +
			"p~0/resolve:m turn undo turn",
			"p~0 owner: n=owner m=resolved, p~1 owner: a=done m=skipped n=skipped plan:p~0=owner [n a]"},
		{"a part", "open a:for=1h a+ b:for=1h b+ m:staged commit turn undo:!b turn",
			"p~0 owner: m=owner, p~1 owner: a=skipped b=owed m=skipped plan:p~0=owner [m]"},
		{"by a verdict", "open:last a:for=1h a+ m:staged commit turn judge:a=block turn",
			"p~0 owner: m=owner, p~1 owner: a=done m=skipped plan:p~0=owner [m a]"},
		{"by a condition", "open:last a:for=1h+held a+ m:staged commit turn fact:a=1 turn",
			"p~0 owner: m=owner, p~1 owner: a=done m=skipped plan:p~0=owner [m a]"},
		{"with a child", "open:last a:for=1h a+ q/open^ q/m:staged q/commit n:staged commit turn undo turn",
			"p~0 owner: n=owner plan:q~0=owner, q~0 owner: m=owner, p~1 owner: a=done plan:q~1=skipped " +
				"n=skipped plan:p~0=owner [m n a]"},
		{"with a child that was not reached", "open:last a:for=1h a+ n:staged q/open^ q/m:staged q/commit " +
			"commit n=late turn undo turn p~0/tell:n#1=done turn",
			"p~0 owner: plan:q~0=skipped n=owner, q~0 failed: m=skipped, p~1 owner: a=done n=skipped " +
				"plan:q~1=skipped plan:p~0=owner [a]"},
		{"with a child that was let go", "open:last a:for=1h a+ n:staged q/open^ q/m:staged q/commit " +
			"commit n=stop turn p~0/halt:n turn undo turn",
			"p~0 resolved: plan:q~0=owed n=resolved, q~0 committed: m=retired, p~1 resolved: a=done " +
				"n=skipped plan:q~1=skipped plan:p~0=resolved [a]"},
	})
}

// TestADeliveryIsStoppedAlone by a block, or by an operator.
func TestADeliveryIsStoppedAlone(t *testing.T) {
	playDeliveries(t, []delivery{
		{"a block", "open a:for=1h a+ m:staged n:staged commit judge:n=block turn",
			"p~0 failed: n=skipped m=skipped []"},
		{"not by a cancel of its plan", "open m:staged n:staged commit m=late turn !stop",
			"p~0 unwinding: n=owed m=dispatched []"},
		{"a block of one, which undoes the plan, too", "open:last a:for=1h a+ m:staged commit judge:m=block* turn",
			"p~0 failed: m=skipped, p~1 done: a=done m=skipped plan:p~0=skipped [a]"},
		{"a block of what was delivered", "open a a+ m:staged commit turn !judge:m=block turn",
			"p~0 done: m=done [m]"},
		{"a block while one is out", "open m:staged n:staged commit m=late turn judge:n=block turn " +
			"p~0/tell:m#1=done turn",
			"p~0 done: n=skipped m=done []"},
		{"a cancel", "open m:staged n:staged commit m=late turn p~0/stop turn p~0/tell:m#1=done turn",
			"p~0 done: n=skipped m=done []"},
		{"a cancel twice", "open m:staged n:staged commit m=late turn p~0/stop !p~0/stop turn",
			"p~0 unwinding: n=owed m=dispatched []"},
		{"a cancel at the end", "open m:staged commit turn !p~0/stop turn",
			"p~0 done: m=done [m]"},
		{"no verdict on it", "open m:staged commit !p~0/judge:m=block turn",
			"p~0 done: m=done [m]"},
		{"no undo of it", "open m:staged commit turn !p~0/undo turn",
			"p~0 done: m=done [m]"},
		{"a retry after it", "open m:staged commit m=stop turn p~0/stop !p~0/retry:m turn",
			"p~0 owner: m=owner []"},
		{"no erasure before its end", "open m:staged n:staged commit m=late turn !erase turn",
			"p~0 unwinding: n=owed m=dispatched []"},
		{"but by force", "open m:staged n:staged commit m=late turn erase:force turn",
			"p~0 unwinding: n=owed m=dispatched []"},
		{"erased after it", "open m:staged commit turn erase turn",
			"p~0 done: m=done [m]"},
	})
}

// TestAStagedActAsAPersonSeesIt.
func TestAStagedActAsAPersonSeesIt(t *testing.T) {
	runScript(t, filepath.Join("testdata", "acceptance", "staged.txt"), nil)
}

// TestNoCopyOfADeliveryLeavesWithoutAPromise: its command has an end before it is sent.
func TestNoCopyOfADeliveryLeavesWithoutAPromise(t *testing.T) {
	for words, until := range map[string]int64{"m:staged": 1, "m:staged+kept=40s": epoch0 + 10*second - 1} {
		s := newSchedule(t)
		s.play("open " + words + " commit m=late turn")
		out := s.state.InFlight()
		if len(out) != 1 || !out[0].Delivers || out[0].ResendUntilNs != until || out[0].Unsure {
			t.Errorf("%s: %+v", words, out)
		}
	}
	s := newSchedule(t)
	s.play("open m:staged+kept=40s commit m=fail,late turn @2s")
	if out := s.state.InFlight(); len(out) != 1 || out[0].Attempt != 2 || out[0].ResendUntilNs != epoch0+10*second-1 {
		t.Errorf("a second attempt is sent again for as long as the first: %+v", out)
	}
	s = newSchedule(t)
	s.play("open m:staged+kept=1h commit m=lost,late turn @5s")
	if out := s.state.InFlight(); len(out) != 1 || out[0].Attempt != 2 || !out[0].Unsure {
		t.Errorf("an attempt after one in doubt: %+v", out)
	}
}

// TestAClockThatIsBehindRepeatsNothing: the holder that gives an attempt up may have another clock
// than the one that has sent it.
func TestAClockThatIsBehindRepeatsNothing(t *testing.T) {
	s := newSchedule(t)
	s.play("@100s open m:staged commit m=late turn")
	a := s.actionOf("p~0", "m")
	s.must(s.append(holder, &pb.Record{Plan: "p~0", Action: "m", About: a.Fixed.Registered,
		Cause: a.Row.Dispatched, Term: 1, EpochNs: epoch0 + 60*second,
		Kind: &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: 1, InDoubt: true}}}))
	s.play("turn")
	if got, want := s.beside(), "p~0 owner: m=owner []"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.wantRefolded()
}

// TestWhatOfADeliveryIsSealedIsItsOwnersOnceItIsErased: nothing can read it any more, and the owner
// is called by the hook that the delivery names. What was sent before may still be answered.
func TestWhatOfADeliveryIsSealedIsItsOwnersOnceItIsErased(t *testing.T) {
	for _, c := range []struct{ name, words, want, reason string }{
		{"the next of it", "open m:staged n:staged+secret commit m=late turn erase:force destroyed p~0/tell:m#1=done turn",
			"p~0 owner: n=owner m=done []", "what do.n takes was erased at "},
		{"the one that is out", "open m:staged+secret commit m=late turn erase:force p~0/tell:m#1=done turn",
			"p~0 done: m=done []", ""},
		{"and has failed", "open m:staged+secret commit m=late turn erase:force p~0/tell:m#1=fail turn @9s",
			"p~0 owner: m=owner []", "what do.m takes was erased at "},
		{"in doubt", "open m:staged+secret commit m=lost turn erase:force @60s", "p~0 owner: m=owner []", "no answer"},
		{"erased, and asked for again", "open m:staged+secret commit m=stop turn erase:force p~0/retry:m turn",
			"p~0 owner: m=owner []", "what do.m takes was erased at "},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			s.play(c.words)
			if got := s.beside(); got != c.want {
				t.Errorf("%s\ngives %s\nwant  %s", c.words, got, c.want)
			}
			said := func(p Page) bool { return p.Hook == "mail" && strings.Contains(p.Reason, c.reason) }
			if c.reason != "" && !slices.ContainsFunc(s.state.Pages(), said) {
				t.Errorf("want a page to mail that says %q: %+v", c.reason, s.state.Pages())
			}
			s.wantRefolded()
		})
	}
}

// TestWhatIsShownOfAStagedAct: in its own plan what becomes of it, and in the plan that delivers it
// words of its own. A preview is of the plan that was committed.
func TestWhatIsShownOfAStagedAct(t *testing.T) {
	for _, c := range []struct{ words, of, delivery string }{
		{"open m:staged", "open: m=staged", ""},
		{"open a:probe a? m:staged commit", "committing: a=held m=staged", ""},
		{"open m:staged fail turn", "failed: m=dropped", ""},
		{"open m:staged n:staged commit m=late turn", "committed: m=delivering n=delivering",
			"delivering: n=owed m=dispatched"},
		{"open m:staged n:staged commit m=fail,fail,fail turn", "committed: m=delivering n=delivering",
			"delivering: n=owed m=waiting"},
		{"open m:staged n:staged commit m=stop turn", "committed: m=quarantined n=delivering",
			"quarantined: n=owed m=quarantined"},
		{"open m:staged n:staged commit m=stop turn p~0/accept:m turn", "committed: m=resolved n=delivered",
			"resolved: n=delivered m=resolved"},
		{"open m:staged commit turn", "committed: m=delivered", "delivered: m=delivered"},
		{"open m:staged n:staged commit m=late turn p~0/stop p~0/tell:m#1=done turn",
			"committed: m=delivered n=dropped", "delivered: n=dropped m=delivered"},
		{"open m:staged commit p~0/stop turn", "committed: m=dropped", "failed: m=dropped"},
		{"open q/open^ q/m:staged q/commit n:staged x:staged commit m=stop turn",
			"committed: plan:q=retired n=delivering x=delivering", "quarantined: x=owed n=owed plan:q~0=quarantined"},
	} {
		s := newSchedule(t)
		s.play(c.words)
		if got := s.show("p").State + ": " + s.undos("p"); got != c.of {
			t.Errorf("%s\ngives %s\nwant  %s", c.words, got, c.of)
		}
		if c.delivery == "" {
			continue
		}
		if got := s.show("p~0").State + ": " + s.undos("p~0"); got != c.delivery {
			t.Errorf("%s\ngives %s\nwant  %s", c.words, got, c.delivery)
		}
		s.state.Flush()
		_, why := NewReading(s.kv, "t", s, s.programs).Rehearse("p~0", "", "", s.now, func(Rehearsed) {})
		if why != "plan p~0 delivers plan p: preview that one" {
			t.Errorf("a preview of p~0: %q", why)
		}
	}
}

// TestWhatAsksForADeliveryFindsIt: by its state, which is none of an unwind's, and by what became of
// all that is staged in a tree. Why a plan is delivered leads to the committed one.
func TestWhatAsksForADeliveryFindsIt(t *testing.T) {
	s := newSchedule(t)
	s.play("open m:staged q/open^ q/n:staged q/o:staged q/commit x:staged commit o=late turn")
	reader := func() *view.Reader { return view.NewReaderWith(s.kv, "t", s, s.programs) }
	found := func(state string) (ids []string) {
		answer, err := reader().Find(api.FindQuery{State: state})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range answer.Plans {
			ids = append(ids, p.Plan)
		}
		return ids
	}
	for state, want := range map[string]string{ledger.StateDelivering: "p~0 q~0", ledger.StateUnwinding: "",
		ledger.StateDelivered: "", ledger.StateQuarantined: "", ledger.StateCommitted: "q p"} {
		if got := strings.Join(found(state), " "); got != want {
			t.Errorf("%s are %q, want %q", state, got, want)
		}
	}
	d := reader().Delivery("p")
	if d.Plan != "p~0" || d.State != ledger.StateDelivering || strings.Join(d.Delivered, " ") != "m q/n" ||
		d.Owner != nil || strings.Join(d.Waiting, " ") != "q/o x" || d.Dropped != nil {
		t.Errorf("%+v", d)
	}
	s.play("q~0/tell:o#1=stop turn q~0/accept:o turn")
	if d := reader().Delivery("p"); d.State != ledger.StateResolved || strings.Join(d.Delivered, " ") != "m q/n x" ||
		strings.Join(d.Owner, " ") != "q/o" {
		t.Errorf("%+v", d)
	}
	halted := newSchedule(t)
	halted.play("open x:staged q/open^ q/m:staged q/n:staged q/commit y:staged commit m=stop turn q~0/halt:m turn")
	d = view.NewReaderWith(halted.kv, "t", halted, halted.programs).Delivery("p")
	if d.State != ledger.StateResolved || strings.Join(d.Delivered, " ") != "x y" ||
		strings.Join(d.Owner, " ") != "q/m" || strings.Join(d.Dropped, " ") != "q/n" || d.Waiting != nil {
		t.Errorf("after a halt: %+v", d)
	}
	for plan, want := range map[string]string{"p": "p~0", "p~0": ""} {
		why, err := reader().Why(api.WhyQuery{Plan: plan})
		if err != nil || why.DeliveredAs != want || why.Delivers != (want == "") {
			t.Errorf("why %s: %+v, %v", plan, why, err)
		}
	}
}

// TestAPreviewOfAPlanNamesWhatIsToBeDelivered, of its whole tree, by the names and numbers of the plans
// that the acts were staged in; what is out is not said to be delivered.
func TestAPreviewOfAPlanNamesWhatIsToBeDelivered(t *testing.T) {
	s := newSchedule(t)
	look := func(words string) api.Preview {
		s.play(words)
		s.state.Flush()
		shown, err := view.NewReaderWith(s.kv, "t", s, s.programs).Preview(api.PreviewQuery{Plan: "p"}, s.now)
		if err != nil {
			t.Fatal(err)
		}
		return shown
	}
	named := func(when string, shown api.Preview, want string) {
		t.Helper()
		if got := strings.Join(shown.Deliveries, " "); got != want {
			t.Errorf("%s, %q would be delivered, want %q", when, got, want)
		}
	}
	named("open", look("open m:staged q/open^ q/n:staged q/commit x:staged"), "m q/n x")
	named("while n is out", look("commit n=late turn"), "q/n x")
	named("afterwards", look("q~0/tell:n#1=done turn"), "")

	s = newSchedule(t)
	var said []string
	for _, step := range look("open m:staged n:staged commit m=late turn").Steps {
		said = append(said, fmt.Sprintf("%s/%d %s %s", step.Plan, step.Number, step.Step, step.Reason))
	}
	want := "p/1 quarantine irreversible: do.m is being delivered by plan p~0, and taken for done"
	if len(said) == 0 || said[0] != want {
		t.Errorf("it says %q, want first %q", said, want)
	}
}

// TestAnAnswerWhoseRecordWasLateIsTakenOnce: while the record of a second attempt is on its way, a
// report that the first one is done is stored. Both are done, and neither is told again.
func TestAnAnswerWhoseRecordWasLateIsTakenOnce(t *testing.T) {
	for words, want := range map[string]string{
		"open m:staged commit m=lost,late turn @60s p~0/retry:m turn":  "p~0 owner: m=done m~1=owner []",
		"open m:staged commit m=lost,late turn @60s p~0/newkey:m turn": "p~0 owner: m=done m~1=owner []",
	} {
		s := newSchedule(t)
		s.play(words)
		answers := []Answer{{Plan: "p~0", Number: 1, Purpose: ledger.PurposeUndo, Attempt: 2,
			Reply: &api.Reply{Status: api.StatusDone}}}
		records := s.decide(answers)
		s.play("p~0/tell:m#1=done")
		s.append(holder, records...)
		s.must(s.append(holder, s.decide(answers)...))
		s.play("turn")
		if got := s.beside(); got != want {
			t.Errorf("%s\ngives %s\nwant  %s", words, got, want)
		}
		s.wantRefolded()
	}
}

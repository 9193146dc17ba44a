package executor_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Effects of a plan whose end has begun, or is over.

// undoneOf makes the probe of a schedule see x7, and gives what is to be compared at its end: the
// state of a plan, its undos, and the names under which effects were undone.
func (s *schedule) undoneOf(plan string) func() string {
	s.deciding = true
	sent := s.seen("x7")
	return func() string {
		return string(s.show(plan).State) + " " + s.undos(plan) + "; " + strings.Join(*sent, " ")
	}
}

// TestAnExtraEffectOfACommittedPlanStands, and its owner's page says so.
func TestAnExtraEffectOfACommittedPlanStands(t *testing.T) {
	s := newSchedule(t)
	names := s.names()
	s.play("open q/open^ q/a:probe q/effect:a=x7 q/commit turn q/own:a=x8 turn")
	said := slices.ContainsFunc(s.state.Pages(), func(p Page) bool { return strings.Contains(p.Reason, "is still there") })
	if len(*names) > 0 || !said {
		t.Errorf("undone are %q; pages %+v", *names, s.state.Pages())
	}
	s.play("fail turn")
	if got := strings.Join(*names, " "); got != "x7 x8" {
		t.Errorf("undone with its plan are %q", got)
	}
	s.wantRefolded()
}

// TestAnExtraEffectIsReportedAtAnyTime: what is committed keeps it, and gives it up with what undoes
// it, each effect once and by its name; what is open or was resolved has it undone.
func TestAnExtraEffectIsReportedAtAnyTime(t *testing.T) {
	const (
		one = "open a:probe+for=1h own:a=x1 b:for=1h own:b=x2 commit turn effect:a=,x9 =effect:a=,x9 turn "
		bad = "open a:for=1h own:a=x1 commit turn effect:a=,x9 turn " // nothing names the extra effect
		kid = "open q/open^ q/a:probe q/own:a=x1 q/commit "
		say = "q/effect:a=,x9 turn "
	)
	for _, c := range []struct{ script, plan, want string }{
		{one, "p", "committed a=retired b=retired a~1=retired; "},
		{one + "undo: turn", "p~1", "compensated a=compensated b=compensated a~1=compensated; a~1=x9 b=x2 a=x1"},
		{one + "undo:!a~1 turn", "p~1", "compensated a=skipped b=skipped a~1=compensated; a~1=x9"},
		{one + "effect:a=,x9,x8 turn undo:!a~1 turn", "p~1",
			"compensated a=skipped b=skipped a~1=compensated a~2=skipped; a~1=x9"},
		{one + "undo: turn !effect:a=,x8 p~1/effect:a=,x8 turn", "p~1",
			"compensated a=compensated b=compensated a~1=compensated a~2=compensated; a~1=x9 b=x2 a=x1 a~2=x8"},
		{one + "undo:!a~1 turn !p~1/effect:a=,x8 turn", "p~1",
			"compensated a=skipped b=skipped a~1=compensated; a~1=x9"},
		{bad + "undo: turn", "p~1", "quarantined a=compensated a~1=quarantined; a=x1"},
		{bad + "undo:!a~1 turn", "p~1", "quarantined a=skipped a~1=quarantined; "},
		{"open:accept a:probe+for=1h a? commit turn effect:a=x1,x9 turn undo: turn", "p~1",
			"compensated a=compensated a~1=compensated; a~1=x9 a=x1"},
		{"open:accept a:probe+for=1h a? commit turn effect:a=x1 turn undo: turn", "p~1",
			"compensated a=compensated; a=x1"},
		{"open a:probe own:a=x1 b b? commit turn effect:a=,x9 turn", "p",
			"committing a=held b=quarantined a~1=compensated; a~1=x9"},
		{"open a:probe own:a=x1 b b? commit turn effect:a=,x9 turn resolve:b turn", "p",
			"committed a=retired b=retired a~1=compensated; a~1=x9"},
		{"open a:probe a? commit effect:a=x1,x9 turn", "p",
			"committed a=retired a~1=compensated; a~1=x9"},
		{kid + "turn " + say, "q", "committed a=held a~1=held; "},
		{kid + "turn " + say + "commit turn", "q", "committed a=retired a~1=retired; "},
		{kid + "turn " + say + "fail turn", "q", "compensated a=compensated a~1=compensated; a~1=x9 a=x1"},
		{kid + "b b? commit turn " + say + "resolve:b turn", "q", "committed a=retired a~1=retired; "},
		{kid + "b b? commit turn " + say + "stop turn", "q", "compensated a=compensated a~1=compensated; b= a~1=x9 a=x1"},
		{kid + "commit turn " + say, "q", "committed a=retired a~1=retired; "},
		{"open a:askme+probe a? fail turn resolve:a turn effect:a=x1,x9 turn", "p",
			"quarantined a=resolved a~1=quarantined a~2=compensated; a~2=x9"},
		{"open a:probe own:a=x1 b:askme b? fail turn resolve:b turn effect:a=,x9 turn", "p",
			"resolved a=compensated b=resolved a~1=compensated; a=x1 a~1=x9"},
	} {
		playOne(t, c.script, c.want, func(s *schedule) func() string { return s.undoneOf(c.plan) })
	}
}

// TestAnExtraEffectIsNoPartOfAnotherUndo: a part of a committed plan is undone without the extra effects
// of the rest, and one whose window has closed holds up no undo.
func TestAnExtraEffectIsNoPartOfAnotherUndo(t *testing.T) {
	const (
		short = "open a:probe+for=1m own:a=x1 b<:for=1h own:b=x2 commit turn effect:a=,x9 turn "
		long  = "open a:probe+for=1h own:a=x1 save:s b<:probe+for=1h own:b=x2 commit turn effect:a=,x9 effect:b=,x8 turn "
		kid   = "open q/open^ q/a:probe q/own:a=x1 q/commit b own:b=x2 commit turn "
	)
	for _, c := range []struct{ script, want string }{
		{short + "undo:!b turn", "compensated a=skipped b=compensated a~1=skipped; b=x2"},
		{short + "@2m undo:!b turn", "compensated a=skipped b=compensated a~1=skipped; b=x2"},
		{short + "@2m judge:b=block turn", "compensated a=skipped b=compensated a~1=skipped; b=x2"},
		{short + "!undo:!a~9 undo:!a turn", "compensated a=compensated b=skipped a~1=compensated; a~1=x9 a=x1"},
		{long + "undo:!b~1 turn", "compensated a=skipped b=skipped a~1=skipped b~1=compensated; b~1=x8"},
		{long + "undo:!a~1 turn", "compensated a=skipped b=skipped a~1=compensated b~1=skipped; a~1=x9"},
		{long + "undo:s turn", "compensated a=skipped b=compensated a~1=skipped b~1=compensated; b~1=x8 b=x2"},
		{long + "undo: turn", "compensated a=compensated b=compensated a~1=compensated b~1=compensated; " +
			"b~1=x8 a~1=x9 b=x2 a=x1"},
		{"open a:probe+for=1m own:a=x1 b<:held+for=1h own:b=x2 commit turn effect:a=,x9 turn @2m fact:b=1 turn",
			"compensated a=skipped b=compensated a~1=skipped; b=x2"},
		{"open save:s a:probe+for=1m own:a=x1 back:s turn b:for=1h own:b=x2 commit turn effect:a=,x9 turn @2m undo: turn",
			"quarantined a=compensated b=compensated a~1=quarantined; a=x1 b=x2"},
		{"open q/open^ q/a:probe q/own:a=x1 q/fail turn b own:b=x2 commit turn undo:!b turn q/effect:a=,x9 turn",
			"compensated plan:q=compensated b=compensated; a=x1 b=x2 a~1=x9"},
		{kid + "undo:!b turn !q/effect:a=,x9", "compensated plan:q=skipped b=compensated; b=x2"},
	} {
		playOne(t, c.script, c.want, func(s *schedule) func() string { return s.undoneOf("p~1") })
	}
}

// TestWhatUndoesACommittedPlanHasItsExtraEffectsToo: they are no news of the committed one, whose owner
// is not paged about them once more.
func TestWhatUndoesACommittedPlanHasItsExtraEffectsToo(t *testing.T) {
	s := newSchedule(t)
	s.deciding = true
	sent := s.seen("x7")
	s.play("open a:probe+for=1h effect:a=x1 commit turn undo: own:a=x2 turn")
	if got := strings.Join(*sent, " "); got != "a~1=x1 a=x2" || len(s.state.Pages()) > 0 {
		t.Errorf("undone are %s; pages %+v", got, s.state.Pages())
	}
	at := s.actionOf("p", "a~1").Fixed.Registered
	paged := &pb.Record{Plan: "p", Action: "a~1", Term: s.state.Meta().Term, About: at, Cause: at,
		Kind: &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Kind: api.PageQuarantined}}}
	for _, r := range s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, paged) {
		if r.Verdict != Void {
			t.Errorf("a page about it: %+v", r)
		}
	}
	s.wantRefolded()
}

// TestTheOwnerOfACommittedPlanHearsOfAnExtraEffect, and whether the plan can still be undone.
func TestTheOwnerOfACommittedPlanHearsOfAnExtraEffect(t *testing.T) {
	for script, want := range map[string]string{
		"open a:probe+for=1h own:a=x1 commit turn effect:a=,x9":     "is undone with it if that is",
		"open a:probe+for=1h own:a=x1 commit turn @2h effect:a=,x9": "it is its owner's then: its undo window closed at",
		"open a own:a=x1 commit turn effect:a=,x9":                  "it is its owner's then: there is an extra effect x9",
		"open a:irr own:a=x1 commit turn effect:a=,x9":              "it is its owner's then: irreversible: do.a has no",
		"open a:probe own:a=x1 commit turn effect:a=,x9":            "its plan is committed",
	} {
		s := newSchedule(t)
		s.play(script)
		pages := s.state.Pages()
		if len(pages) != 1 || pages[0].Action != "a~1" || !strings.Contains(pages[0].Reason, want) {
			t.Errorf("%s: %+v, want %q", script, pages, want)
		}
		s.wantRefolded()
	}
}

// TestUnderEarlierHoldersACommittedPlanTakesNoReport, and one that was resolved no extra effect.
func TestUnderEarlierHoldersACommittedPlanTakesNoReport(t *testing.T) {
	for script, reason := range map[string]string{
		"open a own:a=x1 commit turn":              "is committed: nothing of it is owed",
		"open:accept a:for=1h a? commit turn @2h":  "is committed: nothing of it is owed",
		"open a b b? commit turn own:a=x1":         "is committing, and neither open nor undone",
		"open a:askme a? fail turn resolve:a turn": "is resolved, and neither open nor undone",
	} {
		s := newSchedule(t)
		s.underHolder(ledger.AnytimeSince - 1)
		s.play(script)
		if r := s.effect("ops", "a", "", "x9"); r.Verdict != Refused || !strings.Contains(r.Reason, reason) {
			t.Errorf("%s: %+v, want %q", script, r, reason)
		}
		s.wantRefolded()
	}
}

// TestUnderEarlierHoldersAKeptExtraEffectNeedsNoName: it is folded as it was decided, and the undo of a
// part does not reach it.
func TestUnderEarlierHoldersAKeptExtraEffectNeedsNoName(t *testing.T) {
	const kept = "open a:for=1h effect:a=x1 b:for=1h own:b=x2 commit turn own:a=x9 turn "
	for _, c := range []struct {
		since      uint32
		undo, want string
	}{
		{ledger.AnytimeSince - 1, "undo: turn", "compensated a=compensated b=compensated a~1=compensated; a~1=x1 b=x2 a=x9"},
		{ledger.AnytimeSince, "undo: turn", "quarantined a=compensated b=compensated a~1=quarantined; b=x2 a=x9"},
		{ledger.AnytimeSince - 1, "undo:!b turn", "compensated a=skipped b=compensated a~1=skipped; b=x2"},
		{ledger.AnytimeSince, "undo:!b turn", "compensated a=skipped b=compensated a~1=skipped; b=x2"},
	} {
		playOne(t, kept+c.undo, c.want, func(s *schedule) func() string {
			s.underHolder(c.since)
			return s.undoneOf("p~1")
		})
	}
}

package executor_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestOfManyThatTurnAtOnceThoseOfTheFirstActionsAreKept: a plan has room for so many, and fold and
// audit keep the same, whether a condition reads the fact by its key, by one or more of its
// prefixes, or is one with that of other actions.
func TestOfManyThatTurnAtOnceThoseOfTheFirstActionsAreKept(t *testing.T) {
	for name, text := range map[string]func(i int) string{
		"key": func(i int) string { return fmt.Sprintf(`"job/aa" in facts && action.id == "a%02d"`, i) },
		"a longer prefix first": func(i int) string {
			return fmt.Sprintf(`facts.exists(%q) && action.id == "a%02d"`, "job/a"[:5-i/10], i)
		},
		"key or prefix": func(i int) string {
			if i%2 == 0 {
				return fmt.Sprintf(`facts.exists("job/") && action.id == "a%02d"`, i)
			}
			return fmt.Sprintf(`"job/aa" in facts && action.id == "a%02d"`, i)
		},
		"two prefixes": func(i int) string {
			return fmt.Sprintf(`facts.exists("job/") && facts.exists("job/a") && action.id == "a%02d"`, i)
		},
		"shared": func(i int) string { return fmt.Sprintf(`"job/aa" in facts && %[1]d == %[1]d`, 100+i%3) },
		"shared, by prefix": func(i int) string {
			return fmt.Sprintf(`facts.exists("job/") && %[1]d == %[1]d`, 100+i%3)
		},
		"shared or not": func(i int) string {
			if i%3 == 0 {
				return `"job/aa" in facts`
			}
			return fmt.Sprintf(`"job/aa" in facts && action.id == "a%02d"`, i)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSchedule(t)
			s.play("open")
			const actions, kept = 20, 17
			for i := range actions {
				id := fmt.Sprintf("a%02d", i)
				s.must(s.agent("p", pair(id, func(f *pb.ForwardRegistered, k *pb.CompensationRegistered) {
					f.Branch = true
					trigger := when("x", text(i))
					trigger.Scope = pb.Scope_SCOPE_ACTION
					k.Triggers = []*pb.Trigger{trigger}
				})...))
				s.play(id + "+")
			}
			s.must(s.append(sensor, asserted("job/aa", `1`)))
			s.must(s.append(sensor, forgotten("job/aa")))
			for range 3 * kept {
				s.turn()
			}
			for i := range actions {
				want := map[bool]string{true: "compensated", false: "held"}[i < kept]
				if a := s.show("p").Actions[i]; a.Undo != want {
					t.Errorf("%s is %s, want %s", a.Action, a.Undo, want)
				}
			}
			s.wantRefolded()
		})
	}
}

// TestAVerdictOnThePlanCountsBesideAPart: it undoes the plan also where its action is undone already,
// or is being undone, with a part of it; one on the action has nothing to add.
func TestAVerdictOnThePlanCountsBesideAPart(t *testing.T) {
	const kept = "q/open^ q/c q/c+ q/d q/d+ q/commit "
	for line, want := range map[string]string{
		"undo:!a turn judge:a=block*":                                          ledger.StateCompensated,
		"undo:!a turn judge:a=block* judge:a=allow":                            ledger.StateCompensated,
		"c c- undo:!c turn judge:c=block*":                                     ledger.StateOpen,
		"c:probe c? c.probe=absent undo:!c turn judge:c=block*":                ledger.StateOpen,
		"c c- a=late undo:!a turn judge:c=block* tell:a#1=done":                ledger.StateOpen,
		"q/open^ q/c q/c+ q/d q/d+ q/undo:!d turn q/judge:d=block*":            ledger.StateOpen,
		"q/open^ q/c q/c+ q/d q/d+ q/undo:!d turn q/commit:1 q/judge:d=block*": ledger.StateCompensated,
		"q/open^ q/c q/c+ q/d q/d+ q/undo:!d turn q/commit:1 q/judge:d=block":  ledger.StateOpen,
		"undo:!a turn judge:a=block":                                           ledger.StateOpen,
		"undo:!a turn commit:1 judge:a=block":                                  ledger.StateCommitted,
		"undo:!a turn commit:1 judge:a=block*":                                 ledger.StateCompensated,
		"a=late undo:!a turn judge:a=block* tell:a#1=done":                     ledger.StateCompensated,
		"a=late undo:!a turn judge:a=block tell:a#1=done":                      ledger.StateOpen,
		"a=late undo:!a turn judge:a=block* judge:a=allow tell:a#1=done":       ledger.StateCompensated,
		"a=late undo:!a turn judge:b=block* tell:a#1=done":                     ledger.StateCompensated,
		"a=late undo:!a turn undo judge:a=block* tell:a#1=done":                ledger.StateCompensated,
		"a=late undo:!a turn judge:a=block* !undo tell:a#1=done":               ledger.StateCompensated,
		"a=late judge:a=block undo:!a turn judge:a=block* tell:a#1=done":       ledger.StateCompensated,
		"a=late judge:a=block undo:!a turn tell:a#1=done":                      ledger.StateOpen,
		"a=stop undo:!a turn judge:a=block* resolve:a":                         ledger.StateResolved,
		"save:s c c+ c=late undo:s turn judge:c=block* tell:c#1=done":          ledger.StateCompensated,
		"save:s c c+ c=late undo:s turn judge:c=block tell:c#1=done":           ledger.StateOpen,

		// In a child that was committed, and went with a part of its parent.
		kept + "undo:!plan:q turn q/judge:d=block*":                                       ledger.StateCompensated,
		kept + "undo:!plan:q turn q/judge:d=block* q/judge:d=allow":                       ledger.StateCompensated,
		kept + "undo:!plan:q turn q/judge:d=block":                                        ledger.StateOpen,
		kept + "d=late undo:!plan:q turn q/judge:d=block* q/tell:d#1=done":                ledger.StateCompensated,
		kept + "d=late undo:!plan:q turn q/judge:c=block* q/tell:d#1=done":                ledger.StateCompensated,
		kept + "d=late undo:!plan:q turn q/judge:d=block q/tell:d#1=done":                 ledger.StateOpen,
		kept + "undo:!plan:q turn commit:1 turn q/judge:d=block*":                         ledger.StateCompensated,
		kept + "undo:!plan:q turn commit:1 turn q/judge:d=block":                          ledger.StateCommitted,
		kept + "undo:!plan:q turn fail turn q/judge:d=block*":                             ledger.StateCompensated,
		"q/open^ q/d q/d+ q/fail turn q/judge:d=block*":                                   ledger.StateOpen,
		"q/open^ q/d q/d+ q/e q/e- q/commit undo:!plan:q turn q/judge:e=block*":           ledger.StateOpen,
		"q/open^ q/d q/d+ q/commit undo:!plan:q turn x x? commit:1 turn q/judge:d=block*": ledger.StateCompensated,
	} {
		t.Run(line, func(t *testing.T) {
			s := newSchedule(t)
			s.play("open b b+ a a+ " + line + " turn turn")
			last := cmp.Or(s.show("p").UndoneAs, "p")
			if got := s.show(last); got.State != want {
				t.Errorf("%s (%s), want %s: %s", got.State, got.Reason, want, s.undos(last))
			}
			s.wantRefolded()
		})
	}
}

// TestAVerdictOnWhatWasUndoneHasNoTurnLeft, under a holder that did not have it count beside a part:
// its turn is over with the part, though a later verdict asked for the plan and was taken back.
func TestAVerdictOnWhatWasUndoneHasNoTurnLeft(t *testing.T) {
	s := newSchedule(t)
	s.underHolder(ledger.BesidePartSince - 1)
	s.play("open a a+ a=late judge:a=block undo:!a turn judge:a=block* judge:a=allow tell:a#1=done turn turn")
	s.wantState("p", ledger.StateOpen, "a=compensated")
	s.wantRefolded()
}

// TestBesideAPartEarlierHoldersHeardNoVerdict: under them one on the plan, on what was undone, did
// nothing, in an open plan as after its commit; and later ones did not hear it in a committed child.
func TestBesideAPartEarlierHoldersHeardNoVerdict(t *testing.T) {
	const kept = "q/open^ q/c q/c+ q/commit "
	for _, c := range []struct {
		before     uint32
		line, want string
	}{
		{ledger.BesidePartSince, "undo:!a turn judge:a=block* turn", ledger.StateOpen},
		{ledger.BesidePartSince, "a=late undo:!a turn judge:a=block* tell:a#1=done turn", ledger.StateOpen},
		{ledger.BesidePartSince, "undo:!a turn commit:1 judge:a=block* turn", ledger.StateCommitted},
		{ledger.WholeSince, kept + "undo:!plan:q turn q/judge:c=block* turn", ledger.StateOpen},
		{ledger.WholeSince, kept + "c=late undo:!plan:q turn q/judge:c=block* q/tell:c#1=done turn", ledger.StateOpen},
		{ledger.WholeSince, kept + "undo:!plan:q turn commit:1 turn q/judge:c=block* turn", ledger.StateCommitted},
	} {
		s := newSchedule(t)
		s.underHolder(c.before - 1)
		s.play("open b b+ a a+ " + c.line)
		if got := s.show("p"); got.State != c.want || got.UndoneAs != "" {
			t.Errorf("%s: %s, %s", c.line, got.State, s.undos("p"))
		}
		s.wantRefolded()
	}
}

// TestAnEndMayNotHaveSeenAVerdict: its holder has decided it before a verdict on the whole plan came,
// and names what it knew to be owed. One that is about the same action changes nothing of that.
func TestAnEndMayNotHaveSeenAVerdict(t *testing.T) {
	for _, c := range []struct{ word, says, want string }{
		{"judge:b=block*", "[b]", "quarantined: a=owed b=quarantined [x]"},
		{"judge:b=block*", "[a b]", "quarantined: a=owed b=quarantined [x]"},
		{"judge:b=block", "[b]", "quarantined: a=held b=quarantined [x]"},
		{"judge:b=block", "[a b]", "I23.outstanding"},
		{"judge:b=allow*", "[a b]", "I23.outstanding"},
		{"!judge:z=block*", "[a b]", "I23.outstanding"},
	} {
		s := newSchedule(t)
		s.play("open a a+ b:approve b+ q/open q/x q/x+ q/fail turn judge:b=block") // it has read all of that
		decided := s.decide(nil)
		end := decided[len(decided)-1].GetPlanEnded()
		if end == nil || fmt.Sprint(end.Outstanding) != "[b]" {
			t.Fatalf("decided were %v", decided)
		}
		s.play(c.word)
		end.Outstanding = strings.Fields(strings.Trim(c.says, "[]"))
		s.audit = nil // it is asked below
		s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, decided...)
		got, judge := s.outcome(), audit.New("t")
		for _, m := range s.log {
			if found := judge.Add(m); len(found) > 0 {
				got = found[0].Clause
			}
		}
		if got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.word, c.says, got, c.want)
		}
	}
}

package executor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
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
	} {
		t.Run(line, func(t *testing.T) {
			s := newSchedule(t)
			s.play("open b b+ a a+ " + line + " turn turn")
			last := "p"
			if strings.Contains(line, " commit:1") && want != ledger.StateCommitted {
				last = "p~1"
			}
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
// nothing, in an open plan as after its commit.
func TestBesideAPartEarlierHoldersHeardNoVerdict(t *testing.T) {
	for line, want := range map[string]string{
		"undo:!a turn judge:a=block* turn":                      ledger.StateOpen,
		"a=late undo:!a turn judge:a=block* tell:a#1=done turn": ledger.StateOpen,
		"undo:!a turn commit:1 judge:a=block* turn":             ledger.StateCommitted,
	} {
		s := newSchedule(t)
		s.underHolder(ledger.BesidePartSince - 1)
		s.play("open b b+ a a+ " + line)
		if got := s.show("p"); got.State != want || got.UndoneAs != "" {
			t.Errorf("%s: %s, %s", line, got.State, s.undos("p"))
		}
		s.wantRefolded()
	}
}

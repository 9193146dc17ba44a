package executor_test

import (
	"fmt"
	"testing"

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

package executor_test

import (
	"testing"
)

func TestZYDetached(t *testing.T) {
	const pre = "open a:held*+for=1h a+ q/open^a q/x q/x+ r/open^q.x r/b:held+for=1h r/b+ q/y q/y+ q/fail y=stop turn q/halt:y turn z z+ "
	const pre2 = "open b b+ a:held*+for=1h a+ q/open^a q/x q/x+ r/open^q.x r/b:held+for=1h r/b+ q/y q/y+ q/fail y=stop turn q/halt:y turn z z+ "
	for _, play := range []string{
		pre + "commit turn fact:a=1 turn",                              // r is open: p waits
		pre + "commit turn fact:a=1 turn r/commit turn turn @1m turn",  // r ends
		pre + "commit turn fact:a=1 turn r/commit turn turn fact:k=1 turn z+ turn",
		pre + "commit turn undo:!z turn",                                // refused?
		pre + "r/commit commit turn fact:b=1 turn",                     // r's condition
		pre2 + "r/commit commit turn fact:b=1 turn",                     // same name in p
		pre + "r/commit commit turn fact:a=1 turn fact:b=1 turn",       // p undone, then r's condition
		pre + "r/commit commit turn fact:b=1 undo:!z turn",             // operator undoes z only
	} {
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Logf("PANIC %v\n   %s", r, play)
				}
			}()
			t.Run("x", func(t *testing.T) {
				s := newSchedule(t)
				s.play(play)
				for _, id := range []string{"p", "q", "r", "p~1", "r~1"} {
					if s.planOf(id) != nil {
						t.Logf("%s %s held %d reason %q; work %v", id, s.show(id).State, s.show(id).HeldConditions, s.show(id).Reason, s.state.HasWork())
					}
				}
				t.Logf("%s\n   conditions %d %s", play, s.state.Meta().Conditions, s.outcome())
			})
		}()
	}
}

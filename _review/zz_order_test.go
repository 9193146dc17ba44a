package executor_test

import "testing"

func TestZZOrder(t *testing.T) {
	for _, play := range []string{
		"open a a+ b:held*+for=1h b+ c c+ commit turn fact:b=1 judge:c=block turn",
		"open a a+ b:held*+for=1h b+ c c+ commit turn judge:c=block fact:b=1 turn",
		"open a a+ b:held*+for=1h b+ c c+ commit turn fact:b=1 undo:!c turn",
		"open a a+ b:held*+for=1h b+ c c+ commit turn fact:b=1 turn",
		"open a a+ b:held*+for=1h b+ c:held+for=1h c+ commit turn fact:b=1 fact:c=1 turn",

		"open a a+ q/open^a q/c q/c- q/fail turn b:held*+for=1m b+ commit turn q/c+ judge:b=allow fact:b=1 turn",
		"open a a+ q/open^a q/c q/c- q/fail turn b:held*+for=1m b+ commit turn fact:b=1 q/c+ turn",
		"open a a+ q/open^a q/c q/c- q/fail turn b:timer=30s+for=1m b+ commit turn q/c+ c~1=fail turn @31s turn @61s turn fact:z=1 turn",
		"open a a+ b:held+for=1h b+ c c+ commit turn erase:force turn fact:b=1 turn",
		"open a a+ b:held+for=1h b+ c:held+for=2m c+ commit turn @3m fact:b=1 turn",
		"open a:held*+for=1h a+ d d+ q/open^d q/b:held+for=1h q/b+ q/commit commit turn fact:a=1 fact:b=1 turn",
		"open a:held*+for=1h a+ d d+ e/open^d e/b:held+for=1h e/b+ e/commit commit turn fact:a=1 fact:b=1 turn",
		"open a:held*+for=1h a+ d d+ e/open^d e/b:held+for=1h e/b+ e/commit commit turn fact:b=1 fact:a=1 turn",
		"open a:held*+for=1h a+ d d+ q/open^d q/b:held+for=1h q/b+ q/commit commit turn fact:b=1 fact:a=1 turn",
		// agent's late completion duty on committed plan
		"open:accept a:held*+for=1h a+ b? commit turn b+ turn fact:a=1 turn",
	} {
		func() {
			s := newSchedule(t)
			defer func() {
				if r := recover(); r != nil {
					t.Log(play, r)
				}
			}()
			s.play(play)
			p1 := ""
			if s.planOf("p~1") != nil {
				p1 = s.show("p~1").State + ": " + s.undos("p~1")
			}
			t.Logf("%s\n  %s | %s cond=%d work=%v", play, s.outcome(), p1, s.state.Meta().Conditions, s.state.HasWork())
			s.wantRefolded()
		}()
	}
}

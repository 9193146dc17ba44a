package executor_test

import "testing"

func TestZZSpin(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a q/c q/c- q/fail turn b:timer=30s+for=1m b+ commit turn q/c+ c~1=stop turn @31s turn @61s turn fact:z=1 turn @2m turn @3m turn @10m turn")
	q := s.show("q")
	t.Log(s.outcome(), q.State, s.undos("q"), s.state.Meta().Conditions, s.planOf("p").Row.HeldOn, s.planOf("p").Row.EndsNs, s.planOf("p").Row.Turned)
	for range 5 {
		ns, ok := s.state.NextWake()
		t.Log((ns-s.now)/1e6, ok)
		s.now = ns
		s.turn()
	}
	s.play("q/resolve:c~1 turn @30m turn")
	t.Log(s.outcome(), s.show("q").State, s.state.Meta().Conditions)
}

package executor_test

import (
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func cutWorld(t *testing.T, open string) *schedule {
	s := newSchedule(t)
	s.limits = CascadeLimits{Depth: 1}
	answer := s.worker
	s.worker = func(c Command) *api.Reply {
		if c.Plan == "q" {
			s.must(s.made("q", c.Action, "b", "1"))
		}
		return answer(c)
	}
	s.play(open)
	return s
}

func TestZZCut(t *testing.T) {
	for _, c := range []struct{ name, open, rest, end string }{
		{"cut in window, answered in window", "open a a+ b:held+for=1m b+ c c+ commit turn q/open q/x:own q/x+ turn", "fact:x=1 turn", ""},
		{"cut in window, window ends", "open a a+ b:held+for=1m b+ c c+ commit turn q/open q/x:own q/x+ turn", "fact:x=1 turn", "@61s fact:z=1 turn"},
		{"cut in window, an other ends first", "open a a+ b:held+for=1h b+ c:timer=5h+for=1m c+ commit turn q/open q/x:own q/x+ turn", "fact:x=1 turn", "@61s fact:z=1 turn"},
	} {
		s := cutWorld(t, c.open)
		s.play(c.rest)
		p := s.planOf("p").Row
		t.Logf("%s: phase %v cuts %v held %d ends %d pages %v", c.name, p.Phase, s.cut(), p.HeldOn, p.EndsNs, len(s.state.Unpaged()))
		if c.end != "" {
			s.play(c.end)
			p := s.planOf("p").Row
			t.Logf("   after the end: cuts %v held %d ends %d pages %v cond=%d", s.cut(), p.HeldOn, p.EndsNs, len(s.state.Unpaged()), s.state.Meta().Conditions)
		}
		for _, r := range s.owner("ann", "p", true) {
			t.Logf("   answer: %v %s", r.Verdict, r.Reason)
		}
		s.play("turn")
		t.Logf("   %s", s.outcome())
		s.wantRefolded()
	}
}

// turned in its window, its holder is late and cuts it after the window
func TestZZCutLate(t *testing.T) {
	for _, b := range []string{"for=1m", "for=1m+timer=5h"} {
		s := newSchedule(t)
		s.limits = CascadeLimits{Depth: 1}
		answer := s.worker
		s.worker = func(c Command) *api.Reply {
			if c.Plan == "q" {
				s.must(s.made("q", c.Action, "b", "1"))
				s.now += 62e9
			}
			return answer(c)
		}
		open := "open a a+ b:held+" + b + " b+ c c+ commit turn"
		if b != "for=1m" {
			open = "open a a+ b:held+for=1m b+ c:timer=5h+for=2m c+ commit turn"
		}
		s.play(open + " q/open q/x:own q/x+ turn fact:x=1 turn")
		p := s.planOf("p").Row
		t.Logf("cuts %v held %d ends %d pages %d cond %d", s.cut(), p.HeldOn, p.EndsNs, len(s.state.Unpaged()), s.state.Meta().Conditions)
		s.play("@10m fact:z=1 turn")
		p = s.planOf("p").Row
		t.Logf("cuts %v held %d ends %d pages %d cond %d", s.cut(), p.HeldOn, p.EndsNs, len(s.state.Unpaged()), s.state.Meta().Conditions)
		for _, r := range s.owner("ann", "p", true) {
			t.Logf("   answer: %v %s", r.Verdict, r.Reason)
		}
		s.play("turn")
		t.Logf("   %s", s.outcome())
		s.wantRefolded()
	}
}

func TestZZOpenFailed(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b:held+for=1m b- c c+ fact:b=1 turn")
	t.Log(s.outcome())
}

package executor_test

import (
	"strings"
	"testing"
	"time"
)

func tryPlay(t *testing.T, s *schedule, play string) (out string) {
	s.play(play)
	return s.outcome()
}

func TestZZ(t *testing.T) {
	for _, c := range []struct{ name, play string }{
		{"doubt: probe present, for", "open b:probe+held+for=1h b? b.probe=present commit turn @1m turn fact:b=1 turn"},
		{"doubt: accepted by owner", "open b:held+for=1h b? commit turn @1m turn accept:b turn fact:b=1 turn"},
		{"doubt: accept plan, for", "open:accept b:held+for=1h b? commit turn fact:b=1 turn"},
		{"doubt: accept plan, until", "open:accept b:held+until=1h b? commit turn fact:b=1 turn"},
		{"doubt: accept plan, late completion", "open:accept b:held+for=1h b? commit turn b+ turn fact:b=1 turn"},
		{"unknown outcome, accept", "open:accept b:held+for=1h commit turn b+ turn fact:b=1 turn"},
		{"doubt: accept plan, effect reported after", "open:accept b:held+for=1h b? commit turn effect:b=r1 turn fact:b=1 turn"},
		{"failed after the commit, until", "open:accept a a+ b:held+until=1h b? c c+ commit turn b- fact:b=1 turn"},
		{"plan cond beside doubt", "open:accept a:for=1h a+ b:held*+for=1h b? c:for=1m c+ commit turn fact:b=1 turn"},
		{"eff", "open a a+ b:held+for=1m+eff b+ c c+ commit turn fact:b=1 turn"},
		{"irr", "open a a+ b:held+for=1m+irr b+ c c+ commit turn fact:b=1 turn"},
	} {
		func() {
			s := newSchedule(t)
			defer func() { recover() }()
			out := tryPlay(t, s, c.play)
			t.Logf("%-45s %s\n   %s  held=%d cond=%d", c.name, c.play, out, s.show("p").HeldConditions, s.state.Meta().Conditions)
		}()
	}
	_ = strings.Cut
	_ = time.Second
}

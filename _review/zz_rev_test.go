package executor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestZZLate65(t *testing.T) {
	s := newSchedule(t)
	for i := range 70 {
		id := fmt.Sprintf("p%02d", i)
		s.play(id + "/open")
		s.plan = id
		s.agent(id, pair("b", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.ValidUntilNs = epoch0 + int64(time.Hour)
			c.Triggers = append(c.Triggers, &pb.Trigger{Name: "x", AfterCommit: true,
				Condition: `elapsed(action.at, duration("1m")) && facts["k"] == 1`})
		})...)
		s.play(strings.ReplaceAll("P/b+ P/commit", "P", id))
	}
	s.play("turn")
	s.now = epoch0 + int64(time.Hour) + int64(time.Minute)
	s.play("fact:k=1 turn turn fact:z=1 turn turn")
	for i := range 70 {
		id := fmt.Sprintf("p%02d", i)
		if u := s.planOf(id + "~1"); u != nil {
			t.Logf("%s is undone as %s", id, s.show(id+"~1").State+" "+s.show(id+"~1").Reason)
		}
	}
}

func TestZZDetached(t *testing.T) {
	for _, play := range []string{
		// r is a child of q, which its owner resolves
		"open a:held*+for=1h a+ q/open^a q/x q/x+ r/open^q.x r/b:held+for=1h r/b+ q/y q/y+ q/fail y=stop turn q/halt:y turn",
		"open a:held*+for=1h a+ b b+ q/open^a q/x q/x+ r/open^q.x r/b:held+for=1h r/b+ q/y:own q/y+<x y=stop q/fail turn q/halt:y turn",
	} {
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Logf("PANIC %v", r)
				}
			}()
			s := newSchedule(t)
			s.play(play)
			for _, id := range []string{"p", "q", "r"} {
				t.Logf("%s %s", id, s.show(id).State)
			}
		}()
	}
}

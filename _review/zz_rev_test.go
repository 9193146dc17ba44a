package executor_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

var _ = pb.Presence_PRESENCE_ABSENT

// two: a provider that has the effects in here; probe says what is there.
func two(s *schedule, here ...string) (by map[string]int, left func() []string) {
	by = map[string]int{}
	s.worker = func(c Command) *api.Reply {
		ref := c.ExternalRef
		if ref == "" && len(here) > 0 {
			ref = here[0]
		}
		found := slices.Contains(here, ref)
		if c.Purpose == "undo" || c.Purpose == "compensate" {
			by[ref]++
			here = slices.DeleteFunc(here, func(x string) bool { return x == ref })
			return &api.Reply{Status: api.StatusDone}
		}
		out := map[string]any{"presence": "absent"}
		switch {
		case c.ExternalRef == "" && len(here) > 1:
			out = map[string]any{"presence": "duplicate", "external_ref": here}
		case found:
			out = map[string]any{"presence": "present", "external_ref": ref}
		}
		b, _ := json.Marshal(out)
		return &api.Reply{Status: api.StatusDone, Output: b}
	}
	return by, func() []string { return here }
}

func TestZZRename(t *testing.T) {
	for _, line := range []string{
		"open a:probe a? turn @10m turn effect:a=x8 fail turn @3h turn",
		"open a:probe a? turn @10m turn effect:a=x8 own:a=x7 fail turn @3h turn",
		"open a:probe a? turn @10m turn effect:a=x8 commit turn @3h turn",
		"open a:probe a? turn @10m turn effect:a=x7 fail turn @3h turn",
	} {
		s := newSchedule(t)
		by, left := two(s, "x7", "x8")
		s.play(line)
		t.Logf("%s\n   %s undone %v left %v", line, s.outcome(), by, left())
		s.wantRefolded()
	}
}

func TestZZNameless(t *testing.T) {
	s := newSchedule(t)
	by, left := two(s, "x7")
	s.play("open a:probe effect:a= ")
	for _, n := range []string{"x7", ",x7", "x7,x8", "x8,x7"} {
		l := strings.Split(n, ",")
		t.Logf("%s: %+v", n, s.effect("ops", "a", l[0], l[1:]...))
	}
	s.play("fail turn @3h turn")
	t.Logf("%s %v %v %+v", s.outcome(), by, left(), s.show("p").Actions[0].Note)
}

func TestZZOutputSwallowed(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	s.must(s.agent("p", pair("a", func(_ *pb.ForwardRegistered, k *pb.CompensationRegistered) {
		k.Bindings = []*pb.Binding{{Name: "of", Expression: `output.id`}}
	})...))
	s.play("effect:a=")
	r := &pb.Record{Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{Reason: "seen", Actor: "ops"}},
		Payload: &pb.Payload{Output: []byte(`{"id":"x7"}`)}}
	t.Logf("with output: %+v", s.by("ops", "a", r)[0])
	s.play("fail turn @3h turn")
	t.Logf("%s: %+v", s.outcome(), s.show("p").Actions[0].Note)
}

// own word with the output, while the duty for it is not sent yet
func TestZZOwnWordOfDuty(t *testing.T) {
	for _, reported := range []string{"", "x7"} {
		for _, told := range []bool{false, true} {
			s := newSchedule(t)
			s.worker = func(c Command) *api.Reply {
				t.Logf("   %s %s %s ref %q %s", c.Purpose, c.Action, c.Arguments, c.ExternalRef, c.Key)
				if c.Action == "z" {
					return nil
				}
				return &api.Reply{Status: api.StatusDone}
			}
			s.play("open:1")
			s.must(s.agent("p", pair("a", func(f *pb.ForwardRegistered, k *pb.CompensationRegistered) {
				k.Bindings = []*pb.Binding{{Name: "of", Expression: `output.id`}}
			})...))
			s.play("a- fail turn")
			t.Logf("%v %q before: %s", told, reported, s.outcome())
			if told {
				s.play("effect:a=" )
			}
			own := completed("a")
			own.Payload, own.GetForwardCompleted().ExternalRef = &pb.Payload{Output: []byte(`{"id":"x7"}`)}, "x7"
			t.Logf("own %+v", s.agent("p", own))
			s.play("turn @3h turn")
			t.Logf("%s", s.outcome())
			for _, a := range s.show("p").Actions {
				t.Logf("   %s %s", a.Action, a.Note)
			}
		}
	}
}

// the duty for a doubt has undone x9; a is reported as x7
func TestZZDoubtDuty(t *testing.T) {
	for _, ref := range []string{"x8", "x7", "x8,x7"} {
		s := newSchedule(t)
		by, left := two(s, "x7", "x8")
		by["x7"] = 0
		s.play("open a:probe+blind fail turn @2m turn")
		t.Logf("blind: %s %v %v", s.outcome(), by, left())
		if s.show("p").State != "compensated" {
			t.Log("not ended")
		}
		r := s.word("a?")
		t.Logf("a? %+v", r)
		s.play("turn @3h turn")
		t.Logf("doubt: %s %v %v", s.outcome(), by, left())
		l := strings.Split(ref, ",")
		t.Logf("%s %+v", ref, s.effect("ops", "a", l[0], l[1:]...))
		s.play("turn @5h turn")
		t.Logf("end: %s %v %v", s.outcome(), by, left())
	}
}

// the executor keeps a.row.Duplicates after the agent's word; the audit does not
func TestZZStaleDuplicates(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:probe b a? b? a.probe=duplicate commit turn own:a=x7")
	t.Log(s.outcome())
	t.Logf("%+v", s.effect("ops", "a", "", []string{}...))
	t.Logf("%+v", s.effect("ops", "a", "x7", []string{}...))
	s.wantRefolded()
}

func TestZZChildCommitted(t *testing.T) {
	for _, line := range []string{
		"open q/open^ q/a:probe q/effect:a=x7 q/commit turn q/own:a=x8 turn commit turn @3h turn",
		"open q/open^ q/a:probe q/effect:a=x7 q/commit turn q/own:a=x8 turn fail turn @3h turn",
	} {
		s := newSchedule(t)
		by, left := two(s, "x7", "x8")
		s.play(line)
		t.Logf("%s\n  %s / %s  %v left %v", line, s.outcome(), s.undos("q"), by, left())
		s.wantRefolded()
	}
}

func TestZZSecondOrder(t *testing.T) {
	s := newSchedule(t)
	s.play("open:second a:probe a+ effect:a=,x8,x9 effect:a@ana=,x9,x8 turn")
	t.Log(s.outcome())
}

func TestZZRepeatOwn(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:probe turn effect:a=x7 fail turn own:a=x8 turn")
	t.Logf("%+v", s.word("own:a=x8"))
	t.Logf("%+v", s.word("own:a=x9"))
	s = newSchedule(t)
	s.play("open a:probe turn effect:a=x7,x8 turn")
	t.Logf("owed own: %+v", s.word("own:a=x8"))
	t.Logf("then: %+v", s.word("own:a=x9"))
	s.play("fail turn")
	t.Log(s.outcome())
}

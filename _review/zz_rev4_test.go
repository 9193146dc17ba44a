package executor_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestMM(t *testing.T) {
	for _, line := range []string{
		"open a:probe a? turn @10m turn own:a=x8 fail turn @3h turn",
		"open a:probe a? turn @10m turn effect:a= own:a=x8 fail turn @3h turn",
		"open a:probe a? turn @10m turn effect:a=,x8 own:a=x8 fail turn @3h turn",
		"open a:probe effect:a= effect:a=,x8 turn fail turn @3h turn",
	} {
		t.Run("", func(t *testing.T) {
			s := newSchedule(t)
			by, left := two(s, "x7", "x8")
			for _, w := range fields(line) {
				for _, r := range s.word(w) {
					if r.Verdict != 0 {
						t.Logf("%s %v %s", w, r.Verdict, r.Reason)
					}
				}
			}
			t.Logf("%s\n  %s %v left %v", line, s.outcome(), by, left())
		})
	}
	s := newSchedule(t)
	var names = s.names()
	s.play("open a:probe a? a.probe=duplicate turn @10m turn effect:a=extra-a fail turn")
	t.Log(s.outcome(), *names)
	a := ledger.EffectAnswer(&pb.EffectReported{ExternalRef: "x"}, []byte(`{"id":1}`))
	b := ledger.EffectAnswer(&pb.EffectReported{ExternalRef: "x"}, []byte(`{"id": 1}`))
	t.Log(a == b)
}

func fields(s string) (out []string) {
	w := ""
	for _, c := range s + " " {
		if c == ' ' {
			if w != "" {
				out = append(out, w)
			}
			w = ""
		} else {
			w += string(c)
		}
	}
	return
}

package executor_test

import "testing"

func TestYY(t *testing.T) {
	for _, line := range []string{
		"open a:probe a? turn @10m turn fail turn @3h turn effect:a=x8 turn @5h turn",
		"open a:probe a? turn @10m turn fail turn @3h turn effect:a=x8,x7 turn @5h turn",
		"open a:probe a? fail turn effect:a=x8 turn @3h turn",
		"open a:probe b<a b+ a? turn @10m turn effect:a=x8 undo:!b turn fail turn @3h turn",
		"open:second a:probe a? turn @10m turn effect:a=x8 effect:a@ana=x8 fail turn @3h turn",
		"open:accept a:probe+for=240h a? turn @10m turn effect:a=x8 commit turn undo: turn @3h turn",
		"open a:probe+unchanged turn effect:a=x8,x7 turn fail turn @3h turn",
		"open a:probe+unchanged turn effect:a=x8 turn fail turn @3h turn",
		"open a:askme a? fail turn lost:a b b+ turn",
	} {
		func() {
			s := newSchedule(t)
			by, left := two(s, "x7", "x8")
			s.play(line)
			t.Logf("%s\n   %s undone %v left %v", line, s.outcome(), by, left())
			s.wantRefolded()
		}()
	}
}

func TestYYChild(t *testing.T) {
	s := newSchedule(t)
	by, left := two(s, "x7", "x8")
	s.play("open q/open^ q/a:probe q/effect:a=x7 q/commit turn q/own:a=x8 turn")
	t.Logf("pages %+v", s.state.Pages())
	s.play("commit turn @3h turn")
	t.Logf("%s %v %v pages %+v", s.outcome(), by, left(), s.state.Pages())
}

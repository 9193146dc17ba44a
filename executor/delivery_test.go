package executor_test

import (
	"testing"
)

func TestDraftDelivery(t *testing.T) {
	for _, words := range []string{
		"open a a+ m:staged b b+ n:staged commit turn",
		"open a a+ m:staged commit m=fail,done turn @2s @5s",
		"open a a+ m:staged commit m=fail turn @2s @5s",
		"open a a+ m:staged n:staged commit m=lost turn @60s",
		"open a a+ m:staged n:staged commit m=lost turn @60s p~0/resolve:m turn",
		"open a a+ m:staged n:staged commit m=lost,done turn @60s p~0/retry:m turn @120s",
		"open a a+ m:staged+kept=1h commit m=lost,done turn @40s @80s",
		"open a a+ m:staged+found commit m=lost,done m.probe=present turn @40s @80s @160s",
		"open a a+ m:staged+found commit m=lost,done m.probe=absent turn @40s @80s @160s @240s",
		"open a a+ q/open^ q/m:staged q/commit n:staged commit turn",
		"open a:for=1h a+ m:staged commit turn undo turn",
		"open a:for=1h a+ m:staged n:staged commit undo turn",
		"open:last a:for=1h a+ m:staged n:staged commit turn undo turn",
		"open a:for=1h a+ m:staged n:staged commit m=late turn undo turn",
		"open a:for=1h a+ m:staged n:staged commit m=late turn p~0/stop turn p~0/tell:m#1=done turn",
		"open a:for=1h a+ m:staged n:staged commit judge:n=block turn",
	} {
		t.Run(words, func(t *testing.T) {
			s := newSchedule(t)
			s.play(words)
			t.Log(s.outcome())
			for _, id := range []string{"p~0", "q~0", "p~1"} {
				if s.planOf(id) != nil {
					t.Log(id, s.show(id).State, s.undos(id))
				}
			}
			s.wantRefolded()
		})
	}
}

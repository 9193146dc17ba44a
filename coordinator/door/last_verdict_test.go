package door_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestTheLastVerdictCountsUntilTheToolMayBeCalled: an agent that was told to wait, and no more, is not
// told to call a tool that was allowed and blocked since then. Nothing has happened.
func TestTheLastVerdictCountsUntilTheToolMayBeCalled(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		for verdict, code := range map[string]string{"block": "blocked", "redirect": "redirected", "allow": ""} {
			p := p + "-" + verdict
			l.good(ask, "tripper", "plan.begin", fmt.Sprintf(`{"plan":%q}`, p))
			act := fmt.Sprintf(`{"plan":%q,"action":"a","capability":"mail.send","review":true`, p)
			l.waits(p, act+`,"wait":"1ms"}`)
			for _, v := range []string{"allow", verdict} {
				l.good(l.post, "boss", "verdict.give",
					fmt.Sprintf(`{"plan":%q,"action":"a","verdict":%q,"reason":"a mistake"}`, p, v))
				for range 5 { // the door hears of it
					l.good(ask, "tripper", "plan.get", fmt.Sprintf(`{"plan":%q}`, p))
				}
			}
			a := l.good(ask, "tripper", "plan.act", act+"}")
			if code == "" {
				if a["state"] != "accepted" {
					t.Errorf("allowed twice: %v", a)
				}
				continue
			}
			if a["state"] != "recorded" || a["outcome"] != "failed" || a["code"] != code || a["by"] != "boss" ||
				a["message"] != "a mistake" {
				t.Errorf("%s after it was allowed: %v", verdict, a)
			}
			if c := l.good(ask, "tripper", "plan.commit", fmt.Sprintf(`{"plan":%q}`, p)); c["state"] != "committed" {
				t.Errorf("%v", c)
			}
		}
	})
}

// TestAnAcceptedActThatIsBlockedIsNotAcceptedOnceMore: its tool may have been called for the first answer,
// so it is in doubt, and the block undoes it. What is allowed again is accepted again.
func TestAnAcceptedActThatIsBlockedIsNotAcceptedOnceMore(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	for _, last := range []string{"allow", "block"} {
		p := "p-" + last
		l.good(l.post, "tripper", "plan.begin", `{"plan":"`+p+`"}`)
		act := `{"plan":"` + p + `","action":"a","capability":"hotel.book","input":{"city":"Rome"}}`
		if a := l.good(l.post, "tripper", "plan.act", act); a["state"] != "accepted" {
			t.Fatalf("%v", a)
		}
		for _, v := range []string{"block", last} {
			l.good(l.post, "boss", "verdict.give", `{"plan":"`+p+`","action":"a","verdict":"`+v+`","reason":"no"}`)
		}
		a := l.good(l.post, "tripper", "plan.act", act)
		if last == "allow" {
			if a["state"] != "accepted" || a["repeated"] != true {
				t.Errorf("allowed again: %v", a)
			}
			continue
		}
		if a["state"] != "recorded" || a["outcome"] != "in_doubt" || a["by"] != "boss" ||
			!strings.Contains(fmt.Sprint(a["message"]), "block by boss (no)") {
			t.Errorf("blocked: %v", a)
		}
		l.shows(p, func(got map[string]any) bool { return len(l.undos(p)) == 1 && got["state"] == "open" })
	}
}

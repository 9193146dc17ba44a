package door_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
)

// TestAnOutputThatCannotBeTold leaves its action completed: no question is asked about it, and an undo
// that reads the output is its owner's. Nothing is undone blindly.
func TestAnOutputThatCannotBeTold(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		l.publish(contract.Contract{Capability: "room.book", Class: contract.Compensable,
			Inverse: &contract.Inverse{Call: "hotel.cancel", With: map[string]any{"booking": "=output.id"}}})
		for i, crash := range []bool{false, true} {
			p := fmt.Sprintf("%s-%d", p, i)
			l.good(ask, "tripper", "plan.begin", fmt.Sprintf(`{"plan":%q,"owner":"travel"}`, p))
			act := fmt.Sprintf(`{"plan":%q,"action":"a","capability":"room.book","input":{"city":"Rome"}}`, p)
			l.good(ask, "tripper", "plan.act", act)
			if crash {
				l.crash()
			}
			told := fmt.Sprintf(`{"plan":%q,"action":"a","outcome":"completed","incomplete":true,"external_ref":"r",`+
				`"message":"output.at: a datetime"}`, p)
			for n := range 2 {
				o := l.good(ask, "tripper", "plan.outcome", told)
				said, _ := o["problem"].(string)
				if o["outcome"] != "completed" || n == 0 && !strings.Contains(said, "output.at: a datetime") {
					t.Errorf("%v", o)
				}
			}
			if a := l.good(ask, "tripper", "plan.act", act); a["state"] != "recorded" || a["outcome"] != "completed" {
				t.Errorf("asked again: %v", a)
			}
			acts, _ := l.good(ask, "tripper", "plan.get", fmt.Sprintf(`{"plan":%q}`, p))["acts"].([]any)
			if got, _ := acts[0].(map[string]any); got["outcome"] != "completed" || got["incomplete"] != true ||
				got["external_ref"] != "r" {
				t.Errorf("%v", acts)
			}
			l.good(ask, "tripper", "plan.fail", fmt.Sprintf(`{"plan":%q}`, p))
			got := l.good(ask, "tripper", "plan.wait", fmt.Sprintf(`{"plan":%q}`, p))
			if got["state"] != "quarantined" || len(l.undos(p)) > 0 {
				t.Errorf("%v, undone %q", got, l.undos(p))
			}
		}
	})
}

// TestWhatIsToldBesideAnOutputThatCannotBe is refused where it says the opposite.
func TestWhatIsToldBesideAnOutputThatCannotBe(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"a","capability":"page.read"}`)
	for _, c := range []struct{ field, told string }{
		{"incomplete", `"outcome":"in_doubt","incomplete":true`},
		{"incomplete", `"outcome":"not_taken","incomplete":true`},
		{"output", `"outcome":"completed","incomplete":true,"output":1`},
		{"message", `"outcome":"completed","message":"x"`},
		{"message", `"outcome":"completed","incomplete":false,"message":"x"`},
	} {
		l.refused(l.post, "tripper", "plan.outcome", `{"plan":"p","action":"a",`+c.told+`}`, 422, c.field)
	}
	l.good(l.post, "tripper", "plan.outcome", `{"plan":"p","action":"a","outcome":"completed"}`)
}

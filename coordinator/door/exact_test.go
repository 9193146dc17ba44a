package door_test

import (
	"strings"
	"testing"
)

// TestNoTextForPeopleStopsAnAct, and no name of an effect is cut or another one: it is left out.
func TestNoTextForPeopleStopsAnAct(t *testing.T) {
	l := newLive(t)
	long := strings.Repeat("caf\xe9 ", 2000)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","label":"`+long+`"}`)
	for action, reference := range map[string]string{"a": "caf\xe9", "b": `\ud83d`, "c": long, "d": "fits"} {
		l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"`+action+`","capability":"hotel.book"}`)
		l.good(l.post, "tripper", "plan.outcome", `{"plan":"p","action":"`+action+
			`","outcome":"completed","output":{"booking":"1"},"external_ref":"`+reference+`"}`)
	}
	acts, _ := l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)["acts"].([]any)
	for _, one := range acts {
		act, _ := one.(map[string]any)
		want := any(nil)
		if act["action"] == "d" {
			want = "fits"
		}
		if act["external_ref"] != want || act["outcome"] != "completed" {
			t.Errorf("%v", act)
		}
	}
	if len(acts) != 4 {
		t.Errorf("%d acts", len(acts))
	}
	got := l.good(l.post, "tripper", "plan.fail", `{"plan":"p","reason":"`+long+`"}`)
	if got["state"] == "open" {
		t.Errorf("%v", got)
	}
	got = l.good(l.post, "tripper", "plan.wait", `{"plan":"p"}`)
	reason, _ := got["reason"].(string)
	if !strings.HasPrefix(reason, "caf\uFFFD ") || !strings.HasSuffix(reason, "bytes]") {
		t.Errorf("%.100v", got)
	}
}

package door_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	stagedNote   = `{"plan":"p","action":"note","capability":"note.post","input":{"to":"ann"},"stage":true}`
	stagedLetter = `{"plan":"p","action":"letter","capability":"letter.post","input":{"to":"bob"},"stage":true}`
)

// TestWhatIsStagedIsMadeOnceThePlanIsCommitted, by a worker and in its order; each request has the same
// answer again, also of a door that has forgotten everything.
func TestWhatIsStagedIsMadeOnceThePlanIsCommitted(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.hold = make(chan struct{})
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	first := map[string]map[string]any{}
	for _, body := range []string{stagedNote, stagedLetter} {
		a := l.good(l.post, "tripper", "plan.act", body)
		if a["state"] != "staged" || a["key"] == "" || a["sequence"] == nil {
			t.Errorf("staged: %v", a)
		}
		first[body] = a
	}
	again := func(when string) {
		for body, was := range first {
			if a := l.good(l.post, "tripper", "plan.act", body); !reflect.DeepEqual(a, was) {
				t.Errorf("%s, staged again: %v, and before %v", when, a, was)
			}
			for was, now := range map[string]string{`"to":"`: `"to":"x`, `"stage":true`: `"stage":false`} {
				other := strings.Replace(body, was, now, 1)
				status, field := 409, "action"
				if body == stagedLetter && was != `"to":"` {
					status, field = 422, "stage"
				}
				if e := l.refused(l.post, "tripper", "plan.act", other, status, field); e["stored"] != "nothing" {
					t.Errorf("%s, %s: %v", when, other, e)
				}
			}
		}
		l.refused(l.post, "tripper", "plan.outcome", `{"plan":"p","action":"note","outcome":"completed"}`, 422, "action")
	}
	again("at once")
	l.crash()
	again("after a crash")
	became := func(plan, want string) {
		t.Helper()
		if p := l.good(l.post, "tripper", "plan.get", `{"plan":"`+plan+`"}`); !actIs(p, 0, want) || !actIs(p, 1, want) {
			t.Errorf("plan.get of %s, where the acts are %s: %v", plan, want, p)
		}
	}
	became("p", "staged")
	s := l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`)
	if s["state"] != "committed" {
		t.Errorf("committed: %v", s)
	}
	s = l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true,"wait":"100ms"}`)
	if d := deliveryOf(s); s["ended"] != true || d["state"] != "delivering" || d["plan"] != "p~0" {
		t.Errorf("while it is delivered: %v", s)
	}
	became("p", "delivering")
	became("p~0", "delivering")
	close(l.hold)
	s = l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true,"wait":"60s"}`)
	d := deliveryOf(s)
	if d["state"] != "delivered" || !reflect.DeepEqual(d["delivered"], []any{"note", "letter"}) {
		t.Errorf("delivered: %v", s)
	}
	became("p", "delivered")
	became("p~0", "delivered")
	want := []string{`note {"to":"ann"}`, `letter {"to":"bob"}`}
	if got := l.undos("p~0"); !reflect.DeepEqual(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// actIs reports whether an act is staged, and what became of it is said.
func actIs(plan map[string]any, i int, became string) bool {
	acts, _ := plan["acts"].([]any)
	if len(acts) <= i {
		return false
	}
	act, _ := acts[i].(map[string]any)
	return act["staged"] == true && act["delivery"] == became && act["undone"] == nil
}

func deliveryOf(state map[string]any) map[string]any {
	d, _ := state["delivery"].(map[string]any)
	return d
}

// TestWhatIsStagedInAPlanThatFailsIsNotMade, and its plan has no delivery to tell of.
func TestWhatIsStagedInAPlanThatFailsIsNotMade(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", stagedNote)
	l.good(l.post, "tripper", "plan.fail", `{"plan":"p","reason":"no"}`)
	s := l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true}`)
	if s["state"] != "failed" || s["delivery"] != nil || len(l.undos("p~0")) > 0 {
		t.Errorf("failed: %v, and sent %q", s, l.undos("p~0"))
	}
	if p := l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`); !actIs(p, 0, "dropped") {
		t.Errorf("plan.get: %v", p)
	}
	l.refused(l.post, "tripper", "plan.act", strings.Replace(stagedNote, "note\"", "late\"", 1), 409, "")
}

// TestWhatMayNotBeStagedIsRefusedByItsField, and nothing is stored.
func TestWhatMayNotBeStagedIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", stagedNote)
	before := l.records()
	for _, c := range []struct {
		verb, of string
		status   int
		field    string
	}{
		{"plan.act", `"capability":"mail.send","stage":true`, 422, "contract[mail.send].deliver"},
		{"plan.act", `"capability":"hotel.book","stage":true`, 422, "contract[hotel.book].deliver"},
		{"plan.act", `"capability":"letter.post","input":{"to":"a"}`, 422, "stage"},
		{"plan.report", `"capability":"letter.post","input":{"to":"a"}`, 422, "stage"},
		{"plan.act", `"capability":"note.post","input":{"to":"a"},"stage":true,"review":true`, 422, "review"},
		{"plan.act", `"capability":"note.post","input":{"to":"a"},"stage":true,"pivot":true`, 422, "pivot"},
		{"plan.act", `"capability":"note.post","stage":true,"after":["none"],"input":{"to":"a"}`, 422, "after[0]"},
		{"plan.act", `"capability":"page.read","after":["note"]`, 422, "after[0]"},
		{"plan.act", `"capability":"sum.send","stage":true,"input":{"sum":"x"}`, 422, "contract[sum.send].deliver.with.sum"},
	} {
		e := l.refused(l.post, "tripper", c.verb, `{"plan":"p","action":"x",`+c.of+`}`, c.status, c.field)
		if want, _ := e["want"].(string); strings.Contains(want, "Plan.Stage") || want == "" {
			t.Errorf("%s: want %q", c.of, want)
		}
	}
	if after := l.records(); !reflect.DeepEqual(after, before) {
		t.Errorf("stored %v, and before %v", after, before)
	}
	for action, input := range map[string]string{"good": `{"sum":1}`, "none": `{}`} { // what is not there is null
		l.good(l.post, "tripper", "plan.act",
			`{"plan":"p","action":"`+action+`","capability":"sum.send","stage":true,"input":`+input+`}`)
	}
}

// TestABlockOfWhatIsBeingDelivered says that it stops the deliveries, and not that it has done nothing.
func TestABlockOfWhatIsBeingDelivered(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.hold = make(chan struct{})
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", stagedNote)
	l.good(l.post, "tripper", "plan.act", stagedLetter)
	l.good(l.post, "tripper", "plan.commit", `{"plan":"p"}`)
	given := l.good(l.post, "boss", "verdict.give", `{"plan":"p","action":"letter","verdict":"block","reason":"no"}`)
	if note, _ := given["note"].(string); !strings.Contains(note, "deliveries") && !strings.Contains(note, "dropped") {
		t.Errorf("%v", given)
	}
	close(l.hold)
	s := l.good(l.post, "tripper", "plan.wait", `{"plan":"p","delivered":true,"wait":"60s"}`)
	if d := deliveryOf(s); !reflect.DeepEqual(d["dropped"], []any{"letter"}) {
		t.Errorf("%v", s)
	}
}

// TestWhatBecameOfAStagedAct is said by the names of a delivery, in the plan and in the one that
// delivers it; of what undoes a plan nothing is said.
func TestWhatBecameOfAStagedAct(t *testing.T) {
	for _, c := range []struct{ plan, state, undo, want string }{
		{"p", "open", "staged", "staged"}, {"p", "committed", "quarantined", "owner"},
		{"p", "committed", "resolved", "owner"}, {"p", "committed", "owed", "dropped"},
		{"p~0", "delivering", "owed", "delivering"}, {"p~0", "quarantined", "owed", "delivering"},
		{"p~0", "resolved", "owed", "dropped"}, {"p~0", "delivered", "delivered", "delivered"},
		{"p~1", "compensated", "skipped", ""}, {"p", "committed", "", ""},
	} {
		if got := door.DeliveryOf(c.plan, c.state, api.PastAction{Undo: c.undo}); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestABlockIsToldWithItsSupervisor, also by a door that has not heard of it itself.
func TestABlockIsToldWithItsSupervisor(t *testing.T) {
	l := newLive(t)
	const hotel = `{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"},` +
		`"review":true,"wait":"100ms"}`
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.waits("p", hotel)
	l.good(l.post, "boss", "verdict.give", `{"plan":"p","action":"a","verdict":"block","reason":"too dear"}`)
	for _, when := range []string{"at once", "after a crash"} {
		a := l.good(l.post, "tripper", "plan.act", hotel)
		for a["state"] == "waiting" {
			a = l.good(l.post, "tripper", "plan.act", hotel)
		}
		if a["state"] != "recorded" || a["code"] != "blocked" || a["by"] != "boss" {
			t.Errorf("%s: %v", when, a)
		}
		for !strings.Contains(fmt.Sprint(l.good(l.post, "tripper", "plan.get", `{"plan":"p"}`)), "outcome:failed") {
		}
		l.crash()
	}
}

package door_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// adopts has an operator hand a plan of tripper to another agent, which then has it, and tripper's process
// has heard of it.
func (l *live) adopts(plan, agent string) {
	l.t.Helper()
	l.write(&pb.Record{Plan: plan, Kind: &pb.Record_PlanAdopted{PlanAdopted: &pb.PlanAdopted{
		Agent: agent, Reason: "its machine is gone", Actor: "ops"}}})
	for end := time.Now().Add(testenv.Patience); ; <-time.After(10 * time.Millisecond) {
		status, answer := l.post(agent, "plan.get", fmt.Sprintf(`{"plan":%q}`, plan))
		who := door.Caller{Tenant: tenant, Name: "tripper"}
		if status == http.StatusOK && l.door.Superseded(who, "door", plan) {
			return
		} else if time.Now().After(end) {
			l.t.Fatal(answer)
		}
	}
}

// handed wants of a refusal that it says that agent other has the plan.
func (l *live) handed(plan string, e map[string]any) {
	l.t.Helper()
	for _, want := range []string{"operator ops has handed plan " + plan + " to agent other", "its machine is gone"} {
		if !strings.Contains(fmt.Sprint(e["problem"]), want) || e["agent"] != "other" || e["stored"] != "nothing" ||
			!strings.Contains(fmt.Sprint(e["want"]), "plan.resume by a process of agent other") {
			l.t.Errorf("%v, want %q", e, want)
		}
	}
}

// writes is a request of each verb that writes a plan.
func writes(p string, set any) map[string]string {
	return map[string]string{
		"plan.begin":     fmt.Sprintf(`{"plan":%q}`, p),
		"plan.act":       fmt.Sprintf(`{"plan":%q,"action":"x","capability":"hotel.book"}`, p),
		"plan.report":    fmt.Sprintf(`{"plan":%q,"action":"y","capability":"hotel.book"}`, p),
		"plan.savepoint": fmt.Sprintf(`{"plan":%q,"savepoint":"t"}`, p),
		"plan.unwind_to": fmt.Sprintf(`{"plan":%q,"savepoint":"s","number":1}`, p),
		"plan.deadline":  deadline(p, `"deadline":"2h"`, set),
		"plan.commit":    fmt.Sprintf(`{"plan":%q}`, p),
		"plan.fail":      fmt.Sprintf(`{"plan":%q}`, p),
		"plan.cancel":    fmt.Sprintf(`{"plan":%q}`, p),
	}
}

// reads are those of the verbs that read it, or go on with it.
func reads(p string) map[string]string {
	found := map[string]string{}
	for _, verb := range []string{"plan.wait", "plan.get", "plan.preview", "plan.resume"} {
		found[verb] = fmt.Sprintf(`{"plan":%q}`, p)
	}
	return found
}

// TestAnAgentThatLostItsPlanIsToldWhoHasIt by each verb, from the process that had it and from one
// that knows nothing; what its forwards have done still counts. The other agent's process has to
// resume the plan, is told so by each verb that writes it, and goes on then.
func TestAnAgentThatLostItsPlanIsToldWhoHasIt(t *testing.T) {
	ways(t, func(t *testing.T, l *live, ask caller, p string) {
		other := l.request(l.as("other"), "other")
		if strings.HasSuffix(p, "http") {
			other = l.post
		}
		set := l.good(ask, "tripper", "plan.begin", fmt.Sprintf(`{"plan":%q}`, p))["deadline_set"]
		act := func(action string) string {
			return fmt.Sprintf(`{"plan":%q,"action":%q,"capability":"hotel.book","input":{"city":"Rome"}}`, p, action)
		}
		told := func(action, outcome string) string {
			return fmt.Sprintf(`{"plan":%q,"action":%q,"outcome":%q}`, p, action, outcome)
		}
		for _, action := range []string{"a", "b", "c"} {
			l.good(ask, "tripper", "plan.act", act(action))
		}
		l.good(ask, "tripper", "plan.savepoint", fmt.Sprintf(`{"plan":%q,"savepoint":"s"}`, p))
		for verb, body := range reads(p) {
			l.refused(other, "other", verb, body, 422, "plan")
		}
		l.adopts(p, "other")
		refuses := func() {
			for _, list := range []map[string]string{writes(p, set), reads(p)} {
				for verb, body := range list {
					l.handed(p, l.refused(ask, "tripper", verb, body, 409, "plan"))
				}
			}
		}
		refuses()
		l.handed(p, l.refused(ask, "tripper", "plan.outcome", told("a", "not_taken"), 409, "plan"))
		l.good(ask, "tripper", "plan.outcome", told("a", "completed"))
		l.good(ask, "tripper", "plan.outcome", told("b", "in_doubt"))
		l.good(ask, "tripper", "plan.outcome", told("b", "completed"))
		for verb, body := range writes(p, set) {
			l.handed(p, l.refused(other, "other", verb, body, 409, "plan"))
		}
		l.crash()
		refuses()
		got := l.good(other, "other", "plan.resume", fmt.Sprintf(`{"plan":%q}`, p))
		outcomes := ""
		for _, one := range got["acts"].([]any) {
			outcomes += fmt.Sprint(one.(map[string]any)["outcome"], " ")
		}
		if got["writer"] != "door" || outcomes != "completed completed unknown " {
			t.Errorf("resumed: %v", got)
		}
		refuses()
		l.good(other, "other", "plan.outcome", told("c", "not_taken"))
		l.good(other, "other", "plan.act", act("d"))
		l.good(other, "other", "plan.outcome", told("d", "completed"))
		l.good(other, "other", "plan.fail", fmt.Sprintf(`{"plan":%q}`, p))
		if wait := l.good(other, "other", "plan.wait", fmt.Sprintf(`{"plan":%q}`, p)); wait["state"] != "compensated" {
			t.Errorf("%v", wait)
		}
		if undone := l.undos(p); len(undone) != 3 || !strings.HasPrefix(undone[0], "d ") {
			t.Errorf("undone %q", undone)
		}
		refuses()
	})
}

// TestTheTokenOfAPlanThatWasHandedOverIsOfNoUse to the agent that had it, which is told whose plan it
// is; the one that has it needs none.
func TestTheTokenOfAPlanThatWasHandedOverIsOfNoUse(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	const token = "between the two of them"
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p","attach_token":"`+token+`"}`)
	l.good(l.post, "other", "plan.begin", `{"plan":"early","parent":"p","parent_token":"`+token+`"}`)
	l.good(l.post, "other", "plan.commit", `{"plan":"early"}`)
	l.adopts("p", "other")
	begin := `{"plan":"late","parent":"p","parent_token":"` + token + `"}`
	if e := l.refused(l.post, "tripper", "plan.begin", begin, 409, "parent"); e["agent"] != "other" ||
		!strings.Contains(fmt.Sprint(e["want"]), "one that agent other begins") {
		t.Errorf("%v", e)
	}
	l.crash() // the next door knows nothing of plan p, and the ledger has the word
	l.post("tripper", "plan.begin", begin)
	late := l.good(l.post, "tripper", "plan.wait", `{"plan":"late"}`)
	if reason := fmt.Sprint(late["reason"]); late["state"] != "failed" ||
		!strings.Contains(reason, "its parent plan p is agent other's since it was handed over") {
		t.Errorf("%v", late)
	}
	l.good(l.post, "other", "plan.begin", `{"plan":"own","parent":"p"}`)
	l.good(l.post, "other", "plan.commit", `{"plan":"own"}`)
	l.good(l.post, "other", "plan.resume", `{"plan":"p"}`)
	if got := l.good(l.post, "other", "plan.commit", `{"plan":"p"}`); got["state"] != "committed" {
		t.Errorf("%v", got)
	}
}

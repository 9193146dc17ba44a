package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// tenant changes what the tenant may do, and returns when that is in its ledger.
func (l *live) tenant(verb string, r api.TenantRequest, inForce func(api.TenantMay) bool) {
	l.t.Helper()
	r.Tenant, r.Actor = "default", "ana"
	for deadline := time.Now().Add(testenv.Patience); ; <-time.After(5 * time.Millisecond) {
		body, err := json.Marshal(r)
		if err != nil {
			l.t.Fatal(err)
		}
		a := l.host.Tenancy(l.t.Context(), verb, body).(api.TenantAnswer)
		if a.Error == "" {
			break
		}
		if time.Now().After(deadline) { // the host names the tenant of its flag soon
			l.t.Fatalf("%s: %+v", verb, a)
		}
	}
	for deadline := time.Now().Add(testenv.Patience); ; <-time.After(5 * time.Millisecond) {
		var answer api.StatusAnswer
		l.ask("status", struct{}{}, &answer)
		if may := answer.Status.May; may != nil && inForce(*may) {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s is not in force: %+v", verb, answer.Status.May)
		}
	}
}

// refusedAs wants an error that says which limit it is, what is used of it, and who raises it.
func refusedAs(t *testing.T, err, is error, field, problem, want string) {
	t.Helper()
	var refused *coordinator.Refused
	if is != nil && !errors.Is(err, is) || !errors.As(err, &refused) || refused.Field != field ||
		!strings.Contains(refused.Problem, problem) || !strings.Contains(refused.Want, want) {
		t.Errorf("%v (%+v), want %v, field %s", err, refused, is, field)
	}
}

// TestAnAgentIsToldWhatItsTenantMayNot: by a typed error, before a forward runs where its plan
// waits for an executor.
func TestAnAgentIsToldWhatItsTenantMayNot(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	l.tenant(api.TenantLimit, api.TenantRequest{Limits: api.TenantLimits{OpenPlans: 1}},
		func(m api.TenantMay) bool { return len(m.Limits) > 0 && m.Limits[0].Most == 1 })
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	l.do(p, "a")

	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	q := l.begin(coordinator.PlanSpec{ID: "q"})
	ran := false
	_, err := q.Do(ctx, coordinator.Action{ID: "a", Capability: "file.write",
		Input: map[string]any{"path": "/x"}}, func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
		ran = true
		return coordinator.Outcome{}, nil
	})
	const raise = "sagenbaum tenant limits default --open-plans N"
	refusedAs(t, err, nil, "limits.open_plans", "1 of 1 plans are open", raise)
	if ran {
		t.Error("the forward ran")
	}
	refusedAs(t, q.Commit(ctx), coordinator.ErrUnwound, "limits.open_plans", "1 of 1 plans are open", raise)
	end, err := q.Wait(ctx)
	if err != nil || end.Refused == nil || end.Refused.Field != "limits.open_plans" ||
		end.Refused.Want == "" || end.State == ledger.StateCommitted {
		t.Errorf("%+v, %v", end, err)
	}

	l.tenant(api.TenantSuspend, api.TenantRequest{Reason: "not paid"},
		func(m api.TenantMay) bool { return m.Suspended })
	_, _ = p.Do(ctx, coordinator.Action{ID: "b", Capability: "file.write", Input: map[string]any{"path": "/b"}},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, nil // it may be crossing when the refusal comes
		})
	if end, err = p.Wait(ctx); err != nil || end.State != ledger.StateCompensated || end.Refused == nil {
		t.Errorf("%+v, %v", end, err)
	}
	refusedAs(t, p.Commit(ctx), coordinator.ErrUnwound, "tenant", "suspended by ana: not paid",
		"sagenbaum tenant resume default")
	l.tenant(api.TenantResume, api.TenantRequest{}, func(m api.TenantMay) bool { return !m.Suspended })
	r := l.begin(coordinator.PlanSpec{ID: "r"})
	l.do(r, "a")
	if err := r.Commit(ctx); err != nil {
		t.Error(err)
	}
}

// TestAnAgentIsToldOfConditionsThatItsTenantMayNotHold: a plan with more of them is not opened,
// and what other plans have given up leaves room.
func TestAnAgentIsToldOfConditionsThatItsTenantMayNotHold(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	var used uint64
	held := func(m api.TenantMay) bool {
		for _, limit := range m.Limits {
			if limit.Limit == string(ledger.LimitHeldConditions) {
				used = limit.Used
				return limit.Most == 2
			}
		}
		return false
	}
	l.tenant(api.TenantLimit, api.TenantRequest{Limits: api.TenantLimits{HeldConditions: 2}}, held)
	conditions := map[string]string{"a": `facts["a"] == 1`, "b": `facts["b"] == 1`}
	p := l.begin(coordinator.PlanSpec{ID: "p", Triggers: conditions})
	l.do(p, "a")

	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	q := l.begin(coordinator.PlanSpec{ID: "q", Triggers: map[string]string{"c": `facts["c"] == 1`}})
	refusedAs(t, q.Commit(ctx), coordinator.ErrUnwound, "limits.held_conditions", "3 of 2 conditions would be held",
		"sagenbaum tenant limits default --held-conditions N")
	r := l.begin(coordinator.PlanSpec{ID: "r"})
	l.do(r, "a")
	for _, plan := range []*coordinator.Plan{r, p} {
		if err := plan.Commit(ctx); err != nil {
			t.Error(err)
		}
	}
	if end, err := p.Wait(ctx); err != nil || end.State != ledger.StateCommitted {
		t.Fatalf("%+v, %v", end, err)
	}
	var answer api.StatusAnswer
	if l.ask("status", struct{}{}, &answer); !held(*answer.Status.May) || used != 0 {
		t.Errorf("%d conditions are held: %+v", used, answer.Status.May)
	}
	s := l.begin(coordinator.PlanSpec{ID: "s", Triggers: conditions})
	l.do(s, "a")
	if err := s.Commit(ctx); err != nil {
		t.Error(err)
	}
}

// TestQuestionsHaveAShareForEachUser: the server says which user asks, and one that asks without
// end leaves places to others.
func TestQuestionsHaveAShareForEachUser(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{files()}})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	l.do(p, "a")
	conn := l.connect("a1")
	inbox := conn.NewRespInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(api.OutcomeQuery{Plan: "p", Ended: true, WaitMs: 30_000})
	if err != nil {
		t.Fatal(err)
	}
	for range 5_200 {
		if err := conn.PublishRequest(api.QuerySubject("default", "plan.outcome"), inbox, body); err != nil {
			t.Fatal(err)
		}
	}
	m, err := answers.NextMsg(20 * time.Second)
	if err != nil || !strings.Contains(string(m.Data), "of this user are waiting") {
		t.Fatalf("%v, %s", err, m.Data)
	}
	var answer api.OutcomeAnswer
	if l.ask("plan.outcome", api.OutcomeQuery{Plan: "p"}, &answer); answer.State != ledger.StateOpen {
		t.Errorf("another user: %+v", answer)
	}
}

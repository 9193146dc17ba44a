package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// compiled is a contract on its own; package contract tests what it must say.
func compiled(t *testing.T, c contract.Contract) *compile.Compiled {
	t.Helper()
	out, err := compile.Contract(c, triggers.NewCache(1))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	good := contracts()[0]
	undeclared, nowhere := good, good
	undeclared.Class = ""
	nowhere.Inverse = nil
	for _, c := range []struct {
		field  string
		config Config
	}{
		{"config.conn", Config{Tenant: tenant, Agent: "a1"}},
		{"config.tenant", Config{Appender: memory(), Tenant: "a.b", Agent: "a1"}},
		{"config.agent", Config{Appender: memory(), Tenant: tenant, Agent: "*"}},
		{"config.append_timeout", Config{Appender: memory(), Tenant: tenant, Agent: "a1", AppendTimeout: -1}},
		{"config.confirm_timeout", Config{Appender: memory(), Tenant: tenant, Agent: "a1", ConfirmTimeout: -1}},
		{"config.review_timeout", Config{Appender: memory(), Tenant: tenant, Agent: "a1", ReviewTimeout: -1}},
		{"config.published", Config{Appender: memory(), Tenant: tenant, Agent: "a1", Published: true}},
		{"contract[file.write]", Config{Contracts: []contract.Contract{good, good}}},
		{"contract[file.write].class", Config{Contracts: []contract.Contract{undeclared}}},
		{"contract[file.write].inverse", Config{Contracts: []contract.Contract{nowhere}}},
	} {
		if c.config.Contracts != nil {
			c.config.Appender, c.config.Tenant, c.config.Agent = memory(), tenant, "a1"
		}
		_, err := New(c.config)
		wantRefused(t, err, c.field)
	}
}

func TestBadPlansAreRefused(t *testing.T) {
	in(t, func(t *testing.T) {
		c := start(t, memory(), nil)
		begin(t, c, PlanSpec{ID: "taken"})
		long := strings.Repeat("x", ledger.TextMax+1)
		for _, bad := range []struct {
			field string
			plan  PlanSpec
		}{
			{"plan", PlanSpec{ID: "a.b"}},
			{"plan", PlanSpec{ID: ledger.ManyPlans}},
			{"plan.id", PlanSpec{ID: "taken"}},
			{"plan_opened.owner", PlanSpec{Owner: long}},
			{"plan_opened.labels[0].value", PlanSpec{Labels: map[string]string{"k": long}}},
			{"plan.deadline", PlanSpec{Deadline: -1}},
			{"plan.deadline_at", PlanSpec{Deadline: 1, DeadlineAt: time.Now()}},
			{"plan.deadline", PlanSpec{Deadline: 30 * time.Microsecond}},
			{"plan.deadline", PlanSpec{Deadline: ledger.DurationMax + 1}},
			{"plan.deadline_at", PlanSpec{DeadlineAt: time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC)}},
			{"plan.deadline_at", PlanSpec{DeadlineAt: time.Date(2611, 1, 1, 0, 0, 0, 0, time.UTC)}},
			{"plan.deadline_at", PlanSpec{DeadlineAt: time.Unix(-1, 0)}},
			{"plan.deadline_at", PlanSpec{DeadlineAt: time.Now().Add(-time.Second)}},
			{"plan.concurrency", PlanSpec{Concurrency: ledger.ConcurrencyMax + 1}},
			{"plan.on_undo_failure", PlanSpec{OnUndoFailure: 9}},
			{"plan.parent", PlanSpec{ID: "p", Parent: "p"}},
			{"plan_opened.parent_plan", PlanSpec{Parent: "a.b"}},
			{"plan_opened.parent_action", PlanSpec{ParentAction: "a"}},
			{"plan.parent_action", PlanSpec{Parent: "taken", ParentAction: "z"}},
			{"plan.triggers[t]", PlanSpec{Triggers: map[string]string{"t": "1 +"}}},
		} {
			_, err := c.Begin(t.Context(), bad.plan)
			wantRefused(t, err, bad.field)
		}
	})
}

func TestAPlanIsOpenedAsDeclared(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		p := begin(t, start(t, store, nil), PlanSpec{
			Label: "book trip", Owner: "travel", Deadline: 2 * time.Hour, Concurrency: 3,
			OnUndoFailure: ContinueOnUndoFailure, SecondApprover: true,
			Triggers: map[string]string{"late": "after(plan.deadline)", "bad": "plan.status == 'failed'"},
			Labels:   map[string]string{"z": "1", "a": "2"},
		})
		want := time.Now().Add(2 * time.Hour).UnixNano()
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		o := find(t, store, "plan_opened").GetPlanOpened()
		if o.Label != "book trip" || o.Owner != "travel" || o.DeadlineNs != want || o.Concurrency != 3 ||
			o.OnUndoFailure != pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE || !o.SecondApprover ||
			len(o.Triggers) != 2 || o.Triggers[0].Name != "bad" || o.Labels[0].Key != "a" {
			t.Errorf("opened %v", o)
		}
	})
}

// TestEachPartIsToldAndOnlyWhatWasToldCounts: the notice of the first may be lost, or come late.
func TestEachPartIsToldAndOnlyWhatWasToldCounts(t *testing.T) {
	p := &Plan{id: "p", changed: make(chan struct{})}
	hears := func(known uint32, want ...string) {
		t.Helper()
		var actions []string
		if part, ok := p.shut().(*PartUndone); ok {
			for _, u := range part.Parts {
				actions = append(actions, u.Savepoint+u.Action)
			}
		}
		if !slices.Equal(actions, want) || p.parts.known != known {
			t.Errorf("told of %q and knows %d, want %q and %d", actions, p.parts.known, want, known)
		}
	}
	p.wentOn(api.Notice{Parts: 2, FromAction: "c"})
	hears(0, "c")
	hears(0)
	p.wentOn(api.Notice{Parts: 2, FromAction: "c"})
	hears(0)
	p.wentOn(api.Notice{Parts: 3, FromAction: "d"})
	p.wentOn(api.Notice{Parts: 1, FromAction: "b"})
	hears(3, "b", "d")
	hears(3)
	p.noteParts(api.OutcomeAnswer{Parts: 7, FromAction: "h", Undone: []api.UndonePart{
		{Number: 6, Action: "g"}, {Number: 7, Action: "h"}}})
	hears(7, "", "g", "h") // what came before is no longer kept
	p.noteParts(api.OutcomeAnswer{Parts: 8, Undone: []api.UndonePart{{Number: 8, Savepoint: "s"}}})
	p.reopened(api.Notice{Parts: 8, Counted: true, Savepoint: "s", Asked: 9})
	hears(8, "s") // at an operator's word, and once
	hears(8)
}

package host

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// changed waits for the next change of a watch.
func changed(t *testing.T, w *ask.Watch) ask.Change {
	t.Helper()
	select {
	case <-w.Ready():
		return w.Take()
	case <-time.After(testenv.Patience):
		t.Fatal("no change")
		return ask.Change{}
	}
}

func TestAWatchNamesWhatTheFoldTouchesWithinItsBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h, _ := r.host("h1")
	if _, err := h.Watch("other"); !errors.Is(err, ErrNoTenant) {
		t.Errorf("a watch of a tenant that is not served: %v", err)
	}
	slow, err := h.Watch("t")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	prompt, err := h.Watch("t")
	if err != nil {
		t.Fatal(err)
	}
	const changedMost = 256 // plans that one change names
	const plans = changedMost + 5
	for i := range plans {
		plan := fmt.Sprintf("p%d", i)
		r.agent(plan, &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}})
		for !slices.Contains(changed(t, prompt).Plans, plan) {
		}
	}
	r.await(h, r.appended)
	late := changed(t, slow)
	if !late.All || len(late.Plans) != changedMost || late.Pulse.Open != plans || !slices.Contains(late.Plans, "p0") {
		t.Errorf("one that was slow: all %v, %d plans, %d open", late.All, len(late.Plans), late.Pulse.Open)
	}
	if again := slow.Take(); again.All || len(again.Plans) != 0 || again.Pulse != late.Pulse {
		t.Errorf("taken twice: %+v", again)
	}
	prompt.Close()
	prompt.Close()
	r.agent("p0", &pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "r"}}})
	if c := changed(t, slow); !slices.Contains(c.Plans, "p0") {
		t.Errorf("behind it: %+v", c)
	}
	select {
	case <-prompt.Ready():
		if c := prompt.Take(); slices.Contains(c.Plans, "p0") {
			t.Errorf("a watch that is closed: %+v", c)
		}
	default:
	}
}

// await waits until a sequence is folded.
func (r *rig) await(h *Host, sequence uint64) {
	r.t.Helper()
	answer, err := h.Ask("t", "plan.outcome", api.OutcomeQuery{Plan: "none", Sequence: sequence})
	if o := answer.(api.OutcomeAnswer); o.Applied < sequence { // there is no such plan
		r.t.Fatalf("folded %d of %d: %v", o.Applied, sequence, err)
	}
}

func TestQuestionsInTheProcessAreThoseOfTheQueryAPI(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h, stop := r.host("h1")
	r.agent("p1", &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Label: "l"}}})
	r.await(h, r.appended)
	for verb, question := range map[string]any{"plan.find": api.FindQuery{Label: "l"},
		"plan.show": api.PlanQuery{Plan: "p1"}, "due.ls": api.ListQuery{}, "capability.ls": struct{}{}} {
		direct, err := h.Ask("t", verb, question)
		if err != nil {
			t.Fatal(err)
		}
		if kind, want := fmt.Sprintf("%T", direct),
			map[string]string{"plan.find": "api.FindAnswer", "plan.show": "api.PlanAnswer", "due.ls": "api.UpcomingAnswer",
				"capability.ls": "api.CapabilitiesAnswer"}[verb]; kind != want {
			t.Errorf("%s is answered with %s", verb, kind)
		}
	}
	found, _ := h.Ask("t", "plan.find", api.FindQuery{Label: "l"})
	if list := found.(api.FindAnswer).Plans; len(list) != 1 || list[0].Plan != "p1" {
		t.Errorf("found %+v", list)
	}
	if _, err := h.Ask("t", "plan.find", api.FindQuery{State: "gone"}); !errors.As(err, new(*api.Problem)) {
		t.Error("a state that is none was taken")
	}
	copied, err := h.Copied("t", r.appended, 1)
	if err != nil || len(copied.Leaves) != 1 || copied.Size == 0 {
		t.Errorf("the second copy: %+v, %v", copied, err)
	}
	stop()
	if _, err := h.Ask("t", "status", nil); err == nil {
		t.Error("a host that has stopped answers")
	}
	if _, err := h.Pulse("t"); err == nil {
		t.Error("a host that has stopped has a pulse")
	}
}

// agent appends records of agent a1 about a plan.
func (r *rig) agent(plan string, records ...*pb.Record) {
	r.t.Helper()
	for _, record := range records {
		record.Plan = plan
	}
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: plan}, records...)
}

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	doctorcmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// S105: status and doctor list the stuck plans with what of them is open, and one
// plan is dumped in full.
func TestS105StuckPlansAreListedAndOneIsDumpedInFull(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() { s.free = protected })
	open := s.begin(t, coordinator.PlanSpec{ID: "p1", Owner: "travel", Label: "to the sea"})
	report(t, open, "card.charge")
	doubt(t, open, "room.book")
	s.trip(t, coordinator.PlanSpec{ID: "healthy"}, "card.charge")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	says(t, s.run(t, cli.ExitLook, "status"), "1 open", "1 quarantined", "stuck        p1, owner travel: 2 room.book")
	doctor := s.run(t, cli.ExitLook, "doctor")
	says(t, doctor, "warn quarantine 1 plan waits for its owner", "p1 2 room.book, owner travel: ",
		"next: sagenbaum doctor --plan p1")
	dump := s.run(t, cli.ExitLook, "doctor --plan p1")
	says(t, dump, "p1  to the sea  quarantined", "registered", "what happened", "its undo", "attempt 1", "answers",
		"ACTION  UNDO BY", "found present")
	d := cmdtest.Decoded[doctorcmd.PlanDump](t, s.run(t, cli.ExitLook, "doctor --plan p1 -o json"))
	if len(d.Plan.Actions) != 2 || len(d.Obligations) != 1 || d.Obligations[0].Action.Number != 2 ||
		len(d.Undos) != 1 || len(d.Obligations[0].Answers) != 5 {
		t.Errorf("the dump is %+v", d)
	}
	if strings.Contains(doctor.Stdout, "healthy") {
		t.Errorf("the doctor names a plan that is well:\n%s", doctor.Stdout)
	}
	s.run(t, cli.ExitGood, "doctor --plan healthy")
	s.run(t, cli.ExitFailed, "doctor --plan nowhere", "next: sagenbaum plan ls")
}

func TestTheDoctorWarnsOfWindowsThatClose(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var plans []api.Plan
	url := answering(t, map[string]func([]byte) any{"plan.ls": func(data []byte) any {
		answer := api.PlansAnswer{Plans: []api.Plan{}}
		if strings.Contains(string(data), `"state":"open"`) {
			answer.Plans = plans
		}
		return answer
	}})
	c := &cli.Client{Conn: cmdtest.Dial(t, url), Tenant: "default", Server: url, Timeout: 10 * time.Second}
	plans = []api.Plan{{Plan: "far", WindowClosesNs: now.Add(25 * time.Hour).UnixNano()}, {Plan: "none"}}
	if f := doctorcmd.ExamineWindows(t.Context(), c, now); f.State != "ok" {
		t.Errorf("windows that are far off: %+v", f)
	}
	for n := range 12 {
		plans = append(plans,
			api.Plan{Plan: fmt.Sprintf("p%d", n), State: "open", Owner: "travel",
				WindowClosesNs: now.Add(time.Duration(12-n) * time.Hour).UnixNano()})
	}
	plans = append(plans,
		api.Plan{Plan: "late", State: "open", WindowClosesNs: now.Add(-time.Hour).UnixNano()})
	f := doctorcmd.ExamineWindows(t.Context(), c, now)
	if f.State != "warn" || !strings.Contains(f.Text, "13 plans") || len(f.Details) != status.StuckShown ||
		f.Next != "sagenbaum plan preview late" ||
		f.Details[0] != "late open, owner -: closed 1h00m ago" ||
		!strings.HasPrefix(f.Details[1], "p11 open, owner travel: closes in 1h00m") {
		t.Errorf("windows that close: %+v", f)
	}
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The preview says what the unwind then does, in its order and with its arguments.
func TestPreviewSaysWhatTheUnwindThenDoes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	open := s.begin(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"})
	report(t, open, "mail.send")
	report(t, open, "card.charge")
	doubt(t, open, "room.book")
	before := s.kept(t)
	r := s.run(t, cli.ExitLook, "plan preview p1")
	says(t, r, "STAGE  #  STEP        CAPABILITY", "probe", "room.book → room.look", "card.charge → card.refund",
		`amount=120 payment="pi_1"`,
		"to travel: irreversible: mail.send has no inverse",
		"would: 1 exact, 1 semantic, 1 to its owner travel · 1 in doubt · ends quarantined")
	for _, line := range strings.Split(r.Stdout, "\n") {
		if n := len([]rune(line)); n > render.TreeWidth {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	preview := cmdtest.Decoded[api.Preview](t, s.run(t, cli.ExitLook, "plan preview p1 -o json"))
	if s.kept(t) != before {
		t.Error("a preview has changed the ledger")
	}
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	if plan := s.plan(t, "p1"); plan.State != preview.End {
		t.Errorf("the plan ended %s, the preview said %s", plan.State, preview.End)
	}
	var foretold, did []string
	for _, step := range preview.Steps {
		if step.Step == plan.StepCompensate {
			foretold = append(foretold, step.Action+" "+compact(t, step.Arguments))
		}
	}
	for _, u := range cmdtest.Decoded[api.UndosAnswer](t, s.run(t, cli.ExitGood, "undo ls --plan p1 -o json")).Undos {
		did = append(did, u.Action)
	}
	if len(foretold) != 2 || len(did) != 2 || !strings.HasPrefix(foretold[0], "3 ") ||
		!strings.HasPrefix(foretold[1], "2 ") {
		t.Errorf("foretold %v, did %v", foretold, did)
	}
	s.run(t, cli.ExitFailed, "plan preview nowhere", "there is no plan nowhere", "next: sagenbaum plan ls")
}

func compact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

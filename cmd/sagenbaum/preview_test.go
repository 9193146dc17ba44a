package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
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
	r := s.run(t, exitLook, "plan preview p1")
	says(t, r, "STAGE  #  STEP        CAPABILITY", "probe", "room.book → room.look", "card.charge → card.refund", `amount=120 payment="pi_1"`,
		"to travel: irreversible: mail.send has no inverse", "would: 1 exact, 1 semantic, 1 to its owner travel · 1 in doubt · ends quarantined")
	for _, line := range strings.Split(r.stdout, "\n") {
		if n := len([]rune(line)); n > treeWidth {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	preview := decoded[executor.PreviewView](t, s.run(t, exitLook, "plan preview p1 -o json"))
	if s.kept(t) != before {
		t.Error("a preview has changed the ledger")
	}
	s.run(t, exitLook, "plan unwind p1 --reason 'no trip' --wait")
	if plan := s.plan(t, "p1"); plan.State != preview.End {
		t.Errorf("the plan ended %s, the preview said %s", plan.State, preview.End)
	}
	var foretold, did []string
	for _, step := range preview.Steps {
		if step.Step == stepCompensate {
			foretold = append(foretold, step.Action+" "+compact(t, step.Arguments))
		}
	}
	for _, u := range decoded[executor.UndosAnswer](t, s.run(t, exitGood, "undo ls --plan p1 -o json")).Undos {
		did = append(did, u.Action)
	}
	if len(foretold) != 2 || len(did) != 2 || !strings.HasPrefix(foretold[0], "3 ") || !strings.HasPrefix(foretold[1], "2 ") {
		t.Errorf("foretold %v, did %v", foretold, did)
	}
	s.run(t, exitFailed, "plan preview nowhere", "there is no plan nowhere", "next: sagenbaum plan ls")
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

func TestPreviewEndsWellOrIsToBeLookedAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		view executor.PreviewView
		good bool
	}{
		{executor.PreviewView{End: ledger.StateCompensated}, true},
		{executor.PreviewView{End: ledger.StateFailed}, true},
		{executor.PreviewView{End: ledger.StateOpen}, true},
		{executor.PreviewView{End: ledger.StateQuarantined}, false},
		{executor.PreviewView{End: ledger.StateUnwinding}, false},
		{executor.PreviewView{End: ledger.StateOpen, Refused: "no"}, false},
	} {
		if endsWell(c.view) != c.good {
			t.Errorf("%+v ends well: %v", c.view, !c.good)
		}
	}
}

func TestPreviewOfAPlanWithChildrenNamesThem(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	view := executor.PreviewView{Plan: "p1", State: "open", End: "compensated", Owner: "travel", Steps: []executor.PreviewStep{
		{Stage: 1, Plan: "c1", Number: 2, Action: "2", Capability: "hotel.book", Step: stepCompensate, Inverse: "hotel.cancel", Class: "compensable", Fidelity: "lossy", Outcome: "unknown", ClosesNs: now.Add(26 * time.Hour).UnixNano()},
		{Stage: 2, Plan: "p1", Number: 1, Action: "1", Capability: "note.read", Step: stepSkip, Class: "effectless", Outcome: "completed", Reason: "effectless: nothing to undo"},
	}}
	var out strings.Builder
	writePreview(&out, pen{}, view, now)
	want := `p1  open, an unwind now:
STAGE  #     STEP        CAPABILITY                 CLASS        FIDELITY  VALID UNTIL
1      c1/2  compensate  hotel.book → hotel.cancel  compensable  lossy     in 26h00m
                         in doubt: it may not have happened
2      1     skip        note.read                  effectless   -         -
                         effectless: nothing to undo
would: 1 lossy, 1 skipped · 1 in doubt · ends compensated
`
	if out.String() != want {
		t.Errorf("the preview is\n%swant\n%s", out.String(), want)
	}
}

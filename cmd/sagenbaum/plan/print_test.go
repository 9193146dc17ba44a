package plan

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestProgressCountsWhatIsSettled(t *testing.T) {
	plan := api.Plan{Plan: "p", State: ledger.StateUnwinding, Quarantined: 1, Actions: []api.Action{
		{Undo: "held"}, {Undo: "compensated"}, {Undo: "skipped"}, {Undo: "dispatched"},
		{Undo: "dispatched", NoWorker: true},
		{Undo: "waiting"}, {Undo: cli.UndoQuarantined}, {Undo: "owed"}, {Undo: "retired"},
	}}
	if got, want := progressText(
		plan), "[#####...............] 2 of 7 settled, 1 at work, 1 to be tried again, 1 without a worker, 1 "+
		"quarantined"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := progressText(api.Plan{Plan: "p", State: ledger.StateOpen}); got != "open" {
		t.Errorf("%q", got)
	}
}

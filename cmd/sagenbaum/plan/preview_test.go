package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestPreviewEndsWellOrIsToBeLookedAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shown api.Preview
		good  bool
	}{
		{api.Preview{End: ledger.StateCompensated}, true},
		{api.Preview{End: ledger.StateFailed}, true},
		{api.Preview{End: ledger.StateOpen}, true},
		{api.Preview{End: ledger.StateQuarantined}, false},
		{api.Preview{End: ledger.StateUnwinding}, false},
		{api.Preview{End: ledger.StateOpen, Refused: "no"}, false},
	} {
		if endsWell(c.shown) != c.good {
			t.Errorf("%+v ends well: %v", c.shown, !c.good)
		}
	}
}

func TestPreviewOfAPlanWithChildrenNamesThem(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	shown := api.Preview{Plan: "p1", State: "open", End: "compensated", Owner: "travel",
		Steps: []api.PreviewStep{
			{Stage: 1, Plan: "c1", Number: 2, Action: "2", Capability: "hotel.book", Step: StepCompensate,
				Inverse: "hotel.cancel", Class: "compensable", Fidelity: "lossy", Outcome: "unknown",
				ClosesNs: now.Add(26 * time.Hour).UnixNano()},
			{Stage: 2, Plan: "p1", Number: 1, Action: "1", Capability: "note.read", Step: StepSkip, Class: "effectless",
				Outcome: "completed", Reason: "effectless: nothing to undo"},
		}}
	var out strings.Builder
	WritePreview(&out, cli.Pen{}, shown, now)
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

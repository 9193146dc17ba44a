package plan

import (
	"slices"
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
			{Stage: 1, Plan: "p1", Number: 3, Action: "1~1", Capability: "hotel.book", Step: StepCompensate,
				Inverse: "hotel.cancel", Class: "compensable", Fidelity: "lossy", Outcome: "in_doubt", Found: true},
			{Stage: 2, Plan: "p1", Number: 1, Action: "1", Capability: "note.read", Step: StepSkip, Class: "effectless",
				Outcome: "completed", Reason: "effectless: nothing to undo"},
		}}
	var out strings.Builder
	WritePreview(&out, cli.Pen{}, shown, now)
	want := `p1  open, an unwind now:
STAGE  #        STEP        CAPABILITY                 CLASS        FIDELITY  VALID UNTIL
1      c1/2     compensate  hotel.book → hotel.cancel  compensable  lossy     in 26h00m
                            in doubt: it may not have happened
1      3 (1~1)  compensate  hotel.book → hotel.cancel  compensable  lossy     -
2      1        skip        note.read                  effectless   -         -
                            effectless: nothing to undo
would: 2 lossy, 1 skipped · 1 in doubt · ends compensated
`
	if out.String() != want {
		t.Errorf("the preview is\n%swant\n%s", out.String(), want)
	}
}

// What an unwind would touch is each action once, of the call of an MCP server with what that was
// called with, and not with its images.
func TestWhatWouldBeTouchedIsNamed(t *testing.T) {
	step := func(number int, kind, arguments string) api.PreviewStep {
		return api.PreviewStep{Plan: "p", Number: number, Action: "a", Capability: "files.write", Step: kind,
			Inverse: "mcp.files-1", Arguments: []byte(arguments)}
	}
	v := api.Preview{Plan: "p", Omitted: 2, Steps: []api.PreviewStep{
		step(5, stepProbe, `{"id":"x\u001b[31m"}`),
		step(5, StepCompensate, `{"id":"x"}`),
		step(4, StepSkip, ""),
		step(3, StepCompensate, `{"before":{"entries":[1]},"input":{"path":"/srv/a","content":"hi"},"recipe":"{}"}`),
		step(2, stepQuarantine, ""),
		step(1, StepCompensate, `{"input":{"of":"another"}}`),
		{Plan: "c", Number: 1, Action: "plan:c", Step: StepCompensate},
	}}
	all := []string{`5 (a)  files.write  id="x\u001b[31m"`, `3 (a)  files.write  path="/srv/a" content="hi"`, `2 (a)  files.write`,
		`1 (a)  files.write  input={"of":"another"}`, `c/1  plan:c`, "and 2 more"}
	if got := Touched(v, 10); !slices.Equal(got, all) {
		t.Errorf("%q, want %q", got, all)
	}
	if got, want := Touched(v, 2), append(all[:2:2], "and 5 more"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

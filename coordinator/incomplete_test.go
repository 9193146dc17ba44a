package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// large is an output of 100 KB, of which the undo reads the id, or a value of 80 KB.
func large(id string) map[string]any {
	return map[string]any{"id": id, "rows": strings.Repeat("r", 100<<10), "blob": strings.Repeat("b", 80<<10)}
}

func reports() (declared []contract.Contract) {
	for name, with := range map[string]string{"id": "=output.id", "blob": "=output.blob", "maybe": "=output.?blob",
		"none": "=input.path"} {
		declared = append(declared, contract.Contract{
			Capability: "report." + name, Class: contract.Compensable, Lift: []string{"id"},
			Inverse: &contract.Inverse{Call: "report.drop", With: map[string]any{"what": with}},
		})
	}
	return declared
}

// TestAnUndoHasWhatItReadsOfALargeOutput: the id is kept, and it is undone by it.
func TestAnUndoHasWhatItReadsOfALargeOutput(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: reports()})
	l.undo("report.drop", func(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil })
	for name, want := range map[string]struct {
		arguments string
		refused   bool // by Do: something that is read was not kept
		state     string
	}{
		"id":    {`{"what":"r7"}`, false, ledger.StateCompensated},
		"none":  {`{"what":"in"}`, false, ledger.StateCompensated},
		"maybe": {`{"what":null}`, true, ledger.StateCompensated},
		"blob":  {"", true, ledger.StateQuarantined},
	} {
		p := l.begin(coordinator.PlanSpec{ID: name})
		output, err := p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "report." + name,
			Input: map[string]string{"path": "in"}},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				return coordinator.Outcome{Output: large("r7"), ExternalRef: "x"}, nil
			})
		var refused *ledger.Refused
		if errors.As(err, &refused) != want.refused || err != nil && !want.refused {
			t.Errorf("%s: %v", name, err)
		}
		if len(output) < 180<<10 {
			t.Errorf("%s: the caller gets %d bytes", name, len(output))
		}
		if err := p.Fail(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
		l.ends(p, want.state)
		a := l.showsAction(name, "a", func(api.Action) bool { return true })
		if !a.Incomplete || want.state == ledger.StateQuarantined && !strings.Contains(a.Note, "output.blob is not there") {
			t.Errorf("%s: %+v", name, a)
		}
		sent := ""
		for _, c := range l.undone {
			if c.Plan == name {
				sent = string(c.Arguments)
			}
		}
		if sent != want.arguments {
			t.Errorf("%s: sent %s, want %s", name, sent, want.arguments)
		}
	}
	for _, r := range l.keeps(t) {
		if k := r.GetForwardCompleted(); k != nil && (string(k.Lifted) != `{"id":"r7"}` || !k.OutputIncomplete) {
			t.Errorf("%v", r)
		}
		if output := r.Payload.GetOutput(); r.Plan == "id" && len(output) > 0 && string(output) != `{"id":"r7"}` {
			t.Errorf("kept %s", output)
		}
	}
}

// TestAnUndoHasWhatItReadsOfADeepOutput: readers of JSON have a limit, and what is read of it is
// kept as that of a large one.
func TestAnUndoHasWhatItReadsOfADeepOutput(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: reports()})
	l.undo("report.drop", func(context.Context, api.Command) (worker.Result, error) { return worker.Result{}, nil })
	deep := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	for name, want := range map[string]string{
		"id": ledger.StateCompensated, "blob": ledger.StateQuarantined,
	} {
		p := l.begin(coordinator.PlanSpec{ID: name})
		output, err := p.Do(t.Context(), coordinator.Action{ID: "a", Capability: "report." + name},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				return coordinator.Outcome{Output: map[string]any{"id": "r7", "blob": json.RawMessage(deep)}}, nil
			})
		var refused *ledger.Refused
		if errors.As(err, &refused) != (name == "blob") || len(output) < 2000 {
			t.Errorf("%s: %v, and the caller gets %d bytes", name, err, len(output))
		}
		if err := p.Fail(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
		l.ends(p, want)
		a := l.showsAction(name, "a", func(api.Action) bool { return true })
		if kept := map[string]string{"id": `{"id":"r7"}`}[name]; !a.Incomplete || string(a.Output) != kept {
			t.Errorf("%s: kept %s", name, a.Output)
		}
	}
}

// TestAReportKeepsWhatIsRead, and is refused when that does not fit.
func TestAReportKeepsWhatIsRead(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: reports()})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	if err := p.Report(t.Context(), coordinator.Action{ID: "a", Capability: "report.id"},
		coordinator.Outcome{Output: large("r7")}); err != nil {
		t.Fatal(err)
	}
	var refused *ledger.Refused
	err := p.Report(t.Context(), coordinator.Action{ID: "b", Capability: "report.blob"},
		coordinator.Outcome{Output: large("r7")})
	if !errors.As(err, &refused) || refused.Field != "records" {
		t.Errorf("%v", err)
	}
	if actions := l.shown("p").Actions; len(actions) != 1 || string(actions[0].Output) != `{"id":"r7"}` {
		t.Errorf("%+v", actions)
	}
}

// TestARunDoesNotReturnAPartOfAnOutput: what a call returns is the same each time.
func TestARunDoesNotReturnAPartOfAnOutput(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	l.declared = reports()
	ctx, cancel := bounded(t)
	defer cancel()
	ran := 0
	for range 2 {
		life, lose := context.WithCancel(ctx)
		p := l.process()
		err := p.Run(life, config("r"), func(ctx context.Context, plan *replay.Plan) error {
			_, err := plan.Do(ctx, replay.Action{ID: "a", Capability: "report.id"},
				func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
					ran++
					return coordinator.Outcome{Output: large("r7")}, nil
				})
			var refused *ledger.Refused
			if !errors.As(err, &refused) || refused.Field != "records" {
				t.Errorf("%v", err)
			}
			waitCommitted(t, l, "r", 1)
			return p.lose(lose)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a life ends with %v", err)
		}
	}
	if ran != 1 {
		t.Errorf("ran %d times", ran)
	}
}

// TestAHandlerWithoutItsOutputStops: the process that had all of it is gone.
func TestAHandlerWithoutItsOutputStops(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	ctx, cancel := bounded(t)
	defer cancel()
	ctx1, lose := context.WithCancel(ctx)
	function := func(end func() error) func(context.Context, *replay.Plan) error {
		return func(ctx context.Context, p *replay.Plan) error {
			_, _ = p.Do(ctx, w.action("a"), func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				return coordinator.Outcome{Output: json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`)}, nil
			})
			return end()
		}
	}
	first := l.process()
	_ = first.Run(ctx1, config("h"), function(func() error { waitCommitted(t, l, "h", 1); return first.lose(lose) }))
	err := l.process().Run(ctx, config("h"), function(func() error { return errNoRoom }))
	wantUnwound(t, err, ledger.StateQuarantined)
	if a := l.showsAction("h", "a", func(api.Action) bool { return true }); !strings.Contains(a.Note,
		"too large to be kept") || w.undoneText() != "" {
		t.Errorf("%+v, undone %q", a, w.undoneText())
	}
}

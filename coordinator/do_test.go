package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
)

type page struct {
	Title string `json:"title"`
	Words int    `json:"words"`
}

func TestDoReturnsTheValueThatIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), nil), PlanSpec{})
		got, err := Do(t.Context(), p, Action{Capability: "file.read"}, func(context.Context, Call) (page, error) {
			return page{"report", 7}, nil
		})
		if err != nil || got != (page{"report", 7}) {
			t.Errorf("%+v, %v", got, err)
		}
		none, err := Do(t.Context(), p, Action{Capability: "file.read"}, func(context.Context, Call) (any, error) {
			return nil, nil
		})
		if err != nil || none != nil {
			t.Errorf("%v, %v", none, err)
		}
	})
}

func TestDoReturnsTheErrorOfItsForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), nil), PlanSpec{})
		full := errors.New("disk full")
		got, err := Do(t.Context(), p, Action{Capability: "file.read"}, func(context.Context, Call) (page, error) {
			return page{"half", 1}, NotTaken(full)
		})
		if !errors.Is(err, full) || !errors.Is(err, ErrNotTaken) || got != (page{}) {
			t.Errorf("%+v, %v", got, err)
		}
		var refused *Refused
		_, err = Do[page](t.Context(), p, Action{Capability: "file.read"}, nil)
		if !errors.As(err, &refused) || refused.Field != "forward" {
			t.Errorf("no forward: %v", err)
		}
	})
}

// TestDoReturnsNumbersExactly, also those of which it does not know what they are: the next action would
// otherwise take another order.
func TestDoReturnsNumbersExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), nil), PlanSpec{})
		read := Action{Capability: "file.read"}
		order, err := Do(t.Context(), p, read, func(context.Context, Call) (map[string]any, error) {
			return map[string]any{"order": int64(9007199254740993), "price": 1.5}, nil
		})
		if err != nil || order["order"] != json.Number("9007199254740993") || order["price"] != json.Number("1.5") {
			t.Errorf("%v, %v", order, err)
		}
		type charge struct{ Of any }
		read.Input = order["order"]
		paid, err := Do(t.Context(), p, read, func(_ context.Context, call Call) (charge, error) {
			return charge{Of: call.Input}, nil
		})
		if err != nil || paid.Of != json.Number("9007199254740993") {
			t.Errorf("%v, %v", paid, err)
		}
	})
}

// TestDoReturnsTheValueThatCannotBeRecorded beside the refusal, as its forward has returned it.
func TestDoReturnsTheValueThatCannotBeRecorded(t *testing.T) {
	type charge struct {
		ID   string
		Done func()
	}
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), nil), PlanSpec{})
		paid, err := Do(t.Context(), p, Action{Capability: "file.read"}, func(context.Context, Call) (charge, error) {
			return charge{ID: "ch_1", Done: func() {}}, nil
		})
		if wantRefused(t, err, "outcome.output"); paid.ID != "ch_1" || paid.Done == nil {
			t.Errorf("%+v", paid)
		}
	})
}

// doer is a plan with an action that is recorded with another output.
type doer struct{ output string }

func (d doer) Do(context.Context, Action, Forward) (json.RawMessage, error) {
	return json.RawMessage(d.output), nil
}

func TestDoSaysThatWhatIsRecordedIsAnotherKindOfValue(t *testing.T) {
	never := func(context.Context, Call) (page, error) { panic("not called") }
	got, err := Do(t.Context(), doer{`{"title":"report","words":7}`}, Action{ID: "a"}, never)
	if err != nil || got.Words != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	const want = `cannot read output of action "a" as coordinator.page: ` +
		`json: cannot unmarshal string into Go value of type coordinator.page`
	if _, err = Do(t.Context(), doer{`"report"`}, Action{ID: "a"}, never); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no such field") }

// TestAValueThatPanicsWhenItIsEncodedIsRefused, and leaves no forward that seems to run.
func TestAValueThatPanicsWhenItIsEncodedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, start(t, memory(), nil), PlanSpec{})
		var refused *Refused
		_, err := p.Do(t.Context(), Action{Capability: "file.read"}, func(context.Context, Call) (Outcome, error) {
			return Outcome{Output: panics{}}, nil
		})
		if !errors.As(err, &refused) || refused.Field != "outcome.output" {
			t.Errorf("an output that panics: %v", err)
		}
		_, err = p.Do(t.Context(), Action{Capability: "file.read", Input: panics{}}, never(t))
		if !errors.As(err, &refused) || refused.Field != "action.input" {
			t.Errorf("an input that panics: %v", err)
		}
		if err := p.Commit(t.Context()); !errors.Is(err, ErrUnconfirmed) {
			t.Errorf("the commit of a plan whose forwards have returned: %v", err)
		}
	})
}

// TestAClosedCoordinatorBeginsNothing.
func TestAClosedCoordinatorBeginsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, memory(), nil)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Begin(t.Context(), PlanSpec{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Begin: %v", err)
		}
	})
}

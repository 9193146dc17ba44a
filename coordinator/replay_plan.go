package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// ReplayPlan is the plan of a Run, as its function sees it. It is safe for
// concurrent use, and of no use after the function's end.
type ReplayPlan struct{ r *run }

// ID is the plan's id in the ledger.
func (p *ReplayPlan) ID() string { return p.r.config.Plan.ID }

// Do is Plan.Do for a function that may be run again: of an action that is
// recorded it returns what is recorded, byte for byte, and the forward does not run.
// An action with an Undo is undone by that handler.
//
// An action without an ID gets the number of the call. Actions that are started
// side by side are branches: they have an ID and Branch, and in After what they come
// after, so that their order is the same each time.
//
// Errors beside those of Plan.Do: *Diverged, *Recorded, ErrInterrupted,
// ErrSuperseded; and ErrUnwinding for what is not recorded, once the plan is being undone.
func (p *ReplayPlan) Do(ctx context.Context, declared Action, forward Forward) (json.RawMessage,
	error) {
	output, err := p.r.do(ctx, declared, forward)
	if err != nil {
		p.r.broke(err)
	}
	return output, err
}

// do carries out one call of the function.
func (r *run) do(ctx context.Context, declared Action, forward Forward) (json.RawMessage, error) {
	if forward == nil {
		return nil, fmt.Errorf("cannot register action %q: %w", declared.ID,
			ledger.Refuse("forward", "missing", "a function"))
	}
	declared, past, err := r.enter(ctx, declared)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot register action %q: %w", declared.ID, err)
	case past == nil:
		output, err := r.plan.do(ctx, declared, r.observed(declared.ID, forward))
		return output, err
	}
	return r.again(ctx, declared, past, forward)
}

// enter finds what is recorded of a call, nil for nothing, and refuses one that is
// another than recorded. The handler of the action is in place when it returns.
func (r *run) enter(ctx context.Context, declared Action) (Action, *api.PastAction, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return declared, nil, r.broken
	}
	if declared.ID == "" {
		if declared.Branch {
			return declared, nil, ledger.Refuse("action.id", "missing", "an id, for a branch")
		}
		declared.ID = strconv.Itoa(len(r.called) + 1)
	}
	past := r.past[declared.ID]
	if err := r.follows(declared, past); err != nil {
		return declared, nil, err
	}
	if past != nil && r.forwards[past.Action].Capability != declared.Capability {
		return declared, nil, r.diverged(past.Action, "capability", r.forwards[past.Action].Capability,
			declared.Capability)
	}
	handler, err := r.compile(ctx, &declared, past)
	if err != nil {
		return declared, nil, err
	}
	d, err := r.draftOf(ctx, declared)
	if err != nil {
		return declared, nil, err
	}
	if past != nil {
		err = r.compare(d, past)
	} else if r.plan == nil {
		err = fmt.Errorf("%w (%s)", ErrUnwinding, r.state)
	}
	if err != nil {
		return declared, nil, err
	}
	if err := r.handlers.put(declared, handler, d.input, past); err != nil {
		return declared, nil, err
	}
	r.called[declared.ID] = true
	return declared, past, nil
}

// draftOf checks a declaration as a first call would.
func (r *run) draftOf(ctx context.Context, declared Action) (*draft, error) {
	if r.plan != nil {
		return r.plan.draft(ctx, declared, nil)
	}
	d := &draft{Action: declared, contract: declared.compiled} // nothing will be registered
	var err error
	if len(d.contract.Sensitive) > 0 {
		if err := r.vault.unlock(ctx); err != nil {
			return nil, err
		}
	}
	d.input, err = encode("action.input", declared.Input)
	return d, err
}

// follows refuses a call whose place is another than recorded. A sequential
// action comes after all that is recorded before it; a new one, after all that is
// recorded. Branches may be started in any order.
func (r *run) follows(declared Action, past *api.PastAction) error {
	for r.next < len(r.order) && r.called[r.order[r.next]] {
		r.next++
	}
	for _, id := range r.order[r.next:] {
		other := r.past[id]
		switch {
		case past != nil && other.Number >= past.Number:
			return nil
		case r.called[id], past != nil && declared.Branch, past == nil && declared.Branch &&
			r.forwards[id].Branch:
		// it will be refused; whether it is one too many is seen at the end
		case past == nil && r.plan == nil:
		default:
			return r.diverged(id, "action", strconv.Quote(id), strconv.Quote(declared.ID))
		}
	}
	return nil
}

// compare refuses a call that differs from what is recorded of it, by its first
// field that does; its capability is the same.
func (r *run) compare(d *draft, past *api.PastAction) error {
	f := r.forwards[past.Action]
	input := inputDigest(r.vault.seal(d.contract, past.Action, "input", d.input)) // as it is recorded
	if plain := inputDigest(d.input); bytes.Equal(past.Input, plain) {
		input = plain // by a contract without the sensitive field
	}
	class, digest := d.contract.Recorded()
	keep := r.config.OnChange == KeepRecorded
	for _, field := range []struct {
		name          string
		same          bool
		recorded, now any
	}{
		{"class", f.Class == class, f.Class, class},
		{"input", bytes.Equal(past.Input, input), digestText(past.Input), digestText(input)},
		{"version", keep || past.HandlerVersion == d.version, dash(past.HandlerVersion), dash(d.version)},
		{"contract", keep || bytes.Equal(f.ContractDigest, digest), digestText(f.ContractDigest),
			digestText(digest)},
		{"after", slices.Equal(f.After, d.After), f.After, d.After},
		{"branch", f.Branch == d.Branch, f.Branch, d.Branch},
		{"pivot", f.Pivot == d.Pivot, f.Pivot, d.Pivot},
		{"review", f.Review == (d.Review || d.contract.Review), f.Review, d.Review},
	} {
		if !field.same {
			return r.diverged(past.Action, field.name, field.recorded, field.now)
		}
	}
	return nil
}

func inputDigest(input json.RawMessage) []byte {
	if len(input) == 0 {
		return nil
	}
	sum := sha256.Sum256(input)
	return sum[:]
}

func (r *run) diverged(action, field string, recorded, now any) *Diverged {
	return &Diverged{Plan: r.config.Plan.ID, Action: action, Field: field,
		Recorded: fmt.Sprint(recorded), Now: fmt.Sprint(now)}
}

func dash(text string) string { return cmp.Or(text, "-") }

func digestText(sum []byte) string {
	if len(sum) == 0 {
		return "none"
	}
	return fmt.Sprintf("sha256 %x", sum[:min(8, len(sum))])
}

// again answers a call that is recorded.
func (r *run) again(ctx context.Context, declared Action, past *api.PastAction,
	forward Forward) (json.RawMessage, error) {
	unknown := past.Outcome == api.OutcomeUnknown || past.Code == codePanic &&
		past.Outcome == api.OutcomeInDoubt
	switch {
	case past.Outcome == api.OutcomeCompleted && past.Incomplete:
		return output(past), fmt.Errorf("cannot read output of action %q: %w", past.Action, errNotKept)
	case past.Outcome == api.OutcomeCompleted:
		return output(past), nil
	case unknown && r.plan == nil:
		return nil, fmt.Errorf("cannot start action %q: %w (%s)", past.Action, ErrUnwinding, r.state)
	case !unknown:
		return nil, &Recorded{Action: past.Action, Outcome: past.Outcome, Code: past.Code,
			Message: past.Message}
	}
	a, err := r.plan.adopted(declared, past)
	if err != nil {
		return nil, err
	}
	forward, err = r.doubted(ctx, a, declared, past, forward)
	if err != nil {
		return nil, err
	}
	return a.execute(ctx, r.observed(past.Action, forward))
}

// errNotKept is what a call returns whose output could not be recorded as it was.
var errNotKept = ledger.Refuse("records", "the output was too large to be recorded",
	"an output that fits, with larger values by reference")

func output(past *api.PastAction) json.RawMessage {
	if len(past.Output) == 0 {
		return nil
	}
	return bytes.Clone(past.Output)
}

// observed has the handler of an action know its outcome, and leaves one open that
// the end of the Run has made uncertain.
func (r *run) observed(action string, forward Forward) Forward {
	return func(ctx context.Context, call Call) (Outcome, error) {
		before := r.plan.before(action)
		outcome, err := forward(ctx, call)
		switch {
		case err == nil:
			r.handlers.completed(action, before, outcome)
		case r.ctx.Err() != nil && !errors.Is(err, ErrNotTaken):
			return outcome, fmt.Errorf("%w: %w", errLeftOpen, err)
		}
		return outcome, err
	}
}

// before is the before-image of an action that this process has registered.
func (p *Plan) before(action string) json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.actions[action].before
}

// broke keeps the error after which the function cannot go on.
func (r *run) broke(err error) {
	var diverged *Diverged
	if !errors.As(err, &diverged) && !errors.Is(err, ErrSuperseded) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.broken = err
	}
}

// missing is the first recorded action that the function has not called. When the
// plan is being undone only those count whose handler may be needed.
func (r *run) missing(cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.order {
		if past := r.past[id]; !r.called[id] &&
			(r.plan != nil || past.HandlerVersion != "" && r.owed[id]) {
			diverged := r.diverged(id, "action", strconv.Quote(id), "the function's end")
			diverged.Cause = cause
			return diverged
		}
	}
	return nil
}

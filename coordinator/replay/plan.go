package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Plan is the plan of a Run, as its function sees it. It is safe for
// concurrent use, and of no use after the function's end.
type Plan struct{ r *run }

// ID is the plan's id in the ledger.
func (p *Plan) ID() string { return p.r.config.Plan.ID }

// Do is Plan.Do for a function that may be run again: of an action that is
// recorded it returns what is recorded, byte for byte, and the forward does not run. Of one that
// was undone since, it returns a *Recorded that is ErrPartUndone.
// An action with an Undo is undone by that handler.
//
// An action without an ID gets the number of the call. Actions that are started
// side by side are branches: they have an ID and Branch, and in After what they come
// after, so that their order is the same each time.
//
// Errors beside those of Plan.Do: *Diverged, *Recorded, ErrInterrupted,
// ErrSuperseded; and ErrUnwinding for what is not recorded, once the plan is being undone.
func (p *Plan) Do(ctx context.Context, declared Action, forward coordinator.Forward) (
	json.RawMessage, error) {
	output, err := p.r.do(ctx, declared, forward)
	if err != nil {
		p.r.broke(err)
	}
	return output, err
}

// named is what an error calls an action: its id, or what it does where it has none.
func named(declared Action) string {
	return cmp.Or(declared.ID, declared.Capability)
}

// do carries out one call of the function.
func (r *run) do(ctx context.Context, declared Action, forward coordinator.Forward) (
	json.RawMessage, error) {
	if forward == nil {
		return nil, fmt.Errorf("cannot register action %q: %w", named(declared),
			ledger.Refuse("forward", "missing", "a function"))
	}
	declared, plain, past, err := r.enter(ctx, declared)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot register action %q: %w", named(declared), err)
	case past == nil:
		return r.claim.Plan.Do(ctx, plain, r.observed(declared.ID, forward))
	}
	return r.again(ctx, declared, plain, past, forward)
}

// enter finds what is recorded of a call, nil for nothing, and refuses one that is
// another than recorded. The handler of the action is in place when it returns. plain is the
// action as it is registered.
func (r *run) enter(ctx context.Context, declared Action) (
	_ Action, plain coordinator.Action, past *coordinator.PastAction, err error,
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return declared, plain, nil, r.broken
	}
	if declared.ID == "" {
		if declared.Branch {
			return declared, plain, nil, ledger.Refuse("action.id", "missing", "an id, for a branch")
		}
		declared.ID = strconv.Itoa(len(r.called) + 1)
	}
	past = r.past[declared.ID]
	plain, err = r.place(ctx, declared, past)
	if err == nil {
		r.called[declared.ID] = true
	}
	return declared, plain, past, err
}

// place puts a call in its place: after what is recorded, with its contract and its handler.
// Called with mu held.
func (r *run) place(
	ctx context.Context, declared Action, past *coordinator.PastAction,
) (plain coordinator.Action, err error) {
	plain = declared.plain()
	if err := r.follows(declared, past); err != nil {
		return plain, err
	}
	if past != nil && past.Registered.Capability != declared.Capability {
		return plain, r.diverged(past.Action, "capability", past.Registered.Capability,
			declared.Capability)
	}
	call, under, version, err := r.compile(ctx, declared, past)
	if err != nil {
		return plain, err
	}
	plain = r.claim.With(plain, under, version)
	d, err := r.claim.Draft(ctx, plain)
	switch {
	case err != nil:
		return plain, err
	case past != nil:
		err = r.compare(declared, d, version, past)
	case r.claim.Plan == nil:
		err = fmt.Errorf("%w (%s)", coordinator.ErrUnwinding, r.claim.State)
	}
	if err == nil {
		err = r.handlers.put(declared, version, call, d.Input, past)
	}
	return plain, err
}

// follows refuses a call whose place is another than recorded. A sequential
// action comes after all that is recorded before it; a new one, after all that is
// recorded. Branches may be started in any order.
func (r *run) follows(declared Action, past *coordinator.PastAction) error {
	for r.next < len(r.claim.Past) && r.called[r.claim.Past[r.next].Action] {
		r.next++
	}
	for i := range r.claim.Past[r.next:] {
		other := &r.claim.Past[r.next+i]
		id := other.Action
		switch {
		case past != nil && other.Number >= past.Number:
			return nil
		case r.called[id], other.Undone, past != nil && declared.Branch, past == nil && declared.Branch &&
			other.Registered.Branch:
		// it will be refused; whether it is one too many is seen at the end. What was undone
		// is not to be called again: the function may have heard of that before
		case past == nil && r.claim.Plan == nil:
		default:
			return r.diverged(id, "action", strconv.Quote(id), strconv.Quote(declared.ID))
		}
	}
	return nil
}

// compare refuses a call that differs from what is recorded of it, by its first
// field that does; its capability is the same.
func (r *run) compare(
	declared Action, d coordinator.Draft, version string, past *coordinator.PastAction,
) error {
	f, input := past.Registered, d.Digest
	if bytes.Equal(past.Input, d.Plain) {
		input = d.Plain
	}
	class, digest := d.Contract.Recorded()
	keep := r.config.OnChange == KeepRecorded
	for _, field := range []struct {
		name          string
		same          bool
		recorded, now any
	}{
		{"class", f.Class == class, f.Class, class},
		{"input", bytes.Equal(past.Input, input), digestText(past.Input), digestText(input)},
		{"version", keep || past.HandlerVersion == version, dash(past.HandlerVersion),
			versionText(version, declared.Undo)},
		{"contract", keep || bytes.Equal(f.ContractDigest, digest), digestText(f.ContractDigest),
			digestText(digest)},
		{"after", slices.Equal(f.After, declared.After), f.After, declared.After},
		{"branch", f.Branch == declared.Branch, f.Branch, declared.Branch},
		{"pivot", f.Pivot == declared.Pivot, f.Pivot, declared.Pivot},
		{"stage", (f.Deliver != nil) == declared.staged, f.Deliver != nil, declared.staged},
		{"review", f.Review == (declared.Review || d.Contract.Review), f.Review, declared.Review},
	} {
		if !field.same {
			return r.diverged(past.Action, field.name, field.recorded, field.now)
		}
	}
	return nil
}

func (r *run) diverged(action, field string, recorded, now any) *Diverged {
	return &Diverged{Plan: r.config.Plan.ID, Action: action, Field: field,
		Recorded: fmt.Sprint(recorded), Now: fmt.Sprint(now)}
}

func dash(text string) string { return cmp.Or(text, "-") }

// versionText is a version, and whose it is where it is that of the program.
func versionText(version string, u *Undo) string {
	if version != "" && u != nil && u.Version == "" {
		return version + ", that of this program, as Undo.Version is empty"
	}
	return dash(version)
}

func digestText(sum []byte) string {
	if len(sum) == 0 {
		return "none"
	}
	return fmt.Sprintf("sha256 %x", sum[:min(8, len(sum))])
}

// again answers a call that is recorded.
func (r *run) again(
	ctx context.Context, declared Action, plain coordinator.Action, past *coordinator.PastAction,
	forward coordinator.Forward,
) (json.RawMessage, error) {
	switch {
	case past.Undone: // whatever has become of it
		return nil, &coordinator.Recorded{Action: past.Action, Capability: past.Registered.Capability,
			Outcome: past.Outcome, Code: past.Code, Message: past.Message, Output: output(past),
			ExternalRef: past.ExternalRef, Undone: true}
	case past.Outcome == api.OutcomeCompleted && past.Incomplete:
		return output(past), fmt.Errorf("cannot read output of action %q: %w", past.Action, errNotKept)
	case past.Outcome == api.OutcomeCompleted:
		return output(past), nil
	case past.Doubtful() && r.claim.Plan == nil:
		return nil, fmt.Errorf("cannot start action %q: %w (%s)", past.Action,
			coordinator.ErrUnwinding, r.claim.State)
	case !past.Doubtful():
		return nil, &coordinator.Recorded{Action: past.Action, Outcome: past.Outcome, Code: past.Code,
			Message: past.Message}
	}
	a, err := r.claim.Adopt(plain, past)
	if err != nil {
		return nil, err
	}
	forward, err = r.doubted(ctx, a, declared, past, forward)
	if err != nil {
		return nil, err
	}
	return a.Do(ctx, r.observed(past.Action, forward))
}

// errNotKept is what a call returns whose output could not be recorded as it was.
var errNotKept = ledger.Refuse("records", "the output was too large to be recorded",
	"an output that fits, with larger values by reference")

func output(past *coordinator.PastAction) json.RawMessage {
	if len(past.Output) == 0 {
		return nil
	}
	return bytes.Clone(past.Output)
}

// observed has the handler of an action know its outcome, and leaves one open that
// the end of the Run has made uncertain.
func (r *run) observed(action string, forward coordinator.Forward) coordinator.Forward {
	return func(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
		before := r.claim.Before(action)
		outcome, err := forward(ctx, call)
		switch {
		case err == nil:
			r.handlers.completed(action, before, outcome)
		case r.ctx.Err() != nil && !errors.Is(err, coordinator.ErrNotTaken):
			return outcome, fmt.Errorf("%w: %w", coordinator.ErrLeftOpen, err)
		}
		return outcome, err
	}
}

// broke keeps the error after which the function cannot go on.
func (r *run) broke(err error) {
	var diverged *Diverged
	if !errors.As(err, &diverged) && !errors.Is(err, coordinator.ErrSuperseded) {
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
	for i := range r.claim.Past {
		past := &r.claim.Past[i]
		if id := past.Action; !r.called[id] && !past.Undone &&
			(r.claim.Plan != nil || past.HandlerVersion != "" && r.claim.Owed[id]) {
			diverged := r.diverged(id, "action", strconv.Quote(id), "the function's end")
			diverged.Cause = cause
			return diverged
		}
	}
	return nil
}

// Do is Plan.Do for a forward that returns a value, as coordinator.Do is.
func Do[T any](ctx context.Context, p *Plan, declared Action,
	forward func(context.Context, coordinator.Call) (T, error)) (T, error) {
	return coordinator.Do(ctx, doer{p, declared}, declared.plain(), forward)
}

// doer runs one action, however it is declared.
type doer struct {
	p        *Plan
	declared Action
}

func (d doer) Do(ctx context.Context, _ coordinator.Action, forward coordinator.Forward) (
	json.RawMessage, error) {
	return d.p.Do(ctx, d.declared, forward)
}

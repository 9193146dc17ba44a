package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// A call that waits for a verdict has the lock of its server twice: while it is asked what is there
// before, and from the verdict on. Between them other calls and undos have it, so what was there is
// compared before the tool is called.

// wholeKey is where the context of a question has that of the call: it may wait for the lock as
// long as the call, and the time of the question counts from then.
type wholeKey struct{}

// turn is the lock of a server, for one call.
type turn struct {
	guard   *lock
	release func() // nil: it is not held
}

func (t *turn) take(ctx context.Context) (err error) {
	t.release, err = t.guard.take(ctx)
	return err
}

func (t *turn) end() {
	if t.release != nil {
		t.release()
		t.release = nil
	}
}

// askFor asks what is there before a call.
func (s *Server) askFor(ctx context.Context, t Tool,
	input json.RawMessage) (json.RawMessage, error) {
	vars := triggers.BindingVars{Input: input}
	until, timed := ctx.Deadline()
	whole, called := ctx.Value(wholeKey{}).(context.Context)
	if !t.Review || !called {
		return s.ask(ctx, *t.Before, vars)
	}
	left := time.Until(until)
	release, err := s.guard.take(whole)
	if err != nil {
		return nil, err
	}
	defer release()
	if timed {
		var cancel context.CancelFunc
		whole, cancel = context.WithTimeout(whole, left)
		defer cancel()
	}
	return s.ask(whole, *t.Before, vars)
}

// Why a call is not made after its verdict.
var (
	errStale = errors.New("what was there before it has changed while it waited for its verdict, " +
		"so its undo would put back what is no longer there: call again, with another key where " +
		"it has one, for a verdict on what is there now")
	errForgotten = errors.New("what was there when its verdict was asked for is not known here " +
		"any more, so whether its undo would put that back is not known either: call again, with " +
		"another key, for a verdict on what is there now")
)

// begin takes the lock after a verdict, and looks whether the undo of the call would put back what
// is there now. Errors: coordinator.ErrNotTaken.
func (u *run) begin(ctx context.Context, before json.RawMessage) error {
	if !u.r.contract.Review {
		return nil
	}
	if err := u.turn.take(ctx); err != nil {
		return coordinator.NotTaken(err)
	}
	switch {
	case u.r.contract.Before == nil:
		return nil
	case len(before) == 0:
		return coordinator.NotTaken(errForgotten)
	}
	now, err := u.r.server.ask(ctx, *u.r.contract.Before, triggers.BindingVars{
		Input: object(u.r.arguments)})
	if err != nil {
		return coordinator.NotTaken(err)
	}
	same, err := u.r.server.unchanged(before, now, alike)
	switch {
	case err != nil:
		return coordinator.NotTaken(err)
	case !same:
		return coordinator.NotTaken(errStale)
	}
	return nil
}

func alike(x, y files.Image) (bool, error) { return files.Alike(x, y), nil }

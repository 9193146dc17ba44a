package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// answer is how a call has ended.
type answer struct {
	result *sdk.CallToolResult
	err    error
}

// failed reports whether the server has said that the call failed.
func (a answer) failed() bool {
	var wire *jsonrpc.Error
	return errors.As(a.err, &wire) || a.err == nil && failed(a.result)
}

// goesOn reports whether the server may still be at work on a call that has ended: it is at a URL,
// and has said nothing.
func (s *Server) goesOn(a answer) bool {
	return s.remote() && a.err != nil && !a.failed() && !errors.Is(a.err, errNotReached)
}

// act calls a tool that has an effect. settled is closed once nothing of the call can happen any
// more. Errors: as call, or why it was given up.
func (s *Server) act(ctx context.Context, c toolCall) (result *sdk.CallToolResult,
	settled <-chan struct{}, err error) {
	ended := make(chan struct{})
	if ctx.Err() != nil {
		close(ended)
		return nil, ended, fmt.Errorf("%w: %w", errNotReached, context.Cause(ctx))
	}
	c.name = fmt.Sprint(s.named.Add(1))
	s.calls.begin(c.name)
	answered := make(chan answer, 1)
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() { // ends with the call, at the latest when the server is ended
		defer cancel()
		defer s.calls.done(c.name)
		result, err := s.call(calling, c)
		answered <- answer{result, err}
	}()
	select {
	case a := <-answered:
		if s.goesOn(a) {
			time.AfterFunc(s.config.Settle, func() { close(ended) })
		} else {
			close(ended)
		}
		return a.result, ended, a.err
	case <-ctx.Done():
	}
	sent := s.calls.giveUp(c.name)
	go func() { // ends with the call
		defer close(ended)
		if sent {
			a := s.finish(calling, cancel, c, context.Cause(ctx), answered)
			if c.late != nil && a.err == nil && !a.failed() {
				c.late(a.result)
			}
			return
		}
		late := time.AfterFunc(s.config.Settle/2, cancel) // a start that takes too long
		defer late.Stop()
		<-answered
	}()
	if !sent {
		return nil, ended, fmt.Errorf("%w: %w", errNotReached, context.Cause(ctx))
	}
	return nil, ended, context.Cause(ctx)
}

// finish returns the answer to a call that was given up, once nothing of it can happen any more. It
// may be answered soon; then it is cancelled, and a server that is told need not answer, nor has it
// stopped when it answers with an error; and a server that goes on for all that is ended. One at a
// URL cannot be ended: it has all of the time to settle.
func (s *Server) finish(ctx context.Context, cancel func(), c toolCall, why error,
	answered <-chan answer) answer {
	late := time.NewTimer(s.config.Settle / 4)
	defer late.Stop()
	select {
	case a := <-answered:
		if s.goesOn(a) {
			<-time.After(s.config.Settle)
		}
		return a
	case <-late.C:
	}
	go func() { // ends with the call, or its server
		if err := s.calls.cancel(ctx, c.name, why.Error()); err != nil {
			s.logger.Debug("a server does not know that a call was given up", "server", s.config.Name,
				"tool", c.tool, "error", err)
		}
	}()
	rest, end := s.config.Settle/4, s.kill
	if s.remote() {
		rest, end = s.config.Settle*3/4, cancel
	}
	late.Reset(rest)
	select {
	case a := <-answered:
		if a.failed() || s.goesOn(a) {
			<-late.C
		}
		return a
	case <-late.C:
		s.logger.Warn("a call that was given up has no answer: it is not waited for any longer",
			"server", s.config.Name, "tool", c.tool)
		end()
		return <-answered
	}
}

// kill ends the server at once; the next call starts it again.
func (s *Server) kill() {
	s.mu.Lock()
	session, process := s.session, s.child
	s.mu.Unlock()
	if process != nil { // else it has ended
		process.End()
	}
	if session != nil {
		s.await(context.Background(), session)
	}
}

// Codes of undos that are left to their owner.
const (
	codeInDoubt = "in_doubt" // a call may have been made, and a second one is not known to be safe
	codeUnnamed = "unnamed"  // nothing says which effect a call is about
)

// due is a call that an undo is to make.
type due struct {
	step Step
	with json.RawMessage
	call toolCall // of a tool; empty: of a built-in
}

// looks reports whether each attempt finds out first what there is to undo, so that it may repeat
// what an earlier one has done.
func (r Recipe) looks() bool { return r.Probe != nil && r.Done != "" }

// again reports whether the call may be made again where it was made, or may have been. Built-ins
// compare what is there.
func (s Step) again() bool { return s.Call != "" || s.Key != "" || s.Idempotent }

// repeats reports whether a call of the undo may be made again where it was made, or may have been.
func (r Recipe) repeats(s Step) bool { return r.looks() || s.again() }

// noted reports whether the undo has a call that is noted before it is made: see Server.begins.
func (r Recipe) noted() bool {
	return slices.ContainsFunc(r.Undo, func(s Step) bool { return !r.repeats(s) })
}

func (s Step) name() string { return s.Tool + s.Call }

// due are the calls of an undo. None is made before all are known: what one of them lacks must not
// stop an undo half way. Errors: *stopped.
func (s *Server) due(ctx context.Context, r Recipe, vars triggers.BindingVars,
	key string) (calls []due, err error) {
	keyed := 0
	for _, step := range r.Undo {
		if step.Key != "" {
			keyed++
		}
		holds, err := s.x.holds(step.When, vars)
		if err != nil {
			return nil, &stopped{"recipe", err.Error()}
		}
		if !holds {
			continue
		}
		if err := s.identified(ctx, step.Tool, step.name(), step.With, vars); err != nil {
			return nil, err
		}
		one := due{step: step}
		if one.with, err = s.x.object(step.With, vars); err == nil && step.Tool != "" {
			one.call, err = calling(step.Tool, one.with)
		}
		if err == nil && step.Key != "" {
			one.call.params, err = withKey(one.call.params, step.Key, stepKey(key, keyed))
		}
		if err != nil {
			return nil, &stopped{"recipe", err.Error()}
		}
		calls = append(calls, one)
	}
	return calls, nil
}

// stepKey is what the step of an undo gets as its key that is the nth which takes one: two calls of
// a provider must not have the same.
func stepKey(key string, nth int) string {
	if nth < 2 {
		return key
	}
	return fmt.Sprintf("%s-%d", key, nth)
}

// What is said of a call that is not made again.
const (
	wasMade     = " was made"
	mayHaveBeen = " may have been made"
)

// errInterrupted is of an undo of which an earlier attempt has no end that is known.
var errInterrupted = errors.New("an earlier attempt was interrupted, or took longer than it had")

// carry makes the calls of an undo, one after the other, and returns what it has called. What was
// made before an error, or may have been, is repeated only where that is safe.
func (s *Server) carry(ctx context.Context, r Recipe, vars triggers.BindingVars, calls []due,
	key string) (did []string, err error) {
	var once []string
	defer func() {
		if r.noted() && (len(once) == 0 || ctx.Err() == nil) { // else its answer comes too late
			s.ends(key)
		}
	}()
	for _, c := range calls {
		safe := r.repeats(c.step)
		if !safe {
			if err := s.begins(key, c.step.name()); err != nil {
				return did, unrepeated(err, false, once)
			}
		}
		doubt, err := s.make(ctx, c, key)
		switch {
		case safe:
		case err == nil:
			once = append(once, c.step.name()+wasMade)
		case doubt:
			once = append(once, c.step.name()+mayHaveBeen)
		}
		if err != nil {
			return did, unrepeated(fmt.Errorf("%s: %w", c.step.name(), err), doubt, once)
		}
		did = append(did, c.step.name())
	}
	if r.Done == "" {
		return did, nil
	}
	switch done, err := s.look(ctx, r, &vars); {
	case err != nil:
		return did, unrepeated(err, len(did) > 0, once)
	case !done:
		return did, unrepeated(errors.New("the effect is still there after its undo"), false, once)
	}
	return did, nil
}

// make makes one call of an undo. doubt: it has ended with an error, and may have been made.
func (s *Server) make(ctx context.Context, c due, key string) (doubt bool, err error) {
	if c.step.Call != "" {
		_, err = s.builtIn(ctx, c.step.Call, c.with, key)
		return false, err
	}
	result, settled, err := s.act(ctx, c.call)
	<-settled // the next attempt must not meet it
	if err == nil && !failed(result) {
		return false, nil
	}
	return s.unmade(c.step.Tool, s.pack.Tools[c.step.Tool], c.with, result, err)
}

// unrepeated is the error of an attempt that has made, or may have made, what is not to be made
// again: once says of each call which of the two. Without one the attempt is made again; doubt says
// that it may have done something.
func unrepeated(err error, doubt bool, once []string) error {
	switch {
	case len(once) > 0:
		return &stopped{codeInDoubt, fmt.Sprintf("%v: %s; it is not made again, as nothing says that "+
			"a second call is safe (in the pack: probe with done, or key or idempotent of the step)", err,
			strings.Join(once, ", "))}
	case doubt && !errors.Is(err, worker.ErrStop):
		return worker.InDoubt(err)
	}
	return err
}

// A call that was given up is in doubt, and its server is at work on it still. What it answers
// before it is ended says what has happened, and the ledger takes that after a doubt, also while
// the plan is being undone. An error says nothing: it may be the answer to the cancellation.

// answersLate records what a server has answered to a call that was given up.
func (u *run) answersLate(result *sdk.CallToolResult, before json.RawMessage) {
	<-u.over // until then the doubt is not recorded
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	late := run{g: u.g, r: u.r, action: u.action, result: result}
	outcome, err := late.outcome(ctx, before)
	if err == nil {
		err = u.t.plan.Settle(ctx, u.action, outcome, nil)
	}
	if err != nil {
		u.g.logger.Warn("the late answer of a call that was given up is not recorded", "tenant",
			u.g.config.Tenant, "plan", u.t.plan.ID(), "action", u.action, "error", err)
		return
	}
	u.t.happened(u.action, late.lacks, marked(result, u.t.plan.ID(), u.action))
}

// happened notes that a call which was in doubt has happened, and its result for one with its key.
func (t *tracked) happened(action, lacks string, result *sdk.CallToolResult) {
	t.mu.Lock()
	for _, e := range t.effects {
		if e.Action == action {
			e.isKnown()
			e.lack(lacks)
		}
	}
	k := t.results[action]
	t.mu.Unlock()
	if k == nil {
		return
	}
	<-k.ended // with the doubt
	now := &keyed{print: k.print, ended: k.ended, result: keepable(result)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.results[action] == k {
		t.results[action] = now
	}
}

// isKnown notes that the call is known to have happened.
func (e *effect) isKnown() {
	if e.known != stateInDoubt {
		return
	}
	if e.known = stateDone; e.State == stateInDoubt {
		e.State = stateDone
	}
}

package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
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
	server  *Server
	release func() // nil: it is not held
}

func (t *turn) take(ctx context.Context) (err error) {
	t.release, err = t.server.take(ctx)
	return err
}

func (t *turn) end() {
	if t.release != nil {
		t.release()
		t.release = nil
	}
}

// agreement is what a client without a session is asked: it makes its call again with the answer.
const agreement = "sagenbaum/agree"

// approve asks a person about a call that cannot be undone. ask: a client without a session is to
// do so, and to call again.
func (g *Gateway) approve(ctx context.Context, r request) (ask *sdk.CallToolResult, err error) {
	if capabilities(r.session).Elicitation == nil {
		return nil, fmt.Errorf("%s has no contract and cannot be undone, and this client has no way "+
			"to ask its user", r.shown)
	}
	arguments := string(object(r.arguments))
	if len(arguments) > errorMax {
		return nil, fmt.Errorf("%s has no contract and cannot be undone, and its arguments are too "+
			"long to be shown to its user: %d bytes, at most %d", r.shown, len(arguments), errorMax)
	}
	question := &sdk.ElicitParams{
		Message:         fmt.Sprintf("%s cannot be undone. Call it with %s?", r.shown, arguments),
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
	}
	answer, ok := r.answers[agreement].(*sdk.ElicitResult)
	switch {
	case r.plain && !ok:
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{agreement: question}}, nil
	case !r.plain:
		answer, err = r.session.Elicit(ctx, question)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be undone, and its user could not be asked: %w", r.shown, err)
	case answer.Action != "accept":
		return nil, fmt.Errorf("%s cannot be undone, and its user did not agree (%s)", r.shown,
			answer.Action)
	}
	return nil, nil
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
	release, err := s.take(whole)
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

// A call that is staged is not made now: it is recorded, and made once its plan is committed, by
// whatever undoes what the server has done, also when this gateway is gone.

// deliverySuffix is what the id of the plan ends with that makes what is staged in a committed one.
const deliverySuffix = "~0"

// stagedMeta says in a result that the call was not made, but is staged.
const stagedMeta = "sagenbaum/staged"

// stage has the ledger take a call that is made once its plan is committed, and says so. Of e it is
// known which call it is.
func (g *Gateway) stage(ctx context.Context, t *tracked, r request, e *effect,
	input json.RawMessage) (*sdk.CallToolResult, error) {
	if same := t.staged(e.print, e.past); same != nil && r.key == "" {
		return problem("the same call is staged already, as action %s of plan %s, and is made once that "+
			"is committed. Nothing was done now, and nothing more is staged; a call with a key of its own "+
			"(_meta %s) is staged in any case.", same.Action, t.plan.ID(), keyMeta), nil
	}
	if e.Action == "" {
		e.Action = "staged-" + strings.ToLower(rand.Text()[:10])
	}
	e.Tool, e.About, e.Class = r.shown, about(r.arguments), r.contract.Class
	e.State, e.known = stateStaged, stateStaged
	err := g.explained(ctx, t, r.holder(), t.plan.Stage(ctx, coordinator.Action{ID: e.Action,
		Capability: r.server.Delivery(r.tool), Input: input}))
	var recorded *coordinator.Recorded
	switch {
	case err == nil:
		t.note(e)
		t.markLater(g.life)
		return g.stagedResult(t.plan.ID(), r, e.Action), nil
	case errors.As(err, &recorded):
		return problem("%s is not staged: %v. It was not called, and is not made.", r.shown, err), nil
	case errors.Is(err, coordinator.ErrUnconfirmed), errors.Is(err, coordinator.ErrInDoubt):
		return problem("whether %s is staged is not known: %v. It was not called. %splan_status says "+
			"whether it is, as action %s of plan %s; if so, it is made once that is committed.",
			r.shown, err, g.prefix, e.Action, t.plan.ID()), nil
	case t.overs(err):
		err = g.plans.drop(t, err, r.holder())
		return problem("%v. Nothing was done; the next call begins a new plan.", err), nil
	}
	return problem("%v. Nothing was done.", err), nil
}

// stagedResult tells the model that its call was not made, and when it is.
func (g *Gateway) stagedResult(plan string, r request, action string) *sdk.CallToolResult {
	with := string(object(r.arguments))
	if len(with) > errorMax {
		with = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(with[:errorMax], ""), len(with))
	}
	when := g.prefix + "plan_commit does that"
	if g.config.OnDisconnect == CommitPlan && !r.plain {
		when += ", and so does the end of this connection"
	}
	result := marked(&sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(
		"%[1]s was NOT made: it cannot be undone, so it is staged, as action %[2]s of plan %[3]s. It is "+
			"made once the plan is committed (%[4]s), after what was staged before it, with these "+
			"arguments: %[5]s. Until then %[6]sundo_last drops it, and so does whatever undoes the "+
			"plan, as its deadline does; then it is never made. Do not call it again, and do not say "+
			"that it has happened: the answer of %[6]splan_commit, or %[6]splan_status with plan "+
			"%[3]s, says whether it has.",
		r.shown, action, plan, when, with, g.prefix)}}}, plan, action)
	result.Meta[stagedMeta] = true
	return result
}

// kept says of a plan that was committed now what stays, as the ledger has it, and what became of
// the calls that were staged: it waits a while until they are made.
func (g *Gateway) kept(ctx context.Context, t *tracked) report {
	out := report{Plan: t.plan.ID(), State: ledger.StateCommitted}
	if t.delivers() {
		waiting, cancel := context.WithTimeout(ctx, deliverWait)
		defer cancel()
		_, _ = t.plan.Delivered(waiting) // the ledger says below what is known
	}
	past, err := g.look(context.WithoutCancel(ctx), t)
	if err != nil {
		out.Message = "which of its calls stay, and which that were staged are made, is not known: " +
			err.Error()
		return out
	}
	stay := t.those(func(e *effect) bool { return e.there() && e.known != stateStaged })
	out = t.report(past, (*effect).wasStaged)
	out.Message = fmt.Sprintf("%d calls stay as they are", len(stay))
	if made := t.made(); made != "" {
		out.Message += ". Of the calls that were staged: " + made
	}
	return out
}

func (e *effect) wasStaged() bool { return e.known == stateStaged }

// delivers reports whether calls of the plan are staged that are not known to be made, or dropped.
func (t *tracked) delivers() bool { return len(t.those((*effect).notMadeYet)) > 0 }

// made says how many of the calls that were staged are made; empty: none was staged.
func (t *tracked) made() string {
	names := map[string]string{stateStays: "made, or answered for by the owner",
		stateMaking: "not known to be made yet", stateStaged: "not known to be made yet",
		stateOwner: "its owner's to look at", stateUndone: "dropped, and not made"}
	var parts []string
	for _, state := range []string{stateStays, stateMaking, stateStaged, stateOwner, stateUndone} {
		n := len(t.those(func(e *effect) bool { return e.wasStaged() && e.State == state }))
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, names[state]))
		}
	}
	return strings.Join(parts, ", ")
}

// isMade waits until what is staged in a committed plan is made. Errors: what is not.
func (g *Gateway) isMade(ctx context.Context, t *tracked) error {
	_, waits := t.plan.Delivered(ctx)
	past, err := g.look(context.WithoutCancel(ctx), t)
	if err != nil {
		return fmt.Errorf("plan %s of a client that has gone is committed, and whether the calls that "+
			"were staged in it are made is not known: %w", t.plan.ID(), errors.Join(waits, err))
	}
	return t.unmade(past)
}

// unmade says which calls that were staged in a committed plan are not known to be made.
func (t *tracked) unmade(past coordinator.Past) error {
	var left []string
	for _, e := range t.report(past, func(e *effect) bool {
		return e.wasStaged() && (e.notMadeYet() || e.State == stateOwner)
	}).Stands {
		left = append(left, fmt.Sprintf("%s as action %s (%s)", e.Tool, e.Action, e.How))
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("plan %s of a client that has gone is committed, and these calls that were "+
		"staged are not known to be made: %s. 'sagenbaum mcp worker' makes what no gateway does",
		past.Plan, strings.Join(left, ", "))
}

// asStaged is a tool whose calls are staged as clients see it: what it answers is not what it says
// that it answers.
func asStaged(tool json.RawMessage) (json.RawMessage, error) {
	var about string
	if said := memberOf(tool, "description"); len(said) > 0 {
		if err := json.Unmarshal(said, &about); err != nil {
			return nil, err
		}
	}
	const staged = "A call is staged, as it cannot be undone: it is made once the plan is " +
		"committed, and its answer says only that."
	text, err := encode(strings.TrimSpace(about + "\n\n" + staged))
	if err == nil {
		tool, err = withValue(tool, "description", text)
	}
	if err != nil {
		return nil, err
	}
	return withoutMembers(tool, func(name string) bool { return name == "outputSchema" })
}

// staged finds an equal call that is staged.
func (t *tracked) staged(print, past string) *effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.effects {
		if e.State == stateStaged && (e.print == print || e.past == past) {
			return e
		}
	}
	return nil
}

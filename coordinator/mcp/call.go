package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/rawjson"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// request is one call of a tool.
type request struct {
	session   *sdk.ServerSession
	plain     bool // its client has no session: this one ends with the call
	server    *Server
	tool      string // as its server calls it
	shown     string // as the client calls it
	contract  Tool
	known     bool // it has a contract
	arguments json.RawMessage
	params    json.RawMessage // that are passed on
	plan, key string
	token     any    // of its progress, as the client calls it; nil: it wants none
	roots     *roots // of the client, in which the server works

	starts  func() bool          // its tool may be called: the gateway does not end
	answers sdk.InputResponseMap // of a client without a session, to what it was asked
}

// call answers tools/call.
func (g *Gateway) call(
	ctx context.Context,
	req *sdk.CallToolRequest,
) (*sdk.CallToolResult, error) {
	r, err := g.request(ctx, req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.life, cancel)()
	if r.server == nil {
		return g.own(ctx, r)
	}
	if err := g.follow(ctx, r.session, r.server); err != nil {
		return problem("%v. Nothing was done.", err), nil
	}
	r.roots = r.server.roots.Load()
	if r.plain {
		g.heed(ctx, req.Params.Meta)
	}
	release, err := g.during(ctx, &r)
	if err != nil {
		return nil, err
	}
	defer release()
	harmless, err := g.harmless(r)
	switch {
	case err != nil:
		return problem("%v. Nothing was done.", err), nil
	case harmless:
		result, err := r.server.read(ctx, toolCall{tool: r.tool, params: r.params})
		return result, wired(err)
	case !r.known && g.config.Unknown == RefuseUnknown:
		return problem("%s has no contract: what undoes it is not known, and this gateway refuses "+
			"such tools. Nothing was done.", r.shown), nil
	case !r.known && g.config.Unknown == AskUnknown && (!r.plain || r.plan != ""):
		switch ask, err := g.approve(ctx, r); {
		case err != nil:
			return problem("%v. Nothing was done.", err), nil
		case ask != nil:
			return ask, nil
		}
	}
	if err := r.refused(); err != nil {
		return problem("%v. Nothing was done.", err), nil
	}
	return g.effect(ctx, r)
}

// refused says why the contract of a tool has a call refused.
func (r request) refused() error {
	for _, guard := range r.contract.Refuse {
		holds, err := r.server.x.holds(guard.When, triggers.BindingVars{Input: object(r.arguments)})
		if err != nil {
			return fmt.Errorf("whether its contract refuses this call of %s is not known: %w", r.shown, err)
		}
		if holds {
			return errors.New(cmp.Or(guard.Message, "its contract refuses this call of "+r.shown))
		}
	}
	return nil
}

// request reads a call.
func (g *Gateway) request(ctx context.Context, req *sdk.CallToolRequest) (request, error) {
	r := request{session: req.Session, plain: isPlain(ctx), shown: req.Params.Name,
		answers: req.Params.InputResponses}
	var plan, key agreed
	err := cmp.Or(r.takes(req.Params.Arguments),
		plan.metadata(req.Params.Meta, planMeta), key.metadata(req.Params.Meta, keyMeta),
		plan.header(req.Extra, planHeader), key.header(req.Extra, keyHeader))
	if err == nil && r.plain {
		err = r.unplan(&plan)
	}
	if err != nil {
		return r, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	r.plan, r.key = plan.text, key.text
	if r.plan != "" && !ledger.ValidToken(r.plan) {
		return r, &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidParams,
			Message: planMeta + " is no id of a plan",
		}
	}
	if g.isOwn(r.shown) {
		return r, nil
	}
	r.server, r.tool = g.route(r.shown)
	if r.server == nil {
		return r, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("unknown tool %q", r.shown)}
	}
	r.contract, r.known = r.server.pack.Tools[r.tool]
	r.params, err = passedOn(rawOf(req.Params.Meta), req.Params, map[string]any{"name": r.tool,
		"arguments": object(r.arguments)})
	if err != nil {
		return r, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	if r.plain { // what is answered here is no answer to the server
		r.params, err = withoutMembers(r.params, func(name string) bool {
			return name == "inputResponses" || name == "requestState"
		})
		if err != nil {
			return r, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
	}
	there, err := r.server.has(ctx, r.tool)
	if err == nil && !there {
		err = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("unknown tool %q", r.shown)}
	}
	return r, err
}

// takes takes the arguments of a call; null is none, as some clients write it.
func (r *request) takes(arguments json.RawMessage) error {
	switch text := bytes.TrimSpace(arguments); {
	case len(text) == 0 || string(text) == "null":
		r.arguments = json.RawMessage("{}")
	case text[0] == '{':
		r.arguments = arguments
	default:
		return ledger.Refuse("arguments", fmt.Sprintf("%.40s", text), "an object")
	}
	return nil
}

// harmless reports whether a call has no effect. One that may have an effect has no argument twice:
// the tool might read another one than its contract. Errors: *ledger.Refused, or of a condition.
func (g *Gateway) harmless(r request) (bool, error) {
	place, twice := rawjson.Twice(r.arguments)
	switch {
	case r.known && r.contract.Class == contract.Effectless,
		!r.known && g.config.TrustHints && g.readOnly(r.server, r.tool):
		return true, nil
	case twice:
		return false, ledger.Refuse("arguments"+value(place), "given twice", "each name once")
	case r.known && r.contract.EffectlessWhen != "":
		holds, err := r.server.x.holds(r.contract.EffectlessWhen,
			triggers.BindingVars{Input: object(r.arguments)})
		if errors.Is(err, triggers.ErrNotThere) { // a flag that was not given
			return false, nil
		}
		return holds, err
	}
	return false, nil
}

// object is what expressions read of arguments.
func object(arguments json.RawMessage) json.RawMessage {
	if len(arguments) == 0 {
		return json.RawMessage("{}")
	}
	return arguments
}

// waiting tells a client that its call waits for a verdict, and where that is given. The person at
// the client is not asked: a verdict is a supervisor's, whom the ledger knows by credentials of
// their own, and the gateway is an agent.
func (g *Gateway) waiting(ctx context.Context, t *tracked, r request) {
	if !r.contract.Review || r.token == nil {
		return
	}
	g.told(r.session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.token,
		Message: fmt.Sprintf("%s waits for a supervisor's verdict, under plan %s: sagenbaum review "+
			"ls, then sagenbaum review allow PLAN ACTION, or the console", r.shown, t.plan.ID())}))
}

// effect calls a tool under a plan, once for each key.
func (g *Gateway) effect(ctx context.Context, r request) (*sdk.CallToolResult, error) {
	if r.plain && r.plan == "" {
		return problem("The call names no plan, without which it could not be undone: call plan_begin, "+
			"and give the id of the plan as %s. Nothing was done.", planArgument), nil
	}
	if err := g.reached(ctx); err != nil {
		return problem("%v. Nothing was done.", err), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.starts = context.AfterFunc(serving(ctx), cancel)
	defer r.starts()
	print := fingerprint(r.server.Name(), r.tool, r.arguments)
	var o *once
	var t *tracked
	action := keyedAction(r.key)
	if r.key != "" && r.plan == "" {
		was, release, err := g.onceOf(ctx, r, print)
		if err != nil {
			return problem("%v. Nothing was done.", err), nil
		}
		defer release()
		if o = was; o.Plan != "" {
			var instead *sdk.CallToolResult
			if t, instead = g.again(ctx, r, o, action); instead != nil {
				return instead, nil
			}
		}
	} else if r.key != "" && g.plans.known(nil, r.plan) == nil {
		if instead := recall(ctx, g, r, r.plan, action); instead != nil {
			return instead, nil
		}
	}
	if t == nil {
		if r.plan == "" {
			if err := untold(ctx, g, r.holder(), nil); err != nil {
				return problem("%v. Nothing was done; the next call begins a new plan.", err), nil
			}
		}
		var err error
		if t, err = g.plans.of(ctx, r.holder(), r.plan, true); err != nil {
			return problem("%v. Nothing was done.", err), nil
		}
	}
	if r.key == "" {
		return g.act(ctx, t, r, print, "")
	}
	return g.keyed(ctx, t, r, print, o)
}

func (t *tracked) found(action string) *effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.effects {
		if e.Action == action {
			return e
		}
	}
	return nil
}

// act registers a call and makes it.
func (g *Gateway) act(ctx context.Context, t *tracked, r request, print,
	action string) (*sdk.CallToolResult, error) {
	release, err := t.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if undoneInstead(t.ended()) {
		if past, err := g.look(ctx, t); err == nil { // else it has ended still
			g.plans.notice(t, past, r.holder()) // its owner may have answered
		}
	}
	if err := untold(ctx, g, r.holder(), t); err != nil {
		return problem("%v. Nothing was done.", err), nil
	}
	if err := t.ended(); err != nil {
		return problem("%s takes no more: %v. Nothing was done.", named(t.plan.ID()), err), nil
	}
	capability, input, past, err := registers(g, r)
	if err != nil {
		return problem("%v. Nothing was done.", err), nil
	}
	if r.contract.Before == nil { // else what it finds counts, too
		if err := r.contract.fits(r.shown, input, nil); err != nil {
			return problem("%v. Nothing was done.", err), nil
		}
	}
	if e := t.doubtful(print, past); e != nil && r.key == "" {
		return problem("the same call was made before, as action %s of plan %s, and no one knows "+
			"whether it has happened. Nothing was done now. undo_last settles it; a call with a key of "+
			"its own (_meta %s) is made in any case.", e.Action, t.plan.ID(), keyMeta), nil
	}
	if err := r.server.grant(r.roots); err != nil {
		return problem("%v. Nothing was done.", err), nil
	}
	t.markAgain(ctx) // before the lock, for which others wait
	if err := g.plans.hear(ctx, r.holder(), t); err != nil {
		return problem("%v. Nothing was done.", err), nil
	}
	if r.contract.staged() {
		return g.stage(ctx, t, r, &effect{Action: action, print: print, past: past}, input)
	}
	run := &run{g: g, t: t, r: r, turn: turn{server: r.server}, over: make(chan struct{})}
	defer close(run.over)
	if !r.contract.Review {
		if err := run.turn.take(ctx); err != nil {
			return nil, err
		}
	}
	g.waiting(ctx, t, r)
	output, err := t.plan.Do(
		context.WithValue(ctx, wholeKey{}, ctx),
		coordinator.Action{ID: action, Capability: capability, Input: input},
		run.forward,
	)
	run.settled(run.turn.end)
	if run.ran || ctx.Err() == nil { // else it may be called again with its key, and is not asked
		g.forgetBefore(t.plan.ID())
	}
	return g.settle(t, run, print, output, g.explained(ctx, t, r.holder(), err))
}

// registers is what a call is recorded as: its capability, its input, and the print of both.
func registers(g *Gateway, r request) (capability string, input json.RawMessage, past string,
	err error) {
	capability = r.contract.capability(r.server, r.tool)
	if !r.known && !g.listed(r.server, r.tool) {
		capability = r.server.Capability(unlisted)
	}
	input, err = r.recorded()
	digest := sha256.Sum256(input)
	return capability, input, pastPrint(capability, digest[:]), err
}

// recorded is the input as it is recorded: long texts that no expression reads as their digest, and
// the roots in which an undo works.
func (r request) recorded() (json.RawMessage, error) {
	input, err := r.shortened()
	if err != nil || r.contract.Class != contract.Compensable && !r.contract.staged() {
		return input, err
	}
	return withRoots(input, r.roots)
}

func (r request) shortened() (json.RawMessage, error) {
	input := object(r.arguments)
	if len(r.contract.Digest) == 0 || len(input) <= textKept {
		return input, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(input, &members); err != nil {
		return nil, ledger.Refuse("arguments", err.Error(), "a JSON object")
	}
	for _, name := range r.contract.Digest {
		if raw := members[name]; len(raw) > textKept {
			digest, err := reference(raw)
			if err != nil {
				return nil, err
			}
			members[name] = digest
		}
	}
	return encode(members)
}

// run is the forward of one call.
type run struct {
	g      *Gateway
	t      *tracked
	r      request
	turn   turn
	action string
	result *sdk.CallToolResult // what the server said
	err    error               // or why it said nothing
	late   <-chan struct{}     // closed when nothing of the call can happen any more
	over   chan struct{}       // closed when its client has its answer, or none
	lacks  string              // what the undo reads, and what is recorded does not have
	ran    bool
	begun  bool // the server said that it failed, and what it has left is known
}

// settled calls a function once nothing of the call can happen any more: what is asked before the
// next call must not be from the middle of this one.
func (u *run) settled(then func()) {
	if u.late == nil {
		then()
		return
	}
	select {
	case <-u.late:
		then()
	default:
		go func() { // ends with the call
			<-u.late
			then()
		}()
	}
}

// forward calls the tool and says what its answer means.
func (u *run) forward(ctx context.Context, call coordinator.Call) (coordinator.Outcome, error) {
	u.ran, u.action = true, call.Action
	r := u.r
	before := u.g.before(call)
	if !r.starts() {
		u.err = coordinator.NotTaken(errEnds)
		return coordinator.Outcome{}, u.err
	}
	if u.err = u.begin(ctx, before); u.err != nil {
		return coordinator.Outcome{}, u.err
	}
	if r.roots != r.server.roots.Load() {
		u.err = coordinator.NotTaken(errMoved)
		return coordinator.Outcome{}, u.err
	}
	params := r.params
	if r.contract.Key != "" {
		var err error
		if params, err = withKey(params, r.contract.Key, call.Key); err != nil {
			return coordinator.Outcome{}, coordinator.NotTaken(err)
		}
	}
	u.result, u.late, u.err = r.server.act(ctx, toolCall{tool: r.tool, params: params,
		late: func(result *sdk.CallToolResult) { u.answersLate(result, before) }})
	var wire *jsonrpc.Error
	switch {
	case errors.Is(u.err, errNotReached):
		return coordinator.Outcome{}, coordinator.NotTaken(u.err)
	case errors.As(u.err, &wire) &&
		(wire.Code == jsonrpc.CodeMethodNotFound || wire.Code == jsonrpc.CodeInvalidParams):
		return coordinator.Outcome{}, u.refused(ctx, before)
	case u.err != nil:
		return coordinator.Outcome{}, u.err
	}
	return u.outcome(ctx, before)
}

// outcome is what the answer of a server means. Errors: as of a forward.
func (u *run) outcome(ctx context.Context, before json.RawMessage) (coordinator.Outcome, error) {
	vars := triggers.BindingVars{
		Input:  object(u.r.arguments),
		Before: before,
		Result: structured(u.result),
	}
	if isLarge(u.result) {
		vars.Result = nil // it is not known
	}
	after := u.after(ctx, vars)
	output := u.output(before, after)
	if failed(u.result) {
		err := u.failure(vars, before, after)
		u.begun = !errors.Is(err, coordinator.ErrNotTaken) && len(output["after"]) > 0 &&
			u.r.server.begun(u.r.contract, vars, after)
		if !u.begun {
			return coordinator.Outcome{}, err
		}
		output["failed"] = json.RawMessage("true")
	}
	u.lacks = u.lacking(before, output)
	return coordinator.Outcome{Output: output}, nil
}

// after asks what a call has left. Without an answer the undo has less to go by.
func (u *run) after(ctx context.Context, vars triggers.BindingVars) json.RawMessage {
	if u.r.contract.After == nil {
		return nil
	}
	after, err := u.r.server.ask(ctx, *u.r.contract.After, vars)
	if err != nil {
		u.g.logger.Warn("what a call has left is not known", "tool", u.r.shown, "error", err)
		return nil
	}
	return after
}

// failure says what a tool's error means: nothing has happened where the contract says so, or
// where all is as it was.
func (u *run) failure(vars triggers.BindingVars, before, after json.RawMessage) error {
	err := errors.New(value(text(u.result)))
	if u.r.server.notTaken(u.r.tool, u.r.contract, vars) {
		return coordinator.NotTaken(err)
	}
	same, failed := u.r.server.unchanged(before, after, u.r.server.settled)
	if failed != nil {
		u.g.logger.Warn("what a failed call has left is not known", "tool", u.r.shown, "error", failed)
	}
	if same {
		return coordinator.NotTaken(err)
	}
	return err
}

// refused says what it means that a server calls a call invalid: it has not happened. A server that
// passes on such an error of another one may have done something first, so what was there before
// and what is there now are compared, where both are known.
func (u *run) refused(ctx context.Context, before json.RawMessage) error {
	after := u.after(ctx, triggers.BindingVars{Input: object(u.r.arguments), Before: before})
	same, err := u.r.server.unchanged(before, after, u.r.server.settled)
	if u.r.contract.After != nil && (err != nil || !same) {
		return u.err
	}
	return coordinator.NotTaken(u.err)
}

// settled is files.SettleFailed.
func (s *Server) settled(x, y files.Image) (bool, error) { return s.files.SettleFailed(x, y) }

// unchanged reports whether all is as it was: two images of files that are alike, or any answers.
func (s *Server) unchanged(before, after json.RawMessage,
	alike func(x, y files.Image) (bool, error)) (bool, error) {
	if len(before) == 0 || len(after) == 0 {
		return false, nil
	}
	var repository files.Repository
	if s.files == nil || json.Unmarshal(before, &repository) == nil && repository.SHA256 != "" {
		return bytes.Equal(before, after), nil
	}
	var x, y files.Image
	if err := errors.Join(json.Unmarshal(before, &x), json.Unmarshal(after, &y)); err != nil {
		return false, err
	}
	return alike(x, y)
}

// settle says what became of a call, to the client and to the list of effects.
func (g *Gateway) settle(t *tracked, u *run, print string, output json.RawMessage,
	err error) (*sdk.CallToolResult, error) {
	e := &effect{Action: u.action, Tool: u.r.shown, About: about(u.r.arguments),
		Class: contract.Irreversible, State: stateDone, known: stateDone, print: print}
	if u.r.known {
		c := u.r.contract // a copy: the effect stays, and the run has its result
		e.Class, e.Fidelity, e.contract = c.Class, c.Fidelity, &c
	}
	var recorded *coordinator.Recorded
	switch {
	case !u.ran && err == nil: // an earlier process has made the call
		return marked(recalled(output), t.plan.ID(), keyedAction(u.r.key)), nil
	case !u.ran && errors.As(err, &recorded):
		return problem(
			"the call with this key was made before: %v. Nothing was done now.",
			recorded,
		), nil
	case !u.ran:
		if t.overs(err) {
			err = g.plans.drop(t, err, u.r.holder())
			return problem("%v. Nothing was done; the next call begins a new plan.", err), nil
		}
		if errors.Is(err, coordinator.ErrUnwinding) {
			return problem("%v. Nothing was done; the plan is open again once this is undone: call "+
				"again then.", err), nil
		}
		return problem("%v. Nothing was done.", err), nil
	}
	notTaken := err != nil && errors.Is(err, coordinator.ErrNotTaken)
	if notTaken {
		t.unknow(u.action)
	} else {
		e.lack(u.lacks)
		if u.err != nil || failed(u.result) && !u.begun {
			e.State, e.known = stateInDoubt, stateInDoubt
		}
		t.note(e)
		t.markLater(g.life)
	}
	var wire *jsonrpc.Error
	switch {
	case errors.As(u.err, &wire) && notTaken:
		return nil, wire
	case errors.As(u.err, &wire):
		return nil, &jsonrpc.Error{Code: wire.Code, Data: wire.Data, Message: fmt.Sprintf(
			"%s (no one knows whether %s has happened: it is action %s of plan %s, in doubt)",
			wire.Message, u.r.shown, u.action, t.plan.ID())}
	case notTaken && u.err != nil:
		return problem("%v. Nothing was done.", u.err), nil
	case u.err != nil:
		return problem(
			"no one knows whether %s has happened: %v. It is action %s of plan %s, in doubt%s.",
			u.r.shown,
			u.err,
			u.action,
			t.plan.ID(),
			said("; ", e.inDoubt()),
		), nil
	}
	if err != nil && !failed(u.result) {
		g.logger.Warn("what a call has done may not be recorded", "tenant", g.config.Tenant,
			"plan", t.plan.ID(), "action", u.action, "error", err)
	}
	return marked(u.result, t.plan.ID(), u.action), nil
}

// marked is a result that says which action of which plan it is of.
func marked(result *sdk.CallToolResult, plan, action string) *sdk.CallToolResult {
	meta := maps.Clone(map[string]any(result.Meta))
	if meta == nil {
		meta = map[string]any{}
	}
	meta[planMeta], meta[actionMeta] = plan, action
	result.Meta = meta
	return result
}

// recalled is the result of a call that an earlier process has made.
func recalled(output json.RawMessage) *sdk.CallToolResult {
	var recorded struct {
		Result json.RawMessage `json:"result"`
		Part   bool            `json:"part"`
		Failed bool            `json:"failed"`
	}
	if json.Unmarshal(output, &recorded) != nil || len(recorded.Result) == 0 || recorded.Part {
		return problem("the call with this key has happened; its result was too large to be kept")
	}
	result := &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: string(recorded.Result)}},
		IsError: recorded.Failed,
	}
	var said string
	if json.Unmarshal(recorded.Result, &said) == nil {
		result.Content = []sdk.Content{&sdk.TextContent{Text: said}}
	} else {
		result.StructuredContent = recorded.Result
	}
	return result
}

// problem is a result that says what is wrong.
func problem(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true,
		Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// about is what a person recognises a call by.
func about(arguments json.RawMessage) string {
	var members map[string]any
	if json.Unmarshal(arguments, &members) != nil {
		return ""
	}
	var parts []string
	for _, name := range sortedKeys(members) {
		if said, ok := members[name].(string); ok && len(said) <= 200 {
			parts = append(parts, name+"="+said)
		}
	}
	joined := strings.Join(parts, " ")
	return joined[:min(len(joined), textKept)]
}

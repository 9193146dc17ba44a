package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// ownPrefix goes before the gateway's own tools where a server has one of the same name.
const ownPrefix = "sagenbaum_"

// ownTool is a tool of the gateway itself.
type ownTool struct {
	name, about string
	schema      string
	readOnly    bool
	call        func(g *Gateway, ctx context.Context, r request, in ownInput) (any, error)
}

// ownInput are the arguments of all of them.
type ownInput struct {
	Plan     string `json:"plan"`
	Label    string `json:"label"`
	Owner    string `json:"owner"`
	Deadline string `json:"deadline"`
	Failure  string `json:"on_undo_failure"`
	Reason   string `json:"reason"`
	Action   string `json:"action"`
	Count    *int   `json:"count"`
}

const planProperty = `"plan":{"type":"string","description":"Id of the plan. ` +
	`Default: the plan of this connection."}`

// ownTools lists them. What they answer says what is undone, what is not and why.
var ownTools = []ownTool{
	{
		name: "plan_begin",
		about: "Begin a plan: all calls with an effect from now on belong to it, until " +
			"plan_commit keeps what they did or plan_fail undoes all of it. Without it, the first " +
			"such call begins a plan.",
		schema: `{"type":"object","properties":{` +
			`"label":{"type":"string","description":"What the plan is for, for people."},` +
			`"owner":{"type":"string","description":"Who answers for it when an undo needs a ` +
			`person."},` +
			`"deadline":{"type":"string","description":"How long it may stay open, as in 30m or 2h; ` +
			`then it is undone."},` +
			`"on_undo_failure":{"type":"string","enum":["halt","halt_unless_last","continue"],` +
			`"description":"What becomes of what came before a call that cannot be undone. halt, the ` +
			`default: it stays until the owner has answered. halt_unless_last: it is undone, if the ` +
			`call was the last. continue: it is undone."}}}`,
		call: (*Gateway).planBegin,
	},
	{
		name: "plan_commit",
		about: "Keep what the plan has done: nothing of it can be undone by undo_last or plan_fail " +
			"any more. Calls that are staged are made now, and the answer says which are.",
		schema: `{"type":"object","properties":{` + planProperty + `}}`,
		call:   (*Gateway).planCommit,
	},
	{
		name:  "plan_fail",
		about: "Undo everything that the plan has done, latest first, and end it.",
		schema: `{"type":"object","properties":{` + planProperty +
			`,"reason":{"type":"string","description":"Why, for people."}}}`,
		call: (*Gateway).planFail,
	},
	{
		name:     "plan_status",
		about:    "Say whether the plan is open, and what it has done.",
		schema:   `{"type":"object","properties":{` + planProperty + `}}`,
		readOnly: true, call: (*Gateway).planStatus,
	},
	{
		name:  "undo_last",
		about: "Undo the last call with an effect, or the last few. The plan stays open.",
		schema: `{"type":"object","properties":{` + planProperty +
			`,"count":{"type":"integer","minimum":1,"description":"How many. Default: 1."}}}`,
		call: (*Gateway).undoLast,
	},
	{
		name: "undo_to",
		about: "Undo everything that was done after an action, which stays. The plan stays open. " +
			"what_can_be_undone lists the actions.",
		schema: `{"type":"object","properties":{` + planProperty +
			`,"action":{"type":"string","description":"The last action that stays."}},` +
			`"required":["action"]}`,
		call: (*Gateway).undoTo,
	},
	{
		name: "what_can_be_undone",
		about: "List what the plan has done, latest first, and how exactly each call can be " +
			"undone. One that is staged was not made yet, and an undo drops it.",
		schema:   `{"type":"object","properties":{` + planProperty + `}}`,
		readOnly: true, call: (*Gateway).planStatus,
	},
}

// ownList are the gateway's own tools, as clients see them.
func (g *Gateway) ownList() []*sdk.Tool {
	var list []*sdk.Tool
	for _, t := range ownTools {
		open := false
		list = append(list, &sdk.Tool{Name: g.prefix + t.name, Description: t.about,
			InputSchema: json.RawMessage(t.schema),
			Annotations: &sdk.ToolAnnotations{ReadOnlyHint: t.readOnly, OpenWorldHint: &open}})
	}
	return list
}

func (g *Gateway) isOwn(name string) bool {
	return slices.ContainsFunc(ownTools, func(t ownTool) bool { return g.prefix+t.name == name })
}

// own answers a call of one of the gateway's own tools.
func (g *Gateway) own(ctx context.Context, r request) (*sdk.CallToolResult, error) {
	var in ownInput
	i := slices.IndexFunc(ownTools, func(t ownTool) bool { return g.prefix+t.name == r.shown })
	if err := ownTools[i].read(object(r.arguments), &in); err != nil {
		return problem("%v. Nothing was done.", err), nil
	}
	in.Plan = cmp.Or(in.Plan, r.plan)
	answer, err := ownTools[i].call(g, ctx, r, in)
	if err != nil {
		return problem("%v", err), nil
	}
	raw, err := encode(answer)
	if err != nil {
		return nil, err
	}
	said, _ := answer.(report)
	return &sdk.CallToolResult{StructuredContent: raw, IsError: said.refused,
		Content: []sdk.Content{&sdk.TextContent{Text: string(raw)}}}, nil
}

// read reads the arguments of a tool. Those that it does not have are refused: a name that is
// misspelled must not undo something else than what is meant.
func (t ownTool) read(arguments json.RawMessage, in *ownInput) error {
	var schema struct{ Properties map[string]json.RawMessage }
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(t.schema), &schema); err != nil {
		return err
	}
	if err := json.Unmarshal(arguments, &given); err != nil {
		return ledger.Refuse("arguments", err.Error(), "a JSON object")
	}
	for _, name := range sortedKeys(given) {
		if _, known := schema.Properties[name]; !known {
			return ledger.Refuse("arguments", t.name+" has no "+strconv.Quote(name),
				"only "+strings.Join(sortedKeys(schema.Properties), ", "))
		}
	}
	if err := json.Unmarshal(arguments, in); err != nil {
		return ledger.Refuse("arguments", err.Error(), "those of the schema of "+t.name)
	}
	return nil
}

// onUndoFailure are the words of plan_begin. Plans of the gateway halt if nothing is said: to it a
// tool that it does not know is irreversible, and a later call may stand on what it did.
var onUndoFailure = map[string]coordinator.OnUndoFailure{
	"halt":             coordinator.HaltOnUndoFailure,
	"halt_unless_last": coordinator.HaltUnlessLast,
	"continue":         coordinator.ContinueOnUndoFailure,
}

func (g *Gateway) planBegin(ctx context.Context, r request, in ownInput) (any, error) {
	failure, known := onUndoFailure[cmp.Or(in.Failure, "halt")]
	if !known {
		return nil, ledger.Refuse("on_undo_failure", strconv.Quote(in.Failure),
			"halt, halt_unless_last or continue")
	}
	spec := coordinator.PlanSpec{Label: cmp.Or(in.Label, "MCP session"), Owner: in.Owner,
		OnUndoFailure: failure}
	if in.Deadline != "" {
		d, err := time.ParseDuration(in.Deadline)
		if err != nil || d <= 0 {
			return nil, ledger.Refuse("deadline", fmt.Sprintf("%q", in.Deadline), "a duration, as in 30m")
		}
		if err := ledger.CheckSpan("deadline", d, ledger.DurationMax); err != nil {
			return nil, err
		}
		spec.Deadline = d
	}
	alone, err := g.plans.alone(ctx, r.holder(), "")
	if err != nil {
		return nil, err
	}
	defer alone()
	if t := g.plans.known(r.holder(), ""); t != nil {
		if err := g.replace(ctx, t, r.holder()); err != nil {
			return nil, err
		}
	}
	t, err := g.plans.begin(ctx, r.holder(), spec)
	if err != nil {
		return nil, err
	}
	message := "calls of this connection belong to it from now on"
	if r.plain {
		message = "calls with its id as " + planArgument + " belong to it"
	}
	if over := untold(ctx, g, r.holder(), nil); over != nil {
		message += "; " + over.Error()
	}
	return report{Plan: t.plan.ID(), State: ledger.StateOpen, Message: message}, nil
}

// replace ends a plan that has done nothing, so that its connection can begin another one.
func (g *Gateway) replace(ctx context.Context, t *tracked, by *sdk.ServerSession) error {
	release, err := t.take(ctx) // a call that is under way may have an effect
	if err != nil {
		return err
	}
	defer release()
	past, err := g.look(ctx, t)
	if err != nil {
		return fmt.Errorf("whether plan %s of this connection has done something is not known, and no "+
			"other was begun: %w", t.plan.ID(), err)
	}
	if g.plans.notice(t, past, by); t.ended() != nil {
		return nil
	}
	if len(t.standing()) > 0 {
		return ledger.Refuse("plan", "plan "+t.plan.ID()+" of this connection is open and has done "+
			"something", "plan_commit or plan_fail first")
	}
	if err := untold(ctx, g, by, t); err != nil {
		return fmt.Errorf("%w. No other plan was begun", err)
	}
	if err = t.plan.Commit(ctx); errors.Is(err, coordinator.ErrPartUndone) {
		g.plans.heard(by, t, err)
		return fmt.Errorf("%w. No other plan was begun", err)
	}
	g.plans.drop(t, errors.New("plan_begin has begun another plan"), by)
	if err != nil {
		g.logger.Warn("a plan that has done nothing stays open until its deadline",
			"tenant", g.config.Tenant, "plan", t.plan.ID(), "error", err)
	}
	return nil
}

func (g *Gateway) planCommit(ctx context.Context, r request, in ownInput) (any, error) {
	t, past, err := g.openPlan(ctx, r, in)
	if t == nil {
		return past.notCommitted(), err
	}
	by := r.holder()
	if err := untold(ctx, g, by, t); err != nil {
		return nil, fmt.Errorf("%w. Nothing was committed", err)
	}
	if err := t.plan.Commit(ctx); err != nil {
		if !t.overs(err) {
			g.plans.heard(by, t, err)
			return nil, err
		}
		past, failed := g.look(ctx, t)
		if failed != nil || past.State == ledger.StateOpen || past.State == ledger.StateUnwinding {
			return nil, g.plans.drop(t, err, by)
		}
		g.plans.notice(t, past, by)
		return t.closed(ctx, g, past).notCommitted(), nil
	}
	g.plans.drop(t, errCommitted, by)
	return g.kept(ctx, t), nil
}

// errCommitted says why a plan takes nothing more.
var errCommitted = errors.New("it is committed")

// notCommitted is closed for plan_commit: that another has committed the plan is as well.
func (r report) notCommitted() report {
	if r.refused {
		r.Message = "nothing was committed now: " + strings.TrimPrefix(r.Message, nothingUndone)
		r.refused = r.State != ledger.StateCommitted
	}
	return r
}

func (g *Gateway) planFail(ctx context.Context, r request, in ownInput) (any, error) {
	t, past, err := g.openPlan(ctx, r, in)
	if t == nil {
		return past, err
	}
	by := r.holder()
	if err := t.plan.Fail(ctx, cmp.Or(in.Reason, "the agent asked for it")); err != nil {
		if !t.overs(err) {
			return nil, err
		}
		past, failed := g.look(ctx, t)
		if failed == nil {
			g.plans.notice(t, past, by) // it may have been committed
		}
		if t.ended() == nil {
			err = g.plans.drop(t, err, by)
		}
		if failed != nil || past.State == ledger.StateOpen {
			return nil, err
		}
		return t.closed(ctx, g, past), nil
	}
	if len(t.standing()) > 0 {
		g.plans.overdraw(r.holder(), t, time.Now())
	}
	g.plans.drop(t, errors.New("it was failed, to be undone"), by)
	return g.waited(ctx, t)
}

// waited waits for the end of a plan's undo and says what became of its effects that were there.
func (g *Gateway) waited(ctx context.Context, t *tracked) (report, error) {
	t.mu.Lock()
	before := map[*effect]bool{}
	for _, e := range t.effects {
		before[e] = e.there()
	}
	t.mu.Unlock()
	waiting, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	_, waits := t.plan.Wait(waiting)
	past, err := g.look(context.WithoutCancel(ctx), t)
	switch {
	case err != nil:
		return report{Plan: t.plan.ID(), State: ledger.StateUnwinding, Message: "it is being undone; " +
			"what became of its calls is not known yet: " + errors.Join(waits, err).Error()}, nil
	case waits != nil:
		past.Reason = "it goes on without this connection: " + waits.Error() + elsewhere(g)
	}
	return t.report(past, func(e *effect) bool { return before[e] }), nil
}

// planStatus reads a plan, open or ended, and leaves it to the process that writes it.
func (g *Gateway) planStatus(ctx context.Context, r request, in ownInput) (any, error) {
	all := func(*effect) bool { return true }
	if t := g.plans.known(r.holder(), in.Plan); t != nil {
		past, err := g.look(ctx, t)
		if err != nil {
			return nil, err
		}
		g.plans.notice(t, past, r.holder())
		return t.reported(ctx, g, past, all)
	}
	if in.Plan == "" {
		return nil, g.plans.none(r.holder())
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	past, err := g.agent.Past(ctx, in.Plan, 0)
	if err != nil {
		return nil, err
	}
	t := &tracked{}
	t.effects, _ = g.recollect(past)
	t.learn(past)
	return t.reported(ctx, g, past, all)
}

// What became of a call is not always in the history of its plan: of a committed one, another plan
// undoes it, and another one makes what was staged.

// reported is the report of some effects of a plan that was looked at, with what other plans know
// of them. Errors: as coordinator.Past; then it is not known whether what is there stays.
func (t *tracked) reported(ctx context.Context, g *Gateway, past coordinator.Past,
	of func(*effect) bool) (report, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	t.answered(ctx, g, past.Plan)
	if past.UndoneAs == "" {
		return t.report(past, of), nil
	}
	undoing, err := g.agent.Past(ctx, past.UndoneAs, 0)
	if err != nil {
		return t.report(past, of), err
	}
	undoing.Actions = slices.DeleteFunc(undoing.Actions, func(a coordinator.PastUndo) bool {
		return a.Note == ledger.NoteNotAsked // it stays, as the committed plan says
	})
	t.learn(undoing)
	out := t.report(undoing, of) // which says where a person looks at what needs its owner
	out.Plan, out.State = past.Plan, past.State
	out.Message = ended(past) + ", and is " + undoing.State
	return out, nil
}

// answered finds out what their owner has said of calls that were staged: the plan that makes them
// says so.
func (t *tracked) answered(ctx context.Context, g *Gateway, plan string) {
	stay := t.those(func(e *effect) bool { return e.wasStaged() && e.State == stateStays })
	if len(stay) == 0 {
		return
	}
	making, err := g.agent.Past(ctx, plan+deliverySuffix, 0)
	if err != nil {
		g.logger.Debug("what its owner has said of a call is not known", "plan", plan, "error", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range making.Actions {
		i := slices.IndexFunc(stay, func(e *effect) bool { return e.Action == a.Action })
		if i >= 0 && a.Undo == ledger.StateResolved {
			stay[i].why = "its owner has answered for it: " + a.Resolution + said(" by ", a.ResolvedBy) +
				said(", ", a.ResolvedReason)
		}
	}
}

// standing lists the effects that are not undone, in their order.
func (t *tracked) standing() []*effect { return t.those((*effect).there) }

// those lists some effects, in their order.
func (t *tracked) those(are func(*effect) bool) []*effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*effect
	for _, e := range t.effects {
		if are(e) {
			list = append(list, e)
		}
	}
	return list
}

func (g *Gateway) undoLast(ctx context.Context, r request, in ownInput) (any, error) {
	return g.undoFrom(ctx, r, in, func(all []*effect) ([]*effect, error) {
		list, count := undoables(all), 1
		if in.Count != nil {
			count = *in.Count
		}
		switch {
		case count < 1:
			return nil, ledger.Refuse("count", fmt.Sprint(count), "at least 1")
		case len(list) == 0:
			return nil, nil
		case count > len(list):
			return nil, ledger.Refuse("count", fmt.Sprint(count), fmt.Sprintf("1 to %d", len(list)))
		}
		return list[len(list)-count:], nil
	})
}

func (g *Gateway) undoTo(ctx context.Context, r request, in ownInput) (any, error) {
	return g.undoFrom(ctx, r, in, func(all []*effect) ([]*effect, error) {
		i := slices.IndexFunc(all, func(e *effect) bool { return e.Action == in.Action })
		if i < 0 {
			return nil, ledger.Refuse("action", fmt.Sprintf("%q", in.Action),
				"an action that what_can_be_undone lists")
		}
		if !all[i].there() {
			return nil, ledger.Refuse("action", in.Action+" is undone itself",
				"an action that is not undone; "+nearest(all[:i]))
		}
		return undoables(all[i+1:]), nil // whoever lets it stand, it stays
	})
}

// nearest is what can be done instead of going back to an action that is undone: the last of those
// before it that stand.
func nearest(before []*effect) string {
	for _, e := range slices.Backward(before) {
		if e.there() {
			return "the last one before it is " + e.Action
		}
	}
	return "none before it does, and undo_last or plan_fail undo what came after it"
}

// undoables are those of some effects that an undo of an open plan undoes.
func undoables(list []*effect) []*effect {
	return slices.DeleteFunc(slices.Clone(list), func(e *effect) bool { return !e.undoable() })
}

// undoFrom undoes the last effects of a plan, and says so. They are chosen once no other call is
// under way: one that has just ended is undone with what came before it.
func (g *Gateway) undoFrom(ctx context.Context, r request, in ownInput,
	choose func([]*effect) ([]*effect, error)) (any, error) {
	t, past, err := g.openPlan(ctx, r, in)
	if t == nil {
		return past, err
	}
	release, err := t.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := untold(ctx, g, r.holder(), t); err != nil {
		return nil, fmt.Errorf("%w. Nothing was undone now", err)
	}
	recorded, err := g.look(ctx, t)
	if err != nil {
		return nil, err
	}
	if recorded.State != ledger.StateOpen && recorded.State != ledger.StateUnwinding {
		g.plans.notice(t, recorded, r.holder())
		return t.closed(ctx, g, recorded), nil
	}
	if recorded.State == ledger.StateOpen { // its savepoint may have gone with a part of it
		t.markAgain(ctx)
		if err := g.plans.hear(ctx, r.holder(), t); err != nil {
			return nil, fmt.Errorf("%w. Nothing was undone now", err)
		}
	}
	last, err := choose(t.those(func(*effect) bool { return true }))
	if err != nil {
		return nil, err
	}
	if len(last) == 0 {
		return report{Plan: t.plan.ID(), State: recorded.State, Message: "there is nothing to undo"}, nil
	}
	if err := t.alone(last); err != nil {
		return nil, err
	}
	if wait := g.plans.spend(r.holder(), t, time.Now()); wait > 0 {
		return nil, overdrawn(wait, "the next undo")
	}
	return g.undo(ctx, t, last, r.holder())
}

// openPlan finds the plan that a tool ends or undoes in part; without one there is a report of
// what the ledger has of it, or an error.
func (g *Gateway) openPlan(ctx context.Context, r request, in ownInput) (*tracked, report, error) {
	t, err := g.plans.of(ctx, r.holder(), in.Plan, false)
	if err == nil || in.Plan == "" {
		return t, report{}, err
	}
	looking, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	past, failed := g.agent.Past(looking, in.Plan, 0)
	if failed != nil || past.State == ledger.StateOpen {
		return nil, report{}, err
	}
	t = &tracked{}
	t.effects, _ = g.recollect(past)
	t.learn(past)
	return nil, t.closed(ctx, g, past), nil
}

// nothingUndone begins what a tool says that was to undo something.
const nothingUndone = "nothing was undone now: "

// closed says that a plan is not open, so that nothing of it was undone now, and who can still do
// something about it.
func (t *tracked) closed(ctx context.Context, g *Gateway, past coordinator.Past) report {
	out, err := t.reported(ctx, g, past, func(*effect) bool { return true })
	out.refused, out.Message = true, nothingUndone+out.Message
	if err != nil {
		out.Message += "; what that has undone is not known: " + err.Error()
	}
	switch {
	case past.State == ledger.StateCommitted && past.UndoneAs == "":
		out.Message += "; what it has done can be undone by an operator: sagenbaum plan unwind " +
			past.Plan
	case past.State == ledger.StateQuarantined:
		out.Message += "; it goes on once its owner has answered: sagenbaum quarantine ls"
	}
	return out
}

// alone refuses to undo effects that can be undone only together with others before them.
func (t *tracked) alone(last []*effect) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last[0].mark != "" {
		return nil
	}
	want := "plan_fail, which undoes all of the plan"
	if count := t.joint(slices.Index(t.effects, last[0])); count > 0 {
		want = fmt.Sprintf("undo_last with count %d or more", count)
	}
	return ledger.Refuse("action", last[0].Action+" has no savepoint of its own, of which a plan has "+
		fmt.Sprintf("at most %d, and can be undone only together with what was done before it",
			ledger.SavepointsMax), want)
}

// undo goes back to the savepoint before some effects.
func (g *Gateway) undo(ctx context.Context, t *tracked, last []*effect,
	by *sdk.ServerSession) (any, error) {
	mark := last[0].mark
	waiting, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	err := t.plan.UnwindTo(waiting, mark, "undo of "+names(last))
	switch {
	case errors.Is(err, coordinator.ErrUnwound),
		errors.Is(err, coordinator.ErrUnwinding) && t.overs(err):
		g.plans.drop(t, err, by)
		return g.waited(ctx, t)
	case err != nil && !t.plan.GoesBack():
		return nil, g.notBack(t, last, err, by)
	}
	g.plans.undoneBy(by, t, names(last))
	past, failed := g.look(context.WithoutCancel(ctx), t)
	t.mu.Lock()
	for _, e := range last {
		if failed != nil || err != nil && e.State == e.known {
			e.State = stateUndoing // until the ledger says more
		}
	}
	if err == nil {
		t.mark = mark // it is the place where the plan is now
	}
	t.mu.Unlock()
	if failed != nil {
		past = coordinator.Past{Plan: t.plan.ID(), State: ledger.StateUnwinding,
			Reason: "what became of the calls is not known yet: " + failed.Error()}
	}
	out := t.report(past, func(e *effect) bool { return slices.Contains(last, e) })
	if err != nil {
		out.Message = "it is being undone, and goes on; the plan is open again then: " + err.Error() +
			elsewhere(g)
	}
	return out, nil
}

// elsewhere says of an undo that is not made yet what is to make it; empty: this gateway is.
func elsewhere(g *Gateway) string {
	if g.work != nil {
		return ""
	}
	return "; this gateway undoes nothing itself, and no worker has within " + g.patience.String() +
		": it waits until one runs, as " + cmp.Or(g.config.Worker, "sagenbaum mcp worker")
}

// notBack says why a plan does not go back to the savepoint before some effects.
func (g *Gateway) notBack(t *tracked, last []*effect, err error,
	by *sdk.ServerSession) error {
	var refused *ledger.Refused
	switch {
	case t.overs(err):
		return g.plans.drop(t, err, by)
	case errors.As(err, &refused) && refused.Field == "unwind_requested.to_savepoint":
		t.mu.Lock()
		last[0].mark = "" // the ledger does not have it
		t.mu.Unlock()
		return t.alone(last)
	}
	return err
}

func names(list []*effect) string {
	var parts []string
	for _, e := range list {
		parts = append(parts, e.Tool)
	}
	joined := strings.Join(parts, ", ")
	return joined[:min(len(joined), textKept)]
}

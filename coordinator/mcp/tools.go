package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
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
	Reason   string `json:"reason"`
	Action   string `json:"action"`
	Count    int    `json:"count"`
}

const planProperty = `"plan":{"type":"string","description":"Id of the plan. ` +
	`Default: the plan of this connection."}`

// ownTools lists them. What they answer says what is undone, what stands and why.
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
			`then it is undone."}}}`,
		call: (*Gateway).planBegin,
	},
	{
		name: "plan_commit",
		about: "Keep what the plan has done: nothing of it can be undone by undo_last or plan_fail " +
			"any more.",
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
			"undone.",
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
	if len(r.arguments) > 0 {
		if err := json.Unmarshal(r.arguments, &in); err != nil {
			return problem("cannot read the arguments: %v", err), nil
		}
	}
	in.Plan = cmp.Or(in.Plan, r.plan)
	i := slices.IndexFunc(ownTools, func(t ownTool) bool { return g.prefix+t.name == r.shown })
	answer, err := ownTools[i].call(g, ctx, r, in)
	if err != nil {
		return problem("%v", err), nil
	}
	raw, err := encode(answer)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{StructuredContent: raw,
		Content: []sdk.Content{&sdk.TextContent{Text: string(raw)}}}, nil
}

// report is what the gateway's own tools answer.
type report struct {
	Plan    string    `json:"plan"`
	State   string    `json:"state"`
	Undone  []*effect `json:"undone,omitempty"`
	Stands  []stands  `json:"stands,omitempty"`
	Can     []stands  `json:"can_be_undone,omitempty"`
	Message string    `json:"message,omitempty"`
}

// stands is an effect that is there, and why it can or cannot be undone.
type stands struct {
	*effect
	How string `json:"how"`
}

func (g *Gateway) planBegin(ctx context.Context, r request, in ownInput) (any, error) {
	spec := coordinator.PlanSpec{Label: cmp.Or(in.Label, "MCP session"), Owner: in.Owner}
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
	alone, err := g.plans.alone(ctx, r.session, "")
	if err != nil {
		return nil, err
	}
	defer alone()
	if t := g.plans.known(r.session, ""); t != nil {
		if err := g.replace(ctx, t); err != nil {
			return nil, err
		}
	}
	t, err := g.plans.begin(ctx, r.session, spec)
	if err != nil {
		return nil, err
	}
	return report{Plan: t.plan.ID(), State: ledger.StateOpen,
		Message: "calls of this connection belong to it from now on"}, nil
}

// replace ends a plan that has done nothing, so that its connection can begin another one.
func (g *Gateway) replace(ctx context.Context, t *tracked) error {
	release, err := t.take(ctx) // a call that is under way may have an effect
	if err != nil {
		return err
	}
	defer release()
	if t.ended() != nil {
		return nil
	}
	if len(t.standing()) > 0 {
		return ledger.Refuse("plan", "plan "+t.plan.ID()+" of this connection is open and has done "+
			"something", "plan_commit or plan_fail first")
	}
	g.plans.drop(t, errors.New("plan_begin has begun another plan"))
	if err := t.plan.Commit(ctx); err != nil {
		g.logger.Warn("a plan that has done nothing stays open until its deadline",
			"tenant", g.config.Tenant, "plan", t.plan.ID(), "error", err)
	}
	return nil
}

func (g *Gateway) planCommit(ctx context.Context, r request, in ownInput) (any, error) {
	t, err := g.plans.of(ctx, r.session, in.Plan, false)
	if err != nil {
		return nil, err
	}
	if err := t.plan.Commit(ctx); err != nil {
		if t.overs(err) {
			g.plans.drop(t, err)
		}
		return nil, err
	}
	g.plans.drop(t, errors.New("it is committed"))
	return report{Plan: t.plan.ID(), State: ledger.StateCommitted,
		Message: fmt.Sprintf("%d calls stay as they are", len(t.standing()))}, nil
}

func (g *Gateway) planFail(ctx context.Context, r request, in ownInput) (any, error) {
	t, err := g.plans.of(ctx, r.session, in.Plan, false)
	if err != nil {
		return nil, err
	}
	if err := t.plan.Fail(ctx, cmp.Or(in.Reason, "the agent asked for it")); err != nil {
		if t.overs(err) {
			g.plans.drop(t, err)
		}
		return nil, err
	}
	g.plans.drop(t, errors.New("it was failed, to be undone"))
	return g.waited(ctx, t)
}

// waited waits for the end of a plan's undo and says what became of its effects.
func (g *Gateway) waited(ctx context.Context, t *tracked) (report, error) {
	ctx, cancel := context.WithTimeout(ctx, undoWait)
	defer cancel()
	end, err := t.plan.Wait(ctx)
	if err != nil {
		return report{Plan: t.plan.ID(), State: ledger.StateUnwinding, Message: "it is being " +
			"undone, and goes on without this connection: " + err.Error()}, nil
	}
	out := report{Plan: t.plan.ID(), State: end.State, Message: end.Reason}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range slices.Backward(t.effects) {
		switch {
		case e.State == stateUndone: // said before
		case slices.Contains(end.Outstanding, e.Action):
			out.Stands = append(out.Stands, stands{e, "its undo needs the plan's owner: " +
				"sagenbaum quarantine show " + t.plan.ID() + " " + e.Action})
		case e.Class == contract.Irreversible:
			out.Stands = append(out.Stands, stands{e, "nothing undoes it"})
		case end.State == ledger.StateCompensated, end.State == ledger.StateFailed:
			e.State = stateUndone
			out.Undone = append(out.Undone, e)
		case end.State == ledger.StateQuarantined:
			out.Message = "the calls that are not listed are undone, or held until the owner has " +
				"answered: sagenbaum plan show " + t.plan.ID()
		default:
			out.Message = "what became of the calls is listed by: sagenbaum plan show " + t.plan.ID()
		}
	}
	return out, nil
}

func (g *Gateway) planStatus(ctx context.Context, r request, in ownInput) (any, error) {
	t, err := g.plans.of(ctx, r.session, in.Plan, false)
	if err != nil {
		return nil, err
	}
	out := report{Plan: t.plan.ID(), State: ledger.StateOpen}
	if over := t.ended(); over != nil {
		out.State, out.Message = "ended", over.Error()
	} else if err := g.look(ctx, t); err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(t.standing()) {
		switch {
		case out.State != ledger.StateOpen || e.Class == contract.Irreversible:
			how := "nothing undoes it"
			if e.Class != contract.Irreversible {
				how = out.Message
			}
			out.Stands = append(out.Stands, stands{e, how})
		case e.State == stateUndoing:
			out.Stands = append(out.Stands, stands{e, "it is being undone"})
		case e.State == stateInDoubt:
			how := "no one knows whether it has happened; its undo finds out"
			if e.mark == "" {
				how += ", together with what was done before it"
			}
			out.Can = append(out.Can, stands{e, how})
		case e.mark == "":
			out.Can = append(out.Can, stands{e, "together with what was done before it"})
		default:
			out.Can = append(out.Can, stands{e, cmp.Or(string(e.Fidelity), "as its contract says")})
		}
	}
	return out, nil
}

// standing lists the effects that are not undone, in their order.
func (t *tracked) standing() []*effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*effect
	for _, e := range t.effects {
		if e.State != stateUndone {
			list = append(list, e)
		}
	}
	return list
}

func (g *Gateway) undoLast(ctx context.Context, r request, in ownInput) (any, error) {
	t, err := g.plans.of(ctx, r.session, in.Plan, false)
	if err != nil {
		return nil, err
	}
	return g.undoFrom(ctx, t, func(list []*effect) ([]*effect, error) {
		count := cmp.Or(in.Count, 1)
		if count < 0 || count > len(list) {
			return nil, ledger.Refuse("count", fmt.Sprint(count), fmt.Sprintf("1 to %d", len(list)))
		}
		return list[len(list)-count:], nil
	})
}

func (g *Gateway) undoTo(ctx context.Context, r request, in ownInput) (any, error) {
	t, err := g.plans.of(ctx, r.session, in.Plan, false)
	if err != nil {
		return nil, err
	}
	return g.undoFrom(ctx, t, func(list []*effect) ([]*effect, error) {
		i := slices.IndexFunc(list, func(e *effect) bool { return e.Action == in.Action })
		if i < 0 {
			return nil, ledger.Refuse("action", fmt.Sprintf("%q", in.Action),
				"an action that what_can_be_undone lists")
		}
		return list[i+1:], nil
	})
}

// undoFrom undoes the last effects of a plan, and says so. They are chosen once no other call is
// under way: one that has just ended is undone with what came before it.
func (g *Gateway) undoFrom(ctx context.Context, t *tracked,
	choose func([]*effect) ([]*effect, error)) (any, error) {
	release, err := t.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := g.look(ctx, t); err != nil {
		return nil, err
	}
	last, err := choose(t.standing())
	if err != nil {
		return nil, err
	}
	if len(last) == 0 {
		return report{Plan: t.plan.ID(), State: ledger.StateOpen, Message: "it is the last action"}, nil
	}
	first := last[0]
	if first.mark == "" {
		return nil, ledger.Refuse("action", first.Action+" can be undone only together with what "+
			"was done before it", "undo_last with a larger count, or plan_fail")
	}
	ctx, cancel := context.WithTimeout(ctx, undoWait)
	defer cancel()
	err = t.plan.UnwindTo(ctx, first.mark, "undo of "+names(last))
	switch {
	case errors.Is(err, coordinator.ErrUnwound),
		errors.Is(err, coordinator.ErrUnwinding) && t.overs(err):
		g.plans.drop(t, err)
		return g.waited(ctx, t)
	case err != nil && t.plan.GoesBack():
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, e := range last {
			e.State = stateUndoing
		}
		return report{Plan: t.plan.ID(), State: ledger.StateUnwinding, Message: "it is being undone, " +
			"and goes on; the plan is open again then: " + err.Error()}, nil
	case err != nil:
		return nil, err
	}
	out := report{Plan: t.plan.ID(), State: ledger.StateOpen}
	t.mu.Lock()
	for _, e := range slices.Backward(last) {
		e.State = stateUndone
		out.Undone = append(out.Undone, e)
	}
	t.mark = first.mark // it is the place where the plan is now
	t.mu.Unlock()
	return out, nil
}

func names(list []*effect) string {
	var parts []string
	for _, e := range list {
		parts = append(parts, e.Tool)
	}
	joined := strings.Join(parts, ", ")
	return joined[:min(len(joined), textKept)]
}

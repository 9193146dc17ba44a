package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/opening"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// An agent that comes back. Each process of an agent is a writer with a name of its own,
// and a plan takes the records of one writer. A forward must not run before it is known
// that its pair was taken; where the plan's ID was drawn at random by this process no one
// else can have used it, and there is nothing to ask.

// Resume makes this process the one that goes on with an open plan of its agent, begun by
// a process that has ended, or is believed to have: what that one begins from now on is
// refused, and what it says of the actions that it has registered still counts.
//
// Recorded says what the plan knows. Do with the ID of a recorded action runs no forward:
// it returns the output that is recorded, or a *Recorded that says how it failed, that it was
// undone, or that no one knows whether it happened. Report settles such a doubt, and is believed
// after a failure, too. Actions without an ID go on with the number after the last one.
//
// Errors: *Refused (no such plan, another agent's, one of Run, an ended one, or one
// that this coordinator has open), ErrUnwinding, ErrSuperseded (a third process has resumed
// it meanwhile), and as of Flush. It waits for an executor until ctx ends.
func (c *Coordinator) Resume(ctx context.Context, plan string) (*Plan, error) {
	p, err := c.resume(ctx, plan)
	if err != nil {
		return nil, fmt.Errorf("cannot resume plan %q: %w", plan, err)
	}
	return p, nil
}

func (c *Coordinator) resume(ctx context.Context, id string) (*Plan, error) {
	switch {
	case c.bus == nil:
		return nil, ledger.Refuse("config.conn", "missing",
			"a connection to NATS: what is recorded is asked for")
	case !ledger.ValidToken(id):
		return nil, ledger.Refuse("plan.id", fmt.Sprintf("%q is not a name", id),
			"the id of an open plan of this agent")
	}
	if err := c.committer.taking(); err != nil {
		return nil, err
	}
	history, err := c.history(ctx, api.HistoryQuery{Plan: id, Limit: 1}, false)
	if err != nil {
		return nil, err
	}
	opening, err := c.resumable(id, history)
	if err != nil {
		return nil, err
	}
	p := newPlan(c, opening)
	p.opening = resumes(id, history)
	p.asked, p.resumed, p.follows = true, true, history.WriterAt
	if history.Writer == c.writer && p.follows > 0 { // its hold, or an earlier process's, goes on
		p.follows--
	}
	if err := c.hold(p); err != nil {
		return nil, err
	}
	if err = c.askToYield(ctx, id, history); err == nil {
		err = p.flush(ctx, true)
	}
	if err == nil {
		history, err = c.history(ctx, api.HistoryQuery{Plan: id, Sequence: p.Stored()}, true)
	}
	switch {
	case err != nil:
	case history.Writer != c.writer && history.State == ledger.StateOpen:
		err = Lost(id, c.agent, history.Agent, history.Writer, history.Handed)
	default:
		if _, err = c.resumable(id, history); err == nil {
			p.confirmed = true
			err = p.recall(ctx, history)
		}
	}
	if err != nil {
		c.forget(p)
		return nil, err
	}
	return p, nil
}

// askToYield has the process that writes a plan let it go, so that no forward of it runs under a
// pair that is stored after the plan was resumed, and what it has not called is known. Where that
// process is gone there is no wait; one that does not answer is superseded all the same. One that
// has resumed the plan itself since the history was read keeps it: the error is as of Lost.
func (c *Coordinator) askToYield(ctx context.Context, id string, history api.HistoryAnswer) error {
	// what any client has recorded, and no name while the plan is handed over
	if history.Writer == c.writer || !ledger.ValidToken(history.Writer) {
		return nil
	}
	subject := api.YieldSubject(c.tenant, c.agent, history.Writer)
	ctx, cancel := context.WithTimeout(ctx, 2*yieldMax) // with the way to the server
	defer cancel()
	answer, err := c.bus.question(ctx, question{subject: subject, replies: subject + ".",
		body: mustJSON(api.Yield{Plan: id, WriterAt: history.WriterAt}), within: yieldMax})
	if err == nil && len(answer) > 0 {
		err = api.DecodeAnswer(answer, new(struct{}))
	}
	var problem *api.Problem
	switch {
	case errors.As(err, &problem) && problem.Again:
		return Lost(id, c.agent, history.Agent, history.Writer, history.Handed)
	case err != nil && !errors.Is(err, errNobody):
		c.logger.Warn("the process that has the plan does not let it go", "tenant", c.tenant,
			"plan", id, "process", history.Writer, "error", err)
	}
	return nil
}

// yield answers a process of this agent that is about to resume a plan of this one: the plan is let
// go, or the answer is the *api.Problem that says why not.
func (c *Coordinator) yield(body []byte) []byte {
	err := c.yields(body)
	if err == nil {
		return nil
	}
	problem := api.ProblemOf(err)
	if refused := new(ledger.Refused); errors.As(err, &refused) {
		problem.Field, problem.Want = refused.Field, refused.Want
	}
	return mustJSON(problem)
}

func (c *Coordinator) yields(body []byte) error {
	var q api.Yield
	if err := ledger.ReadRequest(body, &q, "request"); err != nil {
		return err
	}
	if !ledger.ValidToken(q.Plan) {
		return ledger.Refuse("request.plan", fmt.Sprintf("%.80q is not a name", q.Plan),
			"the id of a plan of this agent")
	}
	p := c.plan(q.Plan)
	switch {
	case p == nil || p.replays: // a fence holds what is run
	case q.WriterAt != 0 && q.WriterAt <= p.follows:
		// Whoever asks has seen this process as the writer before it lost the plan, and got it back.
		// What it would store is refused: the plan would be without a process.
		return &api.Problem{Text: "this process has resumed plan " + q.Plan + " since",
			Field: "request.writer_at", Want: "that of its present writer, as the history says it",
			Again: true}
	default:
		c.letGo(p)
	}
	return nil
}

// letGo lets a plan go to another process of this agent: forwards that end soon do, and what is
// known is stored.
func (c *Coordinator) letGo(p *Plan) {
	p.supersede()
	ctx, cancel := context.WithTimeout(context.Background(), c.confirmTimeout)
	defer cancel()
	// what ends now is no doubt for the other one; its wait has to last for what is stored, too
	soon, end := context.WithTimeout(ctx, yieldMax/2)
	awaitForwards(soon, p)
	end()
	err := p.flush(ctx, false)
	p.mu.Lock()
	last := p.last // of a call, perhaps, which flush leaves to it
	p.mu.Unlock()
	if err == nil && last != nil {
		_, err = c.wait(ctx, last)
	}
	if err != nil {
		c.logger.Warn("what is known of a plan that another process takes is not known to be stored",
			"tenant", c.tenant, "plan", p.id, "error", err)
	}
}

// Wait returns when a plan of this tenant has ended, or waits for its owner, whichever
// process began it. Errors as of Plan.Wait.
func (c *Coordinator) Wait(ctx context.Context, plan string) (End, error) {
	if !ledger.ValidDerived(plan) {
		return End{}, ledger.Refuse("plan.id", fmt.Sprintf("%q is not a name", plan), "the id of a plan")
	}
	return (&Plan{c: c, id: plan}).Wait(ctx)
}

// hold has the notices of a plan reach it.
func (c *Coordinator) hold(p *Plan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plans[p.id] != nil || c.runs[p.id] != nil {
		return ledger.Refuse("plan.id", "open already in this process", "an id of its own for each plan")
	}
	c.plans[p.id] = p
	return nil
}

// opened says how a plan of this agent was opened.
func (c *Coordinator) opened(id string, history api.HistoryAnswer) (*pb.PlanOpened, error) {
	const want = "the id of a plan of this agent"
	switch history.Agent {
	case c.agent:
	case "":
		return nil, ledger.Refuse("plan.id", "there is no such plan", want)
	default:
		if history.Handed != nil {
			return nil, Lost(id, c.agent, history.Agent, history.Writer, history.Handed)
		}
		return nil, ledger.Refuse("plan.id", "a plan of agent "+history.Agent, want)
	}
	opened := new(pb.PlanOpened)
	if err := opened.UnmarshalVT(history.Opened); err != nil {
		return nil, fmt.Errorf("cannot read how it was opened: %v", err)
	}
	return opened, nil
}

// resumable says why a plan cannot be resumed, or how it was opened.
func (c *Coordinator) resumable(id string, history api.HistoryAnswer) (*pb.Record, error) {
	opened, err := c.opened(id, history)
	if err != nil {
		return nil, err
	}
	switch {
	case opened.Function != "":
		return nil, ledger.Refuse("plan.id", "begun by Run",
			"Run with function "+opened.Function+", which goes on where it was")
	case history.State == ledger.StateUnwinding:
		return nil, fmt.Errorf("%w%s", ErrUnwinding, because(history.Reason))
	case history.State != ledger.StateOpen:
		return nil, ledger.Refuse("plan.id", "it is "+history.State+because(history.Reason),
			"the id of an open plan of this agent")
	}
	return opening.Recorded(id, opened, history.Input), nil
}

// unused refuses the ID of a plan that exists. Without an answer in time the first action
// finds out.
func (c *Coordinator) unused(ctx context.Context, id string) error {
	if c.bus == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.lookup)
	defer cancel()
	answer, err := (&Plan{c: c, id: id}).ask(ctx, api.OutcomeQuery{Plan: id})
	switch {
	case errors.Is(err, ErrConnectionClosed):
		return err
	case err != nil:
		return nil // there is none, or no one knows
	}
	problem, want := "it is "+answer.State, "an id of its own for each plan"
	if answer.State == ledger.StateOpen {
		history, err := c.historyPage(ctx, api.HistoryQuery{Plan: id, Limit: 1})
		if err == nil && history.Agent != "" && history.Agent != c.agent {
			problem = "a plan of agent " + history.Agent
		} else {
			problem, want = problem+", begun by another process", "Resume, to go on with it, or "+want
		}
	}
	return fmt.Errorf("%w: %w", ErrPlanExists, ledger.Refuse("plan.id", problem, want))
}

// taken reports whether what this process registers under the plan is the plan's, by what
// an executor says of the pair of an action. The error says why it is not.
func (p *Plan) taken(answer api.OutcomeAnswer) error {
	switch {
	case answer.Writer != "" && !p.c.isWriter(answer):
		p.mu.Lock()
		ours := p.confirmed || !p.asked
		p.mu.Unlock()
		why := lostTo(p, answer)
		if lose(p, why); ours {
			return why
		}
		return fmt.Errorf("%w: %w", ErrPlanExists,
			refusedBy(answer, "plan.id", "Resume, to go on with it, or an id of its own for each plan"))
	case len(answer.Refused) > 0:
		return refusedBy(answer, "plan.id", "an action that the plan takes")
	}
	return nil
}

// refuses gives up an action whose pair was not taken, and says why.
func (a *action) refuses(answer api.OutcomeAnswer, why *error) bool {
	p := a.plan
	err := p.taken(answer)
	if *why = err; err == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.state == actionRegistered {
		*why = errors.Join(err, a.giveUpFor(err, ledger.Text(err.Error())))
	}
	return true
}

// resumedBy takes a notice that a process has resumed the plan. Where this process has done so
// itself, the notice may be an older one that comes late: an executor that knows what is
// stored here is asked.
func (p *Plan) resumedBy(writer string) {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	switch {
	case writer == p.c.writer:
	case !resumed:
		p.supersede()
	case p.Stored() > 0: // otherwise its claim is under way, which looks itself
		go p.askWriter() // ends within confirmTimeout
	}
}

// askWriter asks an executor whose records the plan takes.
func (p *Plan) askWriter() {
	ctx, cancel := context.WithTimeout(context.Background(), p.c.confirmTimeout)
	defer cancel()
	for ctx.Err() == nil {
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: p.Stored()})
		if err == nil {
			if answer.Writer != "" && !p.c.isWriter(answer) {
				lose(p, lostTo(p, answer))
			}
			return
		}
		if errors.Is(err, ErrConnectionClosed) {
			return
		}
		pause.For(ctx, askDelay)
	}
}

// supersede takes notice that another process has resumed the plan. What was registered
// here and not called never will be; what runs may end.
func (p *Plan) supersede() { lose(p, ErrSuperseded) }

// lostTo is why an executor names another process as the one that writes the plan.
func lostTo(p *Plan, answer api.OutcomeAnswer) error {
	return Lost(p.id, p.c.agent, answer.Agent, answer.Writer, answer.Handed)
}

// isWriter reports whether an executor names this process as the one that writes a plan.
func (c *Coordinator) isWriter(answer api.OutcomeAnswer) bool {
	return answer.IsWriter(c.agent, c.writer)
}

// handedOver takes a notice that an operator has handed the plan to another agent, or back to this
// one: a process of that has to resume it. As in resumedBy the notice may be an older one.
func handedOver(p *Plan, n api.Notice) {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	switch {
	case !resumed:
		lose(p, &HandedOver{Plan: p.id, Agent: n.HandedTo, By: n.By, Reason: n.Reason})
	case p.Stored() > 0:
		go p.askWriter() // ends within confirmTimeout
	}
}

// lose ends what this process has to say of a plan, but for what its forwards have done.
func lose(p *Plan, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return
	}
	p.lost = why
	for _, a := range p.order {
		if a.state != actionRegistered || a.pair.failed() {
			continue
		}
		if err := a.giveUpFor(ErrSuperseded,
			"its plan went to another process before it was called"); err != nil {
			p.c.logger.Warn("what was never called is not recorded", "tenant", p.c.tenant, "plan", p.id,
				"action", a.call.Action, "error", err)
		}
	}
	p.change()
}

// Superseded reports whether this process knows that another one has taken over a plan.
func Superseded(p *Plan) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Is(p.lost, ErrSuperseded)
}

// recall has the plan know what is recorded of it.
func (p *Plan) recall(ctx context.Context, history api.HistoryAnswer) error {
	if err := p.vault.openPast(ctx, history.Actions); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range history.Actions {
		past := &history.Actions[i]
		p.count = int(past.Number)
		switch {
		case past.Child != "":
			p.children = append(p.children, p.count)
			continue
		case past.DutyOf != "":
			continue
		}
		registered := new(pb.ForwardRegistered)
		if err := registered.UnmarshalVT(past.Forward); err != nil {
			return fmt.Errorf("cannot read what is recorded of action %q: %v", past.Action, err)
		}
		p.recallAction(past, registered)
		p.actions[past.Action].again = history.Writer == p.c.writer &&
			past.OutcomeAt != 0 && past.OutcomeAt < history.WriterAt
	}
	p.openedNs = history.OpenedNs
	if p.deadlines = history.DueSet; history.DueNs != 0 {
		p.deadline = time.Unix(0, history.DueNs)
	}
	p.savepointsSet, p.rewinds, p.parts.known = history.SavepointsSet, history.Rewinds, history.Parts
	for _, s := range history.Savepoints {
		p.savepoints = append(p.savepoints,
			&savepoint{name: s.Name, bundle: storedAt(p.id, 0), at: int(s.Actions), told: true})
	}
	return nil
}

// recallAction has the plan know an action of an earlier process. Called with mu held.
func (p *Plan) recallAction(past *api.PastAction, registered *pb.ForwardRegistered) {
	a := &action{
		plan:   p,
		number: int(past.Number), pair: storedAt(p.id, past.Sequence), state: actionEnded,
		queued: time.Now(), finished: make(chan struct{}),
		call: Call{Plan: p.id, Action: past.Action, Capability: registered.Capability,
			Key: ledger.Key(p.c.tenant, p.id, past.Action, ledger.PurposeDo)},
		past: &Recorded{
			Action: past.Action, Capability: registered.Capability, Outcome: past.Outcome,
			Code: past.Code, Message: past.Message, By: past.VerdictBy, Output: slices.Clone(past.Output),
			ExternalRef: past.ExternalRef, Undone: past.Undone, Input: past.Input,
			Staged: registered.Deliver != nil,
		},
		pastInput: past.Input, pastBefore: past.Before, registered: registered,
		after:    slices.Clone(registered.After),
		reviewed: registered.Review, ruled: past.MayBeAllowed(),
	}
	if !registered.Branch {
		a.after = append(a.after, p.lastOf(registered.Deliver != nil)...)
	}
	p.actions[past.Action] = a
	p.order = append(p.order, a)
}

// storedAt is a bundle that an earlier process has stored.
func storedAt(plan string, sequence uint64) *bundle {
	b := &bundle{plan: plan, done: make(chan struct{}), seq: sequence}
	close(b.done)
	return b
}

// Recorded returns what was recorded of the plan's actions when it was resumed, in the
// order of their registration; what Report has settled since is completed. It is empty
// for a plan that this process began.
func (p *Plan) Recorded() []Recorded {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Recorded
	for _, a := range p.order {
		if a.past != nil {
			list = append(list, *a.past)
		}
	}
	return list
}

// admitPast says whether a call is that of a recorded action. Called with mu held.
func (a *action) admitPast(d *draft) error {
	p := a.plan
	// as it is recorded
	input := inputDigest(p.vault.seal(d.contract, a.call.Action, "input", d.input))
	other := a.stated(d)
	if other == "" && !bytes.Equal(a.pastInput, input) &&
		!bytes.Equal(a.pastInput, inputDigest(d.input)) {
		other = "input"
	}
	if other != "" {
		return another(d.ID, other)
	}
	return nil
}

// recorded is what Do returns of an action that an earlier process has registered.
func (a *action) recorded() (json.RawMessage, error) {
	p := a.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.past.Outcome == api.OutcomeCompleted && !a.past.Undone {
		return slices.Clone(a.past.Output), nil
	}
	past := *a.past
	return nil, &past
}

// reportPast reports an action of an earlier process as completed.
func (a *action) reportPast(ctx context.Context, declared Action, outcome Outcome) error {
	p := a.plan
	d, err := p.draft(ctx, declared, &outcome)
	if err == nil {
		err = a.settlePast(ctx, d)
	}
	if err != nil {
		return fmt.Errorf("cannot report action %q: %w", a.call.Action, err)
	}
	return nil
}

func (a *action) settlePast(ctx context.Context, d *draft) error {
	p := a.plan
	p.mu.Lock()
	switch {
	case p.ended() != nil:
		defer p.mu.Unlock()
		return p.ended()
	case a.past.Outcome == api.OutcomeCompleted:
		defer p.mu.Unlock()
		a.contract = d.contract
		if other := a.reports(d); other != "" {
			return another(d.ID, other)
		}
		return a.gone()
	}
	a.contract = d.contract
	done := a.completed(*d.happened)
	b := newBundle(p.id, done.record)
	err := p.queue(b)
	if err == nil {
		a.note(done.record, done)
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	p.c.committer.hurry(b)
	_, err = p.c.wait(ctx, b)
	if err == nil && !done.kept {
		err = done.problem
	}
	if err == nil { // recorded, so that an effect which came after its undo is undone
		p.mu.Lock()
		defer p.mu.Unlock()
		err = a.gone()
	}
	return err
}

// gone is the error of an action of an earlier process that was undone, or nil. Called with mu
// held.
func (a *action) gone() error {
	if !a.past.Undone {
		return nil
	}
	past := *a.past
	return &past
}

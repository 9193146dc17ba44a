package door

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// act is an action whose tool the agent calls. Its forward is a function of the coordinator that
// waits for what the agent tells.
type act struct {
	declared coordinator.Action
	wanted   chan struct{} // a request waits for the tool to be called
	started  chan struct{} // closed: the ledger has taken the pair, and call is set
	call     coordinator.Call
	told     chan told     // buffered 1
	done     chan struct{} // closed: output and err are set
	output   json.RawMessage
	err      error
}

// told is an outcome.
type told struct {
	outcome coordinator.Outcome
	cause   error
}

// calling reports whether the agent may be calling the tool.
func (a *act) calling() bool {
	select {
	case <-a.done:
		return false
	default:
	}
	select {
	case <-a.started:
		return true
	default:
		return false
	}
}

// pending reports whether the action is being registered, or waits for its verdict.
func (a *act) pending() bool {
	select {
	case <-a.done:
	case <-a.started:
	default:
		return true
	}
	return false
}

// differs names what another declaration of the action states otherwise; empty: nothing.
func (a *act) differs(b coordinator.Action) string {
	x, _ := a.declared.Input.(json.RawMessage)
	y, _ := b.Input.(json.RawMessage)
	switch {
	case a.declared.Capability != b.Capability:
		return "capability"
	case !bytes.Equal(x, y):
		return "input"
	case !slices.Equal(a.declared.After, b.After):
		return "after"
	case a.declared.Branch != b.Branch:
		return "branch"
	case a.declared.Pivot != b.Pivot:
		return "pivot"
	case a.declared.Review != b.Review:
		return "review"
	}
	return ""
}

// run registers the action and waits for its outcome. It ends with that, with a refusal, or with
// the life of the plan in this process.
func (a *act) run(h *held) {
	defer close(a.done)
	// Not before a request is there that is told so: until then a verdict counts that blocks it.
	a.output, a.err = coordinator.DoFor(h.life, h.plan, a.declared, a.wanted,
		func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
			a.call = call
			close(a.started)
			// Not for the end of its context: only the agent knows what became of the call, and
			// until it has said so nothing is known.
			select {
			case t := <-a.told:
				return t.outcome, t.cause
			case <-h.life.Done():
				return coordinator.Outcome{}, coordinator.ErrLeftOpen
			}
		})
}

// unregistered reports whether nothing of the action is left: it may be tried again.
func (a *act) unregistered() bool {
	select {
	case <-a.done:
	default:
		return false
	}
	select {
	case <-a.started:
		return false
	default:
	}
	var recorded *coordinator.Recorded
	return a.err != nil && !errors.As(a.err, &recorded) && !errors.Is(a.err, coordinator.ErrBlocked) &&
		!errors.Is(a.err, coordinator.ErrNoVerdict) && !errors.Is(a.err, coordinator.ErrNotStarted)
}

// doAct is plan.act.
func (d *Door) doAct(ctx context.Context, who Caller, q *Act) (Acted, error) {
	if !ledger.ValidToken(q.Action) {
		return Acted{}, ledger.Refuse("action", "no name", ledger.TokenWanted)
	}
	waits, err := waitOf(q.Wait)
	if err != nil {
		return Acted{}, err
	}
	w, h, done, err := d.take(ctx, who, q.Writer, q.Plan)
	if err != nil {
		return Acted{}, err
	}
	defer done()
	declared := coordinator.Action{ID: q.Action, Capability: q.Capability, After: q.After,
		Branch: q.Branch, Pivot: q.Pivot, Review: q.Review}
	if len(q.Input) > 0 {
		declared.Input = q.Input
	}
	if q.Stage {
		return w.stage(ctx, h, declared)
	}
	a, repeated, err := h.act(declared)
	if err != nil {
		return Acted{}, err
	}
	again := repeated && a.calling()
	if !a.await(ctx, waits) {
		return Acted{Plan: q.Plan, Action: q.Action, State: StateWaiting, Repeated: repeated}, nil
	}
	if repeated {
		look := coordinator.Happened
		if again { // another request may have been told to call it
			look = coordinator.AskedAgain
		}
		if err := a.learn(ctx, h, d.storedOf(who, q.Plan), look); err != nil {
			return Acted{}, err
		}
	}
	answer, err := a.answer(h)
	if err == nil && repeated && answer.State == StateRecorded {
		err = d.now(ctx, who, h, &answer)
	}
	answer.Repeated = repeated && answer.State == StateAccepted
	w.superseded(q.Plan, h, err)
	return answer, err
}

// stage has an act made once the plan has been committed. The coordinator knows what is staged
// already, from this process or an earlier one.
func (w *writer) stage(ctx context.Context, h *held, declared coordinator.Action) (Acted, error) {
	if err := h.plan.Stage(ctx, declared); err != nil {
		w.superseded(h.plan.ID(), h, err)
		return Acted{}, err
	}
	call, _ := coordinator.StagedCall(h.plan, declared.ID)
	return Acted{Plan: h.plan.ID(), Action: declared.ID, State: StateStaged, Number: call.Number,
		Key: call.Key, Sequence: int(call.Sequence)}, nil
}

// await waits, for so long, until the tool may be called or the act is done. Once the request is
// there for the call, it waits for as long as that takes to be asked for.
func (a *act) await(ctx context.Context, waits time.Duration) bool {
	within, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	over, wanted := within.Done(), a.wanted
	for {
		select {
		case <-a.done:
			return true
		case <-a.started:
			return true
		case wanted <- struct{}{}:
			over, wanted = ctx.Done(), nil
		case <-over:
			return false
		}
	}
}

// learn ends an act of which look says, with what is recorded up to a sequence, that the agent is
// not to call its tool: it has happened as another process has told, one that had the plan before
// or an operator, or it is blocked.
func (a *act) learn(ctx context.Context, h *held, sequence uint64,
	look func(context.Context, *coordinator.Plan, coordinator.Call, uint64) error) error {
	if !a.calling() {
		return nil
	}
	done := look(ctx, h.plan, a.call, sequence)
	if !errors.As(done, new(*coordinator.Recorded)) {
		return done
	}
	select {
	case a.told <- told{cause: done}:
	default: // the agent has told one itself
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// passOn has an act of the writer that now has a plan end with what an earlier one has told of it.
// It may fail: plan.act and plan.commit look by themselves.
func (d *Door) passOn(ctx context.Context, who Caller, q *Outcome, sequence uint64) {
	if q.Outcome != "completed" {
		return // of anything else the plan's writer may know better
	}
	d.mu.Lock()
	var writers []*writer
	for key, w := range d.writers {
		if key.tenant == who.Tenant {
			writers = append(writers, w)
		}
	}
	d.mu.Unlock()
	for _, w := range writers {
		if h, a := w.acting(q.Plan, q.Action); a != nil {
			if err := a.learn(ctx, h, sequence, coordinator.Happened); err != nil {
				d.log.Debug("an outcome is not passed on", "tenant", who.Tenant, "plan", q.Plan, "action",
					q.Action, "error", err)
			}
		}
	}
}

// now has an answer about an act that is done say what counts of it by now: after its first outcome
// another one may have been told. What was undone since then is refused.
func (d *Door) now(ctx context.Context, who Caller, h *held, answer *Acted) error {
	if answer.Outcome == api.OutcomeCompleted {
		return d.still(ctx, who, answer.Plan, answer.Action)
	}
	past, err := coordinator.Now(ctx, h.plan, answer.Action, d.storedOf(who, answer.Plan))
	if err != nil || past == nil || past.Outcome == answer.Outcome {
		return err
	}
	answer.Code, answer.Message, answer.Output, answer.By = "", "", nil, ""
	return (&act{err: past}).recorded(answer)
}

// still refuses an action that was undone since it was done, for which only an executor knows.
func (d *Door) still(ctx context.Context, who Caller, plan, action string) error {
	h, err := d.historyOf(ctx, who, plan, batchMax)
	if err != nil {
		return err
	}
	for _, past := range h.Actions {
		if past.Action == action && past.Undone {
			return undone(&coordinator.Recorded{Action: action, Undone: true})
		}
	}
	return nil
}

// act finds the act of a declaration, or starts it.
func (h *held) act(declared coordinator.Action) (a *act, again bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a = h.acts[declared.ID]; a != nil && !a.unregistered() {
		if other := a.differs(declared); other != "" {
			return nil, false, repeated("action", declared.ID, other)
		}
		return a, true, nil
	}
	a = &act{declared: declared, wanted: make(chan struct{}), started: make(chan struct{}),
		told: make(chan told, 1), done: make(chan struct{})}
	a.declared.After = slices.Clone(declared.After)
	h.acts[declared.ID] = a
	go a.run(h) // ends with its outcome, or with h.life
	return a, h.past[declared.ID], nil
}

// answer says what has become of an act that is started or done.
func (a *act) answer(h *held) (Acted, error) {
	answer := Acted{Plan: h.plan.ID(), Action: a.declared.ID, State: StateAccepted}
	select {
	case <-a.started:
		answer.Number, answer.Key, answer.Sequence = a.call.Number, a.call.Key, int(a.call.Sequence)
	default:
	}
	select {
	case <-a.done:
	default:
		return answer, nil
	}
	return answer, a.recorded(&answer)
}

// recorded completes the answer for an act that is done.
func (a *act) recorded(answer *Acted) error {
	answer.State = StateRecorded
	var recorded *coordinator.Recorded
	var verdict *coordinator.Verdict
	ran := answer.Key != ""
	switch err := a.err; {
	case err == nil:
		answer.Outcome, answer.Output = api.OutcomeCompleted, a.output
	case errors.As(err, &recorded) && recorded.Undone:
		return err
	case errors.As(err, &recorded):
		answer.Outcome, answer.Code, answer.Message = recorded.Outcome, recorded.Code, recorded.Message
		answer.Output = recorded.Output
		if errors.Is(err, coordinator.ErrBlocked) {
			answer.By = recorded.By
		}
		if errors.As(err, &verdict) { // an earlier process may have called it
			answer.Message += "; " + verdict.Error()
		}
	case errors.As(err, &verdict):
		answer.Outcome, answer.Code, answer.Message = api.OutcomeFailed, "blocked", verdict.Reason
		if answer.By = verdict.By; verdict.Outcome == verdictRedirect {
			answer.Code = "redirected"
		}
	case errors.Is(err, coordinator.ErrNoVerdict):
		answer.Outcome, answer.Code, answer.Message = api.OutcomeFailed, "no_verdict", err.Error()
	case !ran:
		return err
	case errors.Is(err, coordinator.ErrLeftOpen):
		answer.State = StateAccepted
	case a.problem() != "":
		answer.Outcome, answer.Output, answer.Problem = api.OutcomeCompleted, a.output, err.Error()
	case errors.Is(err, coordinator.ErrNotTaken):
		answer.Outcome, answer.Code, answer.Message = api.OutcomeFailed, "not_taken", err.Error()
	default:
		answer.Outcome, answer.Code, answer.Message = api.OutcomeInDoubt, "error", err.Error()
	}
	return nil
}

const (
	verdictAllow    = "allow"
	verdictRedirect = "redirect"
)

// doOutcome is plan.outcome.
func (d *Door) doOutcome(ctx context.Context, who Caller, q *Outcome) (Told, error) {
	t, err := toldOf(q)
	if err != nil {
		return Told{}, err
	}
	w, h, done, err := d.take(ctx, who, q.Writer, q.Plan)
	if errors.Is(err, coordinator.ErrSuperseded) && q.Outcome != "not_taken" {
		return d.outlived(ctx, who, q, t, err)
	}
	if err != nil {
		return Told{}, err
	}
	defer done()
	if _, staged := coordinator.StagedCall(h.plan, q.Action); staged {
		return Told{}, ledger.Refuse("action", "it is staged, and made once the plan is committed",
			"none; plan.wait with delivered tells what became of it")
	}
	answer := Told{Plan: q.Plan, Action: q.Action, Outcome: outcomes[q.Outcome]}
	h.mu.Lock()
	a := h.acts[q.Action]
	h.mu.Unlock()
	if a != nil && t.cause != nil {
		if err := a.leave(ctx, h, t); err != nil {
			return Told{}, err
		}
	}
	if a != nil && a.calling() {
		select {
		case a.told <- t:
		default: // another request has told one, which is held against this one below
		}
		select {
		case <-a.done:
			answer.Problem = a.problem()
		case <-ctx.Done():
			return Told{}, ctx.Err()
		}
	} else if a != nil && a.unregistered() || a == nil && !h.registered(q.Action) {
		return Told{}, ledger.Refuse("action", "no action of this id was registered",
			"the id of one that plan.act has answered")
	}
	if a == nil {
		if err := d.stillOf(ctx, who, w, h); err != nil {
			return Told{}, err
		}
	}
	err = h.plan.Settle(ctx, q.Action, t.outcome, t.cause)
	answer.Problem, err = partlyKept(q, answer.Problem, err)
	if err == nil {
		err = h.plan.Flush(ctx)
	}
	if errors.Is(err, coordinator.ErrClosed) && d.life.Err() == nil {
		err = nil // the plan has ended, and what it had queued is stored
	}
	if err == nil && (a == nil || coordinator.Superseded(h.plan)) {
		err = d.heeded(ctx, who, w, h)
	}
	if err != nil {
		return Told{}, err
	}
	h.mu.Lock()
	delete(h.past, q.Action)
	h.mu.Unlock()
	if coordinator.Superseded(h.plan) {
		d.passOn(ctx, who, q, h.plan.Stored())
	}
	return answer, nil
}

// leave ends an act that is given up before it may be called: once it is registered, so that no
// verdict has it called later, when no one is there any more to say what became of it.
func (a *act) leave(ctx context.Context, h *held, t told) error {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	for a.pending() {
		err := h.plan.Settle(ctx, a.declared.ID, t.outcome, t.cause)
		if err != nil && !errors.As(err, new(*ledger.Refused)) { // or it is not registered yet
			return err
		}
		select {
		case <-a.done:
		case <-a.started:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askPause):
		}
	}
	return nil
}

// outlived takes what an action of a writer has done that lost its plan, and that an earlier
// process of the door acted for. taken is why it has it no more.
func (d *Door) outlived(ctx context.Context, who Caller, q *Outcome, t told, taken error) (Told,
	error) {
	h, err := d.historyOf(ctx, who, q.Plan, batchMax)
	if err != nil {
		return Told{}, taken
	}
	name := cmp.Or(q.Writer, writerDefault)
	if !slices.ContainsFunc(h.Actions, func(past api.PastAction) bool {
		return past.Action == q.Action && past.Writer == name
	}) {
		return Told{}, taken
	}
	w, err := d.writer(who, name)
	if err != nil {
		return Told{}, err
	}
	plan, err := w.coordinator.Outlived(ctx, q.Plan)
	if err != nil {
		return Told{}, unheard(err)
	}
	answer := Told{Plan: q.Plan, Action: q.Action, Outcome: outcomes[q.Outcome]}
	err = plan.Settle(ctx, q.Action, t.outcome, t.cause)
	if answer.Problem, err = partlyKept(q, "", err); err == nil {
		err = d.heeded(ctx, who, w, &held{plan: plan})
	}
	if err != nil {
		return Told{}, err
	}
	d.passOn(ctx, who, q, plan.Stored())
	return answer, nil
}

// partlyKept has an outcome count of which not all of the output is recorded: its answer says so.
func partlyKept(q *Outcome, problem string, err error) (string, error) {
	var refused *ledger.Refused
	if errors.As(err, &refused) && refused.Field == fieldOutput && q.Outcome == "completed" {
		return refused.Error(), nil
	}
	return problem, err
}

// stillOf refuses what a writer says of an action that another process has registered, once a
// further one has taken over the plan: only the one that registered an action is believed then.
func (d *Door) stillOf(ctx context.Context, who Caller, w *writer, h *held) error {
	answer, err := d.outcomeOf(ctx, who, api.OutcomeQuery{Plan: h.plan.ID()})
	if err != nil {
		return unheard(err)
	}
	if answer.IsWriter(who.Name, w.key.name) {
		return nil
	}
	if !h.calls() { // the outcomes of what is being called are still to come
		w.superseded(h.plan.ID(), h, coordinator.ErrSuperseded)
	}
	return coordinator.Lost(h.plan.ID(), who.Name, answer.Agent, answer.Writer, answer.Handed)
}

// heeded refuses an outcome that is stored, and that the ledger does not take from this writer any
// more.
func (d *Door) heeded(ctx context.Context, who Caller, w *writer, h *held) error {
	answer, err := d.outcomeOf(ctx, who,
		api.OutcomeQuery{Plan: h.plan.ID(), Sequence: h.plan.Stored()})
	switch {
	case err != nil:
		return err
	case len(answer.Refused) == 0:
		return nil
	case !answer.IsWriter(who.Name, w.key.name):
		return coordinator.Lost(h.plan.ID(), who.Name, answer.Agent, answer.Writer, answer.Handed)
	}
	return conflict(answer.Refused[0], "the outcome that is recorded, in plan.get", StoredNothing)
}

// problem is why not all of the output of an act that is done is recorded; empty: all is.
func (a *act) problem() string {
	var refused *ledger.Refused
	if errors.As(a.err, &refused) && (len(a.output) > 0 || refused.Field == fieldOutput) {
		return refused.Error()
	}
	return ""
}

// registered reports whether an earlier process has registered an action.
func (h *held) registered(action string) bool {
	return slices.ContainsFunc(h.plan.Recorded(),
		func(r coordinator.Recorded) bool { return r.Action == action })
}

// outcomes are the recorded ones of those that are told.
var outcomes = map[string]string{"completed": api.OutcomeCompleted,
	"not_taken": api.OutcomeFailed, "in_doubt": api.OutcomeInDoubt}

// fieldOutput is what a refusal names that is of an output and stops no outcome.
const fieldOutput = "outcome.output"

// untold is an output that its agent cannot tell, and why: there is no JSON of it.
type untold string

// MarshalJSON refuses it.
func (u untold) MarshalJSON() ([]byte, error) {
	return nil, ledger.Refuse(fieldOutput, string(u), "a JSON value that fits in a request")
}

// toldOf is what a forward would return.
func toldOf(q *Outcome) (t told, err error) {
	switch {
	case q.Outcome != "completed" && q.Incomplete:
		return t, ledger.Refuse("incomplete", "given for what is not known to have happened",
			"none, or outcome completed")
	case q.Incomplete && len(q.Output) > 0:
		return t, ledger.Refuse("output", "given beside incomplete", "one of them")
	case q.Outcome != "completed" && len(q.Output) > 0:
		return t, ledger.Refuse("output", "given for what is not known to have happened",
			"none, or outcome completed")
	case q.Outcome != "completed" && q.ExternalRef != "":
		return t, ledger.Refuse("external_ref", "given for what is not known to have happened",
			"none, or outcome completed")
	case q.Outcome == "completed" && q.Message != "" && !q.Incomplete:
		return t, ledger.Refuse("message", "given for what has happened",
			"none; what the tool returned is output, or incomplete where that cannot be told")
	}
	message := cmp.Or(q.Message, "no reason was given")
	t.outcome.ExternalRef = q.ExternalRef
	switch {
	case q.Incomplete:
		t.outcome.Output = untold(message)
	case len(q.Output) > 0:
		t.outcome.Output = q.Output
	}
	switch q.Outcome {
	case "not_taken":
		t.cause = coordinator.NotTaken(errors.New(message))
	case "in_doubt":
		t.cause = errors.New(message)
	}
	return t, nil
}

// waitOf is how long an answer may wait.
func waitOf(d Duration) (time.Duration, error) {
	switch {
	case d == 0:
		return WaitDefault, nil
	case d < 0 || time.Duration(d) > WaitMax:
		return 0, ledger.Refuse("wait", time.Duration(d).String(), "at most 60s")
	}
	return time.Duration(d), nil
}

// doReport is plan.report.
func (d *Door) doReport(ctx context.Context, who Caller, q *Report) (Acted, error) {
	if !ledger.ValidToken(q.Action) {
		return Acted{}, ledger.Refuse("action", "no name", ledger.TokenWanted)
	}
	w, h, done, err := d.take(ctx, who, q.Writer, q.Plan)
	if err != nil {
		return Acted{}, err
	}
	defer done()
	declared := coordinator.Action{ID: q.Action, Capability: q.Capability, After: q.After,
		Branch: q.Branch, Pivot: q.Pivot}
	if len(q.Input) > 0 {
		declared.Input = q.Input
	}
	outcome := coordinator.Outcome{ExternalRef: q.ExternalRef}
	if len(q.Output) > 0 {
		outcome.Output = q.Output
	}
	if len(q.Before) > 0 {
		outcome.Before = q.Before
	}
	if err := h.plan.Report(ctx, declared, outcome); err != nil {
		w.superseded(q.Plan, h, err)
		return Acted{}, err
	}
	if err := h.plan.Accepted(ctx); err != nil {
		w.superseded(q.Plan, h, err)
		return Acted{}, err
	}
	return Acted{Plan: q.Plan, Action: q.Action, State: StateRecorded,
		Outcome: api.OutcomeCompleted, Output: q.Output}, nil
}

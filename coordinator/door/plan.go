package door

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// opened is the answer for an open plan.
func opened(p *coordinator.Plan, w *writer) State {
	at, set := coordinator.DeadlineOf(p)
	answer := State{Plan: p.ID(), State: ledger.StateOpen, Writer: w.key.name,
		DeadlineSet: int(set)}
	if !at.IsZero() {
		answer.DeadlineAt = instant(at.UnixNano())
	}
	return answer
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

// doSavepoint is plan.savepoint.
func (d *Door) doSavepoint(ctx context.Context, who Caller, q *Savepoint) (State, error) {
	w, h, done, err := d.take(ctx, who, q.Writer, q.Plan)
	if err != nil {
		return State{}, err
	}
	defer done()
	actions, set := h.plan.HasSavepoint(q.Savepoint)
	if !set {
		if err = h.plan.Savepoint(ctx, q.Savepoint); err == nil {
			err = h.plan.Accepted(ctx)
		}
		if err != nil {
			w.superseded(q.Plan, h, err)
			return State{}, err
		}
		actions, _ = h.plan.HasSavepoint(q.Savepoint)
	}
	answer := opened(h.plan, w)
	answer.Actions = actions
	return answer, nil
}

// doUnwindTo is plan.unwind_to.
func (d *Door) doUnwindTo(ctx context.Context, who Caller, q *UnwindTo) (State, error) {
	waits, err := waitOf(q.Wait)
	if err != nil {
		return State{}, err
	}
	w, h, done, err := d.take(ctx, who, q.Writer, q.Plan)
	if err != nil {
		return State{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	last := h.plan.Rewinds()
	switch {
	case q.Number == 0 || q.Number > last+1:
		return State{}, ledger.Refuse("number", "the plan has had "+count(last)+" of them",
			"the number after that, or that of a call that is repeated")
	case q.Number <= last:
		if to, known := h.wentBack(q.Number); known && to != q.Savepoint {
			return State{}, repeated("number", count(q.Number), "savepoint")
		}
		return d.rewound(ctx, who, w, h)
	}
	err = h.plan.UnwindTo(ctx, q.Savepoint, q.Reason)
	if h.plan.Rewinds() == q.Number {
		h.goneBack(q.Number, q.Savepoint)
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, coordinator.ErrInDoubt) ||
		errors.Is(err, coordinator.ErrUnwound) {
		return d.stateOf(context.WithoutCancel(ctx), who, q.Plan, 0)
	}
	if err != nil {
		w.superseded(q.Plan, h, err)
		return State{}, err
	}
	return opened(h.plan, w), nil
}

// wentBack is where a request went back to, as far as this process knows.
func (h *held) wentBack(number int) (savepoint string, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	savepoint, known = h.back[number]
	return savepoint, known
}

func (h *held) goneBack(number int, savepoint string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.back[number] = savepoint
}

// rewound answers a call that is repeated: once the plan is open again, or stays as it is.
func (d *Door) rewound(ctx context.Context, who Caller, w *writer, h *held) (State, error) {
	for {
		s, err := d.stateOf(ctx, who, h.plan.ID(), 0)
		switch {
		case err != nil || s.State != ledger.StateUnwinding || ctx.Err() != nil:
			if s.State == ledger.StateOpen {
				if h.passes() { // what this process knows of it is of before
					w.superseded(h.plan.ID(), h, coordinator.ErrSuperseded)
				}
				return opened(h.plan, w), err
			}
			return s, err
		}
		pause(ctx, followMin)
		if ctx.Err() != nil {
			return s, nil
		}
	}
}

// ends are the verbs that end a plan, and the states that mean that it has ended so.
var ends = map[string]map[string]bool{
	"commit": {ledger.StateCommitted: true, ledger.StateCommitting: true},
	"undo": {ledger.StateUnwinding: true, ledger.StateCompensated: true,
		ledger.StateQuarantined: true, ledger.StateFailed: true, ledger.StateResolved: true},
}

// doCommit is plan.commit.
func (d *Door) doCommit(ctx context.Context, who Caller, q *Commit) (State, error) {
	return d.endPlan(ctx, who, q.Writer, q.Plan, "commit",
		func(ctx context.Context, p *coordinator.Plan) error { return p.Commit(ctx) })
}

// doFail is plan.fail, and doCancel is plan.cancel.
func (d *Door) doFail(ctx context.Context, who Caller, q *End) (State, error) {
	return d.endPlan(ctx, who, q.Writer, q.Plan, "undo",
		func(ctx context.Context, p *coordinator.Plan) error { return p.Fail(ctx, q.Reason) })
}

func (d *Door) doCancel(ctx context.Context, who Caller, q *End) (State, error) {
	return d.endPlan(ctx, who, q.Writer, q.Plan, "undo",
		func(ctx context.Context, p *coordinator.Plan) error { return p.Cancel(ctx, q.Reason) })
}

// endPlan ends a plan, or finds it ended so. While a part of it is undone nothing can be stored,
// and it is open again afterwards: that is waited for.
func (d *Door) endPlan(ctx context.Context, who Caller, name, id, verb string,
	end func(context.Context, *coordinator.Plan) error) (State, error) {
	waits, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	for {
		s, err := d.endOnce(ctx, who, name, id, verb, end)
		if !errors.Is(err, errUndone) {
			return s, err
		}
		pause(waits, followMin)
		if waits.Err() != nil {
			e := unavailable(err.Error(), "plan.wait, or the same request again", StoredNothing)
			e.Field = "plan"
			return State{}, e
		}
	}
}

// learn ends the acts that have happened as other processes have told up to a sequence.
func (h *held) learn(ctx context.Context, sequence uint64) error {
	h.mu.Lock()
	acts := slices.Collect(maps.Values(h.acts))
	h.mu.Unlock()
	for _, a := range acts {
		if err := a.learn(ctx, h, sequence, coordinator.Happened); err != nil {
			return err
		}
	}
	return nil
}

// errUndone means that nothing was stored to end a plan, since a part of it was being undone.
var errUndone = errors.New("the plan is being undone, and nothing was stored")

// endOnce is endPlan, or errUndone.
func (d *Door) endOnce(ctx context.Context, who Caller, name, id, verb string,
	end func(context.Context, *coordinator.Plan) error) (State, error) {
	w, h, done, err := d.take(ctx, who, name, id)
	if err != nil {
		return State{}, err
	}
	defer done()
	called := h.state == ledger.StateOpen || h.state == ledger.StateCommitting
	if called && verb == "commit" {
		err = h.learn(ctx, d.storedOf(who, id))
	}
	if called && err == nil {
		err = end(ctx, h.plan)
	}
	stored := called && err == nil
	var waits *coordinator.CommitWaits
	switch {
	case errors.As(err, &waits):
		return State{Plan: id, State: ledger.StateCommitting, Writer: w.key.name,
			Doubts: doubts(waits.Doubts)}, nil
	case errors.Is(err, coordinator.ErrClosed) || errors.Is(err, coordinator.ErrUnwinding) ||
		errors.Is(err, coordinator.ErrUnwound):
		// it had ended before: as it was meant, or otherwise
	case err != nil:
		w.superseded(id, h, err)
		return State{}, err
	}
	// With what was stored: until that is folded it is not known whether a commit came before it.
	s, seen := d.stateAt(ctx, who, api.OutcomeQuery{Plan: id, Sequence: h.plan.Stored()})
	if errors.As(seen, new(*ledger.Refused)) {
		seen = unread()
	}
	switch {
	case seen != nil && stored:
		e := explain(seen)
		e.Stored = StoredAll
		return State{}, e
	case seen != nil:
		return State{}, seen
	case verb == "undo" && !stored && s.State == ledger.StateUnwinding && !s.whole:
		return State{}, errUndone
	case s.State == ledger.StateOpen && !stored &&
		(!called || errors.Is(err, coordinator.ErrUnwinding)):
		w.superseded(id, h, coordinator.ErrSuperseded) // it is open again
		return State{}, errUndone
	case verb == "undo" && stored &&
		(s.State == ledger.StateOpen || s.State == ledger.StateCommitting):
		if err := d.heeded(ctx, who, w, h); err != nil {
			return State{}, err
		}
		s.State = ledger.StateUnwinding // taken, and about to begin
	case !ends[verb][s.State]:
		if err == nil {
			err = errors.New("the plan is " + s.State)
		}
		e := conflict(err.Error(), "plan.wait, for the end", StoredNothing)
		e.Field = "plan"
		return State{}, e
	}
	if s.State != ledger.StateCommitting {
		w.over(id, h)
	}
	return s, nil
}

// stateOf is the state of a plan of the caller; it may wait for its end.
func (d *Door) stateOf(ctx context.Context, who Caller, id string, wait time.Duration) (State,
	error) {
	return d.stateAt(ctx, who,
		api.OutcomeQuery{Plan: id, Ended: wait > 0, WaitMs: wait.Milliseconds()})
}

func (d *Door) stateAt(ctx context.Context, who Caller, q api.OutcomeQuery) (State, error) {
	answer, err := d.outcomeOf(ctx, who, q)
	if err != nil {
		return State{}, err
	}
	s := State{Plan: q.Plan, State: answer.State, Reason: answer.Reason,
		Ended: ledger.HasEnded(answer.State), Outstanding: answer.Outstanding, whole: answer.Whole,
		UndoneAs: answer.UndoneAs,
		Doubts:   doubts(answer.Doubts), Unknown: doubts(answer.Unknown)}
	s.Settled = q.Doubts && (answer.Settled || s.State == ledger.StateCommitted)
	if answer.Delivery != nil {
		if s.Delivery = new(Delivery(*answer.Delivery)); s.Delivery.Plan == "" {
			s.Delivery.State = StateStaged
		}
	}
	return s, nil
}

func doubts(known []api.Doubt) (list []Doubt) {
	for _, doubt := range known {
		list = append(list, Doubt(doubt))
	}
	return list
}

// outcomeOf is what an executor answers about a plan of the caller.
func (d *Door) outcomeOf(ctx context.Context, who Caller, q api.OutcomeQuery) (
	answer api.OutcomeAnswer, err error) {
	answer, err = ask(ctx, d, who, api.PlanOutcome, q)
	problem := new(api.Problem)
	if errors.As(err, &problem) || err == nil && answer.State == "" {
		err = ledger.Refuse("plan", problem.Text, "the id of a plan of this agent")
	}
	return answer, err
}

// doWait is plan.wait.
func (d *Door) doWait(ctx context.Context, who Caller, q *Wait) (State, error) {
	waits, err := waitOf(q.Wait)
	if err != nil {
		return State{}, err
	}
	if q.Settled && q.Delivered {
		return State{}, ledger.Refuse("settled", "given beside delivered", "one of them")
	}
	if _, err := d.historyOf(ctx, who, q.Plan, 1); err != nil {
		return State{}, err
	}
	if q.Settled {
		return d.settled(ctx, who, q.Plan, waits)
	}
	for end := time.Now().Add(waits); ; {
		left := min(time.Until(end), askMax/2)
		s, err := d.stateOf(ctx, who, q.Plan, max(left, time.Millisecond))
		over := s.Ended
		switch of := s.Delivery; {
		case err != nil || !over || !q.Delivered || of == nil:
		case of.State == StateStaged:
			over = false // its root has yet to commit
		case of.State == ledger.StateDelivering:
			over = false
			_, err = d.stateOf(ctx, who, of.Plan, max(left, time.Millisecond))
		}
		if err != nil || over || !time.Now().Before(end) {
			return s, err
		}
		pause(ctx, askPause)
		if ctx.Err() != nil {
			return s, nil
		}
	}
}

// settled is the state of a plan once nothing is asked any more about what is in doubt in it. What
// is being undone asks for itself.
func (d *Door) settled(ctx context.Context, who Caller, id string, waits time.Duration) (State,
	error) {
	ctx, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	q := api.OutcomeQuery{Plan: id, Sequence: d.storedOf(who, id), Doubts: true}
	for {
		s, err := d.stateAt(context.WithoutCancel(ctx), who, q)
		switch {
		case errors.As(err, new(*ledger.Refused)):
			err = unread()
		case err == nil && !s.Settled && (s.Ended || s.whole):
			return State{}, notOpen("the plan is " + s.State + ", which settles what is in doubt in it")
		case err != nil || s.Settled:
			return s, err
		}
		if ctx.Err() != nil {
			return s, err
		}
		pause(ctx, followMin)
	}
}

// unread is in place of a refusal by stateAt about a plan that is there: what it asked for is not
// folded yet.
func unread() error {
	return unavailable("the host has not read all that the plan was told", sameAgain, StoredNothing)
}

// historyOf is what is recorded of a plan of the caller, up to so many actions at once.
func (d *Door) historyOf(ctx context.Context, who Caller, id string, limit int) (
	whole api.HistoryAnswer, err error) {
	q := api.HistoryQuery{Plan: id, Limit: limit}
	if limit > 1 { // what it has been told that is stored is a part of it
		q.Sequence = d.storedOf(who, id)
	}
	return d.historyAt(ctx, who, q)
}

// historyAt is historyOf, of what was folded up to a sequence at least.
func (d *Door) historyAt(ctx context.Context, who Caller, q api.HistoryQuery) (
	whole api.HistoryAnswer, err error) {
	const want = "the id of a plan of this agent"
	if !ledger.ValidDerived(q.Plan) {
		return whole, noPlanID(q.Plan, want)
	}
	for {
		page, err := ask(ctx, d, who, api.PlanHistory(who.Name), q)
		var problem *api.Problem
		switch {
		case errors.As(err, &problem):
			return whole, unavailable(problem.Text, sameAgain, StoredNothing)
		case err != nil:
			return whole, err
		case page.Agent == "":
			return whole, ledger.Refuse("plan", "there is no such plan", want)
		case page.Agent != who.Name && page.Handed != nil:
			return whole, coordinator.Lost(q.Plan, who.Name, page.Agent, page.Writer, page.Handed)
		case page.Agent != who.Name:
			return whole, ledger.Refuse("plan", "a plan of another agent", want)
		}
		if q.After == 0 {
			whole = page
		} else {
			whole.Actions = append(whole.Actions, page.Actions...)
		}
		if page.Next <= q.After || q.Limit == 1 {
			return whole, nil
		}
		q.After = page.Next
	}
}

// doGet is plan.get.
func (d *Door) doGet(ctx context.Context, who Caller, q *Get) (Plan, error) {
	h, err := d.historyOf(ctx, who, q.Plan, batchMax)
	if err != nil {
		return Plan{}, err
	}
	undone, err := d.undoneIn(ctx, who, q.Plan, h)
	if err != nil {
		return Plan{}, err
	}
	return planOf(who, q.Plan, h, undone)
}

// undoneIn finds the acts of a plan whose effects are not there any more: those that it goes on
// without, and, once it is committed, those that the plan which undoes it has undone.
func (d *Door) undoneIn(ctx context.Context, who Caller, id string, h api.HistoryAnswer) (
	map[string]bool, error) {
	found := map[string]bool{}
	for _, past := range h.Actions {
		found[past.Action] = past.Undone
		if !ledger.ValidToken(id) && !delivers(id) {
			found[past.Action] = isUndone(past)
		}
	}
	if h.UndoneAs == "" {
		return found, nil
	}
	later, err := d.historyOf(ctx, who, h.UndoneAs, batchMax)
	for _, past := range later.Actions {
		found[past.Action] = found[past.Action] || isUndone(past)
	}
	return found, err
}

// isUndone reports whether an undo has come to its end, and has done it.
func isUndone(past api.PastAction) bool {
	return past.Undo == ledger.StateCompensated ||
		past.Undo == ledger.StateResolved && past.Resolution == "done"
}

// delivers reports whether a plan is one that the executor has made to deliver what is staged.
func delivers(id string) bool { return strings.HasSuffix(id, "~0") }

// deliveryOf says what became of an act that is staged in a plan, or that the plan delivers, by the
// names of a Delivery; "": the plan is one that undoes another, or the host has an earlier version.
func deliveryOf(id, state string, past api.PastAction) string {
	switch {
	case past.Undo == "", !ledger.ValidToken(id) && !delivers(id):
		return ""
	case past.ToDrop:
		return "dropped"
	case slices.Contains([]string{"staged", ledger.StateDelivering, ledger.StateDelivered, "dropped"},
		past.Undo):
		return past.Undo
	case past.Undo == ledger.StateQuarantined, past.Undo == ledger.StateResolved:
		return "owner"
	case delivers(id) && state != ledger.StateResolved:
		return ledger.StateDelivering
	}
	return "dropped" // its owner has left it as it is
}

func planOf(who Caller, id string, h api.HistoryAnswer, undone map[string]bool) (Plan, error) {
	opening := new(pb.PlanOpened)
	if err := opening.UnmarshalVT(h.Opened); err != nil {
		return Plan{}, err
	}
	p := Plan{State: State{Plan: id, State: h.State, Reason: h.Reason,
		Ended: ledger.HasEnded(h.State), Outstanding: h.Outstanding, UndoneAs: h.UndoneAs,
		Writer: h.Writer}, Label: opening.Label, Owner: opening.Owner,
		Rewinds: int(h.Rewinds), Acts: []Acts{}}
	if h.DueSet == 0 { // the host has an earlier version
		h.DueNs = opening.DeadlineNs
	}
	if p.DeadlineSet = int(h.DueSet); h.DueNs != 0 {
		p.DeadlineAt = instant(h.DueNs)
	}
	for _, s := range h.Savepoints {
		p.Savepoints = append(p.Savepoints, s.Name)
	}
	origin, _, _ := strings.Cut(id, "~") // its acts are those of the plan that it undoes or delivers
	for _, past := range h.Actions {
		if past.Child != "" || past.DutyOf != "" {
			continue
		}
		registered := new(pb.ForwardRegistered)
		if err := registered.UnmarshalVT(past.Forward); err != nil {
			return Plan{}, err
		}
		p.Acts = append(p.Acts, Acts{Action: past.Action, Number: int(past.Number),
			Capability: registered.Capability, Sequence: int(past.Sequence), Outcome: past.Outcome,
			Staged: registered.Deliver != nil,
			Key:    ledger.Key(who.Tenant, origin, past.Action, ledger.PurposeDo),
			Code:   past.Code, Message: past.Message, Output: json.RawMessage(past.Output),
			Incomplete: past.Incomplete, ExternalRef: past.ExternalRef, Verdict: past.Verdict,
			Undone: undone[past.Action]})
		if act := &p.Acts[len(p.Acts)-1]; act.Staged {
			act.Delivery = deliveryOf(id, h.State, past)
		}
	}
	return p, nil
}

// noPlanID refuses what can be the id of no plan.
func noPlanID(id, want string) error {
	return ledger.Refuse("plan", fmt.Sprintf("%q is no name", clip(id)), want)
}

// ofAgents refuses the id of no plan, and that of one which the executor has made of another: its
// agent reads it, and writes nothing to it.
func ofAgents(id string) error {
	switch {
	case ledger.ValidToken(id):
		return nil
	case ledger.ValidDerived(id):
		return ledger.Refuse("plan", fmt.Sprintf("%q is made by the executor, which takes no "+
			"requests for it", clip(id)),
			"a plan of this agent; plan.get, plan.wait, plan.preview and events read this one")
	}
	return noPlanID(id, "the id of a plan of this agent")
}

// doResume is plan.resume.
func (d *Door) doResume(ctx context.Context, who Caller, q *Resume) (Plan, error) {
	if err := ofAgents(q.Plan); err != nil {
		return Plan{}, err
	}
	before, err := d.historyOf(ctx, who, q.Plan, 1)
	if err != nil {
		return Plan{}, err
	}
	w, err := d.writer(who, q.Writer)
	if err != nil {
		return Plan{}, err
	}
	if before.Writer != w.key.name && before.State == ledger.StateOpen {
		if err := w.resume(ctx, q.Plan); err != nil {
			return Plan{}, unheard(err)
		}
	}
	return d.doGet(ctx, who, &Get{Plan: q.Plan})
}

// resume makes the writer that of a plan.
func (w *writer) resume(ctx context.Context, id string) error {
	h := w.held(id)
	h.taking.Lock()
	defer h.taking.Unlock()
	if h.plan != nil { // another writer has resumed it since this one had it
		w.drop(id, h, true)
		again := w.held(id)
		again.taking.Lock()
		defer again.taking.Unlock()
		h = again
	}
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	p, err := w.coordinator.Resume(ctx, id)
	if err == nil {
		h.known(p, ledger.StateOpen, "")
	}
	w.drop(id, h, err != nil)
	return err
}

// doPreview is plan.preview.
func (d *Door) doPreview(ctx context.Context, who Caller, q *Preview) (Raw, error) {
	if _, err := d.historyOf(ctx, who, q.Plan, 1); err != nil {
		return nil, err
	}
	if q.To != "" && q.Action != "" {
		return nil, ledger.Refuse("action", "given beside to", "one of them")
	}
	query := api.PreviewQuery{Plan: q.Plan, To: q.To, Action: q.Action,
		Sequence: max(uint64(q.Sequence), d.storedOf(who, q.Plan))}
	reply, err := asRaw(ctx, d, who, api.OwnPreview(who.Name), query)
	if err != nil {
		return nil, err
	}
	var said api.PreviewAnswer
	var shown struct {
		Preview Raw `json:"preview"`
	}
	_ = readReply(reply, &shown) // as said
	err = readReply(reply, &said)
	field, want := "to", "a savepoint of the plan, or none"
	if q.Action != "" {
		field, want = "action", "the id of an action of the plan, or none"
	}
	var problem *api.Problem
	switch {
	case errors.As(err, &problem) && problem.Behind:
		return nil, unavailable(problem.Text, sameAgain, StoredNothing)
	case problem != nil:
		err = ledger.Refuse(field, problem.Text, want)
	case err == nil && q.To+q.Action != "" && said.Preview.Refused != "" &&
		said.Preview.Undoable == nil: // which says why not
		err = ledger.Refuse(field, said.Preview.Refused, want)
	}
	return shown.Preview, err
}

// storedOf is the sequence of what this door knows to have stored of a plan; 0: nothing.
func (d *Door) storedOf(who Caller, plan string) (last uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, w := range d.writers {
		if key.tenant == who.Tenant && key.agent == who.Name {
			last = max(last, w.storedOf(plan))
		}
	}
	return last
}

// doFind is plan.find, of the plans of the caller.
func (d *Door) doFind(ctx context.Context, who Caller, q *Find) (Raw, error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, err
	}
	answer, err := asRaw(ctx, d, who, api.PlanFind, api.FindQuery{Agent: who.Name, State: q.State,
		Label: q.Label, Text: q.Text, Capability: q.Capability, After: q.After,
		Limit: limitOf(q.Limit)})
	if err != nil {
		return nil, err
	}
	return answer, refusedAnswer("state", answer)
}

// refusedAnswer is what an answer says that is wrong with its question.
func refusedAnswer(field string, answer Raw) error {
	var problem *api.Problem
	err := readReply(answer, new(api.Nothing))
	if errors.As(err, &problem) {
		err = ledger.Refuse(field, problem.Text, "a question that an executor answers")
	}
	return err
}

func checkLimit(n int) error {
	if n > batchMax {
		return ledger.Refuse("limit", count(n), "at most 1000")
	}
	return nil
}

func limitOf(n int) int {
	if n == 0 {
		return batch
	}
	return n
}

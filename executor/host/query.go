package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// waiter is a question that waits for the fold.
type waiter struct {
	sequence uint64 // until this is folded; 0: until ended
	plan     string // until this plan ends
	done     chan struct{}
}

// slowVerbs wait, or walk through a whole plan.
var slowVerbs = []string{"plan.find", "due.ls", "capability.ls", "status", "host", "plan.outcome", "plan.show", "plan.preview", "trigger.explain", "plan.why", "undo.ls", "fact.get", "fact.ls", "fact.history", "memory.queue", "memory.rebuild", "worker.ls"}

// serveQueries answers questions about a tenant from snapshots of its state,
// beside the actor. A slow question gets a goroutine of its own, which ends with
// its answer or its time limit.
func (h *Host) serveQueries(a *actor) (*nats.Subscription, error) {
	prefix := ledger.QuerySubject(a.tenant, "")
	sub, err := h.cfg.Conn.Subscribe(prefix+">", func(m *nats.Msg) {
		verb := strings.TrimPrefix(m.Subject, prefix)
		if verb == verbReleased {
			select {
			case a.released <- struct{}{}:
			default:
			}
			return
		}
		if verb != "host" && a.silent() || !a.asking.enter() {
			return
		}
		if slices.Contains(slowVerbs, verb) || strings.HasPrefix(verb, ledger.HistoryVerb) {
			go func() { defer a.asking.leave(); a.answer(m, verb) }()
			return
		}
		defer a.asking.leave()
		a.answer(m, verb)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot subscribe to queries: %w", err)
	}
	return sub, nil
}

// silent reports whether another host holds the tenant: that one answers.
func (a *actor) silent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mode == executor.ModeStandby && a.problem != "" || a.mode == executor.ModeHalted && a.elsewhere
}

// asking counts the questions under way, so that the state store is not closed
// under them.
type asking struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	gone    chan struct{} // closed by close: waiting questions give up
}

func (q *asking) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.running.Add(1)
	}
	return !q.closed
}

func (q *asking) leave() { q.running.Done() }

// close refuses further questions and waits for those under way.
func (q *asking) close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.gone)
	}
	q.mu.Unlock()
	q.running.Wait()
}

// answer replies to one question; a broken snapshot is an error in the answer.
func (a *actor) answer(m *nats.Msg, verb string) {
	body, err := json.Marshal(a.ask(verb, m.Data))
	if err != nil {
		panic("host: cannot encode an answer: " + err.Error())
	}
	err = m.Respond(body)
	if errors.Is(err, nats.ErrMaxPayload) {
		body = fmt.Appendf(nil, `{"error":"the answer takes %d bytes, more than the server passes on; ask for less"}`, len(body))
		err = m.Respond(body)
	}
	if err != nil && !errors.Is(err, nats.ErrMsgNoReply) {
		a.log.Warn("answer not sent", "verb", verb, "error", err)
	}
}

func (a *actor) ask(verb string, data []byte) (answer any) {
	defer func() {
		if r := recover(); r != nil {
			broken, ok := r.(*executor.StoreError)
			if !ok {
				// A broken rule of ours, which a preview may meet first, costs this
				// question its answer; the actor will see for itself.
				a.log.Error("a question met what is impossible", "verb", verb, "panic", r, "stack", string(debug.Stack()))
				answer = executor.ErrorAnswer{Error: fmt.Sprintf("cannot answer %s: %v", verb, r)}
				return
			}
			answer = executor.ErrorAnswer{Error: broken.Error()}
		}
	}()
	if agent, ok := strings.CutPrefix(verb, ledger.HistoryVerb); ok {
		return decoded(data, func(q ledger.HistoryQuery) any { return a.askHistoryOf(agent, q) })
	}
	switch verb {
	case "plan.ls":
		return decoded(data, a.askPlans)
	case "plan.show":
		return decoded(data, a.askPlan)
	case "plan.why":
		return decoded(data, a.askWhy)
	case "plan.outcome":
		return decoded(data, a.askOutcome)
	case "plan.preview":
		return decoded(data, a.askPreview)
	case "trigger.explain":
		return decoded(data, a.askExplain)
	case "undo.ls":
		return decoded(data, a.askUndos)
	case "contract.ls":
		return decoded(data, a.askContracts)
	case "quarantine.ls":
		return decoded(data, a.askQuarantined)
	case "refused.ls":
		return decoded(data, a.askRefused)
	case "status":
		return a.askStatus()
	case "host":
		return a.askHost()
	case "worker.ls":
		return a.askWorkers()
	case "plan.find":
		return decoded(data, a.askFind)
	case "due.ls":
		return decoded(data, a.askUpcoming)
	case "capability.ls":
		return a.askCapabilities()
	}
	return a.askOfMemory(verb, data)
}

// askOfMemory answers the questions about working memory.
func (a *actor) askOfMemory(verb string, data []byte) any {
	switch verb {
	case "fact.get":
		return decoded(data, a.askFact)
	case "fact.ls":
		return decoded(data, a.askFacts)
	case "fact.history":
		return decoded(data, a.askHistory)
	case "memory.status":
		return a.askMemory()
	case "memory.queue":
		return decoded(data, a.askQueue)
	case "memory.rebuild":
		return a.askRebuild()
	default:
		return executor.ErrorAnswer{Error: "unknown question " + verb}
	}
}

func decoded[Q any](data []byte, ask func(Q) any) any {
	var q Q
	if len(data) > 0 {
		if err := json.Unmarshal(data, &q); err != nil {
			return executor.ErrorAnswer{Error: "the question is not JSON: " + err.Error()}
		}
	}
	return ask(q)
}

// look runs read over a snapshot of the state, as of this host's guarded clock.
func (a *actor) look(read func(*executor.Reader)) {
	snapshot := a.host.db.NewSnapshot()
	defer func() { _ = snapshot.Close() }()
	programs, _ := a.host.programs.Get().(*triggers.Cache)
	if programs == nil {
		programs = triggers.NewCache(questionPrograms)
	}
	read(executor.NewReaderWith(snapshotKV{snapshot, tenantPrefix(a.tenant)}, a.tenant, newArchive(a.tenant, a.ledgerSeen()), programs).At(a.host.clock.now().UnixNano()))
	a.host.programs.Put(programs) // not after a panic
}

// questionPrograms bounds the conditions that one question keeps compiled for the next.
const questionPrograms = 256

// looked is look for what may be refused: the value, or what is wrong.
func looked[T any](a *actor, read func(*executor.Reader) (T, error)) (value T, problem string) {
	a.look(func(r *executor.Reader) {
		v, err := read(r)
		if err != nil {
			problem = err.Error()
			return
		}
		value = v
	})
	return value, problem
}

func (a *actor) askPlans(f executor.Filter) any {
	answer := executor.PlansAnswer{Plans: []executor.PlanView{}}
	a.look(func(r *executor.Reader) {
		plans, next := r.Plans(f)
		answer.Plans, answer.Next = append(answer.Plans, plans...), next
	})
	return answer
}

func (a *actor) askPlan(q executor.PlanQuery) any {
	if q.Sequence > 0 && !a.await(&waiter{sequence: q.Sequence}, 5*time.Second) {
		return executor.PlanAnswer{Error: fmt.Sprintf("sequence %d is not folded yet", q.Sequence)}
	}
	answer, known := a.seenPlan(q.Plan)
	if !known && a.catchUp() { // its first record may have been acknowledged just now
		answer, _ = a.seenPlan(q.Plan)
	}
	return answer
}

func (a *actor) seenPlan(id string) (answer executor.PlanAnswer, known bool) {
	a.look(func(r *executor.Reader) {
		var view executor.PlanView
		if view, known = r.Plan(id); !known {
			answer.Error = "there is no plan " + id
			return
		}
		a.showWaiting(&view)
		answer.Plan = view
	})
	return answer, known
}

// catchUpMax is how long a question about what is not known waits for the fold.
const catchUpMax = 2 * time.Second

// catchUp waits until all that the ledger has now is folded, and reports whether
// that took a wait and came to its end.
func (a *actor) catchUp() bool {
	store := a.ledgerSeen()
	if store == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), catchUpMax)
	defer cancel()
	head, err := store.Head(ctx)
	return err == nil && a.await(&waiter{sequence: head.Last}, catchUpMax)
}

// showWaiting says which of a plan's commands have found no worker.
func (a *actor) showWaiting(view *executor.PlanView) {
	for _, w := range a.waitingCommands() {
		for i := range view.Actions {
			if w.Plan == view.Plan && w.Action == view.Actions[i].Action {
				view.Actions[i].WaitsFor = fmt.Sprintf("a worker: nobody serves %s, tries: %d", w.Capability, w.Tries)
				switch {
				case w.Handler != "" && !w.Working:
					view.Actions[i].WaitsFor = fmt.Sprintf("%s: no process offers it, tries: %d", w.Handler, w.Tries)
				case w.Problem != "":
					view.Actions[i].WaitsFor = fmt.Sprintf("%s, tries: %d", w.Problem, w.Tries)
				case w.Working:
					view.Actions[i].WaitsFor = "a worker that says it is still working on " + w.Capability
				}
			}
		}
	}
}

// askHistoryOf answers an agent about a plan of its own.
func (a *actor) askHistoryOf(agent string, q ledger.HistoryQuery) any {
	if q.Sequence > 0 && !a.await(&waiter{sequence: q.Sequence}, 5*time.Second) {
		return executor.ErrorAnswer{Error: fmt.Sprintf("sequence %d is not folded yet", q.Sequence)}
	}
	var answer ledger.HistoryAnswer
	read := func() { a.look(func(r *executor.Reader) { answer = r.History(agent, q) }) }
	read()
	if answer.Agent == "" && q.Sequence == 0 && a.catchUp() { // its first record may have been acknowledged just now
		read()
	}
	return answer
}

func (a *actor) askOutcome(q ledger.OutcomeQuery) any {
	limit := min(time.Duration(q.WaitMs)*time.Millisecond, waitMax)
	if limit <= 0 {
		limit = 5 * time.Second
	}
	var answer ledger.OutcomeAnswer
	if q.Sequence > 0 && !a.await(&waiter{sequence: q.Sequence}, limit) {
		answer.Error = fmt.Sprintf("sequence %d is not folded yet", q.Sequence)
		return answer
	}
	if q.Ended {
		w := &waiter{plan: q.Plan, done: make(chan struct{})}
		if !a.addWaiter(w) {
			answer.Error = "too many questions are waiting"
			return answer
		}
		defer a.dropWaiter(w)
		a.outcome(q, &answer)
		if answer.Error == "" && !ended(answer.State) {
			a.wait(w, limit)
		}
	}
	a.outcome(q, &answer)
	return answer
}

// ended reports whether a state is an end. That a plan is open again, rewound to a
// savepoint, is none, and neither is a notice that is about one action.
func ended(state string) bool {
	return state != "" && state != ledger.StateOpen && state != ledger.StateUnwinding
}

func (a *actor) outcome(q ledger.OutcomeQuery, answer *ledger.OutcomeAnswer) {
	*answer = ledger.OutcomeAnswer{}
	a.look(func(r *executor.Reader) {
		answer.Applied = r.Applied()
		for _, refused := range r.RefusedAt(q.Sequence) {
			if refused.Plan == q.Plan {
				answer.Refused = append(answer.Refused, refused.Reason)
			}
		}
		var ok bool
		if answer.State, answer.Reason, answer.Outstanding, ok = r.Outcome(q.Plan); !ok {
			answer.Error = "there is no plan " + q.Plan
			return
		}
		if q.Action != "" {
			answer.Verdict, answer.VerdictReason, answer.VerdictBy = r.Verdict(q.Plan, q.Action)
		}
	})
}

// askPreview decides nothing and appends nothing: it says what an unwind would do
// at this host's clock.
func (a *actor) askPreview(q executor.PreviewQuery) any {
	preview, problem := looked(a, func(r *executor.Reader) (executor.PreviewView, error) {
		return r.Preview(q, a.host.clock.now().UnixNano())
	})
	return executor.PreviewAnswer{Preview: preview, Error: problem}
}

// askExplain says what leases answer now.
func (a *actor) askExplain(q executor.ExplainQuery) any {
	explained, problem := looked(a, func(r *executor.Reader) (executor.ExplainView, error) {
		view, err := r.Explain(q)
		var refused *ledger.Refused
		if errors.As(err, &refused) {
			err = errors.New(refused.Problem) // as the other commands say it
		}
		return view, err
	})
	return executor.ExplainAnswer{Explain: explained, Error: problem}
}

func (a *actor) askUndos(q executor.UndoQuery) any {
	answer := executor.UndosAnswer{Undos: []executor.UndoView{}}
	a.look(func(r *executor.Reader) {
		undos, next, err := r.Undos(q)
		if err != nil {
			answer.Error = err.Error()
			return
		}
		answer.Undos, answer.Next = append(answer.Undos, undos...), next
	})
	return answer
}

func (a *actor) askContracts(q executor.ContractQuery) any {
	answer := executor.ContractsAnswer{Contracts: []executor.ContractView{}}
	a.look(func(r *executor.Reader) {
		contracts, next := r.Contracts(q)
		answer.Contracts, answer.Next = append(answer.Contracts, contracts...), next
	})
	return answer
}

func (a *actor) askQuarantined(q executor.ListQuery) any {
	answer := executor.PlansAnswer{Plans: []executor.PlanView{}}
	a.look(func(r *executor.Reader) {
		plans, next := r.Quarantined(q)
		answer.Plans, answer.Next = append(answer.Plans, plans...), next
	})
	return answer
}

func (a *actor) askRefused(q executor.ListQuery) any {
	answer := executor.RefusedAnswer{Refused: []executor.RefusedView{}}
	a.look(func(r *executor.Reader) {
		answer.Refused = append(answer.Refused, r.Refusals(q.AfterSequence, q.Limit)...)
	})
	return answer
}

func (a *actor) askStatus() any {
	var view executor.StatusView
	a.look(func(r *executor.Reader) {
		view = r.Status()
		checkpoint := a.signing.view(r.Checkpoint())
		view.Checkpoint = &checkpoint
	})
	a.askHead()
	view.Cascade = a.host.cfg.Cascade.OrDefault()
	view.Waiting = a.waitingCommands()
	a.showCopy(&view)
	view.Disks = disksOf(a.host.disks())
	view.Lossy = a.host.cfg.AcceptLossyBroker
	a.mu.Lock()
	defer a.mu.Unlock()
	view.SinceNs = a.sinceNs
	view.Mode, view.Problem, view.Last = a.mode, a.problem, max(a.last, view.Applied)
	if a.refusal != "" {
		view.Problem = a.refusal
	}
	return executor.StatusAnswer{Status: view}
}

// askHost is the one question that every host answers, also those that stand by.
func (a *actor) askHost() any {
	a.askHead()
	noKey := ""
	a.look(func(r *executor.Reader) { noKey = a.keyProblem(r.Key()) })
	a.mu.Lock()
	defer a.mu.Unlock()
	return executor.HostAnswer{Host: executor.HostView{
		Host: a.host.cfg.Holder, Mode: a.mode, Problem: a.problem, Applied: a.applied, Last: max(a.last, a.applied), NoKey: noKey,
	}}
}

// askHead reads the stream's end, so that a tenant that folds nothing any more
// (halted, interrupted) does not look as if it had folded everything.
func (a *actor) askHead() {
	a.mu.Lock()
	store, mode := a.seen, a.mode
	a.mu.Unlock()
	if store == nil || mode == executor.ModeHolding || mode == executor.ModeGuard {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if head, err := store.Head(ctx); err == nil {
		a.mu.Lock()
		a.last = max(a.last, head.Last)
		a.mu.Unlock()
	}
}

func (a *actor) waitingCommands() []executor.WaitingView {
	a.mu.Lock()
	d := a.shown
	a.mu.Unlock()
	if d == nil {
		return nil
	}
	return d.waiting()
}

// await waits until the fold has reached a sequence.
func (a *actor) await(w *waiter, limit time.Duration) bool {
	w.done = make(chan struct{})
	a.mu.Lock()
	reached := a.applied >= w.sequence
	a.mu.Unlock()
	if reached {
		return true
	}
	if !a.addWaiter(w) {
		return false
	}
	defer a.dropWaiter(w)
	return a.wait(w, limit)
}

func (a *actor) wait(w *waiter, limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-w.done:
		return true
	case <-late.C:
		return false
	case <-a.asking.gone:
		return false
	}
}

// addWaiter registers a question; one about a sequence that has been folded by
// now is answered at once.
func (a *actor) addWaiter(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.sequence != 0 && a.applied >= w.sequence {
		close(w.done)
		return true
	}
	if len(a.waiters) >= waitersMax {
		return false
	}
	a.waiters = append(a.waiters, w)
	return true
}

func (a *actor) dropWaiter(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiters = slices.DeleteFunc(a.waiters, func(x *waiter) bool { return x == w })
}

// advanced wakes the questions that this turn answers.
func (a *actor) advanced(notices []executor.Notice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applied = a.cursor()
	a.last = max(a.last, a.applied)
	if len(a.waiters) == 0 {
		return
	}
	over := map[string]bool{}
	for _, n := range notices {
		if ended(n.State) {
			over[n.Plan] = true
		}
	}
	a.waiters = slices.DeleteFunc(a.waiters, func(w *waiter) bool {
		if w.sequence != 0 && w.sequence <= a.applied || w.plan != "" && over[w.plan] {
			close(w.done)
			return true
		}
		return false
	})
}

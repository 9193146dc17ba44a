package host

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// waiter is a question that waits for the fold.
type waiter struct {
	sequence uint64 // until this is folded; 0: until ended
	plan     string // until this plan ends
	done     chan struct{}
}

// serveQueries answers questions about a tenant from snapshots of its state, beside
// the actor.
func (h *Host) serveQueries(a *actor) (*nats.Subscription, error) {
	prefix := api.QuerySubject(a.tenant, "")
	return h.serveSubject(a, prefix+">", func(subject string) (string, verb) {
		name := strings.TrimPrefix(subject, prefix)
		return name, questionVerb(name)
	})
}

// silent reports whether another host holds the tenant: that one answers.
func (a *actor) silent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	stands := a.mode == view.ModeHalted || a.mode == view.ModeDegraded
	return a.mode == view.ModeStandby && a.problem != "" || stands && a.elsewhere
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

// answered carries out one request; a broken snapshot is an error in the answer.
func (a *actor) answered(name string, v verb, body []byte) (answer any) {
	defer func() {
		if r := recover(); r != nil {
			broken, ok := r.(*rows.StoreError)
			if !ok {
				// A broken rule of ours, which a preview may meet first, costs this
				// question its answer; the actor will see for itself.
				a.log.Error("a question met what is impossible",
					"verb", name, "panic", r, "stack", string(debug.Stack()))
				answer = view.ErrorAnswer{Error: fmt.Sprintf("cannot answer %s: %v", name, r)}
				return
			}
			answer = view.ErrorAnswer{Error: broken.Error()}
		}
	}()
	return v.answer(a, body)
}

// look runs read over a snapshot of the state, as of this host's guarded clock.
func (a *actor) look(read func(*executor.Reader)) {
	snapshot := a.host.db.NewSnapshot()
	defer func() { _ = snapshot.Close() }()
	programs, _ := a.host.programs.Get().(*triggers.Cache)
	if programs == nil {
		programs = triggers.NewCache(questionPrograms)
	}
	read(executor.NewReaderWith(store.NewView(snapshot, a.tenant), a.tenant,
		newArchive(a.tenant, a.ledgerSeen()), programs).At(a.host.clock.now().UnixNano()))
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

func (a *actor) askPlans(f view.Filter) any {
	answer := view.PlansAnswer{Plans: []view.Plan{}}
	a.look(func(r *executor.Reader) {
		plans, next := r.Plans(f)
		answer.Plans, answer.Next = append(answer.Plans, plans...), next
	})
	return answer
}

func (a *actor) askPlan(q view.PlanQuery) any {
	if q.Sequence > 0 && !a.await(&waiter{sequence: q.Sequence}, 5*time.Second) {
		return view.PlanAnswer{Error: fmt.Sprintf("sequence %d is not folded yet", q.Sequence)}
	}
	answer, known := a.seenPlan(q.Plan)
	if !known && a.catchUp() { // its first record may have been acknowledged just now
		answer, _ = a.seenPlan(q.Plan)
	}
	return answer
}

func (a *actor) seenPlan(id string) (answer view.PlanAnswer, known bool) {
	a.look(func(r *executor.Reader) {
		var shown view.Plan
		if shown, known = r.Plan(id); !known {
			answer.Error = r.NoPlan(id)
			return
		}
		a.showWaiting(&shown)
		answer.Plan = shown
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
func (a *actor) showWaiting(shown *view.Plan) {
	for _, w := range a.waitingCommands() {
		for i := range shown.Actions {
			action := &shown.Actions[i]
			if w.Plan != shown.Plan || w.Action != action.Action {
				continue
			}
			action.NoWorker = !w.Working && (w.Handler != "" || w.Problem == "")
			switch {
			case w.Handler != "" && !w.Working:
				action.WaitsFor = fmt.Sprintf("%s: no process offers it, tries: %d%s",
					w.Handler, w.Tries, ownersFrom(w))
			case w.Problem != "":
				action.WaitsFor = fmt.Sprintf("%s, tries: %d", w.Problem, w.Tries)
			case w.Working:
				action.WaitsFor = "a worker that says it is still working on " + w.Capability
			default:
				action.WaitsFor = fmt.Sprintf("a worker: none serves %s, tries: %d%s",
					w.Capability, w.Tries, ownersFrom(w))
			}
		}
	}
}

// ownersFrom says when a command that no worker takes becomes its owner's.
func ownersFrom(w view.Waiting) string {
	if w.UnservedNs == 0 {
		return ""
	}
	return "; its owner's at " + time.Unix(0, w.UnservedNs).UTC().Format(time.RFC3339)
}

// askHistoryOf answers an agent about a plan of its own.
func (a *actor) askHistoryOf(agent string, q api.HistoryQuery) any {
	if q.Sequence > 0 && !a.await(&waiter{sequence: q.Sequence}, 5*time.Second) {
		return view.ErrorAnswer{Error: fmt.Sprintf("sequence %d is not folded yet", q.Sequence)}
	}
	var answer api.HistoryAnswer
	read := func() { a.look(func(r *executor.Reader) { answer = r.History(agent, q) }) }
	read()
	// its first record may have been acknowledged just now
	if answer.Agent == "" && q.Sequence == 0 && a.catchUp() {
		read()
	}
	return answer
}

func (a *actor) askOutcome(q api.OutcomeQuery) any {
	limit := min(time.Duration(q.WaitMs)*time.Millisecond, waitMax)
	if limit <= 0 {
		limit = 5 * time.Second
	}
	var answer api.OutcomeAnswer
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
	switch state {
	case "", ledger.StateOpen, ledger.StateCommitting, ledger.StateUnwinding:
		return false
	default:
		return true
	}
}

func (a *actor) outcome(q api.OutcomeQuery, answer *api.OutcomeAnswer) {
	*answer = api.OutcomeAnswer{}
	a.look(func(r *executor.Reader) {
		answer.Applied = r.Applied()
		for _, refused := range r.RefusedAt(q.Sequence) {
			if refused.Plan == q.Plan {
				answer.Refused = append(answer.Refused, refused.Reason)
			}
		}
		var ok bool
		if answer.State, answer.Reason, answer.Outstanding, ok = r.Outcome(q.Plan); !ok {
			answer.Error = r.NoPlan(q.Plan)
			return
		}
		answer.Writer = r.Writer(q.Plan)
		answer.Doubts = r.Doubts(q.Plan)
		if q.Action != "" {
			answer.Verdict, answer.VerdictReason, answer.VerdictBy = r.Verdict(q.Plan, q.Action)
		}
	})
}

// askPreview decides nothing and appends nothing: it says what an unwind would do
// at this host's clock.
func (a *actor) askPreview(q view.PreviewQuery) any {
	preview, problem := looked(a, func(r *executor.Reader) (view.Preview, error) {
		return r.Preview(q, a.host.clock.now().UnixNano())
	})
	return view.PreviewAnswer{Preview: preview, Error: problem}
}

// askExplain says what leases answer now.
func (a *actor) askExplain(q view.ExplainQuery) any {
	explained, problem := looked(a, func(r *executor.Reader) (view.Explain, error) {
		shown, err := r.Explain(q)
		var refused *ledger.Refused
		if errors.As(err, &refused) {
			err = errors.New(refused.Problem) // as the other commands say it
		}
		return shown, err
	})
	return view.ExplainAnswer{Explain: explained, Error: problem}
}

func (a *actor) askUndos(q view.UndoQuery) any {
	answer := view.UndosAnswer{Undos: []view.Undo{}}
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

func (a *actor) askContracts(q view.ContractQuery) any {
	answer := view.ContractsAnswer{Contracts: []view.Contract{}}
	a.look(func(r *executor.Reader) {
		contracts, next := r.Contracts(q)
		answer.Contracts, answer.Next = append(answer.Contracts, contracts...), next
	})
	return answer
}

func (a *actor) askQuarantined(q view.ListQuery) any {
	answer := view.PlansAnswer{Plans: []view.Plan{}}
	a.look(func(r *executor.Reader) {
		plans, next := r.Quarantined(q)
		answer.Plans, answer.Next = append(answer.Plans, plans...), next
	})
	return answer
}

func (a *actor) askRefused(q view.ListQuery) any {
	answer := view.RefusedAnswer{Refused: []view.Refused{}}
	a.look(func(r *executor.Reader) {
		answer.Refused = append(answer.Refused, r.Refusals(q.AfterSequence, q.Limit)...)
	})
	return answer
}

func (a *actor) askStatus() any {
	var shown view.Status
	a.look(func(r *executor.Reader) {
		shown = r.Status()
		checkpoint := a.signing.view(r.Checkpoint())
		shown.Checkpoint = &checkpoint
	})
	a.askHead()
	shown.Cascade = view.Cascade(a.host.cfg.Cascade.OrDefault())
	shown.Waiting = a.waitingCommands()
	a.showCopy(&shown)
	shown.Disks = disksOf(a.host.disks())
	shown.Lossy = a.host.cfg.AcceptLossyBroker
	shown.RefusedReplies = a.refusals.view()
	a.mu.Lock()
	defer a.mu.Unlock()
	shown.SinceNs, shown.Folding = a.sinceNs, a.progress.folding()
	shown.Mode, shown.Problem, shown.Last = a.mode, a.problem, max(a.last, shown.Applied)
	shown.Halted = a.halt
	if a.refusal != "" {
		shown.Problem = a.refusal
	}
	for _, d := range shown.Disks {
		if d.FreeBytes < store.RoomMin && shown.Problem == "" { // what is to be written there waits
			shown.Problem = fmt.Sprintf("the disk of the %s is full", d.Store)
		}
	}
	return view.StatusAnswer{Status: shown}
}

// askHost is the one question that every host answers, also those that stand by.
func (a *actor) askHost() any {
	a.askHead()
	noKey := ""
	a.look(func(r *executor.Reader) { noKey = a.keyProblem(r.Key()) })
	a.mu.Lock()
	defer a.mu.Unlock()
	return view.HostAnswer{Host: view.Host{
		Host: a.host.cfg.Holder, Mode: a.mode, Problem: a.problem, Applied: a.applied,
		Last: max(a.last, a.applied), NoKey: noKey,
	}}
}

// askHead reads the stream's end, so that a tenant that folds nothing any more
// (halted, interrupted) does not look as if it had folded everything.
func (a *actor) askHead() {
	a.mu.Lock()
	store, mode := a.seen, a.mode
	a.mu.Unlock()
	if store == nil || mode == view.ModeHolding || mode == view.ModeGuard {
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

func (a *actor) waitingCommands() []view.Waiting {
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

package coordinator

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// acts are the actions of a plan and its children, in the order of their registration. They are
// guarded by the plan's mu, as all parts of a plan are.
type acts struct {
	actions  map[string]*action
	order    []*action       // as registered
	reserved map[string]bool // numbers taken for actions whose before-image is asked for
	count    int             // actions and children so far
	children []int           // numbers of children
	running  int
}

// number returns an ID for an action that has none. Called with mu held.
func (all *acts) number() string {
	for n := len(all.order) + 1; ; n++ {
		if number := strconv.Itoa(n); all.actions[number] == nil && !all.reserved[number] {
			return number
		}
	}
}

// runningNow names the first of the actions whose forwards run. Called with mu held.
func (all *acts) runningNow() string {
	const most = 3
	var names []string
	for _, a := range all.order {
		if a.state == actionRunning {
			names = append(names, a.call.Action)
		}
	}
	if len(names) > most {
		names = append(names[:most], "...")
	}
	return strings.Join(names, ", ")
}

// reached says which actions are undone in an unwind from an action on; with no action, all.
func (all *acts) reached(from string) func(*action) bool {
	if from == "" || all.actions[from] == nil {
		return func(*action) bool { return true }
	}
	undone := map[string]bool{from: true}
	for _, a := range all.order {
		if slices.ContainsFunc(a.after, func(id string) bool { return undone[id] }) {
			undone[a.call.Action] = true
		}
	}
	return func(a *action) bool { return undone[a.call.Action] }
}

// gone notes which actions of an earlier process were undone before the record at a sequence; 0:
// all that are known were registered before it. Called with mu held.
func (all *acts) gone(reached func(*action) bool, at uint64) {
	for _, a := range all.order {
		if a.past != nil && a.past.Outcome != api.OutcomeFailed && a.pair.before(at) && reached(a) {
			a.past.Undone = true
		}
	}
}

// interrupt cancels the contexts of the running forwards that are undone and returns them:
// each at the end of its grace, or at once. Called with mu held.
func (all *acts) interrupt(cause error, undone func(*action) bool, atOnce bool) []*action {
	var running []*action
	for _, a := range all.order {
		if a.state != actionRunning || !undone(a) {
			continue
		}
		running = append(running, a)
		if atOnce {
			a.cancel(cause)
			continue
		}
		stop := a.cancel
		time.AfterFunc(a.grace(), func() {
			a.plan.mu.Lock()
			defer a.plan.mu.Unlock()
			stop(cause) // harmless when the forward has ended
		})
	}
	return running
}

// giveUp gives up those of some actions that were never called. Called with mu held.
func (all *acts) giveUp(of func(*action) bool) error {
	for _, a := range all.order {
		if of(a) && a.state == actionRegistered && !a.pair.failed() {
			if err := a.giveUp(); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveUp queues that a registered action was never called, so that no one has to
// doubt it. Called with mu held.
func (a *action) giveUp() error {
	p := a.plan
	return a.giveUpFor(cmp.Or(p.unwound, ErrNotStarted),
		"the agent registered the action and did not call it")
}

// giveUpFor is giveUp for a reason, which is recorded. Called with mu held.
func (a *action) giveUpFor(cause error, message string) error {
	p := a.plan
	a.state, a.givenUp = actionEnded, cause
	a.said = a.uncalled(codeNotStarted, message)
	return p.queueOutcome(a.said)
}

// GiveUp records of the actions of a plan whose forwards were not called that they never will be:
// whoever goes on with the plan, or undoes it, has nothing to doubt then. No Do may wait for one.
func GiveUp(p *Plan) { leave(p, func(*action) bool { return true }) }

// leave has the ledger know that those of some actions that were never called will not be.
func leave(p *Plan, of func(*action) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	abandon(p, of)
}

// abandon is leave with mu held.
func abandon(p *Plan, of func(*action) bool) {
	if err := p.giveUp(of); err != nil {
		p.c.logger.Warn("what was never called is not recorded", "tenant", p.c.tenant, "plan", p.id,
			"error", err)
	}
}

// uncalled makes the record of an action that this process will not call. That is
// proof that nothing happened only where no earlier process may have called it.
func (a *action) uncalled(code, message string) *pb.Record {
	record := a.outcome()
	if a.doubt != nil {
		record.Kind = &pb.Record_ForwardInDoubt{ForwardInDoubt: a.doubt}
	} else {
		record.Kind = &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: code,
			Message: message}}
	}
	return record
}

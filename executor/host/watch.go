package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Change is what the turns since the last one have touched.
type Change struct {
	Pulse executor.Pulse `json:"pulse"`
	Plans []string       `json:"plans"` // that records were about, at most 256
	Facts bool           `json:"facts"` // records were about facts
	All   bool           `json:"all"`   // there were more plans than that
}

// Watch follows the fold of one tenant. What happens while its owner is busy is added
// up, within bounds: a slow owner costs the fold nothing and misses no change.
type Watch struct {
	feed    *feed
	ready   chan struct{} // buffered 1: there is a change
	mu      sync.Mutex
	pending Change
	seen    map[string]bool // of pending.Plans
}

// Ready has a value when Take has a change.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Take returns what has changed since it was called last.
func (w *Watch) Take() Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.pending
	w.pending = Change{Pulse: c.Pulse}
	clear(w.seen)
	return c
}

// Close ends the watch. It may be called more than once.
func (w *Watch) Close() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	w.feed.watches = slices.DeleteFunc(w.feed.watches, func(o *Watch) bool { return o == w })
	w.feed.watched.Store(len(w.feed.watches) > 0)
}

func (w *Watch) add(pulse executor.Pulse, plans []string, facts, all bool) {
	w.mu.Lock()
	w.pending.Pulse, w.pending.Facts, w.pending.All = pulse, w.pending.Facts || facts, w.pending.All ||
		all
	for _, plan := range plans {
		switch {
		case w.seen[plan]:
		case len(w.seen) == changedMax:
			w.pending.All = true
		default:
			w.seen[plan] = true
			w.pending.Plans = append(w.pending.Plans, plan)
		}
	}
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// nudge has every watch look again: what is known of the tenant has changed, and not by
// a record.
func (f *feed) nudge() {
	if !f.watched.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.watches {
		w.mu.Lock()
		pulse := w.pending.Pulse
		w.mu.Unlock()
		w.add(pulse, nil, false, true)
	}
}

// feed tells watches what the turns of an actor touch. What a turn has touched belongs
// to the actor's goroutine; without a watch nothing is noted.
type feed struct {
	watched atomic.Bool
	plans   []string // of this turn
	facts   bool
	all     bool

	mu      sync.Mutex
	watches []*Watch
}

// touch notes what a record is about.
func (f *feed) touch(r *pb.Record) {
	if r == nil || !f.watched.Load() {
		return
	}
	switch r.Kind.(type) {
	case *pb.Record_FactAsserted, *pb.Record_FactRetracted, *pb.Record_FactEvicted,
		*pb.Record_FactReingested:
		f.facts = true
	}
	switch n := len(f.plans); {
	case r.Plan == "" || n > 0 && f.plans[n-1] == r.Plan:
	case n == changedMax:
		f.all = true
	default:
		f.plans = append(f.plans, r.Plan)
	}
}

// publish ends a turn.
func (f *feed) publish(s *executor.State) {
	if !f.watched.Load() {
		return
	}
	now := s.Pulse()
	f.mu.Lock()
	for _, w := range f.watches {
		w.add(now, f.plans, f.facts, f.all)
	}
	f.mu.Unlock()
	f.plans, f.facts, f.all = f.plans[:0], false, false
}

// ErrNoTenant is what Watch and Ask return of a tenant that this host does not serve.
var ErrNoTenant = errors.New("this host does not serve the tenant")

func (h *Host) actorOf(tenant string) (*actor, error) {
	for _, a := range h.actors {
		if a.tenant == tenant {
			return a, nil
		}
	}
	return nil, fmt.Errorf("cannot ask about tenant %q: %w", tenant, ErrNoTenant)
}

// Watch follows the fold of a tenant until the watch is closed. The error says that
// this host does not serve the tenant, or that watchesMax are there already.
func (h *Host) Watch(tenant string) (*Watch, error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return nil, err
	}
	w := &Watch{feed: &a.feed, ready: make(chan struct{}, 1), seen: map[string]bool{}}
	pulse, err := h.Pulse(tenant)
	if err != nil {
		return nil, err
	}
	w.pending.Pulse = pulse
	a.feed.mu.Lock()
	defer a.feed.mu.Unlock()
	if len(a.feed.watches) == watchesMax {
		return nil, fmt.Errorf("cannot follow tenant %s: %d watches follow it already", tenant,
			watchesMax)
	}
	a.feed.watches = append(a.feed.watches, w)
	a.feed.watched.Store(true)
	return w, nil
}

// Ask answers one question of the query API (docs/cli.md) from this host's own fold,
// as its NATS subject does: the answer is one of package executor, of the verb or an
// view.ErrorAnswer. The error says that there was no one to ask.
func (h *Host) Ask(tenant, verb string, q any) (any, error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", verb, err)
	}
	if !a.asking.enter() {
		return nil, fmt.Errorf("cannot ask %s: the host is stopping", verb)
	}
	defer a.asking.leave()
	return a.answered(verb, questionVerb(verb), data), nil
}

// Pulse is where the fold of a tenant stands, as Ask finds it.
func (h *Host) Pulse(tenant string) (pulse executor.Pulse, err error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return pulse, err
	}
	if !a.asking.enter() {
		return pulse, fmt.Errorf("cannot ask about tenant %s: the host is stopping", tenant)
	}
	defer a.asking.leave()
	defer func() {
		if broken, ok := recover().(*rows.StoreError); ok {
			err = broken
		}
	}()
	a.look(func(r *executor.Reader) { pulse = r.Pulse() })
	return pulse, nil
}

// Tenants are the tenants of this host, in the order of its configuration.
func (h *Host) Tenants() []string { return slices.Clone(h.cfg.Tenants) }

func (a *actor) askFind(q view.FindQuery) any {
	answer, problem := looked(a,
		func(r *executor.Reader) (view.FindAnswer, error) { return r.Find(q) })
	if answer.Error = problem; answer.Plans == nil {
		answer.Plans = []view.Plan{}
	}
	return answer
}

// dueUnservedMax is how many entries an answer of due.ls may have because of commands that
// no one takes, where it has fewer of its own.
const dueUnservedMax = 20

func (a *actor) askUpcoming(q view.ListQuery) any {
	var answer view.UpcomingAnswer
	a.look(func(r *executor.Reader) { answer.Upcoming = r.Upcoming(q.Limit) })
	due := answer.Upcoming.Due
	limit := max(len(due), dueUnservedMax)
	for _, w := range a.waitingCommands() {
		if w.UnservedNs != 0 && !w.Working && w.Problem == "" {
			due = append(due, view.Due{Ns: w.UnservedNs, Kind: "unserved", Plan: w.Plan, Action: w.Action})
		}
	}
	slices.SortStableFunc(due, func(a, b view.Due) int {
		return cmp.Or(cmp.Compare(a.Ns, b.Ns), cmp.Compare(a.Plan, b.Plan),
			cmp.Compare(a.Action, b.Action))
	})
	answer.Upcoming.Due = due[:min(len(due), limit)]
	return answer
}

func (a *actor) askCapabilities() any {
	var answer view.CapabilitiesAnswer
	a.look(func(r *executor.Reader) { answer = r.Capabilities() })
	return answer
}

// Ledger reads a tenant's ledger, as this host does. The error says that the host does
// not serve the tenant, or that its ledger is not open yet.
func (h *Host) Ledger(tenant string) (ledger.Store, error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return nil, err
	}
	store := a.ledgerSeen()
	if store == nil {
		return nil, fmt.Errorf("cannot read the ledger of %s: it is not open yet", tenant)
	}
	return store, nil
}

// Copied looks up a message of so many records in the tiles. The error says that they
// do not have it, or cannot be read.
func (h *Host) Copied(tenant string, sequence uint64, records int) (tiles.Copy, error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return tiles.Copy{}, err
	}
	return a.copiesSeen().Copied(sequence, records)
}

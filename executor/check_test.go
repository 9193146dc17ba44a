package executor

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// rowsOf decodes every plan of a flushed state with its actions (by number, from
// 1 at index 1).
func rowsOf(t testing.TB, kv KV) (plans []*plan, actions map[string][]*action) {
	t.Helper()
	s := look(kv, "t")
	actions = map[string][]*action{}
	for k := range kv.Scan([]byte{keyPlan}, after([]byte{keyPlan})) {
		p := s.plan(string(k[1:]))
		plans = append(plans, p)
		list := []*action{nil}
		for n := uint32(1); n <= p.row.Actions; n++ {
			list = append(list, s.action(p.id, n))
		}
		actions[p.id] = list
	}
	return plans, actions
}

// checkRows recounts every counter, list and index over all rows (I24) and
// returns what contradicts itself.
func checkRows(t testing.TB, kv KV) error {
	t.Helper()
	s := look(kv, "t")
	want := &pb.Meta{}
	indexes := map[string]bool{} // rows of the kinds d, k, x, c, q that there must be
	plans, actions := rowsOf(t, kv)
	for _, p := range plans {
		if err := checkPlanRows(p, actions[p.id], want, indexes); err != nil {
			return fmt.Errorf("plan %s: %w", p.id, err)
		}
		if hasWork(p.row) {
			indexes[string(append([]byte{keyTodo}, todoPlan+p.id...))] = true
		}
	}
	m := s.meta
	if m.Held != want.Held || m.Open != want.Open || m.Unwinding != want.Unwinding || m.Quarantined != want.Quarantined || m.Ended != want.Ended {
		return fmt.Errorf("counters: have %v\nwant %v", m, want)
	}
	for _, kind := range []byte{keyDue, keyWatch, keyFlight, keyCommand, keyOwner, keyTodo} {
		for k := range kv.Scan([]byte{kind}, after([]byte{kind})) {
			if kind == keyTodo && k[1] == todoRefused[0] {
				continue
			}
			if !indexes[string(k)] {
				return fmt.Errorf("left over: %q", k)
			}
			delete(indexes, string(k))
		}
	}
	for k := range indexes {
		return fmt.Errorf("missing: %q", k)
	}
	return nil
}

func checkPlanRows(p *plan, list []*action, want *pb.Meta, indexes map[string]bool) error {
	r := p.row
	var c recount
	leaseIndexes(p.id, 0, r.Leases, indexes)
	for n := uint32(1); int(n) < len(list); n++ {
		leaseIndexes(p.id, n, list[n].row.Leases, indexes)
		c.action(p, list[n], indexes)
	}
	switch r.Phase {
	case pb.Phase_PHASE_OPEN:
		want.Open++
		want.Held += uint64(r.Actions)
	case pb.Phase_PHASE_UNWINDING:
		want.Unwinding++
		want.Held += uint64(c.unsettled)
	case pb.Phase_PHASE_QUARANTINED:
		want.Quarantined++
		want.Held += uint64(c.unsettled)
		indexes[string(planKey(keyOwner, p.id))] = true
	default:
		want.Ended++
	}
	if r.Phase == pb.Phase_PHASE_COMPENSATED && (c.unsettled > 0 || c.quarantined > 0 || len(r.Orphans) > 0) {
		return fmt.Errorf("compensated with %d unsettled, %d quarantined, orphans %v (I22)", c.unsettled, c.quarantined, r.Orphans)
	}
	if r.Phase == pb.Phase_PHASE_OPEN || r.Phase == pb.Phase_PHASE_COMMITTED {
		c.unsettled = 0
	} else if err := checkBlockers(list); err != nil {
		return err
	}
	if !slices.Equal(r.Ready, c.ready) || !slices.Equal(r.Parked, c.parked) || !slices.Equal(r.Reported, c.reported) || !slices.Equal(r.Watchers, c.watchers) {
		return fmt.Errorf("ready %v, parked %v, reported %v, watchers %v; counted %+v", r.Ready, r.Parked, r.Reported, r.Watchers, c)
	}
	if r.Unsettled != c.unsettled || r.InFlight != c.flying || r.Quarantined != c.quarantined || r.Resolved < c.resolved {
		return fmt.Errorf("unsettled %d, in flight %d, quarantined %d, resolved %d; counted %+v", r.Unsettled, r.InFlight, r.Quarantined, r.Resolved, c)
	}
	return nil
}

// leaseIndexes notes the rows that leases must have.
func leaseIndexes(plan string, n uint32, leases []*pb.LeaseRow, indexes map[string]bool) {
	for _, l := range leases {
		ref := leaseRef{plan, n, l.Name}
		if l.WakeNs != 0 {
			indexes[string(dueKey(l.WakeNs, dueLease, ref))] = true
		}
		for _, k := range l.Keys {
			indexes[string(ref.append(sized(keyWatch, k, 0)))] = true
		}
	}
}

// recount is what a plan's lists and counters must say.
type recount struct {
	ready, parked, reported, watchers        []uint32
	unsettled, flying, quarantined, resolved uint32
}

func (c *recount) action(p *plan, a *action, indexes map[string]bool) {
	n := a.id.n
	if len(a.row.Leases) > 0 {
		c.watchers = append(c.watchers, n)
	}
	if unsettled(a) {
		c.unsettled++
	}
	if a.row.Reported != nil {
		c.reported = append(c.reported, n)
	}
	switch a.row.Undo {
	case pb.Undo_UNDO_READY:
		c.ready = append(c.ready, n)
	case pb.Undo_UNDO_EXHAUSTED:
		c.parked = append(c.parked, n)
	case pb.Undo_UNDO_QUARANTINED:
		c.quarantined++
	case pb.Undo_UNDO_RESOLVED:
		c.resolved++
	case pb.Undo_UNDO_WAITING:
		c.flying++
		indexes[string(dueKey(a.row.DueNs, dueRetry, leaseRef{plan: p.id, n: n}))] = true
		indexes[string(actionKey(keyCommand, p.id, n))] = true
	case pb.Undo_UNDO_DISPATCHED:
		c.flying++
		indexes[string(actionKey(keyFlight, p.id, n))] = true
		indexes[string(actionKey(keyCommand, p.id, n))] = true
	}
}

// checkBlockers recounts what holds each action of an unwind back.
func checkBlockers(list []*action) error {
	blockers := make([]uint32, len(list))
	for _, a := range list[1:] {
		if !passed(a) || a.row.Blockers > 0 {
			for _, m := range a.fixed.Before {
				blockers[m]++
			}
		}
	}
	for n, a := range list[1:] {
		if a.row.Blockers != blockers[n+1] {
			return fmt.Errorf("action %d has %d blockers, counted %d", n+1, a.row.Blockers, blockers[n+1])
		}
		if a.row.Undo == pb.Undo_UNDO_READY && a.row.Blockers > 0 {
			return fmt.Errorf("action %d is ready and blocked", n+1)
		}
	}
	return nil
}

// orderCheck watches a ledger for the order of an unwind (I21), for what must not
// be commanded (I20), for keys that change (I19) and for undos that succeed more
// than once (I22).
type orderCheck struct {
	succeeded map[string]int
}

// count takes note of an effective record.
func (c *orderCheck) count(e ledger.Entry) {
	if e.Record.GetCompensationSucceeded() != nil {
		if c.succeeded == nil {
			c.succeeded = map[string]int{}
		}
		c.succeeded[e.Record.Plan+"/"+e.Record.Action]++
	}
}

// check says what a record would break if it were effective in s.
func (c *orderCheck) check(s *State, e ledger.Entry) error {
	r := e.Record
	if e.Err != nil || e.Source.Class != ledger.ClassExecutor || s.plan(r.Plan) == nil || s.byName(r.Plan, r.Action) == nil {
		return nil
	}
	p, a := s.plan(r.Plan), s.byName(r.Plan, r.Action)
	if r.GetCompensationSucceeded() != nil && c.succeeded[r.Plan+"/"+r.Action] > 0 {
		return fmt.Errorf("%s/%s was undone twice", r.Plan, r.Action)
	}
	k := r.GetCompensationDispatched()
	switch {
	case k == nil:
		return nil
	case a.row.Outcome == pb.Outcome_OUTCOME_FAILED || a.fixed.Forward.Class != pb.Class_CLASS_COMPENSABLE:
		return fmt.Errorf("a command for %s, which never crossed or has no inverse (I20)", r.Action)
	case k.Key != ledger.Key("t", r.Plan, r.Action, ledger.PurposeUndo):
		return fmt.Errorf("another key for %s (I19)", r.Action)
	case k.Attempt > 1:
		return nil // begun before what joined since
	}
	for m := p.row.Actions; m > a.id.n; m-- {
		if b := s.action(p.id, m); later(s, p, a.id.n)[m] && !passed(b) {
			return fmt.Errorf("%s is commanded before %s is settled (I21)", r.Action, b.fixed.Id)
		}
	}
	return nil
}

// later returns everything that came after action n, near or far.
func later(s *State, p *plan, n uint32) map[uint32]bool {
	found := map[uint32]bool{}
	for m := n + 1; m <= p.row.Actions; m++ {
		for _, b := range s.action(p.id, m).fixed.Before {
			if b == n || found[b] {
				found[m] = true
			}
		}
	}
	return found
}

package executor

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// rowsOf decodes every plan of a flushed state with its actions (by number, from
// 1 at index 1).
func rowsOf(t testing.TB, kv rows.KV) (plans []*plan, actions map[string][]*action) {
	t.Helper()
	s := look(kv, "t", nil)
	actions = map[string][]*action{}
	for k := range kv.Scan(rows.Plans.Prefix(), rows.After(rows.Plans.Prefix())) {
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

// decisions are what a plan calls for where no time has passed.
func (s *State) decisions(plan string) []*pb.Record {
	d := &decider{live: s, state: s.fork(), in: Input{SizeMax: 1 << 20}}
	d.plan(plan)
	return d.records
}

// CheckRows recounts every counter, list and index over all rows (I24) and
// returns what contradicts itself.
func CheckRows(t testing.TB, kv rows.KV) error {
	t.Helper()
	s := look(kv, "t", nil)
	want := &rowspb.Meta{}
	indexes := map[string]bool{} // rows of the kinds d, h, y, x, c, q that there must be
	plans, actions := rowsOf(t, kv)
	for _, p := range plans {
		if err := checkPlanRows(p, actions[p.id], s.meta.TimeNs, want, indexes); err != nil {
			return fmt.Errorf("plan %s: %w", p.id, err)
		}
		if s.plan(p.id).hasWork() {
			indexes[string(append(rows.Todo.Prefix(), todoPlan+p.id...))] = true
		} else if missed := s.decisions(p.id); len(missed) > 0 {
			return fmt.Errorf("plan %s has nothing to do by its row, and %v is to be decided", p.id, missed)
		}
	}
	for _, p := range plans {
		if err := checkDoubts(s, p); err != nil {
			return fmt.Errorf("plan %s: %w", p.id, err)
		}
	}
	m := s.meta
	if m.Held != want.Held || m.Open != want.Open || m.Unwinding != want.Unwinding || m.Quarantined != want.Quarantined ||
		m.Ended != want.Ended || m.Cut != want.Cut || m.Conditions != want.Conditions || m.Asking != want.Asking {
		return fmt.Errorf("counters: have %v\nwant %v", m, want)
	}
	if err := checkWatches(s, plans, actions, indexes); err != nil {
		return err
	}
	faulty := uint64(0)
	for range kv.Scan(rows.Faulty.Prefix(), rows.After(rows.Faulty.Prefix())) {
		faulty++
	}
	if m.Faulty != faulty {
		return fmt.Errorf("%d leases and nodes in error, counted %d", m.Faulty, faulty)
	}
	for _, kind := range []byte("dhyxcqtW") {
		for k := range kv.Scan([]byte{kind}, rows.After([]byte{kind})) {
			if kind == 't' && k[1] != todoPlan[0] {
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
	return checkFacts(s)
}

// checkDoubts recounts what the commit of a root waits for: each of these, and no other,
// is asked about or its owner's.
func checkDoubts(s *State, p *plan) (err error) {
	if p.row.Phase == rowspb.Phase_PHASE_COMMITTING && p.row.Signal != rowspb.Signal_SIGNAL_NONE {
		return nil // it does not wait any more: it is being undone
	}
	doubts := uint32(0)
	p.retirable(func(q *plan, a *action) bool {
		if waits := p.row.Phase == rowspb.Phase_PHASE_COMMITTING && unanswered(a); waits {
			doubts++
		}
		if waits, held := unanswered(a), a.row.Undo == rowspb.Undo_UNDO_HELD; p.row.Phase == rowspb.Phase_PHASE_COMMITTING &&
			!settled(a.row.Undo) && waits == held {
			err = fmt.Errorf("action %s of plan %s is %s, and the commit waits for it: %v", a.fixed.Id, q.id,
				undoName(a.row.Undo), waits)
		}
		return err == nil
	})
	if err == nil && doubts != p.row.Doubts {
		err = fmt.Errorf("%d actions are in doubt, counted %d", p.row.Doubts, doubts)
	}
	return err
}

// checkFacts recounts working memory.
func checkFacts(s *State) error {
	want, indexes := &rowspb.Meta{}, map[string]bool{}
	for k, v := range s.tx.Scan(rows.Facts.Prefix(), rows.After(rows.Facts.Prefix())) {
		key, row := string(k[1:]), rows.Facts.Decode("scan", v)
		switch {
		case row.Retracted:
			want.Tombstones++
		case row.Evicted != nil:
			want.Evicted++
		default:
			want.Facts++
			want.FactBytes += uint64(len(key) + len(row.Value))
			indexes[string(rows.Residents.Key(rows.Numbered{N: uint64(row.SinceNs), Name: key}))] = true
			if memory.Size(key, row) >= memory.LargeMin {
				indexes[string(rows.Large.Key(rows.Numbered{N: memory.Size(key, row), Name: key}))] = true
			}
		}
		if !row.Retracted {
			indexes[string(rows.Names.Key(key))] = true
		}
		if (row.Evicted != nil || row.Retracted) != (len(row.Value) == 0) {
			return fmt.Errorf("fact %q: evicted or retracted, and its value has %d bytes", key, len(row.Value))
		}
		if row.Asked != nil {
			todo := todoEvict
			if row.Evicted != nil {
				todo = todoRestore
			}
			indexes[string(append(rows.Todo.Prefix(), todo+key...))] = true
		}
	}
	if m := s.meta; m.Facts != want.Facts || m.FactBytes != want.FactBytes || m.Evicted != want.Evicted ||
		m.Tombstones != want.Tombstones {
		return fmt.Errorf("working memory: have %v\nwant %v", m, want)
	}
	for _, prefix := range []string{string(rows.Residents.Prefix()), string(rows.Large.Prefix()),
		string(rows.Names.Prefix()), string(rows.Todo.Prefix()) + todoEvict, string(rows.Todo.Prefix()) + todoRestore} {
		for k := range s.tx.Scan([]byte(prefix), rows.After([]byte(prefix))) {
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

func checkPlanRows(p *plan, list []*action, nowNs int64, want *rowspb.Meta, indexes map[string]bool) error {
	r := p.row
	var c recount
	leaseIndexes(p.id, 0, r.Leases, indexes)
	for n := uint32(1); int(n) < len(list); n++ {
		leaseIndexes(p.id, n, list[n].row.Leases, indexes)
		c.action(p, list[n], indexes)
		if !settled(list[n].row.Undo) {
			c.conditions += declared(list[n].row.Leases)
		}
		if a := list[n]; a.row.Ahead != nil {
			first := list[a.row.Behind]
			if a.row.Undo != rowspb.Undo_UNDO_OWED || a.row.Blockers != 1 || a.row.Attempt != 0 || !first.leadsOnly(n) ||
				!first.leads() {
				return fmt.Errorf("action %s is %s with %d blockers, ahead behind action %s, which is %s", a.fixed.Id,
					undoName(a.row.Undo), a.row.Blockers, first.fixed.Id, undoName(first.row.Undo))
			}
		}
	}
	c.conditions += declared(r.Leases)
	if err := checkHeldOn(p, list, nowNs, want, indexes); err != nil {
		return err
	}
	c.phase(p, want, indexes)
	claimed := slices.ContainsFunc(r.Orphans, func(o *rowspb.Orphan) bool { return !o.Answered && !o.Withdrawn })
	if (c.quarantined > 0 || claimed) && !ordered(r) { // a commit waits for its owner, or an act that was refused
		indexes[string(rows.Owners.Key(p.id))] = true
	}
	if len(r.Cuts) > 0 {
		want.Cut++
		indexes[string(rows.Owners.Key(p.id))] = true
	}
	if err := checkCuts(p, list); err != nil {
		return err
	}
	if r.Phase == rowspb.Phase_PHASE_COMPENSATED && (c.unsettled > 0 || c.quarantined > 0 || orphaned(r)) {
		return fmt.Errorf("compensated with %d unsettled, %d quarantined, orphans %v (I22)", c.unsettled, c.quarantined,
			r.Orphans)
	}
	if !ordered(r) {
	} else if err := checkBlockers(p, list); err != nil {
		return err
	}
	if !slices.Equal(r.Ready, c.ready) || !slices.Equal(r.Parked, c.parked) || !slices.Equal(r.Reported, c.reported) ||
		!slices.Equal(r.Watchers, c.watchers) {
		return fmt.Errorf("ready %v, parked %v, reported %v, watchers %v; counted %+v", r.Ready, r.Parked, r.Reported,
			r.Watchers, c)
	}
	if r.Conditions != c.conditions {
		return fmt.Errorf("%d conditions, counted %d", r.Conditions, c.conditions)
	}
	if r.Compensated != c.compensated || r.Skipped != c.skipped || r.InScope < c.compensated {
		return fmt.Errorf("compensated %d, skipped %d, in scope %d; counted %+v", r.Compensated, r.Skipped, r.InScope, c)
	}
	if !slices.Equal(r.Settling, c.settling) || !slices.Equal(r.Asking, c.asking) || r.Unsettled != c.unsettled ||
		r.InFlight != c.flying || r.Quarantined != c.quarantined || r.Resolved < c.resolved {
		return fmt.Errorf("unsettled %d, in flight %d, quarantined %d, resolved %d; counted %+v", r.Unsettled, r.InFlight,
			r.Quarantined, r.Resolved, c)
	}
	return nil
}

// checkCuts wants every lease that is cut to wait with its owner, and no other, and
// none of a plan that holds its leases no more.
func checkCuts(p *plan, list []*action) error {
	var have, want []string
	note := func(n uint32, leases []*rowspb.LeaseRow) {
		for _, l := range leases {
			if l.Cascade == rowspb.Cascade_CASCADE_CUT {
				have = append(have, fmt.Sprint(n, " ", l.Name))
			}
		}
	}
	note(0, p.row.Leases)
	for n, a := range list[1:] {
		note(uint32(n+1), a.row.Leases)
	}
	for _, c := range p.row.Cuts {
		want = append(want, fmt.Sprint(c.Action, " ", c.Lease))
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) || len(want) > 0 && !armed(p.row) && p.row.HeldOn == 0 {
		return fmt.Errorf("leases %v are cut, and %v wait; the plan is %s", have, want, p.row.Phase)
	}
	return nil
}

// checkHeldOn recounts what a plan holds after its commit, and when the next of it ends.
func checkHeldOn(p *plan, list []*action, nowNs int64, want *rowspb.Meta, indexes map[string]bool) error {
	count, first := uint32(0), int64(0)
	note := func(leases []*rowspb.LeaseRow) {
		for _, l := range leases {
			if l.UntilNs == 0 {
				continue
			}
			count++
			if l.UntilNs > nowNs && (first == 0 || l.UntilNs < first) {
				first = l.UntilNs
			}
		}
	}
	note(p.row.Leases)
	for _, a := range list[1:] {
		note(a.row.Leases)
	}
	want.Conditions += uint64(count)
	if ns := p.row.EndsNs; ns != 0 && ns <= nowNs {
		first = ns // more windows have closed than one record gives up; it is next
	}
	if count != p.row.HeldOn || first != p.row.EndsNs || count > 0 && p.row.Phase != rowspb.Phase_PHASE_COMMITTED {
		return fmt.Errorf("%s, holds %d conditions, the first until %d; counted %d, %d", p.row.Phase, p.row.HeldOn,
			p.row.EndsNs, count, first)
	}
	if first != 0 {
		indexes[string(rows.Endings.Key(rows.Numbered{N: uint64(first), Name: p.id}))] = true
	}
	return nil
}

// leaseIndexes notes the rows that leases must have.
func leaseIndexes(plan string, n uint32, leases []*rowspb.LeaseRow, indexes map[string]bool) {
	for _, l := range leases {
		ref := rows.Lease{Plan: plan, N: n, Name: l.Name}
		if l.WakeNs != 0 {
			indexes[string(rows.Due.Key(rows.Instant{Ns: l.WakeNs, Kind: rows.DueLease, Lease: ref}))] = true
		}
		if l.Node != nil {
			indexes[string(rows.Members.Key(rows.Member{Node: l.Node, Lease: ref}))] = true
		}
		if l.Faulty {
			indexes[string(rows.Faulty.Key(ref))] = true
		}
	}
}

// phase adds what a plan counts for by its phase.
func (c *recount) phase(p *plan, want *rowspb.Meta, indexes map[string]bool) {
	r := p.row
	if armed(r) {
		want.Conditions += uint64(c.conditions)
		want.Asking += uint64(c.questions)
	}
	switch r.Phase {
	case rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING:
		want.Open++
		want.Held += uint64(c.held)
	case rowspb.Phase_PHASE_UNWINDING:
		want.Unwinding++
		want.Held += uint64(c.held)
	case rowspb.Phase_PHASE_QUARANTINED:
		want.Quarantined++
		want.Held += uint64(c.held)
		indexes[string(rows.Owners.Key(p.id))] = true
	default:
		want.Ended++
		if keeps(r) {
			want.Held += uint64(c.held)
		}
	}
}

// declared counts the leases of conditions that someone has declared.
func declared(leases []*rowspb.LeaseRow) (count uint32) {
	for _, l := range leases {
		if standing(l.Name) == "" {
			count++
		}
	}
	return count
}

// recount is what a plan's lists and counters must say.
type recount struct {
	ready, parked, reported, watchers        []uint32
	settling, asking                         []uint32
	unsettled, flying, quarantined, resolved uint32
	questions                                uint32 // of an open plan that are out
	compensated, skipped                     uint32
	conditions                               uint32
	held                                     uint32 // unsettled, without entries of child plans
}

func (c *recount) action(p *plan, a *action, indexes map[string]bool) {
	n := a.id.N
	if len(a.row.Leases) > 0 {
		c.watchers = append(c.watchers, n)
	}
	if !settled(a.row.Undo) {
		c.unsettled++
		if a.fixed.Child == "" {
			c.held++
		}
	}
	if slices.Contains(p.row.Windows, n) && !a.row.Warned {
		indexes[string(rows.Due.Key(rows.Instant{Ns: warnNs(a), Kind: rows.DueWindow,
			Lease: rows.Lease{Plan: p.id, N: n}}))] = true
	}
	if a.row.AskNs != 0 {
		indexes[string(rows.Due.Key(rows.Instant{Ns: a.row.AskNs, Kind: rows.DueAsk,
			Lease: rows.Lease{Plan: p.id, N: n}}))] = true
	}
	if asksOpenly(a) {
		indexes[string(rows.Flights.Key(rows.Action{Plan: p.id, N: n}))] = true
		indexes[string(rows.Commands.Key(rows.Action{Plan: p.id, N: n}))] = true
	}
	if asksOpenly(a) {
		c.flying++
		c.questions++
	}
	if a.row.AskNs != 0 || asksOpenly(a) {
		c.asking = append(c.asking, n)
	}
	if a.row.Reported != nil {
		c.reported = append(c.reported, n)
	}
	switch a.row.Undo {
	case rowspb.Undo_UNDO_READY:
		c.ready = append(c.ready, n)
	case rowspb.Undo_UNDO_EXHAUSTED:
		c.parked = append(c.parked, n)
	case rowspb.Undo_UNDO_QUARANTINED:
		c.quarantined++
	case rowspb.Undo_UNDO_RESOLVED:
		c.resolved++
	case rowspb.Undo_UNDO_COMPENSATED:
		c.compensated++
	case rowspb.Undo_UNDO_SKIPPED:
		c.skipped++
	case rowspb.Undo_UNDO_SETTLING:
		c.settling = append(c.settling, n)
		indexes[string(rows.Due.Key(rows.Instant{Ns: a.row.DueNs, Kind: rows.DueRetry,
			Lease: rows.Lease{Plan: p.id, N: n}}))] = true
	case rowspb.Undo_UNDO_OWED:
		if a.row.Ahead != nil {
			indexes[string(rows.Commands.Key(rows.Action{Plan: p.id, N: n}))] = true
		}
	case rowspb.Undo_UNDO_WAITING:
		c.flying++
		indexes[string(rows.Due.Key(rows.Instant{Ns: a.row.DueNs, Kind: rows.DueRetry,
			Lease: rows.Lease{Plan: p.id, N: n}}))] = true
		indexes[string(rows.Commands.Key(rows.Action{Plan: p.id, N: n}))] = true
	case rowspb.Undo_UNDO_DISPATCHED:
		c.flying++
		if a.fixed.Child != "" {
			break
		}
		indexes[string(rows.Flights.Key(rows.Action{Plan: p.id, N: n}))] = true
		indexes[string(rows.Commands.Key(rows.Action{Plan: p.id, N: n}))] = true
	}
}

// checkBlockers recounts what holds each action of an unwind back.
func checkBlockers(p *plan, list []*action) error {
	blockers := make([]uint32, len(list))
	for _, a := range list[1:] {
		if !isClear(p, a) {
			for _, m := range a.fixed.Before {
				blockers[m]++
			}
		}
	}
	for n, a := range list[1:] {
		if a.row.Blockers != blockers[n+1] {
			return fmt.Errorf("action %d has %d blockers, counted %d", n+1, a.row.Blockers, blockers[n+1])
		}
		if begins(a) && a.row.Blockers > 0 {
			return fmt.Errorf("action %d is ready and blocked", n+1)
		}
	}
	return nil
}

// OrderCheck watches a ledger for the order of an unwind (I21), for what must not
// be commanded (I20), for keys that change or are shared (I19), for questions that
// were not asked first (S97, S104), for undos that succeed more than once and ends
// that say too much (I22). What it knows, it knows from the effective records; an
// action is known by the key of its undo, which a copy of its plan keeps.
type OrderCheck struct {
	succeeded map[string]int
	owners    map[string]string      // of a key: which registration
	effect    map[string]pb.Presence // what a probe said of the forward
	doubtful  map[string]bool        // an attempt that may have happened, and was not asked about
	gone      map[string]bool        // a question found no effect after an attempt
	blind     map[string]bool        // its last undo was sent, or it was skipped, without knowing
	late      map[string]bool        // and then its forward completed
}

// Count takes note of an effective record.
func (c *OrderCheck) Count(s *State, e ledger.Entry) {
	r := e.Record
	if s.plan(r.Plan) == nil || s.byName(r.Plan, r.Action) == nil || s.byName(r.Plan, r.Action).fixed.Child != "" {
		return
	}
	if c.succeeded == nil {
		*c = OrderCheck{map[string]int{}, map[string]string{}, map[string]pb.Presence{}, map[string]bool{}, map[string]bool{},
			map[string]bool{}, map[string]bool{}}
	}
	a := s.byName(r.Plan, r.Action)
	key := a.firstKey()
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationDispatched:
		c.owners[k.CompensationDispatched.Key] = ledger.FormatAddress(a.fixed.Registered) + " " + a.fixed.Id
		c.blind[key] = k.CompensationDispatched.BlindCleanup
		c.late[key] = c.late[key] && c.blind[key]
	case *pb.Record_CompensationSkipped:
		c.blind[key] = true
	case *pb.Record_ForwardCompleted:
		if u := s.byName(a.plan.row.UndoneAs, a.fixed.Id); u != nil { // of a committed plan: that one is undone
			a = u
		}
		barred := refusesLate(a) && a.row.Blind && a.row.Undo != rowspb.Undo_UNDO_SKIPPED // its undo is final
		c.late[key] = c.blind[key] && !barred && !undoesSeen(a)
	case *pb.Record_CompensationSucceeded:
		c.succeeded[a.keyOf(k.CompensationSucceeded.Attempt)]++
	case *pb.Record_CompensationFailed:
		c.doubtful[key] = k.CompensationFailed.InDoubt && a.fixed.Compensation.Probe != nil
	case *pb.Record_RetryRequested, *pb.Record_ForwardFailed:
		c.doubtful[key] = false
	case *pb.Record_Resolved: // of a commit that waits, the owner says what is there
		if k.Resolved.Outcome == pb.Resolution_RESOLUTION_ACCEPTED && a.row.Resolution != nil &&
			a.plan.root().row.Phase == rowspb.Phase_PHASE_COMMITTING {
			c.effect[key] = pb.Presence_PRESENCE_PRESENT
		}
	case *pb.Record_ProbeAnswered:
		switch k := k.ProbeAnswered; {
		case k.Presence == pb.Presence_PRESENCE_UNSPECIFIED:
		case k.Question == pb.Question_QUESTION_EFFECT:
			c.effect[key] = k.Presence
		default:
			c.doubtful[key] = false
			c.gone[key] = k.Presence == pb.Presence_PRESENCE_ABSENT
		}
	}
}

// Check says what a record would break if it were effective in s.
func (c *OrderCheck) Check(s *State, e ledger.Entry) error {
	r := e.Record
	if e.Err != nil || e.Source.Class != ledger.ClassExecutor || s.plan(r.Plan) == nil {
		return nil
	}
	p := s.plan(r.Plan)
	switch k := r.Kind.(type) {
	case *pb.Record_PlanEnded:
		if k.PlanEnded.End == pb.PlanEnd_PLAN_END_COMPENSATED {
			return c.compensated(s, p)
		}
	case *pb.Record_UnwindStarted:
		if k.UnwindStarted.ParentPlan != "" && child(p.row) {
			parent, a := p.entry()
			return inOrder(s, parent, a)
		}
	case *pb.Record_CompensationSucceeded:
		if a := s.byName(r.Plan, r.Action); a != nil && !late(a, k.CompensationSucceeded.Attempt) {
			return c.success(s, a, k.CompensationSucceeded.Attempt)
		}
	case *pb.Record_CompensationDispatched:
		if a := s.byName(r.Plan, r.Action); a != nil {
			return c.dispatch(s, p, a, k.CompensationDispatched)
		}
	}
	return nil
}

func (c *OrderCheck) success(s *State, a *action, attempt uint32) error {
	switch key := a.firstKey(); {
	case delivers(a) && !isDelivered(a): // an attempt before may have been another act
		return nil
	case c.succeeded[a.keyOf(attempt)] > 0:
		return fmt.Errorf("%s/%s was undone twice", a.id.Plan, a.fixed.Id)
	case a.row.Ahead != nil:
		return fmt.Errorf("%s/%s is undone, and its dispatch is ahead", a.id.Plan, a.fixed.Id)
	case a.fixed.Compensation.Verify != nil && !c.gone[key]:
		return fmt.Errorf("%s/%s is undone, and no check says that its effect is gone", a.id.Plan, a.fixed.Id)
	default:
		return nil
	}
}

func (c *OrderCheck) dispatch(s *State, p *plan, a *action, k *pb.CompensationDispatched) error {
	id, contract, key := a.fixed.Id, a.fixed.Compensation, a.firstKey()
	// An undo that bars its forward is sent after an answer that nothing is there.
	bars := refusesLate(a) && c.effect[key] == pb.Presence_PRESENCE_ABSENT
	asks := contract.GetProbe() != nil && !bars && (a.row.Late || blind(a) && a.fixed.DutyOf == 0 &&
		contract.OnInDoubt != pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE &&
		contract.OnInDoubt != pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE)
	owner, origin := ledger.FormatAddress(a.fixed.Registered)+" "+id, p.id
	if p.row.Origin != "" {
		origin = p.row.Origin
	}
	switch {
	case p.row.Delivers:
		committed := s.plan(p.row.Origin).root().row
		if key != ledger.Key(s.tenant, p.row.Origin, id, ledger.PurposeDo) || p.row.Stopped != nil ||
			committed.Phase != rowspb.Phase_PHASE_COMMITTED || !staged(a) {
			return fmt.Errorf("delivery of %s/%s: with key %s, stopped, or its root is not committed (I38)", p.id, id, key)
		}
		if k.Attempt > 1 {
			return nil // begun before what joined since
		}
		return inOrder(s, p, a)
	case a.row.Outcome == rowspb.Outcome_OUTCOME_FAILED || a.fixed.Forward.Class != pb.Class_CLASS_COMPENSABLE:
		return fmt.Errorf("a command for %s, which never crossed or has no inverse (I20)", id)
	case key != ledger.Key("t", origin, id, ledger.PurposeUndo) && (p.row.Origin == "" || a.fixed.DutyOf == 0),
		k.Key != a.key(), (len(a.row.Keys) == 0) != (k.Key == key):
		return fmt.Errorf("another key for %s (I19)", id)
	case c.owners[k.Key] != "" && c.owners[k.Key] != owner:
		return fmt.Errorf("the key of %s is the key of %s (I19)", owner, c.owners[k.Key])
	case asks && c.effect[key] != pb.Presence_PRESENCE_PRESENT && c.effect[key] != pb.Presence_PRESENCE_DUPLICATE:
		return fmt.Errorf("%s is undone in doubt, and the probe found %s (S97)", id, presenceName(c.effect[key]))
	case c.doubtful[key]:
		return fmt.Errorf("%s is sent again, and nobody asked about the attempt in doubt (S97)", id)
	case k.Attempt > 1:
		return nil // begun before what joined since
	case k.Behind != nil:
		return nil // its success is judged instead
	default:
		return inOrder(s, p, a)
	}
}

// inOrder says what that came after an action is not settled yet.
func inOrder(s *State, p *plan, a *action) error {
	for m := p.row.Actions; m > a.id.N; m-- {
		if b := s.action(p.id, m); later(s, p, a.id.N)[m] && !passed(p, b) {
			return fmt.Errorf("%s is undone before %s is settled (I21)", a.fixed.Id, b.fixed.Id)
		}
	}
	return nil
}

// compensated says what of a plan may still stand.
func (c *OrderCheck) compensated(s *State, p *plan) error {
	for n := uint32(1); n <= p.row.Actions; n++ {
		a := s.action(p.id, n)
		key := a.firstKey()
		done := c.succeeded[key]
		for _, k := range a.row.Keys {
			done += c.succeeded[k.Key]
		}
		late := c.late[key] || a.row.Late && a.fixed.DutyOf == 0 // a plan that failed at once skips without records
		switch {
		case p.row.Origin != "" && a.row.Undo == rowspb.Undo_UNDO_SKIPPED && a.row.Settled == nil: // before the savepoint
		case a.fixed.Child != "":
			c := s.plan(a.fixed.Child).row
			own := c.Declared.ParentPlan == p.id // else the committed plan's, which had it undone before
			if phase := c.Phase; own && phase != rowspb.Phase_PHASE_COMPENSATED && phase != rowspb.Phase_PHASE_FAILED {
				return fmt.Errorf("compensated, and its child plan %s is not (I22)", a.fixed.Child)
			}
		case a.fixed.Forward.Class == pb.Class_CLASS_EFFECTLESS:
		case a.fixed.Forward.GetDeliver() != nil:
			if done > 0 {
				return fmt.Errorf("%s is staged, and was undone (I22)", a.fixed.Id)
			}
		case late && a.row.Duties == 0:
			return fmt.Errorf("compensated, and the late completion of %s is owed by nobody (I22)", a.fixed.Id)
		case a.row.Outcome == rowspb.Outcome_OUTCOME_FAILED || c.effect[key] == pb.Presence_PRESENCE_ABSENT &&
			(a.row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED || a.fixed.DutyOf != 0):
			if done > 0 && !a.row.Blind && !isSeen(a) {
				return fmt.Errorf("%s never crossed, and was undone (I22)", a.fixed.Id)
			}
		// its owner has said so to a commit
		case a.row.Resolution.GetOutcome() == pb.Resolution_RESOLUTION_DONE && a.row.Undo == rowspb.Undo_UNDO_SKIPPED:
		case late && a.row.Undo == rowspb.Undo_UNDO_SKIPPED: // its duty is an action like others
		case a.fixed.DutyOf != 0 && a.row.Undo == rowspb.Undo_UNDO_SKIPPED && lastDuty(s, a) != a.fixed.Id:
		case a.fixed.Compensation.GetUnchanged() != "" && a.row.Undo == rowspb.Undo_UNDO_SKIPPED &&
			(c.gone[key] || c.effect[key] == pb.Presence_PRESENCE_ABSENT): // someone else has removed it
		case done != 1:
			return fmt.Errorf("compensated, and %s was undone %d times (I22)", a.fixed.Id, done)
		}
	}
	if orphaned(p.row) {
		return fmt.Errorf("compensated, with orphans %v (I22)", p.row.Orphans)
	}
	return nil
}

// lastDuty is the id of the last duty of the action that a is a duty of.
func lastDuty(s *State, a *action) (id string) {
	for n := a.fixed.DutyOf + 1; n <= a.plan.row.Actions; n++ {
		if d := s.action(a.plan.id, n); d.fixed.DutyOf == a.fixed.DutyOf {
			id = d.fixed.Id
		}
	}
	return id
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

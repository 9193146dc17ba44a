package executor_test

import (
	"bytes"
	"cmp"
	options "flag"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
	"github.com/sagenbaum/sagenbaum/triggers/oracle"
)

// The engine is held against package oracle: random plans with random conditions in
// a random ledger, folded and decided at the instants that the state itself names.
// A lease fires if and only if its condition was true: what a record makes true
// fires even if it is false afterwards; what time alone makes true counts when it
// is asked. It fires once, never early, never after the commit, for the record that
// made it true.

var (
	oracleCases = options.Int("oracle", 0,
		"random ledgers that TestTheEngineAgreesWithTheOracle runs; 0: 60, 800 in a long run")
	oracleSeed = options.Int64("oracle-seed", 0, "seed of the first of them")
)

const (
	oracleTicks = 16
	oracleTick  = 2 * second
)

// oracleRun is one random ledger.
type oracleRun struct {
	r        *rand.Rand
	g        *oracle.Generator
	model    *oracleModel
	pool     []oracle.Condition
	programs *triggers.Cache
	kv       *rows.MemoryKV
	state    *State
	audit    *audit.Ledger
	log      []ledger.Message
	decided  []decided // what was decided, for those who look at the ledger again
	now      int64
	heldNs   int64 // until when the guard excuses a lease that is late
	hold     bool
	late     bool // the host looks at some instants only
	flush    int  // every so many messages
	restart  int  // one in so many flushes; 0: never
	since    int
	leases   int
	fired    int
	err      error
}

// decided is one call of Decide.
type decided struct {
	messages int // folded before
	in       Input
	records  []*pb.Record
}

func newOracleRun(seed int64, programs *triggers.Cache) *oracleRun {
	r := rand.New(rand.NewSource(seed))
	w := &oracleRun{
		r: r, programs: programs, kv: rows.NewMemoryKV(), audit: audit.New("t"), now: epoch0, flush: 1 + r.Intn(2)*r.Intn(6),
		restart: r.Intn(3) * r.Intn(5), late: r.Intn(3) == 0,
		model: &oracleModel{facts: map[string]any{}, texts: map[string]oracle.Condition{}},
	}
	w.state = OpenWith(w.kv, "t", nil, programs)
	for range 2 + r.Intn(4) {
		shape, depth := r.Int63(), r.Intn(4)
		shared := r.Intn(2) == 0
		for range 1 + r.Intn(3) { // texts that differ in literals only
			s := rand.New(rand.NewSource(shape))
			w.g = &oracle.Generator{Choose: s.Intn, Literal: r.Intn, StartNs: epoch0, TickNs: oracleTick, Ticks: oracleTicks,
				Shared: shared}
			c := w.g.Condition(depth)
			w.pool = append(w.pool, c)
			w.model.texts[c.Text] = c
		}
	}
	w.put(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: FoldVersion}}})
	return w
}

func (w *oracleRun) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *oracleRun) one(n int) bool { return w.r.Intn(n) == 0 }

// put stores one commit and folds it, in the state and in the model.
func (w *oracleRun) put(source ledger.Source, records ...*pb.Record) {
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		panic(err)
	}
	stamp := w.now
	if w.one(25) && source.Class != ledger.ClassExecutor {
		stamp += int64(w.r.Intn(3)) * oracleTick // a server whose clock is ahead
	}
	message := ledger.Message{Sequence: uint64(len(w.log) + 1), StampNs: stamp, Subject: source.Subject(), Data: data}
	w.log = append(w.log, message)
	entries, err := ledger.Decode("t", message)
	if err != nil {
		panic(err)
	}
	var results []Result
	for _, e := range entries {
		w.model.before(e)
		turned := false
		if _, ok := e.Record.Kind.(*pb.Record_LeaseFired); ok {
			w.checkFired(e)
		} else if commits(e.Record) {
			turned = w.model.turned(w.model.plan(e.Record.Plan))
		}
		result := w.state.Apply(e)
		results = append(results, result)
		switch {
		case result.Verdict == Effective && turned:
			w.failf("plan %s committed after a lease had turned true", e.Record.Plan)
		case result.Verdict == Effective:
			w.model.apply(e)
		case source.Class == ledger.ClassExecutor:
			w.failf("decided what does not hold: %s: %s", ledger.KindOf(e.Record).Name, result.Reason)
		}
		w.model.after(e)
	}
	if err := Follow(w.audit, w.state, message, results, true); err != nil {
		w.failf("%v", err)
	}
	if w.since++; w.since >= w.flush {
		w.save()
	}
}

func (w *oracleRun) save() {
	w.since = 0
	w.state.Flush()
	if w.restart > 0 && w.one(w.restart) {
		w.state = OpenWith(w.kv, "t", nil, w.programs)
	}
}

// checkFired looks at a firing before it is folded.
func (w *oracleRun) checkFired(e ledger.Entry) {
	w.fired++
	k, r := e.Record.GetLeaseFired(), e.Record
	p := w.model.plan(r.Plan)
	var lease *oracleLease
	waits := slices.DeleteFunc(slices.Clone(p.leases), func(l *oracleLease) bool {
		// One that had turned before its action was undone may be on the plan.
		return !p.armed() || l.fired || l.gone || l.action != nil && l.action.settled && !l.may
	})
	for _, l := range waits {
		if l.name == k.Lease && (l.action == nil) == (r.Action == "") && (l.action == nil || l.action.id == r.Action) {
			lease = l
		}
	}
	if lease == nil {
		w.failf("plan %s (%s): lease %s of action %q fired, and is not held", p.id, p.phase, k.Lease, r.Action)
		return
	}
	asked := w.model.ask(p, lease, w.now) == oracle.True
	digest := [32]byte{}
	if c, err := w.programs.Condition(k.Condition); err == nil {
		digest = c.Digest()
	}
	cause := &pb.Address{Sequence: r.Cause.GetSequence(), Index: r.Cause.GetIndex()}
	if cause.Sequence == 0 { // of this commit
		cause.Sequence = e.Address.Sequence
	}
	byClock := lease.condition.Clock && asked && oraclePlace(cause) == oraclePlace(p.opened)
	switch {
	case !asked && !lease.may:
		w.failf("plan %s: lease %s fired at %s and was never true: %s", p.id, k.Lease, w.tick(w.now), k.Condition)
	case !byClock && !lease.true[oraclePlace(cause)]:
		w.failf("plan %s: lease %s fired for %s, where it was not true: %s", p.id, k.Lease, oraclePlace(cause), k.Condition)
	case p.fired: // a committed child: its root unwinds already, and this was only found later
	case !lease.condition.Clock && oraclePlace(cause) != oraclePlace(lease.first):
		w.failf("plan %s: lease %s fired for %s, and turned true at %s: %s", p.id, k.Lease, oraclePlace(cause),
			oraclePlace(lease.first), k.Condition)
	case r.EpochNs != w.now || !bytes.Equal(k.ConditionDigest, digest[:]):
		w.failf("plan %s: lease %s fired with epoch %s and digest %x", p.id, k.Lease, w.tick(r.EpochNs), k.ConditionDigest)
	case w.hold && lease.condition.Clock:
		w.failf("plan %s: lease %s fired while the clock is held: %s", p.id, k.Lease, k.Condition)
	}
}

func (w *oracleRun) tick(ns int64) string {
	return fmt.Sprintf("tick %d+%d", (ns-epoch0)/oracleTick, (ns-epoch0)%oracleTick)
}

// turn decides and lets workers answer until nothing is left to do, and then asks
// the oracle whether anything is.
func (w *oracleRun) turn() {
	var answers []Answer
	for n := 0; w.err == nil; n++ {
		if n > 500 {
			w.failf("decisions never end")
			return
		}
		for _, c := range w.state.Commands() {
			answers = append(answers, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
				Reply: &api.Reply{Status: api.StatusDone}})
		}
		in := Input{EpochNs: w.now, HoldClock: w.hold, Answers: answers, SizeMax: 60 << 10}
		records := w.state.Decide(in)
		if len(w.decided) < 400 {
			w.decided = append(w.decided, decided{len(w.log), in, records})
		}
		if len(records) == 0 {
			break
		}
		answers = nil
		w.put(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...)
	}
	if w.hold {
		w.heldNs = w.now + HeldAgain
	}
	for _, p := range w.model.plans {
		if p.fired {
			continue
		}
		for _, l := range p.live() {
			switch clock := l.condition.Clock; {
			case l.must && !clock, l.must && !w.hold && l.mustNs <= w.now && w.now >= w.heldNs:
				w.failf("plan %s: lease %s turned true at %s and has not fired at %s: %s", p.id, l.name, w.tick(l.mustNs),
					w.tick(w.now), l.condition.Text)
			case clock:
				w.checkAsleep(p, l)
			}
		}
	}
	if ns, ok := w.state.NextWake(); ok && ns <= w.now && !w.hold {
		w.failf("nothing is left at %s, but it wakes at %s", w.tick(w.now), w.tick(ns))
	}
}

// checkAsleep: nobody sleeps through an instant at which time makes a lease true.
func (w *oracleRun) checkAsleep(p *oraclePlan, l *oracleLease) {
	if w.hold || w.now < w.heldNs || w.now < w.model.timeNs {
		return
	}
	if w.model.ask(p, l, w.now) == oracle.True {
		w.failf("plan %s: lease %s is true at %s, and sleeps: %s", p.id, l.name, w.tick(w.now), l.condition.Text)
	}
}

// instant lets the host look, if it would.
func (w *oracleRun) instant(ns int64) {
	w.now = ns
	if w.late && !w.one(6) {
		return
	}
	due, ok := w.state.NextWake()
	if ok && due <= ns || w.state.HasWork() {
		w.turn()
		return
	}
	for _, p := range w.model.plans {
		if p.fired {
			continue
		}
		for _, l := range p.live() {
			if l.condition.Clock {
				w.checkAsleep(p, l)
			}
		}
	}
}

// play runs the whole ledger.
func (w *oracleRun) play() {
	w.openPlan()
	for at := range int64(oracleTicks) {
		if w.one(12) {
			w.hold = !w.hold
		}
		w.instant(epoch0 + at*oracleTick)
		for range w.r.Intn(4) {
			w.event()
			if w.one(3) && !w.late {
				w.instant(w.now)
			}
			if w.err != nil {
				return
			}
		}
		if w.instant(w.now); w.err != nil {
			return
		}
		w.instant(w.now + 1)
	}
	w.hold = false
	w.now = epoch0 + (oracleTicks+3)*oracleTick
	w.turn()
	w.save()
	for _, p := range w.model.plans {
		w.leases += len(p.leases)
	}
}

// commits: a record that ends a plan well, for its agent or after a wait.
func commits(r *pb.Record) bool { return r.GetPlanCommitted() != nil || r.GetHeldSetRetired() != nil }

func (w *oracleRun) event() {
	if len(w.model.plans) < 5 && w.one(6) {
		w.openPlan()
		return
	}
	if w.one(2) {
		w.facts()
		return
	}
	p := w.model.plans[w.r.Intn(len(w.model.plans))]
	switch w.r.Intn(12) {
	case 0, 1, 2:
		if p.phase == "open" && len(p.actions) < 5 {
			w.agent(p, w.pair(p)...)
		}
	case 3, 4, 5:
		if a := w.someAction(p); a != nil && a.facts.Outcome == "unknown" {
			done := completed(a.id)
			done.GetForwardCompleted().Lifted = []byte(`{"n":2}`)
			w.agent(p, []*pb.Record{done, done, failedForward(a.id), inDoubt(a.id)}[w.r.Intn(4)])
		}
	case 6, 7:
		if a := w.someAction(p); a != nil {
			outcome := []pb.VerdictOutcome{pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW,
				pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK}[w.r.Intn(5)/4]
			w.put(ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "compliance"},
				&pb.Record{Plan: p.id, Action: a.id,
					Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: outcome}}})
		}
	case 8:
		w.agent(p, planCommitted())
	case 9:
		w.agent(p, []*pb.Record{planFailed(),
			{Kind: &pb.Record_PlanCancelled{PlanCancelled: &pb.PlanCancelled{}}}}[w.r.Intn(2)])
	case 10:
		p.savepointsSet++
		w.agent(p, &pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: fmt.Sprintf("s%d",
			p.savepointsSet), Number: p.savepointsSet}}})
	default:
		for n := p.savepointsSet; n > 0; n-- {
			if _, ok := p.savepoints[fmt.Sprintf("s%d", n)]; ok && (n == 1 || w.one(2)) {
				p.rewind++
				w.agent(p, &pb.Record{Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{ToSavepoint: fmt.Sprintf("s%d", n), Reason: "another way", Number: p.rewind}}})
				break
			}
		}
	}
}

// someAction is a registered action that is still held, or nil.
func (w *oracleRun) someAction(p *oraclePlan) *oracleAction {
	if !p.armed() || len(p.actions) == 0 {
		return nil
	}
	if a := p.actions[w.r.Intn(len(p.actions))]; !a.entry && !a.settled {
		return a
	}
	return nil
}

func (w *oracleRun) agent(p *oraclePlan, records ...*pb.Record) {
	for _, r := range records {
		r.Plan = p.id
	}
	w.put(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: p.id}, records...)
}

func (w *oracleRun) facts() {
	var records []*pb.Record
	for range 1 + w.r.Intn(2)*w.r.Intn(3) {
		w.g.Literal, w.g.Choose = w.r.Intn, w.r.Intn
		key := w.g.Key()
		r := &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: key}}}
		if !w.one(5) {
			value, text := w.g.Fact()
			w.model.facts[text] = value
			r.Kind = &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: []byte(text)}}
		}
		records = append(records, r)
	}
	w.put(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"}, records...)
}

func (w *oracleRun) triggers() []*pb.Trigger {
	var list []*pb.Trigger
	for i := range w.r.Intn(4) {
		list = append(list, when(fmt.Sprintf("t%d", i), w.pool[w.r.Intn(len(w.pool))].Text))
	}
	return list
}

func (w *oracleRun) openPlan() {
	r := opened(0, w.triggers()...)
	k := r.GetPlanOpened()
	accepts := w.one(2)
	if w.one(3) {
		k.DeadlineNs = epoch0 + int64(1+w.r.Intn(oracleTicks))*oracleTick
	}
	if w.one(2) {
		k.Labels = []*pb.Label{{Key: "l", Value: []string{"a", "b"}[w.r.Intn(2)]}}
	}
	p := &oraclePlan{id: fmt.Sprintf("p%d", len(w.model.plans))}
	if n := len(w.model.plans); n > 0 && w.one(2) {
		k.ParentPlan = w.model.plans[w.r.Intn(n)].id
	}
	if accepts && k.ParentPlan == "" {
		accepting(r)
	}
	records := []*pb.Record{r}
	if w.one(2) {
		records = append(records, w.pair(p)...)
	}
	w.agent(p, records...)
}

// pair registers one action more; an id is not used twice.
func (w *oracleRun) pair(p *oraclePlan) []*pb.Record {
	return pair(fmt.Sprintf("a%d", len(p.actions)), func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		f.Lifted = []byte(`{"n":3,"k":"b"}`)
		c.Triggers = w.triggers()
		if w.one(4) {
			staged()(f, c)
		}
	})
}

func TestTheEngineAgreesWithTheOracle(t *testing.T) {
	t.Parallel()
	cases := cmp.Or(*oracleCases, testenv.Cases(60, 800))
	programs := triggers.NewCache(64)
	leases, fired, records := 0, 0, 0
	for n := range cases {
		seed := *oracleSeed + int64(n)
		w := newOracleRun(seed, programs)
		if w.play(); w.err != nil {
			t.Fatalf("seed %d: %v", seed, w.err)
		}
		if err := CheckRows(t, w.kv); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		leases, fired, records = leases+w.leases, fired+w.fired, records+int(w.state.Meta().Records)
	}
	t.Logf("%d ledgers of %d records: %d leases, %d firings", cases, records, leases, fired)
}

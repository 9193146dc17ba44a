package executor_test

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers/oracle"
)

// oracleModel is what the records mean for leases, said again: it follows the
// effective records of a ledger, asks every held condition after each of them, and
// knows no index, node or memory.
type oracleModel struct {
	timeNs int64
	begun  bool // the first term
	events []oracle.Event
	plans  []*oraclePlan
	facts  map[string]any // what stands in the JSON of a fact
	texts  map[string]oracle.Condition
}

type oraclePlan struct {
	id, agent             string
	parent                *oraclePlan
	label                 string
	phase                 string // open, committing, committed, unwinding or ended
	accepts               bool   // what is in doubt when it is committed
	signal                string // failed, cancelled or empty
	to                    string // the savepoint that its signal goes back to
	rewinding             bool
	target                int
	retired, fired        bool
	openedNs, deadlineNs  int64
	activeNs              int64
	opened                *pb.Address
	actions               []*oracleAction // also the entries of child plans
	leases                []*oracleLease  // of the plan and of its actions
	savepoints            map[string]int
	savepointsSet, rewind uint32
}

type oracleAction struct {
	id      string
	entry   bool
	settled bool
	staged  bool
	facts   oracle.Action
	verdict *oracle.Verdict
}

type oracleLease struct {
	name      string
	action    *oracleAction // nil: of the plan
	condition oracle.Condition
	armedNs   int64
	fired     bool
	gone      bool            // given up for good
	last      oracle.Truth    // after the last record
	may       bool            // it was true after some record while armed
	must      bool            // a record made it true
	mustNs    int64           // when
	first     *pb.Address     // the first record after which it was true
	true      map[string]bool // the records after which it was true
}

func (p *oraclePlan) armed() bool {
	return p.stops() && !p.fired || p.phase == "committed" && p.parent != nil && !p.retired
}

// stops: it is open, or its commit waits.
func (p *oraclePlan) stops() bool { return p.phase == "open" || p.phase == "committing" }

func (p *oraclePlan) status() string {
	if p.stops() && p.signal != "" {
		return p.signal
	}
	return p.phase
}

func (p *oraclePlan) root() *oraclePlan {
	for p.parent != nil {
		p = p.parent
	}
	return p
}

func (p *oraclePlan) action(id string) *oracleAction {
	for _, a := range p.actions {
		if a.id == id {
			return a
		}
	}
	return nil
}

// live lists the leases that wait for their condition.
func (p *oraclePlan) live() []*oracleLease {
	if !p.armed() {
		return nil
	}
	var live []*oracleLease
	for _, l := range p.leases {
		if !l.fired && !l.gone && (l.action == nil || !l.action.settled) {
			live = append(live, l)
		}
	}
	return live
}

func (m *oracleModel) plan(id string) *oraclePlan {
	for _, p := range m.plans {
		if p.id == id {
			return p
		}
	}
	return nil
}

// ask is the truth of a lease at an instant, over all that is folded.
func (m *oracleModel) ask(p *oraclePlan, l *oracleLease, ns int64) oracle.Truth {
	moment := &oracle.Moment{
		Events: m.events, NowNs: ns, ArmedNs: l.armedNs,
		Plan: oracle.Plan{Status: p.status(), Label: p.label, OpenedNs: p.openedNs, ActiveNs: p.activeNs,
			DeadlineNs: p.deadlineNs, Actions: len(p.actions)},
	}
	if l.action != nil {
		moment.Action, moment.Verdict = &l.action.facts, l.action.verdict
	}
	return l.condition.Ask(moment)
}

// The standing leases, in plain words.

func statusIs(status string) oracle.Condition {
	return oracle.Condition{Ask: func(m *oracle.Moment) oracle.Truth { return oracle.TruthOf(m.Plan.Status == status) }}
}

var deadlinePassed = oracle.Condition{Clock: true, Ask: func(m *oracle.Moment) oracle.Truth {
	if m.NowNs >= m.Plan.DeadlineNs {
		return oracle.True
	}
	return oracle.Unknown
}}

var verdictBlocks = oracle.Condition{Ask: func(m *oracle.Moment) oracle.Truth {
	return oracle.TruthOf(m.Verdict.Outcome != "allow" &&
		(m.Action.Outcome == "completed" || m.Action.Outcome == "in_doubt"))
}}

var verdictDrops = oracle.Condition{Ask: func(m *oracle.Moment) oracle.Truth {
	return oracle.TruthOf(m.Verdict.Outcome != "allow")
}}

var verdictUnheard = oracle.Condition{Clock: true, Ask: func(m *oracle.Moment) oracle.Truth {
	blocks := oracle.TruthOf(m.Verdict.Outcome != "allow" && m.Action.Outcome == "unknown")
	if m.NowNs >= m.Verdict.AtNs+30*second {
		return blocks
	}
	return oracle.And(blocks, oracle.Unknown)
}}

func (m *oracleModel) arm(p *oraclePlan, a *oracleAction, name string, c oracle.Condition) {
	p.leases = append(p.leases, &oracleLease{name: name, action: a, condition: c, armedNs: m.timeNs,
		true: map[string]bool{}})
}

// before moves the clock to a record: what time alone has made true since the last
// one was not made true by this one.
func (m *oracleModel) before(e ledger.Entry) {
	now := max(m.timeNs, e.StampNs)
	fact := e.Source.Class == ledger.ClassFact
	if e.Address.Index == 0 && (e.StampNs < m.timeNs || fact && e.StampNs == m.timeNs) && m.begun {
		now++ // it came after what was before it, whatever its stamp says
	}
	m.begun = m.begun || e.Source.Term
	if e.Source.Class == ledger.ClassExecutor {
		now = max(now, e.Record.EpochNs)
	}
	if now == m.timeNs {
		return
	}
	m.timeNs = now
	for _, p := range m.plans {
		for _, l := range p.live() {
			if l.condition.Clock {
				l.last = m.ask(p, l, now)
			}
		}
	}
}

// after asks every lease once a record is folded.
func (m *oracleModel) after(e ledger.Entry) {
	for _, p := range m.plans {
		for _, l := range p.live() {
			was := l.last
			if l.last = m.ask(p, l, m.timeNs); l.last != oracle.True {
				continue
			}
			if l.may = true; l.first == nil {
				l.first = e.Address
			}
			l.true[oraclePlace(e.Address)] = true
			if was != oracle.True && !l.must {
				l.must, l.mustNs = true, m.timeNs
			}
		}
	}
}

func oraclePlace(a *pb.Address) string { return fmt.Sprintf("%d.%d", a.GetSequence(), a.GetIndex()) }

// forget takes a lease back to before it was asked.
func (l *oracleLease) forget() {
	l.last, l.may, l.must, l.first, l.true = oracle.Unknown, false, false, nil, map[string]bool{}
}

// apply follows one effective record. One of an agent shows that its plan is not idle.
func (m *oracleModel) apply(e ledger.Entry) {
	m.follow(e)
	if e.Source.Class != ledger.ClassAgent {
		return
	}
	for p := m.plan(e.Record.Plan); p != nil; p = p.parent {
		p.activeNs = m.timeNs
	}
}

func (m *oracleModel) follow(e ledger.Entry) {
	r := e.Record
	p := m.plan(r.Plan)
	if strings.HasSuffix(r.Plan, "~0") {
		return // it has no leases, and nothing waits for its end
	}
	switch k := r.Kind.(type) {
	case *pb.Record_FactAsserted:
		m.events = append(m.events,
			oracle.Event{Ns: m.timeNs, Key: k.FactAsserted.Key, Value: m.facts[string(k.FactAsserted.Value)]})
	case *pb.Record_FactRetracted:
		m.events = append(m.events, oracle.Event{Ns: m.timeNs, Key: k.FactRetracted.Key, Retracted: true})
	case *pb.Record_PlanOpened:
		m.opened(e, k.PlanOpened)
	case *pb.Record_ForwardRegistered:
		p.actions = append(p.actions, &oracleAction{id: r.Action, staged: k.ForwardRegistered.Deliver != nil,
			facts: oracle.Action{AtNs: m.timeNs, Outcome: "unknown",
				Input: []oracle.Object{{Field: "n", Value: 3}, {Field: "k", Value: "b"}}}})
	case *pb.Record_CompensationRegistered:
		a := p.action(r.Action)
		for _, t := range k.CompensationRegistered.Triggers {
			m.arm(p, a, t.Name, m.texts[t.Condition])
		}
	case *pb.Record_ForwardCompleted:
		a := p.action(r.Action)
		a.facts.Outcome, a.facts.Completed, a.facts.Output = "completed", true, []oracle.Object{{Field: "n", Value: 2}}
	case *pb.Record_ForwardFailed:
		p.action(r.Action).facts.Outcome = "failed"
	case *pb.Record_ForwardInDoubt:
		p.action(r.Action).facts.Outcome = "in_doubt"
	case *pb.Record_VerdictGiven:
		a := p.action(r.Action)
		if a.verdict == nil {
			blocks := verdictBlocks
			if a.staged {
				blocks = verdictDrops
			}
			m.arm(p, a, LeaseVerdict, blocks)
			m.arm(p, a, LeaseUnheard, verdictUnheard)
		}
		a.verdict = &oracle.Verdict{Outcome: VerdictName(k.VerdictGiven.Outcome), AtNs: m.timeNs}
	case *pb.Record_SavepointSet:
		p.savepoints[k.SavepointSet.Name] = len(p.actions)
	case *pb.Record_PlanFailed:
		p.ends("failed", "")
	case *pb.Record_PlanCancelled:
		p.ends("cancelled", "")
	case *pb.Record_UnwindRequested:
		p.ends("cancelled", k.UnwindRequested.ToSavepoint)
	case *pb.Record_PlanCommitted:
		m.commit(p)
	case *pb.Record_HeldSetRetired:
		if p.phase == "committing" {
			m.committed(p)
		}
	case *pb.Record_LeaseFired:
		m.fired(e, p, k.LeaseFired)
	case *pb.Record_UnwindStarted:
		p.rewinding, p.target = k.UnwindStarted.ParentPlan == "" && p.to != "", 0
		if p.rewinding {
			p.target = p.savepoints[p.to]
		}
		p.phase = "unwinding"
	case *pb.Record_PlanRewound:
		m.rewound(p)
	case *pb.Record_PlanEnded:
		p.phase = "ended"
	}
}

func (m *oracleModel) opened(e ledger.Entry, k *pb.PlanOpened) {
	p := &oraclePlan{id: e.Record.Plan, agent: e.Source.Name, phase: "open", openedNs: m.timeNs, opened: e.Address,
		deadlineNs: k.DeadlineNs, accepts: k.DoubtAtCommit == pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT,
		savepoints: map[string]int{}}
	for _, l := range k.Labels {
		p.label = l.Value
	}
	m.arm(p, nil, LeaseFailed, statusIs("failed"))
	m.arm(p, nil, LeaseCancelled, statusIs("cancelled"))
	if k.DeadlineNs > 0 {
		m.arm(p, nil, LeaseDeadline, deadlinePassed)
	}
	for _, t := range k.Triggers {
		m.arm(p, nil, t.Name, m.texts[t.Condition])
	}
	m.plans = append(m.plans, p)
	if k.ParentPlan == "" {
		return
	}
	parent := m.plan(k.ParentPlan)
	if parent.phase != "open" || parent.fired {
		p.signal = "failed"
		return
	}
	p.parent = parent
	parent.actions = append(parent.actions, &oracleAction{id: "entry of " + p.id, entry: true})
}

// ends takes the agent's word for the end of a plan, or of its part.
func (p *oraclePlan) ends(signal, to string) bool {
	partly := p.to != "" && (p.stops() || p.rewinding)
	if !(partly && to == "") && (!p.stops() || p.signal != "") {
		return false
	}
	p.signal, p.to = signal, to
	return true
}

// commit makes a plan committed, or lets its commit wait: then its deadline is over.
func (m *oracleModel) commit(p *oraclePlan) {
	if p.parent != nil || p.accepts || !m.doubts(p) {
		m.committed(p)
		return
	}
	p.phase = "committing"
	for _, l := range p.leases {
		if l.name == LeaseDeadline {
			l.gone, l.must = true, false
		}
	}
}

// doubts: something of a tree is not known to have happened or not.
func (m *oracleModel) doubts(root *oraclePlan) bool {
	return slices.ContainsFunc(m.plans, func(p *oraclePlan) bool {
		held := p == root || p.root() == root && p.phase == "committed" && !p.retired
		return held && slices.ContainsFunc(p.actions, func(a *oracleAction) bool {
			return !a.entry && !a.settled && !a.staged && (a.facts.Outcome == "unknown" || a.facts.Outcome == "in_doubt")
		})
	})
}

func (m *oracleModel) committed(p *oraclePlan) {
	p.phase = "committed"
	noted := slices.ContainsFunc(p.leases, func(l *oracleLease) bool { return l.action == nil && l.may })
	for _, l := range p.leases {
		if noted { // a plan notes one lease that turned, and this one went with the commit
			l.must = false
		}
		l.gone = l.gone || l.action == nil || p.parent == nil
	}
	if p.parent != nil {
		return
	}
	for _, c := range m.plans {
		if c.root() == p {
			c.retired = true
		}
	}
}

func (m *oracleModel) fired(e ledger.Entry, p *oraclePlan, k *pb.LeaseFired) {
	for _, l := range p.leases {
		if l.name == k.Lease && (l.action == nil) == (e.Record.Action == "") &&
			(l.action == nil || l.action.id == e.Record.Action) {
			l.fired = true
		}
	}
	p.fired = true
	if p.phase == "committed" {
		p.root().ends("failed", "")
	}
}

func (m *oracleModel) rewound(p *oraclePlan) {
	if p.to != "" {
		p.signal = ""
	}
	p.phase, p.fired, p.rewinding, p.to = "open", false, false, ""
	for n, a := range p.actions {
		a.settled = a.settled || n >= p.target
	}
	for name, n := range p.savepoints {
		if n > p.target {
			delete(p.savepoints, name)
		}
	}
	for _, l := range p.leases {
		if l.fired || !l.may {
			l.forget()
		}
		l.fired, l.must = false, l.must && !l.condition.Clock
	}
}

// turned reports a plan, or a part of it, that a lease must end whatever the clock
// says.
func (m *oracleModel) turned(p *oraclePlan) bool {
	return slices.ContainsFunc(p.live(), func(l *oracleLease) bool { return l.must && !l.condition.Clock })
}

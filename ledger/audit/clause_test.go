package audit

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// scene is what the records so far say, and the record that comes next: a plan p of actions
// a and b, of which b came after a and has been undone, and a record about a.
type scene struct {
	l      *Ledger
	p      *plan
	a, b   *action
	record *pb.Record
	source ledger.Source
	stamp  int64
	err    error
	pair   *pb.Record
}

func newScene() *scene {
	forward := &pb.ForwardRegistered{Class: pb.Class_CLASS_COMPENSABLE}
	undo := &pb.CompensationRegistered{Capability: "undo"}
	act := func(n uint32, id string) *action {
		return &action{
			n: n, id: id, registered: &pb.Address{Sequence: uint64(n)}, forward: forward, compensation: undo,
			outcome: completed, output: []byte("1"), undo: owed,
		}
	}
	s := &scene{
		l: New("t"), a: act(1, "a"), b: act(2, "b"), source: ledger.Source{Tenant: "t", Class: ledger.ClassExecutor},
		record: &pb.Record{Plan: "p", Action: "a", Term: 1, About: &pb.Address{Sequence: 1}},
	}
	s.b.before, s.b.undo = []uint32{1}, compensated
	s.p = &plan{
		id: "p", agent: "ann", phase: ledger.StateUnwinding, declared: &pb.PlanOpened{}, actions: []*action{s.a, s.b},
		proposals: map[string]*proposal{},
	}
	s.l.book.term, s.l.book.holder, s.l.book.records = 1, "h", 9
	s.l.book.found(s.p)
	return s
}

func (s *scene) claim() *claim {
	e := ledger.Entry{
		Address: &pb.Address{Sequence: 9}, Record: s.record, Source: s.source, StampNs: s.stamp, Err: s.err,
		Pair: s.pair,
	}
	c := s.l.book.claim(e)
	c.of, c.commit = s.l, []ledger.Entry{e}
	return c
}

// asks lists the clauses that are asked of the record.
func (s *scene) asks() (list []clause) {
	c := s.claim()
	list = slices.Concat(formClauses, always, counted, writerClauses[s.source.Class])
	if of := chapterOf(c); of != nil {
		list = slices.Concat(list, of.counts, of.content)
	}
	return append(list, atEnd...)
}

// judge asks one clause; asked is false where it is none of the record's.
func (s *scene) judge(id string) (j judgement, asked bool) {
	for _, k := range s.asks() {
		if k.id == id {
			c := s.claim()
			if c.l != nil {
				c.turned()
			}
			return k.judge(c), true
		}
	}
	return judgement{}, false
}

// says makes the record one of another kind, class and plan state.
func (s *scene) says(class ledger.Class, phase string, undo string, kind *pb.Record) {
	s.source.Class = class
	s.p.phase, s.a.undo = phase, undo
	s.record.Kind = kind.Kind
	if class == ledger.ClassAgent {
		s.source.Name = "ann"
	}
}

// The records of the table, each right where it comes.
func opens(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held,
		&pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}})
	s.record.Plan = "q"
}

func registers(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_ForwardRegistered{
		ForwardRegistered: &pb.ForwardRegistered{Class: pb.Class_CLASS_COMPENSABLE}}})
	s.record.Action = "c"
	s.pair = &pb.Record{Kind: &pb.Record_CompensationRegistered{
		CompensationRegistered: &pb.CompensationRegistered{Capability: "undo"}}}
}

func pairs(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_CompensationRegistered{
		CompensationRegistered: &pb.CompensationRegistered{Capability: "undo"}}})
	s.a.compensation, s.a.registered = nil, &pb.Address{Sequence: 9}
}

func outcomes(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_ForwardFailed{
		ForwardFailed: &pb.ForwardFailed{}}})
	s.a.outcome = inDoubt
}

func saves(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_SavepointSet{
		SavepointSet: &pb.SavepointSet{Number: 1, Name: "s"}}})
}

func rewinds(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_UnwindRequested{
		UnwindRequested: &pb.UnwindRequested{Number: 1, ToSavepoint: "s"}}})
	s.p.savepoints = []savepoint{{"s", 1}}
}

func resumes(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held,
		&pb.Record{Kind: &pb.Record_PlanResumed{PlanResumed: &pb.PlanResumed{}}})
	s.record.Writer = "w2"
}

func adopts(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_PlanAdopted{
		PlanAdopted: &pb.PlanAdopted{Agent: "bob", Follows: 2}}})
	s.p.opened = &pb.Address{Sequence: 2}
}

func commits(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_PlanCommitted{
		PlanCommitted: &pb.PlanCommitted{}}})
	s.b.undo = held
}

func observes(s *scene) {
	s.says(ledger.ClassFact, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_FactAsserted{
		FactAsserted: &pb.FactAsserted{Key: "k"}}})
}

const knownID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// keepID is another record's id.
func (s *scene) keepID(text string) {
	id, err := ledger.ParseRecordID(text)
	if err != nil {
		panic(err)
	}
	s.l.book.now = id.Ms() * 1e6
	s.l.book.rules = ledger.CopiesSince
	c := s.claim()
	c.b.ids.Keep(c.Source.Writer(), id, [16]byte{1}, 1)
}

func publishes(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_ContractPublished{
		ContractPublished: &pb.ContractPublished{Capability: "c", Digest: []byte("d")}}})
}

func evictionAsked(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_EvictRequested{
		EvictRequested: &pb.EvictRequested{Keys: []string{"k"}}}})
	s.fact(&fact{source: &pb.Address{Sequence: 3}})
}

func (s *scene) fact(f *fact) { s.l.book.facts.put("k", f, 0) }

func undoAsked(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateCommitted, held, &pb.Record{Kind: &pb.Record_CompensationRequested{
		CompensationRequested: &pb.CompensationRequested{ToSavepoint: "s"}}})
	s.b.undo = held
	s.p.savepoints = []savepoint{{"s", 0}}
}

func cancels(s *scene) {
	undoAsked(s)
	s.p.phase = ledger.StateOpen
}

// judgesCommitted is a supervisor who blocks what is committed.
func stopsDeliveries(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateUnwinding, held, &pb.Record{Kind: &pb.Record_CancelRequested{
		CancelRequested: &pb.CancelRequested{}}})
}

func judgesCommitted(s *scene) {
	s.says(ledger.ClassVerdict, ledger.StateCommitted, held, &pb.Record{Kind: &pb.Record_VerdictGiven{
		VerdictGiven: &pb.VerdictGiven{Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK}}})
	s.b.undo, s.l.book.rules = held, ledger.ReachesSince
}

// allows is a supervisor who allows what waits for that.
func allows(s *scene) {
	s.says(ledger.ClassVerdict, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_VerdictGiven{
		VerdictGiven: &pb.VerdictGiven{Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW}}})
	s.a.forward.Review, s.a.outcome, s.l.book.rules = true, unheardOf, ledger.StillHeldSince
}

// partAsked is an operator who wants action a undone, and what came after it.
func partAsked(phase string) func(*scene) {
	return func(s *scene) {
		undoAsked(s)
		s.p.phase = phase
		s.record.GetCompensationRequested().ToSavepoint = ""
		s.record.GetCompensationRequested().FromAction = "a"
	}
}

func resolves(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateQuarantined, quarantined, &pb.Record{Kind: &pb.Record_Resolved{
		Resolved: &pb.Resolved{Outcome: pb.Resolution_RESOLUTION_DONE}}})
	s.a.settled = &pb.Address{Sequence: 7}
	s.record.Cause = s.a.settled
}

func retries(s *scene) {
	resolves(s)
	s.record.Kind = &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{}}
}

func erases(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateCompensated, compensated, &pb.Record{Kind: &pb.Record_PlanErased{
		PlanErased: &pb.PlanErased{}}})
}

func answersCut(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_CascadeAnswered{
		CascadeAnswered: &pb.CascadeAnswered{Lease: "low"}}})
	s.p.cuts = []*cut{{number: 1, lease: "low", at: &pb.Address{Sequence: 4}}}
}

func reportsEffect(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_EffectReported{
		EffectReported: &pb.EffectReported{ExternalRef: "x"}}})
	s.a.outcome = inDoubt
}

func movesDeadline(s *scene) {
	s.says(ledger.ClassOperator, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_DeadlineMoved{
		DeadlineMoved: &pb.DeadlineMoved{DeadlineNs: 50}}})
	s.p.deadlineNs, s.p.deadlineAt, s.l.book.now = 20, &pb.Address{Sequence: 3}, 10
}

func agentMovesDeadline(s *scene) {
	s.says(ledger.ClassAgent, ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_DeadlineMoved{
		DeadlineMoved: &pb.DeadlineMoved{DeadlineNs: 50, Follows: 3}}})
	s.p.deadlineNs, s.p.deadlineAt, s.l.book.now = 20, &pb.Address{Sequence: 3}, 10
}

func reports(s *scene) {
	s.says(ledger.ClassWorker, ledger.StateUnwinding, dispatched, &pb.Record{Kind: &pb.Record_CompensationReported{
		CompensationReported: &pb.CompensationReported{Attempt: 1, Answer: pb.Answer_ANSWER_DONE,
			Key: ledger.Key("t", "p", "a", ledger.PurposeUndo)}}})
	s.a.attempt, s.a.dispatched = 1, &pb.Address{Sequence: 8}
}

// reportsAhead: it was sent, and the success before it is not recorded.
func reportsAhead(s *scene) {
	reports(s)
	s.a.undo, s.a.attempt, s.a.dispatched = owed, 0, nil
	s.a.ahead = &ahead{at: &pb.Address{Sequence: 8}, of: s.b.n}
	s.p.aheads = 1
}

func (s *scene) decides(phase, undo string, kind *pb.Record) {
	s.says(ledger.ClassExecutor, phase, undo, kind)
}

func begins(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{}}})
	s.record.Term = 2
}

func repairs(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_LedgerRepaired{
		LedgerRepaired: &pb.LedgerRepaired{Through: 8, Size: 8}}})
}

func answersRefused(s *scene) {
	s.decides(ledger.StateOpen, held,
		&pb.Record{Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{Sequence: 2}}})
	s.l.log.leaves.Put(2, 0, [ledger.LeafSize]byte{}, true)
}

func signs(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_CheckpointSigned{
		CheckpointSigned: &pb.CheckpointSigned{Size: 8, Root: make([]byte, ledger.LeafSize)}}})
}

func rotates(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_KeyRotated{KeyRotated: &pb.KeyRotated{Size: 8,
		OldKey: "k"}}})
}

func governs(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_TenantChanged{
		TenantChanged: &pb.TenantChanged{Revision: 2, By: "ana"}}})
	s.record.Plan, s.record.Action, s.record.About = "", "", nil
}

func fires(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_LeaseFired{
		LeaseFired: &pb.LeaseFired{Lease: "low", Condition: "true", Depth: 1}}})
	s.record.Action = ""
	s.p.leases = []*lease{{name: "low", text: "true"}}
	s.p.turned = &turn{lease: "low", at: &pb.Address{Sequence: 3}}
	s.record.Cause = &pb.Address{Sequence: 3}
}

// firesSince is a condition of a committed plan that asks to be held after the commit.
func firesSince(s *scene) {
	fires(s)
	s.p.phase, s.p.retired = ledger.StateCommitted, true
	s.p.leases[0].after, s.p.leases[0].untilNs, s.p.holding = true, 9, 1
}

func firesExtra(s *scene) {
	s.decides(ledger.StateUnwinding, dispatched, &pb.Record{Kind: &pb.Record_LeaseFired{
		LeaseFired: &pb.LeaseFired{Lease: leaseDuplicate, Condition: standing[leaseDuplicate]}}})
	s.a.leases = []*lease{{name: leaseDuplicate}}
	s.a.duplicates = []string{"x"}
}

func cuts(s *scene) {
	fires(s)
	s.record.Kind = &pb.Record_CascadeCut{CascadeCut: &pb.CascadeCut{Lease: "low", Depth: 2}}
	s.p.turned.firing = &firing{depth: 2}
}

func evicts(s *scene) {
	at := &pb.Address{Sequence: 3}
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_FactEvicted{FactEvicted: &pb.FactEvicted{Key: "k",
		Fact: at}}})
	s.fact(&fact{source: at})
}

func reingests(s *scene) {
	at, gone := &pb.Address{Sequence: 3}, &pb.Address{Sequence: 4}
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_FactReingested{
		FactReingested: &pb.FactReingested{Key: "k", Fact: at, Evicted: gone, Value: []byte("1")}}})
	s.record.Cause = gone
	s.fact(&fact{source: at, evicted: gone, value: []byte("1")})
}

func unwinds(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{}}})
	s.record.Action, s.p.fired = "", &pb.Address{Sequence: 5}
	s.record.Cause = s.p.fired
}

// unwindsAsPart: p is the child at an entry of plan up.
func unwindsAsPart(s *scene) {
	unwinds(s)
	s.record.GetUnwindStarted().ParentPlan, s.p.declared.ParentPlan = "up", "up"
	entry := &action{n: 1, id: "plan:p", child: s.p, undo: owed}
	s.p.parent = &plan{
		id: "up", phase: ledger.StateUnwinding, declared: &pb.PlanOpened{}, actions: []*action{entry}, fired: s.p.fired,
	}
	s.p.entry, s.p.fired, s.p.phase = 1, nil, ledger.StateCommitted
}

func rewound(s *scene) {
	s.decides(ledger.StateUnwinding, held, &pb.Record{Kind: &pb.Record_PlanRewound{PlanRewound: &pb.PlanRewound{}}})
	s.record.Action, s.p.rewinding = "", true
}

func ended(s *scene) {
	s.decides(ledger.StateUnwinding, compensated, &pb.Record{Kind: &pb.Record_PlanEnded{
		PlanEnded: &pb.PlanEnded{End: pb.PlanEnd_PLAN_END_COMPENSATED, Compensated: 2}}})
	s.record.Action, s.a.successes, s.b.successes = "", 1, 1
}

func retires(s *scene) {
	s.decides(ledger.StateCommitted, held, &pb.Record{Kind: &pb.Record_HeldSetRetired{
		HeldSetRetired: &pb.HeldSetRetired{Count: 2}}})
	s.record.Action, s.p.gaveUp, s.b.undo = "", 2, held
}

// retiresLater is the retirement of a commit that has waited.
func retiresLater(s *scene) {
	retires(s)
	s.p.phase, s.p.committed = ledger.StateCommitting, &pb.Address{Sequence: 4}
}

func destroys(s *scene) {
	s.decides(ledger.StateCompensated, compensated,
		&pb.Record{Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{}}})
	s.p.erased = &pb.Address{Sequence: 6}
	s.record.Cause = s.p.erased
}

func pages(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Kind: "x"}}})
	s.record.Cause = &pb.Address{Sequence: 6}
	s.l.book.pages[page{"p", 1, "x"}] = s.record.Cause
}

func warns(s *scene) {
	s.decides(ledger.StateOpen, held, &pb.Record{Kind: &pb.Record_UndoWindowClosing{
		UndoWindowClosing: &pb.UndoWindowClosing{ClosesNs: 7}}})
	s.a.closesNs = 7
}

func dispatches(s *scene) {
	s.decides(ledger.StateUnwinding, owed, &pb.Record{Kind: &pb.Record_CompensationDispatched{
		CompensationDispatched: &pb.CompensationDispatched{Attempt: 1, Capability: "undo", TimeoutNs: 30e9,
			HasForwardOutput: true, Key: ledger.Key("t", "p", "a", ledger.PurposeUndo)}}})
}

func dirties(s *scene, dirty bool) {
	s.record.GetCompensationDispatched().DirtyFailure, s.l.book.rules = dirty, ledger.DirtySince
}

// dispatchesAhead: the undo of a goes behind that of b, which is out.
func dispatchesAhead(s *scene) {
	dispatches(s)
	s.b.undo, s.b.attempt, s.b.dispatched = dispatched, 1, &pb.Address{Sequence: 8}
	s.record.GetCompensationDispatched().Behind = &pb.Address{Sequence: 8}
	s.l.log.leaves.Put(8, 0, [ledger.LeafSize]byte{}, false)
	s.record.GetCompensationDispatched().Behind.Leaf = make([]byte, ledger.LeafSize)
}

func succeeds(s *scene) {
	s.decides(ledger.StateUnwinding, dispatched, &pb.Record{Kind: &pb.Record_CompensationSucceeded{
		CompensationSucceeded: &pb.CompensationSucceeded{Attempt: 1}}})
	s.a.attempt, s.a.dispatched = 1, &pb.Address{Sequence: 8}
}

func succeedsLate(s *scene) {
	succeeds(s)
	s.a.undo = quarantined
}

func fails(s *scene) {
	succeeds(s)
	s.record.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: 1}}
}

func skips(s *scene) {
	s.decides(ledger.StateUnwinding, owed, &pb.Record{Kind: &pb.Record_CompensationSkipped{
		CompensationSkipped: &pb.CompensationSkipped{}}})
	s.a.presence = pb.Presence_PRESENCE_ABSENT
}

func quarantines(s *scene) {
	s.decides(ledger.StateUnwinding, exhausted, &pb.Record{Kind: &pb.Record_ActionQuarantined{
		ActionQuarantined: &pb.ActionQuarantined{}}})
}

func makes(s *scene) {
	succeeds(s)
	s.a.compensation = &pb.CompensationRegistered{Capability: ledger.CapabilityAssert, Actuator: ledger.ActuatorMemory}
	s.a.arguments = []byte(`{"key":"k","value":1}`)
	s.record.Kind = &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("1")}}
	s.record.Cause = s.a.dispatched
}

// comparing gives action a a contract that asks whether something was changed, and an answer that
// is so old, in ns.
func comparing(change pb.Change, ns int64) func(*scene) {
	return func(s *scene) {
		if s.a.compensation == nil || s.a.compensation.Probe == nil {
			outcome := s.a.outcome
			s.probed()
			s.a.outcome = outcome
		}
		s.a.compensation.Unchanged = "probe.same"
		s.a.change, s.a.changeNs = change, s.l.book.now+ns
	}
}

// probed gives action a a contract with a probe.
func (s *scene) probed() {
	s.a.outcome = inDoubt
	s.a.compensation = &pb.CompensationRegistered{Capability: "undo",
		Probe: &pb.Probe{Call: &pb.Call{Capability: "look"}}}
}

func asks(s *scene) {
	s.decides(ledger.StateUnwinding, owed, &pb.Record{Kind: &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{
		Attempt: 1, Question: pb.Question_QUESTION_EFFECT, Capability: "look",
		Key: ledger.Key("t", "p", "a", ledger.PurposeUndo)}}})
	s.probed()
}

// asksForChange asks whether something was changed before the blind undo of action a.
func asksForChange(s *scene) {
	asks(s)
	comparing(pb.Change_CHANGE_UNSPECIFIED, 0)(s)
	s.a.compensation.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE
	s.record.GetProbeAsked().Question = pb.Question_QUESTION_UNCHANGED
	s.a.outcome = completed
}

func finds(s *scene) {
	s.decides(ledger.StateUnwinding, dispatched, &pb.Record{Kind: &pb.Record_ProbeAnswered{
		ProbeAnswered: &pb.ProbeAnswered{Attempt: 1, Question: pb.Question_QUESTION_EFFECT}}})
	s.probed()
	s.a.asking, s.a.asked = pb.Question_QUESTION_EFFECT, 1
}

func asksForCommit(s *scene) {
	asks(s)
	s.p.phase, s.a.undo, s.a.doubt = ledger.StateCommitting, held, doubtDue
}

func findsForCommit(s *scene) {
	finds(s)
	s.p.phase, s.a.undo, s.a.doubt = ledger.StateCommitting, held, doubtAsked
}

func waits(s *scene) {
	asksForCommit(s)
	s.record.Kind, s.a.doubt = &pb.Record_CommitWaits{CommitWaits: &pb.CommitWaits{}}, doubtSpent
}

func asksOpenly(s *scene) {
	asks(s)
	s.p.phase, s.a.undo, s.a.outcome, s.a.askNs, s.l.book.rules = ledger.StateOpen, held, inDoubt, -1, ledger.AskedSince
}

func findsOpenly(s *scene) {
	finds(s)
	s.p.phase, s.a.undo = ledger.StateOpen, held
}

// nothingLeft is a plan that has ended.
// deliversBoth has the plan deliver another one, in which a comes after b.
func deliversBoth(s *scene) (origin *plan) {
	f := &pb.ForwardRegistered{Deliver: &pb.CompensationRegistered{Capability: "undo"}}
	o := &plan{id: "o", actions: []*action{{n: 1, id: "b", forward: f},
		{n: 2, id: "a", before: []uint32{1}, forward: f}}}
	s.l.book.found(o)
	s.p.delivers, s.p.origin, s.a.forward, s.b.undo = true, "o", f, owed
	return o
}

// commitsStaged has the plan committed with a staged act, of which its delivery has made something.
func commitsStaged(s *scene, undo string) {
	s.p.phase, s.a.undo = ledger.StateCommitted, held
	s.a.forward = &pb.ForwardRegistered{Deliver: &pb.CompensationRegistered{}}
	if undo != "" {
		s.p.deliveredAs = "p~0"
		s.l.book.found(&plan{id: "p~0", delivers: true, phase: ledger.StateUnwinding,
			actions: []*action{{n: 1, id: "a", undo: undo}}})
	}
}

func nothingLeft(s *scene) {
	ended(s)
	s.p.phase = ledger.StateCompensated
}

func malformedAs(field string) func(*scene) {
	return func(s *scene) { s.err = &ledger.Refused{Field: field} }
}

// claims lets an act of the plan wait for its owner.
func claims(s *scene) { s.p.orphans = []orphan{{name: "x", action: "x"}} }

// lands lets a forward land for some time more.
func lands(s *scene) { s.a.outcome, s.a.outcomeNs, s.record.EpochNs = inDoubt, 5, 6 }

func turns(s *scene) { s.p.turned = &turn{lease: "low", at: &pb.Address{Sequence: 3}} }

// child gives the plan a child in a phase.
func child(phase string) func(*scene) {
	return func(s *scene) {
		c := &plan{id: "c", phase: phase, parent: s.p, declared: &pb.PlanOpened{}}
		turns(&scene{p: c})
		claims(&scene{p: c})
		s.p.actions = append(s.p.actions, &action{n: 3, id: "plan:c", child: c, undo: owed})
	}
}

// TestEveryClauseCanFail: a record that is right keeps a clause, and one in which one thing
// is wrong breaks it. Each clause is in the table.
func TestEveryClauseCanFail(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range clauseCases {
		tried[c.id] = true
		s := newScene()
		c.record(s)
		if j, asked := s.judge(c.id); !asked || j.is == broken {
			t.Errorf("%s: asked %v of a record that is right: %q", c.id, asked, j.right)
		}
		s = newScene()
		c.record(s)
		c.fool(s)
		if j, asked := s.judge(c.id); !asked || j.is != broken && j.is != copied {
			t.Errorf("%s: asked %v of a record that is wrong, and finds nothing", c.id, asked)
		}
	}
	for _, k := range Clauses() {
		switch k.ID {
		case "I1.next", "I2.hand": // a message, and a signature: see the forgeries
		default:
			if !tried[k.ID] {
				t.Errorf("%s is never tried", k.ID)
			}
		}
	}
}

// TestACommitLeavesNothingHeld is I24 of a root: by what is collected of its commit.
func TestACommitLeavesNothingHeld(t *testing.T) {
	s := newScene()
	commits(s)
	if s.l.book.take(s.claim()); s.p.phase != ledger.StateCommitted || s.p.held() != 0 || s.p.gaveUp != 2 {
		t.Errorf("%s, %d held, %d given up", s.p.phase, s.p.held(), s.p.gaveUp)
	}
}

// TestWhatCountsBreaksNoClause: of what a holder decides rightly, nothing is found; where
// the book was fooled in one way, that rule is named, and no other one.
func TestWhatCountsBreaksNoClause(t *testing.T) {
	for _, c := range clauseCases {
		s := newScene()
		if c.record(s); s.source.Class != ledger.ClassExecutor || s.p.phase == ledger.StateCompensated {
			continue
		}
		claim := s.claim()
		if claim.l != nil {
			claim.turned()
		}
		of := chapterOf(claim)
		if found := slices.Concat(judged(counted, claim), judged(of.content, claim)); len(found) > 0 {
			t.Errorf("%s: a record that is right breaks %+v", c.id, found)
		}
	}
}

var errBroken = errors.New("broken")

// after adds an action that came after another one, and is not undone.
func after(id string, n uint32) func(*scene) {
	return func(s *scene) {
		s.p.actions = append(s.p.actions, &action{n: uint32(len(s.p.actions) + 1), id: id, before: []uint32{n}, undo: owed})
	}
}

// contracted changes the contract of action a.
func contracted(change func(*pb.CompensationRegistered)) func(*scene) {
	return func(s *scene) {
		s.a.compensation = proto.CloneOf(s.a.compensation)
		change(s.a.compensation)
	}
}

// TestEveryKindHasAChapter: a record of a kind that no chapter judges would not be judged at all.
func TestEveryKindHasAChapter(t *testing.T) {
	fields := (&pb.Record{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); chapters[name] == nil {
			t.Errorf("no chapter is about %s", name)
		}
	}
}

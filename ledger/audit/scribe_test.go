package audit_test

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// scribe writes a ledger: as agents, people and sources do, as an honest holder does
// (the real executor decides), and as one that lies.
type scribe struct {
	t     testing.TB
	log   []ledger.Message
	now   int64
	state *executor.State
	lazy  bool  // workers do not answer
	fails bool  // workers fail for good
	finds bool  // staged acts have a probe
	kept  int64 // for how long the provider of staged acts remembers a key, in ns
	term  uint64
	rules uint32 // version of its holder's fold
	// secret makes the tokens of its holder's commands; nil: they have none.
	secret []byte
}

const second = int64(time.Second)

var (
	start    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	agentA   = ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: ledger.ManyPlans}
	sensor   = ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"}
	ops      = ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"}
	workerW  = ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"}
	holder   = ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	termsOf  = ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
	foreignT = ledger.Source{Tenant: "other", Class: ledger.ClassAgent, Name: "a1", Plan: ledger.ManyPlans}
)

func newScribe(t testing.TB) *scribe {
	s := &scribe{t: t, now: start}
	s.state = executor.Open(rows.NewMemoryKV(), "t", s)
	s.begin(1)
	return s
}

// Value implements memory.Archive.
func (s *scribe) Value(at *pb.Address, key string) (json.RawMessage, error) {
	return executor.FactAt("t", s.log[at.Sequence-1], at, key)
}

func (s *scribe) begin(term uint64) {
	s.term = term
	s.write(termsOf, &pb.Record{Term: term, EpochNs: s.now,
		Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h", FoldVersion: s.rules}}})
}

// write stores one commit.
func (s *scribe) write(source ledger.Source, records ...*pb.Record) {
	s.t.Helper()
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		s.t.Fatal(err)
	}
	m := ledger.Message{Sequence: uint64(len(s.log) + 1), StampNs: s.now, Subject: source.Subject(), Data: data}
	s.log = append(s.log, m)
	entries, err := ledger.Decode("t", m)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		s.state.Apply(e)
	}
	s.state.Flush()
}

// agent writes records about plan p.
func (s *scribe) agent(records ...*pb.Record) {
	s.t.Helper()
	for _, r := range records {
		if r.Plan == "" {
			r.Plan = "p"
		}
	}
	s.write(agentA, records...)
}

// child writes records of plan q as its agent, and openChild opens it as a child of plan p.
func (s *scribe) child(records ...*pb.Record) {
	s.t.Helper()
	for _, r := range records {
		r.Plan = "q"
	}
	s.agent(records...)
}

func (s *scribe) openChild() {
	s.t.Helper()
	q := opened(0)
	q.GetPlanOpened().ParentPlan = "p"
	s.child(q)
}

// forge writes records as a holder would, whatever they say.
func (s *scribe) forge(records ...*pb.Record) {
	s.t.Helper()
	for _, r := range records {
		if r.Plan == "" && ledger.KindOf(r).NeedsPlan {
			r.Plan = "p"
		}
		if r.Term == 0 {
			r.Term, r.EpochNs = s.term, s.now
		}
	}
	s.write(holder, records...)
}

// decide lets the real executor decide until nothing is left to do.
func (s *scribe) decide() { s.decideTo("none") }

// decideTo is decide up to a record of this kind.
func (s *scribe) decideTo(kind string) {
	s.t.Helper()
	var answers []executor.Answer
	for range 1000 {
		for _, c := range s.state.Commands() {
			reply := &api.Reply{Status: api.StatusDone}
			if s.fails {
				reply = &api.Reply{Status: api.StatusStop, Code: "no"}
			}
			if !s.lazy {
				answers = append(answers, executor.Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose,
					Attempt: c.Attempt, Reply: reply})
			}
		}
		records := s.state.Decide(executor.Input{EpochNs: s.now, Answers: answers, SizeMax: 60 << 10,
			Reporter: ledger.NewReporter(s.secret)})
		if len(records) == 0 {
			return
		}
		last := slices.IndexFunc(records, func(r *pb.Record) bool { return ledger.KindOf(r).Name == kind })
		if last >= 0 {
			s.write(holder, records[:last+1]...)
			return
		}
		s.write(holder, records...)
	}
	s.t.Fatal("decisions never end")
}

// turns lets the executor take this many decisions, one commit each.
func (s *scribe) turns(n int) {
	for range n {
		s.state.Commands()
		s.write(holder, s.state.Decide(executor.Input{EpochNs: s.now, SizeMax: 60 << 10,
			Reporter: ledger.NewReporter(s.secret)})...)
	}
}

// at is the address of the last record of a kind about an action.
func (s *scribe) at(kind, action string) *pb.Address {
	s.t.Helper()
	for _, m := range slices.Backward(s.log) {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Record != nil && ledger.KindOf(e.Record).Name == kind && e.Record.Action == action {
				return e.Address
			}
		}
	}
	s.t.Fatalf("no %s of action %q", kind, action)
	return nil
}

// audited folds the ledger and returns what is wrong with it.
func (s *scribe) audited() (*audit.Ledger, []audit.Violation) {
	l := audit.New("t")
	var found []audit.Violation
	for _, m := range s.log {
		found = append(found, l.Add(m)...)
	}
	return l, found
}

// lastOf is the address of the last record of a plan of one of these kinds.
func (s *scribe) lastOf(kinds ...string) (last *pb.Address) {
	s.t.Helper()
	for _, m := range s.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Record != nil && slices.Contains(kinds, ledger.KindOf(e.Record).Name) {
				last = e.Address
			}
		}
	}
	return last
}

func (s *scribe) messages() iter.Seq2[ledger.Message, error] {
	return func(yield func(ledger.Message, error) bool) {
		for _, m := range s.log {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func opened(deadlineNs int64, triggers ...*pb.Trigger) *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{DeadlineNs: deadlineNs,
		Triggers: triggers}}}
}

func pair(id string, change ...func(*pb.ForwardRegistered, *pb.CompensationRegistered)) []*pb.Record {
	f := &pb.ForwardRegistered{Capability: "do." + id, Class: pb.Class_CLASS_COMPENSABLE}
	c := &pb.CompensationRegistered{Capability: "undo." + id, Attempts: 2, BackoffNs: second}
	for _, set := range change {
		set(f, c)
	}
	return []*pb.Record{
		{Action: id, Kind: &pb.Record_ForwardRegistered{ForwardRegistered: f}},
		{Action: id, Kind: &pb.Record_CompensationRegistered{CompensationRegistered: c}},
	}
}

// bound gives the undo an argument.
func bound(expression string) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
	return func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Bindings = append(c.Bindings, &pb.Binding{Name: "x", Expression: expression})
	}
}

func completed(id string) *pb.Record {
	return &pb.Record{Action: id, Payload: &pb.Payload{Output: []byte(`{"ref":1}`)},
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}
}

// watched is an action that a fact undoes, by its name.
func watched(id string) []*pb.Record {
	return append(pair(id, func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.Triggers = []*pb.Trigger{{Name: "own", Condition: `facts["` + id + `"] == 1`}}
	}), completed(id))
}

func planFailed() *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "no"}}}
}

func planCommitted() *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}
}

func asserted(key, value string) *pb.Record {
	return &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: []byte(value)}}}
}

// plan opens plan p with completed actions, one after the other.
func (s *scribe) plan(ids ...string) {
	s.t.Helper()
	s.agent(opened(0))
	for _, id := range ids {
		s.agent(append(pair(id), completed(id))...)
	}
}

// about starts a record about an action.
func (s *scribe) about(id string, cause *pb.Address) *pb.Record {
	return &pb.Record{Action: id, About: s.at("forward_registered", id), Cause: cause}
}

func (s *scribe) dispatch(id, key string, attempt uint32) *pb.Record {
	r := s.about(id, s.at("unwind_started", ""))
	r.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: &pb.CompensationDispatched{
		Attempt: attempt, Capability: "undo." + id, Key: key, TimeoutNs: 30 * second, HasForwardOutput: true}}
	return r
}

// doubtful is a pair with a probe, or without, whose forward may land for 30 s.
func doubtful(id string, probed bool) []*pb.Record {
	return pair(id, func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		if probed {
			c.Probe = &pb.Probe{Call: &pb.Call{Capability: "find." + id}}
		}
	})
}

func inDoubt(id string) *pb.Record {
	return &pb.Record{Action: id, Kind: &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{}}}
}

// asked is a question about the effect of an action.
func (s *scribe) asked(id string, n uint32) *pb.Record {
	r := s.about(id, s.lastOf("unwind_started", "plan_committed"))
	r.Kind = &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{
		Attempt: n, Capability: "find." + id, Key: keyOf(id), Question: pb.Question_QUESTION_EFFECT,
		TimeoutNs: 30 * second}}
	return r
}

// absent is the answer that nothing is there.
func (s *scribe) absent(id string, n uint32) *pb.Record {
	r := s.about(id, s.at("probe_asked", id))
	r.Kind = &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{
		Attempt: n, Question: pb.Question_QUESTION_EFFECT, Presence: pb.Presence_PRESENCE_ABSENT}}
	return r
}

func (s *scribe) succeeded(id string, attempt uint32) *pb.Record {
	r := s.about(id, nil)
	r.Kind = &pb.Record_CompensationSucceeded{CompensationSucceeded: &pb.CompensationSucceeded{Attempt: attempt}}
	return r
}

// unserved says that nobody takes an attempt.
func (s *scribe) unserved(id string, attempt uint32, inDoubt bool) *pb.Record {
	r := s.about(id, s.at("compensation_dispatched", id))
	r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
		Attempt: attempt, Code: "unserved", Unserved: true, InDoubt: inDoubt}}
	return r
}

func keyOf(id string) string { return ledger.Key("t", "p", id, ledger.PurposeUndo) }

func fired(lease, condition string, depth uint32, cause *pb.Address) *pb.Record {
	return &pb.Record{Cause: cause, Kind: &pb.Record_LeaseFired{LeaseFired: &pb.LeaseFired{Lease: lease,
		Condition: condition, Depth: depth}}}
}

func ended(end pb.PlanEnd, outstanding ...string) *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanEnded{PlanEnded: &pb.PlanEnded{End: end, Outstanding: outstanding}}}
}

func checkpointOf(size uint64, rootLen int) *pb.Record {
	return &pb.Record{Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{Size: size,
		Root: make([]byte, rootLen)}}}
}

// rotation ends one key and begins another, by the hand of a third; 0: of nobody.
func rotation(t testing.TB, size uint64, ends, begins, by byte) *pb.Record {
	t.Helper()
	key := func(n byte) (signer note.Signer, verifier string) {
		secret, verifier, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{n}, 64)), ledger.Origin("t"))
		if err == nil {
			signer, err = note.NewSigner(secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		return signer, verifier
	}
	k := &pb.KeyRotated{Size: size, Reason: "yearly", Actor: "ops"}
	_, k.OldKey = key(ends)
	_, k.NewKey = key(begins)
	if by != 0 {
		signer, _ := key(by)
		signature, err := signer.Sign([]byte(ledger.RotationText("t", k)))
		if err != nil {
			t.Fatal(err)
		}
		k.Signature = signature
	}
	return &pb.Record{Kind: &pb.Record_KeyRotated{KeyRotated: k}}
}

// claimed is a pair of a process that is not its plan's writer.
func claimed(id string) []*pb.Record {
	records := pair(id)
	for _, r := range records {
		r.Writer = "another"
	}
	return records
}

// readsRef binds an argument of the undo to the output.
func readsRef(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
	c.Bindings = []*pb.Binding{{Name: "ref", Expression: "output.ref"}}
}

// incomplete is a completion whose output could not be kept.
func incomplete(id string) *pb.Record {
	return &pb.Record{Action: id,
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{OutputIncomplete: true}}}
}

// unwinding is a plan of two actions, of which b came after a: 1 of them failed, 2
// with b undone, 3 with b under way.
func (s *scribe) unwinding(how int) {
	s.agent(opened(0))
	last := completed("a")
	if how == 1 {
		last = &pb.Record{Action: "a", Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: "no"}}}
	}
	s.agent(append(pair("a"), last)...)
	s.agent(append(pair("b"), completed("b"))...)
	s.agent(planFailed())
	s.turns(1)
	if how != 3 {
		s.forge(s.succeeded("b", 1))
	}
}

// unwindingWith is a plan that unwinds when these records come.
func (s *scribe) unwindingWith(records ...*pb.Record) {
	s.plan("a")
	s.agent(planFailed())
	s.turns(1)
	s.agent(records...)
}

// blocked is a plan of two actions, of which the later one is blocked.
func (s *scribe) blocked() {
	s.t.Helper()
	s.plan("a", "b")
	s.write(ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "law"}, &pb.Record{
		Plan: "p", Action: "b", Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{
			Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK, Scope: pb.Scope_SCOPE_ACTION}}})
}

// reached is a committed plan of two actions, of which the later one is blocked.
func (s *scribe) reached() {
	s.t.Helper()
	s.rules = ledger.ReachesSince
	s.begin(2)
	s.plan("a", "b")
	s.agent(planCommitted())
	s.decide()
	s.write(ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "law"}, &pb.Record{
		Plan: "p", Action: "b", Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{
			Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK}}})
}

// since is a committed plan of two actions, with a condition on the later one that is held after
// the commit, or not; what comes before the commit.
func (s *scribe) since(lease string, held bool, before ...func()) {
	s.t.Helper()
	s.rules = ledger.AfterCommitSince
	s.begin(2)
	s.plan("a")
	s.agent(append(pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.ValidForNs = int64(time.Minute)
		c.Triggers = []*pb.Trigger{{Name: lease, Condition: `facts["b"] == 1`, AfterCommit: held}}
	}), completed("b"))...)
	for _, f := range before {
		f()
	}
	s.agent(planCommitted())
	s.decide()
}

// firesOn is the firing of the condition of an action, for the last fact.
func (s *scribe) firesOn(action, lease string) *pb.Record {
	r := fired(lease, `facts["`+action+`"] == 1`, 1, s.lastOf("fact_asserted"))
	r.Action, r.About = action, s.at("forward_registered", action)
	r.GetLeaseFired().Readings = []*pb.Reading{{Name: `facts["` + action + `"]`, Value: []byte("1"),
		Sequence: r.Cause.Sequence}}
	return r
}

// undoesPart is the unwind of a part, where a condition on another action had turned beside it
// and is true no more; the plan is open again.
func (s *scribe) undoesPart() {
	s.rules = ledger.KeptSince
	s.begin(2)
	s.agent(opened(0))
	s.agent(watched("a")...)
	s.agent(watched("b")...)
	s.write(sensor, asserted("b", "1"), asserted("a", "1"))
	s.write(sensor, asserted("a", "0"))
	s.decideTo("plan_rewound")
}

// suspends is what a holder says of a tenant that is suspended.
func suspends(revision uint64) *pb.Record {
	return &pb.Record{Kind: &pb.Record_TenantChanged{TenantChanged: &pb.TenantChanged{Revision: revision,
		Suspended: true, By: "ana", Reason: "not paid"}}}
}

// lastAct is a plan whose actions are undone as far as the irreversible one of them lets them be.
func (s *scribe) lastAct(onFailure pb.OnUndoFailure, irreversible string, ids ...string) {
	s.rules = ledger.LastActSince
	s.begin(2)
	open := opened(0)
	open.GetPlanOpened().OnUndoFailure = onFailure
	s.agent(open)
	for _, id := range ids {
		s.agent(append(pair(id, func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			if id == irreversible {
				f.Class, c.Capability = pb.Class_CLASS_IRREVERSIBLE, ""
			}
		}), completed(id))...)
	}
	s.agent(planFailed())
	s.decideTo("action_quarantined")
}

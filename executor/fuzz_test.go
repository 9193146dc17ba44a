package executor_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/view"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// sources are all subjects that somebody may write.
var sources = []ledger.Source{
	{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: "p"},
	{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: ledger.ManyPlans},
	{Tenant: "t", Class: ledger.ClassAgent, Name: "a2", Plan: "q"},
	{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"},
	{Tenant: "t", Class: ledger.ClassVerdict, Name: "compliance"},
	{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"},
	{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"},
	{Tenant: "t", Class: ledger.ClassExecutor},
	{Tenant: "t", Class: ledger.ClassExecutor, Term: true},
}

// store appends a message if a reader of this version may fold it, and checks
// that every refusal is explained where people look.
func (w *world) store(subject, contentType string, data []byte) {
	w.t.Helper()
	m := ledger.Message{Sequence: uint64(len(w.log) + 1), StampNs: w.now, Subject: subject, ContentType: contentType,
		Data: data}
	if _, err := ledger.Decode("t", m); err != nil {
		if s, _ := ledger.ParseSubject(subject); s.Class != ledger.ClassExecutor {
			w.t.Fatalf("%s halts the tenant: %v", subject, err)
		}
		return
	}
	refusals := 0
	for _, r := range w.raw(subject, contentType, data) {
		if r.Verdict == Effective {
			continue
		}
		if r.Reason == "" {
			w.t.Fatal("refused without a reason")
		}
		if r.Verdict != Repeated {
			refusals++
		}
	}
	for _, r := range [...]*view.Reader{view.NewReader(w.kv, "t", nil), view.Live(w.state, w.kv, "t")} {
		if shown := r.RefusedAt(m.Sequence); len(shown) != refusals {
			w.t.Fatalf("%d refused, %d shown", refusals, len(shown))
		}
	}
}

// FuzzApply puts arbitrary bytes on every subject, between the steps of a live
// plan: nothing panics, the refusal is explained, the plan ends as it should.
func FuzzApply(f *testing.F) {
	for i, r := range append(pair("a"), opened(5), completed("a"), planFailed(), resolvedBy(true), planCommitted()) {
		r.Plan = "p"
		data, err := ledger.EncodeCommit([]*pb.Record{r})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
		f.Add(uint8(i), []byte(`{"records":[{"plan":"p","planFailed":{}}]}`))
	}
	programs := triggers.NewCache(100)
	f.Fuzz(func(t *testing.T, at uint8, data []byte) {
		s := &schedule{world: newWorldWith(t, programs), answers: map[string][]string{"b": {"fail", "done"}}, plan: "p"}
		w := s.world
		w.worker = func(c Command) *api.Reply {
			if c.Action == "b" && c.Attempt == 1 {
				return nil
			}
			return &api.Reply{Status: api.StatusDone}
		}
		for i, step := range []string{"open", "a", "a+", "b", "b+", "fail", "turn"} {
			if i == int(at)%8 {
				for _, source := range sources[2:8] { // not as the plan's own agent
					w.store(source.Subject(), "", data)
					w.store(source.Subject(), ledger.ContentTypeJSON, data)
				}
				w.store("saga.t.agent.a1", "", data)
				w.store(string(data), "", data)
			}
			s.word(step)
		}
		s.finish()
	})
}

// draw reads choices from fuzzed bytes; behind their end everything is 0.
type draw struct{ data []byte }

func (d *draw) n(limit int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % limit
}

func pick[T any](d *draw, list ...T) T { return list[d.n(len(list))] }

// FuzzRecords puts well-formed but hostile records of every class into a ledger,
// forged ones of the holder too: no panic, no contradiction in the rows, what the
// holder then decides is effective, and once people and workers have answered
// everything the plan ends.
func FuzzRecords(f *testing.F) {
	for seed := range uint64(64) {
		data := binary.BigEndian.AppendUint64(nil, seed*0x9e3779b97f4a7c15)
		f.Add(bytes.Repeat(append(data, byte(seed), byte(seed*7)), 12))
	}
	programs := triggers.NewCache(100)
	f.Fuzz(func(t *testing.T, data []byte) { playHostile(t, programs, data) })
}

// TestHostileRecords is FuzzRecords on long random ledgers.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	cases := testenv.Cases(200, 3000)
	programs := triggers.NewCache(100)
	for seed := range uint64(cases) {
		r := rand.NewChaCha8([32]byte(binary.BigEndian.AppendUint64(make([]byte, 24), seed)))
		data := make([]byte, 600)
		r.Read(data)
		if !t.Run("", func(t *testing.T) { playHostile(t, programs, data) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func playHostile(t *testing.T, programs *triggers.Cache, data []byte) {
	t.Helper()
	s := &schedule{world: newWorldWith(t, programs), answers: map[string][]string{}, plan: "p"}
	d := &draw{data}
	s.worker = func(Command) *api.Reply {
		return pick(d, &api.Reply{Status: api.StatusDone}, nil, &api.Reply{Status: nobody}, &api.Reply{Status: nobodyMore},
			&api.Reply{Status: api.StatusFailed}, &api.Reply{Status: api.StatusStop}, &api.Reply{Status: api.StatusWorking})
	}
	s.word("open")
	for steps := 0; len(d.data) > 0 && steps < 150; steps++ {
		s.hostile(d)
		if d.n(3) == 0 {
			s.now += int64(d.n(3)) * second
			s.turn()
		}
	}
	if len(s.show("p").Actions) == 0 {
		s.word("a")
	}
	s.word("fail")
	s.finish()
	if rows.Digest(s.refold(3)) != rows.Digest(s.kv) {
		t.Fatal("another digest")
	}
}

// hostile appends one commit of one to three records of one class.
func (s *schedule) hostile(d *draw) {
	source := pick(d, sources...)
	if d.n(4) == 0 {
		source = sources[7]
	}
	var records []*pb.Record
	for range 1 + d.n(3) {
		r := s.record(d, source)
		records = append(records, r)
		if k := r.GetForwardRegistered(); k != nil && d.n(8) > 0 {
			records = append(records, &pb.Record{Plan: r.Plan, Action: r.Action, Kind: compensation(d, r.Action)})
		}
	}
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		s.t.Fatal(err)
	}
	s.store(source.Subject(), "", data)
}

func compensation(d *draw, action string) *pb.Record_CompensationRegistered {
	c := &pb.CompensationRegistered{
		Capability: pick(d, "undo."+action, ""), Key: pick(d, "", "other"), Attempts: uint32(d.n(3)),
		OnInDoubt: pb.OnInDoubt(d.n(5)),
		BackoffNs: int64(d.n(2)) * second, OnLate: pb.OnLate(d.n(3)), Approve: d.n(8) == 0,
		ValidForNs:      int64(d.n(3)) * second,
		UnservedAfterNs: int64(d.n(3)) * second,
	}
	if d.n(3) == 0 {
		c.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.x", Attempts: uint32(d.n(3))},
			Answer: pick(d, "", "probe.presence", "(")}
		c.DedupeNs = int64(d.n(2))
	}
	if d.n(4) == 0 {
		c.Verify = &pb.Verify{Call: &pb.Call{Capability: "verify.x"}, Ok: pick(d, "verify.gone", "1", "result.x")}
	}
	if d.n(4) == 0 {
		c.Triggers = []*pb.Trigger{when("t", pick(d, `facts["x"] == 1`, `absent_for("x", action.at, duration("2s"))`,
			`verdict.outcome == "allow"`, `(`))}
	}
	if d.n(4) == 0 {
		c.Bindings = []*pb.Binding{{Name: "x", Expression: pick(d, "output.ref", "output.ref + 1", "(", "meta.key",
			"meta.?external_ref")}}
	}
	return &pb.Record_CompensationRegistered{CompensationRegistered: c}
}

func (s *schedule) record(d *draw, source ledger.Source) *pb.Record {
	r := &pb.Record{Plan: pick(d, "p", "p", "p", "p", "q", "_"), Action: pick(d, "a", "b", "c", "d", "e", "")}
	if source.Plan == "q" {
		r.Plan = "q"
	}
	switch source.Class { // half of them know what hurts
	case ledger.ClassOperator:
		s.aim(d, r, pick(d, rowspb.Undo_UNDO_QUARANTINED, rowspb.Undo_UNDO_DISPATCHED, rowspb.Undo_UNDO_WAITING,
			rowspb.Undo_UNDO_OWED, rowspb.Undo_UNDO_SETTLING))
	case ledger.ClassWorker:
		s.aim(d, r, rowspb.Undo_UNDO_DISPATCHED, rowspb.Undo_UNDO_WAITING,
			pick(d, rowspb.Undo_UNDO_RESOLVED, rowspb.Undo_UNDO_QUARANTINED))
	case ledger.ClassExecutor:
		s.aim(d, r, rowspb.Undo(d.n(11)))
	}
	switch source.Class {
	case ledger.ClassAgent:
		s.agentRecord(d, r)
	case ledger.ClassFact:
		r.Plan, r.Action = "", ""
		if r.Kind = (&pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: pick(d, "x", "y"),
			Value: []byte(pick(d, "1", "2", "{}"))}}); d.n(4) == 0 {
			r.Kind = &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "x"}}
		}
	case ledger.ClassVerdict:
		r.Kind = &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: pb.VerdictOutcome(1 + d.n(3))}}
	case ledger.ClassOperator:
		switch d.n(6) {
		case 0:
			r.Kind = &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{}}
		case 1:
			r.Kind = &pb.Record_CompensationRequested{CompensationRequested: &pb.CompensationRequested{Reason: pick(d, "\xff",
				"x"), Actor: "x", ToSavepoint: pick(d, "", "s")}}
		case 2, 3:
			r.Kind = resolvedBy(d.n(3) == 0).Kind
			r.GetResolved().Outcome = pb.Resolution(1 + d.n(4))
		case 4, 5:
			r.Kind = &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Reason: "x", Actor: "x", Force: d.n(2) == 0,
				NewKey: d.n(8) == 0}}
		}
	case ledger.ClassWorker:
		r.Kind = &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{
			Attempt: s.attempt(d, r, 0), Key: pick(d, ledger.Key("t", r.Plan, r.Action, ledger.PurposeUndo), "other"),
			Answer: pb.Answer(1 + d.n(3))}}
	case ledger.ClassExecutor:
		s.forged(d, r, source.Term)
	}
	return r
}

// aim points a record at an action in one of these states, half of the time.
func (s *schedule) aim(d *draw, r *pb.Record, states ...rowspb.Undo) {
	p := s.planOf(r.Plan)
	if p == nil || d.n(2) == 0 {
		return
	}
	for n := uint32(1); n <= p.Row.Actions; n++ {
		if a := s.planOf(p.ID).Action(n); slices.Contains(states, a.Row.Undo) {
			r.Action = a.Fixed.Id
			if d.n(2) == 0 {
				return
			}
		}
	}
}

// attempt is one that is meant or any.
func (s *schedule) attempt(d *draw, r *pb.Record, next uint32) uint32 {
	if a := s.actionOf(r.Plan, r.Action); a != nil && d.n(2) == 0 {
		return a.Row.Attempt + next
	}
	return uint32(d.n(4))
}

// asked is attempt for questions.
func (s *schedule) asked(d *draw, r *pb.Record, next uint32) uint32 {
	if a := s.actionOf(r.Plan, r.Action); a != nil && d.n(2) == 0 {
		return a.Row.Asked + next
	}
	return uint32(d.n(4))
}

func (s *schedule) agentRecord(d *draw, r *pb.Record) {
	switch d.n(13) {
	case 12:
		r.Action, r.Kind = "",
			&pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{ToSavepoint: pick(d, "s", "none"),
				Number: s.rewinds() + uint32(d.n(3))}}
	case 0:
		parent := ""
		if r.Plan == "q" {
			parent = pick(d, "", "p")
		}
		r.Action, r.Kind = "", &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{
			ParentPlan: parent, OnUndoFailure: pb.OnUndoFailure(d.n(3)), Concurrency: uint32(d.n(3)),
			DeadlineNs: int64(d.n(2)) * (epoch0 + second),
			Triggers:   []*pb.Trigger{when("t", pick(d, `facts["x"] == 1`, `plan.status == "open"`))}}}
	case 1, 2, 3, 4:
		r.Kind = &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
			Capability: "do.it", Class: pb.Class(1 + max(0, d.n(6)-3)), Pivot: d.n(12) == 0, Branch: d.n(2) == 0,
			After: [][]string{nil, nil, {"a"}, {"b", "c"}, {"a", "a"}}[d.n(5)]}}
	case 5, 6:
		r.Kind, r.Payload = completed("").Kind, &pb.Payload{Output: []byte(pick(d, `{"ref":"a"}`, `{"ref":1}`))}
	case 7:
		r.Kind = failedForward("").Kind
	case 8:
		r.Kind = inDoubt("").Kind
	case 9:
		r.Action, r.Kind = "", planFailed().Kind
	case 10:
		r.Kind = compensation(d, r.Action)
	case 11:
		r.Action, r.Kind = "",
			&pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: pick(d, "s", "t"),
				Number: s.savepointsSet() + uint32(d.n(3))}}
		if d.n(4) == 0 {
			r.Kind = planCommitted().Kind
		}
	}
}

// forged is a record of the holder as a buggy or hostile holder may write it.
func (s *schedule) forged(d *draw, r *pb.Record, term bool) {
	meta := s.state.Meta()
	r.Term, r.EpochNs = max(1, meta.Term+uint64(d.n(2))-uint64(d.n(2))), s.now+int64(d.n(3)-1)*second
	if term {
		r.Plan, r.Action, r.Kind = "", "", &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: pick(d, "h1", "h2")}}
		return
	}
	if p := s.planOf(r.Plan); p != nil && d.n(8) > 0 {
		r.Cause = pick(d, p.Row.Fired, p.Row.Opened, &pb.Address{Index: uint32(d.n(2))})
		if a := s.actionOf(r.Plan, r.Action); a != nil {
			r.About = a.Fixed.Registered
		}
	}
	attempt := s.attempt(d, r, 0)
	switch d.n(17) {
	case 14:
		r.Kind = &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{Attempt: s.asked(d, r, 1),
			Capability: pick(d, "probe.x", "verify.x"), Question: pb.Question(d.n(4)),
			Done: pick(d, nil, &pb.CompensationSucceeded{Attempt: attempt})}}
	case 15:
		r.Kind = &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{Attempt: s.asked(d, r, 0),
			Question: pb.Question(d.n(4)), Presence: pb.Presence(d.n(4)), ExternalRef: "x",
			Duplicates: pick(d, nil, []string{"x"}, []string{"y", "z"}), Unserved: d.n(4) == 0}}
	case 16:
		switch d.n(3) {
		case 0:
			r.Kind = &pb.Record_PlanRewound{PlanRewound: &pb.PlanRewound{}}
		case 1:
			r.Kind = &pb.Record_UndoWindowClosing{UndoWindowClosing: &pb.UndoWindowClosing{ClosesNs: s.now + int64(d.n(3))*second}}
		case 2:
			r.Kind = &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Kind: api.PageQuarantined}}
		}
	case 0, 1:
		if r.Kind = (&pb.Record_LeaseFired{LeaseFired: &pb.LeaseFired{Lease: pick(d, LeaseFailed, LeaseDeadline, LeaseVerdict, "t", "none")}}); d.n(2) == 0 {
			r.Action = ""
		}
	case 2:
		r.Kind = &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{ParentPlan: pick(d, "", "p")}}
	case 3, 4, 5:
		k := &pb.CompensationDispatched{Attempt: s.attempt(d, r, 1), Capability: pick(d, "undo."+r.Action, ""),
			Key: ledger.Key("t", r.Plan, r.Action, ledger.PurposeUndo), BlindCleanup: d.n(2) == 0}
		r.Kind = &pb.Record_CompensationDispatched{CompensationDispatched: k}
	case 6, 7:
		r.Kind = &pb.Record_CompensationSucceeded{CompensationSucceeded: &pb.CompensationSucceeded{Attempt: attempt,
			Verified: d.n(2) == 0}}
	case 8, 9:
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{Attempt: attempt,
			Final: d.n(2) == 0, Unserved: d.n(3) == 0, InDoubt: d.n(3) == 0}}
	case 10:
		r.Kind = &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{}}
	case 11:
		r.Kind = &pb.Record_ActionQuarantined{ActionQuarantined: &pb.ActionQuarantined{}}
	case 12:
		r.Kind = &pb.Record_PlanEnded{PlanEnded: &pb.PlanEnded{End: pb.PlanEnd(d.n(7))}}
	case 13:
		switch d.n(4) {
		case 0:
			r.Kind = &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{}}
		case 1:
			r.Kind = &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{}}
		case 2:
			r.Plan, r.Kind = "",
				&pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{Sequence: uint64(d.n(20)), Index: uint32(d.n(2))}}
		case 3:
			r.Plan, r.Kind = "", &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{}}
		}
	}
}

package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// honest is a ledger with plans that commit, fail, run into their deadline and end
// quarantined.
func honest(t testing.TB, plans int) *scribe {
	s := newScribe(t)
	for i := range plans {
		id := fmt.Sprintf("plan-%d", i)
		records := []*pb.Record{opened(start + 3600*second)}
		for _, a := range []string{"a", "b", "c"} {
			records = append(append(records, pair(a)...), completed(a))
		}
		last := planFailed()
		if i%2 == 0 {
			last = planCommitted()
		}
		for _, r := range append(records, last) {
			r.Plan = id
		}
		s.agent(append(records, last)...)
		s.fails = i%4 == 3
		s.decide()
	}
	s.agent(opened(start + 7200*second))
	s.agent(append(pair("a"), completed("a"))...)
	s.now += 7200 * second
	s.fails = false
	s.decide()
	return s
}

func TestAnHonestLedgerHasNoViolation(t *testing.T) {
	s := honest(t, 8)
	report, err := audit.CheckAll("t", s.messages())
	if err != nil || len(report.Violations) > 0 || report.More > 0 {
		t.Fatalf("%v %+v", err, report)
	}
	want := map[string]int{ledger.StateCommitted: 4, ledger.StateCompensated: 3, ledger.StateQuarantined: 2}
	if !reflect.DeepEqual(report.Plans, want) || report.Messages != uint64(len(s.log)) ||
		report.Effective != report.Records || report.Held != 6 {
		t.Fatalf("%+v", report)
	}
}

func TestAReportEndsWithItsMessages(t *testing.T) {
	broken := errors.New("cannot read")
	_, err := audit.CheckAll("t", func(yield func(ledger.Message, error) bool) { yield(ledger.Message{}, broken) })
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

// TestAnAuditEndsWhereANewerReaderIsNeeded: nothing behind such a message can be told.
func TestAnAuditEndsWhereANewerReaderIsNeeded(t *testing.T) {
	s := newScribe(t)
	l, _ := s.audited()
	data := []byte{1 << 3, 99}
	found := l.Add(ledger.Message{Sequence: 2, Subject: holder.Subject(), Data: data})
	if len(found) != 1 || found[0].Rule != "I7" || !strings.Contains(found[0].Problem, "99") {
		t.Fatalf("%+v", found)
	}
	if found := l.Add(ledger.Message{Sequence: 3}); found != nil || l.Entries() != nil {
		t.Fatalf("%+v", found)
	}
}

// TestTimeIsWhatWasRecorded: stamps that go back move nothing, epochs of an older term
// neither.
func TestTimeIsWhatWasRecorded(t *testing.T) {
	s := newScribe(t)
	s.now -= second
	s.agent(opened(0))
	if l, found := s.audited(); l.Now() != start || len(found) > 0 {
		t.Fatalf("%d %+v", l.Now(), found)
	}
	s.begin(2)
	s.write(holder, &pb.Record{Term: 1, EpochNs: start + second,
		Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{}}})
	if l, _ := s.audited(); l.Now() != start || l.Term() != 2 {
		t.Fatal(l.Now())
	}
	s.write(holder, &pb.Record{Term: 2, EpochNs: start + second,
		Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{}}})
	if l, _ := s.audited(); l.Now() != start+second {
		t.Fatal(l.Now())
	}
}

// TestPayloadsDecideNothing: a ledger whose payloads are all other ones means the same.
func TestPayloadsDecideNothing(t *testing.T) {
	s := honest(t, 4)
	l, _ := s.audited()
	other := audit.New("t")
	rewritten := map[uint64][]ledger.Entry{}
	moved := func(a *pb.Address) *pb.Address { // the same place of the ledger that is written anew
		if a == nil || a.Sequence == 0 || len(a.Leaf) == 0 {
			return a
		}
		return rewritten[a.Sequence][a.Index].Address
	}
	for _, m := range s.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		var records []*pb.Record
		for _, e := range entries {
			if e.Record.Payload != nil {
				e.Record.Payload = &pb.Payload{Output: []byte(`"sealed"`)}
			}
			e.Record.About, e.Record.Cause = moved(e.Record.About), moved(e.Record.Cause)
			records = append(records, e.Record)
		}
		if m.Data, err = ledger.EncodeCommit(records); err != nil {
			t.Fatal(err)
		}
		if rewritten[m.Sequence], err = ledger.Decode("t", m); err != nil {
			t.Fatal(err)
		}
		if found := other.Add(m); len(found) > 0 {
			t.Fatalf("%+v", found)
		}
	}
	if !reflect.DeepEqual(l.Plans(), other.Plans()) {
		t.Fatalf("%+v\n%+v", l.Plans(), other.Plans())
	}
}

func TestFactsAndTheirEvictionsAreTold(t *testing.T) {
	s := newScribe(t)
	s.write(sensor, asserted("k", `1`), asserted("l", `2`))
	s.write(sensor, &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "l"}}})
	s.write(ops, &pb.Record{Kind: &pb.Record_EvictRequested{EvictRequested: &pb.EvictRequested{Keys: []string{"k"}}}})
	s.decide()
	l, found := s.audited()
	if facts := l.Facts(); len(found) > 0 ||
		!reflect.DeepEqual(facts, []audit.Fact{{Key: "k", Value: `1`, Evicted: true}}) {
		t.Fatalf("%+v %+v", l.Facts(), found)
	}
}

// FuzzAdd folds arbitrary bytes on every kind of subject: nothing panics, two folds say
// the same, and each message has its entries.
func FuzzAdd(f *testing.F) {
	s := honest(f, 4)
	for i, m := range s.log {
		f.Add(uint8(i), m.Data)
	}
	subjects := []string{agentA.Subject(), sensor.Subject(), ops.Subject(), holder.Subject(), termsOf.Subject(),
		"saga.t.worker.w1", "saga.t.verdict.v1", foreignT.Subject(), "x"}
	f.Fuzz(func(t *testing.T, at uint8, data []byte) {
		a, b := audit.New("t"), audit.New("t")
		at %= uint8(len(s.log))
		sequence := uint64(0)
		both := func(m ledger.Message) {
			sequence++
			m.Sequence = sequence
			if x, y := a.Add(m), b.Add(m); !reflect.DeepEqual(x, y) || !reflect.DeepEqual(a.Entries(), b.Entries()) {
				t.Fatalf("%+v\n%+v", x, y)
			}
		}
		for i, m := range s.log {
			both(m)
			if i == int(at) {
				for _, subject := range subjects {
					both(ledger.Message{Subject: subject, Data: data, StampNs: int64(i)})
					both(ledger.Message{Subject: subject, Data: data, ContentType: ledger.ContentTypeJSON})
				}
			}
		}
		if !reflect.DeepEqual(a.End(), b.End()) || !reflect.DeepEqual(a.Plans(), b.Plans()) {
			t.Fatal("two folds of one ledger differ")
		}
	})
}

// TestDamagedLedgersNeverPanic: bytes that flipped, subjects that changed, messages that
// were left out, repeated or swapped. What is left is folded, and can be asked.
func TestDamagedLedgersNeverPanic(t *testing.T) {
	s := honest(t, 4)
	found := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		log := slices.Clone(s.log)
		for range 1 + r.IntN(4) {
			i, j := r.IntN(len(log)), r.IntN(len(log))
			switch r.IntN(5) {
			case 0:
				log[i].Data = bytes.Clone(log[i].Data)
				log[i].Data[r.IntN(len(log[i].Data))] ^= 1 << r.IntN(8)
			case 1:
				log[i].Subject = log[j].Subject
			case 2:
				log = slices.Delete(log, i, i+1)
			case 3:
				log[i], log[j] = log[j], log[i]
			case 4:
				log[i] = log[j]
			}
		}
		l := audit.New("t")
		for i, m := range log {
			m.Sequence = uint64(i + 1)
			found += len(l.Add(m))
		}
		found += len(l.End())
		l.Plans()
		l.Facts()
	}
	if found < 2000 {
		t.Fatalf("%d violations in 2000 damaged ledgers", found)
	}
}

// BenchmarkAdd is the audit of a ledger of plans of three actions each, of which half
// commit and half unwind.
func BenchmarkAdd(b *testing.B) {
	s := honest(b, 40)
	records := 0
	b.ReportAllocs()
	for b.Loop() {
		records = 0
		l := audit.New("t")
		for _, m := range s.log {
			if found := l.Add(m); len(found) > 0 {
				b.Fatal(found)
			}
			records += len(l.Entries())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(records), "ns/record")
}

// TestALostRaceIsNoViolation: a claim that was right where it was decided and came too
// late is void and harmless; so is a copy of it.
func TestALostRaceIsNoViolation(t *testing.T) {
	s := newScribe(t)
	s.agent(opened(start + second))
	s.agent(append(pair("a"), completed("a"))...)
	s.forge(&pb.Record{Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{}}})
	s.now += 2 * second
	late := fired("plan.deadline", "after(plan.deadline)", 1, s.at("plan_opened", ""))
	s.agent(planCommitted()) // it is there first
	s.forge(late)
	s.decide()
	s.write(holder, late)
	l, found := s.audited()
	if found = append(found, l.End()...); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
	if l.Held() != 0 || l.Plans()[0].State != ledger.StateCommitted {
		t.Fatalf("%+v", l.Plans())
	}
}

// TestAPartialReportCountsByTheRulesOfItsHolder: the audit says of it what the fold says.
func TestAPartialReportCountsByTheRulesOfItsHolder(t *testing.T) {
	for rules, want := range map[uint32]string{
		ledger.PartialSince - 1: audit.Refused, ledger.PartialSince: audit.Effective,
	} {
		s := newScribe(t)
		s.rules = rules
		s.begin(2)
		s.plan("a")
		s.agent(planFailed())
		s.turns(1)
		s.write(workerW, &pb.Record{Plan: "p", Action: "a", Payload: &pb.Payload{Output: []byte("NaN")},
			Kind: &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{
				Attempt: 1, Key: keyOf("a"), Answer: pb.Answer_ANSWER_DONE}}})
		l, found := s.audited()
		entries := l.Entries()
		if got := entries[len(entries)-1]; got.Verdict != want || len(found) > 0 {
			t.Errorf("rules of version %d: %+v, %+v", rules, got, found)
		}
		s.decide()
		report, err := audit.CheckAll("t", s.messages())
		if err != nil || len(report.Violations) > 0 || report.Plans[ledger.StateCompensated] != 1 {
			t.Errorf("rules of version %d: %+v, %v", rules, report, err)
		}
	}
}

// TestARecordCostsWhatItIsAbout, whatever else its plan has: of the plan's other actions only the next
// ones are looked at, when one is registered, and when it is undone.
func TestARecordCostsWhatItIsAbout(t *testing.T) {
	const actions, near = 40, 3
	s := newScribe(t)
	var names []string
	for i := range actions {
		names = append(names, fmt.Sprint("a", i+1))
	}
	s.plan(names...)
	s.agent(planFailed())
	s.decide()
	l, alone, whole := audit.New("t"), 0, 0
	for _, m := range s.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		add := func() {
			if found := l.Add(m); len(found) > 0 {
				t.Fatalf("%+v", found)
			}
		}
		var n uint32
		for _, e := range entries {
			switch e.Record.Kind.(type) {
			case *pb.Record_UnwindStarted, *pb.Record_PlanEnded: // of each, when the holder has read on, too
				n, whole = 0, 4
			case *pb.Record_ForwardRegistered, *pb.Record_CompensationSucceeded, *pb.Record_CompensationDispatched:
				n = uint32(slices.Index(names, e.Record.Action) + 1)
			}
		}
		if whole--; n == 0 || whole > 0 {
			add()
			continue
		}
		l.Alone("p", n-min(n, near), n+near, add)
		alone++
	}
	if alone < 2*actions-8 || l.Plans()[0].State != ledger.StateCompensated {
		t.Errorf("%d messages are about one action, of a plan that is %s", alone, l.Plans()[0].State)
	}
}

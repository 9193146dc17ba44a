package executor_test

import (
	"fmt"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// benchLedger is a log of plans of 5 actions each, with bindings and a deadline:
// pairs and outcomes in turn, then end. Its holder is of this version: others read less of a record.
func benchLedger(b testing.TB, plans int, end func() *pb.Record) []ledger.Entry {
	b.Helper()
	var entries []ledger.Entry
	store := func(source ledger.Source, records ...*pb.Record) {
		data, err := ledger.EncodeCommit(records)
		if err != nil {
			b.Fatal(err)
		}
		list, err := ledger.Decode("t", ledger.Message{Sequence: uint64(len(entries) + 1), StampNs: epoch0,
			Subject: source.Subject(), Data: data})
		if err != nil {
			b.Fatal(err)
		}
		entries = append(entries, list...)
	}
	store(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true},
		&pb.Record{Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h",
			FoldVersion: FoldVersion}}})
	for i := range plans {
		plan := fmt.Sprintf("plan-%06d", i)
		agent := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: plan}
		records := []*pb.Record{opened(epoch0 + 3600*second)}
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			records = append(records, pair(id, bind("id", "input.id", "ref", "output.ref", "key", "meta.key"))...)
			records = append(records, completed(id))
		}
		records = append(records, end())
		for _, r := range records {
			r.Plan = plan
		}
		store(agent, records...)
	}
	return entries
}

// BenchmarkFold is the fold of an agent's records over MemoryKV, flushed every
// 256 records.
func BenchmarkFold(b *testing.B) {
	entries := benchLedger(b, 100, planCommitted)
	programs := triggers.NewCache(100)
	b.ReportAllocs()
	for b.Loop() {
		s := OpenWith(rows.NewMemoryKV(), "t", nil, programs)
		for i, e := range entries {
			if r := s.Apply(e); r.Verdict != Effective {
				b.Fatal(r)
			}
			if i%256 == 255 {
				s.Flush()
			}
		}
		s.Flush()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(entries)), "ns/record")
	b.ReportMetric(float64(b.N*len(entries))/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkUndo5 is the unwind of plans of 5 actions, 100 at a time, from PlanFailed
// to PlanEnded: decisions, their encoding and decoding, and the fold.
func BenchmarkUndo5(b *testing.B) {
	const plans = 100
	entries := benchLedger(b, plans, planFailed)
	programs := triggers.NewCache(100)
	b.ReportAllocs()
	undone := 0
	for b.Loop() {
		b.StopTimer()
		s := OpenWith(rows.NewMemoryKV(), "t", nil, programs)
		for _, e := range entries {
			s.Apply(e)
		}
		s.Flush()
		b.StartTimer()
		undone += unwindAll(b, s, uint64(len(entries)))
	}
	if undone != b.N*plans*5 {
		b.Fatalf("%d undone", undone)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*plans), "ns/plan")
}

func unwindAll(b testing.TB, s *State, sequence uint64) (undone int) {
	subject := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}.Subject()
	for {
		var answers []Answer
		for _, c := range s.Commands() {
			undone++
			answers = append(answers, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
				Reply: &api.Reply{Status: api.StatusDone}})
		}
		for first := true; ; first = false {
			if !first {
				answers = nil
			}
			records := s.Decide(Input{EpochNs: epoch0 + second, Answers: answers, SizeMax: 60 << 10})
			if len(records) == 0 {
				break
			}
			data, err := ledger.EncodeCommit(records)
			if err != nil {
				b.Fatal(err)
			}
			sequence++
			list, err := ledger.Decode("t", ledger.Message{Sequence: sequence, StampNs: epoch0 + second, Subject: subject,
				Data: data})
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range list {
				if r := s.Apply(e); r.Verdict != Effective {
					b.Fatal(r)
				}
			}
			s.Flush()
			if len(answers) == 0 && s.Sends() {
				break
			}
		}
		if !s.Sends() {
			return undone
		}
	}
}

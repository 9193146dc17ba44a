package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// author writes a ledger of plans with three actions each, of which every second one
// commits and the others unwind, as the executor decides it.
type author struct {
	state    *executor.State
	sequence uint64
	now      int64
	tree     bundle.Tree
	w        *bundle.Writer
	err      error
}

func (a *author) write(source ledger.Source, records ...*pb.Record) {
	data, err := ledger.EncodeCommit(records)
	a.sequence++
	a.now++
	m := ledger.Message{Sequence: a.sequence, StampNs: a.now, Subject: source.Subject(), Data: data}
	entries, err2 := ledger.Decode("t", m)
	a.err = errors.Join(a.err, err, err2)
	for _, e := range entries {
		leaf := ledger.AppendLeaf(nil, "t", m, e.Address.Index, e.Count, e.Reader, e.Body)
		a.tree.Append(ledger.LeafHash(leaf))
		a.err = errors.Join(a.err, a.w.Record(leaf))
		a.state.Apply(e)
	}
	a.state.Flush()
}

func (a *author) plan(n int) {
	agent := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: ledger.ManyPlans}
	holder := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	plan := "plan-" + strconv.Itoa(n)
	records := []*pb.Record{{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}}}
	for _, id := range []string{"a", "b", "c"} {
		records = append(records,
			&pb.Record{Action: id,
				Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: "do." + id,
					Class: pb.Class_CLASS_COMPENSABLE}}},
			&pb.Record{Action: id,
				Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{Capability: "undo." + id,
					Attempts: 2, BackoffNs: 1e9}}},
			&pb.Record{Action: id, Payload: &pb.Payload{Output: []byte(`{"ref":1}`)},
				Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}})
	}
	if n%2 == 0 {
		records = append(records, &pb.Record{Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})
	} else {
		records = append(records, &pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "no"}}})
	}
	for _, r := range records {
		r.Plan = plan
	}
	a.write(agent, records...)
	var answers []executor.Answer
	for range 20 {
		for _, c := range a.state.Commands() {
			answers = append(answers,
				executor.Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
					Reply: &api.Reply{Status: api.StatusDone}})
		}
		decided := a.state.Decide(executor.Input{EpochNs: a.now, Answers: answers, SizeMax: 60 << 10})
		if len(decided) == 0 {
			return
		}
		a.write(holder, decided...)
		answers = nil
	}
	a.err = errors.Join(a.err, errors.New("decisions never end"))
}

// worked is the file of a bundle of at least n records.
func worked(b *testing.B, n uint64) (file string, size uint64) {
	b.Helper()
	out, err := os.CreateTemp(b.TempDir(), "bundle")
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	a := &author{state: executor.Open(rows.NewMemoryKV(), "t", nil),
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()}
	if a.w, err = bundle.NewWriter(out, bundle.Header{Tenant: "t", Holds: bundle.Whole}); err != nil {
		b.Fatal(err)
	}
	a.write(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true},
		&pb.Record{Term: 1, EpochNs: a.now, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h"}}})
	for i := 0; a.tree.Size() < n && a.err == nil; i++ {
		a.plan(i)
	}
	if err := errors.Join(a.err, a.w.End(a.tree.Root())); err != nil {
		b.Fatal(err)
	}
	return out.Name(), a.tree.Size()
}

// BenchmarkVerify measures in one run: reading a bundle alone, SHA-256 over the same leaf
// data, and the whole check, with the ratios between them and the memory of the last.
func BenchmarkVerify(b *testing.B) {
	sizes := []uint64{10_000, 100_000}
	if text := os.Getenv("SAGENBAUM_VERIFY_RECORDS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sizes = []uint64{n}
	}
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			file, size := worked(b, n)
			debug.FreeOSMemory() // of who wrote it
			var read, hash, check time.Duration
			var heap uint64
			for b.Loop() {
				nothing, hashing := time.Hour, time.Hour
				for range 5 { // the best of: the machine may be at something else
					nothing = min(nothing, timed(b, func() error { return each(file, func([]byte) {}) }))
					hashing = min(hashing,
						timed(b, func() error { return each(file, func(leaf []byte) { sha256.Sum256(leaf) }) }))
				}
				read += nothing
				hash += hashing
				check += timed(b, func() error {
					data, err := os.Open(file)
					if err != nil {
						return err
					}
					defer data.Close()
					files, err := newFiles()
					if err != nil {
						return err
					}
					defer files.close()
					var after runtime.MemStats
					r, err := verify.Check(data, verify.Options{Memory: files.memory(), AtRest: true})
					if err = errors.Join(err, files.failed()); err != nil || len(r.Findings) > 0 || r.Size != size {
						return fmt.Errorf("%v %+v", err, r)
					}
					runtime.ReadMemStats(&after)
					heap = max(heap, after.HeapSys-after.HeapReleased)
					return nil
				})
			}
			hash -= read // SHA-256 alone
			perSecond := func(d time.Duration) float64 { return float64(size) * float64(b.N) / max(d, 1).Seconds() }
			b.ReportMetric(perSecond(check), "records/s")
			b.ReportMetric(perSecond(hash), "sha256-records/s")
			b.ReportMetric(perSecond(read), "reading-records/s")
			b.ReportMetric(float64(check)/float64(max(hash, 1)), "x-sha256")
			b.ReportMetric(float64(check)/float64(max(read, 1)), "x-reading")
			b.ReportMetric(float64(heap)/1e6, "MB-heap")
		})
	}
}

func timed(b *testing.B, do func() error) time.Duration {
	start := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func each(file string, do func(leaf []byte)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	r, err := bundle.NewReader(bytes.NewReader(data))
	for err == nil {
		var item bundle.Item
		if item, err = r.Next(); err == nil && item.Kind == bundle.Record {
			do(item.Data)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

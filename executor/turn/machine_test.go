package turn

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// bench drives one machine over a ledger in memory.
type bench struct {
	t  *testing.T
	kv *rows.MemoryKV
	m  *Machine
	at uint64 // last sequence
	id int
}

func newBench(t *testing.T, last uint64) *bench {
	b := &bench{t: t, kv: rows.NewMemoryKV()}
	b.m = New(Config{Tenant: "t", Holder: "h1", NewID: func() string { b.id++; return fmt.Sprint("id", b.id) }},
		executor.Open(b.kv, "t", nil), last)
	return b
}

// noDisk keeps nothing.
type noDisk struct{}

func (noDisk) Flush() error { return nil }
func (noDisk) Commit()      {}

// stored folds one commit of the ledger.
func (b *bench) stored(source ledger.Source, data []byte) {
	b.t.Helper()
	b.at++
	m := ledger.Message{Sequence: b.at, StampNs: int64(b.at), Subject: source.Subject(), Data: data}
	entries, err := ledger.Decode("t", m)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.m.Begin(m.Sequence, len(m.Data)); err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		if r := b.m.Fold(e); e.Err != nil || r.Verdict == executor.Refused {
			b.t.Fatalf("%v %+v", e.Err, r)
		}
	}
	if _, err := b.m.Write(0, true, noDisk{}, noDisk{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) records(source ledger.Source, records ...*pb.Record) {
	b.t.Helper()
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		b.t.Fatal(err)
	}
	b.stored(source, data)
}

var (
	terms    = ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
	executes = ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	agent    = ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: "p"}
)

func begun(term uint64, holder string) *pb.Record {
	return &pb.Record{Term: term, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: holder}}}
}

func (b *bench) step(now Instant) Ready {
	b.t.Helper()
	return b.m.Step(now, Inputs{})
}

// holds has the machine hold term 1.
func (b *bench) holds() {
	b.t.Helper()
	b.m.Lead(true, "h1")
	r := b.step(Instant{})
	if r.Append == nil || !r.Append.Claim || r.Append.Subject != terms.Subject() ||
		r.Append.FenceSubject != terms.Subject() {
		b.t.Fatalf("no claim: %+v", r)
	}
	b.m.Acknowledged(b.at+1, nil, true, 0)
	b.stored(terms, r.Append.Data)
	if r := b.step(Instant{}); !r.Up || !r.More || !b.m.Holding() {
		b.t.Fatalf("it does not hold: %+v", r)
	}
}

// planOf is a plan with one action that has happened, which fails.
func planOf(t *testing.T) []*pb.Record {
	t.Helper()
	at := func(action string, r *pb.Record) *pb.Record { r.Plan, r.Action = "p", action; return r }
	return []*pb.Record{
		at("", &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}}),
		at("a", &pb.Record{Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
			Capability: "do.a", Class: pb.Class_CLASS_COMPENSABLE, ContractDigest: make([]byte, 32)}}}),
		at("a", &pb.Record{Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
			Capability: "undo.a", Key: ledger.Key("t", "p", "a", "undo"), Attempts: 3,
			OnInDoubt: pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE,
			TimeoutNs: int64(time.Second), BackoffNs: int64(time.Second), BackoffMaxNs: int64(time.Second)}}}),
		at("a", &pb.Record{Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}),
		at("", &pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{}}}),
	}
}

// A host decides from the place on where its own term was read back, and fences every
// decision on it; a command leaves when its dispatch was read back.
func TestAppendThenAct(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.records(agent, planOf(t)...)
	if r := b.step(Instant{EpochNs: 10}); !r.More || len(r.Send) != 0 || r.Append != nil || r.Tells {
		t.Fatalf("a host without a term acts: %+v", r)
	}
	b.holds()
	r := b.step(Instant{EpochNs: 10})
	if r.Append == nil || r.Append.Claim || r.Append.Fence != 2 || r.Append.Subject != executes.Subject() ||
		len(r.Send) != 0 {
		t.Fatalf("no decision, or not fenced on the term at 2: %+v", r)
	}
	if again := b.step(Instant{EpochNs: 10}); again.Append != nil {
		t.Fatalf("a second append is in flight: %+v", again.Append)
	}
	b.m.Acknowledged(3, nil, true, 0)
	if r := b.step(Instant{EpochNs: 10}); r.Append != nil || len(r.Send) != 0 {
		t.Fatalf("it acts on what was not read back: %+v", r)
	}
	b.stored(executes, r.Append.Data)
	if r := b.step(Instant{EpochNs: 10}); len(r.Send) != 1 || r.Send[0].Capability != "undo.a" || r.Send[0].Resent ||
		!r.Tells {
		t.Fatalf("the undo does not leave: %+v", r)
	}
}

// Whatever an append failed with, the next try is the same commit under the same ID and
// the same fence.
func TestACommitGoesOutAgainAsItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		outcome Outcome
		after   []time.Duration
	}{
		{ledger.ErrBusy, InDoubt, []time.Duration{RetryMin, 2 * RetryMin, 4 * RetryMin}},
		{ledger.ErrInDoubt, InDoubt, []time.Duration{RetryMin, 2 * RetryMin}},
		{ledger.ErrFull, Refused, []time.Duration{RetryMax, RetryMax, RetryMax}},
		{errors.New("not taken"), Refused, []time.Duration{RetryMax, RetryMax}},
	} {
		b := newBench(t, 0)
		b.records(agent, planOf(t)...)
		b.step(Instant{})
		b.holds()
		first := b.step(Instant{EpochNs: 10}).Append
		for _, after := range c.after {
			if got := b.m.Acknowledged(0, c.err, true, 0); got != c.outcome {
				t.Fatalf("%v: %v", c.err, got)
			}
			next := b.step(Instant{EpochNs: 10}).Append
			if next == nil || next.ID != first.ID || string(next.Data) != string(first.Data) || next.Fence != first.Fence ||
				next.AfterNs != int64(after) {
				t.Fatalf("%v: %+v, and before it was %+v", c.err, next, first)
			}
		}
	}
}

// A server that is there and never answers is mute after MissesMax appends in a row; one
// that is away is not, and one that has stored something between begins anew.
func TestAServerThatNeverAnswersIsMute(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.records(agent, planOf(t)...)
	b.step(Instant{})
	b.holds()
	b.step(Instant{EpochNs: 10})
	for range 10 {
		if got := b.m.Acknowledged(0, ledger.ErrInDoubt, false, 0); got != InDoubt {
			t.Fatalf("a server that is away: %v", got)
		}
	}
	for range MissesMax - 1 {
		if got := b.m.Acknowledged(0, ledger.ErrInDoubt, true, 0); got != InDoubt {
			t.Fatal(got)
		}
	}
	b.m.Acknowledged(3, nil, true, 0)
	for n := range MissesMax {
		want := InDoubt
		if n == MissesMax-1 {
			want = Mute
		}
		if got := b.m.Acknowledged(0, ledger.ErrInDoubt, true, 0); got != want {
			t.Fatalf("miss %d: %v, want %v", n+1, got, want)
		}
	}
}

// A host that another term has beaten gives everything up, and claims again only when it
// is told again that it leads, and not before the fold has come to that term or a pause
// has passed.
func TestWhoeverIsBeatenStops(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.records(agent, planOf(t)...)
	b.step(Instant{})
	b.holds()
	b.step(Instant{EpochNs: 10})
	b.m.Answer(executor.Answer{Plan: "p", Number: 1})
	start := int64(time.Hour)
	if got := b.m.Acknowledged(0, ledger.ErrConflict, true, start); got != Beaten {
		t.Fatal(got)
	}
	r := b.step(Instant{MonoNs: start})
	if r.Down == nil || !r.Down.Doubt || b.m.Holding() || b.m.Term() != 0 || r.Append != nil {
		t.Fatalf("%+v", r)
	}
	b.m.Lead(true, "h1")
	if r := b.step(Instant{MonoNs: start + 1}); r.Append != nil || !r.Wakes || r.WakeInNs != int64(ClaimPause)-1 {
		t.Fatalf("it claims at once: %+v", r)
	}
	if r := b.step(Instant{MonoNs: start + int64(ClaimPause)}); r.Append == nil || !r.Append.Claim {
		t.Fatalf("it never claims again: %+v", r)
	}
	if r := b.m.Acknowledged(0, ledger.ErrConflict, true, start+int64(ClaimPause)); r != Beaten {
		t.Fatal(r)
	}
	b.m.Lead(true, "h1")
	b.records(terms, begun(2, "h2")) // the fold has come to the term that was faster
	if r := b.step(Instant{MonoNs: start + int64(ClaimPause)}); r.Up || !r.More {
		t.Fatalf("%+v", r)
	}
	if r := b.step(Instant{MonoNs: start + int64(ClaimPause)}); r.Append == nil || r.Append.Fence != 3 || b.m.Term() != 3 {
		t.Fatalf("%+v, want a claim of term 3 fenced on 3", r)
	}
}

// Nothing is claimed before the fold has come to the end that the ledger had.
func TestNothingIsClaimedBeforeTheFoldHasCaughtUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.m.Lead(true, "h1")
	if r := b.step(Instant{}); r.Append != nil {
		t.Fatalf("%+v", r)
	}
	b.records(agent, planOf(t)[0])
	b.step(Instant{})
	if r := b.step(Instant{}); r.Append != nil {
		t.Fatalf("one message is missing: %+v", r)
	}
	b.records(terms, begun(1, "h0"))
	b.step(Instant{})
	if r := b.step(Instant{}); r.Append == nil || b.m.Term() != 2 {
		t.Fatalf("%+v", r)
	}
}

// A gap in the stream is a guard's.
func TestAGapIsHalted(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	var halted *ledger.Halted
	if err := b.m.Begin(2, 1); !errors.As(err, &halted) || halted.Guard != "G1" || halted.Sequence != 1 {
		t.Fatal(err)
	}
}

// A new holder sends what an earlier one may have sent, under the same keys, and says so.
func TestANewHolderSendsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.records(agent, planOf(t)...)
	b.step(Instant{})
	b.holds()
	r := b.step(Instant{EpochNs: 10})
	b.m.Acknowledged(3, nil, true, 0)
	b.stored(executes, r.Append.Data)
	sent := b.step(Instant{EpochNs: 10}).Send[0]
	next := &bench{t: t, kv: b.kv, at: b.at}
	next.m = New(Config{Tenant: "t", Holder: "h2", NewID: func() string { return "x" }}, executor.Open(b.kv, "t", nil),
		b.at)
	next.m.Lead(true, "h2")
	claim := next.step(Instant{}).Append
	next.m.Acknowledged(next.at+1, nil, true, 0)
	next.stored(terms, claim.Data)
	r = next.step(Instant{})
	if !r.Up || len(r.Send) != 1 || !r.Send[0].Resent || r.Send[0].Key != sent.Key || r.Send[0].Term != 2 {
		t.Fatalf("%+v", r)
	}
}

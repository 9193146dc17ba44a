package turn

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
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

// disk counts what is written to it.
type disk struct{ copied, written int }

func (d *disk) Flush() error { d.copied++; return nil }
func (d *disk) Commit()      { d.written++ }

// TestTheSecondCopyIsWrittenBeforeTheRowsAndMoreOften: what a second copy lacks may be known to no
// one, and rows that change are written once.
func TestTheSecondCopyIsWrittenBeforeTheRowsAndMoreOften(t *testing.T) {
	b, d, wakes := newBench(t, 0), &disk{}, int64(0)
	wrote := func(when string, mono time.Duration, now bool, copied, written int) {
		t.Helper()
		was := d.written
		did, err := b.m.Write(int64(mono), now, d, d)
		if err != nil || did != (d.written > was) || d.copied != copied || d.written != written {
			t.Errorf("%s: %v, %v, %+v; want %d copies, %d writes", when, did, err, *d, copied, written)
		}
	}
	fold := func(mono time.Duration, bytes int) {
		t.Helper()
		data, err := ledger.EncodeCommit([]*pb.Record{{Plan: "p", Writer: "w",
			Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}}})
		if err != nil {
			t.Fatal(err)
		}
		b.folds(agent, data, bytes)
		now := Instant{MonoNs: int64(mono)}
		for r := (Ready{More: true}); r.More; wakes = r.WakeInNs {
			r = b.m.Step(now, Inputs{})
		}
	}
	wrote("nothing is folded", 1, true, 0, 0)
	const first = 10 * time.Millisecond
	fold(first, 100)
	if wakes != int64(CopyEvery) {
		t.Errorf("the loop wakes in %v to write the copy, want %v", time.Duration(wakes), CopyEvery)
	}
	wrote("too early", first+CopyEvery-1, false, 0, 0)
	wrote("the copy is due", first+CopyEvery, false, 1, 0)
	wrote("it has all", first+2*CopyEvery, false, 1, 0)
	if r := b.m.Step(Instant{MonoNs: int64(first + 2*CopyEvery)}, Inputs{}); r.WakeInNs != int64(WriteEvery-2*CopyEvery) {
		t.Errorf("the loop wakes in %v to write the rows", time.Duration(r.WakeInNs))
	}
	const second = first + 2*CopyEvery
	fold(second, 100)
	wrote("the copy waits again", second+CopyEvery-1, false, 1, 0)
	wrote("the rows are due, and the copy before", first+WriteEvery, false, 2, 1)
	wrote("all is written", first+2*WriteEvery, false, 2, 1)
	fold(time.Second, 100)
	wrote("someone waits", time.Second, true, 3, 2)
	fold(2*time.Second, BytesMax)
	wrote("it is much", 2*time.Second, false, 4, 3)
}

// stored folds one commit of the ledger, and writes it.
func (b *bench) stored(source ledger.Source, data []byte) {
	b.t.Helper()
	b.folds(source, data, len(data))
	if _, err := b.m.Write(0, true, noDisk{}, noDisk{}); err != nil {
		b.t.Fatal(err)
	}
}

// folds folds one commit of the ledger, of so many bytes.
func (b *bench) folds(source ledger.Source, data []byte, bytes int) {
	b.t.Helper()
	b.at++
	m := ledger.Message{Sequence: b.at, StampNs: int64(b.at), Subject: source.Subject(), Data: data}
	entries, err := ledger.Decode("t", m)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.m.Begin(m.Sequence, bytes); err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		if r := b.m.Fold(e); e.Err != nil || r.Verdict == executor.Refused {
			b.t.Fatalf("%v %+v", e.Err, r)
		}
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
	return failed("a")
}

// failed is a plan with actions that have happened, one after the other, which fails.
func failed(actions ...string) (plan []*pb.Record) {
	at := func(action string, r *pb.Record) { r.Plan, r.Action = "p", action; plan = append(plan, r) }
	at("", &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}})
	for _, a := range actions {
		at(a, &pb.Record{Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
			Capability: "do." + a, Class: pb.Class_CLASS_COMPENSABLE, ContractDigest: make([]byte, 32)}}})
		at(a, &pb.Record{Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
			Capability: "undo." + a, Key: ledger.Key("t", "p", a, "undo"), Attempts: 3,
			OnInDoubt: pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE,
			TimeoutNs: int64(time.Second), BackoffNs: int64(time.Second), BackoffMaxNs: int64(time.Second)}}})
		at(a, &pb.Record{Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}})
	}
	at("", &pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{}}})
	return plan
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
		{ledger.ErrBusy, InDoubt, []time.Duration{RetryMin, 2 * RetryMin, 4 * RetryMin, 8 * RetryMin, 16 * RetryMin,
			32 * RetryMin, RetryMax, RetryMax}},
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
	_, r = b.takenOver()
	if !r.Up || len(r.Send) != 1 || !r.Send[0].Resent || r.Send[0].Key != sent.Key || r.Send[0].Term != 2 {
		t.Fatalf("%+v", r)
	}
}

// takenOver is a machine of another host over the same ledger, which holds term 2, and what it
// sends first.
func (b *bench) takenOver() (next *bench, r Ready) {
	b.t.Helper()
	next = &bench{t: b.t, kv: b.kv, at: b.at}
	next.m = New(Config{Tenant: "t", Holder: "h2", NewID: func() string { return "x" }}, executor.Open(b.kv, "t", nil),
		b.at)
	next.m.Lead(true, "h2")
	claim := next.step(Instant{}).Append
	next.m.Acknowledged(next.at+1, nil, true, 0)
	next.stored(terms, claim.Data)
	return next, next.step(Instant{})
}

// decided has the machine decide and fold what it has decided.
func (b *bench) decided(epochNs int64) Ready {
	b.t.Helper()
	r := b.step(Instant{EpochNs: epochNs})
	if r.Append == nil {
		b.t.Fatalf("it decides nothing: %+v", r)
	}
	b.m.Acknowledged(b.at+1, nil, true, 0)
	b.stored(executes, r.Append.Data)
	return b.step(Instant{EpochNs: epochNs})
}

// undone is a worker's answer to the first attempt of an undo.
func undone(n uint32) executor.Answer {
	return executor.Answer{Plan: "p", Number: n, Purpose: ledger.PurposeUndo, Attempt: 1,
		Reply: &api.Reply{Status: api.StatusDone}}
}

// What is recorded ahead is known with the token that its worker is to show, as what is sent at
// once. An earlier holder may have sent it: a new one says so when its turn comes.
func TestWhatIsRecordedAheadIsThatOfItsHolder(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.m.config.Ahead, b.m.reporter = RunMax, ledger.NewReporter([]byte("of this process"))
	b.records(agent, failed("a", "b")...)
	b.step(Instant{})
	b.holds()
	r := b.decided(10)
	if len(r.Send) != 1 || r.Send[0].Action != "b" || r.Send[0].Resent || r.Send[0].ReportToken == "" ||
		len(r.Ahead) != 1 || r.Ahead[0].Action != "a" || r.Ahead[0].Behind != "b" || r.Ahead[0].ReportToken == "" {
		t.Fatalf("sent %+v, ahead %+v", r.Send, r.Ahead)
	}
	next, r := b.takenOver()
	if len(r.Send) != 1 || r.Send[0].Action != "b" || !r.Send[0].Resent || len(r.Ahead) != 0 {
		t.Fatalf("sent %+v, ahead %+v", r.Send, r.Ahead)
	}
	next.m.Answer(undone(2))
	if r := next.decided(20); len(r.Send) != 1 || r.Send[0].Action != "a" || !r.Send[0].Resent ||
		r.Send[0].ReportToken != "" {
		t.Fatalf("sent %+v", r.Send)
	}
}

// Each answer is decided on once. That no worker takes a command is said again for as long as it
// is so: what was too early is no word of later.
func TestAnAnswerIsDecidedOnOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.records(agent, planOf(t)...)
	b.step(Instant{})
	b.holds()
	sent := b.decided(10).Send
	alone := undone(1)
	alone.Reply, alone.Unserved = nil, true
	b.m.Answer(alone)
	if r := b.step(Instant{EpochNs: 20}); r.Append != nil {
		t.Fatalf("it is given up too early: %+v", r)
	}
	if r := b.step(Instant{EpochNs: sent[0].UnservedNs + 1}); r.Append != nil {
		t.Fatalf("it is given up, and a worker may have come since: %+v", r)
	}
	b.m.Answer(undone(1))
	b.decided(30)
	b.m.config.Decided = func(in executor.Input, _ []*pb.Record) { t.Errorf("it decides on %+v", in.Answers) }
	for range 2 {
		b.m.Answer(undone(1))
		if r := b.step(Instant{EpochNs: 50}); r.Append != nil {
			t.Errorf("%+v", r)
		}
	}
}

// Of several hosts that ask for one term, one has begun it: a claim is fenced on the last that was
// made, whatever came of it.
func TestAClaimIsFencedOnTheLastOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.records(terms, begun(1, "h8"))
	b.records(terms, begun(1, "h9")) // void
	b.records(agent, planOf(t)...)
	b.step(Instant{})
	b.m.Lead(true, "h1")
	if r := b.step(Instant{}); r.Append == nil || r.Append.Fence != 2 || b.m.Term() != 2 {
		t.Errorf("%+v", r.Append)
	}
}

// A stream is the one that was folded if it has the record at the cursor: there, and the same.
func TestTheStreamIsHeldAgainstWhatWasFolded(t *testing.T) {
	t.Parallel()
	at := func(leaf string) *pb.Address { return &pb.Address{Sequence: 7, Index: 1, Leaf: []byte(leaf)} }
	for name, c := range map[string]struct {
		head  ledger.Head
		there *pb.Address
		guard string
	}{
		"as it was":         {ledger.Head{First: 1, Last: 7}, at("same"), ""},
		"it goes on":        {ledger.Head{First: 1, Last: 9}, at("same"), ""},
		"its tail is lost":  {ledger.Head{First: 1, Last: 6}, nil, "G2"},
		"another record":    {ledger.Head{First: 1, Last: 7}, at("other"), "G2"},
		"a record is gone":  {ledger.Head{First: 1, Last: 7, Deleted: 1}, at("same"), "G1"},
		"fewer in a commit": {ledger.Head{First: 1, Last: 7}, &pb.Address{Sequence: 7, Leaf: []byte("same")}, "G2"},
	} {
		err := CheckAnchor(c.head, &rowspb.Meta{Applied: at("same")}, func(sequence uint64) ([]ledger.Entry, error) {
			if sequence != 7 || c.there == nil {
				t.Fatalf("%s: it reads %d", name, sequence)
			}
			return []ledger.Entry{{Address: &pb.Address{Sequence: 7}}, {Address: c.there}}, nil
		})
		var halted *ledger.Halted
		if errors.As(err, &halted); err == nil != (c.guard == "") || halted != nil && halted.Guard != c.guard {
			t.Errorf("%s: %v, want guard %q", name, err, c.guard)
		}
	}
}

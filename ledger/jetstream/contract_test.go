package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// fixture is one implementation of ledger.Store under the contract.
type fixture struct {
	name string
	// open returns an empty store of tenant "t" and a way to store a message as a
	// foreign client does.
	open func(t *testing.T) (store ledger.Store, put func(subject, contentType string, data []byte))
}

// TestStoreContract holds every store to the same promises, so that what is
// tried over Memory is true of JetStream.
func TestStoreContract(t *testing.T) {
	fixtures := []fixture{
		{"memory", func(t *testing.T) (ledger.Store, func(string, string, []byte)) {
			m := newMemory()
			return m, func(subject, contentType string, data []byte) { m.Put(subject, contentType, data) }
		}},
		{"jetstream R1", openSingle},
		{"jetstream R3", openCluster},
	}
	for _, f := range fixtures {
		t.Run(f.name, func(t *testing.T) {
			for _, c := range contract {
				t.Run(c.name, func(t *testing.T) {
					store, put := f.open(t)
					c.run(t, store, put)
				})
			}
		})
	}
}

type putter = func(subject, contentType string, data []byte)

var contract = []struct {
	name string
	run  func(t *testing.T, s ledger.Store, put putter)
}{
	{"an empty store has a head before sequence 1", emptyHead},
	{"appends are read in order, whole, from any sequence", appendAndRead},
	{"an id is stored once", dedupe},
	{"a fence holds back what comes after it moved", fence},
	{"a stored fenced append is no conflict when retried", fencedRetry},
	{"a fence on a subject without records is 0", fenceZero},
	{"a commit may have exactly the cap and not a byte more", sizeCap},
	{"what is no append of the tenant is refused and not stored", refusals},
	{"a reader follows and ends with its context", follow},
	{"a reader that had enough is not called again", breakEarly},
	{"a read outside the stream is halted", readOutside},
	{"get returns one message and nothing behind the last", get},
	{"a foreign message keeps its content type and bytes", foreign},
	{"concurrent appends get one sequence each", concurrent},
	{"of concurrent claims of one fence one wins", concurrentClaims},
	{"an append with an ended context is in doubt", endedContext},
}

func emptyHead(t *testing.T, s ledger.Store, _ putter) {
	h := headOf(t, s)
	if h.First != 1 || h.Last != 0 || h.Deleted != 0 || h.CreatedNs == 0 {
		t.Fatalf("head %+v", h)
	}
}

func appendAndRead(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	var want [][]byte
	for i := range 20 {
		a := commit(fmt.Sprintf("plan%d", i%3), fmt.Sprintf("data %d", i))
		want = append(want, a.Data)
		if seq := mustAppend(t, ctx, s, a); seq != uint64(i+1) {
			t.Fatalf("append %d got sequence %d", i, seq)
		}
	}
	for _, from := range []uint64{1, 7, 20} {
		for i, m := range take(t, ctx, s, from, 21-int(from)) {
			at := from + uint64(i)
			if m.Sequence != at || !bytes.Equal(m.Data, want[at-1]) || m.StampNs == 0 || m.ContentType != "" ||
				m.Subject != fmt.Sprintf("saga.t.agent.a1.plan%d", (at-1)%3) {
				t.Fatalf("read from %d: got %+v at %d", from, m, at)
			}
		}
	}
	if h := headOf(t, s); h.First != 1 || h.Last != 20 || h.Deleted != 0 {
		t.Fatalf("head %+v", h)
	}
}

func dedupe(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	a := commit("p", "first")
	first := mustAppend(t, ctx, s, a)
	mustAppend(t, ctx, s, commit("p", "between"))
	if again := mustAppend(t, ctx, s, a); again != first {
		t.Fatalf("second copy got %d, first %d", again, first)
	}
	// A store looks at the id only; that the content differs is the fold's business.
	other := a
	other.Data = []byte("another content")
	if again := mustAppend(t, ctx, s, other); again != first {
		t.Fatalf("other content got %d, first %d", again, first)
	}
	if h := headOf(t, s); h.Last != 2 {
		t.Fatalf("head %+v", h)
	}
}

func fence(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	one := mustAppend(t, ctx, s, fenced(termSubject, "term 1", 0))
	mustAppend(t, ctx, s, commit("p", "an agent's append moves no fence"))
	mustAppend(t, ctx, s, fenced(executorSubject, "decision of term 1", one))
	two := mustAppend(t, ctx, s, fenced(termSubject, "term 2", one))
	before := headOf(t, s)
	for _, a := range []ledger.Append{
		fenced(executorSubject, "late decision of term 1", one),
		fenced(termSubject, "late claim", one),
		fenced(termSubject, "late first claim", 0),
	} {
		if _, err := retrying(ctx, s, a); !errors.Is(err, ledger.ErrConflict) {
			t.Fatalf("%s: %v", a.Data, err)
		}
	}
	if after := headOf(t, s); after.Last != before.Last {
		t.Fatalf("a conflict was stored: %+v, then %+v", before, after)
	}
	mustAppend(t, ctx, s, fenced(executorSubject, "decision of term 2", two))
}

func fencedRetry(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	claim := fenced(termSubject, "term 1", 0)
	first := mustAppend(t, ctx, s, claim)
	if again := mustAppend(t, ctx, s, claim); again != first {
		t.Fatalf("retry got %d, first %d", again, first)
	}
	decision := fenced(executorSubject, "decision of term 1", first)
	second := mustAppend(t, ctx, s, decision)
	mustAppend(t, ctx, s, fenced(termSubject, "term 2", first))
	if again := mustAppend(t, ctx, s, decision); again != second {
		t.Fatalf("retry of what is last on its subject got %d, first %d", again, second)
	}
	// Behind another record of its subject it is a conflict or its first sequence,
	// and never stored again.
	if again, err := retrying(ctx, s, claim); !errors.Is(err, ledger.ErrConflict) && again != first {
		t.Fatalf("late retry got %d, %v", again, err)
	}
	if h := headOf(t, s); h.Last != 3 {
		t.Fatalf("head %+v", h)
	}
}

func fenceZero(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	mustAppend(t, ctx, s, commit("p", "something else"))
	if _, err := retrying(ctx, s, fenced(termSubject, "wrong", 1)); !errors.Is(err, ledger.ErrConflict) {
		t.Fatalf("a fence of 1 on a subject without records: %v", err)
	}
	mustAppend(t, ctx, s, fenced(termSubject, "right", 0))
}

func sizeCap(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	full := bytes.Repeat([]byte{'x'}, ledger.CommitSizeMax)
	longest := strings.Repeat("p", ledger.TokenLenMax)
	a := fenced("saga.t.agent."+longest+"."+longest, string(full), 0)
	seq := mustAppend(t, ctx, s, a)
	m, err := s.Get(ctx, seq)
	if err != nil || !bytes.Equal(m.Data, full) {
		t.Fatalf("%d bytes back: %v", len(m.Data), err)
	}
	if _, err := s.Append(ctx, commit("p", string(full)+"x")); !isRefused(err, "records") {
		t.Fatalf("one byte more: %v", err)
	}
	if h := headOf(t, s); h.Last != 1 {
		t.Fatalf("head %+v", h)
	}
}

func refusals(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	for field, change := range map[string]func(*ledger.Append){
		"subject":       func(a *ledger.Append) { a.Subject = "saga.other.agent.a1.p" },
		"id":            func(a *ledger.Append) { a.ID = "guess-me" },
		"records":       func(a *ledger.Append) { a.Data = nil },
		"fence_subject": func(a *ledger.Append) { a.FenceSubject = "saga.t.>" },
	} {
		a := commit("p", "data")
		change(&a)
		if _, err := s.Append(ctx, a); !isRefused(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, subject := range []string{"", "saga.t", "saga.t.agent.a1", "saga.t.agent.*.p", "saga.t.agent.a 1.p", "orders.t.agent.a1.p"} {
		a := commit("p", "data")
		a.Subject = subject
		if _, err := s.Append(ctx, a); !isRefused(err, "subject") {
			t.Errorf("%q: %v", subject, err)
		}
	}
	if h := headOf(t, s); h.Last != 0 {
		t.Fatalf("something was stored: %+v", h)
	}
}

func follow(t *testing.T, s ledger.Store, _ putter) {
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	next, stop := iter.Pull2(s.Read(ctx, 1))
	defer stop()
	for i := range 5 {
		a := commit("p", fmt.Sprint(i))
		mustAppend(t, ctx, s, a)
		m, err, ok := next()
		if !ok || err != nil || m.Sequence != uint64(i+1) || !bytes.Equal(m.Data, a.Data) {
			t.Fatalf("followed to %+v, %v, %v", m, err, ok)
		}
	}
	// The reader waits for a sixth message when its context ends.
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err, ok := next(); !ok || !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v, %v", err, ok)
	}
	if _, _, ok := next(); ok {
		t.Fatal("read on behind its end")
	}
}

func breakEarly(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	for i := range 10 {
		mustAppend(t, ctx, s, commit("p", fmt.Sprint(i)))
	}
	read := 0
	for _, err := range s.Read(ctx, 3) {
		if err != nil {
			t.Fatal(err)
		}
		if read++; read == 4 {
			break
		}
	}
	if read != 4 {
		t.Fatalf("read %d", read)
	}
}

func readOutside(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	mustAppend(t, ctx, s, commit("p", "one"))
	if err := readErr(ctx, s, 0); !isRefused(err, "from") {
		t.Errorf("from 0: %v", err)
	}
	if err := readErr(ctx, s, 3); !isHalted(err, "G1") {
		t.Errorf("a cursor behind the head: %v", err)
	}
}

func get(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 20*time.Second)
	a := commit("p", "one")
	mustAppend(t, ctx, s, a)
	m, err := s.Get(ctx, 1)
	if err != nil || m.Sequence != 1 || m.Subject != a.Subject || !bytes.Equal(m.Data, a.Data) {
		t.Fatalf("%+v, %v", m, err)
	}
	for read := range take2(ctx, s, 1) {
		if read.StampNs != m.StampNs {
			t.Fatalf("read stamps %d, get %d", read.StampNs, m.StampNs)
		}
		break
	}
	for _, sequence := range []uint64{0, 2} {
		if _, err := s.Get(ctx, sequence); !isRefused(err, "sequence") {
			t.Errorf("get %d: %v", sequence, err)
		}
	}
}

func foreign(t *testing.T, s ledger.Store, put putter) {
	ctx := within(t, 20*time.Second)
	put("saga.t.fact.sensor", ledger.ContentTypeJSON, []byte(`{"records":[]}`))
	put("saga.t.not.a.class", "text/plain", nil)
	read := take(t, ctx, s, 1, 2)
	if read[0].ContentType != ledger.ContentTypeJSON || string(read[0].Data) != `{"records":[]}` || read[0].Subject != "saga.t.fact.sensor" {
		t.Fatalf("read %+v", read[0])
	}
	if read[1].ContentType != "text/plain" || len(read[1].Data) != 0 || read[1].Subject != "saga.t.not.a.class" {
		t.Fatalf("read %+v", read[1])
	}
	m, err := s.Get(ctx, 1)
	if err != nil || m.ContentType != ledger.ContentTypeJSON {
		t.Fatalf("get %+v, %v", m, err)
	}
}

func concurrent(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 60*time.Second)
	const writers, each = 8, 25
	sequences := make([][]uint64, writers)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				seq, err := retrying(ctx, s, commit(fmt.Sprintf("p%d", w), fmt.Sprintf("%d/%d", w, i)))
				if err != nil {
					t.Error(err)
					return
				}
				sequences[w] = append(sequences[w], seq)
			}
		})
	}
	group.Wait()
	var all []uint64
	for w := range sequences {
		if !slices.IsSorted(sequences[w]) {
			t.Errorf("writer %d got %v", w, sequences[w])
		}
		all = append(all, sequences[w]...)
	}
	slices.Sort(all)
	for i, seq := range all {
		if seq != uint64(i+1) {
			t.Fatalf("sequence %d at %d", seq, i)
		}
	}
	for i, m := range take(t, ctx, s, 1, writers*each) {
		var w, n int
		if _, err := fmt.Sscanf(string(m.Data), "%d/%d", &w, &n); err != nil || sequences[w][n] != m.Sequence {
			t.Fatalf("message %d is %q, acknowledged at %d", i+1, m.Data, sequences[w][n])
		}
	}
}

func concurrentClaims(t *testing.T, s ledger.Store, _ putter) {
	ctx := within(t, 60*time.Second)
	var won, lost atomic.Int32
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			_, err := retrying(ctx, s, fenced(termSubject, fmt.Sprint("claim ", i), 0))
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, ledger.ErrConflict):
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 || lost.Load() != 7 {
		t.Fatalf("%d won, %d lost", won.Load(), lost.Load())
	}
}

func endedContext(t *testing.T, s ledger.Store, _ putter) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := commit("p", "late")
	if _, err := s.Append(ctx, a); !errors.Is(err, ledger.ErrInDoubt) {
		t.Fatalf("%v", err)
	}
	// Whatever became of it, trying again gives exactly one.
	ctx = within(t, 20*time.Second)
	mustAppend(t, ctx, s, a)
	if h := headOf(t, s); h.Last != 1 {
		t.Fatalf("head %+v", h)
	}
}

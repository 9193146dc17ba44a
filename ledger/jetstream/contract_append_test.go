package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sagenbaum/sagenbaum/ledger"
)

var appendCases = []caseOf{
	{"an empty store has a head before sequence 1", 0, emptyHead},
	{"appends are read in order, whole, from any sequence", 0, appendAndRead},
	{"any bytes are kept as they are", 0, anyBytes},
	{"a commit may have exactly the cap and not a byte more", 0, sizeCap},
	{"what is no append of the tenant is refused and not stored", 0, refusals},
	{"wildcards are refused, in a subject and in a fence", 0, wildcards},
	{"an append with an ended context is in doubt", 0, endedContext},
	{"concurrent appends get one sequence each", 0, concurrent},
	{"what one connection appends the other sees", 0, twoConnections},
	{"tenants do not see each other", 0, tenantsApart},
	{"a full store refuses, keeps what it has and takes what still fits", 200 << 10, full},
	{"a full store still knows ids and fences", 200 << 10, fullKnows},
}

var dedupeCases = []caseOf{
	{"an id is stored once", 0, dedupe},
	{"an id is known whatever its subject", 0, dedupeAnySubject},
	{"an id is stored again when the dedupe window has passed", 0, dedupeExpired},
	{"what was refused or conflicted is not remembered", 0, dedupeNotOfRefused},
	{"what a foreign client puts without an id is stored each time", 0, foreignTwice},
	{"concurrent copies of one append get one sequence", 0, concurrentCopies},
	{"a lost append is in doubt, and its retry is stored once", 0, lostRequest},
	{"an append whose ack is lost is in doubt, and its retry gets its sequence", 0, lostReply},
	{"an append whose ack is lost is stored twice when its id is forgotten", 0, lostReplyExpired},
	{"each append of a row lost in each way is stored once, in order", 0, lostEach},
}

func emptyHead(b *bed) {
	h := headOf(b, b.store)
	if h.First != 1 || h.Last != 0 || h.Deleted != 0 || h.CreatedNs == 0 || h.Replicas != b.copies {
		b.Fatalf("head %+v", h)
	}
}

func appendAndRead(b *bed) {
	var want [][]byte
	for i := range 20 {
		a := b.commit(fmt.Sprintf("plan%d", i%3), fmt.Sprintf("data %d", i))
		want = append(want, a.Data)
		b.must(a, uint64(i+1))
	}
	for _, from := range []uint64{1, 7, 20} {
		for i, m := range take(b, b.ctx, b.store, from, 21-int(from)) {
			at := from + uint64(i)
			if m.Sequence != at || !bytes.Equal(m.Data, want[at-1]) || m.StampNs == 0 || m.ContentType != "" ||
				m.Subject != b.subject(fmt.Sprintf("agent.a1.plan%d", (at-1)%3)) {
				b.Fatalf("read from %d: got %+v at %d", from, m, at)
			}
		}
	}
	b.wantLast(20)
}

func anyBytes(b *bed) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i, data := range [][]byte{all, {0}, []byte("\r\n\r\n"), []byte("NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")} {
		a := b.commit("p", string(data))
		seq := b.must(a, uint64(i+1))
		if m, err := b.store.Get(b.ctx, seq); err != nil || !bytes.Equal(m.Data, data) {
			b.Fatalf("%q back for %q: %v", m.Data, data, err)
		}
	}
}

func sizeCap(b *bed) {
	whole := bytes.Repeat([]byte{'x'}, ledger.CommitSizeMax)
	longest := strings.Repeat("p", ledger.TokenLenMax)
	seq := b.must(b.fenced(b.subject("agent."+longest+"."+longest), string(whole), 0), 1)
	m, err := b.store.Get(b.ctx, seq)
	if err != nil || !bytes.Equal(m.Data, whole) {
		b.Fatalf("%d bytes back: %v", len(m.Data), err)
	}
	if _, err := b.store.Append(b.ctx, b.commit("p", string(whole)+"x")); !isRefused(err, "records") {
		b.Fatalf("one byte more: %v", err)
	}
	b.wantLast(1)
}

func refusals(b *bed) {
	for field, change := range map[string]func(*ledger.Append){
		"subject":       func(a *ledger.Append) { a.Subject = "saga.other.agent.a1.p" },
		"id":            func(a *ledger.Append) { a.ID = "guess-me" },
		"records":       func(a *ledger.Append) { a.Data = nil },
		"fence_subject": func(a *ledger.Append) { a.FenceSubject = "saga.other.executor.term" },
	} {
		a := b.commit("p", "data")
		change(&a)
		if _, err := b.store.Append(b.ctx, a); !isRefused(err, field) {
			b.Errorf("%s: %v", field, err)
		}
	}
	for _, subject := range []string{"", "saga." + b.tenant, b.subject("agent.a1"), b.subject("agent.a 1.p"),
		b.subject("agent..p"), "orders." + b.tenant + ".agent.a1.p"} {
		a := b.commit("p", "data")
		a.Subject = subject
		if _, err := b.store.Append(b.ctx, a); !isRefused(err, "subject") {
			b.Errorf("%q: %v", subject, err)
		}
	}
	b.wantLast(0)
}

func wildcards(b *bed) {
	for _, rest := range []string{">", "agent.>", "agent.*.p", "agent.a1.*", "executor.*", "*"} {
		a := b.commit("p", "data")
		a.Subject = b.subject(rest)
		if _, err := b.store.Append(b.ctx, a); !isRefused(err, "subject") {
			b.Errorf("subject %s: %v", rest, err)
		}
		a = b.commit("p", "data")
		a.FenceSubject = b.subject(rest)
		if _, err := b.store.Append(b.ctx, a); !isRefused(err, "fence_subject") {
			b.Errorf("fence %s: %v", rest, err)
		}
	}
	b.wantLast(0)
}

func endedContext(b *bed) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := b.commit("p", "late")
	if _, err := b.store.Append(ctx, a); !errors.Is(err, ledger.ErrInDoubt) {
		b.Fatalf("%v", err)
	}
	// Whatever became of it, trying again gives exactly one.
	b.must(a, 1)
	b.wantLast(1)
}

func concurrent(b *bed) {
	const writers, each = 8, 25
	sequences := make([][]uint64, writers)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				seq, err := retrying(b.ctx, b.store, b.commit(fmt.Sprintf("p%d", w), fmt.Sprintf("%d/%d", w, i)))
				if err != nil {
					b.Error(err)
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
			b.Errorf("writer %d got %v", w, sequences[w])
		}
		all = append(all, sequences[w]...)
	}
	slices.Sort(all)
	for i, seq := range all {
		if seq != uint64(i+1) {
			b.Fatalf("sequence %d at %d", seq, i)
		}
	}
	for i, m := range take(b, b.ctx, b.store, 1, writers*each) {
		var w, n int
		if _, err := fmt.Sscanf(string(m.Data), "%d/%d", &w, &n); err != nil || sequences[w][n] != m.Sequence {
			b.Fatalf("message %d is %q, acknowledged at %d", i+1, m.Data, sequences[w][n])
		}
	}
}

func twoConnections(b *bed) {
	for i := range 6 {
		s := []ledger.Store{b.store, b.other}[i%2]
		if seq := mustAppend(b, b.ctx, s, b.commit("p", fmt.Sprint(i))); seq != uint64(i+1) {
			b.Fatalf("append %d got %d", i, seq)
		}
		for _, s := range []ledger.Store{b.store, b.other} {
			if h := headOf(b, s); h.Last != uint64(i+1) {
				b.Fatalf("head %+v behind append %d", h, i)
			}
		}
	}
	one, other := take(b, b.ctx, b.store, 1, 6), take(b, b.ctx, b.other, 1, 6)
	if fmt.Sprint(one) != fmt.Sprint(other) {
		b.Fatalf("%v and %v", one, other)
	}
}

func tenantsApart(b *bed) {
	a := b.commit("p", "mine")
	b.must(a, 1)
	// Another tenant's ledger refuses it, and remembers no id of this one.
	theirs := a
	theirs.Subject = "saga.elsewhere.agent.a1.p"
	if _, err := b.store.Append(b.ctx, theirs); !isRefused(err, "subject") {
		b.Fatalf("%v", err)
	}
	b.must(a, 1)
	b.wantLast(1)
}

// fill appends commits of size bytes until the store has no room, and returns them.
func (b *bed) fill(size int) (stored []ledger.Append) {
	b.Helper()
	for {
		a := b.commit("p", strings.Repeat("x", size))
		_, err := retrying(b.ctx, b.store, a)
		if errors.Is(err, ledger.ErrFull) {
			return stored
		}
		if err != nil {
			b.Fatal(err)
		}
		stored = append(stored, a)
	}
}

func full(b *bed) {
	stored := b.fill(60 << 10)
	if len(stored) != 3 {
		b.Fatalf("%d of 60 KiB went into 200 KiB", len(stored))
	}
	b.wantLast(3)
	take(b, b.ctx, b.store, 1, 3)
	b.must(b.commit("p", strings.Repeat("x", 10<<10)), 4)
	if _, err := retrying(b.ctx, b.store, b.commit("p", strings.Repeat("x", 20<<10))); !errors.Is(err, ledger.ErrFull) {
		b.Fatalf("%v", err)
	}
	b.wantLast(4)
}

func fullKnows(b *bed) {
	claim := b.fenced(b.term(), "term 1", 0)
	term := b.must(claim, 1)
	stored := b.fill(60 << 10)
	last := headOf(b, b.store).Last
	b.must(stored[0], 2)
	b.must(claim, term)
	b.conflict(b.fenced(b.executor(), strings.Repeat("x", 60<<10), term+1))
	if _, err := retrying(b.ctx, b.store, b.fenced(b.executor(), strings.Repeat("x", 60<<10), term)); !errors.Is(err,
		ledger.ErrFull) {
		b.Fatalf("%v", err)
	}
	b.wantLast(last)
}

func dedupe(b *bed) {
	a := b.commit("p", "first")
	b.must(a, 1)
	b.must(b.commit("p", "between"), 2)
	b.must(a, 1)
	// A store looks at the id only; that the content differs is the fold's business.
	other := a
	other.Data = []byte("another content")
	b.must(other, 1)
	b.wantLast(2)
	if m, err := b.store.Get(b.ctx, 1); err != nil || string(m.Data) != "first" {
		b.Fatalf("%+v, %v", m, err)
	}
}

func dedupeAnySubject(b *bed) {
	a := b.commit("p", "first")
	b.must(a, 1)
	a.Subject = b.subject("operator.ann")
	b.must(a, 1)
	b.wantLast(1)
}

func dedupeExpired(b *bed) {
	a := b.commit("p", "again")
	b.must(a, 1)
	b.expire()
	last := headOf(b, b.store).Last
	b.must(a, last+1)
	b.wantLast(last + 1)
}

func dedupeNotOfRefused(b *bed) {
	a := b.fenced(b.executor(), "decision", 7)
	b.conflict(a)
	a.Fence = 0
	b.must(a, 1)
	large := b.commit("p", strings.Repeat("x", ledger.CommitSizeMax+1))
	if _, err := b.store.Append(b.ctx, large); !isRefused(err, "records") {
		b.Fatalf("%v", err)
	}
	large.Data = large.Data[:10]
	b.must(large, 2)
	b.wantLast(2)
}

func foreignTwice(b *bed) {
	for range 2 {
		b.put(b.subject("fact.sensor"), "", []byte("the same"))
	}
	b.wantLast(2)
}

func concurrentCopies(b *bed) {
	a := b.commit("p", "one")
	sequences := make([]uint64, 8)
	var group sync.WaitGroup
	for i := range sequences {
		group.Go(func() {
			var err error
			if sequences[i], err = retrying(b.ctx, []ledger.Store{b.store, b.other}[i%2], a); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
	if !slices.Equal(sequences, []uint64{1, 1, 1, 1, 1, 1, 1, 1}) {
		b.Fatalf("%v", sequences)
	}
	b.wantLast(1)
}

// inDoubt appends under a fault and wants doubt.
func (b *bed) inDoubt(s ledger.Store, a ledger.Append) {
	b.Helper()
	if err := b.briefly(s, a); !errors.Is(err, ledger.ErrInDoubt) {
		b.Fatalf("%v", err)
	}
}

func lostRequest(b *bed) {
	s, next := b.faulty()
	a := b.commit("p", "lost")
	next(ledger.FaultLost)
	b.inDoubt(s, a)
	b.wantLast(0)
	b.must(b.commit("p", "between"), 1)
	if seq := mustAppend(b, b.ctx, s, a); seq != 2 {
		b.Fatalf("the retry got %d", seq)
	}
	b.wantLast(2)
}

func lostReply(b *bed) {
	s, next := b.faulty()
	a := b.commit("p", "kept")
	next(ledger.FaultKept)
	b.inDoubt(s, a)
	b.wantLast(1)
	b.must(b.commit("p", "between"), 2)
	if seq := mustAppend(b, b.ctx, s, a); seq != 1 {
		b.Fatalf("the retry got %d", seq)
	}
	b.wantLast(2)
}

func lostReplyExpired(b *bed) {
	s, next := b.faulty()
	a := b.commit("p", "kept")
	next(ledger.FaultKept)
	b.inDoubt(s, a)
	b.wantLast(1)
	b.expire()
	last := headOf(b, b.store).Last
	if seq := mustAppend(b, b.ctx, s, a); seq != last+1 {
		b.Fatalf("the retry got %d behind %d", seq, last)
	}
}

func lostEach(b *bed) {
	s, next := b.faulty()
	for i, fault := range []ledger.Fault{ledger.FaultLost, ledger.FaultKept, ledger.FaultKept, ledger.FaultLost} {
		a := b.commit("p", fmt.Sprint(i))
		next(fault)
		b.inDoubt(s, a)
		if seq := mustAppend(b, b.ctx, s, a); seq != uint64(i+1) {
			b.Fatalf("append %d got %d", i, seq)
		}
	}
	for i, m := range take(b, b.ctx, b.store, 1, 4) {
		if string(m.Data) != fmt.Sprint(i) {
			b.Fatalf("%q at %d", m.Data, i+1)
		}
	}
	b.wantLast(4)
}

// headWithin gives up waiting for a server that lost the question in a restart.
func headWithin(ctx context.Context, s ledger.Store) (ledger.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	return s.Head(ctx)
}

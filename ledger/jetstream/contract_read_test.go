package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

var readCases = []caseOf{
	{"a reader follows and ends with its context", 0, follow},
	{"a reader that had enough is not called again", 0, breakEarly},
	{"a read outside the stream is halted", 0, readOutside},
	{"a read from behind the head waits for the next", 0, readFromHead},
	{"a read of an empty store waits for the first", 0, readEmpty},
	{"a reader sees all in order while writers append", 0, readWhileWriting},
	{"two readers see the same", 0, twoReaders},
	{"get returns one message and nothing behind the last", 0, get},
	{"get and read give the same message", 0, getAsRead},
	{"a foreign message keeps its content type and bytes", 0, foreign},
	{"stamps rise with the sequences while the clock does not fall", 0, stampsRise},
	{"an ended context ends reads, gets and heads", 0, endedReads},
}

var lossCases = []caseOf{
	{"a lost record in the middle halts readers", 0, lostMiddle},
	{"a lost first record moves the start and halts who wants it", 0, lostFirst},
	{"a lost last record is missed", 0, lostLast},
	{"a store that lost everything starts behind it", 0, lostAll},
	{"a fence whose record is lost falls back", 0, lostFence},
	{"a lost tail halts who has read it", 0, lostTail},
	{"a tail that was lost and grew anew halts who has read it", 0, regrownTail},
}

func follow(b *bed) {
	ctx, cancel := context.WithCancel(b.ctx)
	next, stop := iter.Pull2(b.store.Read(ctx, 1))
	defer stop()
	for i := range 5 {
		a := b.commit("p", fmt.Sprint(i))
		b.must(a, uint64(i+1))
		m, err, ok := next()
		if !ok || err != nil || m.Sequence != uint64(i+1) || !bytes.Equal(m.Data, a.Data) {
			b.Fatalf("followed to %+v, %v, %v", m, err, ok)
		}
	}
	// The reader waits for a sixth message when its context ends.
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err, ok := next(); !ok || !errors.Is(err, context.Canceled) {
		b.Fatalf("ended with %v, %v", err, ok)
	}
	if _, _, ok := next(); ok {
		b.Fatal("read on behind its end")
	}
}

// some appends n commits to the empty ledger.
func (b *bed) some(n int) {
	b.Helper()
	for i := range n {
		b.must(b.commit("p", fmt.Sprint(i+1)), uint64(i+1))
	}
}

func breakEarly(b *bed) {
	b.some(10)
	read := 0
	for _, err := range b.store.Read(b.ctx, 3) {
		if err != nil {
			b.Fatal(err)
		}
		if read++; read == 4 {
			break
		}
	}
	if read != 4 {
		b.Fatalf("read %d", read)
	}
}

func readOutside(b *bed) {
	b.some(1)
	if err := readErr(b.ctx, b.store, 0); !isRefused(err, "from") {
		b.Errorf("from 0: %v", err)
	}
	for _, from := range []uint64{3, 1 << 40} {
		if err := readErr(b.ctx, b.store, from); !isHalted(err, "G1") {
			b.Errorf("from %d: %v", from, err)
		}
	}
}

// laterAppend appends a while a reader waits; wait is for its end.
func (b *bed) laterAppend(a ledger.Append) (wait func()) {
	done := make(chan struct{})
	time.AfterFunc(20*time.Millisecond, func() {
		defer close(done)
		if _, err := retrying(b.ctx, b.store, a); err != nil {
			b.Error(err)
		}
	})
	return func() { <-done }
}

func readFromHead(b *bed) {
	b.some(3)
	defer b.laterAppend(b.commit("p", "four"))()
	if m := take(b, b.ctx, b.store, 4, 1)[0]; m.Sequence != 4 || string(m.Data) != "four" {
		b.Fatalf("read %+v", m)
	}
}

func readEmpty(b *bed) {
	defer b.laterAppend(b.commit("p", "one"))()
	if m := take(b, b.ctx, b.store, 1, 1)[0]; m.Sequence != 1 || string(m.Data) != "one" {
		b.Fatalf("read %+v", m)
	}
}

func readWhileWriting(b *bed) {
	const writers, each = 4, 25
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if _, err := retrying(b.ctx, []ledger.Store{b.store, b.other}[w%2],
					b.commit(fmt.Sprint(w), fmt.Sprint(i))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	counts := map[string]int{}
	read, err := taken(b.ctx, b.store, 1, writers*each)
	group.Wait()
	if err != nil {
		b.Fatal(err)
	}
	for i, m := range read {
		if m.Sequence != uint64(i+1) || string(m.Data) != fmt.Sprint(counts[m.Subject]) {
			b.Errorf("message %d: %+v", i+1, m)
		}
		counts[m.Subject]++
	}
	b.wantLast(writers * each)
}

func twoReaders(b *bed) {
	b.some(20)
	var both [2][]ledger.Message
	var group sync.WaitGroup
	for i, s := range []ledger.Store{b.store, b.other} {
		group.Go(func() {
			var err error
			if both[i], err = taken(b.ctx, s, 1, 20); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
	if fmt.Sprint(both[0]) != fmt.Sprint(both[1]) {
		b.Fatalf("%v and %v", both[0], both[1])
	}
}

func get(b *bed) {
	b.some(3)
	for _, at := range []uint64{1, 3} {
		m, err := b.store.Get(b.ctx, at)
		if err != nil || m.Sequence != at || m.Subject != b.subject("agent.a1.p") || string(m.Data) != fmt.Sprint(at) {
			b.Fatalf("%+v, %v", m, err)
		}
	}
	for _, sequence := range []uint64{0, 4, 1 << 40} {
		if _, err := b.store.Get(b.ctx, sequence); !isRefused(err, "sequence") {
			b.Errorf("get %d: %v", sequence, err)
		}
	}
}

func getAsRead(b *bed) {
	b.some(2)
	b.put(b.subject("fact.sensor"), ledger.ContentTypeJSON, []byte(`{}`))
	for _, m := range take(b, b.ctx, b.store, 1, 3) {
		got, err := b.store.Get(b.ctx, m.Sequence)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(m) {
			b.Fatalf("get %+v, read %+v, %v", got, m, err)
		}
	}
}

func foreign(b *bed) {
	b.put(b.subject("fact.sensor"), ledger.ContentTypeJSON, []byte(`{"records":[]}`))
	b.put(b.subject("not.a.class"), "text/plain", nil)
	read := take(b, b.ctx, b.store, 1, 2)
	if read[0].ContentType != ledger.ContentTypeJSON || string(read[0].Data) != `{"records":[]}` ||
		read[0].Subject != b.subject("fact.sensor") {
		b.Fatalf("read %+v", read[0])
	}
	if read[1].ContentType != "text/plain" || len(read[1].Data) != 0 || read[1].Subject != b.subject("not.a.class") {
		b.Fatalf("read %+v", read[1])
	}
	m, err := b.store.Get(b.ctx, 1)
	if err != nil || m.ContentType != ledger.ContentTypeJSON {
		b.Fatalf("get %+v, %v", m, err)
	}
}

func stampsRise(b *bed) {
	b.some(10)
	read := take(b, b.ctx, b.store, 1, 10)
	for i, m := range read[1:] {
		if m.StampNs <= read[i].StampNs {
			b.Errorf("stamp %d at %d, %d before it", m.StampNs, m.Sequence, read[i].StampNs)
		}
	}
}

func endedReads(b *bed) {
	b.some(1)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	_, getErr := b.store.Get(ctx, 1)
	_, headErr := b.store.Head(ctx)
	for what, err := range map[string]error{"read": readErr(ctx, b.store, 1), "get": getErr, "head": headErr} {
		if !errors.Is(err, context.Canceled) {
			b.Errorf("%s: %v", what, err)
		}
	}
}

func lostMiddle(b *bed) {
	b.fragile()
	b.some(9)
	b.lose(5)
	if h := headOf(b, b.store); h.First != 1 || h.Last != 9 || h.Deleted != 1 {
		b.Fatalf("head %+v", h)
	}
	for _, from := range []uint64{1, 5, 7} {
		if err := readErr(b.ctx, b.store, from); !isHalted(err, "G1") {
			b.Errorf("read from %d: %v", from, err)
		}
	}
	if _, err := b.store.Get(b.ctx, 5); !isHalted(err, "G1") {
		b.Errorf("get: %v", err)
	}
	for _, beside := range []uint64{4, 6} {
		if m, err := b.store.Get(b.ctx, beside); err != nil || m.Sequence != beside {
			b.Errorf("get beside the hole: %+v, %v", m, err)
		}
	}
	b.must(b.commit("p", "behind the hole"), 10)
}

func lostFirst(b *bed) {
	b.fragile()
	b.some(4)
	b.lose(1)
	b.lose(2)
	if h := headOf(b, b.store); h.First != 3 || h.Last != 4 || h.Deleted != 0 {
		b.Fatalf("head %+v", h)
	}
	for _, from := range []uint64{1, 2} {
		if err := readErr(b.ctx, b.store, from); !isHalted(err, "G1") {
			b.Errorf("read from %d: %v", from, err)
		}
		if _, err := b.store.Get(b.ctx, from); !isHalted(err, "G1") {
			b.Errorf("get %d: %v", from, err)
		}
	}
	if read := take(b, b.ctx, b.store, 3, 2); read[0].Sequence != 3 {
		b.Fatalf("read %+v", read)
	}
}

func lostLast(b *bed) {
	b.fragile()
	b.some(4)
	b.lose(4)
	if h := headOf(b, b.store); h.First != 1 || h.Last != 4 || h.Deleted != 1 {
		b.Fatalf("head %+v", h)
	}
	if err := readErr(b.ctx, b.store, 1); !isHalted(err, "G1") {
		b.Errorf("read: %v", err)
	}
	if _, err := b.store.Get(b.ctx, 4); !isHalted(err, "G1") {
		b.Errorf("get: %v", err)
	}
	b.must(b.commit("p", "next"), 5)
}

func lostAll(b *bed) {
	b.fragile()
	b.some(2)
	b.lose(1)
	b.lose(2)
	if h := headOf(b, b.store); h.First != 3 || h.Last != 2 || h.Deleted != 0 {
		b.Fatalf("head %+v", h)
	}
	if err := readErr(b.ctx, b.store, 1); !isHalted(err, "G1") {
		b.Errorf("read: %v", err)
	}
	b.must(b.commit("p", "next"), 3)
	if m := take(b, b.ctx, b.store, 3, 1)[0]; m.Sequence != 3 {
		b.Fatalf("read %+v", m)
	}
}

func lostFence(b *bed) {
	b.fragile()
	b.must(b.fenced(b.term(), "term 1", 0), 1)
	b.must(b.fenced(b.term(), "term 2", 1), 2)
	b.must(b.commit("p", "between"), 3)
	b.must(b.fenced(b.term(), "term 3", 2), 4)
	b.lose(2)
	b.must(b.fenced(b.executor(), "of term 3", 4), 5)
	b.lose(4)
	b.conflict(b.fenced(b.executor(), "of term 3", 4))
	b.must(b.fenced(b.executor(), "of term 1", 1), 6)
	b.lose(1)
	b.conflict(b.fenced(b.executor(), "of term 1", 1))
	b.must(b.fenced(b.executor(), "of no term", 0), 7)
}

// tailReader reads a fragile ledger of n commits to its end, and takes the network
// away.
func (b *bed) tailReader(n int) (next func() (ledger.Message, error, bool), stop func()) {
	b.Helper()
	s, _ := b.faulty()
	b.fragile()
	b.some(n)
	next, stop = iter.Pull2(s.Read(b.ctx, 1))
	for range n {
		if m, err, _ := next(); err != nil {
			b.Fatalf("%+v, %v", m, err)
		}
	}
	b.sever()
	return next, stop
}

func lostTail(b *bed) {
	next, stop := b.tailReader(6)
	defer stop()
	b.cut(3)
	b.heal()
	if m, err, _ := next(); !isHalted(err, "G1") {
		b.Fatalf("%+v, %v", m, err)
	}
	b.must(b.commit("p", "takes a lost sequence"), 4)
}

func regrownTail(b *bed) {
	next, stop := b.tailReader(6)
	defer stop()
	b.cut(3)
	for i := range 5 {
		b.must(b.commit("p", fmt.Sprint("another ", i)), uint64(i+4))
	}
	b.heal()
	if m, err, _ := next(); !isHalted(err, "G2") {
		b.Fatalf("%+v, %v", m, err)
	}
}

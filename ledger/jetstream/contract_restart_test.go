package jetstream_test

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
)

var restartCases = []restartCase{
	{"an empty store is empty and takes the first record", 0, restartEmpty},
	{"the head is the same and sequences go on", 0, restartHead},
	{"messages are the same, stamps and content types included", 0, restartMessages},
	{"ids are remembered", 0, restartIDs},
	{"ids that were forgotten stay forgotten", 0, restartForgotten},
	{"fences hold", 0, restartFences},
	{"a claim retried after it gets its sequence", 0, restartClaim},
	{"an append that was lost before is stored once after", 0, restartLostRequest},
	{"an append whose ack was lost before gets its sequence after", 0, restartLostReply},
	{"a reader follows across", 0, restartFollow},
	{"a reader that waits at the head goes on", 0, restartWaiting},
	{"a lost record stays lost, and its fence stays back", 0, restartLost},
	{"a full store is full", 200 << 10, restartFull},
}

func restartEmpty(b *bed) func() {
	head := headOf(b, b.store)
	return func() {
		if again := headOf(b, b.store); again != head {
			b.Fatalf("head %+v, was %+v", again, head)
		}
		b.must(b.commit("p", "first"), 1)
	}
}

func restartHead(b *bed) func() {
	b.some(12)
	head := headOf(b, b.store)
	return func() {
		if again := headOf(b, b.store); again != head {
			b.Fatalf("head %+v, was %+v", again, head)
		}
		b.must(b.commit("p", "next"), 13)
		b.wantLast(13)
	}
}

func restartMessages(b *bed) func() {
	b.some(8)
	b.put(b.subject("fact.sensor"), ledger.ContentTypeJSON, []byte(`{"records":[]}`))
	b.put(b.subject("no.class"), "text/plain", nil)
	before := take(b, b.ctx, b.store, 1, 10)
	return func() {
		if after := take(b, b.ctx, b.store, 1, 10); fmt.Sprint(after) != fmt.Sprint(before) {
			b.Fatalf("%v, was %v", after, before)
		}
		b.must(b.commit("p", "next"), 11)
		if m, err := b.store.Get(b.ctx, 11); err != nil || m.StampNs <= before[9].StampNs {
			b.Fatalf("%+v, %v", m, err)
		}
	}
}

func restartIDs(b *bed) func() {
	one, two := b.commit("p", "one"), b.commit("p", "two")
	b.must(one, 1)
	b.must(two, 2)
	return func() {
		b.must(two, 2)
		b.must(one, 1)
		b.wantLast(2)
	}
}

func restartForgotten(b *bed) func() {
	a := b.commit("p", "one")
	b.must(a, 1)
	b.expire()
	return func() {
		last := headOf(b, b.store).Last
		b.must(a, last+1)
	}
}

func restartFences(b *bed) func() {
	b.must(b.fenced(b.term(), "term 1", 0), 1)
	b.must(b.fenced(b.term(), "term 2", 1), 2)
	return func() {
		b.conflict(b.fenced(b.executor(), "of term 1", 1))
		b.conflict(b.fenced(b.term(), "a first claim", 0))
		b.must(b.fenced(b.executor(), "of term 2", 2), 3)
	}
}

func restartClaim(b *bed) func() {
	claim := b.fenced(b.term(), "term 1", 0)
	b.must(claim, 1)
	return func() {
		b.must(claim, 1)
		b.must(b.fenced(b.term(), "term 2", 1), 2)
		b.must(claim, 1)
		b.wantLast(2)
	}
}

func restartLostRequest(b *bed) func() {
	s, next := b.faulty()
	a := b.commit("p", "lost")
	next(ledger.FaultLost)
	b.inDoubt(s, a)
	return func() {
		b.must(a, 1)
		b.must(a, 1)
		b.wantLast(1)
	}
}

func restartLostReply(b *bed) func() {
	s, next := b.faulty()
	a := b.commit("p", "kept")
	next(ledger.FaultKept)
	b.inDoubt(s, a)
	return func() {
		b.must(a, 1)
		b.wantLast(1)
	}
}

func restartFollow(b *bed) func() {
	b.some(5)
	next, stop := iter.Pull2(b.store.Read(b.ctx, 1))
	b.Cleanup(stop)
	step := func(want uint64) {
		b.Helper()
		if m, err, ok := next(); !ok || err != nil || m.Sequence != want {
			b.Fatalf("read %+v, %v, %v; want %d", m, err, ok, want)
		}
	}
	step(1)
	step(2)
	return func() {
		b.must(b.commit("p", "6"), 6)
		for want := uint64(3); want <= 6; want++ {
			step(want)
		}
	}
}

func restartWaiting(b *bed) func() {
	b.some(2)
	got := make(chan ledger.Message, 1)
	go func() { // ends with the message, or with the case's context
		for m, err := range b.store.Read(b.ctx, 3) {
			if err == nil {
				got <- m
			}
			return
		}
	}()
	return func() {
		b.must(b.commit("p", "three"), 3)
		select {
		case m := <-got:
			if m.Sequence != 3 || string(m.Data) != "three" {
				b.Fatalf("read %+v", m)
			}
		case <-b.ctx.Done():
			b.Fatal("the reader sleeps")
		}
	}
}

func restartLost(b *bed) func() {
	b.fragile()
	b.must(b.fenced(b.term(), "term 1", 0), 1)
	b.must(b.fenced(b.term(), "term 2", 1), 2)
	b.must(b.commit("p", "three"), 3)
	b.lose(2)
	return func() {
		if h := headOf(b, b.store); h.First != 1 || h.Last != 3 || h.Deleted != 1 {
			b.Fatalf("head %+v", h)
		}
		if err := readErr(b.ctx, b.store, 1); !isHalted(err, "G1") {
			b.Errorf("read: %v", err)
		}
		b.conflict(b.fenced(b.executor(), "of term 2", 2))
		b.must(b.fenced(b.executor(), "of term 1", 1), 4)
	}
}

func restartFull(b *bed) func() {
	b.fill(60 << 10)
	return func() {
		if _, err := retrying(b.ctx, b.store, b.commit("p", strings.Repeat("x", 60<<10))); !errors.Is(err,
			ledger.ErrFull) {
			b.Fatalf("%v", err)
		}
		b.wantLast(3)
		b.must(b.commit("p", "small"), 4)
	}
}

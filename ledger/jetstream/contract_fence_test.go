package jetstream_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sagenbaum/sagenbaum/ledger"
)

var fenceCases = []caseOf{
	{"a fence holds back what comes after it moved", 0, fence},
	{"a stored fenced append is no conflict when retried", 0, fencedRetry},
	{"a fence on a subject without records is 0", 0, fenceZero},
	{"a fence on its own subject is a chain", 0, fenceOwn},
	{"a fence on another subject than the one appended to", 0, fenceOther},
	{"a fence is the last sequence of its subject, not any of it", 0, fenceExact},
	{"what a foreign client puts moves a fence", 0, fenceForeign},
	{"a sequence without a fence subject is no fence", 0, fenceWithoutSubject},
	{"of concurrent claims of one fence one wins", 0, concurrentClaims},
	{"a known id whose fence holds gets its sequence", 0, knownFenceHolds},
	{"a known id whose fence moved, last of its subject, gets its sequence", 0, knownFenceMovedLast},
	{"a known id whose fence moved, behind its subject's last", 0, knownFenceMovedBehind},
	{"a known id on another subject whose fence moved", 0, knownFenceMovedElsewhere},
	{"a forgotten id whose fence moved, last of its subject, gets its sequence", 0, forgottenFenceMovedLast},
	{"a forgotten id whose fence moved, behind its subject's last, is a conflict", 0, forgottenFenceMovedBehind},
	{"a forgotten id whose fence holds is stored again", 0, forgottenFenceHolds},
	{"a claim whose ack is lost has won when retried", 0, claimReplyLost},
	{"a claim whose ack is lost, and then another's claim", 0, claimReplyLostThenOther},
	{"a claim that is lost, and then another's claim, is a conflict", 0, claimLostThenOther},
}

func fence(b *bed) {
	one := b.must(b.fenced(b.term(), "term 1", 0), 1)
	b.must(b.commit("p", "an agent's append moves no fence"), 2)
	b.must(b.fenced(b.executor(), "decision of term 1", one), 3)
	two := b.must(b.fenced(b.term(), "term 2", one), 4)
	b.conflict(b.fenced(b.executor(), "late decision of term 1", one))
	for _, fence := range []uint64{one, 0, 9} {
		if last := b.conflict(b.fenced(b.term(), "claim", fence)); last != two {
			b.Errorf("a claim fenced on %d is told %d, want %d", fence, last, two)
		}
	}
	b.wantLast(4)
	b.must(b.fenced(b.executor(), "decision of term 2", two), 5)
}

func fencedRetry(b *bed) {
	claim := b.fenced(b.term(), "term 1", 0)
	first := b.must(claim, 1)
	b.must(claim, first)
	decision := b.fenced(b.executor(), "decision of term 1", first)
	b.must(decision, 2)
	b.must(b.fenced(b.term(), "term 2", first), 3)
	b.must(decision, 2)
	b.wantLast(3)
}

func fenceZero(b *bed) {
	b.must(b.commit("p", "something else"), 1)
	if last := b.conflict(b.fenced(b.term(), "wrong", 1)); last != 0 {
		b.Errorf("told %d, want 0", last)
	}
	b.must(b.fenced(b.term(), "right", 0), 2)
}

func fenceOwn(b *bed) {
	last := uint64(0)
	for i := range 5 {
		b.conflict(b.fenced(b.term(), "ahead", last+1))
		last = b.must(b.fenced(b.term(), fmt.Sprint(i), last), uint64(i+1))
	}
	b.wantLast(5)
}

func fenceOther(b *bed) {
	plan := b.must(b.commit("p", "a plan"), 1)
	a := b.commit("q", "beside it")
	a.FenceSubject, a.Fence = b.subject("agent.a1.p"), plan
	b.must(a, 2)
	b.must(b.commit("q", "moves not the fence"), 3)
	a = b.commit("q", "beside it again")
	a.FenceSubject, a.Fence = b.subject("agent.a1.p"), plan
	b.must(a, 4)
	b.must(b.commit("p", "moves it"), 5)
	a = b.commit("q", "too late")
	a.FenceSubject, a.Fence = b.subject("agent.a1.p"), plan
	b.conflict(a)
	b.wantLast(5)
}

func fenceExact(b *bed) {
	b.must(b.fenced(b.term(), "term 1", 0), 1)
	b.must(b.commit("p", "between"), 2)
	b.must(b.fenced(b.term(), "term 2", 1), 3)
	for _, wrong := range []uint64{0, 1, 2, 4, 1 << 40} {
		b.conflict(b.fenced(b.executor(), fmt.Sprint(wrong), wrong))
	}
	b.must(b.fenced(b.executor(), "right", 3), 4)
}

func fenceForeign(b *bed) {
	b.put(b.term(), "text/plain", []byte("anything"))
	b.conflict(b.fenced(b.term(), "term 1", 0))
	b.must(b.fenced(b.term(), "term 1", 1), 2)
}

func fenceWithoutSubject(b *bed) {
	a := b.commit("p", "unfenced")
	a.Fence = 99
	b.must(a, 1)
}

func concurrentClaims(b *bed) {
	var won, lost atomic.Int32
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			_, err := retrying(b.ctx, []ledger.Store{b.store, b.other}[i%2],
				b.fenced(b.term(), fmt.Sprint("claim ", i), 0))
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, ledger.ErrConflict):
				lost.Add(1)
			default:
				b.Error(err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 || lost.Load() != 7 {
		b.Fatalf("%d won, %d lost", won.Load(), lost.Load())
	}
	b.wantLast(1)
}

func knownFenceHolds(b *bed) {
	term := b.must(b.fenced(b.term(), "term 1", 0), 1)
	a := b.fenced(b.executor(), "one", term)
	b.must(a, 2)
	b.must(b.fenced(b.executor(), "two", term), 3)
	b.must(a, 2)
	b.wantLast(3)
}

func knownFenceMovedLast(b *bed) {
	claim := b.fenced(b.term(), "term 1", 0) // moves its own fence
	b.must(claim, 1)
	b.must(claim, 1)
	b.must(b.commit("p", "elsewhere"), 2)
	b.must(claim, 1)
	b.wantLast(2)
}

func knownFenceMovedBehind(b *bed) {
	claim := b.fenced(b.term(), "term 1", 0)
	b.must(claim, 1)
	b.must(b.fenced(b.term(), "term 2", 1), 2)
	b.must(claim, 1)
	b.wantLast(2)
}

func knownFenceMovedElsewhere(b *bed) {
	claim := b.fenced(b.term(), "term 1", 0)
	b.must(claim, 1)
	claim.Subject = b.executor()
	b.must(claim, 1)
	b.wantLast(1)
}

func forgottenFenceMovedLast(b *bed) {
	claim := b.fenced(b.term(), "term 1", 0)
	b.must(claim, 1)
	b.expire()
	last := headOf(b, b.store).Last
	b.must(claim, 1)
	b.wantLast(last)
}

func forgottenFenceMovedBehind(b *bed) {
	claim := b.fenced(b.term(), "term 1", 0)
	b.must(claim, 1)
	b.must(b.fenced(b.term(), "term 2", 1), 2)
	b.expire()
	b.conflict(claim)
}

func forgottenFenceHolds(b *bed) {
	term := b.must(b.fenced(b.term(), "term 1", 0), 1)
	a := b.fenced(b.executor(), "decision", term)
	b.must(a, 2)
	b.expire()
	last := headOf(b, b.store).Last
	b.must(a, last+1)
}

func claimReplyLost(b *bed) {
	s, next := b.faulty()
	claim := b.fenced(b.term(), "term 1", 0)
	next(ledger.FaultKept)
	b.inDoubt(s, claim)
	if seq := mustAppend(b, b.ctx, s, claim); seq != 1 {
		b.Fatalf("the retry got %d", seq)
	}
	b.wantLast(1)
}

func claimReplyLostThenOther(b *bed) {
	s, next := b.faulty()
	claim := b.fenced(b.term(), "term 1", 0)
	next(ledger.FaultKept)
	b.inDoubt(s, claim)
	b.wantLast(1)
	b.must(b.fenced(b.term(), "term 2", 1), 2)
	b.must(claim, 1)
	b.wantLast(2)
}

func claimLostThenOther(b *bed) {
	s, next := b.faulty()
	claim := b.fenced(b.term(), "term 1", 0)
	next(ledger.FaultLost)
	b.inDoubt(s, claim)
	b.must(b.fenced(b.term(), "another's term 1", 0), 1)
	if _, err := retrying(b.ctx, s, claim); !errors.Is(err, ledger.ErrConflict) {
		b.Fatalf("%v", err)
	}
	b.wantLast(1)
}

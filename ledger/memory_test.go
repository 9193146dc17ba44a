package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// memory returns a store whose stamps count from 1.
func memory() *ledger.Memory {
	var clock int64
	return ledger.NewMemory("t", func() int64 { clock++; return clock })
}

func appendOf(n int) ledger.Append {
	return ledger.Append{Subject: "saga.t.agent.a1.p", ID: fmt.Sprintf("%032x", n), Data: fmt.Appendf(nil, "data %d", n)}
}

func fill(t *testing.T, m *ledger.Memory, n int) {
	t.Helper()
	for i := range n {
		if _, err := m.Append(t.Context(), appendOf(i+1)); err != nil {
			t.Fatal(err)
		}
	}
}

func readErr(ctx context.Context, s ledger.Store, from uint64) (read int, err error) {
	for _, err := range s.Read(ctx, from) {
		if err != nil {
			return read, err
		}
		read++
	}
	return read, nil
}

// Every append is failed in every way; the retry with the same id has one effect.
func TestAFailedAppendThatIsTriedAgainIsStoredOnce(t *testing.T) {
	const appends = 5
	for faulty := range appends {
		for fault, check := range map[ledger.Fault]struct {
			is     func(error) bool
			stored uint64
		}{
			ledger.FaultLost:    {func(err error) bool { return errors.Is(err, ledger.ErrInDoubt) }, 0},
			ledger.FaultKept:    {func(err error) bool { return errors.Is(err, ledger.ErrInDoubt) }, 1},
			ledger.FaultBusy:    {func(err error) bool { return errors.Is(err, ledger.ErrBusy) }, 0},
			ledger.FaultRefused: {func(err error) bool { return refusedField(err) == "stream" }, 0},
		} {
			m, calls := memory(), 0
			m.Fault = func(ledger.Append) ledger.Fault {
				if calls++; calls == faulty+1 {
					return fault
				}
				return ledger.FaultNone
			}
			for i := range appends {
				before, _ := m.Head(t.Context())
				seq, err := m.Append(t.Context(), appendOf(i+1))
				if i == faulty {
					after, _ := m.Head(t.Context())
					if !check.is(err) || after.Last-before.Last != check.stored {
						t.Fatalf("fault %d: %v, stored %d", fault, err, after.Last-before.Last)
					}
					seq, err = m.Append(t.Context(), appendOf(i+1))
				}
				if err != nil || seq != uint64(i+1) {
					t.Fatalf("fault %d at %d: append %d got %d, %v", fault, faulty, i, seq, err)
				}
			}
			if h, _ := m.Head(t.Context()); h.Last != appends {
				t.Fatalf("fault %d at %d: head %+v", fault, faulty, h)
			}
		}
	}
}

func TestAForgottenIDIsStoredASecondTime(t *testing.T) {
	m := memory()
	fill(t, m, 1)
	m.Forget()
	if seq, err := m.Append(t.Context(), appendOf(1)); err != nil || seq != 2 {
		t.Fatalf("%d, %v", seq, err)
	}
}

func TestAMissingRecordHaltsReaders(t *testing.T) {
	m := memory()
	fill(t, m, 9)
	next, stop := iter.Pull2(m.Read(t.Context(), 1))
	defer stop()
	for range 3 {
		if _, err, _ := next(); err != nil {
			t.Fatal(err)
		}
	}
	m.Drop(5)
	if _, err, _ := next(); err != nil {
		t.Fatalf("before the hole: %v", err)
	}
	if _, err, _ := next(); !isHalted(err, "G1") {
		t.Fatalf("at the hole: %v", err)
	}
	if n, err := readErr(t.Context(), m, 7); n != 0 || !isHalted(err, "G1") {
		t.Fatalf("behind the hole: %d, %v", n, err)
	}
	if _, err := m.Get(t.Context(), 5); !isHalted(err, "G1") {
		t.Fatalf("get: %v", err)
	}
	if h, _ := m.Head(t.Context()); h.Deleted != 1 || h.Last != 9 {
		t.Fatalf("head %+v", h)
	}
}

func TestALostTailHaltsWhoHasReadIt(t *testing.T) {
	m := memory()
	fill(t, m, 9)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	next, stop := iter.Pull2(m.Read(ctx, 9))
	defer stop()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	m.Truncate(6)
	if _, err, _ := next(); !isHalted(err, "G1") {
		t.Fatalf("%v", err)
	}
	if _, err := readErr(ctx, m, 10); !isHalted(err, "G1") {
		t.Fatalf("%v", err)
	}
	// What is appended now takes the lost sequences, its old id included.
	if seq, err := m.Append(ctx, appendOf(8)); err != nil || seq != 7 {
		t.Fatalf("%d, %v", seq, err)
	}
	if seq, err := m.Append(ctx, appendOf(6)); err != nil || seq != 6 {
		t.Fatalf("a kept id: %d, %v", seq, err)
	}
}

func TestACorruptedRecordReadsAsItIsNow(t *testing.T) {
	m := memory()
	fill(t, m, 2)
	before, err := m.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m.Corrupt(1, func(msg *ledger.Message) { msg.Data[0] ^= 1 })
	after, err := m.Get(t.Context(), 1)
	if err != nil || string(after.Data) == string(before.Data) || string(before.Data) != "data 1" {
		t.Fatalf("%q, was %q, %v", after.Data, before.Data, err)
	}
}

func TestErrorsReadAsSentences(t *testing.T) {
	for want, err := range map[string]error{
		"refused: a.b: broken; want whole":             ledger.Refuse("a.b", "broken", "whole"),
		"refused: a.b: broken":                         ledger.Refuse("a.b", "broken", ""),
		"halted by G1 at sequence 7: the record is it": &ledger.Halted{Guard: "G1", Sequence: 7, Problem: "the record is it"},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// failing is a store whose records cannot be read back.
type failing struct {
	ledger.Store
	err error
}

func (f failing) Get(context.Context, uint64) (ledger.Message, error) { return ledger.Message{}, f.err }

// TestAnArchiveTellsALostLedgerFromOneThatIsNotThere.
func TestAnArchiveTellsALostLedgerFromOneThatIsNotThere(t *testing.T) {
	t.Parallel()
	at := &pb.Address{Sequence: 7, Leaf: make([]byte, ledger.LeafSize)}
	var halted *ledger.Halted
	var refused *ledger.Refused
	if _, err := NewArchive("t", failing{err: &ledger.Halted{Guard: "G1"}}).Value(at, "k"); !errors.As(err, &halted) {
		t.Errorf("missing: %v", err)
	}
	_, err := NewArchive("t", failing{err: ledger.Refuse("sequence", "7", "less")}).Value(at, "k")
	if errors.As(err, &halted) || errors.As(err, &refused) || err == nil {
		t.Errorf("behind the end, which ends no process: %v", err)
	}
	if _, err := NewArchive("t", nil).Value(at, "k"); err == nil {
		t.Error("no ledger has a value")
	}
	records := ledger.NewMemory("t", func() int64 { return time.Now().UnixNano() })
	data, err := ledger.EncodeCommit(
		[]*pb.Record{{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("1")}}}})
	if err != nil {
		t.Fatal(err)
	}
	sequence := records.Put(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "desk"}.Subject(), "", data)
	m, err := records.Get(t.Context(), sequence)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := ledger.Decode("t", m)
	if err != nil {
		t.Fatal(err)
	}
	a := NewArchive("t", records)
	for range 2 { // the second time from memory
		if value, err := a.Value(entries[0].Address, "k"); err != nil || string(value) != "1" {
			t.Fatalf("%s %v", value, err)
		}
		records.Drop(sequence)
	}
}

package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Archive is the ledger as the state reads it back: the values of evicted facts.
// The ledger never changes, so that the same question always has the same answer.
type Archive interface {
	// Value returns the value that the record at an address asserted of key. Errors:
	// *ledger.Halted when the ledger has another record there; otherwise what kept
	// it from being read, which may pass.
	Value(at *pb.Address, key string) (json.RawMessage, error)
}

// ErrArchive is in the *StoreError that a state panics with when its archive does
// not answer. The rows are as good as before: try again, do not fold again.
var ErrArchive = errors.New("the ledger cannot be read back")

// FactAt reads the value of a fact out of the message that asserted it, and holds
// the record to its leaf. Errors: *ledger.Halted (guard G2) when it is another.
func FactAt(tenant string, m ledger.Message, at *pb.Address, key string) (json.RawMessage, error) {
	entries, err := ledger.Decode(tenant, m)
	if err != nil {
		return nil, err
	}
	if m.Sequence == at.Sequence && int(at.Index) < len(entries) {
		e := entries[at.Index]
		if k := e.Record.GetFactAsserted(); e.Err == nil && sameAddress(e.Address, at) &&
			k.GetKey() == key {
			return k.Value, nil
		}
	}
	return nil, &ledger.Halted{Guard: "G2", Sequence: at.Sequence, Problem: fmt.Sprintf(
		"fact %q was folded from %s, and the stream has another record there", key,
		ledger.FormatFullAddress(at))}
}

// recall reads the value of an evicted fact.
func (s *State) recall(key string, row *rowspb.FactRow) json.RawMessage {
	if s.archive == nil {
		panic(&rows.StoreError{Op: "get",
			Err: fmt.Errorf("%w: the value of fact %q at %s: there is no archive", ErrArchive, key,
				ledger.FormatAddress(row.Source))})
	}
	value, err := s.archive.Value(row.Source, key)
	if err == nil && !hashes(row, value) {
		err = &ledger.Halted{Guard: "G2", Sequence: row.Source.GetSequence(),
			Problem: fmt.Sprintf("fact %q has another value than the one that was evicted", key)}
	}
	if err != nil {
		panic(&rows.StoreError{Op: "get", Err: fmt.Errorf("%w: the value of fact %q at %s: %w",
			ErrArchive, key, ledger.FormatAddress(row.Source), err)})
	}
	return value
}

// missesMax bounds the facts that are remembered because a lease missed them.
const missesMax = 256

// missed is recall for a lease. That the value was read is no state, so that no row
// depends on how conditions are evaluated: what a restart forgets, the next read
// notes again.
func (s *State) missed(key string, row *rowspb.FactRow) json.RawMessage {
	s.miss(key)
	return s.recall(key, row)
}

func (s *State) miss(key string) {
	if at, found := slices.BinarySearch(s.misses, key); !found && len(s.misses) < missesMax {
		s.misses = slices.Insert(s.misses, at, key)
	}
}

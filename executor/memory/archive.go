package memory

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

// Recall reads the value of an evicted fact.
func (m *Memory) Recall(key string, row *rowspb.FactRow) json.RawMessage {
	if m.archive == nil {
		panic(&rows.StoreError{Op: "get",
			Err: fmt.Errorf("%w: the value of fact %q at %s: there is no archive", ErrArchive, key,
				ledger.FormatAddress(row.Source))})
	}
	value, err := m.archive.Value(row.Source, key)
	if err == nil && !Hashes(row, value) {
		err = &ledger.Halted{Guard: "G2", Sequence: row.Source.GetSequence(),
			Problem: fmt.Sprintf("fact %q has another value than the one that was evicted", key)}
	}
	if err != nil {
		panic(&rows.StoreError{Op: "get", Err: fmt.Errorf("%w: the value of fact %q at %s: %w",
			ErrArchive, key, ledger.FormatAddress(row.Source), err)})
	}
	return value
}

// Value is the value of a fact, wherever it is; nil: there is no such fact now.
func (m *Memory) Value(key string) json.RawMessage {
	switch row := m.Fact(key); {
	case row == nil || row.Retracted:
		return nil
	case row.Evicted != nil:
		return m.Recall(key, row)
	default:
		return row.Value
	}
}

// missesMax bounds the facts that are remembered because a lease missed them.
const missesMax = 256

// recallMissed is Recall for a lease. That the value was read is no state, so that no row
// depends on how conditions are evaluated: what a restart forgets, the next read
// notes again.
func (m *Memory) recallMissed(key string, row *rowspb.FactRow) json.RawMessage {
	m.Miss(key)
	return m.Recall(key, row)
}

// Miss notes a fact that a lease has read and that is evicted.
func (m *Memory) Miss(key string) {
	if at, found := slices.BinarySearch(m.misses, key); !found && len(m.misses) < missesMax {
		m.misses = slices.Insert(m.misses, at, key)
	}
}

// Misses are the evicted facts that leases have read, in ascending order.
func (m *Memory) Misses() []string { return m.misses }

// Quietly has f read facts without a note of what it misses.
func (m *Memory) Quietly(f func()) {
	defer func(misses []string) { m.misses = misses }(slices.Clone(m.misses))
	f()
}

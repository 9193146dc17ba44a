package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Bounds of what is read back from a ledger.
const (
	archiveTimeout  = 5 * time.Second // for one record
	archiveBytesMax = 4 << 20         // values that are kept in memory
)

// Archive reads the values of evicted facts back from the ledger. It belongs to one
// goroutine.
type Archive struct {
	tenant  string
	records ledger.Store
	values  map[string]json.RawMessage // by leaf; a leaf never has another value
	bytes   int
}

// NewArchive reads from a ledger; nil: it is not open yet.
func NewArchive(tenant string, records ledger.Store) *Archive {
	return &Archive{tenant: tenant, records: records, values: map[string]json.RawMessage{}}
}

// Value implements memory.Archive.
func (a *Archive) Value(at *pb.Address, key string) (json.RawMessage, error) {
	if value, ok := a.values[string(at.Leaf)]; ok {
		return value, nil
	}
	if a.records == nil {
		return nil, errors.New("the ledger is not open yet")
	}
	m, err := ReadBack(a.records, at.Sequence)
	if err != nil {
		return nil, err
	}
	value, err := executor.FactAt(a.tenant, m, at, key)
	if err != nil {
		return nil, err
	}
	if a.bytes += len(value); a.bytes > archiveBytesMax {
		clear(a.values)
		a.bytes = len(value)
	}
	a.values[string(at.Leaf)] = value
	return value, nil
}

// ReadBack reads one message. Only a *ledger.Halted keeps its type: whatever else
// goes wrong may pass.
func ReadBack(records ledger.Store, sequence uint64) (ledger.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), archiveTimeout)
	defer cancel()
	m, err := records.Get(ctx, sequence)
	var halted *ledger.Halted
	if err != nil && !errors.As(err, &halted) {
		err = fmt.Errorf("cannot read sequence %d: %v", sequence, err)
	}
	return m, err
}

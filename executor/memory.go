package executor

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Working memory: the facts as of a sequence. What is in memory counts against the
// tenant's capacity with its key and value. An eviction is a record that takes a
// value out and leaves a stub; its compensation, a re-ingestion, brings it back
// from the ledger (S82). Neither changes the answer of a condition.

// size is what a fact in memory counts for, in bytes.
func size(key string, row *rowspb.FactRow) uint64 { return uint64(len(key) + len(row.Value)) }

// resident reports whether a fact's value is in memory.
func resident(row *rowspb.FactRow) bool { return !row.Retracted && row.Evicted == nil }

// sameValue reports whether a fact has this value, in memory or not.
func sameValue(row *rowspb.FactRow, value []byte) bool {
	switch {
	case row.Retracted:
		return false
	case row.Evicted == nil:
		return bytes.Equal(row.Value, value)
	default:
		return row.Size == uint64(len(value)) && hashes(row, value)
	}
}

func hashes(row *rowspb.FactRow, value []byte) bool {
	digest := sha256.Sum256(value)
	return bytes.Equal(row.Digest, digest[:])
}

// residentStep is how fine the order of evictions is, in ns: a fact that is asserted
// all the time moves in it once a minute.
const residentStep = int64(60e9)

// renew takes the row of a new assertion for the old one, which may be nil.
func (s *State) renew(key string, old, row *rowspb.FactRow) {
	if old != nil && resident(old) && old.Asked == nil && row.SinceNs-old.SinceNs < residentStep {
		row.SinceNs = old.SinceNs
		s.meta.FactBytes += size(key, row) - size(key, old)
		if size(key, row) != size(key, old) {
			s.setLarge(key, size(key, old), false)
			s.setLarge(key, size(key, row), true)
		}
		s.writeFact(key, row)
		return
	}
	if old != nil {
		s.leave(key, old)
	}
	s.enter(key, row)
}

// largeMin is from which size on, in bytes, the facts in memory are listed by it.
// A capacity below it needs no list: there, what is in memory beyond the facts that
// one turn looks at must go anyway, for each takes two bytes.
const largeMin = 4 << 10

func (s *State) setLarge(key string, bytes uint64, on bool) {
	switch {
	case bytes < largeMin:
	case on:
		rows.Large.Add(s.tx, rows.Numbered{N: bytes, Name: key})
	default:
		rows.Large.Delete(s.tx, rows.Numbered{N: bytes, Name: key})
	}
}

// enter writes a fact's row and counts it.
func (s *State) enter(key string, row *rowspb.FactRow) {
	switch {
	case row.Retracted:
		s.meta.Tombstones++
	case row.Evicted != nil:
		s.meta.Evicted++
	default:
		s.meta.Facts++
		s.meta.FactBytes += size(key, row)
		rows.Residents.Add(s.tx, rows.Numbered{N: uint64(row.SinceNs), Name: key})
		s.setLarge(key, size(key, row), true)
	}
	s.writeFact(key, row)
}

// leave takes back what enter has counted, before the row changes, and with it
// what was asked about the fact as it was.
func (s *State) leave(key string, row *rowspb.FactRow) {
	switch {
	case row.Source == nil && row.Tombstone == nil: // a row that is not written yet
	case row.Retracted:
		s.meta.Tombstones--
	case row.Evicted != nil:
		s.meta.Evicted--
		s.misses = slices.DeleteFunc(s.misses, func(k string) bool { return k == key })
	default:
		s.meta.Facts--
		s.meta.FactBytes -= size(key, row)
		rows.Residents.Delete(s.tx, rows.Numbered{N: uint64(row.SinceNs), Name: key})
		s.setLarge(key, size(key, row), false)
	}
	if row.Asked != nil {
		s.todo.remove(todoEvict + key)
		s.todo.remove(todoRestore + key)
		row.Asked = nil
	}
}

// Kinds of what is in a fact's chronicle beside its assertions.
const (
	chronicleRetracted  = 'r'
	chronicleEvicted    = 'e'
	chronicleReingested = 'i'
)

// chronicle notes a record about a fact, so that its history needs no walk through
// the ledger.
func (s *State) chronicle(key string, at *pb.Address, kind byte) {
	rows.Chronicle.Put(s.tx, rows.NamedPlace{Name: key, At: rows.At(at)}, []byte{kind})
}

// latestMax bounds the evictions that are listed.
const latestMax = 100

// noteEviction keeps the latest evictions in a list.
func (s *State) noteEviction(key string, at *pb.Address) {
	s.meta.Evictions++
	if s.base != nil {
		return // no one is shown a scratch fold
	}
	rows.Evictions.Put(s.tx, rows.At(at), []byte(key))
	if s.meta.Evictions > latestMax {
		prefix := rows.Chronicle.WithinSized("")
		var oldest []byte
		for k := range s.tx.Scan(prefix, rows.After(prefix)) {
			oldest = bytes.Clone(k)
			break
		}
		s.tx.Delete(oldest)
	}
}

// standingFact is the fact under a key, in memory or evicted, or why there is none.
func (s *State) standingFact(key string) (row *rowspb.FactRow, gone string) {
	switch row = s.fact(key); {
	case row == nil:
		return nil, fmt.Sprintf("there is no fact %q", key)
	case row.Retracted:
		return nil, fmt.Sprintf("fact %q was retracted at %s", key, ledger.FormatAddress(row.Tombstone))
	}
	return row, ""
}

// factEvicted takes a value out of memory, if it is still the one that was meant.
func (s *State) factEvicted(e ledger.Entry, k *pb.FactEvicted) Result {
	row, gone := s.standingFact(k.Key)
	switch {
	case gone != "":
		return Result{Void, gone}
	case row.Evicted != nil:
		return void("fact %q was evicted at %s", k.Key, ledger.FormatAddress(row.Evicted))
	case !sameAddress(k.Fact, row.Source):
		return void("fact %q was asserted at %s, not at %s", k.Key, ledger.FormatAddress(row.Source),
			ledger.FormatAddress(k.Fact))
	case e.Record.Cause != nil && !sameAddress(e.Record.Cause, row.Asked):
		return void("nobody asked at %s to evict fact %q", ledger.FormatAddress(e.Record.Cause), k.Key)
	}
	s.leave(k.Key, row)
	digest := sha256.Sum256(row.Value)
	row.Size, row.Digest, row.Evicted, row.Reingested, row.SinceNs, row.Value = uint64(len(row.Value)),
		digest[:], e.Address, nil, 0, nil
	s.enter(k.Key, row)
	s.chronicle(k.Key, e.Address, chronicleEvicted)
	s.noteEviction(k.Key, e.Address)
	return effective
}

// factReingested brings a value back: the very bytes that were evicted.
func (s *State) factReingested(e ledger.Entry, k *pb.FactReingested) Result {
	row, gone := s.standingFact(k.Key)
	switch {
	case gone != "":
		return Result{Void, gone}
	case row.Evicted == nil:
		return void("fact %q is in memory", k.Key)
	case !sameAddress(k.Fact, row.Source), !sameAddress(k.Evicted, row.Evicted):
		return void("fact %q of %s was evicted at %s, not that of %s at %s", k.Key,
			ledger.FormatAddress(row.Source),
			ledger.FormatAddress(row.Evicted), ledger.FormatAddress(k.Fact), ledger.FormatAddress(k.Evicted))
	case !sameAddress(e.Record.Cause, row.Evicted) &&
		(row.Asked == nil || !sameAddress(e.Record.Cause, row.Asked)):
		return void("nobody asked at %s for fact %q", ledger.FormatAddress(e.Record.Cause), k.Key)
	}
	value := k.Value
	if len(value) == 0 {
		value = s.recall(k.Key, row)
	}
	if !hashes(row, value) {
		return void("the value is not the one that fact %q was asserted with at %s", k.Key,
			ledger.FormatAddress(row.Source))
	}
	s.leave(k.Key, row)
	row.Value, row.Evicted, row.Size, row.Digest = value, nil, 0, nil
	row.SinceNs, row.Reingested = s.meta.TimeNs, e.Address
	s.enter(k.Key, row)
	s.chronicle(k.Key, e.Address, chronicleReingested)
	return effective
}

// evictRequested and restoreRequested note what an operator asks for; Decide
// carries it out. A request about several facts is taken whole or not at all.
func (s *State) evictRequested(e ledger.Entry, keys []string) Result {
	return s.requested(e, keys, todoEvict, func(key string, row *rowspb.FactRow) Result {
		if row.Evicted != nil {
			return refused("fact %q is evicted already, at %s", key, ledger.FormatAddress(row.Evicted))
		}
		return effective
	})
}

func (s *State) restoreRequested(e ledger.Entry, keys []string) Result {
	return s.requested(e, keys, todoRestore, func(key string, row *rowspb.FactRow) Result {
		if row.Evicted == nil {
			return refused("fact %q is in memory", key)
		}
		return effective
	})
}

func (s *State) requested(e ledger.Entry, keys []string, todo string,
	allowed func(string, *rowspb.FactRow) Result) Result {
	found := make([]*rowspb.FactRow, len(keys))
	for i, key := range keys {
		row, gone := s.standingFact(key)
		switch {
		case gone != "":
			return Result{Refused, gone}
		case row.Asked != nil:
			return refused("fact %q: the same was asked at %s", key, ledger.FormatAddress(row.Asked))
		}
		if result := allowed(key, row); result.Verdict != Effective {
			return result
		}
		found[i] = row
	}
	for i, key := range keys {
		found[i].Asked = e.Address
		s.writeFact(key, found[i])
		s.todo.add(todo + key)
	}
	return effective
}

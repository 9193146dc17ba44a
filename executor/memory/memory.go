// Package memory is working memory: the facts as of a sequence. What is in memory counts
// against the tenant's capacity with its key and value. An eviction is a record that takes a
// value out and leaves a stub; its compensation, a re-ingestion, brings it back from the ledger
// (S82). Neither changes the answer of a condition.
package memory

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// What is kept in memory of what the rows have: factsMax bounds the facts, factBytesMax what
// these take, of which a row takes about keptBytes beside its value; absentMax the keys that were
// asked for and have no row; viewedBytesMax the values that are kept decoded until the next
// Flush.
const (
	factsMax       = 1 << 20
	factBytesMax   = 256 << 20
	keptBytes      = 384
	absentMax      = 1 << 16
	viewedBytesMax = 8 << 20
)

// Memory is the facts of one state over its rows. It belongs to one goroutine.
type Memory struct {
	tx      *rows.Tx
	base    *Memory      // set in a fork: reads go through to it, writes stay here
	meta    *rowspb.Meta // of the state: its counters of facts
	archive Archive      // has the values of evicted facts; nil where there are none

	facts       *rows.Recent[*keptFact] // by key
	absent      *rows.Recent[struct{}]  // keys that were never asserted
	changed     map[string]*keptFact    // since the last Flush
	changedKeys []string                // in the order in which they did
	viewed      []*keptFact             // those with a view
	viewedBytes int                     // of their values
	misses      []string                // evicted facts that leases have read
	occurred    []occurrence            // what a scratch fold has asserted
	named       map[string]bool         // what a scratch fold has brought, or taken away
}

// Over is the memory whose rows are in tx, and whose counters are in meta.
func Over(tx *rows.Tx, meta *rowspb.Meta, archive Archive) Memory {
	m := Memory{tx: tx, meta: meta, archive: archive, changed: map[string]*keptFact{},
		absent: rows.NewRecent[struct{}](absentMax, 0, nil)}
	m.KeepOnly(factsMax)
	return m
}

// Fork is an overlay over m: what it writes leaves m as it is.
func (m *Memory) Fork(tx *rows.Tx, meta *rowspb.Meta) Memory {
	f := Over(tx, meta, m.archive)
	f.base, f.named = m, map[string]bool{}
	return f
}

// KeepOnly bounds the facts that are kept in memory.
func (m *Memory) KeepOnly(facts int) {
	m.facts = rows.NewRecent(facts, factBytesMax, func(f *keptFact) int {
		return keptBytes + len(f.row.GetValue())
	})
}

// Size is what a fact in memory counts for, in bytes.
func Size(key string, row *rowspb.FactRow) uint64 { return uint64(len(key) + len(row.Value)) }

// Resident reports whether a fact's value is in memory.
func Resident(row *rowspb.FactRow) bool { return !row.Retracted && row.Evicted == nil }

// SameValue reports whether a fact has this value, in memory or not.
func SameValue(row *rowspb.FactRow, value []byte) bool {
	switch {
	case row.Retracted:
		return false
	case row.Evicted == nil:
		return bytes.Equal(row.Value, value)
	default:
		return row.Size == uint64(len(value)) && Hashes(row, value)
	}
}

// unchanged reports whether a fact has this value, however it is written. Holders of before
// ledger.NumbersSince compared bytes.
func (m *Memory) unchanged(row *rowspb.FactRow, value []byte) bool {
	switch {
	case m.meta.HolderFold < ledger.NumbersSince, row.Retracted:
		return SameValue(row, value)
	case row.Evicted == nil:
		return triggers.Same(row.Value, value)
	default:
		same := spelling(value)
		return SameValue(row, value) || same != nil && bytes.Equal(row.Same, same)
	}
}

// spelling is the SHA-256 of the one spelling of a value, or nil where there is none.
func spelling(value []byte) []byte {
	one, ok := triggers.Spelling(value)
	if !ok {
		return nil
	}
	digest := sha256.Sum256(one)
	return digest[:]
}

// Hashes reports whether a value is the one whose SHA-256 an evicted fact has kept.
func Hashes(row *rowspb.FactRow, value []byte) bool {
	digest := sha256.Sum256(value)
	return bytes.Equal(row.Digest, digest[:])
}

// ResidentStep is how fine the order of evictions is, in ns: a fact that is asserted
// all the time moves in it once a minute.
const ResidentStep = int64(60e9)

// Assert takes the row of a new assertion, which has its value, its instant and its record, for
// the one that the key has. asked says whether anything was asked about the fact as it was; that
// is forgotten with it, here and in all that change a fact below.
func (m *Memory) Assert(key string, row *rowspb.FactRow) (asked bool) {
	row.ChangedNs, row.SinceNs = row.AssertedNs, row.AssertedNs
	old := m.Fact(key)
	if old != nil && m.unchanged(old, row.Value) {
		row.ChangedNs = old.ChangedNs
	}
	if old == nil || old.Retracted {
		m.name(key, true)
	}
	if old != nil && Resident(old) && old.Asked == nil && row.SinceNs-old.SinceNs < ResidentStep {
		row.SinceNs = old.SinceNs
		m.meta.FactBytes += Size(key, row) - Size(key, old)
		if Size(key, row) != Size(key, old) {
			m.setLarge(key, Size(key, old), false)
			m.setLarge(key, Size(key, row), true)
		}
		m.put(key, row)
	} else {
		if old != nil {
			asked = m.leave(key, old)
		}
		m.enter(key, row)
	}
	rows.Occurred.Add(m.tx, rows.Occurrence{Key: key, Ns: row.AssertedNs, At: rows.At(row.Source)})
	if m.base != nil { // no scan sees the rows of a scratch fold
		m.occurred = append(m.occurred, occurrence{key, row.AssertedNs})
	}
	return asked
}

// Retract leaves a tombstone of the record at an address in a fact's row: the key stays, and says
// which record ended the fact (S83).
func (m *Memory) Retract(key string, row *rowspb.FactRow, at *pb.Address,
	nowNs int64) (asked bool) {
	asked = m.leave(key, row)
	if !row.Retracted && row.Source != nil {
		m.name(key, false)
	}
	row.Value, row.Evicted, row.Reingested, row.Size, row.Digest, row.SinceNs = nil, nil, nil, 0, nil,
		0
	row.Same = nil
	row.Retracted, row.ChangedNs, row.RetractedNs, row.Tombstone = true, nowNs, nowNs, at
	m.enter(key, row)
	m.note(key, at, notedRetracted)
	return asked
}

// Evict takes the value of a fact out of memory, as the record at an address says.
func (m *Memory) Evict(key string, row *rowspb.FactRow, at *pb.Address) (asked bool) {
	asked = m.leave(key, row)
	digest := sha256.Sum256(row.Value)
	if m.meta.HolderFold >= ledger.NumbersSince {
		row.Same = spelling(row.Value)
	}
	row.Size, row.Digest, row.Evicted, row.Reingested, row.SinceNs, row.Value = uint64(len(row.Value)),
		digest[:], at, nil, 0, nil
	m.enter(key, row)
	m.note(key, at, notedEvicted)
	m.noteEviction(key, at)
	return asked
}

// Reingest brings back the value of an evicted fact, as the record at an address says.
func (m *Memory) Reingest(key string, row *rowspb.FactRow, value []byte, at *pb.Address,
	nowNs int64) (asked bool) {
	asked = m.leave(key, row)
	row.Value, row.Evicted, row.Size, row.Digest, row.Same = value, nil, 0, nil, nil
	row.SinceNs, row.Reingested = nowNs, at
	m.enter(key, row)
	m.note(key, at, notedReingested)
	return asked
}

// Ask notes that the record at an address asks for something to be done with a fact.
func (m *Memory) Ask(key string, row *rowspb.FactRow, at *pb.Address) {
	row.Asked = at
	m.put(key, row)
}

// LargeMin is from which size on, in bytes, the facts in memory are listed by it.
// A capacity below it needs no list: there, what is in memory beyond the facts that
// one turn looks at must go anyway, for each takes two bytes.
const LargeMin = 4 << 10

func (m *Memory) setLarge(key string, bytes uint64, on bool) {
	switch {
	case bytes < LargeMin:
	case on:
		rows.Large.Add(m.tx, rows.Numbered{N: bytes, Name: key})
	default:
		rows.Large.Delete(m.tx, rows.Numbered{N: bytes, Name: key})
	}
}

// enter writes a fact's row and counts it.
func (m *Memory) enter(key string, row *rowspb.FactRow) {
	switch {
	case row.Retracted:
		m.meta.Tombstones++
	case row.Evicted != nil:
		m.meta.Evicted++
	default:
		m.meta.Facts++
		m.meta.FactBytes += Size(key, row)
		rows.Residents.Add(m.tx, rows.Numbered{N: uint64(row.SinceNs), Name: key})
		m.setLarge(key, Size(key, row), true)
	}
	m.put(key, row)
}

// leave takes back what enter has counted, before the row changes, and with it what was
// asked about the fact as it was: asked says whether anything was.
func (m *Memory) leave(key string, row *rowspb.FactRow) (asked bool) {
	switch {
	case row.Source == nil && row.Tombstone == nil: // a row that is not written yet
	case row.Retracted:
		m.meta.Tombstones--
	case row.Evicted != nil:
		m.meta.Evicted--
		m.misses = slices.DeleteFunc(m.misses, func(k string) bool { return k == key })
	default:
		m.meta.Facts--
		m.meta.FactBytes -= Size(key, row)
		rows.Residents.Delete(m.tx, rows.Numbered{N: uint64(row.SinceNs), Name: key})
		m.setLarge(key, Size(key, row), false)
	}
	asked = row.Asked != nil
	row.Asked = nil
	return asked
}

// Kinds of what note notes in a fact's chronicle; its assertions need no note.
const (
	notedRetracted  = 'r'
	notedEvicted    = 'e'
	notedReingested = 'i'
)

// note notes a record about a fact, so that its history needs no walk through
// the ledger.
func (m *Memory) note(key string, at *pb.Address, kind byte) {
	rows.Chronicle.Put(m.tx, rows.NamedPlace{Name: key, At: rows.At(at)}, []byte{kind})
}

// LatestMax bounds the evictions that are listed.
const LatestMax = 100

// noteEviction keeps the latest evictions in a list.
func (m *Memory) noteEviction(key string, at *pb.Address) {
	m.meta.Evictions++
	if m.base != nil {
		return // no one is shown a scratch fold
	}
	rows.Evictions.Put(m.tx, rows.At(at), []byte(key))
	if m.meta.Evictions > LatestMax {
		rows.Evictions.DropOldest(m.tx)
	}
}

// Standing is the fact under a key, in memory or evicted, or why there is none.
func (m *Memory) Standing(key string) (row *rowspb.FactRow, gone string) {
	switch row = m.Fact(key); {
	case row == nil:
		return nil, fmt.Sprintf("there is no fact %q", key)
	case row.Retracted:
		return nil, fmt.Sprintf("fact %q was retracted at %s", key, ledger.FormatAddress(row.Tombstone))
	}
	return row, ""
}

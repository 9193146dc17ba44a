package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The bodies of the questions about working memory; see query.go. Times are unix
// ns, 0 for "not yet" or "none"; addresses are as ledger.FormatAddress.

// States of a fact, as in Fact.
const (
	FactInMemory  = "in memory"
	FactEvicted   = "evicted"   // its value is in the ledger only
	FactRetracted = "retracted" // a tombstone
)

// Fact is one fact.
type Fact struct {
	Key   string `json:"key"`
	State string `json:"state"`
	// Value: none of a tombstone; in lists none of an evicted fact.
	Value json.RawMessage `json:"value,omitempty"`
	// ReadFrom: fact.get of an evicted fact: the ledger, at this address.
	ReadFrom   string `json:"read_from,omitempty"`
	Bytes      uint64 `json:"bytes"`       // of key and value
	AssertedNs int64  `json:"asserted_ns"` // last assertion
	ChangedNs  int64  `json:"changed_ns"`  // last change of value
	// SinceNs: its place in the eviction queue: asserted or brought back then, to the minute.
	SinceNs     int64  `json:"since_ns,omitempty"`
	Asserted    string `json:"asserted,omitempty"`   // address of the last assertion
	By          string `json:"by,omitempty"`         // source; empty: the executor
	Plan        string `json:"plan,omitempty"`       // what it was asserted or retracted for
	Action      string `json:"action,omitempty"`     //
	About       string `json:"about,omitempty"`      // that action's registration
	Compensates bool   `json:"compensates"`          // as the undo of that action
	Cause       string `json:"cause,omitempty"`      // Compensates: the dispatch of that undo
	Evicted     string `json:"evicted,omitempty"`    // address of the eviction in force
	Reingested  string `json:"reingested,omitempty"` // address of what brought it back
	Tombstone   string `json:"tombstone,omitempty"`  // address of the retraction
	RetractedNs int64  `json:"retracted_ns,omitempty"`
	// Asked: address of an operator's request that is not carried out yet.
	Asked    string `json:"asked,omitempty"`
	Watched  bool   `json:"watched"`  // a held lease reads it
	Oversize bool   `json:"oversize"` // memory.queue: larger than the capacity
}

// FactQuery asks for one fact (fact.get), or for its history (fact.history).
type FactQuery struct {
	Key string `json:"key"`
	// Limit: fact.history: the latest so many, 1..1000, default 100.
	Limit    int    `json:"limit,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"` // answer once this has been folded
}

// FactAnswer answers fact.get.
type FactAnswer struct {
	Fact Fact `json:"fact"`
	// Refused: what the fold said of the records at FactQuery.Sequence.
	Refused []string `json:"refused,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// FactsQuery asks for facts in order of key (fact.ls).
type FactsQuery struct {
	Prefix string `json:"prefix,omitempty"` // of the key
	State  string `json:"state,omitempty"`  // one of the states of a fact; empty: in memory or evicted
	After  string `json:"after,omitempty"`  // key; the batch starts after it
	Limit  int    `json:"limit,omitempty"`  // 1..1000, default 100
}

// FactsAnswer answers fact.ls.
type FactsAnswer struct {
	Facts []Fact `json:"facts"`
	Next  string `json:"next,omitempty"` // key to continue after; empty: no more
	Error string `json:"error,omitempty"`
}

// FactEvent is one record in the history of a fact.
type FactEvent struct {
	Key string `json:"key"`
	At  string `json:"at"` // address of the record
	// Kind: fact_asserted, fact_retracted, fact_evicted, fact_reingested.
	Kind    string          `json:"kind"`
	StampNs int64           `json:"stamp_ns"`
	By      string          `json:"by,omitempty"` // source; empty: the executor
	Value   json.RawMessage `json:"value,omitempty"`
	Plan    string          `json:"plan,omitempty"`
	Action  string          `json:"action,omitempty"`
	// Compensates: address: an action's registration, or an eviction.
	Compensates string `json:"compensates,omitempty"`
	// Fact: address of the assertion that was evicted or brought back.
	Fact    string `json:"fact,omitempty"`
	Cause   string `json:"cause,omitempty"`   // address of the dispatch, or of an operator's request
	Bytes   uint64 `json:"bytes,omitempty"`   // of an eviction
	Watched bool   `json:"watched,omitempty"` // of an eviction: a held lease read it
}

// HistoryAnswer answers fact.history, the latest event last.
type HistoryAnswer struct {
	Events []FactEvent `json:"events"`
	More   bool        `json:"more"` // there were earlier ones
	Error  string      `json:"error,omitempty"`
}

// Memory is the state of working memory.
type Memory struct {
	Capacity   int64  `json:"capacity"` // bytes; 0: no limit
	Bytes      uint64 `json:"bytes"`    // of keys and values in memory
	Facts      uint64 `json:"facts"`    // in memory
	Evicted    uint64 `json:"evicted"`  // facts whose value is in the ledger only
	Tombstones uint64 `json:"tombstones"`
	Evictions  uint64 `json:"evictions"` // so far
	Applied    uint64 `json:"applied"`   // sequence
}

// MemoryAnswer answers memory.status.
type MemoryAnswer struct {
	Memory Memory `json:"memory"`
	Error  string `json:"error,omitempty"`
}

// QueueQuery asks what would be evicted next (memory.queue).
type QueueQuery struct {
	Limit int `json:"limit,omitempty"` // of each list, 1..1000, default 100
}

// QueueAnswer answers memory.queue (S84): what is next in its order, then the
// latest evictions, the latest last.
type QueueAnswer struct {
	Memory Memory      `json:"memory"`
	Next   []Fact      `json:"next"`
	Latest []FactEvent `json:"latest"`
	Error  string      `json:"error,omitempty"`
}

// RebuildAnswer answers memory.rebuild: the state and the same ledger folded again from the
// beginning.
type RebuildAnswer struct {
	Applied  uint64   `json:"applied"` // sequence up to which both are folded
	Equal    bool     `json:"equal"`
	State    string   `json:"state"` // digest of all rows, 64 hex digits
	Rebuilt  string   `json:"rebuilt"`
	Facts    string   `json:"facts"` // digest of working memory
	Refolded string   `json:"refolded"`
	Rows     int      `json:"rows"`             // facts compared
	Differ   []string `json:"differ,omitempty"` // the first rows that do
	TookMs   int64    `json:"took_ms"`
	Error    string   `json:"error,omitempty"`
}

// What people and programs are shown of working memory.

// Fact returns one fact. The value of an evicted one is read from the ledger, and
// stays there: a question writes nothing.
func (r *Reader) Fact(key string) (shown Fact, ok bool) {
	row := rows.Facts.Find(r.tx, key)
	if row == nil {
		return Fact{}, false
	}
	shown = r.factView(key, row)
	if row.Evicted != nil {
		shown.Value, shown.ReadFrom = r.core.Recall(key, row), shown.Asserted
	}
	return shown, true
}

func (r *Reader) factView(key string, row *rowspb.FactRow) Fact {
	shown := Fact{
		Key: key, State: FactInMemory, Value: bytes.Clone(row.Value),
		Bytes:      uint64(len(key)+len(row.Value)) + row.Size,
		AssertedNs: row.AssertedNs, ChangedNs: row.ChangedNs, SinceNs: row.SinceNs,
		RetractedNs: row.RetractedNs,
		Asserted:    shortAddress(row.Source), By: row.By, Plan: row.Plan, Action: row.Action,
		About:       shortAddress(row.About),
		Compensates: row.Undo, Cause: shortAddress(row.Cause), Evicted: shortAddress(row.Evicted),
		Reingested: shortAddress(row.Reingested),
		Tombstone:  shortAddress(row.Tombstone), Asked: shortAddress(row.Asked),
		Watched: r.core.Watched(key),
	}
	switch {
	case row.Retracted:
		shown.State = FactRetracted
	case row.Evicted != nil:
		shown.State = FactEvicted
	}
	return shown
}

// shortAddress is an address as people see it, or nothing.
func shortAddress(a *pb.Address) string {
	if a == nil {
		return ""
	}
	return ledger.FormatAddress(a)
}

// factsScanMax bounds the rows that one batch of facts looks at.
const factsScanMax = 20_000

// Facts returns one batch of facts in order of key, and the key to continue after
// ("" when there is no more). The values of evicted facts are left out.
func (r *Reader) Facts(q FactsQuery) (views []Fact, next string, err error) {
	if !slices.Contains([]string{"", FactInMemory, FactEvicted, FactRetracted},
		q.State) {
		return nil, "", ledger.Refuse("state", fmt.Sprintf("%q", q.State), FactInMemory+", "+
			FactEvicted+", "+FactRetracted+" or nothing")
	}
	prefix := rows.Facts.Key(q.Prefix)
	from := prefix
	if next := append(rows.Facts.Key(q.After), 0); q.After != "" && bytes.Compare(next, from) > 0 {
		from = next
	}
	list, looked := newBatch[Fact](q.Limit), 0
	for k, v := range r.tx.Scan(from, rows.After(prefix)) {
		row := rows.Facts.Decode("scan", v)
		key := string(k[1:])
		if looked++; looked > factsScanMax {
			list.end()
			break
		}
		shown := r.factView(key, row)
		if shown.State != q.State && (q.State != "" || shown.State == FactRetracted) {
			list.pass(key)
			continue
		}
		if !list.add(key, shown) {
			break
		}
	}
	return list.list, list.next, nil
}

// Chronicle returns the places of the latest records about a fact, in the order of the
// ledger, and whether there were earlier ones: assertions, retractions,
// evictions, re-ingestions.
func (r *Reader) Chronicle(key string, limit int) (places []rows.Place, more bool) {
	limit = limitOf(limit)
	for _, prefix := range [][]byte{rows.Occurred.WithinSized(key), rows.Chronicle.WithinSized(key)} {
		var list []rows.Place
		for k := range r.tx.Scan(prefix, rows.After(prefix)) {
			if len(list) == 2*limit {
				list, more = append(list[:0], list[limit:]...), true
			}
			list = append(list, placeOf(k))
		}
		places = append(places, list...)
	}
	slices.SortFunc(places, rows.Place.Compare)
	if len(places) > limit {
		places, more = places[len(places)-limit:], true
	}
	return places, more
}

// placeOf reads sequence and index off the end of a key.
func placeOf(k []byte) rows.Place { return rows.ParsePlace(k[len(k)-12:]) }

// Event is what the history of a fact shows of one of its records; ok is false for
// a record that is about no fact.
func Event(e ledger.Entry) (event FactEvent, ok bool) {
	if e.Record == nil {
		return FactEvent{}, false
	}
	r := e.Record
	event = FactEvent{
		At: ledger.FormatAddress(e.Address), Kind: ledger.KindOf(r).Name, StampNs: e.StampNs,
		By:   e.Source.Name,
		Plan: r.Plan, Action: r.Action, Cause: shortAddress(r.Cause),
	}
	switch k := r.Kind.(type) {
	case *pb.Record_FactAsserted:
		event.Key, event.Value = k.FactAsserted.Key, k.FactAsserted.Value
	case *pb.Record_FactRetracted:
		event.Key = k.FactRetracted.Key
	case *pb.Record_FactEvicted:
		event.Key, event.Fact, event.Bytes, event.Watched = k.FactEvicted.Key,
			shortAddress(k.FactEvicted.Fact), k.FactEvicted.Bytes, k.FactEvicted.Watched
		return event, true
	case *pb.Record_FactReingested:
		event.Key, event.Fact, event.Compensates = k.FactReingested.Key,
			shortAddress(k.FactReingested.Fact), shortAddress(k.FactReingested.Evicted)
		if event.Cause == event.Compensates {
			event.Cause = ""
		}
		return event, true
	default:
		return FactEvent{}, false
	}
	if e.Source.Class == ledger.ClassExecutor {
		event.Compensates = shortAddress(r.About)
	}
	return event, true
}

// Memory returns the state of working memory; capacity is the host's.
func (r *Reader) Memory(capacity int64) Memory {
	m := r.core.Meta()
	return Memory{
		Capacity: capacity, Bytes: m.FactBytes, Facts: m.Facts, Evicted: m.Evicted,
		Tombstones: m.Tombstones, Evictions: m.Evictions,
		Applied: m.Applied.GetSequence(),
	}
}

// Queue returns what would be evicted next, in its order, and the places of the latest
// evictions (S84). Values are left out; capacity is the host's.
func (r *Reader) Queue(q QueueQuery, capacity int64) (next []Fact, latest []rows.Place) {
	limit := limitOf(q.Limit)
	for i, c := range r.core.Evictable(uint64(max(capacity, 0))) {
		if i == limit {
			break
		}
		shown := r.factView(c.Key, c.Row)
		shown.Value, shown.Oversize = nil, c.Oversize
		next = append(next, shown)
	}
	prefix := rows.Evictions.Prefix()
	for k := range r.tx.Scan(prefix, rows.After(prefix)) {
		latest = append(latest, placeOf(k))
	}
	return next, latest[max(len(latest)-limit, 0):]
}

package view

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// What people and programs are shown of working memory.

// Fact returns one fact. The value of an evicted one is read from the ledger, and
// stays there: a question writes nothing.
func (r *Reader) Fact(key string) (shown api.Fact, ok bool) {
	row := rows.Facts.Find(r.tx, key)
	if row == nil {
		return api.Fact{}, false
	}
	shown = r.factView(key, row)
	if row.Evicted != nil {
		shown.Value, shown.ReadFrom = r.core.Recall(key, row), shown.Asserted
	}
	return shown, true
}

func (r *Reader) factView(key string, row *rowspb.FactRow) api.Fact {
	shown := api.Fact{
		Key: key, State: api.FactInMemory, Value: bytes.Clone(row.Value),
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
		shown.State = api.FactRetracted
	case row.Evicted != nil:
		shown.State = api.FactEvicted
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
func (r *Reader) Facts(q api.FactsQuery) (views []api.Fact, next string, err error) {
	if !slices.Contains([]string{"", api.FactInMemory, api.FactEvicted, api.FactRetracted},
		q.State) {
		return nil, "", ledger.Refuse("state", fmt.Sprintf("%q", q.State), api.FactInMemory+", "+
			api.FactEvicted+", "+api.FactRetracted+" or nothing")
	}
	prefix := rows.Facts.Key(q.Prefix)
	from := prefix
	if next := append(rows.Facts.Key(q.After), 0); q.After != "" && bytes.Compare(next, from) > 0 {
		from = next
	}
	list, looked := newBatch[api.Fact](q.Limit), 0
	for k, v := range r.tx.Scan(from, rows.After(prefix)) {
		row := rows.Facts.Decode("scan", v)
		key := string(k[1:])
		if looked++; looked > factsScanMax {
			list.end()
			break
		}
		shown := r.factView(key, row)
		if shown.State != q.State && (q.State != "" || shown.State == api.FactRetracted) {
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
func Event(e ledger.Entry) (event api.FactEvent, ok bool) {
	if e.Record == nil {
		return api.FactEvent{}, false
	}
	r := e.Record
	event = api.FactEvent{
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
		return api.FactEvent{}, false
	}
	if e.Source.Class == ledger.ClassExecutor {
		event.Compensates = shortAddress(r.About)
	}
	return event, true
}

// Memory returns the state of working memory; capacity is the host's.
func (r *Reader) Memory(capacity int64) api.Memory {
	m := r.core.Meta()
	return api.Memory{
		Capacity: capacity, Bytes: m.FactBytes, Facts: m.Facts, Evicted: m.Evicted,
		Tombstones: m.Tombstones, Evictions: m.Evictions,
		Applied: m.Applied.GetSequence(),
	}
}

// Queue returns what would be evicted next, in its order, and the places of the latest
// evictions (S84). Values are left out; capacity is the host's.
func (r *Reader) Queue(q api.QueueQuery, capacity int64) (next []api.Fact, latest []rows.Place) {
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

package executor

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// What people and programs are shown of working memory.

// Fact returns one fact. The value of an evicted one is read from the ledger, and
// stays there: a question writes nothing.
func (r *Reader) Fact(key string) (shown view.Fact, ok bool) {
	row := r.s.fact(key)
	if row == nil {
		return view.Fact{}, false
	}
	shown = r.factView(key, row)
	if row.Evicted != nil {
		shown.Value, shown.ReadFrom = r.s.recall(key, row), shown.Asserted
	}
	return shown, true
}

func (r *Reader) factView(key string, row *rowspb.FactRow) view.Fact {
	shown := view.Fact{
		Key: key, State: view.FactInMemory, Value: bytes.Clone(row.Value),
		Bytes:      size(key, row) + row.Size,
		AssertedNs: row.AssertedNs, ChangedNs: row.ChangedNs, SinceNs: row.SinceNs,
		RetractedNs: row.RetractedNs,
		Asserted:    shortAddress(row.Source), By: row.By, Plan: row.Plan, Action: row.Action,
		About:       shortAddress(row.About),
		Compensates: row.Undo, Cause: shortAddress(row.Cause), Evicted: shortAddress(row.Evicted),
		Reingested: shortAddress(row.Reingested),
		Tombstone:  shortAddress(row.Tombstone), Asked: shortAddress(row.Asked),
		Watched: r.s.watched(key),
	}
	switch {
	case row.Retracted:
		shown.State = view.FactRetracted
	case row.Evicted != nil:
		shown.State = view.FactEvicted
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

// factsScanMax bounds the rows that one page of facts looks at.
const factsScanMax = 20_000

// Facts returns one page of facts in order of key, and the key to continue after
// ("" when there is no more). The values of evicted facts are left out.
func (r *Reader) Facts(q view.FactsQuery) (views []view.Fact, next string, err error) {
	if !slices.Contains([]string{"", view.FactInMemory, view.FactEvicted, view.FactRetracted},
		q.State) {
		return nil, "", ledger.Refuse("state", fmt.Sprintf("%q", q.State), view.FactInMemory+", "+
			view.FactEvicted+", "+view.FactRetracted+" or nothing")
	}
	prefix := rows.Facts.Key(q.Prefix)
	from := prefix
	if behind := append(rows.Facts.Key(q.After), 0); q.After != "" && bytes.Compare(behind, from) > 0 {
		from = behind
	}
	list, looked := newBatch[view.Fact](q.Limit), 0
	for k, v := range r.s.tx.Scan(from, rows.After(prefix)) {
		row := rows.Facts.Decode("scan", v)
		key := string(k[1:])
		if looked++; looked > factsScanMax {
			list.end()
			break
		}
		shown := r.factView(key, row)
		if shown.State != q.State && (q.State != "" || shown.State == view.FactRetracted) {
			list.pass(key)
			continue
		}
		if !list.add(key, shown) {
			break
		}
	}
	return list.list, list.next, nil
}

// Place is where a record about a fact stands.
type Place struct {
	Sequence uint64
	Index    uint32
}

// Chronicle returns where the latest records about a fact stand, in the order of
// the ledger, and whether there were earlier ones: assertions, retractions,
// evictions, re-ingestions.
func (r *Reader) Chronicle(key string, limit int) (places []Place, more bool) {
	limit = limitOf(limit)
	for _, prefix := range [][]byte{rows.Occurred.WithinSized(key), rows.Chronicle.WithinSized(key)} {
		var list []Place
		for k := range r.s.tx.Scan(prefix, rows.After(prefix)) {
			if len(list) == 2*limit {
				list, more = append(list[:0], list[limit:]...), true
			}
			list = append(list, placeOf(k))
		}
		places = append(places, list...)
	}
	slices.SortFunc(places, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Index, b.Index))
	})
	if len(places) > limit {
		places, more = places[len(places)-limit:], true
	}
	return places, more
}

// placeOf reads sequence and index off the end of a key.
func placeOf(k []byte) Place {
	return Place{binary.BigEndian.Uint64(k[len(k)-12:]), binary.BigEndian.Uint32(k[len(k)-4:])}
}

// Event is what the history of a fact shows of one of its records; ok is false for
// a record that is about no fact.
func Event(e ledger.Entry) (event view.FactEvent, ok bool) {
	if e.Record == nil {
		return view.FactEvent{}, false
	}
	r := e.Record
	event = view.FactEvent{
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
		return view.FactEvent{}, false
	}
	if e.Source.Class == ledger.ClassExecutor {
		event.Compensates = shortAddress(r.About)
	}
	return event, true
}

// Memory returns the state of working memory; capacity is the host's.
func (r *Reader) Memory(capacity int64) view.Memory {
	m := r.s.meta
	return view.Memory{
		Capacity: capacity, Bytes: m.FactBytes, Facts: m.Facts, Evicted: m.Evicted,
		Tombstones: m.Tombstones, Evictions: m.Evictions,
		Applied: m.Applied.GetSequence(),
	}
}

// Queue returns what would be evicted next, in its order, and where the latest
// evictions stand (S84). Values are left out; capacity is the host's.
func (r *Reader) Queue(q view.QueueQuery, capacity int64) (next []view.Fact, latest []Place) {
	limit := limitOf(q.Limit)
	for i, c := range r.s.evictionOrder(evictScanMax, uint64(max(capacity, 0))) {
		if i == limit {
			break
		}
		shown := r.factView(c.key, c.row)
		shown.Value, shown.Oversize = nil, c.oversize
		next = append(next, shown)
	}
	prefix := rows.Chronicle.WithinSized("")
	for k := range r.s.tx.Scan(prefix, rows.After(prefix)) {
		latest = append(latest, placeOf(k))
	}
	return next, latest[max(len(latest)-limit, 0):]
}

// FactsDigest is rows.Digest over working memory alone; count is how many facts there
// are, tombstones and evicted ones with them.
func FactsDigest(kv rows.KV) (digest [sha256.Size]byte, count int) {
	return rows.DigestOf(kv, rows.Facts.Prefix(), rows.After(rows.Facts.Prefix()))
}

// Differences names up to limit rows in which two states differ.
func Differences(a, b rows.KV, limit int) (list []string) {
	compare := func(a, b rows.KV, missing string, both bool) {
		for k, v := range a.Scan([]byte{0}, []byte{0xff}) {
			if len(list) >= limit {
				return
			}
			switch other, ok := b.Get(k); {
			case !ok:
				list = append(list, fmt.Sprintf("%s: only %s", rowName(k), missing))
			case both && !bytes.Equal(v, other):
				list = append(list, rowName(k)+": not the same")
			}
		}
	}
	compare(a, b, "in the state", true)
	compare(b, a, "in the ledger", false)
	return list
}

// rowName names a row for people.
func rowName(k []byte) string {
	if k[0] == rows.Facts.Prefix()[0] {
		return fmt.Sprintf("fact %q", k[1:])
	}
	return fmt.Sprintf("row %q", k)
}

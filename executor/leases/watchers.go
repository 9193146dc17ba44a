package leases

import (
	"encoding/binary"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
)

// What is kept in memory: watchedMax bounds the facts whose watchers are, and watcherBytesMax
// what these take.
const (
	watchedMax      = 1 << 21
	watcherBytesMax = 1 << 30
)

// Stored reads a watcher from the rows of its lease or node; nil: there is none.
type Stored interface{ Watcher(id string) *Watcher }

// Watchers are the readers of each fact: rows, and in memory the lists of the facts that were asked
// for last. One over a fork has rows alone.
type Watchers struct {
	tx     *rows.Tx
	stored Stored
	lists  *rows.Recent[*watchList] // by fact; nil in a fork
	// how many prefixes of each length are watched; nil: not read yet
	lengths []uint64
}

// WatchersOver are the readers of each fact by the rows in tx.
func WatchersOver(tx *rows.Tx, stored Stored) Watchers {
	x := Watchers{tx: tx, stored: stored}
	if !tx.Forked() {
		x.KeepOnly(watchedMax)
	}
	return x
}

// KeepOnly bounds the facts whose lists are kept.
func (x *Watchers) KeepOnly(facts int) {
	x.lists = rows.NewRecent(facts, watcherBytesMax, func(l *watchList) int { return l.bytes })
}

// Kept are the facts whose lists are kept.
func (x *Watchers) Kept() []string {
	keys, _ := x.lists.Recent()
	return keys
}

// Count says how many watch a fact, or a prefix, by its key: those that its row names, or those
// that have rows of their own.
func (x *Watchers) Count(key string) (few int, many uint64) {
	row := x.row(key)
	return len(row.few), row.many
}

// WatchersInline is how many watchers of one fact share a row. Where there
// are more, each has a row of its own.
const WatchersInline = 8

// watchersRow is the row of rows.Watchers: the watchers of a fact in ascending
// order, or how many they are.
type watchersRow struct {
	few  []string
	many uint64
}

func (r watchersRow) encode() []byte {
	if r.many > 0 {
		return binary.AppendUvarint([]byte{1}, r.many)
	}
	out := []byte{0}
	for _, id := range r.few {
		out = append(binary.AppendUvarint(out, uint64(len(id))), id...)
	}
	return out
}

// Move moves a watcher from the facts it was indexed by to others.
func (x *Watchers) Move(id string, from, to []string) {
	if slices.Equal(from, to) {
		return
	}
	for _, k := range from {
		if _, stays := slices.BinarySearch(to, k); !stays {
			x.set(k, id, false)
		}
	}
	for _, k := range to {
		if _, had := slices.BinarySearch(from, k); !had {
			x.set(k, id, true)
		}
	}
}

func (x *Watchers) row(key string) (r watchersRow) {
	v, ok := rows.Watchers.Get(x.tx, key)
	if !ok {
		return r
	}
	if v[0] == 1 {
		r.many, _ = binary.Uvarint(v[1:])
		return r
	}
	for rest := v[1:]; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		rest = rest[size:]
		r.few, rest = append(r.few, string(rest[:n])), rest[n:]
	}
	return r
}

// set adds or removes one watcher of a fact.
func (x *Watchers) set(key, id string, on bool) {
	row := x.row(key)
	at, had := slices.BinarySearch(row.few, id)
	own := rows.Watch{Key: key, Watcher: id}
	watched := len(row.few) > 0 || row.many > 0
	switch {
	case on && row.many == 0 && !had && len(row.few) == WatchersInline:
		for _, other := range row.few {
			rows.Watches.Add(x.tx, rows.Watch{Key: key, Watcher: other})
		}
		rows.Watches.Add(x.tx, own)
		row = watchersRow{many: WatchersInline + 1}
	case on && row.many > 0:
		rows.Watches.Add(x.tx, own)
		row.many++
	case on && !had:
		if len(row.few) == 0 && x.lists != nil {
			x.lists.Put(key, newWatchList(key)) // this one is all, and is remembered next
		}
		row.few = slices.Insert(row.few, at, id)
	case !on && row.many > 0:
		rows.Watches.Delete(x.tx, own)
		row.many--
	case !on && had:
		row.few = slices.Delete(row.few, at, at+1)
	}
	if len(row.few) == 0 && row.many == 0 {
		if watched {
			x.countPrefix(key, false)
		}
		rows.Watchers.Delete(x.tx, key)
	} else {
		if !watched {
			x.countPrefix(key, true)
		}
		rows.Watchers.Put(x.tx, key, row.encode())
	}
	if !on {
		x.forget(key, id)
	}
}

// IDs lists who reads a fact, in ascending order.
func (x *Watchers) IDs(key string) []string {
	row := x.row(key)
	if row.many == 0 {
		return row.few
	}
	ids := make([]string, 0, row.many)
	prefix := rows.Watches.WithinSized(key)
	for k := range x.tx.Scan(prefix, rows.After(prefix)) {
		ids = append(ids, string(k[len(prefix):]))
	}
	return ids
}

// Remember puts a watcher of facts among those kept for them, in place of an older one.
// A large one makes no list for itself.
func (x *Watchers) Remember(w *Watcher, keys []string, eager bool) {
	if x.lists == nil {
		return
	}
	for _, key := range keys {
		list, kept := x.lists.Get(key)
		switch {
		case !kept:
		case !eager && list.empty():
			x.lists.Remove(key)
		default:
			x.lists.Grown(list.set(w))
		}
	}
}

func (x *Watchers) forget(key, id string) {
	if x.lists == nil {
		return
	}
	if list, kept := x.lists.Get(key); kept {
		x.lists.Grown(list.remove(id))
	}
}

// Of returns who reads a fact, from memory or from the rows, in ascending order.
func (x *Watchers) Of(key string) []*Watcher {
	if x.lists != nil {
		if list, kept := x.lists.Get(key); kept {
			all, grown := list.all()
			x.lists.Grown(grown)
			return all
		}
	}
	list := newWatchList(key)
	for _, id := range x.IDs(key) {
		if w := x.stored.Watcher(id); w != nil {
			list.append(w)
		}
	}
	if x.lists != nil && list.bytes <= watchListMax {
		x.lists.Put(key, list)
	}
	return list.sorted
}

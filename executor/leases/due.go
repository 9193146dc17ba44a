// Package leases keeps standing conditions findable: which are due at an instant, and which
// read a fact. It knows keys and rows, and nothing of plans.
package leases

import (
	"container/heap"
	"encoding/binary"
	"math"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
)

// Due is the set of a tenant's due entries, in the order of their instants. The rows are the
// set; what is kept beside them, a restart forgets and finds again. A Due over a fork writes
// rows alone.
type Due struct {
	tx *rows.Tx
	// Every entry with a key below from was looked at, or is in snoozed.
	from    string
	next    int64 // instant of the first entry at or after from; 0: to be read, none: there is none
	snoozed snoozeHeap
	again   keyHeap             // keys below from that a fact or a state calls for again
	crowded map[string]*keyHeap // keys below from that wait for room, by what has the room
}

// DueOver is the set whose rows are in tx.
func DueOver(tx *rows.Tx) Due { return Due{tx: tx} }

// snooze is an entry that was looked at and stays; it is looked at again at ns.
type snooze struct {
	ns  int64
	key string
}

type snoozeHeap []snooze

func (h snoozeHeap) Len() int { return len(h) }
func (h snoozeHeap) Less(i, j int) bool {
	return h[i].ns < h[j].ns || h[i].ns == h[j].ns && h[i].key < h[j].key
}
func (h snoozeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *snoozeHeap) Push(x any) { *h = append(*h, x.(snooze)) }

// Pop implements heap.Interface.
func (h *snoozeHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// keyHeap has keys, the lowest first, each once.
type keyHeap struct {
	keys []string
	has  map[string]struct{}
}

func (h *keyHeap) Len() int           { return len(h.keys) }
func (h *keyHeap) Less(i, j int) bool { return h.keys[i] < h.keys[j] }
func (h *keyHeap) Swap(i, j int)      { h.keys[i], h.keys[j] = h.keys[j], h.keys[i] }

// Push appends a key; heap.Push calls it.
func (h *keyHeap) Push(x any) { h.keys = append(h.keys, x.(string)) }

// Pop takes the last key; heap.Pop calls it.
func (h *keyHeap) Pop() any {
	last := len(h.keys) - 1
	key := h.keys[last]
	h.keys = h.keys[:last]
	return key
}

// add takes a key, unless it is there.
func (h *keyHeap) add(key string) {
	if _, had := h.has[key]; had {
		return
	}
	if h.has == nil {
		h.has = map[string]struct{}{}
	}
	h.has[key] = struct{}{}
	heap.Push(h, key)
}

// lowest takes the lowest key.
func (h *keyHeap) lowest() string {
	key := heap.Pop(h).(string)
	delete(h.has, key)
	return key
}

// DuePerTurn bounds the entries that one turn looks at.
const DuePerTurn = 4096

// Set adds the entry of a lease, of one of the kinds of rows.Instant, at an instant in unix ns.
func (d *Due) Set(ns int64, kind byte, ref rows.Lease) {
	d.SetKey(ns, rows.Due.Key(rows.Instant{Ns: ns, Kind: kind, Lease: ref}))
}

// SetKey adds the entry of a key.
func (d *Due) SetKey(ns int64, key []byte) {
	d.tx.Set(key, nil)
	if !d.tx.Forked() && string(key) < d.from {
		heap.Push(&d.snoozed, snooze{ns, string(key)})
		return
	}
	if d.next != 0 {
		d.next = min(d.next, ns)
	}
}

// Drop removes the entry of a lease.
func (d *Due) Drop(ns int64, kind byte, ref rows.Lease) {
	d.DropKey(ns, rows.Due.Key(rows.Instant{Ns: ns, Kind: kind, Lease: ref}))
}

// DropKey removes the entry of a key.
func (d *Due) DropKey(ns int64, key []byte) {
	d.tx.Delete(key)
	if ns == d.next {
		d.next = 0
	}
}

// AskAgain has a due entry whose instant stays what it was asked again. Where the clock of
// a holder is ahead of logical time it was asked already, and let go until something
// that it reads changes: that is now.
func (d *Due) AskAgain(key []byte) {
	if d.tx.Forked() || string(key) >= d.from {
		return
	}
	d.again.add(string(key))
}

// Crowd lets go of an entry that was looked at and found no room: Admit has it looked at
// again.
func (d *Due) Crowd(giver string, key []byte) {
	if d.tx.Forked() {
		return
	}
	waits := d.crowded[giver]
	if waits == nil {
		waits = new(keyHeap)
		if d.crowded == nil {
			d.crowded = map[string]*keyHeap{}
		}
		d.crowded[giver] = waits
	}
	waits.add(string(key))
}

// Admit has the first entry that waits for room looked at again: there is room for one. Whoever
// takes it, or goes away, has the next one admitted.
func (d *Due) Admit(giver string) {
	waits := d.crowded[giver]
	for waits != nil && waits.Len() > 0 {
		key := []byte(waits.lowest())
		if _, stays := d.tx.Get(key); stays {
			d.AskAgain(key)
			break
		}
	}
	if waits != nil && waits.Len() == 0 {
		delete(d.crowded, giver)
	}
}

// none is the instant of an entry that there is not.
const none = math.MaxInt64

// Entries takes the keys of at most 4096 entries that are to be looked at by now, unix ns, in
// ascending order, so that a restart, which forgets what was snoozed, changes no order. An entry
// that stays is to be snoozed.
func (d *Due) Entries(nowNs int64) []string {
	var entries []string
	later := string(rows.DueFrom(uint64(nowNs) + 1))
	for d.again.Len() > 0 && d.again.keys[0] < later && len(entries) < DuePerTurn {
		entries = append(entries, d.again.lowest())
	}
	for len(d.snoozed) > 0 && d.snoozed[0].ns <= nowNs && len(entries) < DuePerTurn {
		entries = append(entries, heap.Pop(&d.snoozed).(snooze).key)
	}
	if d.next == 0 || d.next <= nowNs {
		entries = d.scan(nowNs, entries)
	}
	slices.Sort(entries)
	return slices.Compact(entries)
}

// scan adds the entries from d.from on that are due. It reads one further, which is the next to
// fall due.
func (d *Due) scan(nowNs int64, entries []string) []string {
	from := max(d.from, string(rows.Due.Prefix()))
	d.from, d.next = max(from, string(rows.DueFrom(uint64(nowNs)+1))), none
	for k := range d.tx.Scan([]byte(from), rows.After(rows.Due.Prefix())) {
		ns := int64(binary.BigEndian.Uint64(k[1:]))
		if ns > nowNs || len(entries) == DuePerTurn {
			d.next = ns
			if ns <= nowNs {
				d.from = string(k)
			}
			break
		}
		entries = append(entries, string(k))
	}
	return entries
}

// Next returns the next instant (unix ns) at which time alone may call for
// a decision; ok is false when nothing waits for the clock.
func (d *Due) Next() (ns int64, ok bool) {
	if len(d.snoozed) > 0 {
		ns, ok = d.snoozed[0].ns, true
	}
	if d.again.Len() > 0 {
		if first := int64(binary.BigEndian.Uint64([]byte(d.again.keys[0][1:]))); !ok || first < ns {
			ns, ok = first, true
		}
	}
	if d.next == 0 {
		d.next = d.First(d.from)
	}
	if d.next != none && (!ok || d.next < ns) {
		ns, ok = d.next, true
	}
	return ns, ok
}

// First reads the instant of the first entry whose key is from or after it; math.MaxInt64: there
// is none.
func (d *Due) First(from string) int64 {
	from = max(from, string(rows.Due.Prefix()))
	for k := range d.tx.Scan([]byte(from), rows.After(rows.Due.Prefix())) {
		return int64(binary.BigEndian.Uint64(k[1:]))
	}
	return none
}

// Snooze has an entry that was looked at, and stays, looked at again at an instant, unix ns.
func (d *Due) Snooze(ns int64, key string) { heap.Push(&d.snoozed, snooze{ns, key}) }

// Snoozed counts the entries that were looked at and stay.
func (d *Due) Snoozed() int { return len(d.snoozed) }

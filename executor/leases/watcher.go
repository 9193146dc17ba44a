package leases

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Watcher is a reader of a fact: a lease, or a node of equal ones. It has what an
// evaluation needs, so that a fact which changes nothing reads no other row, but for
// the program of the condition, which is the cache's. What changes of a lease makes a
// new one.
type Watcher struct {
	ID     string         // in the index: a lease reference, or a zero byte and a node
	Keys   []string       // that it watches; nil: those of the text, which do not change
	WakeNs int64          // when it is due by time alone, unix ns; 0: never
	Faulty bool           // its condition gives no answer
	kept   *triggers.Kept // nil: held again from the rows when it is asked
	gone   bool           // it left the list that has it
	bytes  int32          // that it takes in each of the lists it is in, about
}

// What a watcher and a list of them take in memory beside their names, in bytes, and
// what is kept of a condition that is not held yet.
const (
	watcherBytes = 64
	listBytes    = 112
	unheldBytes  = 200
)

// A lease whose watcher takes more than watcherMax bytes with its lists is held again
// from the rows when a fact wakes it; one that takes more even so is listed only where
// others are. keptMax bounds what is kept of its condition.
const (
	keptMax    = 384
	watcherMax = 800
)

// NewWatcher makes the watcher of a condition that is held. eager says that it is small
// enough for lists of its own.
func NewWatcher(
	id string, held *triggers.Held, wakeNs int64, keys []string, faulty bool,
) (w *Watcher, eager bool) {
	w = &Watcher{ID: id, kept: held.Keep(keptMax), WakeNs: wakeNs, Faulty: faulty}
	bytes := watcherBytes + len(id)
	if held.Computes() {
		w.Keys = keys
	}
	lists := 0
	for _, key := range keys {
		lists += listBytes + len(key)
		if w.Keys != nil {
			bytes += 16
		}
	}
	if w.kept != nil {
		if size := held.Size(); bytes+size+lists <= watcherMax {
			bytes += size
		} else {
			w.kept = nil
		}
	}
	w.bytes = int32(bytes / max(len(keys), 1))
	return w, bytes+lists <= watcherMax
}

// StoredWatcher is a watcher as the rows have it. Whether its keys may change is known
// once its condition is held.
func StoredWatcher(id string, wakeNs int64, keys []string, faulty bool) *Watcher {
	bytes := int32(watcherBytes + len(id) + unheldBytes)
	return &Watcher{ID: id, WakeNs: wakeNs, Keys: keys, Faulty: faulty, bytes: bytes}
}

// IsNode reports whether it is a node of equal leases.
func (w *Watcher) IsNode() bool { return w.ID[0] == 0 }

// DueKey is the key of its due entry.
func (w *Watcher) DueKey() []byte {
	if w.IsNode() {
		return rows.Due.Key(rows.Instant{Ns: w.WakeNs, Kind: rows.DueNode, Node: []byte(w.ID[1:])})
	}
	return rows.Due.Key(rows.Instant{
		Ns: w.WakeNs, Kind: rows.DueLease, Lease: rows.ParseLease([]byte(w.ID)),
	})
}

// Recall holds the condition as it is kept, in held; false: it is to be held again from the rows.
func (w *Watcher) Recall(held *triggers.Held) bool { return w.kept != nil && w.kept.Recall(held) }

// Keep keeps a condition that was held again from the rows.
func (w *Watcher) Keep(held *triggers.Held) {
	if !held.Computes() {
		w.Keys = nil
	}
	w.kept = held.Keep(keptMax)
}

// NodeID is a node's name among the watchers.
func NodeID(node []byte) string { return "\x00" + string(node) }

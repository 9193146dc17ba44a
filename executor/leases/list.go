package leases

import (
	"slices"
	"strings"
)

// watchList is the readers of one fact, as they are kept in memory. Many leases may be armed
// on one fact and given up again before it is asserted, so a long list takes notes of
// what changes and is put in order when it is read.
type watchList struct {
	sorted []*Watcher  // by id
	later  *[]*Watcher // what came after: the last of each id counts; nil: nothing
	bytes  int         // that the list takes, about
}

// watchListMax is how many bytes a list may take to be kept at all.
const watchListMax = watcherBytesMax / 4

// watchListShort is up to how many watchers a list is kept in order at once.
const watchListShort = 64

func newWatchList(key string) *watchList { return &watchList{bytes: listBytes + len(key)} }

func (l *watchList) empty() bool { return len(l.sorted) == 0 && l.later == nil }

// append adds one with a larger id than all.
func (l *watchList) append(w *Watcher) {
	l.sorted = append(l.sorted, w)
	l.bytes += 8 + int(w.bytes)
}

// set adds a watcher, or puts it in the place of an older one, and returns by how many
// bytes the list has grown.
func (l *watchList) set(w *Watcher) (grown int) {
	before := l.bytes
	if l.later != nil || len(l.sorted) > watchListShort {
		l.note(w)
		return l.bytes - before
	}
	at, had := slices.BinarySearchFunc(l.sorted, w.ID, compareWatcher)
	if had {
		l.bytes += int(w.bytes) - int(l.sorted[at].bytes)
		l.sorted[at] = w
		return l.bytes - before
	}
	l.sorted = slices.Insert(l.sorted, at, w)
	l.bytes += 8 + int(w.bytes)
	return l.bytes - before
}

// remove takes a watcher out, if it is there, and returns by how many bytes the list
// has grown.
func (l *watchList) remove(id string) (grown int) {
	before := l.bytes
	if l.later != nil || len(l.sorted) > watchListShort {
		l.note(&Watcher{ID: id, gone: true, bytes: int32(watcherBytes + len(id))})
		return l.bytes - before
	}
	if at, had := slices.BinarySearchFunc(l.sorted, id, compareWatcher); had {
		l.bytes -= 8 + int(l.sorted[at].bytes)
		l.sorted = slices.Delete(l.sorted, at, at+1)
	}
	return l.bytes - before
}

// note takes a note of a change. Once there are as many as watchers, they are put in
// order, so that they take no more than these.
func (l *watchList) note(w *Watcher) {
	if l.later == nil {
		l.later = new([]*Watcher)
	}
	*l.later = append(*l.later, w)
	l.bytes += 8 + int(w.bytes)
	if len(*l.later) > len(l.sorted)+watchListShort {
		l.all()
	}
}

// all returns the watchers in ascending order, and by how many bytes the list has grown.
func (l *watchList) all() (sorted []*Watcher, grown int) {
	if l.later == nil {
		return l.sorted, 0
	}
	before, later := l.bytes, *l.later
	for _, list := range [][]*Watcher{l.sorted, later} {
		for _, w := range list {
			l.bytes -= 8 + int(w.bytes)
		}
	}
	slices.SortStableFunc(later, func(a, b *Watcher) int { return strings.Compare(a.ID, b.ID) })
	merged := make([]*Watcher, 0, len(l.sorted)+len(later))
	take := func(w *Watcher) {
		if !w.gone {
			merged = append(merged, w)
			l.bytes += 8 + int(w.bytes)
		}
	}
	old := l.sorted
	for i, w := range later {
		if i+1 < len(later) && later[i+1].ID == w.ID {
			continue // a later one counts
		}
		for len(old) > 0 && old[0].ID < w.ID {
			take(old[0])
			old = old[1:]
		}
		if len(old) > 0 && old[0].ID == w.ID {
			old = old[1:]
		}
		take(w)
	}
	for _, w := range old {
		take(w)
	}
	l.sorted, l.later = merged, nil
	return l.sorted, l.bytes - before
}

func compareWatcher(w *Watcher, id string) int { return strings.Compare(w.ID, id) }

package leases

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// A condition over the facts of a prefix is listed by the prefix. A fact has as many prefixes as
// its key has bytes, and is looked up by those of a length of which any is watched: where none is,
// it costs nothing more, and elsewhere a row for each length, however many leases there are.

// countPrefix notes that a prefix is watched, or is no more; key may be that of a fact.
func (x *Watchers) countPrefix(key string, on bool) {
	prefix, is := triggers.PrefixOf(key)
	if !is {
		return
	}
	counts := slices.Clone(x.counts())
	for len(counts) <= len(prefix) {
		counts = append(counts, 0)
	}
	if on {
		counts[len(prefix)]++
	} else {
		counts[len(prefix)]--
	}
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	x.lengths = counts
	if len(counts) == 0 {
		rows.Lengths.Delete(x.tx, struct{}{})
		return
	}
	var row []byte
	for _, n := range counts {
		row = binary.AppendUvarint(row, n)
	}
	rows.Lengths.Put(x.tx, struct{}{}, row)
}

// counts are how many prefixes of each length are watched.
func (x *Watchers) counts() []uint64 {
	if x.lengths == nil {
		x.lengths = []uint64{}
		row, _ := rows.Lengths.Get(x.tx, struct{}{})
		for len(row) > 0 {
			n, size := binary.Uvarint(row)
			x.lengths, row = append(x.lengths, n), row[size:]
		}
	}
	return x.lengths
}

// Names yields what a fact is watched by: its key, and each of its prefixes that may be.
func (x *Watchers) Names(fact string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(fact) {
			return
		}
		for length, n := range x.counts() {
			if n > 0 && length <= len(fact) && !yield(triggers.PrefixKey(fact[:length])) {
				return
			}
		}
	}
}

// Readers yields who reads a fact, by its key or by a prefix of that. What turns may leave it.
func (x *Watchers) Readers(fact string) iter.Seq[*Watcher] {
	return func(yield func(*Watcher) bool) {
		for name := range x.Names(fact) {
			list := x.Of(name)
			if len(list) > 1 {
				list = slices.Clone(list)
			}
			for _, w := range list {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// Any reports whether any lease watches a fact.
func (x *Watchers) Any(fact string) bool {
	for name := range x.Names(fact) {
		if few, many := x.Count(name); few > 0 || many > 0 {
			return true
		}
	}
	return false
}

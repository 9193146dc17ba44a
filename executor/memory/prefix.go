package memory

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// name lists a fact among those that there are, or takes it off. The list is apart from the rows of
// the facts, as these keep a tombstone of each that is gone: a prefix costs what is there now.
func (m *Memory) name(key string, there bool) {
	if m.base != nil {
		m.named[key] = there // no scan sees the rows of a scratch fold
		return
	}
	if there {
		rows.Names.Add(m.tx, key)
	} else {
		rows.Names.Delete(m.tx, key)
	}
}

// Under implements triggers.View.
func (v factView) Under(prefix string) iter.Seq2[string, *triggers.Fact] {
	return func(yield func(string, *triggers.Fact) bool) {
		for key := range v.m.under(prefix) {
			if !yield(key, v.Fact(key)) {
				return
			}
		}
	}
}

// under yields the keys of the facts that there are and that begin with prefix, ascending.
func (m *Memory) under(prefix string) iter.Seq[string] {
	if m.base != nil {
		return m.overlaid(prefix)
	}
	from := rows.Names.Key(prefix)
	return func(yield func(string) bool) {
		for k := range m.tx.Scan(from, rows.After(from)) {
			if !yield(string(k[1:])) {
				return
			}
		}
	}
}

// overlaid is under of a scratch fold.
func (m *Memory) overlaid(prefix string) iter.Seq[string] {
	return func(yield func(string) bool) {
		var own []string
		for _, key := range slices.Sorted(maps.Keys(m.named)) {
			if strings.HasPrefix(key, prefix) {
				own = append(own, key)
			}
		}
		for key := range m.base.under(prefix) {
			for len(own) > 0 && own[0] < key {
				if m.named[own[0]] && !yield(own[0]) {
					return
				}
				own = own[1:]
			}
			there, changed := m.named[key]
			if changed {
				own = own[1:]
			}
			if (!changed || there) && !yield(key) {
				return
			}
		}
		for _, key := range own {
			if m.named[key] && !yield(key) {
				return
			}
		}
	}
}

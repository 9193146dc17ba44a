package memory

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
)

// EvictionsMax bounds the evictions of one turn, and so the facts that are listed because they
// can never fit.
const EvictionsMax = 256

// Candidate is a fact that may be evicted.
type Candidate struct {
	Key string
	Row *rowspb.FactRow

	Oversize bool // larger than the capacity
	Watched  bool // a held lease reads it
}

// EvictionOrder lists facts in the order in which they would be evicted: those that
// are larger than the capacity (in bytes; 0: no limit), then up to most of those that
// were asserted, or brought back, longest ago; of these, first the ones that no held
// lease reads.
func (m *Memory) EvictionOrder(most int, capacity uint64,
	watched func(key string) bool) []Candidate {
	list := m.oversize(capacity, watched)
	var keys []string
	from := rows.Residents.Prefix()
	for k := range m.tx.Scan(from, rows.After(from)) {
		if len(keys) == most {
			break
		}
		keys = append(keys, string(k[9:]))
	}
	var others, read []Candidate
	for _, key := range keys {
		c := Candidate{Key: key, Row: m.Fact(key), Watched: watched(key)}
		switch {
		case capacity > 0 && Size(key, c.Row) > capacity:
			if capacity < LargeMin && Size(key, c.Row) < LargeMin {
				c.Oversize = true
				list = append(list, c)
			}
		case c.Watched:
			read = append(read, c)
		default:
			others = append(others, c)
		}
	}
	return append(append(list, others...), read...)
}

// oversize lists the facts that are larger than the capacity, of those that are
// listed by size, the largest first.
func (m *Memory) oversize(capacity uint64, watched func(key string) bool) (list []Candidate) {
	if capacity == 0 {
		return nil
	}
	for k := range m.tx.Scan(rows.Large.Prefix(),
		rows.Large.Key(rows.Numbered{N: capacity, Name: ""})) {
		if len(list) == EvictionsMax {
			break
		}
		key := string(k[9:])
		list = append(list, Candidate{Key: key, Oversize: true})
	}
	for i := range list {
		list[i].Row, list[i].Watched = m.Fact(list[i].Key), watched(list[i].Key)
	}
	return list
}

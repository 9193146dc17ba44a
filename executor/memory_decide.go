package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const (
	evictScanMax = 4096 // facts that one turn looks at, the least recently asserted first
	evictTurnMax = 256  // evictions of one turn
)

// lowWater is how far an eviction goes down, in bytes: 90 % of the capacity.
func lowWater(memoryMax int64) uint64 { return uint64(memoryMax/10*9 + memoryMax%10*9/10) }

// MemoryWork reports whether Decide has something to do for working memory: too
// much is in it, or a lease missed an evicted fact and there may be room. memoryMax
// is as in Input.
func (s *State) MemoryWork(memoryMax int64) bool {
	if memoryMax > 0 && s.meta.FactBytes > uint64(memoryMax) {
		return true
	}
	return len(s.misses) > 0 && (memoryMax <= 0 || s.meta.FactBytes <= lowWater(memoryMax))
}

// memory keeps working memory within its capacity, and brings back what leases
// read.
func (d *decider) memory() {
	for _, key := range d.state.misses { // as what was snoozed: the next Decide does not ask again
		d.live.miss(key)
	}
	if d.in.MemoryMax > 0 && d.state.meta.FactBytes > uint64(d.in.MemoryMax) {
		d.makeRoom(uint64(d.in.MemoryMax))
		return
	}
	for _, key := range d.live.misses {
		row := d.state.fact(key)
		if row == nil || row.Evicted.GetSequence() == 0 || !d.fits(uint64(len(key))+row.Size) {
			continue
		}
		if !d.reingest(key, row, row.Evicted) {
			return
		}
	}
}

// makeRoom evicts the facts that can never fit, for which nothing else goes; then,
// if that is not enough, others down to the low water. What has come into memory in
// this very turn is for the next one, whose order has it.
func (d *decider) makeRoom(capacity uint64) {
	came := d.state.meta.FactBytes - min(d.state.meta.FactBytes, d.live.meta.FactBytes)
	enough := capacity
	for _, c := range d.live.evictionOrder(evictScanMax, capacity) {
		used := d.state.meta.FactBytes - came
		if used > capacity && !c.oversize {
			enough = lowWater(d.in.MemoryMax)
		}
		if used <= enough || len(d.records) >= evictTurnMax || d.full() {
			break
		}
		d.evict(c.key, c.row.SinceNs, nil)
	}
}

// fits reports whether a fact may come back by itself: only into memory that
// is not above its low water, and never so that another had to go for it.
func (d *decider) fits(bytes uint64) bool {
	used := d.state.meta.FactBytes
	return d.in.MemoryMax <= 0 || used <= lowWater(d.in.MemoryMax) &&
		used+bytes <= uint64(d.in.MemoryMax)
}

// asked carries out an operator's request about a fact.
func (d *decider) asked(entry string) {
	key := entry[1:]
	row := d.state.fact(key)
	switch {
	case row == nil || row.Asked == nil: // what was asked about is gone by what this turn has decided
	case entry[:1] == todoEvict:
		d.evict(key, row.SinceNs, row.Asked)
	case row.Evicted.GetSequence() != 0:
		d.reingest(key, row, row.Asked)
	}
}

// evict proposes an eviction of the fact that has this place in the order. A fact of
// this very turn has no address yet.
func (d *decider) evict(key string, sinceNs int64, cause *pb.Address) {
	row := d.state.fact(key)
	if row == nil || !resident(row) || row.SinceNs != sinceNs || row.Source.GetSequence() == 0 {
		return
	}
	d.propose(&pb.Record{Cause: cause, Kind: &pb.Record_FactEvicted{FactEvicted: &pb.FactEvicted{
		Key: key, Fact: row.Source, Bytes: size(key, row), Watched: d.live.watched(key),
	}}})
}

// reingest proposes to bring an evicted fact back; false when the commit is full.
func (d *decider) reingest(key string, row *rowspb.FactRow, cause *pb.Address) bool {
	k := &pb.FactReingested{Key: key, Fact: row.Source, Value: d.state.recall(key, row),
		Evicted: row.Evicted}
	r := &pb.Record{Cause: cause, Kind: &pb.Record_FactReingested{FactReingested: k}}
	if ledger.RecordSize(r) > dispatchMax {
		k.Value = nil // the fold reads it where it stands
	}
	return d.propose(r)
}

// candidate is a fact that may be evicted.
type candidate struct {
	key string
	row *rowspb.FactRow

	oversize bool // larger than the capacity
	watched  bool
}

// evictionOrder lists facts in the order in which they would be evicted: those that
// are larger than the capacity (in bytes; 0: no limit), then up to most of those that
// were asserted, or brought back, longest ago; of these, first the ones that no held
// lease reads.
func (s *State) evictionOrder(most int, capacity uint64) []candidate {
	list := s.oversize(capacity)
	var keys []string
	from := rows.Residents.Prefix()
	for k := range s.tx.Scan(from, rows.After(from)) {
		if len(keys) == most {
			break
		}
		keys = append(keys, string(k[9:]))
	}
	var others, watched []candidate
	for _, key := range keys {
		c := candidate{key: key, row: s.fact(key), watched: s.watched(key)}
		switch {
		case capacity > 0 && size(key, c.row) > capacity:
			if capacity < largeMin && size(key, c.row) < largeMin {
				c.oversize = true
				list = append(list, c)
			}
		case c.watched:
			watched = append(watched, c)
		default:
			others = append(others, c)
		}
	}
	return append(append(list, others...), watched...)
}

// oversize lists the facts that are larger than the capacity, of those that are
// listed by size, the largest first.
func (s *State) oversize(capacity uint64) (list []candidate) {
	if capacity == 0 {
		return nil
	}
	for k := range s.tx.Scan(rows.Large.Prefix(),
		rows.Large.Key(rows.Numbered{N: capacity, Name: ""})) {
		if len(list) == evictTurnMax {
			break
		}
		key := string(k[9:])
		list = append(list, candidate{key: key, oversize: true})
	}
	for i := range list {
		list[i].row, list[i].watched = s.fact(list[i].key), s.watched(list[i].key)
	}
	return list
}

// watched reports whether a held lease is indexed by a fact.
func (s *State) watched(key string) bool {
	row := s.watchersRow(key)
	return len(row.few) > 0 || row.many > 0
}

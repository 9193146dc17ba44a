package executor

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

func (s *State) applyFact(e ledger.Entry) Result {
	switch k := e.Record.Kind.(type) {
	case *pb.Record_FactAsserted:
		s.assertFact(e, k.FactAsserted)
	case *pb.Record_FactRetracted:
		key := k.FactRetracted.Key
		if v, ok := s.get(planKey(keyFact, key)); ok {
			row := s.factRow(v)
			row.Retracted, row.ChangedNs, row.Source = true, s.meta.TimeNs, e.Address
			s.provenance(e, row)
			s.set(planKey(keyFact, key), encode(row))
			s.facts.put(key, nil)
			s.wakeReaders(key, e.Address)
		}
	default:
		panic("executor: unknown fact record " + ledger.KindOf(e.Record).Name)
	}
	return effective
}

func (s *State) assertFact(e ledger.Entry, f *pb.FactAsserted) {
	row := &pb.FactRow{Value: f.Value, AssertedNs: s.meta.TimeNs, ChangedNs: s.meta.TimeNs, Source: e.Address, By: e.Source.Name}
	if had := s.fact(f.Key); had != nil && string(had.Value) == string(f.Value) {
		row.ChangedNs = had.ChangedNs
	}
	s.provenance(e, row)
	s.facts.put(f.Key, factOf(row))
	s.set(planKey(keyFact, f.Key), encode(row))
	k := sized(keyOccurred, f.Key, 20)
	k = binary.BigEndian.AppendUint64(k, uint64(s.meta.TimeNs))
	s.set(append(k, recordKey(0, e.Address.Sequence, e.Address.Index)[1:]...), nil)
	s.wakeReaders(f.Key, e.Address)
}

func (s *State) factRow(v []byte) *pb.FactRow {
	row := new(pb.FactRow)
	if err := row.UnmarshalVT(v); err != nil {
		panic(&StoreError{"get", err})
	}
	return row
}

// fact returns what is known under a key, or nil.
func (s *State) fact(key string) *triggers.Fact {
	if f, kept := s.facts.get(key); kept {
		return f
	}
	if s.base != nil {
		if _, changed := s.wrote[string(planKey(keyFact, key))]; !changed {
			return s.base.fact(key)
		}
	}
	var f *triggers.Fact
	if v, ok := s.get(planKey(keyFact, key)); ok {
		f = factOf(s.factRow(v))
	}
	s.facts.put(key, f)
	return f
}

func factOf(row *pb.FactRow) *triggers.Fact {
	if row.Retracted {
		return nil
	}
	return &triggers.Fact{Value: row.Value, AssertedNs: row.AssertedNs, ChangedNs: row.ChangedNs, Sequence: row.Source.GetSequence()}
}

// factView lets conditions read the folded facts.
type factView struct{ s *State }

// Fact implements triggers.View.
func (v factView) Fact(key string) *triggers.Fact { return v.s.fact(key) }

// Occurrences implements triggers.View.
func (v factView) Occurrences(key string, fromNs, toNs int64) iter.Seq[int64] {
	prefix := sized(keyOccurred, key, 8)
	from := binary.BigEndian.AppendUint64(slices.Clone(prefix), uint64(max(fromNs, 0)+1))
	to := binary.BigEndian.AppendUint64(slices.Clone(prefix), uint64(max(toNs, 0)+1))
	return func(yield func(int64) bool) {
		for k := range v.s.kv.Scan(from, to) {
			if !yield(int64(binary.BigEndian.Uint64(k[len(prefix):]))) {
				return
			}
		}
	}
}

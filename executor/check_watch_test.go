package executor

import (
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/leases"
	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// checkWatches recounts who watches which fact, and the nodes.
func checkWatches(s *State, plans []*plan, actions map[string][]*action, indexes map[string]bool) error {
	watching, perNode := map[string][]string{}, map[string]uint64{}
	note := func(planID string, n uint32, list []*rowspb.LeaseRow) {
		for _, l := range list {
			for _, k := range l.Keys {
				watching[k] = append(watching[k], string(rows.Lease{Plan: planID, N: n, Name: l.Name}.Append(nil)))
			}
			if l.Node != nil {
				perNode[string(l.Node)]++
			}
		}
	}
	for _, p := range plans {
		note(p.id, 0, p.row.Leases)
		for n := uint32(1); int(n) < len(actions[p.id]); n++ {
			note(p.id, n, actions[p.id][n].row.Leases)
		}
	}
	for k := range s.tx.Scan(rows.Nodes.Prefix(), rows.After(rows.Nodes.Prefix())) {
		node := k[1:]
		row := s.nodeRow(node)
		if row.Leases == 0 || row.Leases != perNode[string(node)] {
			return fmt.Errorf("node %x of %d leases, counted %d", node, row.Leases, perNode[string(node)])
		}
		delete(perNode, string(node))
		if row.WakeNs != 0 {
			indexes[string(rows.Due.Key(rows.Instant{Ns: row.WakeNs, Kind: rows.DueNode, Node: node}))] = true
		}
		indexes[string(rows.FaultyNodes.Key(node))] = true
		if _, on := rows.FaultyNodes.Get(s.tx, node); !on { // TestALeaseInErrorIsListed knows which
			delete(indexes, string(rows.FaultyNodes.Key(node)))
		}
		for _, key := range row.Keys {
			watching[key] = append(watching[key], leases.NodeID(node))
		}
	}
	if len(perNode) > 0 {
		return fmt.Errorf("leases of %d nodes that are not there", len(perNode))
	}
	count := 0
	for k := range s.tx.Scan(rows.Watchers.Prefix(), rows.After(rows.Watchers.Prefix())) {
		key := string(k[1:])
		want := watching[key]
		slices.Sort(want)
		if got := s.watchers.IDs(key); !slices.Equal(got, want) {
			return fmt.Errorf("fact %s is watched by %q, counted %q", key, got, want)
		}
		if _, many := s.watchers.Count(key); many > 0 {
			if int(many) != len(want) {
				return fmt.Errorf("fact %s has %d watchers, counted %d", key, many, len(want))
			}
			count += len(want)
		}
		delete(watching, key)
	}
	if len(watching) > 0 {
		return fmt.Errorf("facts without the row of their watchers: %q", slices.Sorted(maps.Keys(watching)))
	}
	for range s.tx.Scan(rows.Watches.Prefix(), rows.After(rows.Watches.Prefix())) {
		count--
	}
	if count != 0 {
		return fmt.Errorf("%d rows of watchers are missing", count)
	}
	return checkLengths(s)
}

// checkLengths recounts the prefixes that are watched, by their length.
func checkLengths(s *State) error {
	lengths := map[int]uint64{}
	for k := range s.tx.Scan(rows.Watchers.Prefix(), rows.After(rows.Watchers.Prefix())) {
		if prefix, is := triggers.PrefixOf(string(k[1:])); is {
			lengths[len(prefix)]++
		}
	}
	row, _ := rows.Lengths.Get(s.tx, struct{}{})
	for length := 0; len(row) > 0; length++ {
		n, size := binary.Uvarint(row)
		if row = row[size:]; n != lengths[length] {
			return fmt.Errorf("%d prefixes of %d bytes are watched, counted %d", n, length, lengths[length])
		}
		delete(lengths, length)
	}
	if len(lengths) > 0 {
		return fmt.Errorf("prefixes that are watched and not counted: %v", lengths)
	}
	return nil
}

// CheckKept holds what a state keeps in memory of its watchers and facts against
// the rows: what it remembers must change no answer.
func CheckKept(s *State, archive memory.Archive) (err error) {
	s.memory.Quietly(func() { err = checkKept(s, archive) })
	return err
}

func checkKept(s *State, archive memory.Archive) error {
	fresh := OpenWith(s.tx.KV(), s.tenant, archive, s.Programs)
	for _, key := range s.watchers.Kept() {
		list := s.watchers.Of(key)
		want := fresh.watchers.Of(key)
		if len(list) != len(want) {
			return fmt.Errorf("fact %s: %d watchers kept, %d in the rows", key, len(list), len(want))
		}
		for i, w := range list {
			f := want[i]
			same := w.ID == f.ID && w.WakeNs == f.WakeNs && w.Faulty == f.Faulty
			if !same || w.Keys != nil && !slices.Equal(w.Keys, f.Keys) {
				return fmt.Errorf("fact %s: kept %q %d %q, in the rows %q %d %q", key, w.ID, w.WakeNs, w.Keys, f.ID, f.WakeNs,
					f.Keys)
			}
			anew, keys := fresh.heldBy(f), f.Keys
			held := s.heldBy(w)
			if keys != nil != (w.Keys != nil) {
				return fmt.Errorf("fact %s: %q keeps the keys %q, want %q", key, w.ID, w.Keys, keys)
			}
			for _, ns := range []int64{s.meta.TimeNs, s.meta.TimeNs + hourNs} {
				kept, read := held.Evaluate(ns, s.memory.View()), anew.Evaluate(ns, fresh.memory.View())
				if !reflect.DeepEqual(kept, read) {
					return fmt.Errorf("fact %s: %q answers %+v as it is kept, %+v from the rows", key, w.ID, kept, read)
				}
			}
		}
	}
	return nil
}

package executor

import (
	"iter"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// A node stands for leases that always have the same answer, such as one condition
// over facts that a hundred thousand plans hold. It is indexed and asked in their
// place; they are looked at when it turns true.

func (s *State) nodeRow(node []byte) *rowspb.NodeRow {
	return rows.Nodes.Find(s.tx, node)
}

// joinNode makes a lease one of a node. It reports false when it needs a look of its
// own: the condition is true or moot now.
func (s *State) joinNode(ref rows.Lease, l *rowspb.LeaseRow, held *triggers.Held,
	node []byte) bool {
	row := s.nodeRow(node)
	// a flip that no one was asked at yet
	if row == nil || row.WakeNs != 0 && row.WakeNs <= s.meta.TimeNs {
		result := s.ask(held, s.meta.TimeNs)
		if result.Truth == triggers.True || result.Moot {
			return false
		}
		if row == nil {
			row = new(rowspb.NodeRow)
			s.indexNode(node, row, held, result, false)
		}
	}
	row.Leases++
	rows.Nodes.Set(s.tx, node, row)
	rows.Members.Add(s.tx, rows.Member{Node: node, Lease: ref})
	l.Node = node
	return true
}

// leaveNode takes a lease out of its node; the last one ends it.
func (s *State) leaveNode(ref rows.Lease, l *rowspb.LeaseRow) {
	node := l.Node
	l.Node = nil
	rows.Members.Delete(s.tx, rows.Member{Node: node, Lease: ref})
	row := s.nodeRow(node)
	if row.Leases--; row.Leases > 0 {
		rows.Nodes.Set(s.tx, node, row)
		return
	}
	s.setWatches(nodeID(node), row.Keys, nil)
	if row.WakeNs != 0 {
		s.dropDueKey(row.WakeNs,
			rows.Due.Key(rows.Instant{Ns: row.WakeNs, Kind: rows.DueNode, Node: node}))
	}
	if _, on := rows.FaultyNodes.Get(s.tx, node); on {
		s.setFaulty(rows.FaultyNodes.Key(node), false)
	}
	rows.Nodes.Delete(s.tx, node)
}

// indexNode moves a node to the facts and the instant it waits for now; wasFaulty
// says whether it is on the list of those in error.
func (s *State) indexNode(node []byte, row *rowspb.NodeRow, held *triggers.Held,
	result triggers.Result, wasFaulty bool) {
	keys := held.Watched(result, s.meta.TimeNs, factView{s})
	s.setWatches(nodeID(node), row.Keys, keys)
	if row.WakeNs != result.WakeNs {
		if row.WakeNs != 0 {
			s.dropDueKey(row.WakeNs,
				rows.Due.Key(rows.Instant{Ns: row.WakeNs, Kind: rows.DueNode, Node: node}))
		}
		if result.WakeNs != 0 {
			s.setDueKey(result.WakeNs,
				rows.Due.Key(rows.Instant{Ns: result.WakeNs, Kind: rows.DueNode, Node: node}))
		}
	} else if result.WakeNs != 0 {
		s.rouse(rows.Due.Key(rows.Instant{Ns: result.WakeNs, Kind: rows.DueNode, Node: node}))
	}
	row.Keys, row.WakeNs = keys, result.WakeNs
	if faulty(result) != wasFaulty {
		s.setFaulty(rows.FaultyNodes.Key(node), !wasFaulty)
	}
	w, eager := newWatcher(nodeID(node), held, result.WakeNs, keys, faulty(result))
	s.remember(w, keys, eager)
}

// nodeChanged follows a node whose answer is another now.
func (s *State) nodeChanged(
	w *watcher, held *triggers.Held, result triggers.Result, at *pb.Address,
) {
	node := []byte(w.id[1:])
	if result.Truth == triggers.True || result.Moot {
		s.dissolve(node, at)
		return
	}
	if row := s.nodeRow(node); row != nil {
		s.indexNode(node, row, held, result, w.faulty)
		rows.Nodes.Set(s.tx, node, row)
	}
}

// dissolve looks at each lease of a node by itself.
func (s *State) dissolve(node []byte, at *pb.Address) {
	for _, ref := range slices.Collect(s.members(node)) { // they leave it
		p := s.plan(ref.Plan)
		l, a := s.lease(p, ref)
		if l == nil || l.Node == nil {
			continue // an earlier one has ended its plan
		}
		s.leaveNode(ref, l)
		s.mark(p, a)
		if held := s.hold(p, a, l); held != nil && s.live(p, a, l, ref) {
			s.consider(p, a, l, ref, held, at)
		}
	}
}

// members yields the leases of a node, in ascending order.
func (s *State) members(node []byte) iter.Seq[rows.Lease] {
	prefix := append(rows.Members.Prefix(), node...)
	return func(yield func(rows.Lease) bool) {
		for k := range s.tx.Scan(prefix, rows.After(prefix)) {
			if !yield(rows.ParseLease(k[len(prefix):])) {
				return
			}
		}
	}
}

// member is the first lease of a node: all see the same.
func (s *State) member(node []byte) (p *plan, a *action, l *rowspb.LeaseRow) {
	for ref := range s.members(node) {
		if p = s.plan(ref.Plan); p != nil {
			if l, a = s.lease(p, ref); l != nil && l.Node != nil {
				return p, a, l
			}
		}
	}
	return nil, nil, nil
}

// nodeWatcher reads a node. Its condition is held when it is asked, as its first lease
// sees it.
func (s *State) nodeWatcher(node []byte) *watcher {
	row := s.nodeRow(node)
	if row == nil {
		return nil
	}
	_, faulty := rows.FaultyNodes.Get(s.tx, node)
	return unheldWatcher(nodeID(node), row.WakeNs, row.Keys, faulty)
}

// dueNode asks a node whose wake instant has come, and fires its leases.
func (d *decider) dueNode(node []byte, ns int64) int64 {
	w := d.state.nodeWatcher(node)
	switch {
	case w == nil || w.wakeNs != ns || d.full():
		return d.in.EpochNs
	case d.in.HoldClock:
		return d.in.EpochNs + heldAgain
	}
	held := d.state.heldBy(w)
	if held == nil {
		return d.in.EpochNs
	}
	result := d.state.answerAt(held, d.in.EpochNs)
	if result.Truth != triggers.True {
		return max(result.WakeNs, 0) // 0: only a fact can change it now
	}
	for ref := range d.live.members(node) { // what has fired is a member no more
		if d.full() {
			break
		}
		p := d.state.plan(ref.Plan)
		l, a := d.state.lease(p, ref)
		if l != nil && l.Node != nil && armed(p.row) && p.row.Fired == nil {
			full := d.state.hold(p, a, l).Evaluate(d.in.EpochNs, factView{d.state})
			d.fireDue(p, a, l, readingsOf(full.Readings), p.row.Opened)
		}
	}
	return d.in.EpochNs
}

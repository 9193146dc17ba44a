package turn

import (
	"github.com/sagenbaum/sagenbaum/executor"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// claim begins a term by an append that only one host can win, once the fold has reached
// the end of the ledger as it was when the session began.
func (m *Machine) claim(now Instant, r *Ready) {
	if !m.wants || m.Cursor() < m.attached || m.term != 0 {
		return
	}
	meta := m.state.Meta()
	if wait := int64(ClaimPause) - (now.MonoNs - m.lostNs); m.lost && wait > 0 &&
		meta.Fence == m.lostFence {
		r.Wakes, r.WakeInNs = true, wait // the term that was faster is on its way to the fold
		return
	}
	m.term = meta.Term + 1
	m.append([]*pb.Record{{
		Term: m.term,
		Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: m.config.Holder,
			FoldVersion: executor.FoldVersion, Tenant: m.tenant}},
	}}, true)
}

// applyTerm takes up or gives up the tenant as the ledger says: a term counts from the
// place where its record was read back. True: this host holds it since.
func (m *Machine) applyTerm() (up bool) {
	meta := m.state.Meta()
	switch {
	case m.holding && meta.Term != m.term:
		m.fenced(Down{By: meta.Holder})
	case !m.holding && m.term != 0 && meta.Term == m.term && meta.Holder == m.config.Holder:
		m.holding, m.fence = true, meta.TermSequence
		return true
	case !m.holding && m.term != 0 && meta.Term >= m.term:
		m.fenced(Down{By: meta.Holder}) // it won this term
	}
	return false
}

// fenced stops this host when another term has begun. It claims the next one only when
// its lease has been confirmed since: two hosts that both believe in theirs, as when the
// bucket of leases was lost, would else beat each other's terms in turn.
func (m *Machine) fenced(d Down) {
	m.wants, d.Doubt = false, true
	m.stepDown(d)
}

// stepDown stops deciding and sending.
func (m *Machine) stepDown(d Down) {
	m.holding, m.term, m.fence, m.answers = false, 0, 0, nil
	m.down = &d
}

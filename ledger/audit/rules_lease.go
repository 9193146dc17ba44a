package audit

import (
	"bytes"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// forLease makes a clause that is not asked of the lease on extra effects: that one is
// taken out by a probe, and fires for each answer that found some.
func forLease(id, says string, judge func(c *claim) judgement) clause {
	return clause{id, says, func(c *claim) judgement {
		if c.Record.GetLeaseFired().GetLease() == leaseDuplicate {
			return judgement{}
		}
		return judge(c)
	}}
}

// forCommittedLease makes a clause that is asked of the leases of a plan whose root is committed.
func forCommittedLease(id, says string, judge func(c *claim) judgement) clause {
	return forLease(id, says, func(c *claim) judgement {
		if !isRetired(c.p) {
			return judgement{}
		}
		return judge(c)
	})
}

// named is what a firing, or a cut, says of its lease.
func (c *claim) named() (lease string, depth uint32, chain []*pb.Link) {
	if k := c.Record.GetCascadeCut(); k != nil {
		return k.Lease, k.Depth, k.Chain
	}
	k := c.Record.GetLeaseFired()
	return k.GetLease(), k.GetDepth(), k.GetChain()
}

// firingClauses are asked of a firing and of a cut: the lease has turned true, here.
var firingClauses = []clause{openedPlan,
	forLease("I15.armed", "The leases of a plan are held while it can still be undone.",
		func(c *claim) judgement {
			return unless(c.p.holdsLeases() || isRetired(c.p), "plan %s is %s and holds no leases",
				c.p.id, c.p.status())
		}),
	forLease("I15.own", "The conditions of a child plan itself go with its commit.",
		func(c *claim) judgement {
			own := c.p.stillHolds() && c.Record.Action == "" && c.b.rules >= ledger.GivenUpSince
			return unless(!own, "plan %s is committed, and what it held itself went with that", c.p.id)
		}),
	forCommittedLease("I15.since",
		"After the commit of its plan a condition fires that asks for it.",
		func(c *claim) judgement {
			return unless(c.l != nil && c.l.after, "plan %s is committed and holds no lease", c.p.id)
		}),
	forCommittedLease("I5.after", "For a condition a committed plan is undone once.",
		func(c *claim) judgement { return undoneOnce(c.p.root()) }),
	forCommittedLease("I20.after",
		"After the commit a condition fires that turned true inside the undo windows.",
		func(c *claim) judgement {
			return unless(c.l.untilNs != 0, "undo windows of plan %s closed before lease %s was true",
				c.p.root().id, c.l.name)
		}),
	forCommittedLease("I15.after",
		"For a condition a committed plan is undone when its child plans have ended.",
		func(c *claim) judgement { return allEnded(c.p.root()) }),
	forCommittedLease("I12.tree",
		"Of the conditions of a committed plan and of its child plans the first fires that turned true.",
		func(c *claim) judgement { return c.turnedFirst() }),
	forLease("I14.unwinds", "A plan unwinds for one lease.", func(c *claim) judgement {
		return unless(c.p.fired == nil, "plan %s unwinds for %s", c.p.id, reference{c.p.fired})
	}),
	forLease("I14.held", "A lease fires that is held, and has not fired.",
		func(c *claim) judgement {
			name, _, _ := c.named()
			return unless(c.l != nil && !c.l.fired && (c.a != nil || c.Record.Action == ""),
				"plan %s holds no lease %s", c.p.id, name)
		}),
	forLease("I15.deadline", "The deadline of a plan ends with its commit.",
		func(c *claim) judgement {
			return unless(c.p.phase != ledger.StateCommitting || c.l.name != leaseDeadline,
				"plan %s was committed before its deadline", c.p.id)
		}),
	forLease("I25.cut", "A lease that was cut short fires when its owner lets it.",
		func(c *claim) judgement {
			return unless(!c.l.isStopped(), "lease %s of plan %s is %s", c.l.name, c.p.id,
				c.l.cascade)
		}),
	forLease("I12.first",
		"A lease that reads no clock fires for the record at which it turned true.",
		func(c *claim) judgement {
			return c.firesForItsTurn(c.p.firstTurn(numberOf(c.a),
				c.l.name))
		}),
	forLease("I16.early", "A lease that reads the clock does not fire before it is true.",
		func(c *claim) judgement {
			truth := c.turned()
			return unless(truth == triggers.True || !clocked(c.b.programs, c.l),
				"lease %s of plan %s is %s here, and waits", c.l.name, c.p.id, truth)
		}),
	forLease("I11.true", "A lease fires that is true, or has turned true.",
		func(c *claim) judgement {
			truth := c.turned()
			return unless(truth == triggers.True, "lease %s of plan %s is %s here, and waits",
				c.l.name,
				c.p.id, truth)
		}),
	forLease("I25.depth", "A firing is one deeper than the deepest undo whose fact it has read.",
		func(c *claim) judgement {
			_, depth, _ := c.named()
			f := c.firing
			return unless(depth == f.depth,
				"depth %d, by what lease %s of plan %s read, and not %d",
				f.depth, c.l.name, c.p.id, depth)
		}),
	forLease("I25.chain", "A firing tells the chain of firings that led to it.",
		func(c *claim) judgement {
			_, _, chain := c.named()
			return unless(c.b.sameChain(c.Entry, chain, c.firing),
				"another chain led to lease %s of plan %s", c.l.name, c.p.id)
		}),
}

// turned says whether the lease of a claim is true here or has turned true, and keeps
// its firing.
func (c *claim) turned() triggers.Truth {
	if c.firing != nil {
		return triggers.True
	}
	var truth triggers.Truth
	c.firing, truth = c.b.asWhat(c.p, c.a, c.l)
	return truth
}

// firesForItsTurn is I12: the cause of a firing is the first record after which its
// conditionText was true.
func (c *claim) firesForItsTurn(t *turn) judgement {
	if t == nil || t.clocked || samePlace(c.Record.Cause, t.at, c.Entry) {
		return judgement{}
	}
	return breaks("cause: lease %s of plan %s turned true at %s", t.lease, c.p.id, reference{t.at})
}

var leaseChapters = map[string]*chapter{
	"deadline_moved": {counts: movedClauses, collect: noteMoved},
	"lease_fired": {
		counts: append(firingClauses,
			clause{"I11.duplicate",
				"The lease on extra effects fires for effects that a probe found.",
				func(c *claim) judgement {
					waits := c.a != nil && len(c.a.duplicates) > 0 && c.owesExtra()
					return unless(waits || c.Record.GetLeaseFired().Lease != leaseDuplicate,
						"no extra effect of action %s of plan %s waits", c.Record.Action, c.p.id)
				}}),
		content: []clause{
			forLease("I14.once", "A lease fires once, until its plan is open again.",
				func(c *claim) judgement {
					lease, _, _ := c.named()
					first, fired := c.p.hasFired[firedName(c.Record)]
					return unless(!fired, "lease %s fired at %d.%d", lease, first.sequence,
						first.index)
				}),
			{"I11.text", "The condition of a firing is the one that was registered.",
				func(c *claim) judgement {
					k := c.Record.GetLeaseFired()
					return unless(c.l != nil && c.l.conditionText() == k.Condition,
						"the registered condition of lease %s, and not %.80q", k.Lease, k.Condition)
				}},
			{"I11.read", "A firing tells what its condition read.",
				func(c *claim) judgement { return c.readRight() }},
			{"I12.edge",
				"The cause of a firing is the first record after which its condition was true.",
				func(c *claim) judgement {
					lease, _, _ := c.named()
					return c.firesForItsTurn(c.p.turnedBy(numberOf(c.a), lease))
				}},
			{"I25.limit", "No cascade is deeper than any holder may allow.",
				func(c *claim) judgement {
					lease, depth, _ := c.named()
					_, always := standing[lease]
					return unless(always || depth <= DepthMax,
						"lease %s: depth %d at most, and not %d",
						lease, DepthMax, depth)
				}},
		},
		collect: noteFiring,
	},
	"cascade_cut": {
		counts: append(firingClauses,
			clause{"I25.by-fact",
				"A lease is cut short where the facts of undos have made it true.",
				func(c *claim) judgement {
					return unless(c.l.text != "" && c.firing.depth >= 2,
						"lease %s of plan %s turned true by no cascade",
						c.l.name, c.p.id)
				}}),
		collect: noteCut,
	},
}

// readRight is a part of I11. Where a lease turned by no clock, what it read is what the
// facts were then. One on the clock, and one that turned in this very commit, as one that
// is armed again does, was asked where its holder decided: of the facts that have not
// changed since, it has the values.
func (c *claim) readRight() judgement {
	k := c.Record.GetLeaseFired()
	if t := c.p.turnOf(numberOf(c.a), k.Lease); t != nil {
		alike := func(was, said *pb.Reading) bool {
			return sameReading(was, said,
				c.Address.Sequence)
		}
		switch same := slices.EqualFunc(t.read, k.Readings, alike); {
		case same:
			return judgement{}
		case !t.clocked && t.at.GetSequence() != c.Address.Sequence:
			return breaks("lease %s read %.200s, and not %.200s", k.Lease, readingsText(t.read),
				readingsText(k.Readings))
		}
	}
	for _, r := range k.Readings {
		key, ok := readFact(r.Name)
		if !ok || r.Sequence == 0 {
			continue
		}
		f := c.b.fact(key)
		switch at := f.sourceSequence(); {
		case at < r.Sequence:
			return breaks("lease %s: a record that asserts fact %q, and sequence %d is none",
				k.Lease, key, r.Sequence)
		case at == r.Sequence && len(r.Value) > 0 && !f.retracted && !f.wasIn(r.Value):
			return breaks("lease %s read fact %q, which is %.80s and not %.80s", k.Lease, key,
				f.value, r.Value)
		}
	}
	return judgement{}
}

// wasIn: the message that the fact is of has asserted this value of it. A condition on the clock
// may have turned true in the middle of that message.
func (f *fact) wasIn(value []byte) bool {
	return bytes.Equal(value, f.value) ||
		slices.ContainsFunc(f.earlier, func(was []byte) bool { return bytes.Equal(was, value) })
}

// firedName is the key of a lease in what has fired of a plan.
func firedName(r *pb.Record) string { return r.Action + "\x00" + r.GetLeaseFired().Lease }

// factChapters are those of working memory, as the holder keeps it.
var factChapters = map[string]*chapter{
	"fact_evicted": {
		counts: []clause{knownFact,
			{"I10.evicted", "A fact is evicted that is in memory.", func(c *claim) judgement {
				f := c.factNamed()
				return unless(f.evicted == nil, "fact %q was evicted at %s", c.key(),
					reference{f.evicted})
			}},
			{"I6.evicted", "An eviction names the value that it takes.", func(c *claim) judgement {
				f := c.factNamed()
				return unless(sameAddress(c.Record.GetFactEvicted().Fact, f.source),
					"fact: %q was asserted at %s",
					c.key(), reference{f.source})
			}},
			{"I6.evict-cause", "The cause of an eviction is what asked for it.",
				func(c *claim) judgement {
					f := c.factNamed()
					return unless(c.Record.Cause == nil || sameAddress(c.Record.Cause, f.asked),
						"cause: no one asked there to evict fact %q", c.key())
				}}},
		collect: func(b *book, c *claim) {
			f := c.factNamed()
			f.evicted, f.asked, f.rough = c.Address, nil, !readsExactly(b.rules)
		},
	},
	"fact_reingested": {
		counts: []clause{knownFact,
			{"I10.back", "A fact is brought back that was evicted.", func(c *claim) judgement {
				return unless(c.factNamed().evicted != nil, "fact %q is in memory", c.key())
			}},
			{"I6.back", "What is brought back names the value and its eviction.",
				func(c *claim) judgement {
					f, k := c.factNamed(), c.Record.GetFactReingested()
					return unless(sameAddress(k.Fact, f.source) &&
						sameAddress(k.Evicted, f.evicted),
						"fact %q was asserted at %s and evicted at %s", c.key(),
						reference{f.source},
						reference{f.evicted})
				}},
			{"I6.back-cause", "A fact is brought back for its eviction, or for the operator who asked.",
				func(c *claim) judgement {
					f, cause := c.factNamed(), c.Record.Cause
					return unless(sameAddress(cause, f.evicted) || f.asked != nil &&
						sameAddress(cause, f.asked),
						"cause: no one asked there for fact %q", c.key())
				}},
			{"I10.value", "The value that is brought back is the one that was evicted.",
				func(c *claim) judgement {
					f, k := c.factNamed(), c.Record.GetFactReingested()
					return unless(len(k.Value) == 0 || bytes.Equal(k.Value, f.value),
						"fact %q was asserted with %.80s",
						c.key(), f.value)
				}}},
		collect: func(_ *book, c *claim) {
			f := c.factNamed()
			f.evicted, f.asked, f.rough = nil, nil, false
		},
	},
}

var knownFact = clause{"I10.fact", "A fact is evicted, or brought back, that there is.",
	func(c *claim) judgement {
		f := c.factNamed()
		return unless(f != nil && !f.retracted, "there is no fact %q", c.key())
	}}

// key is that of the fact that a holder takes out of memory or brings back.
func (c *claim) key() string {
	if k := c.Record.GetFactEvicted(); k != nil {
		return k.Key
	}
	return c.Record.GetFactReingested().GetKey()
}

func (c *claim) factNamed() *fact { return c.b.fact(c.key()) }

// ofAgent makes a clause of an agent's records one that is asked of its moves of a deadline.
func ofAgent(of clause) clause {
	return clause{of.id, of.says, func(c *claim) judgement {
		if c.Source.Class != ledger.ClassAgent {
			return judgement{}
		}
		return of.judge(c)
	}}
}

var movedClauses = []clause{openedPlan, ofAgent(ofItsWriter[1]), ofAgent(ofItsWriter[2]),
	{"I5.moved", "The deadline that one record has set is moved once.", func(c *claim) judgement {
		k := c.Record.GetDeadlineMoved()
		return copyIf(k.Follows != 0 && c.p.movedFrom == k.Follows && c.p.deadlineNs == k.DeadlineNs)
	}},
	{"I15.moved", "A deadline is moved of an open plan, and before anything has asked for its end.",
		func(c *claim) judgement {
			for up := c.p.parent; up != nil; up = up.parent {
				if up.phase != ledger.StateOpen {
					return breaks("plan %s, a part of plan %s, which is %s", c.p.id, up.id, up.phase)
				}
			}
			return unless(c.p.phase == ledger.StateOpen && c.p.signal == "" && c.p.fired == nil,
				"plan %s is %s", c.p.id, c.p.status())
		}},
	{"I16.moved", "A deadline is moved before it has come.", func(c *claim) judgement {
		return unless(c.p.deadlineNs == 0 || c.p.deadlineNs > c.b.now,
			"the deadline of plan %s has come", c.p.id)
	}},
	{"I6.moved", "Who moves a deadline names what has set it; an operator need not.",
		func(c *claim) judgement {
			follows := c.Record.GetDeadlineMoved().Follows
			if follows == 0 && c.Source.Class == ledger.ClassOperator {
				return judgement{}
			}
			return unless(follows == c.p.deadlineAt.GetSequence(),
				"deadline_moved.follows: that of plan %s was set by %s", c.p.id,
				reference{c.p.deadlineAt})
		}},
	{"I16.to", "A deadline is moved to an instant to come.", func(c *claim) judgement {
		return unless(c.Record.GetDeadlineMoved().DeadlineNs > c.b.now,
			"deadline_moved.deadline_ns: an instant to come")
	}},
}

// noteMoved gives a plan another deadline, or its first one, and looks at what reads it.
func noteMoved(b *book, c *claim) {
	k, p := c.Record.GetDeadlineMoved(), c.p
	if p.deadlineNs == 0 {
		p.leases = append(p.leases, &lease{name: leaseDeadline, armedNs: b.now,
			exact: readsExactly(b.rules)})
	}
	p.deadlineNs, p.deadlineAt, p.movedFrom = k.DeadlineNs, c.Address, k.Follows
	due := func(a *action, list []*lease) {
		for _, l := range list {
			if reads(b.programs, l.conditionText(), "plan.deadline") {
				b.look(p, a, l, "")
			}
		}
	}
	due(nil, p.leases)
	for _, a := range p.actions {
		due(a, a.leases)
	}
	b.noteAsking(p)
}

package audit

import (
	"encoding/binary"
	"maps"
	"slices"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// coder writes values for a shelf, or reads them again: each type says its fields once,
// for both ways.
type coder struct {
	data  []byte
	reads bool
	bad   bool // what is read was never written
}

func (c *coder) take(n uint64) []byte {
	if c.bad = c.bad || n > uint64(len(c.data)); c.bad {
		return nil
	}
	out := c.data[:n:n]
	c.data = c.data[n:]
	return out
}

func (c *coder) uvarint(v uint64) uint64 {
	if !c.reads {
		c.data = binary.AppendUvarint(c.data, v)
		return v
	}
	v, n := binary.Uvarint(c.data)
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.data = c.data[n:]
	return v
}

func number[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](c *coder, v *T) {
	*v = T(c.uvarint(uint64(*v)))
}

func (c *coder) flag(v *bool) {
	n := uint64(0)
	if *v {
		n = 1
	}
	*v = c.uvarint(n) == 1
}

func (c *coder) text(v *string) {
	n := c.uvarint(uint64(len(*v)))
	if !c.reads {
		c.data = append(c.data, *v...)
		return
	}
	*v = string(c.take(n))
}

func (c *coder) bytes(v *[]byte) {
	n := c.uvarint(uint64(len(*v)))
	if !c.reads {
		c.data = append(c.data, *v...)
		return
	}
	if *v = nil; n > 0 {
		*v = slices.Clone(c.take(n))
	}
}

// pointer codes what may be nil.
func pointer[T any](c *coder, v **T, one func(*coder, *T)) {
	there := *v != nil
	if c.flag(&there); !there {
		*v = nil
		return
	}
	if c.reads {
		*v = new(T)
	}
	one(c, *v)
}

func sequence[T any](c *coder, v *[]T, one func(*coder, *T)) {
	n := c.uvarint(uint64(len(*v)))
	if c.reads {
		*v = nil
	}
	for i := uint64(0); i < n && !c.bad; i++ {
		if c.reads {
			*v = append(*v, *new(T))
		}
		one(c, &(*v)[i])
	}
}

// table codes a map by names, in their order.
func table[T any](c *coder, v *map[string]T, one func(*coder, *T)) {
	names := slices.Sorted(maps.Keys(*v))
	sequence(c, &names, func(c *coder, name *string) {
		c.text(name)
		value := (*v)[*name]
		if one(c, &value); c.reads {
			if *v == nil {
				*v = map[string]T{}
			}
			(*v)[*name] = value
		}
	})
}

// record codes a part of a record, which may be nil, with all that this version does
// not know.
func record[T any, P message[T]](c *coder, v **T) {
	pointer(c, v, func(c *coder, m *T) {
		var data []byte
		if !c.reads {
			var err error
			if data, err = P(m).MarshalVT(); err != nil {
				panic("audit: cannot encode a part of a record: " + err.Error())
			}
		}
		if c.bytes(&data); c.reads && P(m).UnmarshalVT(data) != nil {
			c.bad = true
		}
	})
}

// Each type says here what is kept of it on a shelf, in the order of its fields.

func codeFamily(c *coder, v **family) {
	pointer(c, v, func(c *coder, f *family) {
		parents, children := map[*plan]string{}, map[*action]string{}
		c.text(&f.id)
		sequence(c, &f.plans, func(c *coder, p **plan) {
			pointer(c, p, func(c *coder, p *plan) {
				if codePlan(c, p); c.bad {
					return
				}
				codeLink(c, &p.parent, p, parents)
				for _, a := range p.actions {
					codeLink(c, &a.child, a, children)
				}
				p.family = f
			})
		})
		if c.reads && !c.bad {
			f.listed = len(f.plans)
			f.link(func(p *plan) string { return parents[p] },
				func(a *action) string { return children[a] })
		}
	})
}

// codeLink codes the id of a plan that is led to. What is read leads to a stand-in until
// the family is whole, and of says where to.
func codeLink[T comparable](c *coder, to **plan, from T, of map[T]string) {
	id := ""
	if !c.reads && *to != nil {
		id = (*to).id
	}
	if c.text(&id); c.reads && id != "" {
		*to, of[from] = &plan{}, id
	}
}

func codeDeadline(c *coder, p *plan) {
	number(c, &p.openedNs)
	number(c, &p.activeNs)
	number(c, &p.deadlineNs)
	record(c, &p.deadlineAt)
	number(c, &p.movedFrom)
	sequence(c, &p.earlier, (*coder).text)
	number(c, &p.adoptedFrom)
	c.flag(&p.awaited)
	c.bytes(&p.input)
}

func codePlan(c *coder, p *plan) {
	c.text(&p.id)
	c.text(&p.agent)
	record(c, &p.opened)
	codeDeadline(c, p)
	c.flag(&p.idles)
	record(c, &p.declared)
	c.text(&p.phase)
	c.text(&p.signal)
	c.text(&p.reason)
	c.flag(&p.signalled)
	c.text(&p.toSavepoint)
	c.text(&p.fromAction)
	number(c, &p.parts)
	c.flag(&p.counted)
	pointer(c, &p.turned, codeTurn)
	sequence(c, &p.behind, codeTurnAt)
	record(c, &p.fired)
	record(c, &p.unwinding)
	number(c, &p.unwindingNs)
	record(c, &p.resumed)
	record(c, &p.committed)
	record(c, &p.ended)
	codeRetired(c, p)
	number(c, &p.gaveUp)
	sequence(c, &p.inDoubt, (*coder).text)
	sequence(c, &p.actions, func(c *coder, a **action) { pointer(c, a, codeAction) })
	c.flag(&p.byHand)
	c.flag(&p.lastGoes)
	c.flag(&p.unopened)
	c.text(&p.opener)
	c.text(&p.writer)
	number(c, &p.writerSinceNs)
	number(c, &p.resumedAt)
	sequence(c, &p.orphans, codeOrphan)
	sequence(c, &p.leases, codeLeaseAt)
	sequence(c, &p.savepoints, func(c *coder, s *savepoint) {
		c.text(&s.name)
		number(c, &s.actions)
	})
	c.flag(&p.rewinding)
	number(c, &p.target)
	number(c, &p.entry)
	number(c, &p.depth)
	c.text(&p.origin)
	c.text(&p.undoneAs)
	c.flag(&p.delivers)
	c.text(&p.deliveredAs)
	record(c, &p.stopped)
	number(c, &p.rewinds)
	number(c, &p.savepointsSet)
	table(c, &p.proposals, codeProposalAt)
	codeFiringAt(c, &p.firing)
	codeFiringAt(c, &p.passed)
	sequence(c, &p.cuts, func(c *coder, x **cut) { pointer(c, x, codeCut) })
	table(c, &p.hasFired, func(c *coder, at *place) {
		number(c, &at.sequence)
		number(c, &at.index)
	})
	number(c, &p.holding)
	number(c, &p.aheads)
	number(c, &p.sealed)
	record(c, &p.erasure)
	record(c, &p.erased)
	record(c, &p.shredded)
	if c.reads && p.proposals == nil {
		p.proposals = map[string]*proposal{}
	}
}

func codeOrphan(c *coder, o *orphan) {
	c.text(&o.name)
	c.text(&o.action)
	c.text(&o.place)
	number(c, &o.sequence)
	c.text(&o.writer)
	c.bytes(&o.act)
	c.flag(&o.happened)
	c.flag(&o.answered)
	c.flag(&o.withdrawn)
}

// codeOutcome codes what became of a forward, what its effect is called, and what its undo is.
func codeOutcome(c *coder, a *action) {
	c.text(&a.outcome)
	number(c, &a.outcomeNs)
	number(c, &a.outcomeAt)
	c.text(&a.externalRef)
	c.text(&a.foundRef)
	c.text(&a.key)
	sequence(c, &a.laterKeys, func(c *coder, x *laterKey) {
		number(c, &x.after)
		record(c, &x.at)
	})
	number(c, &a.saidDone)
	sequence(c, &a.saidBefore, func(c *coder, n *uint32) { number(c, n) })
}

// codeChange codes what someone else may have made of what the forward left.
func codeChange(c *coder, a *action) {
	number(c, &a.change)
	number(c, &a.changeNs)
	c.bytes(&a.found)
	c.bytes(&a.facts)
	sequence(c, &a.factsLost, (*coder).text)
	c.flag(&a.overwrite)
	c.flag(&a.undoneNow) // and whether it is the last act of its plan
	c.flag(&a.letsGo)
}

func codeAction(c *coder, a *action) {
	number(c, &a.n)
	c.text(&a.id)
	record(c, &a.registered)
	number(c, &a.atNs)
	record(c, &a.forward)
	record(c, &a.compensation)
	sequence(c, &a.before, func(c *coder, n *uint32) { number(c, n) })
	number(c, &a.dutyOf)
	c.text(&a.writer)
	codeOutcome(c, a)
	c.text(&a.failure)
	c.bytes(&a.lifted)
	c.bytes(&a.input)
	c.bytes(&a.output)
	c.bytes(&a.image)
	c.flag(&a.incomplete)
	c.flag(&a.unnamed)
	c.text(&a.undo)
	number(c, &a.attempt)
	number(c, &a.attemptsFrom)
	codeDelivery(c, a)
	c.flag(&a.blindly)
	record(c, &a.dispatched)
	c.bytes(&a.arguments)
	record(c, &a.settled)
	number(c, &a.settledNs)
	c.flag(&a.scoped)
	number(c, &a.verdict)
	c.text(&a.verdictBy)
	c.text(&a.verdictReason)
	number(c, &a.verdictNs)
	record(c, &a.resolution)
	sequence(c, &a.leases, codeLeaseAt)
	c.flag(&a.late)
	c.flag(&a.owedElse)
	record(c, &a.reported)
	number(c, &a.asking)
	number(c, &a.asked)
	number(c, &a.askedFrom)
	number(c, &a.askedNs)
	number(c, &a.absentNs)
	codeDoubt(c, a)
	number(c, &a.dispatchedNs)
	c.flag(&a.unserved)
	c.flag(&a.failedForNow)
	c.flag(&a.undone)
	c.flag(&a.askedToSend)
	number(c, &a.presence)
	c.flag(&a.there)
	record(c, &a.pending)
	c.flag(&a.confirmed)
	codeChange(c, a)
	number(c, &a.aliveUntilNs)
	c.flag(&a.approved)
	codeProposalAt(c, &a.proposal)
	number(c, &a.closesNs)
	c.flag(&a.warned)
	number(c, &a.duties)
	codeFound(c, a)
	number(c, &a.successes)
	sequence(c, &a.secrets, func(c *coder, x *secret) {
		number(c, &x.attempt)
		c.bytes(&x.digest)
		c.text(&x.by)
	})
	c.text(&a.doubt)
	pointer(c, &a.ahead, codeAhead)
}

func codeLeaseAt(c *coder, l **lease) {
	pointer(c, l, func(c *coder, l *lease) {
		c.text(&l.name)
		c.text(&l.text)
		number(c, &l.armedNs)
		c.flag(&l.fired)
		c.text(&l.cascade)
		c.flag(&l.joined)
		c.flag(&l.single)
		c.flag(&l.ofStaged)
		c.flag(&l.exact)
		c.flag(&l.after)
		number(c, &l.untilNs)
		number(c, &l.trueNs)
		sequence(c, &l.watched, (*coder).text)
	})
}

func codeTurn(c *coder, t *turn) {
	number(c, &t.number)
	c.text(&t.lease)
	number(c, &t.ns)
	record(c, &t.at)
	c.flag(&t.clocked)
	codeFiringAt(c, &t.firing)
	sequence(c, &t.read, func(c *coder, r **pb.Reading) { record(c, r) })
}

func codeTurnAt(c *coder, t **turn) { pointer(c, t, codeTurn) }

func codeFiringAt(c *coder, f **firing) {
	pointer(c, f, func(c *coder, f *firing) {
		c.text(&f.plan)
		c.text(&f.action)
		c.text(&f.lease)
		record(c, &f.fired)
		number(c, &f.depth)
		pointer(c, &f.by, codeMade)
		record(c, &f.passed)
	})
}

func codeMade(c *coder, m *made) {
	c.text(&m.key)
	record(c, &m.fact)
	c.flag(&m.retracted)
	number(c, &m.depth)
	c.text(&m.undonePlan)
	c.text(&m.undone)
	record(c, &m.fired)
}

func codeCut(c *coder, x *cut) {
	number(c, &x.number)
	c.text(&x.lease)
	record(c, &x.at)
	codeProposalAt(c, &x.proposal)
}

func codeProposalAt(c *coder, p **proposal) {
	pointer(c, p, func(c *coder, p *proposal) {
		c.text(&p.answer)
		c.flag(&p.halt)
		c.flag(&p.force)
		c.text(&p.operator)
	})
}

// codeTimes codes ascending instants by what lies between them.
func codeTimes(c *coder, times *[]int64) {
	last := int64(0)
	sequence(c, times, func(c *coder, ns *int64) {
		d := *ns - last
		number(c, &d)
		*ns = last + d
		last = *ns
	})
}

// codeDoubt is what was asked, or told, of the effect of an action while its plan was open.
func codeDoubt(c *coder, a *action) {
	number(c, &a.askNs)
	c.flag(&a.extra)
	c.flag(&a.told)
	record(c, &a.toldAt)
	number(c, &a.wordAt)
	number(c, &a.doubtedAs)
}

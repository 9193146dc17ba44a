package audit

import (
	"fmt"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// clause is one part of a rule, as a predicate over what the records so far say and the
// record that comes next.
type clause struct {
	id    string // "I21.order": the rule, and a name that stays
	says  string // a sentence: what is right
	judge func(c *claim) judgement
}

// rule is the rule that a clause is a part of, as in "I21".
func (k *clause) rule() string {
	rule, _, _ := strings.Cut(k.id, ".")
	return rule
}

// chapter is what is asked of the records of one kind, in this order.
type chapter struct {
	counts  []clause                // a record that breaks one changes nothing
	content []clause                // one that breaks one counts all the same, and is a violation
	collect func(b *book, c *claim) // nil: nothing rests on a record of the kind
}

func (of *chapter) collects(b *book, c *claim) {
	if of.collect != nil {
		of.collect(b, c)
	}
}

// judgement is the answer of a clause.
type judgement struct {
	is    finding
	right string // where it is broken: what would have been right
}

type finding uint8

const (
	kept   finding = iota
	broken         // the record breaks the clause
	copied         // it says again what an earlier record has said
	untold         // what it rests on is withheld
)

// breaks says what would have been right.
func breaks(format string, a ...any) judgement {
	return judgement{broken, fmt.Sprintf(format, a...)}
}

// unless breaks a clause where the condition does not hold.
func unless(right bool, format string, a ...any) judgement {
	if right {
		return judgement{}
	}
	return breaks(format, a...)
}

// claim is a record that asks to count, with what it is about.
type claim struct {
	ledger.Entry
	b *book
	p *plan   // nil: none of that id was opened
	a *action // nil: none of that id is registered in the plan
	l *lease  // that it names, held by plan or action; nil: none

	away   error   // why its writer may begin nothing new; nil: it may
	firing *firing // of its lease, once that was asked for
	fault  *fault  // what is wrong with the arguments of its call, once that was asked for
	asked  bool    // that was asked for

	of     *Ledger        // nil: the record is judged on trial
	commit []ledger.Entry // the records of its message
	// excused reports whether the record was right, as a function says, where its holder had read to:
	// others have written since. nil: the record is judged on trial.
	excused func(right func(*claim) bool) bool
}

// wasRight reports whether a record of a holder is right, as a function says, or was where its
// holder had read to.
func (c *claim) wasRight(right func(*claim) bool) bool {
	return right(c) || c.excused != nil && c.excused(right)
}

// Dispositions of records.
const (
	Effective = "effective"
	Repeated  = "repeated" // a second copy of a record that was folded before
	Refused   = "refused"  // it breaks a rule
	Void      = "void"     // a decision that does not hold at its place
)

// verdict is what became of a record, and by which clause.
type verdict struct {
	kind  string
	by    *clause // nil: effective, or a copy of a whole record
	right string
}

func (v verdict) ok() bool { return v.kind == Effective }

// admit asks clauses in order until one does not hold.
func admit(clauses []clause, c *claim) verdict {
	for i := range clauses {
		k := &clauses[i]
		switch j := k.judge(c); {
		case j.is == copied:
			return verdict{Repeated, k, "an earlier record says the same"}
		case j.is == broken && c.Source.Class == ledger.ClassExecutor && c.Err == nil:
			return verdict{Void, k, j.right}
		case j.is == broken:
			return verdict{Refused, k, j.right}
		}
	}
	return verdict{kind: Effective}
}

// claim finds what a record is about.
func (b *book) claim(e ledger.Entry) *claim {
	c := &claim{Entry: e, b: b}
	if e.Record == nil || e.Record.Plan == "" {
		return c
	}
	if c.p = b.plan(e.Record.Plan); c.p == nil {
		return c
	}
	c.a = c.p.named(e.Record.Action)
	switch k := e.Record.Kind.(type) {
	case *pb.Record_LeaseFired:
		c.l, _ = c.p.leaseNamed(numberOf(c.a), k.LeaseFired.Lease)
	case *pb.Record_CascadeCut:
		c.l, _ = c.p.leaseNamed(numberOf(c.a), k.CascadeCut.Lease)
	}
	return c
}

// fold takes one record: where it keeps the clauses of its kind, what it says is collected.
func (b *book) fold(e ledger.Entry) verdict { return b.take(b.begin(e)) }

// begin moves logical time to a record, and finds what the record is about.
func (b *book) begin(e ledger.Entry) *claim {
	b.before = b.now
	b.tick(e)
	b.at = e.Address
	b.records++
	endHeld(b, e.Record)
	c := b.claim(e)
	c.writes()
	return c
}

func (b *book) take(c *claim) verdict {
	of, v := b.judge(c)
	b.collect(of, c, v)
	return v
}

// collect keeps what a record says that counts, and what one claims that was refused.
func (b *book) collect(of *chapter, c *claim, v verdict) {
	switch {
	case v.ok() && c.Source.Class == ledger.ClassAgent && c.p != nil && c.p.agent == c.Source.Name:
		c.p.isActive(b.now)
		of.collects(b, c)
		lookIdling(b, c.p)
		c.keepsID()
	case v.ok():
		of.collects(b, c)
		c.keepsID()
	case v.kind == Refused:
		b.addFailedPlan(c.Entry)
		b.noteClaim(c.Entry)
	}
	if c.Record == nil {
		return
	}
	if p := b.plan(c.Record.Plan); p != nil {
		p.sealed += sealedIn(c.Record)
		b.followChildren(p.root())
		b.touched(p, len(c.Body)+recordLen)
		if u := b.plan(p.undoneAs); u != nil { // it learns of outcomes, too
			b.followChildren(u.root())
		}
		b.followRuns(p.family, c.Record.EpochNs)
	}
}

// keepsID remembers the id of a record that counts.
func (c *claim) keepsID() {
	if id, ok := c.recordID(); ok {
		c.b.ids.Keep(c.Source.Writer(), id, [16]byte(c.BodyDigest()), ledger.IDsKept)
	}
}

// judge asks the clauses of a record's form, of its writer, and of its kind.
func (b *book) judge(c *claim) (of *chapter, v verdict) {
	if v = admit(formClauses, c); !v.ok() {
		return nil, v
	}
	if v = admit(writerClauses[c.Source.Class], c); !v.ok() {
		return nil, v
	}
	heed(b, c)
	of = chapterOf(c)
	return of, admit(of.counts, c)
}

// heed collects what a record says even if it is refused: a forward may be crossing by
// now, a token is no secret any more, and a holder has read so far.
func heed(b *book, c *claim) {
	switch c.Source.Class {
	case ledger.ClassAgent:
		acts := c.Record.GetForwardRegistered() != nil || c.Record.GetForwardCompleted() != nil ||
			c.Record.GetForwardInDoubt() != nil
		if c.p == nil && acts {
			c.away = c.beginsPlan()
			c.p = b.addPlan(c.Entry, &pb.PlanOpened{})
			if b.rules >= ledger.BoundedSince {
				b.failsAway(c.p, c.away)
			}
		}
	case ledger.ClassWorker:
		if k := c.Record.GetCompensationReported(); k != nil && c.a != nil &&
			k.Key == keyOf(b, c.p, c.a, k.Attempt) && c.a.takesToken(k.Attempt, k.Token, c.Source.Name) {
			c.a.noteToken(k.Attempt, c.Source.Name)
		}
	case ledger.ClassExecutor:
		if c.Record.Folded != 0 && c.Record.GetTermStarted() == nil &&
			c.Record.GetLedgerRepaired() == nil {
			b.decidedAt = c.Address.Sequence
		}
	}
}

// chapterOf finds the clauses of a record. What a few kinds mean depends on their writer,
// or on what their plan is at.
func chapterOf(c *claim) *chapter {
	holder, name := c.Source.Class == ledger.ClassExecutor, ledger.KindOf(c.Record).Name
	switch k := c.Record.Kind.(type) {
	case *pb.Record_FactAsserted, *pb.Record_FactRetracted:
		if holder {
			name = "undo by a fact"
		}
	case *pb.Record_PlanErased:
		if holder {
			name = "key destroyed"
		}
	case *pb.Record_CompensationDispatched:
		if k.CompensationDispatched.Behind != nil {
			name = "dispatched ahead"
		}
	case *pb.Record_CompensationSucceeded:
		if c.a != nil && c.a.isLate(k.CompensationSucceeded.Attempt) {
			name = "success told late"
		}
	case *pb.Record_ProbeAsked, *pb.Record_ProbeAnswered:
		answered := c.Record.GetProbeAnswered() != nil
		switch {
		case answered && c.a != nil && c.a.asksOpenly(),
			!answered && c.p != nil && c.p.phase == ledger.StateOpen:
			name += " of an open plan"
		case c.p != nil && c.p.isCommitting():
			name += " for a commit"
		}
	}
	return chapters[name]
}

// reference is an address, and state the undo of an action, in the words of a message.
type reference struct{ at *pb.Address }

func (r reference) String() string { return ledger.FormatAddress(r.at) }

type state struct {
	p *plan
	a *action
}

func (s state) String() string { return s.p.stateOf(s.a) }

// forOpen leaves out clauses where a committed plan is to be undone.
func forOpen(clauses ...clause) (out []clause) {
	for _, k := range clauses {
		judge := k.judge
		k.judge = func(c *claim) judgement {
			if c.p.phase == ledger.StateCommitted {
				return judgement{}
			}
			return judge(c)
		}
		out = append(out, k)
	}
	return out
}

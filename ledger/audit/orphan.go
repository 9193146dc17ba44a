package audit

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// I31: a plan takes the records of one process of its agent, its writer; and an act that
// an agent has claimed, by a record that was refused, keeps its plan from ending as if it
// had not happened, until the plan's owner, or the process itself, has said what it was.

// orphan is such an act.
type orphan struct {
	name      string // that its owner gives it
	action    string
	place     string // of the first record that was refused, as in its name
	writer    string
	sequence  uint64 // of that record
	act       []byte // SHA-256 of what was called; empty: that was not said
	happened  bool
	answered  bool // by the plan's owner
	withdrawn bool // by its process
}

// isOpen reports whether no one has said what it was.
func (o orphan) isOpen() bool { return !o.answered && !o.withdrawn }

// orphansMax is how many of them a plan keeps; the last one is for all others.
const orphansMax = 64

// processOf is a process as its plan knows it: one of another agent than the first goes by both
// names, of which none has a blank.
func processOf(p *plan, agent, writer string) string {
	if agent == openedBy(p) {
		return writer
	}
	return agent + " " + writer
}

// process is the one that has written a record, as its plan knows it.
func (c *claim) process() string { return processOf(c.p, c.Source.Name, c.Record.Writer) }

// tells: a process says that an action which it has registered has happened, or may have.
func (c *claim) tells() bool {
	tells := c.Record.GetForwardCompleted() != nil || c.Record.GetForwardInDoubt() != nil ||
		c.Record.GetForwardFailed() != nil && c.b.rules < ledger.AskedSince
	return tells && c.a != nil && c.a.writer == c.process()
}

// calledAgain: a word on a forward is of a process that goes on with the plan since an outcome was
// recorded, and may have called it once more. That of an earlier one may be a copy.
func calledAgain(b *book, e ledger.Entry, a *action) bool {
	p := b.plan(e.Record.Plan)
	return b.rules >= ledger.DoubtedSince && p.writerAt() > a.outcomeAt &&
		isWriter(p, processOf(p, e.Source.Name, e.Record.Writer))
}

// openedBy is the agent that opened a plan, whoever has it by now.
func openedBy(p *plan) string {
	if len(p.earlier) > 0 {
		return p.earlier[0]
	}
	return p.agent
}

// hasHad: an agent has a plan, or had it before an operator handed it to another one.
func hasHad(p *plan, agent string) bool {
	return p.agent == agent || slices.Contains(p.earlier, agent)
}

// adoptionsMax is how often a plan may be handed to another agent.
const adoptionsMax = 32

var adoptedClauses = []clause{openedPlan,
	{"I5.adopted", "A plan is handed on once after what made its writer that.",
		func(c *claim) judgement {
			k := c.Record.GetPlanAdopted()
			again := len(c.p.earlier) > 0 && k.Follows != 0 && k.Follows == c.p.adoptedFrom
			return copyIf(again && k.Agent == c.p.agent)
		}},
	{"I15.adopted", "A plan is handed to another agent while it is open, before anything has asked " +
		"for its end.",
		func(c *claim) judgement {
			for up := c.p.parent; up != nil; up = up.parent {
				if up.phase != ledger.StateOpen {
					return breaks("plan %s, a part of plan %s, which is %s", c.p.id, up.id, up.phase)
				}
			}
			return unless(c.p.phase == ledger.StateOpen && c.p.signal == "" && c.p.fired == nil,
				"plan %s is %s", c.p.id, c.p.status())
		}},
	{"I31.another", "A plan is handed to another agent than the one that has it.",
		func(c *claim) judgement {
			return unless(c.Record.GetPlanAdopted().Agent != c.p.agent,
				"plan_adopted.agent: plan %s is agent %s's", c.p.id, c.p.agent)
		}},
	{"I31.function", "A plan that a function has begun stays with the agent whose code it is.",
		func(c *claim) judgement {
			function := c.p.declared.GetFunction()
			return unless(function == "", "plan %s was begun by function %s of agent %s", c.p.id,
				function, c.p.agent)
		}},
	{"I31.handed", "Who hands a plan on names what made its writer that, or nothing.",
		func(c *claim) judgement {
			follows := c.Record.GetPlanAdopted().Follows
			return unless(follows == 0 || follows == c.p.writerAt(),
				"plan_adopted.follows: the writer of plan %s is another one since %d", c.p.id,
				c.p.writerAt())
		}},
	{"I31.often", "A plan is handed on a bounded number of times.", func(c *claim) judgement {
		return unless(len(c.p.earlier) < adoptionsMax, "plan %s was handed on %d times", c.p.id,
			len(c.p.earlier))
	}},
}

// noteAdopted hands a plan to another agent, of which a process has to resume it.
func noteAdopted(b *book, c *claim) {
	k, p := c.Record.GetPlanAdopted(), c.p
	p.earlier, p.agent, p.adoptedFrom = append(slices.Clip(p.earlier), p.agent), k.Agent, k.Follows
	p.writer, p.writerSinceNs = processOf(p, k.Agent, ""), b.now
	p.resumedAt, p.awaited = c.Address.GetSequence(), true
}

// isWriter reports whether a process is the one that the plan takes its records from; none is until
// one of the agent that got it has resumed it.
func isWriter(p *plan, process string) bool { return process == p.writer && !p.awaited }

// speaksFor reports whether a process may say what came of an action: the plan's writer,
// or the process that has registered it.
func (p *plan) speaksFor(a *action, writer string) bool {
	return isWriter(p, writer) || writer == a.writer
}

// claimed reports whether a refused record of a process claims an act that is not the plan's.
func (p *plan) claimed(r *pb.Record, process string) bool {
	a := p.named(r.Action)
	others := a == nil || a.writer != process
	switch {
	case r.GetForwardRegistered() != nil:
		return others || a.isStaged() || !bytes.Equal(actOf(r), act(a.forward, a.input))
	case r.GetCompensationRegistered() != nil:
		return others
	case r.GetForwardInDoubt() != nil:
		return a == nil || a.isStaged() || !p.speaksFor(a, process)
	}
	return r.GetForwardCompleted() != nil
}

// noteClaim remembers the act that a refused record claims.
func (b *book) noteClaim(e ledger.Entry) {
	r := e.Record
	if r == nil || e.Source.Class != ledger.ClassAgent || !ledger.ValidToken(r.Plan) ||
		!ledger.ValidToken(r.Action) {
		return
	}
	p := b.plan(r.Plan)
	if p == nil || !hasHad(p, e.Source.Name) {
		return
	}
	process := processOf(p, e.Source.Name, r.Writer)
	if !p.claimed(r, process) {
		return
	}
	digest, happened := actOf(r), r.GetForwardCompleted() != nil
	switch half := fmt.Sprintf("%s@%d", r.Action, e.Address.GetSequence()); {
	case r.GetForwardRegistered().GetDeliver() != nil: // its agent makes no call
		b.half = half
		return
	case digest != nil:
		b.half = half
	case r.GetCompensationRegistered() != nil && b.half == half:
		return // noted with its forward
	}
	for i := range p.orphans {
		if o := &p.orphans[i]; o.isThat(r, process, digest, e.Address.GetSequence()) {
			if happened && !o.happened {
				o.happened, o.withdrawn = true, false
				b.goOn(p)
			}
			if len(o.act) == 0 {
				o.act = digest
			}
			return
		}
	}
	place := fmt.Sprintf("@%d-%d", e.Address.GetSequence(), e.Address.GetIndex())
	o := orphan{name: r.Action, action: r.Action, place: place, sequence: e.Address.GetSequence(),
		writer: process, act: digest, happened: happened}
	if p.named(r.Action) != nil || slices.ContainsFunc(p.orphans,
		func(o orphan) bool { return o.name == r.Action }) {
		o.name += place
	}
	switch n := len(p.orphans); {
	case n < orphansMax-1:
		p.orphans = append(p.orphans, o)
	case n == orphansMax-1:
		p.orphans = append(p.orphans, orphan{name: "others" + place, happened: true})
	default:
		p.orphans[n-1].answered = false
	}
	b.goOn(p)
	if p.phase == ledger.StateOpen || p.phase == ledger.StateCommitting ||
		p.phase == ledger.StateCommitted {
		b.page(p, nil, api.PageActClaimed, e.Address)
	}
}

// isThat reports whether a record claims this act, and not another one of the same name.
func (o *orphan) isThat(r *pb.Record, process string, act []byte, sequence uint64) bool {
	if o.action != r.Action || o.writer != process {
		return false
	}
	switch {
	case o.withdrawn && r.GetForwardRegistered() != nil: // called again, perhaps
		return false
	case r.GetForwardRegistered() != nil && len(o.act) > 0:
		return bytes.Equal(o.act, act)
	case r.GetForwardRegistered() != nil:
		return o.happened || o.sequence == sequence
	case r.GetCompensationRegistered() != nil:
		return len(o.act) == 0 && !o.withdrawn || o.sequence == sequence
	}
	return true
}

// actOf is the SHA-256 of what a registration says is called; nil: it does not say.
func actOf(r *pb.Record) []byte {
	f := r.GetForwardRegistered()
	if f == nil {
		return nil
	}
	return act(f, r.Payload.GetInput())
}

func act(f *pb.ForwardRegistered, input []byte) []byte {
	sum := sha256.Sum256(append([]byte(f.GetCapability()+"\x00"), input...))
	return sum[:]
}

// registersClaim forgets the act that a pair registers after all.
func (b *book) registersClaim(p *plan, r *pb.Record, process string) {
	before := len(p.orphans)
	p.orphans = slices.DeleteFunc(slices.Clone(p.orphans), func(o orphan) bool {
		same := o.action == r.Action && o.writer == process &&
			r.GetForwardRegistered().GetDeliver() == nil
		return same && (len(o.act) == 0 || bytes.Equal(o.act, actOf(r)))
	})
	for i := range p.orphans {
		if o := &p.orphans[i]; o.name == r.Action {
			o.name = o.action + o.place
		}
	}
	if before > 0 {
		b.dropClaimPage(p)
	}
}

func (b *book) dropClaimPage(p *plan) {
	if len(p.openClaims()) == 0 {
		delete(b.pages, page{p.id, 0, api.PageActClaimed})
	}
}

// openClaims are the names of the acts that wait for the plan's owner.
func (p *plan) openClaims() (names []string) {
	for _, o := range p.orphans {
		if o.isOpen() {
			names = append(names, o.name)
		}
	}
	return names
}

// treeClaims are the names of the acts that the commit of a tree waits for.
func (p *plan) treeClaims() (names []string) {
	for _, c := range p.tree() {
		names = append(names, c.openClaims()...)
	}
	return names
}

// takenBack is the one act of which its process says that it did not happen; -1: none.
func (p *plan) takenBack(r *pb.Record, process string) int {
	at := -1
	for i, o := range p.orphans {
		switch {
		case o.action != r.Action || o.writer != process || o.answered:
		case at >= 0:
			return -1
		default:
			at = i
		}
	}
	if at < 0 || r.GetForwardFailed() == nil || p.orphans[at].happened || p.orphans[at].withdrawn {
		return -1
	}
	return at
}

// takeBack takes back an act that was claimed.
func (b *book) takeBack(p *plan, e ledger.Entry) {
	p.orphans[p.takenBack(e.Record, processOf(p, e.Source.Name, e.Record.Writer))].withdrawn = true
	b.dropClaimPage(p)
	if p.count(quarantined) == 0 && len(p.openClaims()) == 0 {
		b.goOn(p)
	}
}

// claimNamed is the act that waits for its owner under a name; -1: none, or it is that of
// an action.
func (p *plan) claimNamed(id string) int {
	if p.named(id) != nil {
		return -1
	}
	return slices.IndexFunc(p.orphans, func(o orphan) bool { return o.name == id && o.isOpen() })
}

// answerClaim takes the owner's word on an act.
func (b *book) answerClaim(c *claim, at int, word proposal) {
	p, id := c.p, c.Record.Action
	counts, waits := p.counts(c.Entry, p.proposals[id], word)
	if delete(p.proposals, id); !counts {
		p.proposals[id] = waits
		return
	}
	b.goOn(p)
	if p.phase == ledger.StateUnwinding {
		p.resumed = c.Address
	}
	p.orphans[at].answered, p.byHand = true, true
	b.dropClaimPage(p)
}

// What is done more than once.

// isOne: two attempts are one to their provider. They have one key, and of a delivery the provider
// has promised to remember it.
func (a *action) isOne(m, n uint32) bool {
	kept := m == n || a.forgotten == 0 || m < a.forgotten && n < a.forgotten
	return a.keysBefore(m) == a.keysBefore(n) && kept
}

// ownKey: an attempt was followed by one that is another to its provider. What it has done comes
// beside what that one does.
func (a *action) ownKey(attempt uint32) bool {
	return attempt < a.attempt && !a.isOne(attempt, a.attempt)
}

// besides: that this attempt is done tells of another undo than the one that is known as done.
func (a *action) besides(attempt uint32) bool {
	known := a.reported.GetAttempt()
	switch delivery := a.isStaged() && a.dutyOf == 0; {
	case delivery && a.outcome == completed:
		return !a.wasSaid(attempt)
	case !delivery && !a.ownKey(attempt):
		return false
	case a.undo == compensated:
		return true
	case a.pending != nil:
		return !a.isOne(a.pending.Attempt, attempt)
	default:
		return a.isSaidDone() && !a.isOne(known, attempt)
	}
}

// wasSaid: an attempt, or a later one under its key, was called done.
func (a *action) wasSaid(attempt uint32) bool {
	for _, said := range append([]uint32{a.saidDone}, a.saidBefore...) {
		known := attempt <= said || a.isStaged() && attempt <= a.attempt
		if said != 0 && known && a.isOne(attempt, said) {
			return true
		}
	}
	return false
}

func (a *action) noteSaid(attempt uint32) {
	switch {
	case a.wasSaid(attempt):
		return
	case a.saidDone != 0 && !a.isOne(a.saidDone, attempt):
		a.saidBefore = append(slices.Clip(a.saidBefore), a.saidDone)
	}
	a.saidDone = attempt
}

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

// speaksFor reports whether a process may say what came of an action: the plan's writer,
// or the process that has registered it.
func (p *plan) speaksFor(a *action, writer string) bool {
	return writer == p.writer || writer == a.writer
}

// claimed reports whether a refused record claims an act that is not the plan's.
func (p *plan) claimed(r *pb.Record) bool {
	a := p.named(r.Action)
	others := a == nil || a.writer != r.Writer
	switch {
	case r.GetForwardRegistered() != nil:
		return others || a.isStaged() || !bytes.Equal(actOf(r), act(a.forward, a.input))
	case r.GetCompensationRegistered() != nil:
		return others
	case r.GetForwardInDoubt() != nil:
		return a == nil || a.isStaged() || !p.speaksFor(a, r.Writer)
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
	if p == nil || p.agent != e.Source.Name || !p.claimed(r) {
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
		if o := &p.orphans[i]; o.isThat(r, digest, e.Address.GetSequence()) {
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
		writer: r.Writer, act: digest, happened: happened}
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
func (o *orphan) isThat(r *pb.Record, act []byte, sequence uint64) bool {
	if o.action != r.Action || o.writer != r.Writer {
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
func (b *book) registersClaim(p *plan, r *pb.Record) {
	before := len(p.orphans)
	p.orphans = slices.DeleteFunc(slices.Clone(p.orphans), func(o orphan) bool {
		same := o.action == r.Action && o.writer == r.Writer &&
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
func (p *plan) takenBack(r *pb.Record) int {
	at := -1
	for i, o := range p.orphans {
		switch {
		case o.action != r.Action || o.writer != r.Writer || o.answered:
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
func (b *book) takeBack(p *plan, r *pb.Record) {
	p.orphans[p.takenBack(r)].withdrawn = true
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

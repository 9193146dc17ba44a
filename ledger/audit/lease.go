package audit

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// The leases that every plan has, and those that a verdict or a probe arms.
const (
	leaseFailed    = "plan.failed"
	leaseCancelled = "plan.cancelled"
	leaseDeadline  = "plan.deadline"
	leaseVerdict   = "action.verdict"
	leaseUnheard   = "action.verdict.unheard"
	leaseDuplicate = "action.duplicate"
)

// unheardNs is how long the outcome of a blocked action may stay unknown.
const unheardNs = int64(30e9)

const blocks = `verdict.outcome in ["block", "redirect"] && `

// standing are the texts of those leases, as a LeaseFired has them.
var standing = map[string]string{
	leaseFailed:    `plan.status == "failed"`,
	leaseCancelled: `plan.status == "cancelled"`,
	leaseDeadline:  `after(plan.deadline)`,
	leaseVerdict:   blocks + `action.outcome in ["completed", "in_doubt"]`,
	leaseUnheard:   blocks + `action.outcome == "unknown" && elapsed(verdict.at, duration("30s"))`,
	leaseDuplicate: `action.presence == "duplicate"`,
}

func (l *lease) conditionText() string {
	switch {
	case l.text != "":
		return l.text
	case l.ofStaged:
		return strings.TrimSuffix(blocks, " && ")
	}
	return standing[l.name]
}

func findLease(list []*lease, name string) *lease {
	for _, l := range list {
		if l.name == name {
			return l
		}
	}
	return nil
}

// leaseNamed finds a lease of a plan (number 0) or of one of its actions.
func (p *plan) leaseNamed(number uint32, name string) (*lease, *action) {
	switch {
	case number == 0:
		return findLease(p.leases, name), nil
	case int(number) > len(p.actions):
		return nil, nil
	}
	a := p.actions[number-1]
	l := findLease(a.leases, name)
	if l == nil {
		return nil, nil
	}
	return l, a
}

// isStopped: it fires no more by itself.
func (l *lease) isStopped() bool { return l.cascade == cutShort || l.cascade == givenUp }

// holdLeases takes out the leases of a plan: a condition that already holds fires at once.
func (b *book) holdLeases(p *plan) {
	add := func(name, text string, after bool) {
		p.leases = append(p.leases, &lease{name: name, text: text, armedNs: b.now,
			exact: readsExactly(b.rules), after: after})
		p.idles = p.idles || idles(text)
	}
	add(leaseFailed, "", false)
	add(leaseCancelled, "", false)
	if p.deadlineNs > 0 {
		add(leaseDeadline, "", false)
	}
	for _, t := range p.declared.Triggers {
		add(t.Name, t.Condition, t.AfterCommit)
	}
	b.spent.leases += uint64(len(p.declared.Triggers))
	b.noteAsking(p)
	b.lookPlan(p)
}

// lookPlan looks at all leases of a plan and of its actions: its status has changed.
func (b *book) lookPlan(p *plan) {
	for _, l := range p.leases {
		b.look(p, nil, l, "")
	}
	b.lookActions(p)
}

func (b *book) lookActions(p *plan) {
	for _, a := range p.actions {
		b.lookAction(p, a)
	}
}

func (b *book) lookAction(p *plan, a *action) {
	for _, l := range a.leases {
		b.look(p, a, l, "")
	}
}

// countNames are read by what depends on how many actions a plan has.
var countNames = []string{"plan.actions", "plan.step"}

func reads(programs *triggers.Cache, text string, names ...string) bool {
	c, err := programs.Condition(text)
	return err == nil && c.Reads(names...)
}

// lookReading looks at the leases that read what has changed of a plan; of an action, at all of
// them when one does.
func lookReading(b *book, p *plan, names ...string) {
	reads := func(l *lease) bool { return l.text != "" && reads(b.programs, l.text, names...) }
	for _, l := range p.leases {
		if reads(l) {
			b.look(p, nil, l, "")
		}
	}
	for _, a := range p.actions {
		if slices.ContainsFunc(a.leases, reads) {
			b.lookAction(p, a)
		}
	}
}

// byName are the declared ones of leases; the others read no fact.
func byName(list []*lease) (out []*lease) {
	for _, l := range list {
		if l.text != "" {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b *lease) int { return strings.Compare(a.name, b.name) })
	return out
}

// look asks a lease that waits, where something beside time has changed that it reads: its plan or
// action, or a fact that its last answer depended on. Until then it answers as it did.
func (b *book) look(p *plan, a *action, l *lease, key string) {
	lookWith(b, p, a, l, key, nil)
}

// lookWith is look with the answers that the change of a fact has had so far.
func lookWith(b *book, p *plan, a *action, l *lease, key string, had answers) {
	held := p.holdsLeases() && (a != nil || p.asksOwn(l)) || l.untilNs > b.now ||
		l.untilNs != 0 && l.cascade == goneOn
	if !held || l.fired || l.isStopped() || a != nil && a.isSettled() ||
		p.turnedBy(numberOf(a), l.name) != nil {
		return
	}
	truth, clocked := b.standingTruth(p, a, l)
	var read []string
	if l.text != "" {
		condition, err := b.programs.Condition(l.text)
		if err != nil {
			return // it waits for ever
		}
		clocked = condition.ReadsClock()
		if key != "" && (clocked || l.joined) && !triggers.IsWatched(l.watched, key) {
			return
		}
		if key == "" && l.joined {
			if _, shared := condition.Hold(p.scope(a, l)).Shared(); shared {
				return // no state of a plan or action is in it
			}
		}
		answer := had.of(b, p, a, l, condition)
		truth, read = answer.Truth, answer.Keys
		joined, watched := l.joined, l.watched
		l.joined = truth != triggers.True
		haveRead(b, p, read, condition.Watched(answer.Result))
		if !clocked || truth != triggers.True {
			l.watched = answer.watched
		}
		if l.joined != joined || !slices.Equal(l.watched, watched) {
			listMore(b, p, l)
		}
	}
	if truth == triggers.True {
		b.turn(p, numberOf(a), l, clocked, read)
	}
}

// asksOwn: a lease of the plan itself is held. A child's own go with its commit, and the
// deadline with that of a root, also while it waits.
func (p *plan) asksOwn(l *lease) bool {
	return p.phase == ledger.StateOpen || p.phase == ledger.StateCommitting &&
		l.name != leaseDeadline
}

// standingTruth is the answer of a lease that every plan or verdict has.
func (b *book) standingTruth(p *plan, a *action, l *lease) (truth triggers.Truth, clocked bool) {
	is := false
	switch l.name {
	case leaseFailed:
		is = p.status() == signalFailed
	case leaseCancelled:
		is = p.status() == signalCancelled
	case leaseDeadline:
		is, clocked = b.now >= p.deadlineNs, true
	case leaseVerdict:
		is = a != nil && a.blocked() && (a.isStaged() || a.outcome == completed || a.outcome == inDoubt)
	case leaseUnheard:
		is, clocked = a != nil && a.blocked() && a.outcome == unheardOf &&
			b.now-a.verdictNs >= unheardNs, true
	}
	if is {
		return triggers.True, clocked
	}
	return triggers.False, clocked
}

func (a *action) blocked() bool {
	return a.verdict == pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK ||
		a.verdict == pb.VerdictOutcome_VERDICT_OUTCOME_REDIRECT
}

// truth is the answer of a lease now, whatever was noted of it, with the facts it read.
func (b *book) truth(p *plan, a *action, l *lease) (triggers.Truth, []string) {
	return truthAt(b, p, a, l, b.now)
}

// truthAt is truth as of an instant.
func truthAt(b *book, p *plan, a *action, l *lease, ns int64) (triggers.Truth, []string) {
	if l.text == "" {
		truth, _ := b.standingTruth(p, a, l)
		return truth, nil
	}
	condition, err := b.programs.Condition(l.text)
	if err != nil {
		return triggers.Unknown, nil
	}
	result := condition.Hold(p.scope(a, l)).Evaluate(l.asOf(ns), factView{b})
	haveRead(b, p, result.Keys, condition.Watched(result))
	return result.Truth, result.Keys
}

func clocked(programs *triggers.Cache, l *lease) bool {
	if l.text == "" {
		return l.name == leaseDeadline || l.name == leaseUnheard
	}
	c, err := programs.Condition(l.text)
	return err == nil && c.ReadsClock()
}

// behindMax is how many turns a plan remembers after the first.
const behindMax = 16

// turn notes that a lease has turned true. The first one is fired; one on the clock
// may be held back, so it makes room for one that is not.
func (b *book) turn(p *plan, number uint32, l *lease, clocked bool, read []string) {
	if t := p.turnOf(number, l.name); t == nil && (p.fired == nil || remembers(b.rules)) {
		t = &turn{number: number, lease: l.name, ns: b.now, at: b.at, clocked: clocked,
			read: b.readings(p, number, l)}
		had := p.turned
		if p.fired == nil && (had == nil || had.clocked && !clocked) {
			p.turned, t = t, had
		}
		if t != nil && len(p.behind) < behindMax {
			p.behind = append(p.behind, t)
		}
	}
	if l.untilNs != 0 && l.trueNs == 0 {
		l.trueNs = b.now
	}
	if t := p.turnOf(number, l.name); t != nil && t.firing == nil {
		if f := b.firingNow(p, l, read); f.depth > 1 || f.by != nil || f.passed == nil &&
			b.anyFact(read) {
			t.firing = f
		}
	}
}

func (s *store) anyFact(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return s.fact(key) != nil })
}

func (p *plan) turnedBy(number uint32, name string) *turn {
	if t := p.turned; t != nil && t.number == number && t.lease == name {
		return t
	}
	return nil
}

func (p *plan) turnOf(number uint32, name string) *turn {
	for _, t := range append([]*turn{p.turned}, p.behind...) {
		if t != nil && t.number == number && t.lease == name {
			return t
		}
	}
	return nil
}

// takeNextTurn gives up the turn that is noted and takes the next after it that is
// allowed and still waits: it turned true, whatever it is by now.
func (b *book) takeNextTurn(p *plan, allowed func(*turn) bool) {
	p.turned = nil
	for len(p.behind) > 0 && p.turned == nil {
		t := p.behind[0]
		p.behind = p.behind[1:]
		if l, _ := p.leaseNamed(t.number, t.lease); l != nil && !l.fired && !l.isStopped() &&
			allowed(t) {
			p.turned = t
		}
	}
}

// remembers: what has turned true is acted upon, though another lease of its plan has fired
// meanwhile. Earlier holders forgot it.
func remembers(rules uint32) bool { return rules >= ledger.KeptSince }

// setTurnsAside keeps what has turned beside a lease that fires for when its plan is open again.
func (p *plan) setTurnsAside(fires *turn, rules uint32) {
	var others []*turn
	for _, t := range append([]*turn{p.turned}, p.behind...) {
		if t != nil && t != fires && remembers(rules) {
			others = append(others, t)
		}
	}
	p.turned, p.behind = nil, others
}

// bringTurnsBack has a plan that is open again act upon what had turned before. Gone is what asks
// for actions alone that were undone, or stay by their owner's word, and what was only signalled.
func (p *plan) bringTurnsBack(stays map[*action]bool) {
	list := p.behind
	p.turned, p.behind = nil, nil
	for _, t := range list {
		l, a := p.leaseNamed(t.number, t.lease)
		switch {
		case l == nil, l.fired, l.isStopped(), a == nil && !p.asksOwn(l):
		case l.name == leaseFailed, l.name == leaseCancelled:
		case a != nil && a.isSettled() && (l.single || t.clocked), l.single && stays[a]:
		case p.turned == nil:
			p.turned = t
		case p.turned.clocked && !t.clocked:
			p.behind = append([]*turn{p.turned}, p.behind...)
			p.turned = t
		default:
			p.behind = append(p.behind, t)
		}
	}
}

// dropLeases gives up all leases of a plan: it committed, or its unwind began.
func (b *book) dropLeases(p *plan) {
	b.releaseCuts(p, "", func(*cut) bool { return true })
	b.dropWarnings(p)
}

// holdAgain takes out the leases of a plan again, which is back where it was told to go. Those
// that undo an action which stays by its owner's word are answered, now or in another part before.
func (b *book) holdAgain(p *plan, stays map[*action]bool, part bool) {
	part = part && b.rules >= ledger.AnsweredSince
	again := func(l *lease) {
		if l.fired = false; !l.isStopped() {
			l.cascade = ""
		}
	}
	for _, l := range p.leases {
		again(l)
	}
	for _, a := range p.actions {
		if a.isSettled() {
			continue
		}
		a.leases = slices.DeleteFunc(a.leases,
			func(l *lease) bool { return l.name == leaseDuplicate })
		for _, l := range a.leases {
			if !l.single || !stays[a] && !(part && l.fired && !p.waits(a.n, l.name)) {
				again(l)
			}
		}
	}
	p.bringTurnsBack(stays)
	b.lookPlan(p)
}

// waits: a lease has a turn that is still to be acted upon.
func (p *plan) waits(n uint32, name string) bool {
	return slices.ContainsFunc(p.behind,
		func(t *turn) bool { return t.number == n && t.lease == name })
}

// setPhase takes a plan into another phase, and its entry in its parent with it.
func (b *book) setPhase(p *plan, phase string) {
	b.spent.moves(p, phase)
	b.noteAsking(p)
	if p.parent != nil {
		b.childMoved(p)
	}
	if phase == ledger.StateOpen || phase == ledger.StateCommitting {
		return
	}
	for _, l := range p.leases {
		l.joined = l.joined && l.untilNs != 0
	}
	for _, a := range p.actions {
		for _, l := range a.leases {
			// those of a child's actions are held on, and those that ask for it
			l.joined = l.joined && (p.stillHolds() || l.untilNs != 0)
		}
	}
}

package audit

import (
	"crypto/sha256"
	"iter"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Violation is something in a ledger that a rule forbids.
type Violation struct {
	Rule    string      `json:"rule"`              // "I11"; Rules says what it means
	Clause  string      `json:"clause,omitempty"`  // "I11.true": the part of the rule; see Clauses
	Address *pb.Address `json:"address,omitempty"` // of the record; nil: of none, found at the end
	Plan    string      `json:"plan,omitempty"`
	Action  string      `json:"action,omitempty"`
	Problem string      `json:"problem"` // what would have been right
	Idle    bool        `json:"-"`       // nothing that follows rests on the record
}

// Entry says what became of one record in the fold.
type Entry struct {
	Address *pb.Address
	Kind    string // as in "plan_opened"; empty: it is no record
	Plan    string
	Action  string
	Verdict string // Effective, Repeated, Refused or Void
	Rule    string // that decided so; empty: effective
	Clause  string // of that rule
	Reason  string // what would have been right
	TimeNs  int64  // logical time after the record, unix ns
}

// Plan is a plan as the records leave it, in the words of package executor.
type Plan struct {
	ID      string
	State   string
	Actions []Action // in the order of registration
	Orphans []string // forwards that came without their registration
	Held    int      // registrations that are neither retired nor settled
	Erasure *Erasure // of its sealed values; nil: it was not erased
}

// Action is an action of a Plan, an entry of a child plan, or a duty.
type Action struct {
	ID      string
	Outcome string
	Undo    string
	Attempt int
	Key     string // of its undo; empty: none is registered
}

// Fact is what is held under a key.
type Fact struct {
	Key     string
	Value   string // JSON; empty: retracted
	Evicted bool   // out of working memory
	Depth   uint32 // of the cascade that made it
}

// Ledger folds the records of one tenant and checks them as they come. It belongs to
// one goroutine.
type Ledger struct {
	tenant string
	book   *book
	late   *book            // as the holder that wrote last has seen it
	behind [][]ledger.Entry // what is between late and book
	log    log
	last   []Entry
	stop   *Violation // nothing after it can be folded
}

// expressionsMax bounds the conditions that are kept parsed.
const expressionsMax = 4096

// New returns the empty ledger of a tenant.
func New(tenant string) *Ledger { return NewWith(tenant, triggers.NewCache(expressionsMax)) }

// NewWith is New with the caller's parsed conditions, for ledgers that are folded one
// after the other.
func NewWith(tenant string, programs *triggers.Cache) *Ledger {
	return newLedger(tenant, programs, Memory{})
}

func newLedger(tenant string, programs *triggers.Cache, m Memory) *Ledger {
	return &Ledger{tenant: tenant, book: newBook(tenant, programs, m, "b"),
		late: newBook(tenant, programs, m, "l"), log: newLog(m)}
}

// NewOver is New with a memory of the caller's.
func NewOver(tenant string, m Memory) *Ledger {
	return newLedger(tenant, triggers.NewCache(expressionsMax), m)
}

// NewPart is NewOver for a part of a ledger, whose messages come in order with others,
// and records of their own, left out between them. A reference to what does not come is
// no violation; whatever rests on it may be one by error, so that whoever asks judges
// a violation by its rule.
func NewPart(tenant string, m Memory) *Ledger {
	l := NewOver(tenant, m)
	l.log.part, l.book.part, l.late.part = true, true, true
	return l
}

// OnRead calls read with the facts that a condition of a plan has read, and the prefixes of others
// that it depends on, each time that it is asked.
func (l *Ledger) OnRead(read func(plan string, keys, prefixes []string)) { l.book.onRead = read }

// Add folds the next message and returns what is wrong with it. It takes any bytes. A
// message that only a newer reader may fold ends the audit: whatever follows is not
// folded, and a violation of I7 says so once.
func (l *Ledger) Add(m ledger.Message) []Violation {
	l.last = nil
	if l.stop != nil {
		return nil
	}
	entries, err := ledger.Decode(l.tenant, m)
	if err != nil {
		l.stop = &Violation{Rule: "I7", Address: &pb.Address{Sequence: m.Sequence},
			Problem: "cannot fold the ledger from here on: " + err.Error()}
		return append(l.next(m.Sequence), *l.stop)
	}
	return l.AddDecoded(m, entries)
}

// AddDecoded is Add of a message that is decoded already, by ledger.Decode.
func (l *Ledger) AddDecoded(m ledger.Message, entries []ledger.Entry) []Violation {
	l.last = nil
	if l.stop != nil {
		return nil
	}
	found := l.next(m.Sequence)
	holder := false
	var lost []int // records of a holder that do not count
	entries = ledger.Under(entries, l.book.rules)
	for i, e := range entries {
		v, broken := l.judge(e, entries)
		found = append(found, broken...)
		l.last = append(l.last, l.book.entry(e, v))
		if e.Source.Class == ledger.ClassExecutor {
			holder = true
			if v.kind == Void || v.kind == Refused {
				lost = append(lost, i)
			}
		}
		l.log.note(e, v)
	}
	found = append(found, l.catchUp(m, entries, holder, lost)...)
	l.book.rest()
	l.late.rest()
	return found
}

// judge judges one record by all clauses, and then collects what it says.
func (l *Ledger) judge(e ledger.Entry, commit []ledger.Entry) (v verdict, found []Violation) {
	b := l.book
	c := b.begin(e)
	c.of, c.commit = l, commit
	found = judged(always, c)
	var of *chapter
	if of, v = b.judge(c); v.ok() {
		found = append(found, judged(counted, c)...)
		if len(of.content) > 0 {
			c.excused = func(right func(*claim) bool) bool { return l.excuse(e, commit, right) }
			found = append(found, judged(of.content, c)...)
		}
		for i := range found {
			found[i].Idle = of.collect == nil
		}
		if e.Source.Class == ledger.ClassExecutor {
			l.log.terms = e.Record.Term
		}
	}
	b.collect(of, c, v)
	return v, found
}

// Bounds of what is remembered for races, and of the places that are tried.
const (
	behindMessagesMax = 4096 // messages of others since the holder's last one
	trialsMax         = 64
)

// catchUp lets the second fold follow. A holder decides from what it has read, so a
// claim of it that lost a race was right at some place between the holder's last
// message and this one; one that was right at none of them is a violation. A copy of
// an earlier message is none: appends whose reply was lost are repeated. Where more
// places than trialsMax come into question, it is taken for a race.
func (l *Ledger) catchUp(
	m ledger.Message, entries []ledger.Entry, holder bool, lost []int,
) []Violation {
	sum := sha256.Sum256(append([]byte(m.Subject+"\x00"), m.Data...))
	if !holder || l.log.said(sum) { // a copy says nothing of what its holder has read
		l.behind = append(l.behind, entries)
		if len(l.behind) > behindMessagesMax {
			l.late.foldAll(l.behind[0])
			l.behind = l.behind[1:]
		}
		return nil
	}
	raced := len(lost) == 0
	claims := claimsOf(entries, lost)
	changed := true // since the last trial, so that another may end otherwise
	trials := 0
	for _, earlier := range l.behind {
		if !raced && changed {
			trials++
			raced = trials > trialsMax || l.late.wouldHold(claims)
		}
		l.late.foldAll(earlier)
		changed = !raced && l.late.concerns(earlier, claims)
	}
	if !raced && changed { // where it is, but for what its stamp says of the time
		raced = l.late.wouldHold(claims)
	}
	l.behind = nil
	l.late.foldAll(entries)
	if raced {
		return nil
	}
	i := lost[0] // what follows in the message was decided from it
	last := l.last[i]
	v := violation(&clause{id: last.Clause}, entries[i],
		"here, and wherever its holder had read to: "+last.Reason)
	return []Violation{v}
}

// claimsOf leaves out what a message says of the tree and what counts: how many records
// there are changes with every message, and concerns none of its decisions.
func claimsOf(entries []ledger.Entry, lost []int) (claims []ledger.Entry) {
	for i, e := range entries {
		if e.Record.GetCheckpointSigned() == nil && e.Record.GetKeyRotated() == nil ||
			slices.Contains(lost, i) {
			claims = append(claims, e)
		}
	}
	return claims
}

func (b *book) foldAll(entries []ledger.Entry) {
	for _, e := range entries {
		b.fold(e)
	}
}

// concerns reports whether a message that was just folded may change what becomes of
// another: it is about a plan of the same family, or about no plan.
func (b *book) concerns(message, other []ledger.Entry) bool {
	family := b.roots(other)
	return slices.ContainsFunc(b.roots(message),
		func(root string) bool { return root == "" || slices.Contains(family, root) })
}

// roots are the ids of the roots of the plans that records name; empty for none.
func (b *book) roots(entries []ledger.Entry) (ids []string) {
	for _, e := range entries {
		id := e.Record.GetPlan()
		if p := b.plan(id); p != nil {
			id = p.root().id
		}
		id, _, _ = strings.Cut(id, "~")         // one that undoes another plan is of its family
		if e.Source.Class == ledger.ClassFact { // any lease may read it
			id = ""
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func violation(k *clause, e ledger.Entry, right string) Violation {
	v := Violation{Rule: k.rule(), Clause: k.id, Address: e.Address, Problem: right}
	if e.Record != nil {
		v.Plan, v.Action = e.Record.Plan, e.Record.Action
	}
	return v
}

func (b *book) entry(e ledger.Entry, v verdict) Entry {
	out := Entry{Address: e.Address, Verdict: v.kind, Reason: v.right, TimeNs: b.now}
	if v.by != nil {
		out.Rule, out.Clause = v.by.rule(), v.by.id
	}
	if e.Record != nil {
		out.Kind, out.Plan, out.Action = ledger.KindOf(e.Record).Name, e.Record.Plan,
			e.Record.Action
	}
	return out
}

// Entries says what became of the records of the last message.
func (l *Ledger) Entries() []Entry { return l.last }

// Now returns logical time: the latest of all stamps and epochs (unix ns).
func (l *Ledger) Now() int64 { return l.book.now }

// Term returns the effective term; 0: none has begun.
func (l *Ledger) Term() uint64 { return l.book.term }

// Held counts the registrations that are neither retired nor settled (I24).
func (l *Ledger) Held() int { return l.book.held() }

// HeldConditions counts the conditions that plans and their actions have declared, and that are
// held as leases.
func (l *Ledger) HeldConditions() uint64 { return l.book.spent.leases }

// Plans returns all plans, by id.
func (l *Ledger) Plans() (plans []Plan) {
	l.book.families.each(func(_ string, f *family) {
		for _, p := range f.plans {
			plans = append(plans, l.view(p))
		}
	})
	slices.SortFunc(plans, func(a, b Plan) int { return strings.Compare(a.ID, b.ID) })
	return plans
}

// Plan returns one plan; ok is false when there is none of that id.
func (l *Ledger) Plan(id string) (view Plan, ok bool) {
	p := l.book.plan(id)
	if p == nil {
		return Plan{}, false
	}
	return l.view(p), true
}

func (l *Ledger) view(p *plan) Plan {
	view := Plan{ID: p.id, State: p.shown(), Orphans: p.openClaims(), Held: p.held(),
		Erasure: erasureOf(p)}
	for _, a := range p.actions {
		row := Action{ID: a.id, Outcome: a.outcome, Undo: p.stateOf(a), Attempt: int(a.attempt)}
		if a.compensation != nil {
			row.Key = l.book.undoKey(p, a)
		}
		view.Actions = append(view.Actions, row)
	}
	return view
}

// Effect is what the records say of the effect of an action, for a reader who can look at the world.
type Effect struct {
	Action   string
	Outcome  string
	Absent   bool // a probe, or the plan's owner, has said that it is not there
	Found    bool // someone has found it there, and not gone since
	Answered bool // the plan's owner has answered for it
	Held     bool // nothing has been undone of it
	Kept     bool // its plan was undone in part, and it is not of that part
	Duty     bool // more of it is owed beside it
	Claimed  bool // a record that was refused claims an act of the same name
	Accepted bool // its root accepts doubt
}

// Effects lists what a plan's actions have made outside, where there is an undo of it: not
// that of child plans, of duties, and in working memory.
func (l *Ledger) Effects(plan string) (list []Effect) {
	p := l.book.plan(plan)
	if p == nil {
		return nil
	}
	for _, a := range p.actions {
		undoable := a.forward.GetClass() == pb.Class_CLASS_COMPENSABLE && !a.makesFact()
		if a.child != nil || a.dutyOf != 0 || !undoable {
			continue
		}
		of := a
		if p.leavesOut(a) { // of which the plan that it is committed with has the word
			of = l.book.plan(p.origin).actions[a.n-1]
		}
		list = append(list, Effect{
			Action: a.id, Outcome: of.outcome, Absent: a.presence == pb.Presence_PRESENCE_ABSENT,
			Found: a.there, Answered: a.resolution != nil, Held: a.undo == held,
			Kept: p.leavesOut(a), Duty: of.duties > 0,
			Claimed: slices.ContainsFunc(p.orphans,
				func(o orphan) bool { return o.action == a.id }),
			Accepted: p.root().accepts(),
		})
	}
	return list
}

// Facts returns what is in working memory and what was evicted from it, by key.
func (l *Ledger) Facts() (facts []Fact) {
	l.book.facts.each(func(key string, f *fact) {
		if !f.retracted {
			facts = append(facts, Fact{key, string(f.value), f.evicted != nil, f.depth})
		}
	})
	slices.SortFunc(facts, func(a, b Fact) int { return strings.Compare(a.Key, b.Key) })
	return facts
}

// Report is what CheckAll found.
type Report struct {
	Messages   uint64
	Records    uint64
	Effective  uint64
	Violations []Violation    // the first ReportMax of them
	More       uint64         // violations after those
	Plans      map[string]int // by state
	Held       int
}

// ReportMax bounds the violations that a Report names.
const ReportMax = 1000

// CheckAll folds a whole ledger, message by message, and checks it; at its end nothing
// may be under way (see Ledger.End). The error is that of the messages.
func CheckAll(tenant string, messages iter.Seq2[ledger.Message, error]) (Report, error) {
	l := New(tenant)
	r := Report{Plans: map[string]int{}}
	add := func(found []Violation) {
		room := min(len(found), ReportMax-len(r.Violations))
		r.Violations = append(r.Violations, found[:room]...)
		r.More += uint64(len(found) - room)
	}
	for m, err := range messages {
		if err != nil {
			return r, err
		}
		add(l.Add(m))
		r.Messages++
		for _, e := range l.Entries() {
			if r.Records++; e.Verdict == Effective {
				r.Effective++
			}
		}
	}
	add(l.End())
	for _, p := range l.Plans() {
		r.Plans[p.State]++
	}
	r.Held = l.Held()
	return r, nil
}

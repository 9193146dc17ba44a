package turn

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Config is what a machine is made of.
type Config struct {
	Tenant    string
	Holder    string // name of this host, as a TermStarted has it
	Cascade   executor.CascadeLimits
	MemoryMax int64         // bytes of facts in working memory; 0: no limit
	Messages  int           // folded in one turn; 0: [MessagesMax]
	Ahead     int           // dispatches recorded behind another one; 0: none, see [RunMax]
	NewID     func() string // draws the ID of a commit, under which it is retried
	// Secret is of this process: it makes the tokens that workers show in their reports. nil: they
	// need none.
	Secret []byte
	// Decided is told of each decision; nil: no one is. It is for those who check it.
	Decided func(executor.Input, []*pb.Record)
	// Sent is told that a holder's commands of a step have left, and nothing else of it was done;
	// nil: no one is. It is for those who end a process there.
	Sent func()
}

// Machine folds, decides, and holds the term, for one [Session]. It belongs to one goroutine.
type Machine struct {
	config   Config
	state    *executor.State
	reporter *ledger.Reporter // by the secret; nil: without one
	attached uint64           // last sequence of the ledger when the session began

	folded   bool // since the last step
	messages int  // folded since the last step
	bytes    int
	noted    noted

	uncopied  lag // of the second copy of the ledger
	unwritten lag // of the state's rows

	wants   bool   // this host has the tenant's leadership lease
	term    uint64 // that it has claimed; 0: none
	fence   uint64 // sequence of its TermStarted
	holding bool   // the claim was read back: it may decide and send
	down    *Down  // to be said by the next step

	pending   *pending
	misses    int   // appends without a reply, in a row
	lostNs    int64 // monotonic, when another term has beaten an append
	lostFence uint64
	lost      bool

	answers []executor.Answer // not settled in the ledger yet
	tenant  *pb.TenantChanged // what it may do; nil: nothing is said
}

// pending is an append that was not folded back yet.
type pending struct {
	append Append
	out    bool   // to go out with the next step
	stored uint64 // its sequence, once acknowledged
	delay  int64  // ns, before the next try in doubt
}

// New begins a session over a folded state. last is the last sequence of the ledger.
func New(c Config, state *executor.State, last uint64) *Machine {
	if c.Messages == 0 {
		c.Messages = MessagesMax
	}
	return &Machine{config: c, state: state, reporter: ledger.NewReporter(c.Secret), attached: last}
}

// Cursor is the sequence of the last message that was folded.
func (m *Machine) Cursor() uint64 { return m.state.Meta().GetApplied().GetSequence() }

// Attached is the last sequence that the ledger had when the session began.
func (m *Machine) Attached() uint64 { return m.attached }

// Holding reports whether this host holds the tenant: its term was read back.
func (m *Machine) Holding() bool { return m.holding }

// Term is the term that this host has claimed or holds; 0: none.
func (m *Machine) Term() uint64 { return m.term }

// Begin opens the next message, of so many bytes. A gap is guard G1: a *ledger.Halted.
func (m *Machine) Begin(sequence uint64, bytes int) error {
	if want := m.Cursor() + 1; sequence != want {
		return &ledger.Halted{Guard: "G1", Sequence: want,
			Problem: fmt.Sprintf("the stream goes on with %d", sequence)}
	}
	m.folded = true
	m.messages++
	m.bytes += bytes
	m.uncopied.bytes += max(bytes, 1)
	m.unwritten.bytes += max(bytes, 1)
	return nil
}

// Fold folds one entry of the message that was begun.
func (m *Machine) Fold(e ledger.Entry) executor.Result {
	result := m.state.Apply(e)
	if result.Verdict == executor.Effective {
		m.noted.note(e, m.attached)
	}
	return result
}

// Full reports whether this turn has folded as much as it may.
func (m *Machine) Full() bool { return m.messages >= m.config.Messages || m.bytes > BytesMax }

// lag is what was folded and is not written in one place.
type lag struct {
	bytes int   // folded since the last write; 0: none
	ns    int64 // monotonic, of the first step since; 0: there was none yet
}

// due reports whether it is time to write: so long after the first of it, or once it is BytesMax.
func (l lag) due(monoNs int64, every time.Duration) bool {
	return l.bytes > 0 && l.left(monoNs, every) <= 0
}

// left is the time until then, in ns.
func (l lag) left(monoNs int64, every time.Duration) int64 {
	if l.ns == 0 || l.bytes >= BytesMax {
		return 0
	}
	return l.ns + int64(every) - monoNs
}

// Write makes what was folded durable, if it is time, or now, because someone waits for it. First
// it goes to the second copy of the ledger, then it becomes state: copied.Flush writes what the
// caller has put there of each message, rows.Commit what was folded into the state's KV. The copy
// is written more often, as it may be all that knows of a record; rows that change meanwhile are
// written once. The error is copied's; nothing is state then. written is whether the state was.
// What is not written when the process ends is folded again from the ledger.
func (m *Machine) Write(monoNs int64, now bool, copied interface{ Flush() error },
	rows interface{ Commit() }) (written bool, err error) {
	written = m.unwritten.bytes > 0 && (now || m.unwritten.due(monoNs, WriteEvery))
	if written || m.uncopied.due(monoNs, CopyEvery) {
		if err := copied.Flush(); err != nil {
			return false, err
		}
		m.uncopied = lag{}
	}
	if written {
		m.state.Flush()
		rows.Commit()
		m.unwritten = lag{}
	}
	return written, nil
}

// Lead says whether this host has the tenant's leadership lease: whether it may claim a
// term. by names who has it, if that is known.
func (m *Machine) Lead(leads bool, by string) {
	m.wants = leads
	if !leads {
		m.stepDown(Down{By: by})
	}
}

// Govern takes what the tenant may do by the control stream, the last that it says.
func (m *Machine) Govern(t *pb.TenantChanged) { m.tenant = t }

// Answer takes what workers have said.
func (m *Machine) Answer(answers ...executor.Answer) { m.answers = append(m.answers, answers...) }

// Outcome is what an append came to.
type Outcome uint8

// Outcomes of an append.
const (
	Stored  Outcome = iota
	Beaten          // another host has begun a term: this one has none any more
	InDoubt         // it may be stored: the same commit goes out again
	Refused         // it is not stored, and nothing else would be: the same commit goes out again
	Mute            // as InDoubt, for the MissesMax-th time: the server must be started again
	Stale           // of an append that no one waits for
)

// Acknowledged takes the result of the append in flight. reachable says whether the
// server was there: a reply that is missing from a server that was not says nothing of it.
func (m *Machine) Acknowledged(sequence uint64, err error, reachable bool, monoNs int64) Outcome {
	p := m.pending
	if p == nil {
		return Stale
	}
	switch {
	case err == nil:
		m.misses, p.stored = 0, sequence
		return Stored
	case errors.Is(err, ledger.ErrConflict):
		m.pending, m.lost, m.lostNs, m.lostFence = nil, true, monoNs, p.append.Fence
		m.fenced(Down{Reason: "another holder has begun a term"})
		return Beaten
	case !errors.Is(err, ledger.ErrFull) && errors.Is(err, ledger.ErrBusy),
		errors.Is(err, ledger.ErrInDoubt):
		if errors.Is(err, ledger.ErrInDoubt) && reachable {
			if m.misses++; m.misses >= MissesMax {
				return Mute
			}
		}
		p.out, p.append.AfterNs = true, p.delay
		p.delay = min(2*p.delay, int64(RetryMax))
		return InDoubt
	default:
		p.out, p.append.AfterNs = true, int64(RetryMax)
		return Refused
	}
}

// Decides reports whether the next step may decide, so that it looks at its inputs.
func (m *Machine) Decides() bool {
	return m.holding && !m.folded && (m.pending == nil || m.foldedBack())
}

func (m *Machine) foldedBack() bool {
	return m.pending.stored != 0 && m.Cursor() >= m.pending.stored
}

// Inputs is what waits at the shell for a decision. A step that does not decide leaves it
// there.
type Inputs struct {
	Paged     []executor.Paged // pages that hooks have taken
	Destroyed []string         // plans whose keys are gone
	Proof     []*pb.Record     // about the tree: signed checkpoints, rotations of the key
}

// Step says what has to be done now.
func (m *Machine) Step(now Instant, in Inputs) (r Ready) {
	if m.folded {
		m.folded, m.messages, m.bytes = false, 0, 0
		for _, l := range [...]*lag{&m.uncopied, &m.unwritten} {
			if l.ns == 0 {
				l.ns = now.MonoNs
			}
		}
		m.deliver(&r)
		r.More = true
		return r
	}
	r.Down, m.down = m.down, nil
	if m.pending != nil && m.foldedBack() {
		m.pending = nil
	}
	if m.pending == nil {
		m.act(now, in, &r)
	}
	if p := m.pending; p != nil && p.out {
		p.out = false
		out := p.append
		r.Append = &out
	}
	if !r.Wakes {
		r.Wakes, r.WakeInNs = m.wake(now)
	}
	if m.unwritten.bytes > 0 {
		due := m.unwritten.left(now.MonoNs, WriteEvery)
		if m.uncopied.bytes > 0 {
			due = min(due, m.uncopied.left(now.MonoNs, CopyEvery))
		}
		if due = max(due, 0); !r.Wakes || due < r.WakeInNs {
			r.Wakes, r.WakeInNs = true, due
		}
	}
	return r
}

// act decides and appends, while this host holds the tenant.
func (m *Machine) act(now Instant, in Inputs, r *Ready) {
	if !m.holding {
		m.claim(now, r)
		return
	}
	if len(in.Proof) > 0 { // few, and a commit of their own: the next one is for decisions
		m.append(in.Proof, false)
		return
	}
	m.answers = slices.DeleteFunc(m.answers,
		func(a executor.Answer) bool { return !m.state.Awaits(a) })
	due, waits := m.state.NextWake()
	working := m.state.HasWork() || m.state.MemoryWork(m.config.MemoryMax) ||
		m.state.Governed(m.tenant)
	if len(m.answers) == 0 && len(in.Paged) == 0 && len(in.Destroyed) == 0 && !working &&
		(!waits || due > now.EpochNs) {
		return
	}
	input := executor.Input{
		EpochNs: now.EpochNs, HoldClock: now.Held, Answers: m.answers, Paged: in.Paged,
		Destroyed: in.Destroyed,
		Cascade:   m.config.Cascade, MemoryMax: m.config.MemoryMax, SizeMax: CommitSizeMax,
		Ahead: m.config.Ahead, Tenant: m.tenant, Reporter: m.reporter,
	}
	records := m.state.Decide(input)
	if m.config.Decided != nil {
		m.config.Decided(input, records)
	}
	// Who has no worker is told of again, if it still is so.
	m.answers = slices.DeleteFunc(m.answers, func(a executor.Answer) bool { return a.Unserved })
	if len(records) == 0 {
		r.Settled = true
		return
	}
	m.append(records, false)
}

// append makes the next append: one commit, fenced on the term.
func (m *Machine) append(records []*pb.Record, claim bool) {
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		panic("turn: decisions that cannot be encoded: " + err.Error())
	}
	term := ledger.Source{Tenant: m.config.Tenant, Class: ledger.ClassExecutor, Term: true}
	source, fence := ledger.Source{Tenant: m.config.Tenant, Class: ledger.ClassExecutor}, m.fence
	if claim {
		source, fence = term, m.state.Meta().Fence
	}
	m.pending = &pending{out: true, delay: int64(RetryMin),
		append: Append{Claim: claim, Append: ledger.Append{
			Subject: source.Subject(), ID: m.config.NewID(), Data: data,
			FenceSubject: term.Subject(), Fence: fence,
		}}}
}

// wake says when time alone calls for the next step, in ns from now.
func (m *Machine) wake(now Instant) (wakes bool, inNs int64) {
	if !m.holding || m.pending != nil {
		return false, 0 // the next message, reply or lease event comes by itself
	}
	if now.Held {
		return true, int64(GuardPoll)
	}
	if due, ok := m.state.NextWake(); ok {
		return true, max(due-now.EpochNs, 0)
	}
	// What there is to do is held back by a stamp ahead of this clock.
	return m.state.HasWork(), int64(GuardPoll)
}

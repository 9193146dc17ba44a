package turn

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Ready is what the shell carries out after a step, field by field in this order.
// Nothing of it is lost with the process: what was not carried out is found again in the
// state, in the ledger, or by whoever waits for it.
type Ready struct {
	// Down: this host decides and sends nothing more of its term. What it has on its way
	// ends before anything below is done; nil: no change.
	Down *Down
	// Up: the term of this host was read back. What it sends with is opened first; if
	// that fails, the session ends.
	Up bool
	// Confirmed: an operator has confirmed the clock since the session began.
	Confirmed bool
	// Touched are actions of which something was folded: what flies for one that
	// State.Expected denies waits for no answer any more, and is dropped.
	Touched []About
	// Erased are plans of whose erasure something was folded: their keys are forgotten.
	Erased []Erased
	// Ahead are commands that were recorded ahead. They are known before any of Send leaves, and
	// may be sent as Flights says.
	Ahead []Sending
	// Send are commands that became valid; each is sent at least once, under its key.
	Send []Sending
	// Taken and Closed are pages that are settled, by a record that a hook took them and
	// by their owner's answer. They come before what was asked for since.
	Taken  []Taken
	Closed []executor.Page
	// Pages go to their hooks until one takes them.
	Pages []executor.Page
	// Erase are plans whose keys are to be destroyed.
	Erase []string
	// Folded: something was folded; State is what whoever asks is told.
	Folded bool
	// Notices are what agents may want to know. The holder tells them, best effort: Tells.
	Notices []executor.Notice
	Tells   bool
	// Settled: the pages and keys of this step's Inputs need no record any more.
	Settled bool
	// Append is the next append; its result goes to Acknowledged. At most one is in flight.
	Append *Append
	// Wakes: time alone calls for a step, in so many ns; an earlier wake is replaced. If
	// not, an earlier one may stay.
	Wakes    bool
	WakeInNs int64
	// More: the next step is to be taken at once.
	More bool
}

// Down is why a host stopped.
type Down struct {
	By     string // who holds the tenant, or leads it; empty: not known
	Reason string // if it is not By
	Doubt  bool   // another term has begun: whoever leads has to be asked again
}

// Append is one try to append a commit.
type Append struct {
	ledger.Append
	Claim   bool  // it begins a term
	AfterNs int64 // pause before it goes out
}

// Sending is a command on its way to whoever carries it out.
type Sending struct {
	executor.Command
	Resent bool // an earlier term or process may have sent it
}

// About is an action of a plan.
type About = executor.About

// Taken is a page that a hook has taken, as a record says.
type Taken struct {
	About
	Kind, Hook string
}

// Erased is what was folded of an erasure.
type Erased struct {
	Plan      string
	Destroyed bool // its key is gone
}

// noted is what the shell has to know of records that were folded since the last step.
type noted struct {
	touched   []About
	taken     []Taken
	erased    []Erased
	confirmed bool
}

// note takes what an effective record says to the shell; what it means to the plan is
// the fold's.
func (n *noted) note(e ledger.Entry, attached uint64) {
	of := About{Plan: e.Record.Plan, Action: e.Record.Action}
	switch k := e.Record.Kind.(type) {
	case *pb.Record_OwnerPaged:
		n.taken = append(n.taken, Taken{of, k.OwnerPaged.Kind, k.OwnerPaged.Hook})
	case *pb.Record_PlanErased:
		n.erased = append(n.erased, Erased{of.Plan, k.PlanErased.Destroyed})
	case *pb.Record_ClockConfirmed:
		n.confirmed = n.confirmed || e.Address.Sequence > attached
	}
	if of.Action != "" && (len(n.touched) == 0 || n.touched[len(n.touched)-1] != of) {
		n.touched = append(n.touched, of)
	}
}

// deliver takes up what the folds since the last step have made valid.
func (m *Machine) deliver(r *Ready) {
	commands, notices, pages, closed := m.state.Commands(), m.state.Notices(), m.state.Pages(),
		m.state.Closed()
	erasures := m.state.Erasures()
	m.noted.touched = append(m.noted.touched, m.state.Landed()...)
	held := m.holding
	// First: whoever is fenced by what was folded sends nothing of the next holder's.
	r.Up = m.applyTerm()
	r.Down, m.down = m.down, nil
	r.Confirmed, r.Erased, r.Touched, r.Taken = m.noted.confirmed, m.noted.erased, m.noted.touched,
		m.noted.taken
	r.Folded, r.Notices, r.Tells = true, notices, held && m.holding
	m.noted = noted{}
	switch {
	case r.Up:
		r.Send = m.outstanding(m.state.InFlight(), true) // unanswered before: the same keys again
		r.Pages, r.Erase = m.state.Unpaged(), m.state.Unerased()
	case r.Tells:
		r.Ahead, r.Send = m.ahead(commands), m.outstanding(commands, false)
		r.Closed, r.Pages, r.Erase = closed, pages, erasures
	}
}

// outstanding are those of some commands whose answer is waited for: what was folded since
// a dispatch, or with it, may have settled it, as a report does that was fast.
func (m *Machine) outstanding(commands []executor.Command, resent bool) (list []Sending) {
	for _, c := range commands {
		if c.Behind == "" && m.state.Outstanding(c.Plan, c.Number, c.Purpose, c.Attempt) {
			list = append(list, Sending{m.WithToken(c), resent || c.Earlier})
		}
	}
	return list
}

// ahead are those of some commands that were recorded ahead and do not count yet.
func (m *Machine) ahead(commands []executor.Command) (list []Sending) {
	for _, c := range commands {
		if c.Behind != "" && m.state.Expected(c.Plan, c.Number, c.Purpose, c.Attempt) &&
			!m.state.Outstanding(c.Plan, c.Number, c.Purpose, c.Attempt) {
			list = append(list, Sending{m.WithToken(c), false})
		}
	}
	return list
}

// WithToken gives a command the token that its dispatch asks reports for. Only the process that
// has recorded it knows that one: a copy that another one sends again has none, and its worker is
// asked again until it answers.
func (m *Machine) WithToken(c executor.Command) executor.Command {
	if len(c.ReportDigest) == 0 || len(m.config.Secret) == 0 {
		return c
	}
	token := ledger.ReportToken(m.config.Secret, c.Tenant, c.Plan, c.Action, c.Key, c.Attempt)
	if bytes.Equal(ledger.ReportDigest(token), c.ReportDigest) {
		c.ReportToken = token
	}
	return c
}

package turn

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Ready is what a step asks for. [Session] carries it out field by field, in this order; each
// field says what must have been done before it, and where the order does not matter.
//
// A step either hands on what was folded, which is all down to Tells, or it decides, which is
// Settled, Append and the wake; Down may come with both. So a command in Send never waits for an
// append of the same step: the record that allows it was read back from the ledger.
//
// Nothing is lost with the process. What was not carried out is found again in the state, in the
// ledger, or by whoever waits for it.
type Ready struct {
	// Down says that this host does not hold the tenant any more; nil: it is as it was. What the
	// host has on its way is given up before anything else, as the next holder, which may be this
	// one, sends it again.
	Down *Down
	// Folded says that the state has changed. Questions find that before anything leaves which says
	// so: who is paged, called or told of it asks at once.
	Folded bool
	// Up says that the record which begins a term of this host was read back. What it sends with
	// is opened before anything is sent; if that fails, the session ends. Send, Pages and Erase
	// have all that is outstanding then, also what an earlier holder has sent.
	Up bool
	// Confirmed says that an operator has confirmed the clock since the session began. The clocks
	// are set right before the next step reads them.
	Confirmed bool
	// Erased are plans that are to be erased, or were. Their keys are forgotten before Send, so
	// that no command is opened with one. Those whose key is recorded as destroyed are on their
	// way no more. A plan is erased once, so none of these is in Erase.
	Erased []Erased
	// Touched are actions of which something was folded. What is on its way for one of them is
	// dropped if State.Expected says that no one waits for its answer. Ahead and Send have only
	// what is waited for, so that nothing of them is dropped whenever this is done.
	Touched []About
	// Ahead are commands that were recorded before their turn. Each may leave when the command
	// that it goes behind is done. They are known before Send: the answer to a command may come
	// before the next line is carried out, and what is not known by then has to wait for its turn.
	Ahead []Sending
	// Send are commands whose records were read back. Each is sent at least once, under its key,
	// as [Flights] has it. It takes the place of an earlier one for the same action.
	Send []Sending
	// Taken and Closed are pages that have ended: a record says that a hook has taken one, or its
	// owner has answered. They end before Pages are sent, of which one may be about the same.
	Taken  []Taken
	Closed []executor.Page
	// Pages are sent until a hook takes them, as [Pages] has it. Commands, pages and keys do not
	// depend on each other: nothing changes with the order of Send, Pages and Erase.
	Pages []executor.Page
	// Erase are plans whose keys are to be destroyed, as [Erasures] has it.
	Erase []string
	// Notices are what agents may want to know. The holder tells them, best effort: Tells.
	Notices []executor.Notice
	Tells   bool
	// Settled says that the pages and keys among the Inputs of this step need no record. They are
	// given up before the next step, which would get them again.
	Settled bool
	// Append is the next append; its result goes to Acknowledged. At most one is on its way, and
	// the next one is made when it was read back.
	Append *Append
	// Wakes says that time alone calls for a step, in so many ns; an earlier wake is replaced. If
	// it is not set, no wake is needed, and one too many does no harm.
	Wakes    bool
	WakeInNs int64
	// More says that the next step is to be taken at once.
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

// noted is what a session has to know of records that were folded since the last step.
type noted struct {
	touched   []About
	taken     []Taken
	erased    []Erased
	confirmed bool
}

// note takes what an effective record says to the session; what it means to the plan is
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
	if len(c.ReportDigest) == 0 || m.reporter == nil {
		return c
	}
	token := m.reporter.Token(c.Tenant, c.Plan, c.Action, c.Key, c.Attempt)
	if bytes.Equal(ledger.ReportDigest(token), c.ReportDigest) {
		c.ReportToken = token
	}
	return c
}

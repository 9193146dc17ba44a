package turn

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Session is one session of one tenant: from the attachment to the ledger until it ends. It has
// the machine, and what its host has on its way while it holds the tenant, and it carries out
// what the machine says. It belongs to one goroutine; [Outbound] says what others may use.
type Session struct {
	*Machine
	out *Outbound // of the term that this host holds; nil: it holds none
}

// Effects are what a session does to the world outside of it. A session calls them in the order
// of the fields of [Ready], from its own goroutine; none of them waits for what it begins.
type Effects interface {
	// Inputs reads the clocks. If the step decides, it also returns what waits to be recorded
	// about the tree.
	Inputs(decides bool) (now Instant, proof []*pb.Record)
	// Folded notes that more of the ledger is folded, before anything leaves that says so: whoever
	// hears of it may ask at once.
	Folded()
	// Open makes what a host sends with during a term, and sets it in out. The session ends with
	// its error.
	Open(out *Outbound) error
	// Close ends what Open has made: nothing more of the term begins to leave.
	Close(d Down)
	// Confirm takes the wall clock as right.
	Confirm()
	// Forget forgets the key of a plan that is to be erased, or was.
	Forget(plan string)
	// Begin is given each command before it is held or sent, and returns it as it is to leave.
	Begin(c executor.Command) executor.Command
	// Tell tells of what was folded: agents of the notices only where this host tells.
	Tell(notices []executor.Notice, tells bool)
	// Append has a commit appended; its result goes to Acknowledged.
	Append(a Append)
	// Wake has the next step taken in so many ns, or ends an earlier wake if time alone calls
	// for none.
	Wake(wakes bool, inNs int64)
}

// NewSession begins a session over a folded state. last is the last sequence of the ledger.
func NewSession(c Config, state *executor.State, last uint64) *Session {
	return &Session{Machine: New(c, state, last)}
}

// Outbound is what this host has on its way; nil: it does not hold the tenant.
func (s *Session) Outbound() *Outbound { return s.out }

// Turn takes steps, and carries each of them out, until there is nothing to do at once. Its
// error is that of Effects.Open.
func (s *Session) Turn(fx Effects) error {
	for more := true; more; {
		var err error
		if more, err = s.Step(fx); err != nil {
			return err
		}
	}
	return nil
}

// Step takes one step and carries it out. more says that the next one is to be taken at once.
func (s *Session) Step(fx Effects) (more bool, err error) {
	decides := s.Decides()
	now, proof := fx.Inputs(decides)
	in := Inputs{Proof: proof}
	if decides {
		in.Paged, in.Destroyed = s.out.settling()
		s.answers = s.out.deciding(s.answers)
	}
	r := s.Machine.Step(now, in)
	if decides && r.Append == nil { // nothing is recorded
		s.out.deciding(nil)
	}
	return s.carryOut(r, in, now, fx)
}

// carryOut does what a step asks for, field by field in the order of Ready, which says why it is
// this one.
func (s *Session) carryOut(r Ready, in Inputs, now Instant, fx Effects) (more bool, err error) {
	if r.Down != nil {
		s.out = nil
		fx.Close(*r.Down)
	}
	if r.Folded {
		fx.Folded()
	}
	if r.Up {
		out := new(Outbound)
		if err := fx.Open(out); err != nil {
			return false, err
		}
		s.out = out
	}
	if r.Confirmed {
		fx.Confirm()
	}
	for _, e := range r.Erased {
		fx.Forget(e.Plan)
	}
	more = r.More
	if s.out != nil {
		s.send(r, now, fx)
		s.page(r)
		s.erase(r)
	}
	if r.Folded {
		fx.Tell(r.Notices, r.Tells)
	}
	if r.Settled {
		more = s.out.settled(in) || more
	}
	if r.Append != nil {
		fx.Append(*r.Append)
	}
	fx.Wake(r.Wakes, r.WakeInNs)
	return more, nil
}

// send has commands leave, after those that no one waits for any more were dropped.
func (s *Session) send(r Ready, now Instant, fx Effects) {
	f, by := &s.out.Flights, s.out.Dispatcher
	f.PruneAll(r.Touched, s.state.Expected, by)
	for _, x := range r.Ahead {
		x.Command = fx.Begin(x.Command)
		by.Lock()
		f.Hold(x)
		by.Unlock()
	}
	for _, x := range r.Send {
		x.Command = fx.Begin(x.Command)
		f.Send(x, now.MonoNs, by)
	}
	if s.config.Sent != nil {
		s.config.Sent()
	}
}

// page has pages leave, after those that are settled have ended.
func (s *Session) page(r Ready) {
	p, by := &s.out.Pages, s.out.Pager
	by.Lock()
	for _, t := range r.Taken {
		p.End(PageKey{About: t.About, Kind: t.Kind}, by)
	}
	for _, c := range r.Closed {
		p.End(KeyOf(c.Page), by)
	}
	freed := p.Freed()
	by.Unlock()
	pages := r.Pages
	if freed {
		pages = slices.Concat(pages, s.state.Unpaged())
	}
	by.Lock()
	defer by.Unlock()
	for _, page := range pages {
		p.Send(page, false, by)
	}
}

// erase has keys destroyed, after those that are recorded as destroyed were forgotten.
func (s *Session) erase(r Ready) {
	e, by := &s.out.Erasures, s.out.Eraser
	by.Lock()
	for _, x := range r.Erased {
		if x.Destroyed {
			e.Recorded(x.Plan)
		}
	}
	e.Add(r.Erase)
	by.Unlock()
	if len(r.Erase) > 0 {
		by.Destroy()
	}
}

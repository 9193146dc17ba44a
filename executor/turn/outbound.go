package turn

import "github.com/sagenbaum/sagenbaum/executor"

// Outbound is what a host has on its way during one term, with what it sends it with. Its parts
// are used by the session and, if it has goroutines of its own, by what sends them: whoever uses
// one holds the lock of its sender.
type Outbound struct {
	Flights  Flights
	Pages    Pages
	Erasures Erasures

	Dispatcher Dispatcher
	Pager      Pager
	Eraser     Eraser
}

// Locker is a lock, as sync.Locker. One that does nothing will do where there is one goroutine.
type Locker interface {
	Lock()
	Unlock()
}

// Dispatcher sends the commands of Flights. Its lock is held during Drop, not during Send.
type Dispatcher interface {
	Locker
	Send(f *Flight) // as often as MaySend and Result say
	Drop(f *Flight) // no answer of it is waited for any more
}

// Pager publishes Pages. Its lock is held during Page and Unpage.
type Pager interface {
	Locker
	Page(d *Delivery)   // as often as Round says
	Unpage(d *Delivery) // it has ended
}

// Eraser destroys the keys of Erasures. Its lock is not held during Destroy.
type Eraser interface {
	Locker
	Destroy() // whatever Next returns, one after the other
}

// deciding are the answers that a step may decide on. What waited for the record of an earlier one
// leaves again.
func (o *Outbound) deciding(answers []executor.Answer) []executor.Answer {
	o.Dispatcher.Lock()
	defer o.Dispatcher.Unlock()
	o.Flights.Resume()
	return o.Flights.Decide(answers)
}

// settling is what was done and is not recorded yet.
func (o *Outbound) settling() (paged []executor.Paged, destroyed []string) {
	o.Pager.Lock()
	paged = o.Pages.Taken()
	o.Pager.Unlock()
	o.Eraser.Lock()
	destroyed = o.Erasures.Destroyed()
	o.Eraser.Unlock()
	return paged, destroyed
}

// settled ends what was given to a step that had nothing to record of it. more: other pages were
// taken since.
func (o *Outbound) settled(in Inputs) (more bool) {
	o.Pager.Lock()
	more = o.Pages.Settled(len(in.Paged), o.Pager)
	o.Pager.Unlock()
	o.Eraser.Lock()
	defer o.Eraser.Unlock()
	for _, plan := range in.Destroyed {
		o.Erasures.Recorded(plan)
	}
	return more
}

// PruneAll drops what flies for actions whose calls wait for no answer any more: the ledger has
// settled them, by their own answer, a worker's report or their owner's. waits is
// State.Expected.
func (f *Flights) PruneAll(actions []About,
	waits func(plan string, n uint32, purpose string, attempt uint32) bool, by Dispatcher) {
	by.Lock()
	defer by.Unlock()
	for _, of := range actions {
		if dropped := f.Prune(of, waits); dropped != nil {
			by.Drop(dropped)
		}
	}
}

// Send has a command leave, once per attempt, in place of an earlier one for the same action.
func (f *Flights) Send(s Sending, monoNs int64, by Dispatcher) {
	by.Lock()
	taken, replaced := f.Take(s, monoNs)
	if replaced != nil {
		by.Drop(replaced)
	}
	by.Unlock()
	if taken != nil {
		by.Send(taken)
	}
}

// Send has a page leave, once for each ID, in place of an earlier one about the same. own: it is
// about this host. The lock of by is held.
func (p *Pages) Send(page executor.Page, own bool, by Pager) {
	begun, replaced := p.Add(page, own)
	if replaced != nil {
		by.Unpage(replaced)
	}
	if begun != nil {
		by.Page(begun)
	}
}

// End ends the page of a key, of which the ledger says that it was taken or that its owner has
// answered. The lock of by is held.
func (p *Pages) End(key PageKey, by Pager) {
	if ended := p.Recorded(key); ended != nil {
		by.Unpage(ended)
	}
}

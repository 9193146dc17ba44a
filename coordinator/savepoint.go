package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// savepoint is a place of this plan that an unwind may stop at.
type savepoint struct {
	name   string
	bundle *bundle
	at     int  // number of the last action before it
	told   bool // a call has returned that it is durable
}

// marks are the savepoints of a plan, and the requests to go back to one.
type marks struct {
	savepoints    []*savepoint // as set
	savepointsSet uint32       // number of the last one that was tried
	rewinds       uint32       // number of the last request to go back to one
}

// numberMax is the largest number of a savepoint or a request.
const numberMax = 1<<32 - 1

// rewinding is the request to go back to a savepoint.
type rewinding struct {
	savepoint string
	number    uint32  // of the requests of this plan, from 1
	bundle    *bundle // nil until it is queued
	calls     int     // that wait for its end
	noticed   bool    // a notice says that it is over; one of an earlier rewinding may say so too
}

// Savepoint marks a place that UnwindTo goes back to: actions registered from now
// on come after it. It is durable when it returns nil. Errors: *Refused (no
// name, or set already), ErrInDoubt (call again with the same name),
// ErrBusy, ErrClosed, ErrUnwinding.
func (p *Plan) Savepoint(ctx context.Context, name string) error {
	s, err := p.setSavepoint(ctx, name)
	if err == nil {
		_, err = p.c.wait(ctx, s.bundle)
	}
	if err != nil {
		return fmt.Errorf("cannot set savepoint %q: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.told = true
	return nil
}

// setSavepoint queues a savepoint, or joins the call that did and had no answer.
func (p *Plan) setSavepoint(ctx context.Context, name string) (*savepoint, error) {
	set := &pb.SavepointSet{Name: name, Number: numberMax} // room for any, until it has its own
	record := &pb.Record{Plan: p.id, Kind: &pb.Record_SavepointSet{SavepointSet: set}}
	if err := p.c.check(p.id, record); err != nil {
		return nil, err
	}
	if err := p.c.committer.enter(ctx, p.c.appendTimeout); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.savepoint(name)
	err := p.shut()
	switch {
	case err != nil:
	case s == nil && len(p.savepoints) >= ledger.SavepointsMax:
		err = ledger.Refuse("savepoint_set.name", fmt.Sprintf("plan %s has %d savepoints, and no more "+
			"fit", p.id, len(p.savepoints)), "UnwindTo one of them, or no further one")
	case s == nil:
		s = &savepoint{name: name, at: p.count}
		p.savepointsSet++
		set.Number = p.savepointsSet
		if s.bundle, err = p.queueCall(record); err == nil {
			p.savepoints = append(p.savepoints, s)
			return s, nil
		}
	case s.told:
		err = ledger.Refuse("savepoint_set.name", fmt.Sprintf("%q is set already", name),
			"a name of its own for each savepoint")
	}
	p.c.committer.leave() // nothing was queued with the place
	return s, err
}

// savepoint finds one that is stored or may be. Called with mu held.
func (m *marks) savepoint(name string) *savepoint {
	m.savepoints = slices.DeleteFunc(m.savepoints,
		func(s *savepoint) bool { return s.bundle.failed() })
	for _, s := range m.savepoints {
		if s.name == name {
			return s
		}
	}
	return nil
}

// UnwindTo has everything undone that came after a savepoint, waits for it, and
// then the plan goes on. Forwards that still run are interrupted as by Fail; until
// the plan is open again no action starts. An action that was undone keeps its ID:
// what comes instead needs another one.
//
// Errors: *Refused (an unknown savepoint, or the ledger took nothing),
// ErrInDoubt, ErrBusy, ErrClosed, ErrUnwinding (the plan is being
// undone for another reason), ErrUnwound (it did not open again: an undo is
// quarantined, or the whole plan is undone), ErrSuperseded, ctx's. After ErrInDoubt, ctx's, and a
// quarantine that its owner has ended, call it again: it goes on where it was.
func (p *Plan) UnwindTo(ctx context.Context, savepoint, reason string) error {
	err := p.unwindTo(ctx, savepoint, reason)
	if err != nil {
		return fmt.Errorf("cannot unwind plan %q to savepoint %q: %w", p.id, savepoint, err)
	}
	return nil
}

func (p *Plan) unwindTo(ctx context.Context, savepoint, reason string) error {
	// An open plan with a reason is one whose unwind has not begun yet.
	reason = cmp.Or(reason, "back to savepoint "+savepoint)
	request := &pb.UnwindRequested{ToSavepoint: savepoint, Reason: reason, Number: numberMax}
	record := &pb.Record{Plan: p.id, Kind: &pb.Record_UnwindRequested{UnwindRequested: request}}
	if err := p.c.check(p.id, record); err != nil {
		return err
	}
	if p.c.bus == nil {
		return ledger.Refuse("config.conn", "missing",
			"a connection to NATS: the plan goes on when an executor says so")
	}
	if err := p.c.committer.enter(ctx, p.c.appendTimeout); err != nil {
		return err
	}
	p.mu.Lock()
	r, err := p.joinRewinding(savepoint)
	if err == nil {
		r.calls++
		defer p.leave(r)
	}
	if err == nil && r.bundle == nil {
		request.Number = r.number
		err = p.queueRewinding(ctx, r, record)
	} else {
		p.c.committer.leave() // nothing is queued with the place
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	seq, err := p.c.wait(ctx, r.bundle)
	if err != nil {
		if r.bundle.failed() {
			p.rewound(r, false)
		}
		return err
	}
	return p.awaitRewound(ctx, r, seq)
}

// leave ends a call that waited for a rewinding.
func (p *Plan) leave(r *rewinding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.calls--
}

// joinRewinding returns the rewinding under way, if it goes to the same savepoint,
// or a new one that no other call will start. Called with mu held.
func (p *Plan) joinRewinding(name string) (*rewinding, error) {
	if p.rewinding != nil && p.rewinding.savepoint == name && p.rewinding.bundle != nil &&
		!p.rewinding.bundle.failed() {
		return p.rewinding, nil
	}
	if err := p.shut(); err != nil {
		return nil, err
	}
	if s := p.savepoint(name); s == nil {
		return nil, ledger.Refuse("unwind_requested.to_savepoint",
			fmt.Sprintf("%q is no savepoint of this plan", name), "the name of one that is set")
	}
	p.rewinds++
	r := &rewinding{savepoint: name, number: p.rewinds}
	p.rewinding = r
	p.unwound = fmt.Errorf("%w (to savepoint %s)", ErrUnwinding, name)
	p.change()
	return r, nil
}

// GoesBack reports whether the plan is being undone in part only, as far as this process knows: to
// a savepoint, or an action and what came after it. It is open again then.
func (p *Plan) GoesBack() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rewinding != nil || p.unwinding() != nil && p.partly
}

// queueRewinding interrupts what runs, gives up what was registered after the
// savepoint and never called, and queues the request. Called with mu held, which it
// gives up while it waits for forwards.
func (p *Plan) queueRewinding(ctx context.Context, r *rewinding, record *pb.Record) (err error) {
	after := p.savepoint(r.savepoint).at
	p.settleForwards(ctx, p.unwound, after)
	if err = p.ended(); err == nil {
		err = p.giveUp(func(a *action) bool { return a.number > after })
	}
	if err == nil {
		r.bundle, err = p.queueCall(record)
	}
	if err != nil {
		p.c.committer.leave()
		p.reopen(r, false)
	}
	return err
}

// awaitRewound asks an executor until the plan is open again, or never will be.
func (p *Plan) awaitRewound(ctx context.Context, r *rewinding, seq uint64) error {
	var last error
	told := false // that it is open, before the notice of it
	for delay := askDelay; ctx.Err() == nil; delay = min(2*delay, askDelayMax) {
		changed := p.changes()
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: seq})
		switch {
		case errors.Is(err, ErrConnectionClosed):
			return err
		case err != nil:
			last = heardLast(ctx, last, err)
		case answer.State == ledger.StateOpen && answer.Reason != "":
			last = errors.New("its unwind has not begun" + because(answer.Reason))
		case answer.State == ledger.StateOpen && len(answer.Refused) > 0 && p.isRewinding(r):
			p.rewound(r, false)
			return refusedBy(answer, "unwind_requested.to_savepoint", "a savepoint that the plan still has")
		case answer.State == ledger.StateOpen && (told || p.noticed(r)):
			p.rewound(r, true)
			return nil
		case answer.State == ledger.StateOpen:
			// The notices of this rewinding may be after the answer. They are waited for
			// once, so that they do not stop what comes next.
			told, delay = true, askDelay
		case answer.State != ledger.StateUnwinding:
			what := ErrUnwound
			if !hearEnd(p, answer) {
				what = ErrSuperseded
			}
			return fmt.Errorf("%w: it is %s%s", what, answer.State, because(answer.Reason))
		default:
			last = errors.New("it is still unwinding" + because(answer.Reason))
		}
		pause.Until(ctx, changed, delay)
	}
	return inVain(ctx, last)
}

// refusedBy is the ledger's refusal, as an executor tells it.
func refusedBy(answer api.OutcomeAnswer, field, want string) error {
	for _, reason := range answer.Refused {
		if refused := ledger.TenantRefusal(reason); refused != nil {
			return refused
		}
	}
	return ledger.Refuse(field, strings.Join(answer.Refused, "; "), want)
}

func (p *Plan) isRewinding(r *rewinding) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rewinding == r
}

// noticed reports whether the notices of a rewinding have come, or it is over.
func (p *Plan) noticed(r *rewinding) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.noticed || p.rewinding != r
}

// rewound ends a rewinding: done, or refused.
func (p *Plan) rewound(r *rewinding, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reopen(r, done)
}

// reopen lets actions start again after a rewinding, which may have been ended by
// a notice already. Called with mu held.
func (p *Plan) reopen(r *rewinding, done bool) {
	if p.rewinding != r {
		return
	}
	p.rewinding, p.unwound = nil, nil
	if done {
		p.wentBack = append(p.wentBack, r.bundle.seq)
		p.dropAfter(r.savepoint, 0)
	}
	p.change()
}

// reopened takes a notice that the plan is open again, rewound to a savepoint,
// whoever asked for it. The next call tells of what another has asked for.
func (p *Plan) reopened(n api.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.change()
	r := p.rewinding
	if n.Counted { // at an operator's word
		p.notePart(UndonePart{Number: n.Parts, Savepoint: n.Savepoint, Reason: n.Reason}, n.At)
	}
	switch {
	case r != nil && r.savepoint == n.Savepoint && r.calls > 0:
		r.noticed = true // it may be of an earlier one: the calls that wait for this one ask
		return
	case r != nil && r.savepoint == n.Savepoint:
		p.wentBack = append(p.wentBack, n.Asked)
	case n.Counted, n.Asked == 0, slices.Contains(p.wentBack, n.Asked),
		p.savepoint(n.Savepoint) == nil:
	default:
		p.wentBack = append(p.wentBack, n.Asked)
		p.parts.backs = append(p.parts.backs, UndonePart{Savepoint: n.Savepoint, Reason: n.Reason})
	}
	if r != nil && r.savepoint != n.Savepoint {
		return
	}
	p.rewinding, p.unwound = nil, nil
	p.dropAfter(n.Savepoint, n.At)
}

// dropAfter forgets the savepoints that something was undone before, as the ledger
// does, of what was stored before a sequence; 0: of all. Called with mu held.
func (p *Plan) dropAfter(name string, at uint64) {
	to := p.savepoint(name)
	if to == nil {
		return
	}
	p.gone(func(a *action) bool { return a.number > to.at }, at)
	p.savepoints = slices.DeleteFunc(p.savepoints, func(s *savepoint) bool {
		if !s.bundle.before(at) {
			return false
		}
		between := func(number int) bool { return to.at < number && number <= s.at }
		return slices.ContainsFunc(p.children, between) ||
			slices.ContainsFunc(p.order, func(a *action) bool {
				return between(a.number) && !a.pair.failed()
			})
	})
}

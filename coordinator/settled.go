package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Settled returns when it is known of each action of the plan whether it happened, as far as that
// can be known while the plan is open: no forward of this process runs, and no probe is asked, or
// will be, about an action in doubt. It needs an executor and waits for one until ctx ends.
//
// What it returns are the actions (the first 100) of which it is not known all the same, with why:
// nothing can be asked, or the answer did not tell. The plan's end settles those, or their owner
// does. An action that was found not to be there is one of them: as long as the plan is open, its
// forward may be called once more. Where a part of the plan is being undone, after which it goes
// on, Settled waits for that too. Of a plan whose commit waits for nothing but its owner's word
// they are those that it waits for.
//
// Errors: *Refused, ErrConnectionClosed, ErrUnwound (the plan is being undone, or was: that settles
// doubt itself), ErrClosed (it was ended by this process), and ctx's, with what is waited for.
func (p *Plan) Settled(ctx context.Context) ([]api.Doubt, error) {
	unknown, err := awaitKnown(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("cannot wait for what is in doubt in plan %q: %w", p.id, err)
	}
	return unknown, nil
}

func awaitKnown(ctx context.Context, p *Plan) ([]api.Doubt, error) {
	if p.c.bus == nil {
		return nil, ledger.Refuse("config.conn", "missing", "a connection to NATS")
	}
	var last error
	for delay := askDelay; ctx.Err() == nil; delay = min(2*delay, askDelayMax) {
		if awaitForwards(ctx, p); ctx.Err() != nil {
			last = cmp.Or(last, errors.New("forwards still run"))
			break
		}
		if err := p.flush(ctx, true); err != nil {
			return nil, err
		}
		changed := p.changes()
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: p.Stored(), Doubts: true})
		switch {
		case errors.Is(err, ErrConnectionClosed):
			return nil, err
		case err != nil:
			last = heardLast(ctx, last, err)
		case answer.State == ledger.StateCommitted, answer.Settled:
			return answer.Unknown, nil
		case answer.State == ledger.StateOpen && len(answer.Doubts) > 0:
			first := answer.Doubts[0]
			last = fmt.Errorf("action %s waits for %s", first.Action, first.Waits)
		case answer.State == ledger.StateCommitting:
			last = &CommitWaits{Plan: p.id, Doubts: answer.Doubts}
		case answer.State == ledger.StateUnwinding && !answer.Whole:
			last = fmt.Errorf("a part of it is being undone%s", because(answer.Reason))
		case answer.State != ledger.StateOpen:
			return nil, undone(ErrUnwound, answer.State, answer.Reason)
		}
		pause.Until(ctx, changed, delay)
	}
	return nil, inVain(ctx, last)
}

// awaitForwards returns when no forward of a plan runs in this process, or ctx has ended.
func awaitForwards(ctx context.Context, p *Plan) {
	for ctx.Err() == nil {
		var running *action
		p.mu.Lock()
		for i := 0; i < len(p.order) && p.running > 0 && running == nil; i++ {
			if a := p.order[i]; a.state == actionRunning {
				running = a
			}
		}
		p.mu.Unlock()
		if running == nil {
			return
		}
		select {
		case <-running.finished:
		case <-ctx.Done():
		}
	}
}

// wake has the calls that wait for news of a plan look again.
func wake(p *Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change()
}

// heardLast is why a call still waits, after a question that has failed: not that its ctx has cut
// the question off, where more was heard before.
func heardLast(ctx context.Context, last, err error) error {
	if ctx.Err() != nil && last != nil {
		return last
	}
	return err
}

// inVain is the error of a call whose ctx has ended while it waits. last says for what.
func inVain(ctx context.Context, last error) error {
	if last == nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w (%w)", ctx.Err(), last)
}

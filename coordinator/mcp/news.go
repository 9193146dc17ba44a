package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// A session is told once what another one has done to its plan: its agent does not know otherwise
// that what it did is gone, or stays for good. What other processes do the coordinator tells.

// news is what a session has not been told yet of its plan.
type news struct {
	of    *tracked
	parts []string // that were undone while it went on
	ended bool
}

// endedBy notes, for the session whose plan it was, that another has ended it. Called with mu held.
func (p *plans) endedBy(by, holder *sdk.ServerSession, t *tracked) {
	if holder != by {
		p.news[holder] = &news{of: t, ended: true}
	}
}

// undoneBy notes, for the session whose plan it is, that another has undone a part of it.
func (p *plans) undoneBy(by *sdk.ServerSession, t *tracked, part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for holder, current := range p.current {
		if current != t || holder == by {
			continue
		}
		if n := p.news[holder]; n == nil || n.of != t {
			p.news[holder] = &news{of: t}
		}
		p.news[holder].parts = append(p.news[holder].parts, part)
	}
}

// take takes what a session has not been told of a plan; of nil: of one that has ended.
func (p *plans) take(session *sdk.ServerSession, of *tracked) *news {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.news[session]
	if n == nil || of != nil && n.of != of || of == nil && !n.ended {
		return nil
	}
	delete(p.news, session)
	return n
}

// untold says, once, what another session has done to a plan of this one; of nil: to the one that
// has ended. Errors: coordinator.ErrUnwound and the like, nil: nothing.
func (g *Gateway) untold(ctx context.Context, session *sdk.ServerSession, of *tracked) error {
	n := g.plans.take(session, of)
	switch {
	case n == nil:
		return nil
	case !n.ended:
		return fmt.Errorf("%w: %s", coordinator.ErrPartUndone, strings.Join(n.parts, "; "))
	}
	over := n.of.ended()
	past, err := g.look(ctx, n.of)
	switch {
	case err != nil || past.State == ledger.StateOpen: // its owner has answered since
		return fmt.Errorf("plan %s takes no more: %w", n.of.plan.ID(), over)
	case past.State == ledger.StateCommitted || past.State == ledger.StateCommitting:
		return fmt.Errorf("plan %s takes no more: %w", n.of.plan.ID(), errCommitted)
	case past.State == ledger.StateUnwinding:
		return fmt.Errorf("plan %s takes no more: %w: %s", n.of.plan.ID(), coordinator.ErrUnwinding,
			ended(past))
	}
	return fmt.Errorf("plan %s takes no more: %w: %s", n.of.plan.ID(), coordinator.ErrUnwound,
		ended(past))
}

// explained says of a plan that takes nothing more that it is committed, or undone by now, where it
// is: who calls a tool under it does not know otherwise that what it did stays, or is gone.
func (g *Gateway) explained(ctx context.Context, t *tracked, err error) error {
	switch {
	case errors.Is(err, coordinator.ErrPartUndone): // its savepoints are gone, too
		_, _ = g.look(ctx, t) // without an answer the next undo finds out
		return err
	case !undoneInstead(err) || !t.overs(err):
		return err
	}
	past, failed := g.look(ctx, t)
	switch {
	case failed != nil:
	case past.State == ledger.StateCommitted:
		return fmt.Errorf("plan %s takes no more: %w", t.plan.ID(), errCommitted)
	case past.State == ledger.StateCompensated: // since it was heard that it is being undone
		return fmt.Errorf("plan %s takes no more: %w: %s", t.plan.ID(), coordinator.ErrUnwound,
			ended(past))
	}
	return err
}

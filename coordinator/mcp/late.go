package mcp

import (
	"context"
	"encoding/json"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A call that was given up is in doubt, and its server is at work on it still. What it answers
// before it is ended says what has happened, and the ledger takes that after a doubt, also while
// the plan is being undone. An error says nothing: it may be the answer to the cancellation.

// answersLate records what a server has answered to a call that was given up.
func (u *run) answersLate(result *sdk.CallToolResult, before json.RawMessage) {
	<-u.over // until then the doubt is not recorded
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	late := run{g: u.g, r: u.r, action: u.action, result: result}
	outcome, err := late.outcome(ctx, before)
	if err == nil {
		err = u.t.plan.Settle(ctx, u.action, outcome, nil)
	}
	if err != nil {
		u.g.logger.Warn("the late answer of a call that was given up is not recorded", "tenant",
			u.g.config.Tenant, "plan", u.t.plan.ID(), "action", u.action, "error", err)
		return
	}
	u.t.happened(u.action, late.lacks, marked(result, u.t.plan.ID(), u.action))
}

// happened notes that a call which was in doubt has happened, and its result for one with its key.
func (t *tracked) happened(action, lacks string, result *sdk.CallToolResult) {
	t.mu.Lock()
	for _, e := range t.effects {
		if e.Action == action {
			e.isKnown()
			e.lack(lacks)
		}
	}
	k := t.results[action]
	t.mu.Unlock()
	if k == nil {
		return
	}
	<-k.ended // with the doubt
	now := &keyed{print: k.print, ended: k.ended, result: keepable(result)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.results[action] == k {
		t.results[action] = now
	}
}

// isKnown notes that the call is known to have happened.
func (e *effect) isKnown() {
	if e.known != stateInDoubt {
		return
	}
	if e.known = stateDone; e.State == stateInDoubt {
		e.State = stateDone
	}
}

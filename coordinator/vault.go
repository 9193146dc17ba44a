package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// vault has the key of one plan in this process, from when a contract first asks for it.
// The key is the holder's, who gives it to the agent of the plan until the plan is
// erased. It is safe for concurrent use.
type vault struct {
	c    *Coordinator
	plan string

	mu  sync.Mutex
	key *seal.Key
}

func newVault(c *Coordinator, plan string) *vault { return &vault{c: c, plan: plan} }

// unlock asks for the key, unless it is there. Without it nothing sensitive is
// recorded, so that nothing sensitive is done. Errors: ErrKeyAway, ErrErased, *Refused.
func (v *vault) unlock(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.key != nil {
		return nil
	}
	if v.c.bus == nil {
		return ledger.Refuse("config.conn", "missing",
			"a connection to NATS: the key of sensitive fields is asked for")
	}
	ctx, cancel := context.WithTimeout(ctx, v.c.confirmTimeout)
	defer cancel()
	answer, err := v.ask(ctx)
	var problem *api.Problem
	for delay := askDelay; errors.As(err, &problem) && problem.Again; {
		if pause.For(ctx, delay); ctx.Err() != nil {
			break
		}
		answer, err = v.ask(ctx)
		delay = min(2*delay, askDelayMax)
	}
	switch {
	case errors.As(err, &problem) && problem.Again:
		return fmt.Errorf("%w: %w", ErrKeyAway, ledger.Refuse("plan.key", problem.Text,
			"an executor whose keys are at hand; call again"))
	case errors.As(err, &problem):
		return ledger.Refuse("plan.key", problem.Text,
			"a plan of this agent, and an executor that has keys")
	case err != nil:
		return err
	case answer.Erased != "":
		return fmt.Errorf("%w: plan %q, %s", ErrErased, v.plan, answer.Erased)
	case len(answer.Key) != seal.KeySize:
		return ledger.Refuse("plan.key", fmt.Sprintf("%d bytes", len(answer.Key)),
			fmt.Sprintf("%d bytes, of an executor of this version", seal.KeySize))
	}
	v.key = (*seal.Key)(answer.Key)
	return nil
}

// ask asks for the key once. Errors: *api.Problem, *Refused, ErrConnectionClosed.
func (v *vault) ask(ctx context.Context) (answer api.KeyAnswer, err error) {
	verb := api.PlanKey(v.c.agent)
	reply, err := v.c.bus.ask(ctx, verb.Subject(v.c.tenant), mustJSON(api.KeyQuery{Plan: v.plan}))
	switch {
	case errors.Is(err, ErrConnectionClosed):
		return answer, err
	case err != nil:
		return answer, fmt.Errorf("%w: %w", ErrKeyAway, ledger.Refuse("plan.key", fmt.Sprintf("the "+
			"holder of tenant %s does not give it: %v", v.c.tenant, err),
			"an executor that answers; call again"))
	}
	answer, err = verb.Decode(reply)
	if err != nil && !errors.As(err, new(*api.Problem)) {
		err = ledger.Refuse("plan.key", "the answer of the executor is not JSON",
			"an executor of this version")
	}
	return answer, err
}

// unlock asks for the key of the plan, unless it is there. Its opening is stored before, because
// a key is made only for a plan that the ledger has. Errors: ErrErased, *Refused, as of Flush.
func (p *Plan) unlock(ctx context.Context) error {
	p.vault.mu.Lock()
	has := p.vault.key != nil
	p.vault.mu.Unlock()
	if has {
		return nil
	}
	if p.c.bus != nil { // otherwise unlock says what is missing
		if err := p.Flush(ctx); err != nil {
			return err
		}
	}
	return p.vault.unlock(ctx)
}

// seal is what is recorded of one payload field: root is input, output or before. The
// vault must be unlocked if the contract has sensitive fields.
func (v *vault) seal(t *compile.Compiled, action, root string,
	document json.RawMessage) json.RawMessage {
	if len(t.Sensitive) == 0 || len(document) == 0 {
		return document
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.key == nil {
		panic("coordinator: a sensitive field without the key of its plan")
	}
	return seal.Document(*v.key, seal.Place{Tenant: v.c.tenant, Plan: v.plan, Action: action}, root,
		t.Sensitive, document)
}

// open gives back what seal has sealed, and the single values. What was sealed for
// another plan stays as it is.
func (v *vault) open(document json.RawMessage) (json.RawMessage, []json.RawMessage, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return seal.Open(document, func(value seal.Value) (json.RawMessage, error) {
		if value.Plan != v.plan || v.key == nil { // someone else's, which only looks like one of ours
			return value.Raw, nil
		}
		return value.Open(*v.key, v.c.tenant)
	})
}

// scrubbed is a text in which no sensitive value of an action's input occurs.
func (a *action) scrubbed(text string) string {
	p := a.plan
	if a.contract == nil || len(a.contract.Sensitive) == 0 {
		return text
	}
	for _, field := range []struct {
		root     string
		document json.RawMessage
	}{{"input", a.call.Input}, {"before", a.before}} {
		if _, values, err := p.vault.open(p.vault.seal(a.contract, a.call.Action, field.root,
			field.document)); err == nil {
			text = seal.Scrub(text, values)
		}
	}
	return text
}

// textOf is what an error is recorded as. Of an action of an earlier process it is nothing where
// something is sensitive: what of it must not be told cannot be known, since the input is not here.
func (a *action) textOf(err error) string {
	if a.past != nil && len(a.contract.Sensitive) > 0 {
		return ""
	}
	return ledger.Text(a.scrubbed(err.Error()))
}

// openPast opens what is recorded of a function's calls.
func (v *vault) openPast(ctx context.Context, actions []api.PastAction) error {
	for i := range actions {
		past := &actions[i]
		if !seal.Sealed(past.Output) && !seal.Sealed(past.Before) {
			continue
		}
		if err := v.unlock(ctx); err != nil {
			return fmt.Errorf("cannot read what is recorded of action %q: %w", past.Action, err)
		}
		for _, document := range []*[]byte{&past.Output, &past.Before} {
			opened, _, err := v.open(*document)
			if err != nil {
				return fmt.Errorf("cannot read what is recorded of action %q: %w", past.Action, err)
			}
			*document = opened
		}
	}
	return nil
}

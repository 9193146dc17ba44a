package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// registry finds the contract of a capability: in code, or published by an
// operator. Only its map of published contracts changes.
type registry struct {
	tenant   string
	language *expressions
	code     map[string]*compile.Compiled
	bus      bus           // nil: published contracts are not asked for
	timeout  time.Duration // of one reading
	lasts    time.Duration // that a published contract is used which was read; 0: for good
	logger   *slog.Logger

	mu        sync.Mutex
	published map[string]published
	read      bool // once, to the end
}

// published is the current revision of a published contract, or why it cannot be
// used.
type published struct {
	contract *compile.Compiled
	problem  error
	asked    time.Time // when it was asked for
}

// refreshTime bounds the question for a contract that is known already.
const refreshTime = 2 * time.Second

// add compiles the contracts that are in code.
func (r *registry) add(contracts []contract.Contract) error {
	for _, t := range contracts {
		compiled, err := r.language.contract(t)
		if err != nil {
			return err
		}
		if r.code[t.Capability] != nil {
			return ledger.Refuse("contract["+t.Capability+"]", "declared twice",
				"one contract for each capability")
		}
		r.code[t.Capability] = compiled
	}
	return nil
}

// find returns the contract in force for a capability. For a forward of this
// process that in code wins, for an effect that was made elsewhere the published
// one. Where published contracts are used for a while alone, it is as read at an instant
// or later. Errors: *Refused.
func (r *registry) find(ctx context.Context, capability string, since time.Time,
	elsewhere bool) (*compile.Compiled, error) {
	own := r.code[capability]
	if own != nil && (!elsewhere || r.bus == nil) {
		return own, nil
	}
	undeclared := ledger.Refuse("action.capability", fmt.Sprintf("%q is not declared", capability),
		"a capability with a contract")
	if r.bus == nil || !ledger.ValidCapability(capability) {
		return nil, undeclared
	}
	found, ok, err := r.lookUp(ctx, capability, since, own == nil)
	switch {
	case found.problem != nil:
		return nil, ledger.Refuse("action.capability",
			fmt.Sprintf("the published contract of %q cannot be used: %v", capability,
				found.problem), "a contract that this version reads")
	case ok:
		return found.contract, nil
	case errors.Is(err, ErrConnectionClosed):
		return nil, err
	case own != nil:
		if err != nil { // what has happened must be registered
			r.logger.Warn("published contracts not known: using the one in code", "tenant", r.tenant,
				"capability", capability, "error", err)
		}
		return own, nil
	case err != nil:
		return nil, ledger.Refuse("action.capability",
			fmt.Sprintf("%q is not declared here, and published contracts are not known: %v", capability,
				err), "a capability with a contract, or an executor that answers")
	}
	return nil, undeclared
}

// lookUp returns the published contract of a capability. One that is not known is
// asked for when it must be, or when the registry was never read; one that was read too
// long ago is asked for again, and used as it was where no executor answers.
func (r *registry) lookUp(ctx context.Context, capability string, since time.Time,
	must bool) (found published, ok bool, err error) {
	r.mu.Lock()
	found, ok = r.published[capability]
	read := r.read
	r.mu.Unlock()
	again := ok && r.lasts > 0 &&
		(found.asked.Before(since) || time.Since(found.asked) >= r.lasts)
	if again {
		bounded, cancel := context.WithTimeout(ctx, refreshTime)
		defer cancel()
		ctx = bounded
	}
	if again || !ok && (must || !read) {
		err = r.fetch(ctx, api.ContractQuery{Capability: capability, Limit: 1})
		r.mu.Lock()
		found, ok = r.published[capability]
		r.mu.Unlock()
	}
	if again && err != nil { // the next action does not wait for it
		found.asked = time.Now()
		r.set(capability, found)
	}
	return found, ok, err
}

// readAll reads every published contract.
func (r *registry) readAll(ctx context.Context) error {
	if err := r.fetch(ctx, api.ContractQuery{Limit: contractsPage}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = true
	return nil
}

// fetch asks an executor for contracts, page by page, and keeps them.
func (r *registry) fetch(ctx context.Context, q api.ContractQuery) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for {
		asked := time.Now()
		answer, err := ask(ctx, r.bus, r.tenant, api.ContractLs, q)
		if err != nil {
			return err
		}
		r.keep(answer, asked)
		if answer.Next == "" || answer.Next == q.After {
			return nil
		}
		q.After = answer.Next
	}
}

// keep compiles what was read. A contract that was compiled before is not compiled
// again, and one that cannot be used says so only where it is needed.
func (r *registry) keep(answer api.ContractsAnswer, asked time.Time) {
	for _, view := range answer.Contracts {
		r.mu.Lock()
		known, ok := r.published[view.Capability]
		full := len(r.published) >= ContractsMax
		r.mu.Unlock()
		if !ok && full {
			r.logger.Warn("too many published contracts", "tenant", r.tenant, "capability", view.Capability,
				"max", ContractsMax)
			continue
		}
		if !ok || known.problem != nil || digestOf(known.contract) != view.Digest {
			known.contract, known.problem = r.decode(view.Capability, view.Digest, view.Contract)
		}
		known.asked = asked
		r.set(view.Capability, known)
	}
}

// set keeps a contract, unless one is known that was asked for later.
func (r *registry) set(capability string, entry published) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.published[capability].asked.After(entry.asked) {
		r.published[capability] = entry
	}
}

func (r *registry) decode(capability, digest string, canonical []byte) (*compile.Compiled, error) {
	t, err := contract.Decode(canonical)
	if err != nil {
		return nil, err
	}
	compiled, err := r.language.contract(t)
	if err != nil {
		return nil, err
	}
	if compiled.Capability != capability || digestOf(compiled) != digest {
		return nil, ledger.Refuse("contract["+capability+"]",
			"its digest is "+digestOf(compiled)+", published as "+digest, "the contract that was published")
	}
	return compiled, nil
}

func digestOf(c *compile.Compiled) string { return fmt.Sprintf("%x", c.Digest) }

// ReadContracts reads the published contracts again: actions registered from now on
// freeze the current revisions. It needs Config.Published. New reads them too, and
// a capability that nothing declares is asked for when it comes.
func (c *Coordinator) ReadContracts(ctx context.Context) error {
	if c.registry.bus == nil {
		return fmt.Errorf("cannot read contracts: %w",
			ledger.Refuse("config.published", "not set", "true, and a connection"))
	}
	if err := c.registry.readAll(ctx); err != nil {
		return fmt.Errorf("cannot read contracts: %w", err)
	}
	return nil
}

package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Canonical returns the contract as it is published: JSON with every default
// written out, keys sorted, durations in nanoseconds, expressions without comments
// and spare space. Contracts that mean the same have one text. It does not check
// the contract; its errors are those of argument values that are no JSON, and are
// *ledger.Refused.
func (c Contract) Canonical() ([]byte, error) {
	var refused error
	c = c.Normal(func(field, problem, want string) {
		if refused == nil {
			refused = ledger.Refuse(at(c.Capability)+"."+field, problem, want)
		}
	})
	if refused != nil {
		return nil, refused
	}
	text, err := argument.Encode(c)
	if err != nil {
		return nil, ledger.Refuse(at(c.Capability), err.Error(), "a contract of JSON values")
	}
	var sorted any
	if sorted, err = argument.Decode(text); err == nil {
		text, err = argument.Encode(sorted) // encoding/json sorts the keys of a map
	}
	if err != nil {
		return nil, ledger.Refuse(at(c.Capability), err.Error(), "a contract of JSON values")
	}
	return text, nil
}

func at(capability string) string { return "contract[" + capability + "]" }

// Decode reads what Canonical writes. It is strict; errors are *ledger.Refused.
func Decode(canonical []byte) (Contract, error) {
	decoder := json.NewDecoder(bytes.NewReader(canonical))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	var c Contract
	if err := ledger.CheckShape(canonical, &c, "contract"); err != nil {
		return Contract{}, err
	}
	if err := decoder.Decode(&c); err != nil {
		return Contract{}, ledger.Refuse("contract", err.Error(), "the canonical JSON of a contract")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Contract{}, ledger.Refuse("contract", "more than one value",
			"the canonical JSON of a contract")
	}
	return c, nil
}

// Normal returns the contract as it is meant: every default written out, expressions and
// arguments in their normal form. Nothing in it is shared with c. refuse gets what is wrong with
// an argument: its field below the contract, as in inverse.with.sha, the problem, and what would
// be right.
func (c Contract) Normal(refuse func(field, problem, want string)) Contract {
	c.Lift = slices.Compact(slices.Sorted(slices.Values(c.Lift)))
	c.Sensitive = slices.Compact(slices.Sorted(slices.Values(c.Sensitive)))
	c.ValidUntil = argument.Expression(c.ValidUntil)
	if c.Probe != nil {
		p := *c.Probe
		p.With = argument.Normal("probe.with", p.With, refuse)
		p.Answer, p.ExternalRef = argument.Expression(p.Answer), argument.Expression(p.ExternalRef)
		p.Timeout, p.Attempts, p.Backoff = cmp.Or(p.Timeout, timeoutDefault), cmp.Or(p.Attempts,
			askAttemptsDefault), cmp.Or(p.Backoff, backoffDefault)
		c.Probe = &p
	}
	if c.Before != nil {
		b := *c.Before
		b.With = argument.Normal("before.with", b.With, refuse)
		b.Timeout, b.Attempts, b.Backoff = cmp.Or(b.Timeout, timeoutDefault), cmp.Or(b.Attempts,
			askAttemptsDefault), cmp.Or(b.Backoff, backoffDefault)
		c.Before = &b
	}
	if c.Inverse != nil {
		c.Inverse = c.Inverse.normal(refuse)
	}
	settle := cmp.Or(c.Timeout, ledger.SettleDefault)
	if c.Deliver != nil {
		c.Deliver = c.Deliver.normal(refuse)
		settle = c.Deliver.Timeout // of an attempt: that is what lands
	}
	if c.Class == Compensable {
		standard := InDoubtCompensate
		if c.Probe != nil {
			standard = InDoubtProbe
		}
		c.OnInDoubt, c.OnLate = cmp.Or(c.OnInDoubt, standard), cmp.Or(c.OnLate, LateCompensate)
	}
	c.Page = cmp.Or(c.Page, api.PageDefault)
	// These came to the format later: a default is left out, so that contracts that were
	// published before keep their digests.
	if c.Grace == ledger.GraceDefault {
		c.Grace = 0
	}
	if c.Settle == settle {
		c.Settle = 0
	}
	if c.AskAfter == ledger.AskAfterDefault {
		c.AskAfter = 0
	}
	if c.UnservedAfter == ledger.UnservedDefault {
		c.UnservedAfter = 0
	}
	if c.ValidFor > 0 && c.ValidUntil == "" { // else only the registration knows the window
		c.Warn = cmp.Or(c.Warn, min(c.ValidFor/warnPart, warnMax))
	}
	if c.Review {
		c.ReviewTimeout = cmp.Or(c.ReviewTimeout, reviewTimeoutDefault)
	}
	conditions := map[string]string{}
	for name, condition := range c.Triggers {
		conditions[name] = argument.Expression(condition)
	}
	c.Triggers = conditions
	c.Scopes = maps.Clone(c.Scopes)
	c.AfterCommit = slices.Compact(slices.Sorted(slices.Values(c.AfterCommit)))
	maps.DeleteFunc(c.Scopes, func(_ string, s Scope) bool { return s == ScopeAction })
	return c
}

// tries are the fields that an inverse and a delivery have in common: how often and when they are
// tried. Each has them as its own, so that they are given in one literal.
type tries struct {
	attempts                     *int
	backoff, backoffMax, timeout *time.Duration
	jitter                       **int
}

// normal writes out their defaults. The jitter is no longer shared: 0 is not its default.
func (t tries) normal() {
	*t.attempts, *t.timeout = cmp.Or(*t.attempts, attemptsDefault), cmp.Or(*t.timeout, timeoutDefault)
	*t.backoff = cmp.Or(*t.backoff, backoffDefault)
	*t.backoffMax = cmp.Or(*t.backoffMax, max(backoffMaxDefault, *t.backoff))
	jitter := jitterDefault
	if *t.jitter != nil {
		jitter = **t.jitter
	}
	*t.jitter = &jitter
}

func (i Inverse) normal(refuse func(field, problem, want string)) *Inverse {
	i.With = argument.Normal("inverse.with", i.With, refuse)
	if i.Agent != nil {
		a := *i.Agent
		a.Tools = slices.Compact(slices.Sorted(slices.Values(a.Tools)))
		i.Agent, i.Actuator = &a, cmp.Or(i.Actuator, ActuatorAgent)
	}
	i.Actuator = cmp.Or(i.Actuator, ActuatorNATS)
	tries{&i.Attempts, &i.Backoff, &i.BackoffMax, &i.Timeout, &i.Jitter}.normal()
	i.Done, i.Stop = argument.Expression(i.Done), argument.Expression(i.Stop)
	i.Unchanged = argument.Expression(i.Unchanged)
	if i.Verify != nil {
		v := *i.Verify
		v.With = argument.Normal("inverse.verify.with", v.With, refuse)
		v.Ok = argument.Expression(v.Ok)
		v.Timeout, v.Attempts, v.Backoff = cmp.Or(v.Timeout, timeoutDefault), cmp.Or(v.Attempts,
			askAttemptsDefault), cmp.Or(v.Backoff, backoffDefault)
		i.Verify = &v
	}
	return &i
}

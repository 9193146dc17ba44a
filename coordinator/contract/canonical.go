package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Canonical returns the contract as it is published: JSON with every default
// written out, keys sorted, durations in nanoseconds, expressions without comments
// and spare space. Contracts that mean the same have one text. It does not check
// the contract; its errors are those of argument values that are no JSON, and are
// *ledger.Refused.
func (c Contract) Canonical() ([]byte, error) {
	x := &compiler{at: at(c.Capability)}
	c = x.normalise(c)
	if err := x.first(); err != nil {
		return nil, err
	}
	return c.canonical()
}

// canonical encodes a contract that is normalised.
func (c Contract) canonical() ([]byte, error) {
	text, err := encode(c)
	if err != nil {
		return nil, ledger.Refuse(at(c.Capability), err.Error(), "a contract of JSON values")
	}
	var sorted any
	if sorted, err = decode(text); err == nil {
		text, err = encode(sorted) // encoding/json sorts the keys of a map
	}
	if err != nil {
		return nil, ledger.Refuse(at(c.Capability), err.Error(), "a contract of JSON values")
	}
	return text, nil
}

// Decode reads what Canonical writes. It is strict; errors are *ledger.Refused.
func Decode(canonical []byte) (Contract, error) {
	decoder := json.NewDecoder(bytes.NewReader(canonical))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	var c Contract
	if err := decoder.Decode(&c); err != nil {
		return Contract{}, ledger.Refuse("contract", err.Error(), "the canonical JSON of a contract")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Contract{}, ledger.Refuse("contract", "more than one value",
			"the canonical JSON of a contract")
	}
	return c, nil
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// decode reads a JSON value and keeps numbers as they are written.
func decode(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	err := decoder.Decode(&v)
	return v, err
}

// normalise returns the contract as it is meant. Nothing in it is shared with c.
func (x *compiler) normalise(c Contract) Contract {
	c.Lift = slices.Compact(slices.Sorted(slices.Values(c.Lift)))
	c.Sensitive = slices.Compact(slices.Sorted(slices.Values(c.Sensitive)))
	c.ValidUntil = expression(c.ValidUntil)
	if c.Probe != nil {
		p := *c.Probe
		p.With = x.arguments("probe.with", p.With)
		p.Answer, p.ExternalRef = expression(p.Answer), expression(p.ExternalRef)
		p.Timeout, p.Attempts, p.Backoff = cmp.Or(p.Timeout, timeoutDefault), cmp.Or(p.Attempts,
			askAttemptsDefault), cmp.Or(p.Backoff, backoffDefault)
		c.Probe = &p
	}
	if c.Before != nil {
		b := *c.Before
		b.With = x.arguments("before.with", b.With)
		b.Timeout, b.Attempts, b.Backoff = cmp.Or(b.Timeout, timeoutDefault), cmp.Or(b.Attempts,
			askAttemptsDefault), cmp.Or(b.Backoff, backoffDefault)
		c.Before = &b
	}
	if c.Inverse != nil {
		c.Inverse = x.normaliseInverse(*c.Inverse)
	}
	if c.Class == Compensable {
		standard := InDoubtCompensate
		if c.Probe != nil && c.Late != LateRefused {
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
	if c.Settle == cmp.Or(c.Timeout, ledger.SettleDefault) {
		c.Settle = 0
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
		conditions[name] = expression(condition)
	}
	c.Triggers = conditions
	return c
}

func (x *compiler) normaliseInverse(i Inverse) *Inverse {
	i.With = x.arguments("inverse.with", i.With)
	if i.Agent != nil {
		a := *i.Agent
		a.Tools = slices.Compact(slices.Sorted(slices.Values(a.Tools)))
		i.Agent, i.Actuator = &a, cmp.Or(i.Actuator, ActuatorAgent)
	}
	i.Actuator = cmp.Or(i.Actuator, ActuatorNATS)
	i.Attempts, i.Timeout = cmp.Or(i.Attempts, attemptsDefault), cmp.Or(i.Timeout, timeoutDefault)
	i.Backoff = cmp.Or(i.Backoff, backoffDefault)
	i.BackoffMax = cmp.Or(i.BackoffMax, max(backoffMaxDefault, i.Backoff))
	jitter := jitterDefault
	if i.Jitter != nil {
		jitter = *i.Jitter
	}
	i.Jitter = &jitter
	i.Done, i.Stop = expression(i.Done), expression(i.Stop)
	if i.Verify != nil {
		v := *i.Verify
		v.With = x.arguments("inverse.verify.with", v.With)
		v.Ok = expression(v.Ok)
		v.Timeout, v.Attempts, v.Backoff = cmp.Or(v.Timeout, timeoutDefault), cmp.Or(v.Attempts,
			askAttemptsDefault), cmp.Or(v.Backoff, backoffDefault)
		i.Verify = &v
	}
	return &i
}

// expression returns the normal form of a field that is always CEL.
func expression(text string) string { return triggers.Normalise(celOf(text)) }

// celOf takes the '=' from an expression that has one. No CEL begins with it.
func celOf(text string) string {
	return strings.TrimPrefix(strings.TrimLeft(text, " \t\r\n"), "=")
}

// arguments normalises argument values: JSON, numbers as they are written, paths
// translated, expressions in their normal form.
func (x *compiler) arguments(field string, with map[string]any) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(with)) {
		place := field + "." + name
		text, err := encode(with[name])
		if err != nil {
			x.refuse(place, err.Error(), "a JSON value, or CEL after '='")
			continue
		}
		value, err := decode(text)
		if err != nil {
			x.refuse(place, err.Error(), "a JSON value, or CEL after '='")
			continue
		}
		out[name] = x.value(place, value, 0)
	}
	return out
}

func (x *compiler) value(field string, value any, depth int) any {
	if depth > literalDepthMax {
		x.refuse(field, fmt.Sprintf("nested deeper than %d", literalDepthMax), "a flatter value")
		return nil
	}
	switch v := value.(type) {
	case string:
		if text, ok := strings.CutPrefix(v, "="); ok {
			return "=" + triggers.Normalise(text)
		}
	case []any:
		for i := range v {
			v[i] = x.value(fmt.Sprintf("%s[%d]", field, i), v[i], depth+1)
		}
	case map[string]any:
		if path, ok := pathIn(v); ok {
			text, err := translate(path)
			if err != nil {
				x.refuse(field+".from", err.Error(), "a path as in $.output.id or $.input.items[0].sku")
				return nil
			}
			return "=" + text
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = x.value(field+"."+name, v[name], depth+1)
		}
	}
	return value
}

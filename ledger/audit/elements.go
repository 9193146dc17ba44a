package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// What expressions read that is not of their action: other actions of its plan that were registered
// before it, facts as they were at its registration, and what its plan was opened with.

// readable is what bindings read of what is recorded of an action, and of what is beside it.
func readable(b *book, p *plan, a *action, bindings ...*triggers.Binding) triggers.BindingVars {
	vars := triggers.BindingVars{
		Input: a.input, Output: a.output, Before: a.image, Incomplete: a.incomplete,
		Unnamed: a.unnamed && a.nameOf() == "", Inexact: !readsExactly(b.rules),
		Plan: planOf(p), Meta: b.metaOf(p, a), Probe: a.found, Facts: a.facts,
	}
	for _, key := range a.factsLost {
		vars.Partial = append(vars.Partial, []string{"facts", key})
	}
	of := p
	if p.delivers {
		of = b.plan(p.origin)
	}
	others := map[string]any{}
	for _, id := range elementsOf("actions", bindings) {
		x := of.named(id)
		if x == nil || x.child != nil || x.dutyOf != 0 ||
			!isEarlier(x.registered, p.originOf(a).registered) {
			continue
		}
		if made := p.named(id); x.isStaged() && made != nil {
			x = made
		}
		other := map[string]any{}
		for _, f := range []struct {
			name  string
			value []byte
		}{{"input", x.input}, {"output", x.output}, {"before", x.image}} {
			if len(f.value) > 0 {
				other[f.name] = json.RawMessage(f.value)
			}
		}
		if x.externalRef != "" {
			other["external_ref"] = x.externalRef
		}
		others[id] = other
		if x.incomplete {
			vars.Partial = append(vars.Partial, []string{"actions", id, "output"})
		}
		if x.unnamed && x.externalRef == "" {
			vars.Partial = append(vars.Partial, []string{"actions", id, "external_ref"})
		}
	}
	if len(others) > 0 {
		vars.Actions = marshalled(others)
	}
	return vars
}

// elementsOf are the other actions, or the facts, that expressions name.
func elementsOf(variable string, bindings []*triggers.Binding) (keys []string) {
	for _, x := range bindings {
		keys = append(keys, x.Keys(variable)...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// keptFactMax is how large, in bytes, a fact may be that is kept with a registration.
const keptFactMax = 4 << 10

// keepFacts keeps the facts that a registration reads as they are here.
func keepFacts(b *book, p *plan, a *action) {
	if !ledger.Knows(b.rules, ledger.OthersSince) {
		return
	}
	var reads []*triggers.Binding
	for _, call := range []*pb.CompensationRegistered{a.compensation, a.forward.GetDeliver()} {
		if call == nil {
			continue
		}
		for _, e := range expressionsOf(call) {
			if e.as == condition || !strings.Contains(e.text, "facts") {
				continue
			}
			if x, err := b.programs.Reader(e.text); err == nil && x.Reads("facts") {
				reads = append(reads, x)
			}
		}
	}
	if len(reads) == 0 {
		return
	}
	kept, keys := map[string]any{}, elementsOf("facts", reads)
	haveRead(b, p, keys, nil)
	for _, key := range keys {
		switch f := b.fact(key); {
		case f == nil || f.retracted:
		case len(f.value) > keptFactMax:
			a.factsLost = append(a.factsLost, key)
		default:
			kept[key] = json.RawMessage(f.value)
		}
	}
	if len(kept) > 0 {
		a.facts = marshalled(kept)
	}
}

// opensSealed: an expression takes a part of a value that another action has sealed, or computes
// from one; only a worker is given what it says.
func opensSealed(x *triggers.Binding, vars triggers.BindingVars) bool {
	return slices.ContainsFunc(x.Paths(), func(read triggers.Read) bool {
		return read.Path[0] == "actions" && seal.Closed(vars.Actions, read.Path[1:], read.Copied) != ""
	})
}

// elementsMax is how many other actions, and how many facts, a registration may read.
const elementsMax = 16

func (c *claim) readsTooMany(list []expression) string {
	for _, variable := range []string{"actions", "facts"} {
		count := 0
		for _, e := range list {
			if e.as == condition || !strings.Contains(e.text, variable) {
				continue
			}
			if x, err := c.b.programs.Reader(e.text); err == nil {
				count += len(x.Keys(variable))
			}
		}
		if count > elementsMax && ledger.Knows(c.b.rules, ledger.OthersSince) {
			return fmt.Sprintf("its expressions read %d %s", count, variable)
		}
	}
	return ""
}

// openingInput bounds what a plan is opened with.
var openingInput = clause{"I4.input",
	"What a plan is opened with has at most 16 KiB, and is exact.",
	func(c *claim) judgement {
		input := c.Record.Payload.GetInput()
		return unless(c.p != nil || len(input) <= 16<<10 && ledger.ExactJSON(input) ||
			!ledger.Knows(c.b.rules, ledger.OthersSince), "payload.input: %d bytes", len(input))
	}}

// opensSame: a plan is opened as it was before.
func opensSame(c *claim) bool {
	return same(c.p.declared, c.Record.GetPlanOpened()) &&
		bytes.Equal(c.p.input, inputOf(c.b, c.Entry))
}

// inputOf is what the plan that a record opens is opened with.
func inputOf(b *book, e ledger.Entry) []byte {
	if e.Record.GetPlanOpened() == nil || !ledger.Knows(b.rules, ledger.OthersSince) {
		return nil
	}
	return e.Record.Payload.GetInput()
}

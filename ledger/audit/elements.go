package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/RaduBerinde/btreemap"

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

// Which plans a change of a fact concerns: those with conditions that may read it.

// listing lists a plan with declared conditions in force by what could turn one of them: a fact,
// a prefix of facts, or anyFact.
type listing struct{ key, plan string }

// anyFact lists the plans with a condition that no answer has told yet what it depends on, or that
// is true already: any fact may have them asked. It is the key of no fact.
const anyFact = ""

func newListings() *btreemap.BTreeMap[listing, struct{}] {
	return btreemap.New[listing, struct{}](32, func(a, b listing) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.plan, b.plan))
	})
}

// noteAsking keeps the lists of the plans that have declared conditions in force: a fact is of no
// interest to any other, and to these only where they wait for it. Of committed plans there may be
// many more.
func (b *book) noteAsking(p *plan) {
	asks := len(byName(p.leases)) > 0 || slices.ContainsFunc(p.actions,
		func(a *action) bool { return len(byName(a.leases)) > 0 })
	if p.holdsLeases() && asks {
		listPlan(b, p)
	} else {
		listAs(b, p, nil)
		delete(b.asking, p.id)
	}
	noteReads(b, p)
}

// listPlan lists a plan by what its conditions wait for, and by nothing else.
func listPlan(b *book, p *plan) {
	keys := []string{}
	add := func(l *lease) { keys = append(keys, l.turnedBy(b.programs)...) }
	for _, l := range p.leases {
		add(l)
	}
	for _, a := range p.actions {
		for _, l := range a.leases {
			add(l)
		}
	}
	slices.Sort(keys)
	listAs(b, p, slices.Compact(keys))
}

// listMore lists a plan that asks also by what one of its leases waits for now.
func listMore(b *book, p *plan, l *lease) {
	if !b.asks(p) {
		return
	}
	keys := b.asking[p.id]
	for _, key := range l.turnedBy(b.programs) {
		if at, known := slices.BinarySearch(keys, key); !known {
			keys = slices.Insert(slices.Clone(keys), at, key)
		}
	}
	listAs(b, p, keys)
}

func listAs(b *book, p *plan, keys []string) {
	had := b.asking[p.id]
	b.asking[p.id] = keys
	if slices.Equal(had, keys) {
		return
	}
	for _, key := range had {
		if _, still := slices.BinarySearch(keys, key); !still {
			b.listings.Delete(listing{key, p.id})
		}
	}
	for _, key := range keys {
		if _, known := slices.BinarySearch(had, key); !known {
			b.listings.ReplaceOrInsert(listing{key, p.id}, struct{}{})
		}
	}
}

// turnedBy are the facts, and prefixes of others, of which a change has a lease asked: see look.
func (l *lease) turnedBy(programs *triggers.Cache) []string {
	if l.text == "" {
		return nil
	}
	switch condition, err := programs.Condition(l.text); {
	case err != nil: // it waits for ever
		return nil
	case l.joined || condition.ReadsClock():
		return l.watched
	}
	return []string{anyFact}
}

// askers are the plans with conditions in force that a fact may turn.
func (s *store) askers(fact string) (plans []string) {
	of := func(key string) {
		for l := range s.listings.Ascend(btreemap.GE(listing{key: key}), btreemap.Max[listing]()) {
			if l.key != key {
				return
			}
			plans = append(plans, l.plan)
		}
	}
	of(anyFact)
	of(fact)
	prefixes := btreemap.GE(listing{key: triggers.PrefixKey("")})
	for l := range s.listings.Ascend(prefixes, btreemap.Max[listing]()) {
		if _, any := triggers.PrefixOf(l.key); any {
			for n := range len(fact) + 1 {
				of(triggers.PrefixKey(fact[:n]))
			}
		}
		break
	}
	return plans
}

// lookFact looks at every lease that may read a fact that has changed.
func (b *book) lookFact(key string) {
	ids := append(b.askers(key), b.watchers(key)...)
	slices.Sort(ids)
	had := answers{}
	for _, id := range slices.Compact(ids) {
		p, listed := b.plan(id), b.asking[id]
		for _, l := range byName(p.leases) {
			lookWith(b, p, nil, l, key, had)
		}
		for _, a := range p.actions {
			for _, l := range byName(a.leases) {
				lookWith(b, p, a, l, key, had)
			}
		}
		if now := b.asking[id]; len(now) > 0 && (now[0] == anyFact || !slices.Equal(now, listed)) {
			listPlan(b, p)
		}
		noteReads(b, p)
	}
}

// answers are those of conditions that read facts alone, at one change of a fact: many plans have
// the same condition, and it is asked once.
type answers map[question]answer

type question struct {
	text  string
	exact bool
	ns    int64
}

// answer is a result with what the next one depends on.
type answer struct {
	triggers.Result
	watched []string
}

func (had answers) of(b *book, p *plan, a *action, l *lease, c *triggers.Condition) answer {
	q := question{l.text, l.exact, l.asOf(b.now)}
	if known, ok := had[q]; ok {
		return known
	}
	h := c.Hold(p.scope(a, l))
	result := h.Evaluate(q.ns, factView{b})
	new := answer{result, h.Watched(result, b.now, factView{b})}
	if had != nil && c.ReadsFactsAlone() {
		had[q] = new
	}
	return new
}

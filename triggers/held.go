package triggers

import (
	"crypto/sha256"
	"math"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// Held is a condition together with what it reads of its scope: all that an
// evaluation needs beside the facts and the instant. It is as small as what the
// condition reads, and does not change.
type Held struct {
	shape     *shape
	params    []any      // ref.Val
	condition *Condition // nil: it comes from a Kept
	values    []any      // of the slots: ref.Val or *absent
	armedNs   int64
	scope     *Scope // of a condition that asks for more than names; else nil
	inexact   bool   // see Scope.Inexact
}

// absent is the value of a name that the scope does not have, and what it waits for.
type absent struct{ wait wait }

var (
	noAction = &absent{wait{kind: waitForever,
		name: "an action, which a trigger of a plan does not have"}}
	noOutput   = &absent{wait{kind: waitText, name: "output of the forward"}}
	noOutcome  = &absent{wait{kind: waitText, name: "outcome of the forward"}}
	noPresence = &absent{wait{kind: waitText, name: "the answer of a probe"}}
	noVerdict  = &absent{wait{kind: waitText, name: "a verdict on the action"}}
	noDue      = &absent{wait{kind: waitForever, name: "plan.deadline, which is not set"}}
)

// Hold reads what the condition needs of a scope.
func (c *Condition) Hold(s Scope) *Held {
	h := &Held{shape: c.shape, params: c.params, condition: c, armedNs: s.ArmedNs,
		inexact: s.Inexact}
	if n := len(c.shape.slots); n > 0 {
		h.values = make([]any, n)
		r := scopeReader{s: &s}
		for i, slot := range c.shape.slots {
			h.values[i] = r.value(slot.root, slot.field)
		}
	}
	if c.shape.whole {
		whole := s
		h.scope = &whole
	}
	return h
}

// ReadsClock is as of the condition that is held.
func (h *Held) ReadsClock() bool { return h.shape.roots[clockRoot] }

// Costly reports whether an evaluation may take many more steps than the condition has
// nodes: it loops, or scans texts.
func (h *Held) Costly() bool { return h.shape.extent.costly }

// Computes reports whether the condition reads facts whose keys only an evaluation
// knows, so that what it watches may change with each answer.
func (h *Held) Computes() bool { return h.shape.computed }

// keys are the fact keys that are in the expression, sorted.
func (h *Held) keys() []string {
	if h.condition != nil {
		return h.condition.keys
	}
	return h.shape.keysWith(h.params)
}

// flipsMax bounds the flips that Watched looks ahead.
const flipsMax = 1024

// Watched returns the facts that this answer, given at nowNs, and those after it
// depend on until one of them changes, sorted. A computed key may be read only once
// time has flipped what is before it, as in after(t) ? facts[k] : false, so the
// flips to come are asked too.
func (h *Held) Watched(r Result, nowNs int64, v View) []string {
	keys := h.shape.watched(h.keys(), r)
	if !h.shape.computed || !h.ReadsClock() || r.WakeNs <= nowNs {
		return keys
	}
	room := new(Scratch)
	for range flipsMax {
		if r.WakeNs <= nowNs {
			break
		}
		nowNs = r.WakeNs
		r = h.Ask(room, nowNs, v)
		keys = slices.Concat(keys, r.watched)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Shared returns a digest that is the same for every held condition that always
// has the same answer, and false where hardly any other has: the condition reads
// what belongs to one action, or what occurred since arming. It is not to be asked of
// one that comes from a Kept.
func (h *Held) Shared() (digest [16]byte, ok bool) {
	s := h.shape
	if s.whole || s.arming || slices.ContainsFunc(s.slots, func(s slot) bool { return !s.common }) {
		return digest, false
	}
	var text strings.Builder
	text.WriteString(Normalise(h.condition.text))
	if !h.inexact {
		text.WriteString("\nexact")
	}
	for i, slot := range s.slots {
		text.WriteString("\n" + slot.path)
		if value, known := h.values[i].(types.String); known {
			text.WriteString("=" + quote(string(value)))
		}
	}
	sum := sha256.Sum256([]byte(text.String()))
	return [16]byte(sum[:16]), true
}

// scopeReader reads names of a scope.
type scopeReader struct {
	s             *Scope
	input, output ref.Val // decoded when first read
}

// value returns a ref.Val or an *absent.
func (r *scopeReader) value(root, field string) any {
	switch root {
	case "plan.labels":
		return label(r.s.Plan.Labels, root, field)
	case "plan.id", "plan.status", "plan.label", "plan.owner", "plan.agent", "plan.opened_at",
		"plan.active_at", "plan.deadline", "plan.actions", "plan.step":
		return r.plan(root)
	case "verdict.outcome", "verdict.reason", "verdict.by", "verdict.at":
		return r.verdict(root)
	}
	a := r.s.Action
	if a == nil {
		return noAction
	}
	switch root {
	case "action":
		if known := r.action("action." + field); known != nil {
			return known
		}
		return r.lifted(&r.input, a.Input, root, field, "input")
	case "action.input":
		return r.lifted(&r.input, a.Input, root, field, "input")
	case "action.output":
		if !a.answered() {
			return noOutput
		}
		return r.lifted(&r.output, a.Output, root, field, "output")
	case "action.labels":
		return label(a.Labels, root, field)
	}
	if known := r.action(root); known != nil {
		return known
	}
	panic("triggers: no such name: " + root)
}

func (r *scopeReader) plan(name string) any {
	p := &r.s.Plan
	switch name {
	case "plan.id":
		return types.String(p.ID)
	case "plan.status":
		return types.String(p.Status)
	case "plan.label":
		return types.String(p.Label)
	case "plan.owner":
		return types.String(p.Owner)
	case "plan.agent":
		return types.String(p.Agent)
	case "plan.opened_at":
		return timestamp(p.OpenedNs)
	case "plan.active_at":
		return timestamp(p.ActiveNs)
	case "plan.deadline":
		if p.DeadlineNs == 0 {
			return noDue
		}
		return timestamp(p.DeadlineNs)
	default: // actions, also step
		return types.Int(p.Actions)
	}
}

// action reads a variable of the action; nil: it is no variable, but a lifted field.
func (r *scopeReader) action(name string) any {
	a := r.s.Action
	switch name {
	case "action.id":
		return types.String(a.ID)
	case "action.capability":
		return types.String(a.Capability)
	case "action.at":
		return timestamp(a.AtNs)
	case "action.presence":
		if a.Presence == "" {
			return noPresence
		}
		return types.String(a.Presence)
	case "action.outcome":
		if a.Outcome == "" {
			return noOutcome
		}
		return types.String(a.Outcome)
	}
	return nil
}

func (r *scopeReader) verdict(name string) any {
	v := r.s.Verdict
	if v == nil {
		return noVerdict
	}
	switch name {
	case "verdict.outcome":
		return types.String(v.Outcome)
	case "verdict.reason":
		return types.String(v.Reason)
	case "verdict.by":
		return types.String(v.By)
	default: // at
		return timestamp(v.AtNs)
	}
}

// unlifted is what the text of a wait says between a name and the payload that was to have it.
const unlifted = ", which was not lifted from the "

// Unlifted says of one of the Waits, or of the MootWhy, of a Result what was not lifted, as
// action.order, from the input or the output; ok is false where it is another one.
func Unlifted(wait string) (name, from string, ok bool) { return strings.Cut(wait, unlifted) }

// lifted reads a field of a lifted JSON object.
func (r *scopeReader) lifted(decoded *ref.Val, raw []byte, root, field, from string) any {
	if *decoded == nil {
		if len(raw) == 0 {
			raw = []byte("{}")
		}
		if *decoded = decode(raw); r.s.Inexact {
			*decoded = decodeInexact(raw)
		}
	}
	if types.IsError(*decoded) {
		return *decoded
	}
	if fields, ok := (*decoded).(*object); ok {
		if value, found := fields.Find(types.String(field)); found {
			return value
		}
	}
	return &absent{wait{kind: waitForever, name: root + "." + field + unlifted + from}}
}

func label(labels map[string]string, root, field string) any {
	if value, found := labels[field]; found {
		return types.String(value)
	}
	return &absent{wait{kind: waitForever, name: root + "." + field + ", which is not set"}}
}

// Kept is a held condition as it is kept for long: what it reads of its scope and the
// literals of its text, without its program. That is the cache's, which may let it go.
// It belongs to the goroutine of the cache.
type Kept struct {
	home    *home
	params  []any // of the condition, which do not keep its text
	values  []any
	armedNs int64
	inexact bool
}

// Keep returns what to keep of a held condition, or nil where that takes more than
// max bytes: then it is to be held again when it is asked again.
func (h *Held) Keep(max int) *Kept {
	if h.scope != nil || h.Size() > max {
		return nil
	}
	return &Kept{home: h.shape.home, params: h.params, values: h.values, armedNs: h.armedNs,
		inexact: h.inexact}
}

// Recall makes into the condition that is kept, and reports false where the cache has
// let its program go: then it is to be held again.
func (k *Kept) Recall(into *Held) bool {
	s := k.home.shape
	if s == nil {
		return false
	}
	s.used = true
	*into = Held{shape: s, params: k.params, values: k.values, armedNs: k.armedNs,
		inexact: k.inexact}
	return true
}

// Size is about how many bytes a Kept of the condition takes.
func (h *Held) Size() int {
	n := keptBytes
	for _, p := range h.params {
		n += 16 + valueBytes(p)
	}
	for _, v := range h.values {
		n += 16 + valueBytes(v)
	}
	return n
}

// keptBytes is what a Kept takes beside its parameters and values.
const keptBytes = 64

// absentBytes is what an absent value takes: most of them are shared.
func absentBytes(a *absent) int {
	switch a {
	case noAction, noOutput, noOutcome, noPresence, noVerdict, noDue:
		return 0
	}
	return 48 + len(a.wait.name)
}

// valueBytes is about how many bytes a ref.Val or an *absent takes beside what points
// to it.
func valueBytes(v any) int {
	switch v := v.(type) {
	case *absent:
		return absentBytes(v)
	case types.String:
		return 24 + len(v)
	case types.Bytes:
		return 32 + len(v)
	case number:
		return 96 + 2*len(v.text)
	case *object:
		n := 64
		for i, key := range v.keys {
			n += 32 + valueBytes(key) + valueBytes(v.values[i])
		}
		return n
	case traits.Lister:
		n := 64
		for it := v.Iterator(); it.HasNext() == types.True; {
			n += 16 + valueBytes(it.Next())
		}
		return n
	}
	return 24
}

type waitKind uint8

const (
	waitFact waitKind = iota
	waitTime
	waitWindow  // a fact, or the instant at which its window closes
	waitText    // name says it
	waitForever // name says what never comes
)

// wait is what an unknown waits for.
type wait struct {
	kind waitKind
	name string
	ns   int64
}

// waitsOf writes out what an unknown waits for.
func (e *evaluation) waitsOf(u *types.Unknown) []string {
	var waits []string
	for _, id := range u.IDs() {
		if id < 0 || id >= int64(len(e.waits)) {
			continue
		}
		switch w := e.waits[id]; w.kind {
		case waitFact:
			waits = append(waits, "fact "+w.name)
		case waitTime:
			waits = append(waits, timeText(w.ns))
		case waitWindow:
			waits = append(waits, "fact "+w.name, timeText(w.ns))
		case waitText, waitForever:
			waits = append(waits, w.name)
		}
	}
	slices.Sort(waits)
	return slices.Compact(waits)
}

// forever reports whether u waits for something that never comes.
func (e *evaluation) forever(u *types.Unknown) bool {
	for _, id := range u.IDs() {
		if id >= 0 && id < int64(len(e.waits)) && e.waits[id].kind == waitForever {
			return true
		}
	}
	return false
}

// timeText is an instant that something waits for; all that are too late for a ledger are one.
func timeText(ns int64) string {
	if ns == math.MaxInt64 {
		return "a time after the year 2261, which never comes"
	}
	return "time " + formatTime(ns)
}

func formatTime(ns int64) string {
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}

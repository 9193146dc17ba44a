package triggers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// evaluation is one run of a condition: what it may read, and what it did read.
// It is the activation that cel-go resolves names in.
type evaluation struct {
	language *language
	scope    *Scope
	view     View
	wakeNs   int64
	facts    []readFact
	keys     []string // touched by functions of time, without reading the fact
	readings []reading
	waits    []wait
	leaves   []leafValue
	input    ref.Val // decoded when first read
	output   ref.Val
}

// readFact is a fact as this evaluation saw it.
type readFact struct {
	Fact
	key     string
	found   bool
	decoded ref.Val
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

type readKind uint8

const (
	readName readKind = iota // a variable of the scope
	readCall                 // a function of time
)

// reading is a Reading before it is written out.
type reading struct {
	kind  readKind
	name  string
	key   string
	value ref.Val // nil: unknown
}

// Evaluate answers the condition for a scope. It never fails: an error is a
// truth that is Unknown, with Result.Err.
func (c *Condition) Evaluate(s Scope, v View) Result {
	e := &evaluation{language: c.language, scope: &s, view: v}
	if c.leafCount > 0 {
		e.leaves = make([]leafValue, c.leafCount)
	}
	value, _, err := c.program.Eval(e)
	result := Result{WakeNs: e.wakeNs}
	switch answer := value.(type) {
	case types.Bool:
		result.Truth = False
		if answer {
			result.Truth = True
		}
	case *types.Unknown:
		result.Waits = e.waitsOf(answer)
	default:
		result.Err = evaluationError(value, err)
	}
	if result.Truth != True && c.skeleton != nil && c.skeleton.never(true, e.leaves) {
		result.Moot, result.WakeNs = true, 0
	}
	result.Keys = e.keysRead()
	result.Readings = e.written()
	return result
}

var errNotTruth = errors.New("the result is not a truth")

func evaluationError(value ref.Val, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("cannot evaluate condition: %s", firstLine(err.Error()))
	case value == nil:
		return fmt.Errorf("cannot evaluate condition: %w", errNotTruth)
	default:
		return fmt.Errorf("cannot evaluate condition: %w but %s", errNotTruth, value.Type().TypeName())
	}
}

// Parent ends the chain of activations.
func (e *evaluation) Parent() interpreter.Activation { return nil }

// ResolveName answers for a variable of the language.
func (e *evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case "facts":
		return &world{e, worldFacts}, true
	case "action":
		return &world{e, worldAction}, true
	}
	root, field, _ := strings.Cut(name, ".")
	var value ref.Val
	switch root {
	case "plan":
		value = e.planField(field)
	case "action":
		value = e.actionField(field)
	case "verdict":
		value = e.verdictField(field)
	}
	if value == nil {
		return nil, false
	}
	if _, whole := value.(*world); !whole {
		e.note(reading{kind: readName, name: name, value: value})
	}
	return value, true
}

func (e *evaluation) planField(field string) ref.Val {
	p := &e.scope.Plan
	switch field {
	case "id":
		return types.String(p.ID)
	case "status":
		return types.String(p.Status)
	case "label":
		return types.String(p.Label)
	case "owner":
		return types.String(p.Owner)
	case "agent":
		return types.String(p.Agent)
	case "opened_at":
		return timestamp(p.OpenedNs)
	case "deadline":
		if p.DeadlineNs == 0 {
			return e.unknown(wait{kind: waitForever, name: "plan.deadline, which is not set"})
		}
		return timestamp(p.DeadlineNs)
	case "labels":
		return &world{e, worldPlanLabels}
	case "actions", "step":
		return types.Int(p.Actions)
	}
	return nil
}

func (e *evaluation) actionField(field string) ref.Val {
	a := e.scope.Action
	if a == nil {
		return e.unknown(wait{kind: waitForever, name: "an action, which a trigger of a plan does not have"})
	}
	switch field {
	case "id":
		return types.String(a.ID)
	case "capability":
		return types.String(a.Capability)
	case "at":
		return timestamp(a.AtNs)
	case "outcome":
		if a.Outcome == "" {
			return e.unknown(wait{kind: waitText, name: "outcome of the forward"})
		}
		return types.String(a.Outcome)
	case "input":
		return &world{e, worldInput}
	case "output":
		if a.Output == nil {
			return e.unknown(wait{kind: waitText, name: "output of the forward"})
		}
		return &world{e, worldOutput}
	case "labels":
		return &world{e, worldActionLabels}
	}
	return nil
}

func (e *evaluation) verdictField(field string) ref.Val {
	v := e.scope.Verdict
	if v == nil {
		return e.unknown(wait{kind: waitText, name: "a verdict on the action"})
	}
	switch field {
	case "outcome":
		return types.String(v.Outcome)
	case "reason":
		return types.String(v.Reason)
	case "by":
		return types.String(v.By)
	case "at":
		return timestamp(v.AtNs)
	}
	return nil
}

// read returns the fact under key, the same at every call of one evaluation.
func (e *evaluation) read(key string) *readFact {
	for i := range e.facts {
		if e.facts[i].key == key {
			return &e.facts[i]
		}
	}
	fact, found := e.view.Fact(key)
	e.facts = append(e.facts, readFact{Fact: fact, key: key, found: found})
	return &e.facts[len(e.facts)-1]
}

func (e *evaluation) value(fact *readFact) ref.Val {
	if fact.decoded == nil {
		fact.decoded = decode(fact.Value)
	}
	return fact.decoded
}

func (e *evaluation) touch(key string) {
	if !slices.Contains(e.keys, key) {
		e.keys = append(e.keys, key)
	}
}

func (e *evaluation) note(r reading) {
	for i := range e.readings {
		if had := &e.readings[i]; had.name == r.name && had.key == r.key && had.kind == r.kind {
			if had.value == nil {
				*had = r
			}
			return
		}
	}
	e.readings = append(e.readings, r)
}

// unknown returns the unknown that waits for w.
func (e *evaluation) unknown(w wait) ref.Val {
	i := slices.Index(e.waits, w)
	if i < 0 {
		i = len(e.waits)
		e.waits = append(e.waits, w)
	}
	if i < len(e.language.unknowns) {
		return e.language.unknowns[i]
	}
	return types.NewUnknown(int64(i), nil)
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
			waits = append(waits, "time "+formatTime(w.ns))
		case waitWindow:
			waits = append(waits, "fact "+w.name, "time "+formatTime(w.ns))
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

func formatTime(ns int64) string {
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}

func (e *evaluation) keysRead() []string {
	if len(e.facts)+len(e.keys) == 0 {
		return nil
	}
	keys := make([]string, 0, len(e.facts)+len(e.keys))
	for i := range e.facts {
		keys = append(keys, e.facts[i].key)
	}
	keys = append(keys, e.keys...)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// written returns the readings by name.
func (e *evaluation) written() []Reading {
	if len(e.readings)+len(e.facts) == 0 {
		return nil
	}
	out := make([]Reading, 0, len(e.readings)+len(e.facts))
	for i := range e.facts {
		fact := &e.facts[i]
		r := Reading{Name: "facts[" + quote(fact.key) + "]"}
		if fact.found {
			r.Value, r.Sequence = fact.Value, fact.Sequence
		}
		out = append(out, r)
	}
	for i := range e.readings {
		r := &e.readings[i]
		name := r.name
		if r.kind == readCall {
			name += "(" + quote(r.key) + ")"
		}
		out = append(out, Reading{Name: name, Value: readingValue(r.value)})
	}
	slices.SortFunc(out, func(a, b Reading) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func readingValue(v ref.Val) json.RawMessage {
	if v == nil || types.IsUnknownOrError(v) {
		return nil
	}
	raw, err := encode(nil, v)
	if err != nil {
		return nil
	}
	return raw
}

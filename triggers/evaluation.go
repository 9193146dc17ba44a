package triggers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// evaluation is one run of a condition: what it may read, and what it did read.
// It is the activation that cel-go resolves names in.
type evaluation struct {
	held     *Held
	scope    scopeReader // of a condition that asks the scope for more than names
	view     View
	nowNs    int64
	full     bool  // readings and waits are wanted
	blank    bool  // nothing is known, and nothing is known to be absent: see Foregone
	open     bool  // all may yet become known: see Condition.Stuck
	failure  error // of a leaf, where it is open
	wakeNs   int64
	facts    []readFact
	keys     []string // touched by functions of time, without reading the fact
	readings []reading
	waits    []wait
	leaves   []leafValue
	broken   any   // what the view panicked with
	stopped  error // it read more than it may
	leaf     int   // that is asked now; -1: none
	term     *term // of a joined condition that is asked now; nil: it is not joined
	ends     []end
	prefixes []*prefixed // that were asked, where full
	walked   int         // facts that were found by their prefix
	bytes    int         // of the values of facts
	times    int         // occurrences
	parts    int         // of what was compared
	scanned  int         // by regular expressions: bytes times instructions

	// What most evaluations need, in one piece.
	world      world
	factsFirst [2]readFact
	waitsFirst [2]wait
	leafFirst  [8]leafValue
}

// readFact is a fact as this evaluation saw it.
type readFact struct {
	*Fact // nil: there is none
	key   string
	read  bool // its value
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

// Evaluate answers the condition for a scope, with all that is to be known about
// the answer. It never fails: an error is a truth that is Unknown, with Result.Err.
func (c *Condition) Evaluate(s Scope, v View) Result {
	return c.Hold(s).Evaluate(s.NowNs, v)
}

// Evaluate answers a held condition at nowNs: see Condition.Evaluate.
func (h *Held) Evaluate(nowNs int64, v View) Result {
	return h.evaluate(new(evaluation), nowNs, v, true)
}

// Scratch is room that evaluations use one after the other, so that the many that
// change nothing leave nothing behind. It belongs to one goroutine.
type Scratch struct{ e evaluation }

// Ask is Evaluate without Readings and Waits, for the many answers that no one
// looks at.
func (h *Held) Ask(room *Scratch, nowNs int64, v View) Result {
	result := h.evaluate(&room.e, nowNs, v, false)
	room.e = evaluation{}
	return result
}

func (h *Held) evaluate(e *evaluation, nowNs int64, v View, full bool) Result {
	s := h.shape
	*e = evaluation{held: h, view: v, nowNs: nowNs, full: full}
	if s.whole {
		e.scope.s = h.scope
	}
	e.world, e.facts, e.waits = world{e, worldFacts}, e.factsFirst[:0], e.waitsFirst[:0]
	_, e.open = v.(never)
	e.leaf = -1
	if s.leafCount > len(e.leafFirst) {
		e.leaves = make([]leafValue, s.leafCount)
	} else {
		e.leaves = e.leafFirst[:s.leafCount]
	}
	value, _, err := s.program.Eval(e)
	if e.broken != nil {
		panic(e.broken)
	}
	if e.stopped != nil {
		value, err = nil, e.stopped
	}
	result := Result{WakeNs: e.wakeNs}
	switch answer := value.(type) {
	case types.Bool:
		result.Truth = False
		if answer {
			result.Truth = True
		}
	case *types.Unknown:
		if full {
			result.Waits = e.waitsOf(answer)
		}
	default:
		result.Err = evaluationError(value, err)
	}
	if result.Truth != True && e.stopped == nil && s.skeleton != nil &&
		s.skeleton.never(true, e.leaves) {
		result.Moot, result.WakeNs = true, 0
		if full {
			result.MootWhy = e.mootWhy(s.skeleton)
		}
	}
	if full || s.computed {
		result.watched = e.keysRead()
	}
	if full {
		result.Keys = e.factsRead(result.watched)
		result.Readings = e.written()
	}
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

func (e *evaluation) inexact() bool { return e.held.inexact }

// Parent ends the chain of activations.
func (e *evaluation) Parent() interpreter.Activation { return nil }

// ResolveName answers for a variable of the language, or for what the compiler put
// where a path or a literal stood.
func (e *evaluation) ResolveName(name string) (any, bool) {
	if name[0] == '@' {
		return e.compiled(name)
	}
	if e.blank && isVariable(name) {
		return e.unknown(wait{kind: waitText, name: name}), true
	}
	if name == "facts" {
		return &e.world, true
	}
	if kind, whole := wholeWorld(name); whole {
		if (kind == worldOutput || kind == worldInput || kind == worldActionLabels) &&
			e.scope.s.Action == nil {
			return e.absent(noAction), true
		}
		if kind == worldOutput && !e.scope.s.Action.answered() {
			return e.absent(noOutput), true
		}
		return &world{e, kind}, true
	}
	return nil, false
}

// compiled answers for a slot or a parameter.
func (e *evaluation) compiled(name string) (any, bool) {
	n := 0
	for _, c := range []byte(name[2:]) {
		if c < '0' || c > '9' {
			return nil, false // the hidden variables of a loop are not ours
		}
		n = n*10 + int(c-'0')
	}
	switch name[:2] {
	case paramName:
		if e.term != nil {
			n += e.term.params
		}
		return e.held.params[n], true
	case slotName:
		if e.term != nil {
			n = e.term.slots[n]
		}
		if path := e.held.shape.slots[n].path; e.blank || e.open && !settled(path) {
			return e.unknown(wait{kind: waitText, name: path}), true
		}
		value := e.held.values[n]
		if missing, ok := value.(*absent); ok {
			return e.absent(missing), true
		}
		if e.full {
			e.note(reading{kind: readName, name: e.held.shape.slots[n].path, value: value.(ref.Val)})
		}
		return value, true
	}
	return nil, false
}

// settled reports whether an action that is about to be registered has what a name of the scope
// will always be.
func settled(path string) bool {
	return finalName(path, false) && path != "plan.opened_at" && path != "action.at"
}

func (e *evaluation) absent(a *absent) ref.Val { return e.unknown(a.wait) }

// read returns the fact under key, the same at every call of one evaluation.
func (e *evaluation) read(key string) *readFact {
	for i := range e.facts {
		if e.facts[i].key == key {
			return &e.facts[i]
		}
	}
	if !e.mayRead() {
		return &readFact{key: key}
	}
	e.facts = append(e.facts, readFact{Fact: e.look(key), key: key})
	return &e.facts[len(e.facts)-1]
}

// keep keeps what the view panics with. cel-go takes a panic for an error of the
// expression, but a store that fails is no answer: Evaluate passes it on.
func (e *evaluation) keep() {
	if r := recover(); r != nil {
		e.broken = r
		panic(r)
	}
}

func (e *evaluation) look(key string) *Fact {
	defer e.keep()
	return e.view.Fact(key)
}

func (e *evaluation) load(fact *readFact) {
	defer e.keep()
	fact.Value = fact.Load()
}

// mayRead reports whether another fact may be read.
func (e *evaluation) mayRead() bool {
	if len(e.facts)+len(e.keys) < readMax {
		return true
	}
	e.stop("it reads more than %d facts", readMax)
	return false
}

// stop makes the answer an error, whatever the rest of the expression says.
func (e *evaluation) stop(format string, bound int) {
	if e.stopped == nil {
		e.stopped = fmt.Errorf("operation cancelled: "+format, bound)
	}
}

// value is the decoded value of a fact that was found.
func (e *evaluation) value(fact *readFact) ref.Val {
	if fact.Value == nil && fact.Load != nil {
		e.load(fact)
	}
	if !fact.read {
		fact.read = true
		if e.bytes += len(fact.Value); e.bytes > bytesMax {
			e.stop("it reads more than %d bytes of facts", bytesMax)
		}
	}
	if e.stopped != nil {
		return types.NewErr("operation cancelled")
	}
	if e.held.inexact {
		if fact.asDoubles == nil {
			fact.asDoubles = decodeInexact(fact.Value)
		}
		return fact.asDoubles
	}
	if fact.decoded == nil {
		fact.decoded = decode(fact.Value)
	}
	return fact.decoded
}

// touch notes that the times of a fact are asked; false: no more may be.
func (e *evaluation) touch(key string) bool {
	if slices.Contains(e.keys, key) {
		return true
	}
	if !e.mayRead() {
		return false
	}
	e.keys = append(e.keys, key)
	return true
}

func (e *evaluation) note(r reading) {
	if !e.full {
		return
	}
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

func (e *evaluation) language() *language { return e.held.shape.language }

// unknown returns the unknown that waits for w.
func (e *evaluation) unknown(w wait) ref.Val {
	i := slices.Index(e.waits, w)
	if i < 0 {
		i = len(e.waits)
		e.waits = append(e.waits, w)
	}
	if i < len(e.language().unknowns) {
		return e.language().unknowns[i]
	}
	return types.NewUnknown(int64(i), nil)
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
	for _, u := range e.prefixes {
		u.tell()
	}
	if len(e.readings)+len(e.facts) == 0 {
		return nil
	}
	out := make([]Reading, 0, len(e.readings)+len(e.facts))
	for i := range e.facts {
		fact := &e.facts[i]
		r := Reading{Name: "facts[" + quote(fact.key) + "]", Present: fact.Fact != nil}
		if fact.Fact != nil {
			r.Sequence = fact.Sequence
			if fact.read {
				r.Value = fact.Value
			}
		}
		out = append(out, r)
	}
	for i := range e.readings {
		r := &e.readings[i]
		name := r.name
		if r.kind == readCall {
			name += "(" + quote(r.key) + ")"
		}
		value := readingValue(r.value)
		out = append(out, Reading{Name: name, Value: value, Present: value != nil})
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

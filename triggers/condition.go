package triggers

import (
	"crypto/sha256"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Truth is the answer of a condition. Its zero value is Unknown.
type Truth uint8

// The three truths: a lease fires on the transition to True, waits while
// Unknown and does not fire while False.
const (
	Unknown Truth = iota
	False
	True
)

// String returns "unknown", "false" or "true".
func (t Truth) String() string {
	switch t {
	case Unknown:
		return "unknown"
	case False:
		return "false"
	case True:
		return "true"
	default:
		panic("triggers: no such truth")
	}
}

// Fact is what is known under a key.
type Fact struct {
	Value      json.RawMessage // one JSON value; nil: Load has it
	AssertedNs int64           // unix ns of the last assertion
	ChangedNs  int64           // unix ns of the last change of value
	Sequence   uint64          // of the record that asserted it last
	// Load fetches the value of a fact that is not at hand; it is called only by a
	// condition that reads the value, not by one that asks whether or when.
	Load func() json.RawMessage

	decoded   ref.Val // Value, when an evaluation has read it
	asDoubles ref.Val // the same, inexact
}

// View is what an evaluation may read; an implementation answers from folded
// state only, of one tenant only. One that cannot answer panics, and Evaluate
// with it.
type View interface {
	// Fact returns the fact under key, or nil when there is none now. It is not
	// changed, but for what evaluations remember in it: one goroutine owns it.
	Fact(key string) *Fact
	// Occurrences yields the times (unix ns, ascending) at which key was asserted
	// in (fromNs, toNs].
	Occurrences(key string, fromNs, toNs int64) iter.Seq[int64]
	// Under yields the facts that there are now whose keys begin with prefix, ascending by key. One
	// that asks for few costs no more for how many there are.
	Under(prefix string) iter.Seq2[string, *Fact]
}

// Plan is what a condition may read of a plan.
type Plan struct {
	ID, Status, Label, Owner, Agent string
	OpenedNs                        int64
	ActiveNs                        int64 // of the latest record of its agent that counts
	DeadlineNs                      int64 // 0: none, so plan.deadline is unknown for ever
	Labels                          map[string]string
	Actions                         int // registered so far
}

// Action is what a condition may read of the action it is held for. Input and
// Output are what the contract lifts out of the payload: JSON objects, or nil.
// A nil Output means that the forward has not completed; of one whose Outcome is
// "completed" it means that nothing was lifted, and nothing ever will be.
type Action struct {
	ID, Capability string
	AtNs           int64 // unix ns of its registration
	Input, Output  json.RawMessage
	Outcome        string // empty: unknown
	Presence       string // what a probe found of its effect; empty: none was asked
	Labels         map[string]string
}

// answered reports whether the forward has completed, so that what it returned is
// all that there ever is.
func (a *Action) answered() bool { return a.Output != nil || a.Outcome == "completed" }

// Verdict is the decision of a supervisor on the action.
type Verdict struct {
	Outcome string // "allow", "block" or "redirect"
	Reason  string
	By      string
	AtNs    int64 // unix ns of its record
}

// Scope is what an evaluation is about and when. Action is nil for a trigger of
// a plan; Verdict is nil until one was given.
type Scope struct {
	Plan    Plan
	Action  *Action
	Verdict *Verdict
	ArmedNs int64 // unix ns since which the lease is held
	NowNs   int64 // unix ns of the epoch
	// Inexact: it reads numbers as a holder of before ledger.NumbersSince does, a number that no
	// int64 holds as a double.
	Inexact bool
}

// Reading is one value that an evaluation read, for the record of a firing.
type Reading struct {
	// as in the expression: plan.status, facts["paid/o7"], first_at("paid/o7")
	Name     string
	Value    json.RawMessage // empty: unknown, or a fact that was only asked for
	Present  bool            // there is such a fact, or an answer
	Sequence uint64          // of the record that set a fact; 0: none
}

// Result is the answer of one evaluation.
type Result struct {
	Truth Truth
	// the least instant after the epoch at which time alone could change Truth; 0: none, or moot
	WakeNs   int64
	Moot     bool      // no future can make it true
	MootWhy  []string  // what ended that, sorted; empty where the expression alone says so
	Readings []Reading // by name
	Waits    []string  // what an unknown waits for, sorted: "fact shipped/o7", "time 2026-..."
	Keys     []string  // facts that were read, sorted; not of Ask
	Err      error     // why the evaluation stopped; Truth is then Unknown
	// what the answer depends on, sorted; of Ask only where Keys of the condition are not all
	watched []string
}

// Condition is a checked expression with a boolean result. It does not change
// after compilation and may be shared.
type Condition struct {
	shape  *shape
	text   string
	params []any // ref.Val
	keys   []string
}

// Compile checks expression and prepares it. The error is an *Error. Use a
// Cache where more than one expression is compiled.
func Compile(expression string) (*Condition, error) {
	return NewCache(1).Condition(expression)
}

// Digest identifies the condition: see the package comment.
func (c *Condition) Digest() [32]byte {
	return sha256.Sum256([]byte(digestPrefix + Normalise(c.text)))
}

const digestPrefix = "sagenbaum condition 1\n"

// Keys returns the fact keys that are in the expression, and a PrefixKey for each prefix, sorted.
// computed says that it also reads keys that only an evaluation knows: see Watched.
func (c *Condition) Keys() (constant []string, computed bool) { return c.keys, c.shape.computed }

// Watched returns the facts that an answer depends on, sorted: those that are in
// the expression, and those that the evaluation has read; of a prefix its PrefixKey.
func (c *Condition) Watched(r Result) []string { return c.shape.watched(c.keys, r) }

// watched is Watched of a condition with these constant keys.
func (s *shape) watched(keys []string, r Result) []string {
	if !s.computed {
		return keys
	}
	if len(keys) == 0 {
		return r.watched
	}
	all := slices.Concat(keys, r.watched)
	slices.Sort(all)
	return slices.Compact(all)
}

// Reads reports whether the expression names one of paths, as in plan.actions.
func (c *Condition) Reads(paths ...string) bool {
	return slices.ContainsFunc(c.shape.slots,
		func(s slot) bool { return slices.Contains(paths, s.path) })
}

// ReadsFactsAlone reports whether the answer is the same for every scope, at one instant.
func (c *Condition) ReadsFactsAlone() bool {
	return !c.shape.whole && !c.shape.arming && len(c.shape.slots) == 0
}

// ReadsVerdict reports whether the expression mentions verdict.
func (c *Condition) ReadsVerdict() bool { return c.shape.roots["verdict"] }

// ReadsPlan reports whether the expression mentions plan.
func (c *Condition) ReadsPlan() bool { return c.shape.roots["plan"] }

// ReadsAction reports whether the expression mentions action.
func (c *Condition) ReadsAction() bool { return c.shape.roots["action"] }

// ReadsPrefix reports whether the expression asks about facts by a prefix of their keys.
func (c *Condition) ReadsPrefix() bool { return c.shape.roots[prefixRoot] }

// ReadsClock reports whether the expression asks a function of time, so that
// its truth depends on the instant at which it is asked.
func (c *Condition) ReadsClock() bool { return c.shape.roots[clockRoot] }

// StepsMax bounds the steps of one evaluation: where nothing is looped over or
// scanned, its nodes; elsewhere what an evaluation is stopped at.
func (c *Condition) StepsMax() int {
	if c.shape.extent.costly {
		return costMax
	}
	return c.shape.extent.nodes
}

// weight is about how many bytes the condition takes beside its shape.
func (c *Condition) weight() int {
	n := 100 + len(c.text)
	for _, p := range c.params {
		n += 16 + valueBytes(p)
	}
	return n + 16*len(c.keys)
}

// instance makes the condition that text is of a shape. It is nil when a literal
// of the text is not what one may be at its place: compiling the text says why.
func (s *shape) instance(text string, literals []literal) *Condition {
	c := &Condition{shape: s, text: text}
	if len(s.params) > 0 {
		c.params = make([]any, len(s.params))
	}
	for i, p := range s.params {
		value := literals[p.literal].value
		if p.convert != nil {
			value = p.convert(value)
		}
		if p.check != nil && !p.check(value) {
			return nil
		}
		c.params[i] = owned(value, c.params[:i])
	}
	c.keys = s.keysWith(c.params)
	return c
}

// owned returns a literal that keeps no text in memory: what is kept of a condition is
// its literals.
func owned(literal ref.Val, before []any) any {
	s, ok := literal.(types.String)
	if !ok {
		return literal
	}
	for _, value := range before {
		if had, ok := value.(types.String); ok && had == s {
			return value
		}
	}
	return types.String(strings.Clone(string(s)))
}

// keysWith are the fact keys that are in an expression of this shape, sorted.
func (s *shape) keysWith(params []any) []string {
	if len(s.keyParams) == 0 {
		return s.keys
	}
	keys := make([]string, 0, len(s.keys)+len(s.keyParams))
	keys = append(keys, s.keys...)
	for _, i := range s.keyParams {
		key := string(params[i].(types.String))
		if s.params[i].prefix {
			key = PrefixKey(key)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Foregone returns the answer of a condition that is known from its text alone.
// True: it is true whatever is known, and fires at once. False: no future makes it
// true; an error says that it is one whatever is known. Unknown: it depends, as
// far as can be told; a condition of one answer may be missed.
func (c *Condition) Foregone() (Truth, error) {
	if c.shape.extent.closed {
		return Unknown, nil // has() and its like answer for what is not known, too
	}
	held := &Held{shape: c.shape, params: c.params, condition: c}
	e := &evaluation{held: held, blank: true, leaves: make([]leafValue, c.shape.leafCount)}
	value, _, err := c.shape.program.Eval(e)
	switch answer := value.(type) {
	case types.Bool:
		if answer {
			return True, nil
		}
		return False, nil
	case *types.Unknown:
		if c.shape.skeleton != nil && c.shape.skeleton.never(true, e.leaves) {
			return False, nil
		}
		return Unknown, nil
	default:
		return False, evaluationError(value, err)
	}
}

// Stuck returns an error that keeps the condition from ever being true in a scope, whatever becomes
// known, as where a text is added to a number of the input; nil: it may be true, as far as can be
// told. What time, a fact or an answer could end, and what changes in the scope by itself, is not
// counted on.
func (c *Condition) Stuck(s Scope) error {
	e := &evaluation{}
	result := c.Hold(s).evaluate(e, s.NowNs, never{}, false)
	if !c.shape.extent.closed && result.Err != nil {
		return result.Err
	}
	skeleton := c.shape.skeleton
	if skeleton == nil || !skeleton.keptByErrors(e.leaves) {
		return nil
	}
	return evaluationError(nil, e.failure)
}

// Nothing is a View in which nothing has happened.
type Nothing struct{}

// Fact implements View.
func (Nothing) Fact(string) *Fact { return nil }

// Occurrences implements View.
func (Nothing) Occurrences(string, int64, int64) iter.Seq[int64] {
	return func(func(int64) bool) {}
}

// Under implements View.
func (Nothing) Under(string) iter.Seq2[string, *Fact] { return func(func(string, *Fact) bool) {} }

// blankFunction answers for every function of time what is known before anything
// has happened: nothing, but for what is wrong whatever happens.
func (e *evaluation) blankFunction(name string) (functions.LateBoundOp, bool) {
	if timeFunctionOf(name) == nil && prefixFunctionOf(name) == nil {
		return nil, false
	}
	return func(string, ...ref.Val) ref.Val { return e.unknown(wait{kind: waitText, name: name}) },
		true
}

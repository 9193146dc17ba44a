package triggers

import (
	"crypto/sha256"
	"encoding/json"
	"iter"

	"cel.dev/cel-go/cel"
)

// Truth is the answer of a condition. Its zero value is Unknown.
type Truth uint8

// The three truths: a lease fires on the transition to True, waits while
// Unknown and does not fire while False (S73).
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
	Value      json.RawMessage // one JSON value
	AssertedNs int64           // unix ns of the last assertion
	ChangedNs  int64           // unix ns of the last change of value
	Sequence   uint64          // of the record that asserted it last
}

// View is what an evaluation may read; an implementation answers from folded
// state only, of one tenant only (S94).
type View interface {
	// Fact returns the fact under key, and false when there is none now.
	Fact(key string) (Fact, bool)
	// Occurrences yields the times (unix ns, ascending) at which key was asserted
	// in (fromNs, toNs].
	Occurrences(key string, fromNs, toNs int64) iter.Seq[int64]
}

// Plan is what a condition may read of a plan.
type Plan struct {
	ID, Status, Label, Owner, Agent string
	OpenedNs                        int64
	DeadlineNs                      int64 // 0: none, so plan.deadline is unknown for ever
	Labels                          map[string]string
	Actions                         int // registered so far
}

// Action is what a condition may read of the action it is held for. Input and
// Output are what the contract lifts out of the payload: JSON objects, or nil.
// A nil Output means that the forward has not completed.
type Action struct {
	ID, Capability string
	AtNs           int64 // unix ns of its registration
	Input, Output  json.RawMessage
	Outcome        string // empty: unknown
	Labels         map[string]string
}

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
}

// Reading is one value that an evaluation read, for the record of a firing.
type Reading struct {
	Name     string          // as in the expression: plan.status, facts["paid/o7"], first_at("paid/o7")
	Value    json.RawMessage // empty: unknown
	Sequence uint64          // of the record that set a fact; 0: none
}

// Result is the answer of one evaluation.
type Result struct {
	Truth    Truth
	WakeNs   int64     // the least instant after the epoch at which time alone could change Truth; 0: none, or moot
	Moot     bool      // no future can make it true
	Readings []Reading // by name
	Waits    []string  // what an unknown waits for, sorted: "fact shipped/o7", "time 2026-..."
	Keys     []string  // facts that were read, sorted
	Err      error     // why the evaluation stopped; Truth is then Unknown
}

// Condition is a checked expression with a boolean result. It does not change
// after compilation and may be shared.
type Condition struct {
	program   cel.Program
	language  *language
	digest    [32]byte
	keys      []string
	computed  bool
	roots     map[string]bool // the variables it reads
	skeleton  *clause         // nil: no future makes it moot
	leafCount int
}

// Compile checks expression and prepares it. The error is an *Error. Use a
// Cache where more than one expression is compiled.
func Compile(expression string) (*Condition, error) {
	return newLanguage().compileCondition(expression)
}

// Digest identifies the condition: see the package comment.
func (c *Condition) Digest() [32]byte { return c.digest }

// Keys returns the fact keys that stand in the expression, sorted. computed says
// that it also reads keys that only an evaluation knows: see Result.Keys.
func (c *Condition) Keys() (constant []string, computed bool) { return c.keys, c.computed }

// ReadsVerdict reports whether the expression mentions verdict.
func (c *Condition) ReadsVerdict() bool { return c.roots["verdict"] }

// ReadsPlan reports whether the expression mentions plan.
func (c *Condition) ReadsPlan() bool { return c.roots["plan"] }

// ReadsAction reports whether the expression mentions action.
func (c *Condition) ReadsAction() bool { return c.roots["action"] }

// ReadsClock reports whether the expression asks a function of time, so that
// its truth depends on the instant at which it is asked.
func (c *Condition) ReadsClock() bool { return c.roots[clockRoot] }

func (l *language) compileCondition(expression string) (*Condition, error) {
	checked, err := l.check(l.conditions, expression, inspectCondition)
	if err != nil {
		return nil, err
	}
	if kind := checked.OutputType().Kind(); kind != cel.BoolKind && kind != cel.DynKind {
		return nil, &Error{Line: 1, Column: 1, Message: "the result is " + checked.OutputType().String() + ", not a truth",
			Hint: "compare it with something, as in plan.status == \"failed\""}
	}
	c := &Condition{language: l, digest: sha256.Sum256([]byte(digestPrefix + Normalise(expression)))}
	c.roots, c.keys, c.computed = footprint(checked.NativeRep().Expr())
	c.skeleton, c.leafCount = newSkeleton(checked.NativeRep())
	if c.program, err = l.plan(l.conditions.env, checked.NativeRep(), c.skeleton); err != nil {
		return nil, planError(err)
	}
	return c, nil
}

const digestPrefix = "sagenbaum condition 1\n"

// Package oracle says the trigger language again, slowly and plainly: a condition
// is a text and a function that recomputes its truth from all that happened, at
// any instant, by the tables of docs/triggers.md. It knows no keys, flips, indexes
// or programs, and nothing of cel-go; what evaluates triggers is held against it.
package oracle

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Truth is the answer of a condition.
type Truth uint8

// The three truths.
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
		panic("oracle: no such truth")
	}
}

// TruthOf is True or False.
func TruthOf(b bool) Truth {
	if b {
		return True
	}
	return False
}

// Not is the strong Kleene negation.
func Not(t Truth) Truth {
	switch t {
	case True:
		return False
	case False:
		return True
	}
	return Unknown
}

// And is the strong Kleene conjunction.
func And(a, b Truth) Truth {
	switch {
	case a == False || b == False:
		return False
	case a == True && b == True:
		return True
	}
	return Unknown
}

// Or is the strong Kleene disjunction.
func Or(a, b Truth) Truth { return Not(And(Not(a), Not(b))) }

// Absent is the value of what is not known. An error is one, too: both wait.
type Absent struct{}

// Time is a timestamp, in unix ns.
type Time int64

// Object is the value of a JSON object with at most one field, which is all that
// random facts have.
type Object struct {
	Field string
	Value any
}

// Event is an assertion or a retraction of a fact. Value is an int, float64,
// string, bool, nil or Object.
type Event struct {
	Ns        int64 // unix ns
	Key       string
	Value     any
	Retracted bool
}

// Plan is what a condition may read of a plan. DeadlineNs is 0 where there is none,
// Label the plan label "l", empty where it is not set.
type Plan struct {
	Status, Label        string
	OpenedNs, DeadlineNs int64
	ActiveNs             int64
	Actions              int
}

// Action is what a condition may read of its action. Input and Output hold what
// was lifted; Completed says that there is an output.
type Action struct {
	AtNs      int64
	Input     []Object
	Output    []Object
	Completed bool
	Outcome   string // empty: unknown
}

// Verdict is the verdict on the action.
type Verdict struct {
	Outcome string
	AtNs    int64
}

// Moment is an instant and all that is known at it.
type Moment struct {
	Events  []Event // folded so far, in their order
	NowNs   int64
	ArmedNs int64
	Plan    Plan
	Action  *Action  // nil: the condition is a plan's
	Verdict *Verdict // nil: none was given
}

// fact is the value under key now.
func (m *Moment) fact(key string) any {
	for i := len(m.Events) - 1; i >= 0; i-- {
		if e := &m.Events[i]; e.Key == key {
			if e.Retracted {
				return Absent{}
			}
			return e.Value
		}
	}
	return Absent{}
}

// under lists the keys of the facts that there are now and that begin with prefix.
func (m *Moment) under(prefix string) (keys []string) {
	for i, e := range m.Events {
		later := slices.ContainsFunc(m.Events[i+1:], func(l Event) bool { return l.Key == e.Key })
		if !later && !e.Retracted && strings.HasPrefix(e.Key, prefix) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// times lists the occurrences of key in (fromNs, toNs].
func (m *Moment) times(key string, fromNs, toNs int64) []int64 {
	var times []int64
	for _, e := range m.Events {
		if e.Key == key && !e.Retracted && e.Ns > fromNs && e.Ns <= toNs {
			times = append(times, e.Ns)
		}
	}
	return times
}

// at is the time of the fact's last assertion.
func (m *Moment) at(key string) any {
	for i := len(m.Events) - 1; i >= 0; i-- {
		if e := &m.Events[i]; e.Key == key {
			if e.Retracted {
				return Absent{}
			}
			return Time(e.Ns)
		}
	}
	return Absent{}
}

// since is the time of the first assertion of the value that holds now.
func (m *Moment) since(key string) any {
	changed, text := any(Absent{}), ""
	for _, e := range m.Events {
		if e.Key != key {
			continue
		}
		if e.Retracted {
			changed, text = Absent{}, ""
			continue
		}
		if now := fmt.Sprintf("%T%v", e.Value, e.Value); now != text {
			changed, text = Time(e.Ns), now
		}
	}
	return changed
}

// after is an occurrence since arming: the first, or the last.
func (m *Moment) after(key string, first bool) any {
	times := m.times(key, m.ArmedNs, math.MaxInt64)
	switch {
	case len(times) == 0:
		return Absent{}
	case first:
		return Time(times[0])
	}
	return Time(times[len(times)-1])
}

// within is whether key occurred in [at, at+d].
func (m *Moment) within(key string, at, d int64) Truth {
	switch {
	case len(m.times(key, at-1, at+d)) > 0:
		return True
	case m.NowNs > at+d:
		return False
	}
	return Unknown
}

// reached is unknown until at.
func (m *Moment) reached(at int64) Truth {
	if m.NowNs >= at {
		return True
	}
	return Unknown
}

// field is the value of a field among those that are known.
func field(fields []Object, name string) any {
	for _, f := range fields {
		if f.Field == name {
			return f.Value
		}
	}
	return Absent{}
}

// known reports whether a value is there.
func known(v any) Truth {
	_, absent := v.(Absent)
	return TruthOf(!absent)
}

// Compare is one of == != < >= over two values; unknown when they do not compare.
func Compare(operator string, a, b any) Truth {
	if known(a) == False || known(b) == False {
		return Unknown
	}
	x, xn := number(a)
	y, yn := number(b)
	switch operator {
	case "==", "!=":
		equal := TruthOf(fmt.Sprintf("%T%v", a, a) == fmt.Sprintf("%T%v", b, b))
		if xn && yn {
			equal = TruthOf(x == y)
		}
		if operator == "!=" {
			return Not(equal)
		}
		return equal
	}
	less := Unknown
	switch v := a.(type) {
	case string:
		if w, ok := b.(string); ok {
			less = TruthOf(v < w)
		}
	case bool:
		if w, ok := b.(bool); ok {
			less = TruthOf(!v && w)
		}
	case Time:
		if w, ok := b.(Time); ok {
			less = TruthOf(v < w)
		}
	default:
		if xn && yn {
			less = TruthOf(x < y)
		}
	}
	if operator == ">=" {
		return Not(less)
	}
	return less
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

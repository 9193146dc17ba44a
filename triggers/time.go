package triggers

import (
	"iter"
	"math"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// timeFunction declares one function of time.
type timeFunction struct {
	name     string
	usage    string
	args     []*cel.Type
	result   *cel.Type
	key      int  // the argument that is a fact key, or -1
	positive bool // the last argument is a duration above zero
	most     int  // the first argument is a number from 1 to this; 0: it is none
}

// timeFunctions are the functions of time in the order of the documentation. They are
// made once: each call in each text that is compiled is looked up here.
var timeFunctions = makeTimeFunctions()

func makeTimeFunctions() []timeFunction {
	at, span, key := cel.TimestampType, cel.DurationType, cel.StringType
	return []timeFunction{
		{"after", "after(t) with a timestamp, as in after(plan.deadline)", []*cel.Type{at}, cel.BoolType,
			-1, false, 0},
		{"before", "before(t) with a timestamp, as in before(plan.deadline)", []*cel.Type{at},
			cel.BoolType, -1, false, 0},
		{"elapsed", "elapsed(t0, d), as in elapsed(action.at, duration(\"72h\"))", []*cel.Type{at, span},
			cel.BoolType, -1, false, 0},
		{"at", "at(key), as in at(\"paid/o7\")", []*cel.Type{key}, at, 0, false, 0},
		{"since", "since(key), as in since(\"paid/o7\")", []*cel.Type{key}, at, 0, false, 0},
		{"seen", "seen(key), as in seen(\"paid/o7\")", []*cel.Type{key}, cel.BoolType, 0, false, 0},
		{"first_at", "first_at(key), as in first_at(\"paid/o7\")", []*cel.Type{key}, at, 0, false, 0},
		{"last_at", "last_at(key), as in last_at(\"paid/o7\")", []*cel.Type{key}, at, 0, false, 0},
		{"within", "within(key, t0, d), as in within(\"paid/o7\", action.at, duration(\"1h\"))",
			[]*cel.Type{key, at, span}, cel.BoolType, 0, false, 0},
		{"absent_for", "absent_for(key, t0, d), as in absent_for(\"paid/o7\", action.at, " +
			"duration(\"1h\"))", []*cel.Type{key, at, span}, cel.BoolType, 0, false, 0},
		{"at_least", "at_least(n, key, d), as in at_least(3, \"declined/o7\", duration(\"10m\"))",
			[]*cel.Type{cel.IntType, key, span}, cel.BoolType, 1, true, countMax},
		{"count", "count(key, d), as in count(\"declined/o7\", duration(\"10m\"))",
			[]*cel.Type{key, span}, cel.IntType, 0, true, 0},
		{"latest", "latest(n, key, t0, d), as in latest(3, \"paid/o7\", action.at, duration(\"1h\"))",
			[]*cel.Type{cel.IntType, key, at, span}, cel.ListType(at), 1, false, latestMax},
	}
}

// timeFunctionOf finds a function of time by name; nil: there is none of that name.
func timeFunctionOf(name string) *timeFunction {
	for i := range timeFunctions {
		if timeFunctions[i].name == name {
			return &timeFunctions[i]
		}
	}
	return nil
}

// ResolveFunction binds a function of time to this evaluation.
func (e *evaluation) ResolveFunction(name string) (op functions.LateBoundOp, found bool) {
	if e.blank || e.open && timeFunctionOf(name) != nil {
		return e.blankFunction(name)
	}
	switch name {
	case "after":
		return func(_ string, args ...ref.Val) ref.Val { return e.after(nanoseconds(args[0])) }, true
	case "elapsed":
		return func(_ string, args ...ref.Val) ref.Val { return e.after(shifted(args[0], args[1])) }, true
	case "before":
		return func(_ string, args ...ref.Val) ref.Val { return e.before(nanoseconds(args[0])) }, true
	case "at":
		return func(_ string, args ...ref.Val) ref.Val { return e.assertion(args[0], false) }, true
	case "since":
		return func(_ string, args ...ref.Val) ref.Val { return e.assertion(args[0], true) }, true
	case "seen":
		return func(_ string, args ...ref.Val) ref.Val { return e.seen(text(args[0])) }, true
	case "first_at":
		return func(_ string, args ...ref.Val) ref.Val { return e.occurrence("first_at", text(args[0])) },
			true
	case "last_at":
		return func(_ string, args ...ref.Val) ref.Val { return e.occurrence("last_at", text(args[0])) },
			true
	case "within":
		return e.within, true
	case "absent_for":
		return e.absentFor, true
	case "at_least":
		return e.atLeast, true
	case "count":
		return e.count, true
	case "latest":
		return e.latest, true
	}
	if f := prefixFunctionOf(name); f != nil {
		return e.among(f), true
	}
	return nil, false
}

func text(v ref.Val) string { return string(v.(types.String)) }

// nanoseconds returns a timestamp in unix ns, or the nearest that an int64 holds:
// CEL goes to the year 9999, an int64 to 2262.
func nanoseconds(v ref.Val) int64 {
	t := v.(types.Timestamp).Time
	switch seconds := t.Unix(); {
	case seconds > math.MaxInt64/int64(time.Second)-1:
		return math.MaxInt64
	case seconds < math.MinInt64/int64(time.Second)+1:
		return math.MinInt64
	}
	return t.UnixNano()
}

func shifted(t0, d ref.Val) int64 {
	return addNs(nanoseconds(t0), int64(d.(types.Duration).Duration))
}

// addNs adds without wrapping around.
func addNs(a, b int64) int64 {
	sum := a + b
	if a > 0 && b > 0 && sum < 0 {
		return math.MaxInt64
	}
	if a < 0 && b < 0 && sum >= 0 {
		return math.MinInt64
	}
	return sum
}

func timestamp(ns int64) ref.Val {
	return types.Timestamp{Time: time.Unix(0, ns).UTC()}
}

// flip records that the answer just given can change at ns. An instant that no
// epoch reaches is none.
func (e *evaluation) flip(ns int64) {
	if ns > e.nowNs && ns != math.MaxInt64 && (e.wakeNs == 0 || ns < e.wakeNs) {
		e.wakeNs = ns
	}
}

// after is unknown until t, then true. It is never false, so that !after(t) never
// fires: "not yet" is no reason to undo anything.
func (e *evaluation) after(t int64) ref.Val {
	if e.nowNs >= t {
		return types.True
	}
	e.flip(t)
	return e.unknown(wait{kind: waitTime, ns: t})
}

// before is true until t, then false: a guard.
func (e *evaluation) before(t int64) ref.Val {
	if e.nowNs >= t {
		e.ended("time %[2]s, which has passed", "", t)
		return types.False
	}
	e.flip(t)
	return types.True
}

// assertion is when the fact was last asserted, or last changed its value.
func (e *evaluation) assertion(key ref.Val, changed bool) ref.Val {
	fact := e.read(text(key))
	if fact.Fact == nil {
		return e.unknown(wait{kind: waitFact, name: fact.key})
	}
	if changed {
		return timestamp(fact.ChangedNs)
	}
	return timestamp(fact.AssertedNs)
}

// seen is true once the key occurred after arming, and unknown until then.
func (e *evaluation) seen(key string) ref.Val {
	if ns := e.edge(key, false); ns != 0 {
		e.note(reading{kind: readCall, name: "seen", key: key, value: types.True})
		return types.True
	}
	e.note(reading{kind: readCall, name: "seen", key: key})
	return e.unknown(wait{kind: waitFact, name: key})
}

// occurrence is the first or the latest time at which the key occurred after
// arming.
func (e *evaluation) occurrence(function, key string) ref.Val {
	ns := e.edge(key, function == "last_at")
	if ns == 0 {
		e.note(reading{kind: readCall, name: function, key: key})
		return e.unknown(wait{kind: waitFact, name: key})
	}
	value := timestamp(ns)
	e.note(reading{kind: readCall, name: function, key: key, value: value})
	return value
}

// edge returns the first or the last occurrence after arming, 0 when there is none.
func (e *evaluation) edge(key string, last bool) int64 {
	found := e.first(key, e.held.armedNs, ever)
	if !last || found == 0 {
		return found
	}
	if fact := e.look(key); fact != nil {
		return fact.AssertedNs
	}
	// The times are walked from the first on, and may be many: halve the rest.
	for to := ever; found < to; {
		middle := found + (to-found)/2
		if later := e.first(key, middle, ever); later != 0 {
			found = later
		} else if to = middle; to == found {
			break
		}
	}
	return found
}

// ever is the end of what has occurred: what a view has is in the ledger, so it has, also where
// its instant is ahead of the clock that the evaluation is asked by.
const ever = int64(math.MaxInt64 - 1)

// first returns the first occurrence in (fromNs, toNs], or 0.
func (e *evaluation) first(key string, fromNs, toNs int64) int64 {
	for ns := range e.occurrences(key, fromNs, toNs) {
		return ns
	}
	return 0
}

// occurrences walks the times of a fact, as many as the evaluation may look at.
func (e *evaluation) occurrences(key string, fromNs, toNs int64) iter.Seq[int64] {
	if !e.touch(key) {
		return func(func(int64) bool) {}
	}
	return func(yield func(int64) bool) {
		defer e.keep()
		for ns := range e.view.Occurrences(key, fromNs, toNs) {
			if e.times++; e.times > timesMax {
				e.stop("it looks at more than %d occurrences", timesMax)
				return
			}
			if !yield(ns) {
				return
			}
		}
	}
}

// within is true once the key occurred in [t0, t0+d], unknown while the window
// is open and false for ever after. The window closes just after t0+d: what
// happens at that very instant is still within.
func (e *evaluation) within(_ string, args ...ref.Val) ref.Val {
	key, t0, end := text(args[0]), nanoseconds(args[1]), shifted(args[1], args[2])
	for ns := range e.occurrences(key, addNs(t0, -1), end) {
		e.note(reading{kind: readCall, name: "within", key: key, value: timestamp(ns)})
		e.ended("fact %[1]s, which was asserted in its window at %[2]s", key, ns)
		return types.True
	}
	e.note(reading{kind: readCall, name: "within", key: key})
	if e.nowNs > end {
		e.ended("the window for fact %[1]s, which closed at %[2]s", key, end)
		return types.False
	}
	e.flip(addNs(end, 1))
	return e.unknown(wait{kind: waitWindow, name: key, ns: end})
}

// absentFor is exactly !within.
func (e *evaluation) absentFor(overload string, args ...ref.Val) ref.Val {
	if truth, known := e.within(overload, args...).(types.Bool); known {
		return !truth
	}
	key, end := text(args[0]), shifted(args[1], args[2])
	return e.unknown(wait{kind: waitWindow, name: key, ns: end})
}

// atLeast is true while at least n occurrences lie in (now-d, now]. Time alone
// only lowers the count, so only a true answer flips: when the n-th latest
// occurrence leaves the window.
func (e *evaluation) atLeast(_ string, args ...ref.Val) ref.Val {
	n, key := int64(args[0].(types.Int)), text(args[1])
	window := int64(args[2].(types.Duration).Duration)
	if n < 1 || n > countMax || window <= 0 {
		return types.NewErr("at_least wants 1 to %d occurrences in a window above zero", countMax)
	}
	var times []int64 // the oldest countMax: those after them only put the flip later
	for ns := range e.occurrences(key, addNs(e.nowNs, -window), ever) {
		if times = append(times, ns); len(times) == countMax {
			break
		}
	}
	e.note(reading{kind: readCall, name: "at_least", key: key, value: types.Int(len(times))})
	if int64(len(times)) < n {
		return types.False
	}
	e.flip(addNs(times[int64(len(times))-n], window))
	return types.True
}

// count is the number of occurrences in (now-d, now], as far as countMax; it flips
// when the oldest of them leaves the window.
func (e *evaluation) count(_ string, args ...ref.Val) ref.Val {
	key, window := text(args[0]), int64(args[1].(types.Duration).Duration)
	if window <= 0 {
		return types.NewErr("count wants a window above zero")
	}
	n := 0
	for ns := range e.occurrences(key, addNs(e.nowNs, -window), ever) {
		if n == 0 {
			e.flip(addNs(ns, window))
		}
		if n++; n == countMax {
			break
		}
	}
	e.note(reading{kind: readCall, name: "count", key: key, value: types.Int(n)})
	return types.Int(n)
}

// latest lists the times of the last n occurrences in [t0, t0+d] as far as they
// are known now, in order: fewer when there are fewer, none when there is none.
// It asks what is known, as `in` does, so it is never unknown for an absence, and
// time alone does not change it.
func (e *evaluation) latest(_ string, args ...ref.Val) ref.Val {
	n, key := int64(args[0].(types.Int)), text(args[1])
	if n < 1 || n > latestMax {
		return types.NewErr("latest wants 1 to %d occurrences", latestMax)
	}
	times := e.last(int(n), key, addNs(nanoseconds(args[2]), -1), shifted(args[2], args[3]))
	list := make([]ref.Val, len(times))
	for i, ns := range times {
		list[i] = timestamp(ns)
	}
	e.note(reading{kind: readCall, name: "latest", key: key, value: types.Int(len(times))})
	return types.NewRefValList(types.DefaultTypeAdapter, list)
}

// last returns the last n occurrences in (fromNs, toNs], in order. It looks back
// in steps that grow, because a view reads forwards only and the beginning may
// be long ago.
func (e *evaluation) last(n int, key string, fromNs, toNs int64) []int64 {
	var times []int64
	for step := lookBackNs; len(times) < n && toNs > fromNs; step *= 8 {
		start := fromNs
		if back := addNs(toNs, -step); step > 0 && back > fromNs {
			start = back
		}
		var found []int64
		for ns := range e.occurrences(key, start, toNs) {
			if len(found) == 2*n { // only the last n count
				found = append(found[:0], found[n:]...)
			}
			found = append(found, ns)
		}
		times = append(found, times...)
		toNs = start
	}
	return times[max(0, len(times)-n):]
}

// lookBackNs is how far the first look back goes, in ns.
const lookBackNs = int64(time.Minute)

package oracle

import (
	"fmt"
	"math"
	"time"
)

// Condition is a random condition: its text, and what it means.
type Condition struct {
	Text  string
	Clock bool // it asks a function of time
	Ask   func(*Moment) Truth
}

// operand is a random value: its text, and what it is.
type operand struct {
	text  string
	clock bool
	value func(*Moment) any
}

// Generator makes random conditions. Two generators with one sequence of Choose
// and two of Literal make texts that differ in literals only.
type Generator struct {
	Choose  func(n int) int // a random number in [0, n)
	Literal func(n int) int // the same, for what is in literals
	StartNs int64           // of the timeline, unix ns
	TickNs  int64           // between two things that may happen
	Ticks   int             // of the timeline
	Shared  bool            // only what many plans answer alike
}

// Condition makes a condition of at most this many operators in a row.
func (g *Generator) Condition(depth int) Condition {
	if depth == 0 || g.Choose(4) == 0 {
		return g.leaf()
	}
	a, b := g.Condition(depth-1), g.Condition(depth-1)
	switch g.Choose(4) {
	case 0:
		return Condition{"!(" + a.Text + ")", a.Clock, func(m *Moment) Truth { return Not(a.Ask(m)) }}
	case 1:
		return Condition{"(" + a.Text + " && " + b.Text + ")", a.Clock || b.Clock,
			func(m *Moment) Truth { return And(a.Ask(m), b.Ask(m)) }}
	case 2:
		return Condition{"(" + a.Text + " || " + b.Text + ")", a.Clock || b.Clock,
			func(m *Moment) Truth { return Or(a.Ask(m), b.Ask(m)) }}
	}
	c := g.Condition(depth - 1)
	return Condition{"(" + a.Text + " ? " + b.Text + " : " + c.Text + ")", a.Clock || b.Clock ||
		c.Clock, func(m *Moment) Truth {
		switch a.Ask(m) {
		case True:
			return b.Ask(m)
		case False:
			return c.Ask(m)
		}
		return Unknown
	}}
}

func (g *Generator) leaf() Condition {
	switch g.Choose(7) {
	case 0, 1:
		return g.time()
	case 2:
		return g.closed()
	case 3:
		return g.loop()
	case 4:
		return g.under()
	}
	a, b := g.operand(), g.operand()
	operator := []string{"==", "!=", "<", ">="}[g.Choose(4)]
	return Condition{a.text + " " + operator + " " + b.text, a.clock || b.clock,
		func(m *Moment) Truth {
			return Compare(operator, a.value(m), b.value(m))
		}}
}

// Key is one of the facts that random conditions read and random events change.
func (g *Generator) Key() string { return []string{"a", "b", "c", "d", "ab"}[g.Literal(5)] }

// Fact is a random value of a fact, and its JSON.
func (g *Generator) Fact() (any, string) {
	n := g.Literal(4)
	switch g.Literal(8) {
	case 0, 1, 2:
		return n, fmt.Sprint(n)
	case 3:
		return 1.5, "1.5"
	case 4:
		return "b", `"b"`
	case 5:
		return nil, "null"
	case 6:
		return Object{"y", 1}, `{"y":1}`
	}
	return Object{"x", n}, fmt.Sprintf(`{"x":%d}`, n)
}

// key is the text of a fact key and what it says: a literal, or computed.
func (g *Generator) key() operand {
	key := g.Key()
	choice := g.Choose(9)
	if g.Shared && choice == 0 {
		choice = 1
	}
	switch choice {
	case 0:
		return operand{"action.k", false, func(m *Moment) any { return m.input("k") }}
	case 1:
		return operand{"plan.labels.l", false, planLabel}
	case 2:
		inner := g.Key()
		return operand{fmt.Sprintf("facts[%q]", inner), false,
			func(m *Moment) any { return m.fact(inner) }}
	}
	return operand{fmt.Sprintf("%q", key), false, func(*Moment) any { return key }}
}

func planLabel(m *Moment) any {
	if m.Plan.Label == "" {
		return Absent{}
	}
	return m.Plan.Label
}

func (m *Moment) input(name string) any {
	if m.Action == nil {
		return Absent{}
	}
	return field(m.Action.Input, name)
}

func (m *Moment) output(name string) any {
	if m.Action == nil || !m.Action.Completed {
		return Absent{}
	}
	return field(m.Action.Output, name)
}

// keyed asks about a key that may be computed; what is no text is no key.
func keyed(key operand, ask func(*Moment, string) any) func(*Moment) any {
	return func(m *Moment) any {
		if name, ok := key.value(m).(string); ok {
			return ask(m, name)
		}
		return Absent{}
	}
}

// truth is keyed for a question.
func truth(key operand, ask func(*Moment, string) Truth) func(*Moment) Truth {
	return func(m *Moment) Truth {
		if name, ok := key.value(m).(string); ok {
			return ask(m, name)
		}
		return Unknown
	}
}

func (g *Generator) operand() operand {
	n, key := g.Literal(4), g.key()
	choice := g.Choose(14)
	if g.Shared && choice >= 5 && choice < 11 {
		choice = 11
	}
	switch choice {
	case 0:
		return operand{fmt.Sprintf("dyn(%d)", n), false, func(*Moment) any { return n }}
	case 1:
		return operand{`dyn("b")`, false, func(*Moment) any { return "b" }}
	case 2:
		return operand{"dyn(plan.labels.l)", false, planLabel}
	case 3:
		return operand{"facts[" + key.text + "].x", false, keyed(key, func(m *Moment, k string) any {
			if o, ok := m.fact(k).(Object); ok && o.Field == "x" {
				return o.Value
			}
			return Absent{}
		})}
	case 4:
		name := g.Key()
		return operand{fmt.Sprintf("facts[?%q].orValue(1)", name), false, func(m *Moment) any {
			if v := m.fact(name); known(v) == True {
				return v
			}
			return 1
		}}
	case 5, 6, 7, 8, 9, 10:
		return g.own(choice)
	}
	return operand{"facts[" + key.text + "]", false, keyed(key, (*Moment).fact)}
}

// own is an operand that belongs to one plan or action.
func (g *Generator) own(choice int) operand {
	name := []string{"n", "missing"}[g.Choose(2)]
	switch choice {
	case 5:
		return operand{"dyn(plan.status)", false, func(m *Moment) any { return m.Plan.Status }}
	case 6:
		return operand{"dyn(verdict.outcome)", false, func(m *Moment) any {
			if m.Verdict == nil {
				return Absent{}
			}
			return m.Verdict.Outcome
		}}
	case 7:
		return operand{"dyn(action.output." + name + ")", false,
			func(m *Moment) any { return m.output(name) }}
	case 8:
		return operand{"dyn(action." + name + ")", false, func(m *Moment) any { return m.input(name) }}
	case 9:
		return operand{"dyn(action.outcome)", false, func(m *Moment) any {
			if m.Action == nil || m.Action.Outcome == "" {
				return Absent{}
			}
			return m.Action.Outcome
		}}
	}
	text := []string{"dyn(plan.actions)", "dyn(plan.step)"}[g.Choose(2)]
	return operand{text, false, func(m *Moment) any { return m.Plan.Actions }}
}

func (g *Generator) instant() operand {
	key := g.key()
	choice := g.Choose(8)
	if g.Shared && choice < 5 {
		choice = 5 + choice%3
	}
	switch choice {
	case 0:
		return operand{"action.at", false, func(m *Moment) any {
			if m.Action == nil {
				return Absent{}
			}
			return Time(m.Action.AtNs)
		}}
	case 1:
		return operand{"plan.deadline", false, func(m *Moment) any {
			if m.Plan.DeadlineNs == 0 {
				return Absent{}
			}
			return Time(m.Plan.DeadlineNs)
		}}
	case 2:
		return operand{"first_at(" + key.text + ")", true,
			keyed(key, func(m *Moment, k string) any { return m.after(k, true) })}
	case 3:
		return operand{"last_at(" + key.text + ")", true,
			keyed(key, func(m *Moment, k string) any { return m.after(k, false) })}
	case 4:
		if g.Choose(2) == 0 {
			return operand{"plan.active_at", false, func(m *Moment) any { return Time(m.Plan.ActiveNs) }}
		}
		return operand{"plan.opened_at", false, func(m *Moment) any { return Time(m.Plan.OpenedNs) }}
	case 5:
		return operand{"at(" + key.text + ")", true, keyed(key, (*Moment).at)}
	case 6:
		return operand{"since(" + key.text + ")", true, keyed(key, (*Moment).since)}
	}
	at := g.StartNs + int64(g.Literal(g.Ticks))*g.TickNs
	text := fmt.Sprintf("timestamp(%q)", time.Unix(0, at).UTC().Format(time.RFC3339Nano))
	return operand{text, false, func(*Moment) any { return Time(at) }}
}

// time is a leaf that asks a function of time.
func (g *Generator) time() Condition {
	t, key := g.instant(), g.key()
	n, d := 1+g.Literal(3), int64(1+g.Literal(8))*g.TickNs
	length := fmt.Sprintf(`duration("%dns")`, d)
	from := func(ask func(*Moment, int64) Truth) func(*Moment) Truth {
		return func(m *Moment) Truth {
			if at, ok := t.value(m).(Time); ok {
				return ask(m, int64(at))
			}
			return Unknown
		}
	}
	window := func(m *Moment) Truth {
		return truth(key, func(m *Moment, k string) Truth {
			return from(func(m *Moment, at int64) Truth { return m.within(k, at, d) })(m)
		})(m)
	}
	count := func(m *Moment, k string) int { return len(m.times(k, m.NowNs-d, math.MaxInt64)) }
	latest := func(m *Moment, k string, at int64) int {
		return len(m.times(k, at-1, at+d))
	}
	choice := g.Choose(10)
	if g.Shared && choice == 3 {
		choice = 6
	}
	switch choice {
	case 8:
		return Condition{fmt.Sprintf("size(latest(%d, %s, %s, %s)) == %d", n, key.text, t.text, length,
			n-1), true, truth(key, func(m *Moment, k string) Truth {
			return from(func(m *Moment, at int64) Truth {
				return TruthOf(min(n, latest(m, k, at)) == n-1)
			})(m)
		})}
	case 9:
		return Condition{fmt.Sprintf("latest(%d, %s, %s, %s).exists(x, x > %s)", n, key.text, t.text,
			length, t.text), true, truth(key, func(m *Moment, k string) Truth {
			return from(func(m *Moment, at int64) Truth {
				return TruthOf(len(m.times(k, at, at+d)) > 0)
			})(m)
		})}
	case 0:
		return Condition{"after(" + t.text + ")", true, from((*Moment).reached)}
	case 1:
		return Condition{"before(" + t.text + ")", true,
			from(func(m *Moment, at int64) Truth { return TruthOf(m.NowNs < at) })}
	case 2:
		return Condition{"elapsed(" + t.text + ", " + length + ")", true,
			from(func(m *Moment, at int64) Truth { return m.reached(at + d) })}
	case 3:
		return Condition{"seen(" + key.text + ")", true, truth(key, func(m *Moment, k string) Truth {
			if len(m.times(k, m.ArmedNs, math.MaxInt64)) > 0 {
				return True
			}
			return Unknown
		})}
	case 4:
		return Condition{"within(" + key.text + ", " + t.text + ", " + length + ")", true, window}
	case 5:
		return Condition{"absent_for(" + key.text + ", " + t.text + ", " + length + ")", true,
			func(m *Moment) Truth { return Not(window(m)) }}
	case 6:
		return Condition{fmt.Sprintf("at_least(%d, %s, %s)", n, key.text, length), true,
			truth(key, func(m *Moment, k string) Truth { return TruthOf(count(m, k) >= n) })}
	}
	return Condition{fmt.Sprintf("count(%s, %s) == %d", key.text, length, n-1), true,
		truth(key, func(m *Moment, k string) Truth { return TruthOf(count(m, k) == n-1) })}
}

// closed is a leaf that asks what is known now.
func (g *Generator) closed() Condition {
	key := g.Key()
	choice := g.Choose(7)
	if g.Shared && choice > 0 {
		choice = 6
	}
	switch choice {
	case 0:
		return Condition{fmt.Sprintf("has(facts[%q].x)", key), false, func(m *Moment) Truth {
			o, ok := m.fact(key).(Object)
			return TruthOf(ok && o.Field == "x")
		}}
	case 1:
		return Condition{"has(action.output.n)", false,
			func(m *Moment) Truth { return known(m.output("n")) }}
	case 2:
		return Condition{"has(verdict.outcome)", false,
			func(m *Moment) Truth { return TruthOf(m.Verdict != nil) }}
	case 3:
		return Condition{"has(plan.deadline)", false,
			func(m *Moment) Truth { return TruthOf(m.Plan.DeadlineNs > 0) }}
	case 4:
		return Condition{"has(action.missing)", false, func(*Moment) Truth { return False }}
	case 5:
		return Condition{"has(plan.labels.l)", false,
			func(m *Moment) Truth { return known(planLabel(m)) }}
	}
	return Condition{fmt.Sprintf("%q in facts", key), false,
		func(m *Moment) Truth { return known(m.fact(key)) }}
}

// under is a leaf over the facts whose keys begin with a prefix, of which one begins with another.
func (g *Generator) under() Condition {
	prefix, n := g.Key(), g.Literal(3)
	value := g.operand()
	each := func(m *Moment) (all []Truth) {
		v := value.value(m)
		for _, key := range m.under(prefix) {
			all = append(all, Compare("==", m.fact(key), v))
		}
		return all
	}
	loop := fmt.Sprintf("(%q, k, v, v == %s)", prefix, value.text)
	switch g.Choose(5) {
	case 0:
		return Condition{fmt.Sprintf("facts.exists(%q)", prefix), false,
			func(m *Moment) Truth { return TruthOf(len(m.under(prefix)) > 0) }}
	case 1:
		return Condition{fmt.Sprintf("facts.count(%q) == %d", prefix, n), false,
			func(m *Moment) Truth { return TruthOf(len(m.under(prefix)) == n) }}
	case 2:
		return Condition{"facts.exists" + loop, value.clock, func(m *Moment) Truth {
			truth := False
			for _, t := range each(m) {
				truth = Or(truth, t)
			}
			return truth
		}}
	case 3:
		return Condition{"facts.all" + loop, value.clock, func(m *Moment) Truth {
			truth := True
			for _, t := range each(m) {
				truth = And(truth, t)
			}
			return truth
		}}
	}
	return Condition{fmt.Sprintf("facts.count%s == %d", loop, n), value.clock, func(m *Moment) Truth {
		count := 0
		for _, t := range each(m) {
			switch t {
			case Unknown:
				return Unknown
			case True:
				count++
			}
		}
		return TruthOf(count == n)
	}}
}

// loop is a leaf over two facts.
func (g *Generator) loop() Condition {
	keys := [2]string{g.Key(), g.Key()}
	value := g.operand()
	list := fmt.Sprintf("[%q, %q]", keys[0], keys[1])
	each := func(m *Moment) (Truth, Truth) {
		v := value.value(m)
		return Compare("==", m.fact(keys[0]), v), Compare("==", m.fact(keys[1]), v)
	}
	if g.Choose(2) == 0 {
		return Condition{list + ".all(k, facts[k] == " + value.text + ")", value.clock,
			func(m *Moment) Truth { return And(each(m)) }}
	}
	return Condition{list + ".exists(k, facts[k] == " + value.text + ")", value.clock,
		func(m *Moment) Truth { return Or(each(m)) }}
}

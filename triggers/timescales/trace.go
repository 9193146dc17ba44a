package timescales

import "fmt"

// Kind says how a trace comes to violate its property.
type Kind uint8

// The kinds of traces.
const (
	Satisfying Kind = iota // the published shape throughout
	Planted                // with one failing segment, between nine tenths and the end
	Mutated                // with up to eight propositions turned over, anywhere
	Random                 // no shape: every proposition on its own
)

// String returns "satisfying", "planted", "mutated" or "random".
func (k Kind) String() string {
	switch k {
	case Satisfying:
		return "satisfying"
	case Planted:
		return "planted"
	case Mutated:
		return "mutated"
	case Random:
		return "random"
	default:
		panic(fmt.Sprintf("timescales: no such kind: %d", k))
	}
}

// Order is what to make a trace of. Equal orders make equal traces.
type Order struct {
	Kind  Kind
	Scale int // the bound b in rows, 10 or more
	Rows  int // at least; the last segment is made whole
	Seed  uint64
}

// Trace makes a trace of the property's shape.
func (p Property) Trace(o Order) []Row {
	a, b := Bounds(o.Scale)
	g := &generator{state: o.Seed, a: a, b: b}
	if o.Kind == Random {
		g.random(p.alphabet, o.Rows, p.Name[:6] == "Always")
		return g.rows
	}
	late := o.Rows
	if o.Kind == Planted {
		late = o.Rows*9/10 + g.between(0, o.Rows/20)
	}
	for planted := o.Kind != Planted; len(g.rows) < o.Rows || !planted; {
		fails := !planted && len(g.rows) >= late
		p.segment(g, fails)
		planted = planted || fails
	}
	if o.Kind == Mutated {
		for range g.between(0, 8) {
			g.rows[g.between(0, len(g.rows)-1)] ^= g.one(p.alphabet)
		}
	}
	return g.rows
}

// generator appends rows. Its numbers are splitmix64's, so that a seed is all that
// a trace depends on.
type generator struct {
	state uint64
	a, b  int
	rows  []Row
}

func (g *generator) next() uint64 {
	g.state += 0x9e3779b97f4a7c15
	z := g.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// between returns a number from low to high, both of them included.
func (g *generator) between(low, high int) int {
	return low + int(g.next()%uint64(high-low+1))
}

// maybe returns row or an empty one.
func (g *generator) maybe(row Row) Row { return row * Row(g.next()&1) }

// one returns one proposition of the alphabet.
func (g *generator) one(alphabet Row) Row {
	for {
		if p := Row(1) << g.between(0, 3); p&alphabet != 0 {
			return p
		}
	}
}

// add appends n times the same row.
func (g *generator) add(n int, row Row) {
	for range n {
		g.rows = append(g.rows, row)
	}
}

// random draws every proposition one to four times in b rows. One that is to be
// true always is false as often.
func (g *generator) random(alphabet Row, rows int, always bool) {
	var often [4]int
	for i := range often {
		often[i] = g.between(1, 4)
	}
	for range rows {
		row := Row(0)
		for i := range often {
			p := Row(1) << i
			if p&alphabet != 0 && g.between(1, g.b) <= often[i] != (always && p == P) {
				row |= p
			}
		}
		g.add(1, row)
	}
}

// absentAfter: b rows without p after q, then as many with or without.
func (g *generator) absentAfter(fails bool) {
	g.add(1, Q)
	if fails {
		g.add(g.b-1, 0)
		g.add(1, P)
		return
	}
	g.add(g.b, 0)
	for range g.b {
		g.add(1, g.maybe(P))
	}
}

// absentBefore: b rows with or without p, then as many without before r.
func (g *generator) absentBefore(fails bool) {
	if fails {
		g.add(1, P)
		g.add(g.b-1, 0)
		g.add(1, R)
		return
	}
	for range g.b {
		g.add(1, g.maybe(P))
	}
	g.add(g.b, 0)
	g.add(1, R)
}

// absentBetween: r comes between a and b rows after q, and p only after r.
func (g *generator) absentBetween(fails bool) {
	g.add(1, Q)
	if fails {
		g.add(g.b-1, 0)
		g.add(1, P)
		g.add(1, R)
		return
	}
	g.add(g.between(g.a, g.b-1), 0)
	g.add(1, R)
	g.add(1, g.maybe(P))
}

// alwaysAfter: b rows with p after q, then as many with or without.
func (g *generator) alwaysAfter(fails bool) {
	if fails {
		g.add(1, Q)
		g.add(g.b-1, P)
		g.add(1, 0)
		return
	}
	g.add(1, Q|P)
	g.add(g.b, P)
	for range g.b {
		g.add(1, g.maybe(P))
	}
}

// alwaysBefore: b rows with or without p, then as many with p before r.
func (g *generator) alwaysBefore(fails bool) {
	if fails {
		g.add(1, 0)
		g.add(g.b-1, P)
		g.add(1, R|P)
		return
	}
	for range g.b {
		g.add(1, g.maybe(P))
	}
	g.add(g.b, P)
	g.add(1, R|P)
}

// alwaysBetween: p holds from q to r, which comes between a and b rows later.
func (g *generator) alwaysBetween(fails bool) {
	g.add(1, Q|P)
	if fails {
		g.add(g.b+1, P)
		g.add(1, R|P)
		return
	}
	g.add(g.between(g.a, g.b-1), P)
	g.add(1, R|P)
	g.add(1, 0)
}

// recurGlobally: the next p comes within b rows. The first row has one.
func (g *generator) recurGlobally(fails bool) {
	if len(g.rows) == 0 {
		g.add(1, P)
	}
	if fails {
		g.add(g.b+1, 0)
		return
	}
	g.add(g.between(1, g.b)-1, 0)
	g.add(1, P)
}

// recurBetween: from q to r, one to seven times a p within b rows.
func (g *generator) recurBetween(fails bool) {
	g.add(1, Q)
	if fails {
		g.add(g.b+1, 0)
		g.add(1, R)
		return
	}
	k := 0
	for range g.between(1, 7) {
		k = g.between(1, g.b)
		g.add(k-1, 0)
		g.add(1, P)
	}
	g.add(k-1, 0)
	g.add(1, R)
	g.add(k-1, 0)
}

// respondGlobally: s answers p between a and b rows later.
func (g *generator) respondGlobally(fails bool) {
	g.add(1, P)
	if fails {
		g.add(g.b, 0)
		return
	}
	g.add(g.between(g.a+1, g.b)-1, 0)
	g.add(1, S)
}

// respondBetween: from q to r, one to seven times a p that s answers.
func (g *generator) respondBetween(fails bool) {
	g.add(1, Q)
	if fails {
		g.add(1, P)
		g.add(g.b+1, 0)
		g.add(1, R)
		return
	}
	g.add(1, 0)
	for range g.between(1, 7) {
		g.respondGlobally(false)
		g.add(1, 0)
	}
	g.add(1, R)
}

package timescales

import "math"

// The oracle is the definition of past-time MTL over a trace that begins at row 0,
// said as loops, with nothing remembered from row to row.

// formula is the truth of a formula at row i of a trace.
type formula func(rows []Row, i int) bool

// forever is the bound of an operator that has none.
const forever = math.MaxInt

// Violation returns the first row of the trace at which the property is violated,
// -1: none. It takes the time of the rows times the bound, and more.
func (p Property) Violation(rows []Row, scale int) int {
	holds := p.violation(Bounds(scale))
	for i := range rows {
		if !holds(rows, i) {
			return i
		}
	}
	return -1
}

// is holds where one of the propositions does.
func is(any Row) formula {
	return func(rows []Row, i int) bool { return rows[i]&any != 0 }
}

func not(f formula) formula {
	return func(rows []Row, i int) bool { return !f(rows, i) }
}

func implies(f, g formula) formula {
	return func(rows []Row, i int) bool { return !f(rows, i) || g(rows, i) }
}

// once[a:b] f: f held between a and b rows ago.
func once(a, b int, f formula) formula {
	return func(rows []Row, i int) bool {
		for j := i - a; j >= 0 && i-j <= b; j-- {
			if f(rows, j) {
				return true
			}
		}
		return false
	}
}

// historically[a:b] f: f held at all rows between a and b rows ago.
func historically(a, b int, f formula) formula {
	return func(rows []Row, i int) bool {
		for j := i - a; j >= 0 && i-j <= b; j-- {
			if !f(rows, j) {
				return false
			}
		}
		return true
	}
}

// f since[a:b] g: g held between a and b rows ago, and f at every row after it.
func since(a, b int, f, g formula) formula {
	return func(rows []Row, i int) bool {
		for j := i; j >= 0 && i-j <= b; j-- {
			if i-j >= a && g(rows, j) {
				return true
			}
			if !f(rows, j) {
				return false
			}
		}
		return false
	}
}

// scope is r && !q && once q.
func scope(rows []Row, i int) bool {
	return rows[i]&R != 0 && rows[i]&Q == 0 && once(0, forever, is(Q))(rows, i)
}

// response is (s -> once[a:b] p) and not(not(s) since[b:] p).
func response(a, b int) formula {
	answered, waiting := implies(is(S), once(a, b, is(P))), since(b, forever, not(is(S)), is(P))
	return func(rows []Row, i int) bool { return answered(rows, i) && !waiting(rows, i) }
}

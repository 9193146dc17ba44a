package timescales

import (
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/triggers"
)

func TestEqualOrdersMakeEqualTraces(t *testing.T) {
	for _, p := range Properties() {
		for _, kind := range []Kind{Satisfying, Planted, Mutated, Random} {
			o := Order{Kind: kind, Scale: 100, Rows: 5000, Seed: 7}
			rows := p.Trace(o)
			if len(rows) < o.Rows || !slices.Equal(rows, p.Trace(o)) {
				t.Errorf("%s %s: %d rows, or another trace the second time", p.Name, kind, len(rows))
			}
			if o.Seed = 8; kind == Random && slices.Equal(rows, p.Trace(o)) {
				t.Errorf("%s: another seed makes the same trace", p.Name)
			}
		}
	}
}

// The published shapes hold throughout; a failing segment is where it says.
func TestPublishedShapesHoldAndPlantedOnesFail(t *testing.T) {
	for _, p := range Properties() {
		for _, scale := range []int{10, 100, 1000} {
			o := Order{Kind: Satisfying, Scale: scale, Rows: 30 * scale, Seed: uint64(scale)}
			if row := p.Violation(p.Trace(o), scale); row != -1 {
				t.Errorf("%s, bound %d: violated at row %d", p.Name, scale, row)
			}
			o.Kind = Planted
			if row := p.Violation(p.Trace(o), scale); row < o.Rows*9/10 {
				t.Errorf("%s, bound %d: violated at row %d, planted behind %d", p.Name, scale, row, o.Rows*9/10)
			}
		}
	}
}

// Bounds that differ by one row have another first violation in some trace, so
// that a trigger with the wrong end of a window cannot pass for the right one.
func TestTracesTellEndsOfWindowsApart(t *testing.T) {
	const scale = 10
	a, b := Bounds(scale)
	for _, p := range Properties() {
		for _, other := range [][2]int{{a - 1, b}, {a + 1, b}, {a, b - 1}, {a, b + 1}} {
			lower := other[0] != a
			if lower && (p.Name[len(p.Name)-2:] != "QR" && p.Name != "RespondGLB" || p.Name == "RecurBQR") {
				continue // there is no lower bound
			}
			found := 0
			for seed := range uint64(200) {
				for _, kind := range []Kind{Mutated, Random} {
					rows := p.Trace(Order{Kind: kind, Scale: scale, Rows: 300, Seed: seed})
					if p.Violation(rows, scale) != first(p.violation(other[0], other[1]), rows) {
						found++
					}
				}
			}
			if found == 0 {
				t.Errorf("%s: no trace tells [%d:%d] from [%d:%d]", p.Name, a, b, other[0], other[1])
			}
		}
	}
}

func first(holds formula, rows []Row) int {
	for i := range rows {
		if !holds(rows, i) {
			return i
		}
	}
	return -1
}

// Operators of the oracle at their ends, written out.
func TestTheOracleCountsBothEnds(t *testing.T) {
	rows := []Row{Q, 0, P, 0, 0, P}
	for _, c := range []struct {
		name string
		f    formula
		want string // one digit per row
	}{
		{"once[0:2] p", once(0, 2, is(P)), "001111"},
		{"once[1:2] p", once(1, 2, is(P)), "000110"},
		{"once[2:2] p", once(2, 2, is(P)), "000010"},
		{"historically[0:1] not p", historically(0, 1, not(is(P))), "110010"},
		{"(not p) since q", since(0, forever, not(is(P)), is(Q)), "110000"},
		{"(not q) since[3:] p", since(3, forever, not(is(Q)), is(P)), "000001"},
		{"(not p) since[2:3] p", since(2, 3, not(is(P)), is(P)), "000010"},
	} {
		got := ""
		for i := range rows {
			if c.f(rows, i) {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != c.want {
			t.Errorf("%s holds at %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTriggersOfThePropertiesReadWhatTheirRowsAssert(t *testing.T) {
	for _, p := range Properties() {
		for _, scale := range []int{10, 100, 1000} {
			condition, err := triggers.Compile(p.Condition(scale))
			if err != nil {
				t.Errorf("%s: %v", p.Name, err)
				continue
			}
			keys, computed := condition.Keys()
			for _, key := range keys {
				if !slices.ContainsFunc(p.Facts(0, P|Q|R|S), func(f Fact) bool { return f.Key == key }) {
					t.Errorf("%s reads %q, which no row asserts", p.Name, key)
				}
			}
			if computed {
				t.Errorf("%s computes a key", p.Name)
			}
		}
	}
}

func TestRowsAssertTheirPropositionsInOrder(t *testing.T) {
	for name, want := range map[string]string{"AbsentBQR": "q=true p=true r=true ", "AlwaysAQ": "q=true p=true ",
		"RespondGLB": `call="s" p=true call="p" `} {
		for _, p := range Properties() {
			if p.Name != name {
				continue
			}
			got := ""
			for _, f := range p.Facts(3, P|Q|R|S) {
				got += f.Key + "=" + f.Value + " "
			}
			if got != want {
				t.Errorf("%s asserts %s, want %s", name, got, want)
			}
		}
	}
	for _, p := range Properties() {
		want := []Fact{{"row", "3"}}
		if p.Name[:6] == "Always" {
			want = []Fact{{"p", "false"}}
		}
		if got := p.Facts(3, 0); !slices.Equal(got, want) {
			t.Errorf("an empty row of %s asserts %v, want %v", p.Name, got, want)
		}
	}
}

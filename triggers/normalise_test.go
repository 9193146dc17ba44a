package triggers

import "testing"

func TestSpacedIsForTheEye(t *testing.T) {
	for expression, want := range map[string]string{
		`error.code  in["a","b"]||x==-1`:           `error.code in ["a", "b"] || x == -1`,
		`a?b-1:{"c":d,"e":-f}`:                     `a ? b - 1 : {"c": d, "e": -f}`,
		`a.?b.orValue("x:y?z,")`:                   `a.?b.orValue("x:y?z,")`,
		`a[?b]<=c&&!d`:                             `a[?b] <= c && !d`,
		`x.in==[?y,z]`:                             `x.in == [?y, z]`,
		`size(a.filter(c,c.d=='e'))==0?'f':'g'`:    `size(a.filter(c, c.d == 'e')) == 0 ? 'f' : 'g'`,
		`"1" in a`:                                 `"1" in a`,
		`after(plan.deadline)//c`:                  `after(plan.deadline)`,
		`a ? (b ? c : d) : [e ? f : g][0] - (h)-i`: `a ? (b ? c : d) : [e ? f : g][0] - (h) - i`,
		``: ``,
	} {
		got := Spaced(expression)
		if got != want || Normalise(got) != Normalise(expression) {
			t.Errorf("%s is shown as %s, want %s", expression, got, want)
		}
	}
}

func FuzzSpaced(f *testing.F) {
	for _, seed := range []string{`a?b:c`, `{"a":-1}`, `r"x" in b`, "`a b`.c", `a - -b`, `"""x"""`, `]]`, `?`} {
		f.Add(seed)
	}
	cache := NewCache(64)
	f.Fuzz(func(t *testing.T, expression string) {
		spaced := Spaced(expression)
		if _, err := cache.Reader(expression); err == nil && Normalise(spaced) != Normalise(expression) {
			t.Errorf("%q is shown as %q, which is another expression", expression, spaced)
		}
	})
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wood is a ground with one file, where one mutant can be planted.
func wood(t *testing.T) (ground, *strings.Builder, []mutant) {
	t.Helper()
	out := new(strings.Builder)
	g := ground{top: t.TempDir(), work: t.TempDir(), seeds: 9, out: out}
	write(t, filepath.Join(g.top, "tree.go"), "package tree\n\nconst leaves = 1\n")
	return g, out, []mutant{{"no leaves", "tree.go", "leaves = 1", "leaves = 0"}}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Where tests fail without a mutant, each mutant that they came to would count as found.
func TestTestsThatFailWithoutAMutantFindNone(t *testing.T) {
	g, out, mutants := wood(t)
	for name, c := range map[string]struct {
		only, plain, planted string // what is asked for, and what fails without a mutant and with it
		tries                int
		survived             int
		says, wrong          string
	}{
		"they pass, and find it":      {"", "", "seed 3", 2, 0, "1 mutants, 1 found, 0 survived", ""},
		"they pass, and find nothing": {"", "", "", 2, 1, "SURVIVED", ""},
		"they fail":                   {"", "seed 3", "seed 3", 1, 0, "", "tests of core fail without a mutant: seed 3"},
		"they fail, by its name":      {"no leaves", "seed 3", "seed 3", 1, 0, "", "tests of core fail without a mutant"},
		"they fail, by where it is":   {"core", "seed 3", "seed 3", 1, 0, "", "tests of core fail without a mutant"},
		"another one is asked for":    {"no roots", "seed 3", "seed 3", 0, 0, "", "no mutant is called"},
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			tries := 0
			look := func(_ context.Context, overlay string) (string, error) {
				tries++
				text, err := os.ReadFile(overlay)
				if strings.Contains(string(text), "tree.go") {
					return c.planted, err
				}
				return c.plain, err
			}
			survived, err := g.hunt(t.Context(), c.only, []search{{"core", mutants, look}})
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("the error is %v, want %q", err, c.wrong)
			}
			if survived != c.survived || tries != c.tries || !strings.Contains(out.String(), c.says) {
				t.Errorf("%d survived, want %d; %d runs of the tests, want %d; it says %q, want %q", survived, c.survived,
					tries, c.tries, out, c.says)
			}
			if c.wrong != "" && out.Len() > 0 {
				t.Errorf("it says %q of mutants that were not tried", out)
			}
		})
	}
}

// What the simulator prints of a seed is read, with a mutant and without.
func TestASeedThatFailsWithoutAMutantIsNamed(t *testing.T) {
	g, out, mutants := wood(t)
	write(t, filepath.Join(g.top, "go.mod"), "module wood\n")
	write(t, filepath.Join(g.top, "executor", "sim", "sim_test.go"), `package sim

import (
	"flag"
	"testing"
)

var seed, seeds = flag.Int("seed", 0, ""), flag.Int("seeds", 0, "")

func TestNewSeeds(t *testing.T) {
	t.Errorf("seed=%d: faults none\nI7: rows differ, of %d", *seed+4, *seeds)
}
`)
	survived, err := g.hunt(t.Context(), "", []search{{"core", mutants, g.simulate}})
	want := "the tests of core fail without a mutant: seed     5  I7: rows differ, of 9"
	if err == nil || err.Error() != want || survived != 0 || out.Len() > 0 {
		t.Errorf("%d survived, %v; want %q; it says %q", survived, err, want, out)
	}
}

// A hunt takes long: one that was ended is gone on with.
func TestAHuntGoesOnWithAMutant(t *testing.T) {
	one, two, three := mutant{name: "one"}, mutant{name: "two"}, mutant{name: "three"}
	searches := []search{{in: "core", mutants: []mutant{one, two}}, {in: "host", mutants: []mutant{three}}}
	for from, want := range map[string]string{"": "one two three", "one": "one two three", "two": "two three",
		"three": "three"} {
		rest, err := after(from, searches)
		var names []string
		for _, s := range rest {
			for _, m := range s.mutants {
				names = append(names, m.name)
			}
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("from %q: %s, %v, want %s", from, got, err, want)
		}
	}
	if _, err := after("four", searches); err == nil || !strings.Contains(err.Error(), `no mutant is called "four"`) {
		t.Errorf("a mutant that is none: %v", err)
	}
}

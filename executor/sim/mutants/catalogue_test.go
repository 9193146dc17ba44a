package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A mutant whose place has been rewritten is no mutant any more.
func TestEveryMutantChangesOnePlaceOfTheTree(t *testing.T) {
	if len(catalogue) < 30 {
		t.Errorf("%d mutants; at least 30", len(catalogue))
	}
	names := map[string]bool{}
	all := slices.Concat(catalogue, ofTurns)
	for folder, mutants := range shell {
		if len(mutants) == 0 || len(folder) == 0 {
			t.Errorf("no mutants of %q", folder)
		}
		all = append(all, mutants...)
	}
	for _, m := range all {
		if names[m.name] {
			t.Errorf("%q is there twice", m.name)
		}
		names[m.name] = true
		source, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(m.file)))
		if err != nil {
			t.Fatal(err)
		}
		mutated, err := m.apply(source)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, mutated, parser.SkipObjectResolution); err != nil {
			t.Errorf("%q does not parse: %v", m.name, err)
		}
	}
}

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/triggers"
)

// ListFilter is --filter of a list. Its zero value picks everything.
type ListFilter struct {
	name       string // of an entry in the expression
	expression string
	compiled   *triggers.ListFilter
}

// Flag adds --filter to a list of entries of a name; the expression is checked before the
// command runs.
func (f *ListFilter) Flag(cmd *cobra.Command, name, example string) {
	f.name = name
	cmd.PreRunE = func(*cobra.Command, []string) error { return f.check() }
	cmd.Flags().StringVar(&f.expression, "filter", "",
		fmt.Sprintf("only where this CEL `EXPR` over the fields of -o json is true, as in '%s'",
			example))
}

// check compiles the expression, once.
func (f *ListFilter) check() error {
	if f.expression == "" || f.compiled != nil {
		return nil
	}
	compiled, err := triggers.CompileListFilter(f.name, f.expression)
	var bad *triggers.Error
	if errors.As(err, &bad) {
		return Fail(ExitUsage, bad.Hint, "--filter, line %d, column %d: %s", bad.Line, bad.Column,
			bad.Message)
	}
	f.compiled = compiled
	return err
}

// picks reports whether an entry passes; check was called.
func (f *ListFilter) picks(entry any) bool {
	if f == nil || f.compiled == nil {
		return true
	}
	text, err := json.Marshal(entry)
	if err != nil {
		panic("sagenbaum: cannot encode an entry: " + err.Error())
	}
	return f.compiled.Matches(text, time.Now().UnixNano())
}

// pageOf is how many entries a question asks for when some are still wanted: a filter
// may pick few of them.
func pageOf(wanted int, only *ListFilter) int {
	if only != nil && only.compiled != nil {
		return PageSize
	}
	return min(PageSize, wanted)
}

// Picked are the entries of a list that pass.
func Picked[T any](f *ListFilter, entries []T) []T {
	if f == nil || f.compiled == nil {
		return entries
	}
	out := []T{}
	for _, entry := range entries {
		if f.picks(entry) {
			out = append(out, entry)
		}
	}
	return out
}

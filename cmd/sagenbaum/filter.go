package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/triggers"
)

// listFilter is --filter of a list. Its zero value picks everything.
type listFilter struct {
	name       string // of an entry in the expression
	expression string
	compiled   *triggers.ListFilter
}

// flag adds --filter to a list of entries of a name.
func (f *listFilter) flag(cmd *cobra.Command, name, example string) {
	f.name = name
	cmd.Flags().StringVar(&f.expression, "filter", "", fmt.Sprintf("only where this CEL `EXPR` over the fields of -o json is true, as in '%s'", example))
}

// check compiles the expression, once.
func (f *listFilter) check() error {
	if f.expression == "" || f.compiled != nil {
		return nil
	}
	compiled, err := triggers.CompileListFilter(f.name, f.expression)
	var bad *triggers.Error
	if errors.As(err, &bad) {
		return fail(exitUsage, bad.Hint, "--filter, line %d, column %d: %s", bad.Line, bad.Column, bad.Message)
	}
	f.compiled = compiled
	return err
}

// picks reports whether an entry passes; check was called.
func (f *listFilter) picks(entry any) bool {
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
func pageOf(wanted int, only *listFilter) int {
	if only != nil && only.compiled != nil {
		return pageSize
	}
	return min(pageSize, wanted)
}

// picked are the entries of a list that pass.
func picked[T any](f *listFilter, entries []T) []T {
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

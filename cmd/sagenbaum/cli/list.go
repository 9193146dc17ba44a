package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"
)

// Listing is one batch that a list asks for.
type Listing struct {
	Ctx    context.Context
	Client *Client // nil for a list that is offline
	Args   []string
	After  string // the place after which the batch begins; empty: at the first entry
	Limit  int    // the most entries that the batch may have
}

// List declares a command that lists entries of type T: it asks for batch after batch until
// --limit entries pass --filter, and prints them as data or as a table.
type List[T any] struct {
	Command *cobra.Command // its use, texts and own flags; without Args it takes none
	Doing   string         // what cannot be done where Ask fails: "list plans"
	Offline bool           // it needs no connection

	Name, Filter string // an entry's name in --filter, and an example of one
	Most, From   string // the help texts of --limit and --after; empty: no such flag

	// CheckAfter refuses an --after that can be no place; nil takes any.
	CheckAfter func(after string) error
	// Check refuses flags before anything is asked; nil checks nothing.
	Check func() error
	// Ask returns one batch, and the place where the next one begins after; "": there is none.
	Ask func(in Listing) (entries []T, next string, err error)
	// Place is where a list goes on that ends with an entry. Without it a list that is
	// filtered ends with the last batch that was asked for.
	Place func(entry T) string

	Data func(entries []T, next string) any // what -o json prints
	// Empty is printed to stderr where nothing is listed; TENANT in it is the tenant.
	Empty string
	Table Table
	// Paint paints the cells of one column of the table, the second unless Painted says another.
	Paint   func(p Pen, cell string) string
	Painted int
	Row     func(t *Table, entry T)
	// Write prints the entries instead of Table and Row.
	Write func(out io.Writer, p Pen, entries []T)
	// GoOn is the command, or its flags, that lists what comes after a place.
	GoOn func(next string) string
	// More is a line on stderr after the table; it may be nil, and empty.
	More func(entries []T) string
	// Look reports whether an entry wants to be looked at: the exit code is 1 then.
	Look func(entry T) bool
}

// New makes the command.
func (l List[T]) New(s *Settings) *cobra.Command {
	var only ListFilter
	var after string
	limit := math.MaxInt
	cmd := l.Command
	if cmd.Args == nil {
		cmd.Args = Exactly()
	}
	if l.Most != "" {
		cmd.Flags().IntVar(&limit, "limit", 100, l.Most)
	}
	if l.From != "" {
		cmd.Flags().StringVar(&after, "after", "", l.From)
	}
	only.Flag(cmd, l.Name, l.Filter)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if l.Check != nil {
			if err := l.Check(); err != nil {
				return err
			}
		}
		if limit < 1 {
			return Fail(ExitUsage, "--limit 100", "a limit of %d lists nothing", limit)
		}
		if l.CheckAfter != nil && after != "" {
			if err := l.CheckAfter(after); err != nil {
				return Usage("--after", err)
			}
		}
		in := Listing{Ctx: cmd.Context(), Args: args, After: after}
		work := func(c *Client) error {
			in.Client = c
			entries, next, err := Batches(cmd.CommandPath(), in, limit, &only, l.Ask, l.Place)
			if err != nil {
				return l.failed(err)
			}
			said := l
			said.Empty = l.empty(s.Tenant, after, only.expression)
			return said.print(s, cmd, entries, next)
		}
		if l.Offline {
			return work(nil)
		}
		return s.With(work)
	}
	return cmd
}

// empty says that nothing is listed: of all, or of what was asked for.
func (l List[T]) empty(tenant, after, filter string) string {
	switch {
	case after != "" && filter != "":
		return "nothing after " + Printable(after) + " passes --filter"
	case after != "":
		return "nothing is listed after " + Printable(after)
	case filter != "":
		return "nothing passes --filter"
	}
	return strings.ReplaceAll(l.Empty, "TENANT", tenant)
}

func (l List[T]) failed(err error) error {
	if l.Doing == "" {
		return err
	}
	return Failed(l.Doing, err)
}

func (l List[T]) print(s *Settings, cmd *cobra.Command, entries []T, next string) error {
	wanted := false
	for _, entry := range entries {
		wanted = wanted || l.Look != nil && l.Look(entry)
	}
	err := s.Print(cmd, l.Data(entries, next), func() { l.write(s, cmd, entries, next) })
	return Look(err, wanted)
}

func (l List[T]) write(s *Settings, cmd *cobra.Command, entries []T, next string) {
	if len(entries) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), l.Empty)
		return
	}
	if l.Write != nil {
		l.Write(cmd.OutOrStdout(), s.Pen(cmd), entries)
	} else {
		t := l.Table
		if p := s.Pen(cmd); l.Paint != nil {
			t.Paint = PaintColumn(max(l.Painted, 1),
				func(cell string) string { return l.Paint(p, cell) })
		}
		for _, entry := range entries {
			l.Row(&t, entry)
		}
		t.Write(cmd.OutOrStdout())
	}
	if next != "" && l.GoOn != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "there are more:", l.GoOn(next))
	}
	if l.More == nil {
		return
	}
	if line := l.More(entries); line != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	}
}

// Batches asks for batch after batch until limit entries pass a filter or there are no more,
// and returns where the list goes on; what names the list in an error.
func Batches[T any](
	what string, in Listing, limit int, only *ListFilter,
	ask func(in Listing) ([]T, string, error), place func(entry T) string,
) (all []T, next string, err error) {
	all = []T{}
	seen := map[string]bool{in.After: true}
	for {
		var entries []T
		in.Limit = pageOf(limit-len(all), only)
		if entries, next, err = ask(in); err != nil {
			return all, next, err
		}
		all = append(all, Picked(only, entries)...)
		if place != nil && len(all) > limit {
			all = all[:limit]
			next = place(all[limit-1])
		}
		if next == "" || len(all) >= limit {
			return all, next, nil
		}
		if seen[next] { // this would never end
			return all, next, Fail(ExitFailed, "sagenbaum doctor",
				"the batches of %s go in a circle at %s", what, next)
		}
		seen[next], in.After = true, next
	}
}

// Show declares a command that shows one thing of type T.
type Show[T any] struct {
	Command *cobra.Command // its use, texts, arguments and flags; without Args it takes none
	Doing   string         // what cannot be done where Ask fails: "show the plan"
	Ask     func(ctx context.Context, c *Client, args []string) (T, error)
	Write   func(out io.Writer, p Pen, v T)
	Data    func(v T) any    // what -o json prints, where that is not the thing itself
	Look    func(v T) bool   // it wants to be looked at: the exit code is 1 then
	Next    func(v T) string // printed to stderr after it; it may be nil
	Over    func(v T) bool   // it cannot change any more, which ends --watch
}

// New makes the command.
func (w Show[T]) New(s *Settings) *cobra.Command {
	cmd := w.Command
	if cmd.Args == nil {
		cmd.Args = Exactly()
	}
	cmd.RunE = s.Connected(func(cmd *cobra.Command, args []string, c *Client) error {
		v, err := w.Ask(cmd.Context(), c, args)
		if err != nil {
			return Failed(w.Doing, err)
		}
		var data any = v
		if w.Data != nil {
			data = w.Data(v)
		}
		err = s.Print(cmd, data, func() {
			w.Write(cmd.OutOrStdout(), s.Pen(cmd), v)
			if w.Next != nil && w.Next(v) != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), w.Next(v))
			}
		})
		end := Look(err, w.Look != nil && w.Look(v))
		if err == nil && w.Over != nil && w.Over(v) {
			return Over(end)
		}
		return end
	})
	return cmd
}

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

func newUndo(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:     "undo",
		Short:   "Look at the attempts of undos",
		Example: "  sagenbaum undo ls --plan 01JD3BX7\n  sagenbaum undo ls --capability payments.charge",
	}, watchable(s, newUndoLs(s)), watchable(s, newUndoShow(s)))
}

func newUndoLs(s *settings) *cobra.Command {
	var q executor.UndoQuery
	var limit int
	var only listFilter
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the attempts of undos: of a plan, of an action, or of a capability",
		Long: `List the attempts of undos, each with its state and where its time went: of a plan,
of one action of it, or of everything that a capability did.

  WAITED  from when it could have been dispatched until it was
  QUEUED  from the dispatch until the worker had it, and back
  WORK    the worker's own time, and of that SETUP, TOOL and LLM, where it says so`,
		Example: `  sagenbaum undo ls --plan 01JD3BX7
  sagenbaum undo ls --plan 01JD3BX7 --action 4 -o json
  sagenbaum undo ls --capability payments.charge --limit 1000 --filter 'undo.state == "failed"'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkUndoQuery(q, limit); err != nil {
				return err
			}
			if err := only.check(); err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			return failed("list undos", listUndos(cmd, s, c, q, limit, &only))
		},
	}
	cmd.Flags().StringVar(&q.Plan, "plan", "", "attempts of this `PLAN`")
	cmd.Flags().StringVar(&q.Action, "action", "", "only of this `ACTION` of the plan, by its number or id")
	cmd.Flags().StringVar(&q.Capability, "capability", "", "attempts to undo what this `CAPABILITY` did, in the order of dispatch")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` attempts")
	cmd.Flags().StringVar(&q.After, "after", "", "go on behind this `PLACE`, as printed when there are more")
	only.flag(cmd, "undo", `undo.state == "failed"`)
	return cmd
}

func checkUndoQuery(q executor.UndoQuery, limit int) error {
	const which = "--plan PLAN [--action ACTION], or --capability NAME"
	switch {
	case (q.Plan == "") == (q.Capability == ""):
		return fail(exitUsage, which, "undos of what?")
	case q.Action != "" && q.Plan == "":
		return fail(exitUsage, which, "--action is one of a plan")
	case q.Capability != "" && !ledger.ValidCapability(q.Capability):
		return fail(exitUsage, "--capability NAME, as in git.branch.create", "%q is not a capability", q.Capability)
	case limit < 1:
		return fail(exitUsage, "--limit 100", "a limit of %d lists nothing", limit)
	}
	return nil
}

func listUndos(cmd *cobra.Command, s *settings, c *client, q executor.UndoQuery, limit int, only *listFilter) error {
	ctx := cmd.Context()
	if q.Plan != "" && q.Action != "" {
		plan, err := c.plan(ctx, q.Plan, 0)
		if err != nil {
			return err
		}
		a, err := findAction(plan, q.Action)
		if err != nil {
			return err
		}
		q.Action = a.Action
	}
	answer, err := c.undosWhere(ctx, q, limit, only)
	if err != nil {
		return err
	}
	if s.json() {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	if len(answer.Undos) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was dispatched")
		return nil
	}
	writeUndos(cmd.OutOrStdout(), s.pen(cmd), forPeople(answer).Undos, q.Plan == "")
	if answer.Next != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "there are more: --after %s\n", answer.Next)
	}
	return nil
}

// undos asks page after page until it has limit attempts or there are no more.
func (c *client) undos(ctx context.Context, q executor.UndoQuery, limit int) (executor.UndosAnswer, error) {
	return c.undosWhere(ctx, q, limit, nil)
}

// undosWhere is undos with those only that a filter picks; with one it may return more
// than limit, up to the end of a page.
func (c *client) undosWhere(ctx context.Context, q executor.UndoQuery, limit int, only *listFilter) (executor.UndosAnswer, error) {
	all := executor.UndosAnswer{Undos: []executor.UndoView{}}
	for {
		q.Limit = pageOf(limit-len(all.Undos), only)
		var page executor.UndosAnswer
		if err := c.ask(ctx, "undo.ls", q, &page); err != nil {
			return all, err
		}
		all.Undos, all.Next = append(all.Undos, picked(only, page.Undos)...), page.Next
		if page.Next == "" || len(all.Undos) >= limit {
			return all, nil
		}
		if len(page.Undos) == 0 || page.Next == q.After { // this would never end
			return all, fail(exitFailed, "sagenbaum doctor", "the pages of undo.ls go in a circle at %s", page.Next)
		}
		q.After = page.Next
	}
}

// writeUndos prints attempts as a table, with their plans when those differ.
func writeUndos(w io.Writer, p pen, undos []executor.UndoView, plans bool) {
	t := table{head: []string{"#", "ACTION", "UNDO BY", "TRY", "STATE", "DISPATCHED", "WAITED", "QUEUED", "WORK", "SETUP", "TOOL", "LLM", "WORKER", "CODE"}, elastic: []string{"UNDO BY", "WORKER", "CODE"}, spare: []string{"SETUP", "TOOL", "LLM", "QUEUED", "WAITED", "DISPATCHED"}}
	state := 4
	if plans {
		t.head = append([]string{"PLAN"}, t.head...)
		state++
	}
	t.paint = func(column int, cell string) string {
		if column == state {
			return p.in(undoColors[cell], cell)
		}
		return cell
	}
	for _, u := range undos {
		row := []string{
			fmt.Sprint(u.Number), u.Action, u.Compensation, fmt.Sprint(u.Attempt), u.State, clock(u.DispatchedNs),
			lasted(u.WaitedNs), lasted(u.QueuedNs), lasted(u.WorkNs), lasted(u.SetupNs), lasted(u.ToolNs), lasted(u.LLMNs),
			dash(u.Worker), dash(u.Code),
		}
		if plans {
			row = append([]string{u.Plan}, row...)
		}
		t.add(row...)
	}
	t.write(w)
}

// undoColors are the SGR codes of the states of an attempt.
var undoColors = map[string]string{"dispatched": "33", "done": "32", "failed": "31;1", "in_doubt": "33", "superseded": "2"}

// lasted prints a duration in ns, "-" for one that nobody told.
func lasted(ns int64) string {
	switch d := time.Duration(ns); {
	case ns == 0:
		return "-"
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	default:
		return span(d)
	}
}

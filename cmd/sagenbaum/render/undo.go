package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// WriteUndos prints attempts as a table, with their plans when those differ.
func WriteUndos(w io.Writer, p cli.Pen, undos []api.Undo, plans bool) {
	t := cli.Table{Head: []string{"#", "ACTION", "UNDO BY", "TRY", "STATE", "DISPATCHED", "WAITED",
		"QUEUED", "WORK", "SETUP", "TOOL", "LLM", "WORKER", "CODE"},
		Elastic: []string{"UNDO BY", "WORKER", "CODE"},
		Spare:   []string{"SETUP", "TOOL", "LLM", "QUEUED", "WAITED", "DISPATCHED"}}
	if len(undos) > 0 && !slices.ContainsFunc(undos, func(u api.Undo) bool {
		return !strings.HasSuffix(u.Plan, "~0")
	}) {
		t.Head[2], t.Elastic[0] = "MADE BY", "MADE BY" // they are deliveries
	}
	state := 4
	if plans {
		t.Head = append([]string{"PLAN"}, t.Head...)
		state++
	}
	t.Paint = cli.PaintColumn(state,
		func(cell string) string { return p.In(UndoColors[cell], cell) })
	for _, u := range undos {
		row := []string{
			fmt.Sprint(u.Number), u.Action, u.Compensation, fmt.Sprint(u.Attempt), u.State,
			cli.Clock(u.DispatchedNs),
			Lasted(u.WaitedNs), Lasted(u.QueuedNs), Lasted(u.WorkNs), Lasted(u.SetupNs),
			Lasted(u.ToolNs), Lasted(u.LLMNs),
			cli.Dash(u.Worker), cli.Dash(u.Code),
		}
		if plans {
			row = append([]string{u.Plan}, row...)
		}
		t.Add(row...)
	}
	t.Write(w)
}

// UndoColors are the SGR codes of the states of an attempt.
var UndoColors = map[string]string{"dispatched": "33", "done": "32", "failed": "31;1",
	"in_doubt": "33", "superseded": "2", "ahead": "33", "recalled": "2"}

// Lasted prints a duration in ns, "-" for one that is not known.
func Lasted(ns int64) string {
	switch d := time.Duration(ns); {
	case ns == 0:
		return "-"
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	default:
		return cli.Span(d)
	}
}

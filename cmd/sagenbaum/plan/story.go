package plan

import (
	"fmt"
	"io"
	"strings"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// writeStory prints what an undo waits for and the records that caused an unwind, each with
// its kind and address.
//
//	records, in the order of the ledger; any of them: sagenbaum ledger show SEQUENCE
//	  cause    plan_failed@9.0-547ab179              the plan was declared failed: no seats (agent traveller)
//	  lease    lease_fired@10.0-0fd319a7             lease plan.failed turned true (executor)
//	             because of plan_failed@9.0-547ab179
//	             plan.status == "failed"
//	             read plan.status = "failed" (sequence 9)
func writeStory(w io.Writer, p cli.Pen, why api.Why) {
	for _, wait := range why.Waits {
		switch {
		case wait.ToDrop:
			wait.Undo = render.ToBeDropped
		case why.Delivers && wait.Undo == "owed":
			wait.Undo = "to be delivered"
		}
		fmt.Fprintf(w, "action %d %s is %s and waits for %s\n", wait.Number, wait.Action,
			p.State(wait.Undo), wait.For)
	}
	of := ""
	if why.Action != "" {
		of = " of action " + why.Action
	}
	if len(why.Records) > 0 {
		fmt.Fprintf(w,
			"records%s, in the order of the ledger; any of them: sagenbaum ledger show SEQUENCE\n",
			of)
	}
	width := 0
	for _, line := range why.Records {
		width = max(width, len(line.Record))
	}
	for _, line := range why.Records {
		writeStoryLine(w, p, why, line, width)
	}
	if len(why.Records) == 1 && why.Records[0].Kind == "plan_opened" {
		fmt.Fprintln(w, "nothing has happened to it since")
	}
	if why.Left != "" {
		fmt.Fprintf(w, "%s %s\n", p.In("33", "left out:"), why.Left)
	}
}

func writeStoryLine(w io.Writer, p cli.Pen, why api.Why, line api.StoryLine,
	width int) {
	text := line.Text
	switch {
	case line.Plan != "" && line.Plan != why.Plan && line.Action != "":
		text = "action " + line.Action + " of plan " + line.Plan + ": " + text
	case line.Plan != "" && line.Plan != why.Plan:
		text = "plan " + line.Plan + ": " + text
	case line.Action != "":
		text = "action " + line.Action + ": " + text
	}
	fmt.Fprintf(w, "  %-8s %s  %s %s\n", line.Role,
		p.Bold(line.Record)+strings.Repeat(" ", width-len(line.Record)), cli.Clip(text, 240),
		p.Dim("("+line.By+", "+cli.Moment(line.TimeNs)+")"))
	note := func(format string, args ...any) {
		fmt.Fprintf(w, "  %-8s   %s\n", "", fmt.Sprintf(format, args...))
	}
	if line.Because != "" {
		note("because of %s", line.Because)
	}
	if line.Condition != "" {
		note("condition: %s", cli.Clip(line.Condition, 160))
	}
	for _, read := range line.Read {
		at := ""
		if read.Record != "" {
			at = " (sequence " + read.Record + ")"
		}
		note("read %s = %s%s", read.Name, cli.Clip(read.Known(), 120), at)
	}
	if line.Void != "" {
		note("%s %s", p.In("31", "it does not count:"), cli.Clip(line.Void, 200))
	}
}

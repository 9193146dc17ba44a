package verify

import (
	"fmt"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// whyMax bounds the records that a report tells of one plan.
const whyMax = 10_000

// tell keeps the records that were asked for, with what became of them.
func (c *check) tell(entries []ledger.Entry, verdicts []audit.Entry) {
	if c.options.Why == "" {
		return
	}
	for i, e := range entries {
		plan, _, _ := strings.Cut(e.Record.GetPlan(), "~") // what undoes it belongs to it
		action, _, _ := strings.Cut(e.Record.GetAction(), "~")
		if plan != c.options.Why && e.Record.GetPlan() != c.options.Why ||
			c.options.WhyAction != "" && action != "" && action != c.options.WhyAction {
			continue
		}
		c.found = c.found || c.options.WhyAction == "" || action != ""
		if len(c.told) >= whyMax {
			c.report.WhyMore++
			continue
		}
		t := ledger.Told{Entry: e}
		if verdicts != nil && (verdicts[i].Verdict == audit.Refused ||
			verdicts[i].Verdict == audit.Void) {
			t.Void = verdicts[i].Rule + ": " + verdicts[i].Reason
		}
		c.told = append(c.told, t)
	}
}

func ofAction(id string) string {
	if id == "" {
		return ""
	}
	return ", action " + id + ","
}

// story reads "lease    10.0-0fd319a7 lease_fired, action a: lease plan.failed turned true
// (executor, 2026-01-02T03:04:05Z)".
func story(l api.StoryLine) string {
	about := ""
	if l.Action != "" {
		about = ", action " + l.Action
	}
	return fmt.Sprintf("%-8s %s%s: %s (%s, %s)", l.Role, l.Record, about, l.Text, l.By,
		time.Unix(0, l.TimeNs).UTC().Format(time.RFC3339))
}

// storyNotes are what explains a line: its cause, its condition and what that read, and
// why it does not count.
func storyNotes(l api.StoryLine) (notes []string) {
	if l.Because != "" {
		notes = append(notes, "because of "+l.Because)
	}
	if l.Condition != "" {
		notes = append(notes, "condition: "+l.Condition)
	}
	for _, r := range l.Read {
		text := "read " + r.Name + " = " + r.Known()
		if r.Record != "" {
			text += " (sequence " + r.Record + ")"
		}
		notes = append(notes, text)
	}
	if l.Void != "" {
		notes = append(notes, "it does not count: "+l.Void)
	}
	return notes
}

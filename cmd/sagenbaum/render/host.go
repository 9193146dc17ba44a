package render

import (
	"fmt"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// KeepLedger is what to do first when the ledger is damaged: look what a repair
// would keep.
const KeepLedger = "sagenbaum ledger repair --dry-run --reason \"look first\"; then the same " +
	"without --dry-run, if it loses and drops nothing that should stay (docs/guide/repair.md)"

// HaltedNext says what the guard asks for that has halted a tenant; nil: it is not known.
func HaltedNext(halt *api.Halt) string {
	if halt == nil {
		return KeepLedger
	}
	switch halt.Guard {
	case "G1":
		return "records are missing: " + KeepLedger
	case "G2":
		return "this is not the ledger that was folded before: if the state folder is the one " +
			"that came from elsewhere, sagenbaum rebuild; else " + KeepLedger
	case "G3", "G4":
		return "the stream is not what its copy in tiles says: if these came from elsewhere, or are " +
			"another tenant's, put the right ones back; else " + KeepLedger
	case "G5":
		return "what this host has folded is not what the leader of the stream has: stop it, move " +
			"executor/state and executor/tiles/TENANT of its data away, and start it; but where each " +
			"host is halted so, the servers have changed: keep all tiles (docs/guide/repair.md)"
	case "core":
		return "the ledger is whole, and this version cannot go on from it: keep its data folder " +
			"as it is, report the problem, and run a later version on the same folder " +
			"(docs/architecture.md, Guards)"
	case "reader":
		return "a newer sagenbaum wrote this: run that version or a later one on the same folder " +
			"(docs/architecture.md, Guards)"
	default:
		return KeepLedger
	}
}

// UnpagedText counts the pages that no one has taken and names the oldest.
func UnpagedText(v api.Status, now time.Time) string {
	text := cli.CountOf(v.Unpaged, "page") + " that no one has taken"
	if o := v.OldestPage; o != nil {
		text += fmt.Sprintf("; the oldest, %s of plan %s", o.Kind, o.Plan)
		if o.Action != "" {
			text += " action " + o.Action
		}
		text += fmt.Sprintf(", for hook %s, was asked for %s", o.Hook, cli.Relative(o.AtNs, now))
	}
	return text
}

// ReviewsText counts the actions that wait for a verdict, and says since when the first one does.
func ReviewsText(v api.Status, now time.Time) string {
	wait := "wait for a verdict"
	if v.Reviews == 1 {
		wait = "waits for a verdict"
	}
	return fmt.Sprintf("%s %s; the first was registered %s", cli.CountOf(int(v.Reviews), "action"),
		wait, cli.Relative(v.OldestReviewNs, now))
}

// FreePercent is how much of a disk is free, 0 to 100; 100 where its size is not known.
func FreePercent(d api.Disk) int {
	if d.TotalBytes == 0 {
		return 100
	}
	return int(float64(d.FreeBytes) / float64(d.TotalBytes) * 100)
}

// DiskText says how much of a disk is free.
func DiskText(d api.Disk) string {
	return fmt.Sprintf("%s of %s are free for the %s (%d %%)", BytesText(d.FreeBytes),
		BytesText(d.TotalBytes), d.Store, FreePercent(d))
}

// BytesText prints a size by its largest unit.
func BytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// HolderText says which host holds a tenant, and since when.
func HolderText(v api.Status, now time.Time) string {
	text := fmt.Sprintf("%s, term %d", cli.Dash(v.Holder), v.Term)
	if v.SinceNs != 0 {
		text += fmt.Sprintf(" since %s (%s)", cli.Moment(v.SinceNs), cli.Relative(v.SinceNs, now))
	}
	return text
}

// CheckpointText is the line of status about checkpoints.
func CheckpointText(p cli.Pen, v api.Checkpoint, records uint64, now time.Time) string {
	text := "none signed yet"
	if v.Size > 0 {
		text = fmt.Sprintf("%d of %d records, signed %s", v.Size, records,
			cli.Relative(v.StampNs, now))
	}
	if v.Witness != "" {
		text += fmt.Sprintf(" · %s has cosigned %d", v.Witness, v.Cosigned)
	}
	for _, problem := range [...]struct {
		text  string
		alarm bool
	}{{v.Problem, v.Alarm}, {v.Away, v.WitnessAlarm}} {
		switch {
		case problem.alarm:
			text += " · " + p.In("31;1", problem.text)
		case problem.text != "":
			text += " · " + p.In("33", problem.text)
		}
	}
	return text
}

// CopyText says how far the second copy is and when it was held against the stream.
func CopyText(v api.Copy, now time.Time) string {
	parts := []string{fmt.Sprintf("tiles up to %d, %s", v.Last,
		cli.CountOf(int(v.Records), "record"))}
	switch {
	case v.Scrubbing > 0:
		parts = append(parts, fmt.Sprintf("scrub at %d", v.Scrubbing))
	case v.ScrubbedNs == 0:
		parts = append(parts, "never scrubbed, next "+cli.Relative(v.NextScrubNs, now))
	default:
		parts = append(parts,
			"scrubbed "+cli.Relative(v.ScrubbedNs, now)+", next "+cli.Relative(v.NextScrubNs, now))
	}
	if n := len(v.Repairs); n > 0 {
		parts = append(parts, cli.CountOf(n, "repair"))
	}
	return strings.Join(parts, " · ")
}

// FoldingText is how far a host is that catches up with its ledger.
func FoldingText(v api.Folding) string {
	text := fmt.Sprintf("%s: %d of %d commits", v.What, v.At, v.To)
	if v.To > v.From {
		text += fmt.Sprintf(" (%d %%)", 100*(v.At-v.From)/(v.To-v.From))
	}
	text += fmt.Sprintf(", %d records, %.0f a second", v.Records, v.RecordsPer)
	if v.LeftNs > 0 {
		text += ", about " + cli.Span(time.Duration(v.LeftNs)) + " to go"
	}
	return text
}

// DueText is when time calls for the next decision.
func DueText(ns int64, now time.Time) string {
	if ns != 0 && ns <= now.UnixNano() {
		return "now"
	}
	return cli.Relative(ns, now)
}

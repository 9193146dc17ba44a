package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// ErasureText says "erased by ana at 9.0-0fd319a7: ticket 4711; its key was destroyed (10.0-...)".
func ErasureText(e *api.Erasure) string {
	text := fmt.Sprintf("erased by %s (%s): %s; ", e.By, e.At, e.Reason)
	if e.Destroyed == "" {
		return text + "its key is about to be destroyed"
	}
	return text + "its key was destroyed (" + e.Destroyed + ")"
}

// WindowWord says when an undo window closes or has closed.
func WindowWord(ns int64, now time.Time) string {
	if ns <= now.UnixNano() {
		return "closed " + cli.Relative(ns, now)
	}
	return "closes " + cli.Relative(ns, now)
}

// askingText is the question that a worker is asked.
func askingText(question string) string {
	switch question {
	case "effect":
		return "whether it happened"
	case "undo":
		return "whether it still holds"
	case "verify":
		return "whether it is gone"
	case "delivered":
		return "whether it was delivered"
	}
	return question
}

// WriteExplain prints leases with their conditions and what each reads.
func WriteExplain(w io.Writer, p cli.Pen, e api.Explain, now time.Time) {
	fmt.Fprintf(w, "plan %s is %s; answers as of %s by the executor's clock\n", p.Bold(e.Plan),
		p.State(e.State), cli.Moment(e.TimeNs))
	for _, l := range e.Leases {
		of := "the plan"
		if l.Action != "" {
			of = "action " + l.Action
		}
		fmt.Fprintf(w, "\n%s of %s: %s\n", p.Bold(l.Name), of, p.Bold(LeaseWord(l.Lease)))
		out := Lines{W: w, Width: 12, Indent: "    "}
		out.Line("condition", "%s", triggers.Spaced(l.Condition))
		out.Line("error", "%s", l.Error)
		out.Line("fired at", "%s", l.FiredAt)
		if l.Moot {
			out.Line("because", "%s", mootWhy(l.Lease))
		}
		if !asked(l.Lease) {
			continue
		}
		switch {
		case l.HeldUntilNs != 0:
			out.Line("held until", "%s, after the commit", cli.Moment(l.HeldUntilNs))
		case l.AfterCommit:
			out.Line("held", "after the commit, too, inside undo windows")
		}
		out.Line("waits for", "%s", strings.Join(l.Waits, ", "))
		if l.WakeNs != 0 {
			out.Line("wakes", "%s, %s", cli.Moment(l.WakeNs), cli.Relative(l.WakeNs, now))
		}
		out.Line("indexed by", "%s", strings.Join(l.Keys, ", "))
		if l.Shared > 0 {
			out.Line("asked as one", "with %s that always answer the same", otherLeases(l.Shared))
		}
		for _, r := range l.Readings {
			out.Line("read", "%s", readingText(r))
		}
	}
	if e.Omitted {
		fmt.Fprintln(w, "\nthere are more: name an action with --action")
	}
}

// otherLeases counts the leases beside one.
func otherLeases(n uint64) string {
	if n == 1 {
		return "1 other lease"
	}
	return fmt.Sprintf("%d other leases", n)
}

// readingText is one thing that a condition read: a value, that there is a fact of
// which it asked no more, or that there is none.
func readingText(r api.Reading) string {
	from := ""
	if r.Sequence != 0 {
		from = fmt.Sprintf("(record %d)", r.Sequence)
	}
	_, _, call := strings.Cut(r.Name, "(")
	switch fact := strings.HasPrefix(r.Name, "facts["); {
	case r.Value != "" && from != "":
		return fmt.Sprintf("%s = %s  %s", r.Name, cli.Clip(r.Value, 200), from)
	case r.Value != "":
		return fmt.Sprintf("%s = %s", r.Name, cli.Clip(r.Value, 200))
	case fact && r.Present:
		return fmt.Sprintf("%s: present %s", r.Name, from)
	case fact:
		return r.Name + ": no such fact"
	case call && strings.HasPrefix(r.Name, "facts."):
		return r.Name + ": decided by no fact"
	case call:
		return r.Name + ": no occurrence"
	}
	return r.Name + ": unknown"
}

// asked reports whether the condition of a lease is still asked by itself.
func asked(l api.Lease) bool {
	return !l.Fired && !l.Moot && l.Retired == "" && l.Suspended == "" && l.Cascade != "cut" &&
		l.Cascade != "given up"
}

// mootWhy says why a moot lease never fires.
func mootWhy(l api.Lease) string {
	if len(l.MootWhy) == 0 {
		return "no future makes it true"
	}
	return strings.Join(l.MootWhy, "; ")
}

// LeaseWord is what became of a lease, or what its condition answers.
func LeaseWord(l api.Lease) string {
	turned := l.Truth == triggers.True.String()
	switch {
	case l.Fired:
		return "fired"
	case l.Retired != "":
		return "retired when " + l.Retired
	case l.Cascade == "given up":
		return "given up"
	case l.Suspended != "":
		return "suspended " + l.SuspendedUntil()
	case l.Cascade == "cut":
		return "true, held: the cascade was cut, see plan why"
	case l.Moot:
		return "moot, it never fires"
	case l.Cascade == "resumed" && turned:
		return "true, resumed by its owner"
	case l.Cascade == "resumed":
		return l.Truth + ", resumed by its owner"
	case turned:
		return "true, it fires as soon as the clock allows"
	default:
		return l.Truth
	}
}

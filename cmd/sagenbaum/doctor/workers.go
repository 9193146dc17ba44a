package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
)

// workingLong is when a worker that says that it is still at it is worth a look.
const workingLong = 10 * time.Minute

// ExamineWorkers finds the commands that wait for a worker, or that cannot be sent to one: one
// finding for all that wait likewise, which names the one that waits longest.
func ExamineWorkers(v api.Status, now time.Time) (findings []Finding) {
	wrong := slices.DeleteFunc(slices.Clone(v.Waiting), func(w api.Waiting) bool {
		return w.Working && now.Sub(time.Unix(0, w.SinceNs)) < workingLong
	})
	for _, alike := range render.Alike(wrong) {
		f := waits(alike[0], now)
		if n := len(alike) - 1; n > 0 {
			f.Text += fmt.Sprintf("; %d more wait likewise", n)
			f.Details = render.AlikeTexts(alike, status.StuckShown, now)
		}
		findings = append(findings, f)
	}
	switch n := len(v.Waiting); {
	case len(findings) > 0:
		return findings
	case n > 0:
		return []Finding{ok("worker", "no command waits for a worker, workers are at %d", n)}
	}
	return []Finding{ok("worker", "no command waits for a worker")}
}

// waits is what is wrong with a command, and what to do about it.
func waits(w api.Waiting, now time.Time) Finding {
	sent := youngAt(w.SinceNs, now)
	switch {
	case w.Working:
		return warn("worker", "look at the worker of "+w.Capability+": is it still at it?",
			"%s for plan %s action %s was sent %s ago, and its worker still says working%s",
			w.Capability, w.Plan, w.Action, cli.Span(now.Sub(time.Unix(0, w.SinceNs))), w.AskedAgain())
	case w.Problem != "":
		return warn("worker", render.NotSentNext,
			"%s for plan %s action %s waits, not sent in %s: %s", w.Capability, w.Plan, w.Action,
			render.TriesText(w.Tries), w.Problem).mayPass(sent)
	case w.Handler != "":
		return warn("handler", "run that agent's function under plan "+w.Plan+" again: its code undoes "+
			"the action (docs/guide/replay.md)",
			"plan %s action %s waits for %s: no process offers it in %s", w.Plan, w.Action,
			w.Handler, render.TriesText(w.Tries)).mayPass(sent)
	case w.Heard:
		return warn("worker", "start a worker for "+w.Capability+" in the queue group workers; whoever "+
			"listens there is none: a terminal, or a stream that captures the subject",
			"%s for plan %s waits, a listener and no worker in %s", w.Capability, w.Plan,
			render.TriesText(w.Tries)).mayPass(sent)
	}
	return warn("worker", cmp.Or(started.Next(w.Capability),
		"start "+w.Wanted("a worker")+" for "+w.Capability), "%s for plan %s waits, %s in %s",
		w.Capability, w.Plan, w.Wanted("no worker"), render.TriesText(w.Tries)).mayPass(sent)
}

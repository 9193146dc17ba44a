// Package status is `sagenbaum status`: one tenant at a glance.
package status

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum status` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show a tenant's executor: holder, term, what is held, what is waiting",
		Long: `Show a tenant's executor: who holds it, how far it has folded, what is held,
what unwinds, what waits for a worker and which plans wait for their owner. Exit
code 1 when something is quarantined or cut, a command waits for a worker or could
not be sent, or the executor does not hold the tenant.`,
		Example: "  sagenbaum status\n  sagenbaum status --watch\n  sagenbaum status --tenant " +
			"default -o json",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ShowStatus(cmd, s, WriteStatus)
		},
	}
}

// ShowStatus shows a tenant's status, to people as write does; its error is ErrLook where someone
// should look.
func ShowStatus(cmd *cobra.Command, s *cli.Settings,
	write func(io.Writer, cli.Pen, TenantStatus, time.Time)) error {
	return s.With(func(c *cli.Client) error {
		status, err := statusInFull(cmd.Context(), c)
		if err != nil {
			return cli.Failed("show the status", err)
		}
		if err := s.Print(cmd, status,
			func() { write(cmd.OutOrStdout(), s.Pen(cmd), status, time.Now()) }); err != nil {
			return err
		}
		return cli.Look(nil, WantsLook(status.Status))
	})
}

// WantsLook reports whether someone should look at a tenant.
func WantsLook(v api.Status) bool {
	if v.Mode == api.ModeErased {
		return v.Erased == nil || v.Erased.Done == nil
	}
	return v.Quarantined > 0 || v.Cut > 0 || Waiting(v) > 0 || v.Mode != api.ModeHolding ||
		v.Problem != ""
}

// TenantStatus is a tenant's status with the plans that wait for their owner, some
// of them when there are many.
type TenantStatus struct {
	api.Status
	Hosts []api.Host `json:"hosts,omitempty"` // that answered, by name
	Stuck []api.Plan `json:"stuck,omitempty"` // with the actions that wait
}

// StuckShown bounds the stuck plans that status and doctor name.
const StuckShown = 10

func statusInFull(ctx context.Context, c *cli.Client) (v TenantStatus, err error) {
	if v.Status, err = c.Status(ctx); err != nil {
		return v, c.WithoutHolder(ctx, err)
	}
	if v.Hosts, err = c.Hosts(ctx); err != nil || v.Quarantined+v.Cut == 0 {
		return v, err
	}
	answer, err := c.Quarantine(ctx, StuckShown)
	v.Stuck = answer.Plans
	return v, err
}

// WriteStatus prints a tenant's status for people.
func WriteStatus(w io.Writer, p cli.Pen, v TenantStatus, now time.Time) {
	v = cli.ForPeople(v)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("tenant", "%s", p.Bold(v.Tenant))
	line("mode", "%s", p.State(v.Mode))
	if v.Problem != "" {
		line("problem", "%s", p.In("31", v.Problem))
	}
	if v.Mode == api.ModeDegraded && v.Records == 0 { // no host has the state open
		for _, d := range v.Disks {
			line("disk", "%s", render.DiskText(d))
		}
		return
	}
	if v.Erased != nil {
		fmt.Fprintln(w, render.TenantErasureText(*v.Erased))
		return
	}
	if by := Suspended(v.Status); by != "" {
		line("suspended", "%s", p.In("33", by))
	}
	line("holder", "%s", render.HolderText(v.Status, now))
	for _, h := range cli.Standbys(v.Hosts) {
		line("host", "%s", cli.StandbyText(h))
	}
	line("folded", "%d of %d, %d records, logical time %s", v.Applied, v.Last, v.Records,
		cli.Moment(v.TimeNs))
	if v.Folding != nil {
		line("folding", "%s", render.FoldingText(*v.Folding))
	}
	line("plans", "%d open, %d unwinding or delivering, %s, %d ended", v.Open, v.Unwinding,
		quarantinedText(p, v.Quarantined), v.Ended)
	if uses := usesText(v.May); uses != "" {
		line("uses", "%s", uses)
	}
	line("held", "%d registrations, next due %s", v.Held, render.DueText(v.NextDueNs, now))
	line("in flight", "%d", v.InFlight)
	line("cascades", "%s; limits: depth %d, plan %d, tenant %d an hour, %d used in this one",
		cutCount(p, v.Cut), v.Cascade.Depth, v.Cascade.Plan, v.Cascade.Tenant, v.Cascaded)
	if v.Reviews > 0 {
		line("verdicts", "%s", render.ReviewsText(v.Status, now))
	}
	if v.Unpaged > 0 {
		line("unpaged", "%s", p.In("33", render.UnpagedText(v.Status, now)))
	}
	if v.Copy != nil {
		line("copy", "%s", render.CopyText(*v.Copy, now))
	}
	if v.Checkpoint != nil {
		line("checkpoint", "%s", render.CheckpointText(p, *v.Checkpoint, v.Records, now))
	}
	line("refused", "%d, void %d", v.Refused, v.Void)
	for _, text := range uncountedTexts(v.Status, now) {
		line("workers", "%s", p.In("33", text))
	}
	writeStuck(line, p, v)
	writeWaiting(line, p, v, now)
}

func writeWaiting(line func(name, format string, args ...any), p cli.Pen, v TenantStatus,
	now time.Time) {
	for _, alike := range render.Alike(v.Waiting) {
		writeOneWaiting(line, p, alike[0], now)
		for _, text := range render.AlikeTexts(alike, StuckShown, now) {
			line("likewise", "%s", text)
		}
	}
}

func writeOneWaiting(line func(name, format string, args ...any), p cli.Pen, w api.Waiting,
	now time.Time) {
	since, next := cli.Relative(w.SinceNs, now), ""
	switch {
	case w.Working:
		line("working", "%s for plan %s action %s: a worker is at it, sent %s%s", w.Capability, w.Plan,
			w.Action, since, w.AskedAgain())
	case w.Problem != "":
		line("waiting", "%s for plan %s action %s: asked for %s, not sent in %s: %s",
			p.In("33", w.Capability), w.Plan, w.Action, since, render.TriesText(w.Tries), w.Problem)
		next = render.NotSentNext
	default:
		none := w.Wanted("no worker")
		if w.Heard {
			none = "a listener and no worker"
		}
		line("waiting", "%s for plan %s action %s: sent %s, %s in %s", p.In("33", w.Capability), w.Plan,
			w.Action, since, none, render.TriesText(w.Tries))
		next = cli.Printable(started.Next(w.Capability))
	}
	if next != "" {
		line("next", "%s", next)
	}
}

func writeStuck(line func(name, format string, args ...any), p cli.Pen, v TenantStatus) {
	for _, plan := range v.Stuck {
		line("stuck", "%s, owner %s: %s", p.In("31;1", plan.Plan), cli.Dash(plan.Owner),
			cli.Clip(strings.Join(obligationNames(plan), ", "), 160))
	}
	if n := int(v.Quarantined+v.Cut) - len(v.Stuck); n > 0 && len(v.Stuck) == StuckShown {
		line("stuck", "and %d more: sagenbaum quarantine ls", n)
	}
}

// uncountedTexts say what of workers' answers did not count.
func uncountedTexts(v api.Status, now time.Time) (texts []string) {
	text := func(r *api.RefusedReplies, what, of string) {
		if r != nil {
			texts = append(texts, fmt.Sprintf("%s %s, the last %s, of %s: %s",
				cli.CountOf(int(r.Count), what), of, cli.Relative(r.Last.AtNs, now), r.Last.Capability,
				r.Last.Problem))
		}
	}
	text(v.RefusedReplies, "answer", "of workers refused")
	text(v.UnreadFields, "field", "of workers' answers unread, the rest counts")
	return texts
}

// usesText says what a tenant uses of what it may; empty: nothing is limited.
func usesText(may *api.TenantMay) string {
	if may == nil {
		return ""
	}
	var uses []string
	for _, l := range may.Limits {
		uses = append(uses, fmt.Sprintf("%d of %d %s", l.Used, l.Most,
			strings.ReplaceAll(l.Limit, "_", " ")))
	}
	return strings.Join(uses, ", ")
}

// obligationNames are what of a plan waits for its owner, short.
func obligationNames(plan api.Plan) (names []string) {
	for _, a := range render.Parked(plan) {
		names = append(names, render.EntryText(a))
	}
	for _, cut := range plan.Cuts {
		names = append(names, render.CutName(cut)+" ("+render.CutText(cut)+")")
	}
	names = append(names, plan.Orphans...)
	if len(names) == 0 {
		names = []string{"a plan that is part of it"}
	}
	return names
}

// Suspended says who has suspended a tenant, and why; empty: it is not suspended.
func Suspended(v api.Status) string {
	if v.May == nil || !v.May.Suspended {
		return ""
	}
	return "by " + v.May.By + ": " + v.May.Reason
}

// Waiting counts the commands that wait: no worker has taken them, or they could not be sent.
func Waiting(v api.Status) (n int) {
	for _, waiting := range v.Waiting {
		if !waiting.Working {
			n++
		}
	}
	return n
}

// cutCount counts the plans with a lease that a cascade limit holds.
func cutCount(p cli.Pen, n uint64) string {
	text := fmt.Sprintf("%d cut", n)
	if n > 0 {
		return p.In("31;1", text)
	}
	return text
}

func quarantinedText(p cli.Pen, n uint64) string {
	text := fmt.Sprintf("%d quarantined", n)
	if n > 0 {
		return p.In("31;1", text)
	}
	return text
}

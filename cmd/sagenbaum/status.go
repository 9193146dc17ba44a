package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
)

func newStatus(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show a tenant's executor: holder, term, what is held, what waits",
		Long: `Show a tenant's executor: who holds it, how far it has folded, what is held,
what unwinds, what waits for a worker and which plans wait for their owner. Exit
code 1 when something is quarantined or cut, a command waits for a worker, or the
executor does not hold the tenant.`,
		Example: "  sagenbaum status\n  sagenbaum status --watch\n  sagenbaum status --tenant default -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showStatus(cmd, s)
		},
	}
}

func showStatus(cmd *cobra.Command, s *settings) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.close()
	status, err := c.statusInFull(cmd.Context())
	if err != nil {
		return failed("show the status", err)
	}
	if s.json() {
		if err := printJSON(cmd.OutOrStdout(), status); err != nil {
			return err
		}
	} else {
		writeStatus(cmd.OutOrStdout(), s.pen(cmd), status, time.Now())
	}
	if wantsLook(status.StatusView) {
		return errLook
	}
	return nil
}

// wantsLook reports whether somebody should look at a tenant.
func wantsLook(v executor.StatusView) bool {
	return v.Quarantined > 0 || v.Cut > 0 || unserved(v) > 0 || v.Mode != executor.ModeHolding || v.Problem != ""
}

// tenantStatus is a tenant's status with the plans that wait for their owner, some
// of them when there are many.
type tenantStatus struct {
	executor.StatusView
	Hosts []executor.HostView `json:"hosts,omitempty"` // that answered, by name
	Stuck []executor.PlanView `json:"stuck,omitempty"` // with the actions that wait
}

// stuckShown bounds the stuck plans that status and doctor name.
const stuckShown = 10

func (c *client) statusInFull(ctx context.Context) (v tenantStatus, err error) {
	if v.StatusView, err = c.status(ctx); err != nil {
		return v, c.withoutHolder(ctx, err)
	}
	if v.Hosts, err = c.hosts(ctx); err != nil || v.Quarantined+v.Cut == 0 {
		return v, err
	}
	answer, err := c.plans(ctx, "quarantine.ls", executor.Filter{}, stuckShown)
	v.Stuck = answer.Plans
	return v, err
}

func writeStatus(w io.Writer, p pen, v tenantStatus, now time.Time) {
	v = forPeople(v)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("tenant", "%s", p.bold(v.Tenant))
	line("mode", "%s", p.state(v.Mode))
	if v.Problem != "" {
		line("problem", "%s", p.in("31", v.Problem))
	}
	if v.Mode == executor.ModeDegraded && v.Records == 0 { // nobody has the state open
		for _, d := range v.Disks {
			line("disk", "%s", diskText(d))
		}
		return
	}
	line("holder", "%s", holderText(v.StatusView, now))
	for _, h := range standbys(v.Hosts) {
		line("host", "%s", standbyText(h))
	}
	line("folded", "%d of %d, %d records, logical time %s", v.Applied, v.Last, v.Records, moment(v.TimeNs))
	if v.Folding != nil {
		line("folding", "%s", foldingText(*v.Folding))
	}
	line("plans", "%d open, %d unwinding, %s, %d ended", v.Open, v.Unwinding, quarantinedText(p, v.Quarantined), v.Ended)
	line("held", "%d registrations, next due %s", v.Held, dueText(v.NextDueNs, now))
	line("in flight", "%d", v.InFlight)
	line("cascades", "%s; limits: depth %d, plan %d, tenant %d an hour, %d used in this one",
		cutCount(p, v.Cut), v.Cascade.Depth, v.Cascade.Plan, v.Cascade.Tenant, v.Cascaded)
	if v.Unpaged > 0 {
		line("unpaged", "%s", p.in("33", unpagedText(v.StatusView, now)))
	}
	if v.Copy != nil {
		line("copy", "%s", copyText(*v.Copy, now))
	}
	if v.Checkpoint != nil {
		line("checkpoint", "%s", checkpointText(p, *v.Checkpoint, v.Records, now))
	}
	line("refused", "%d, void %d", v.Refused, v.Void)
	for _, plan := range v.Stuck {
		line("stuck", "%s, owner %s: %s", p.in("31;1", plan.Plan), dash(plan.Owner), clip(strings.Join(obligationNames(plan), ", "), 160))
	}
	if n := int(v.Quarantined+v.Cut) - len(v.Stuck); n > 0 && len(v.Stuck) == stuckShown {
		line("stuck", "and %d more: sagenbaum quarantine ls", n)
	}
	for _, waiting := range v.Waiting {
		if waiting.Working {
			line("working", "%s for plan %s action %s: a worker is at it, sent %s",
				waiting.Capability, waiting.Plan, waiting.Action, relative(waiting.SinceNs, now))
			continue
		}
		line("waiting", "%s for plan %s action %s: sent %s, no worker in %s",
			p.in("33", waiting.Capability), waiting.Plan, waiting.Action, relative(waiting.SinceNs, now), triesText(waiting.Tries))
	}
}

// foldingText is how far a host is that catches up with its ledger.
func foldingText(v executor.FoldingView) string {
	text := fmt.Sprintf("%s: %d of %d commits", v.What, v.At, v.To)
	if v.To > v.From {
		text += fmt.Sprintf(" (%d %%)", 100*(v.At-v.From)/(v.To-v.From))
	}
	text += fmt.Sprintf(", %d records, %.0f a second", v.Records, v.RecordsPer)
	if v.LeftNs > 0 {
		text += ", about " + span(time.Duration(v.LeftNs)) + " to go"
	}
	return text
}

// dueText is when time calls for the next decision.
func dueText(ns int64, now time.Time) string {
	if ns != 0 && ns <= now.UnixNano() {
		return "now"
	}
	return relative(ns, now)
}

// obligationNames are what of a plan waits for its owner, short.
func obligationNames(plan executor.PlanView) (names []string) {
	for _, a := range parked(plan) {
		names = append(names, entryText(a))
	}
	for _, cut := range plan.Cuts {
		names = append(names, cutName(cut)+" ("+cutText(cut)+")")
	}
	names = append(names, plan.Orphans...)
	if len(names) == 0 {
		names = []string{"a plan that is part of it"}
	}
	return names
}

// triesText counts tries.
func triesText(n int) string {
	if n == 1 {
		return "1 try"
	}
	return fmt.Sprintf("%d tries", n)
}

// unserved counts the commands that no worker has taken.
func unserved(v executor.StatusView) (n int) {
	for _, waiting := range v.Waiting {
		if !waiting.Working {
			n++
		}
	}
	return n
}

// cutCount counts the plans with a lease that a cascade limit holds.
func cutCount(p pen, n uint64) string {
	text := fmt.Sprintf("%d cut", n)
	if n > 0 {
		return p.in("31;1", text)
	}
	return text
}

func quarantinedText(p pen, n uint64) string {
	text := fmt.Sprintf("%d quarantined", n)
	if n > 0 {
		return p.in("31;1", text)
	}
	return text
}

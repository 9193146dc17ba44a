package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	refusedShown  = 3              // refused records that the doctor names
	refusedLooked = 100            // refused records that it looks at, the newest
	refusedRecent = 24 * time.Hour // by the ledger's time: a refusal younger than this is news
	refusedWindow = 128            // commits before the last one that it asks for first
	refusedPages  = 64             // of one window, at most
)

// examineRefused warns of refused records that somebody may still act on: young
// ones, and those about plans that have not ended. Others stay in the ledger for
// ever and are history.
func examineRefused(ctx context.Context, c *client, v executor.StatusView) finding {
	if v.Refused == 0 {
		return ok("records", "none was refused")
	}
	newest, err := c.newestRefused(ctx, v.Applied)
	if err != nil {
		return problem("records", err)
	}
	moot := map[string]bool{} // plans that have ended, or never were
	var fresh []executor.RefusedView
	asked := 0
	for _, r := range newest {
		if told(r) {
			asked++
			continue
		}
		if v.TimeNs-r.StampNs < refusedRecent.Nanoseconds() {
			fresh = append(fresh, r)
			continue
		}
		over, known := moot[r.Plan]
		if !known {
			over = r.Plan == "" || c.over(ctx, r.Plan)
			moot[r.Plan] = over
		}
		if !over {
			fresh = append(fresh, r)
		}
	}
	if len(fresh) == 0 {
		f := ok("records", "%d refused, none within a day before the ledger's time or about a plan that has not ended%s", v.Refused, requestsText(asked))
		f.Details = refusedDetails(newest)
		return f
	}
	next := fmt.Sprintf("sagenbaum ledger tail --since %d", fresh[min(len(fresh), refusedShown)-1].Sequence)
	f := warn("records", next, "%d refused, %d of the newest %d want a look%s", v.Refused, len(fresh), len(newest), requestsText(asked))
	f.Details = refusedDetails(fresh)
	return f
}

// told reports whether a refused record is an operator's own request: whoever
// made it was told at once, and nothing waits for it.
func told(r executor.RefusedView) bool {
	source, ok := ledger.ParseSubject(r.Subject)
	return ok && source.Class == ledger.ClassOperator && r.Kind != ""
}

// requestsText counts the refused requests of operators, which are no reason to warn.
func requestsText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s of operators among them, answered when made", countOf(n, "request"))
}

// refusedDetails names the first few, which are the newest.
func refusedDetails(all []executor.RefusedView) (lines []string) {
	for _, r := range all[:min(len(all), refusedShown)] {
		lines = append(lines, fmt.Sprintf("%d.%d on %s at %s: %s", r.Sequence, r.Index, r.Subject, moment(r.StampNs), clip(r.Reason, 100)))
	}
	return lines
}

// over reports whether nothing about a plan can be changed any more. One that
// cannot be asked about counts as not over, unless there is none.
func (c *client) over(ctx context.Context, plan string) bool {
	if !ledger.ValidDerived(plan) {
		return true
	}
	view, err := c.outcome(ctx, api.OutcomeQuery{Plan: plan})
	if err != nil {
		return strings.HasPrefix(err.Error(), "there is no plan")
	}
	return !moving(view.State) && view.State != ledger.StateQuarantined
}

// newestRefused returns the newest refused records, newest first. The question
// lists them from a sequence on, so it is asked from further and further back,
// until there are enough, or too many to read.
func (c *client) newestRefused(ctx context.Context, applied uint64) (newest []executor.RefusedView, err error) {
	for window := uint64(refusedWindow); ; window *= 16 {
		after := applied - min(window, applied)
		found, whole, err := c.refusedAfter(ctx, after)
		if err != nil {
			return nil, err
		}
		if whole || len(newest) == 0 {
			newest = found
		}
		if !whole || len(newest) >= refusedLooked || after == 0 {
			slices.Reverse(newest)
			return newest, nil
		}
	}
}

// refusedAfter returns the last refused records behind a sequence, in order, and
// whether it got to the end of them. Void ones, which have lost a race, are left
// out; so is what a page cuts off of its last commit, which is there in part.
func (c *client) refusedAfter(ctx context.Context, after uint64) (found []executor.RefusedView, whole bool, err error) {
	for range refusedPages {
		var page executor.RefusedAnswer
		if err := c.ask(ctx, "refused.ls", executor.ListQuery{AfterSequence: after, Limit: pageSize}, &page); err != nil {
			return nil, false, err
		}
		for _, r := range page.Refused {
			after = max(after, r.Sequence)
			if !r.Void {
				found = append(found, r)
			}
		}
		found = found[max(0, len(found)-refusedLooked):]
		if len(page.Refused) == 0 {
			return found, true, nil
		}
	}
	return found, false, nil
}

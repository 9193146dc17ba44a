package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	plancmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
)

const (
	refusedShown  = 3              // refused records that the doctor names
	refusedLooked = 100            // refused records that it looks at, the newest
	refusedRecent = 24 * time.Hour // by the ledger's time: a refusal younger than this is news
	refusedWindow = 128            // commits before the last one that it asks for first
	refusedPages  = 64             // of one window, at most
)

// ExamineRefused warns of refused records that someone may still act on: young
// ones, and those about plans that have not ended. Others stay in the ledger for
// ever and are history.
func ExamineRefused(ctx context.Context, c *cli.Client, v api.Status) Finding {
	if v.Refused == 0 {
		return ok("records", "none was refused")
	}
	newest, err := newestRefused(ctx, c, v.Applied)
	if err != nil {
		return problem("records", err)
	}
	moot := map[string]bool{} // plans that have ended, or never were
	var fresh []api.Refused
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
			over = r.Plan == "" || settledForGood(ctx, c, r.Plan)
			moot[r.Plan] = over
		}
		if !over {
			fresh = append(fresh, r)
		}
	}
	if len(fresh) == 0 {
		f := ok("records",
			"%d refused, none within a day before the ledger's time or about a plan that has not "+
				"ended%s", v.Refused, requestsText(asked))
		f.Details = refusedDetails(newest)
		return f
	}
	next := fmt.Sprintf("sagenbaum ledger tail --since %d",
		fresh[min(len(fresh), refusedShown)-1].Sequence)
	f := warn("records", next, "%d refused, %d of the newest %d want a look%s", v.Refused,
		len(fresh), len(newest), requestsText(asked))
	f.Details = refusedDetails(fresh)
	return f
}

// told reports whether a refused record is an operator's own request: whoever
// made it was told at once, and nothing waits for it.
func told(r api.Refused) bool {
	source, ok := ledger.ParseSubject(r.Subject)
	return ok && source.Class == ledger.ClassOperator && r.Kind != ""
}

// requestsText counts the refused requests of operators, which are no reason to warn.
func requestsText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s of operators among them, answered when made",
		cli.CountOf(n, "request"))
}

// refusedDetails names the first few, which are the newest.
func refusedDetails(all []api.Refused) (lines []string) {
	for _, r := range all[:min(len(all), refusedShown)] {
		lines = append(lines,
			fmt.Sprintf("%d.%d on %s at %s: %s", r.Sequence, r.Index, r.Subject,
				cli.Moment(r.StampNs), cli.Clip(r.Reason, 100)))
	}
	return lines
}

// settledForGood reports whether nothing about a plan can be changed any more. One that
// cannot be asked about counts as not over, unless there is none.
func settledForGood(ctx context.Context, c *cli.Client, plan string) bool {
	if !ledger.ValidDerived(plan) {
		return true
	}
	shown, err := c.Outcome(ctx, api.OutcomeQuery{Plan: plan})
	if err != nil {
		return strings.HasPrefix(err.Error(), "there is no plan")
	}
	return !plancmd.Moving(shown.State) && shown.State != ledger.StateQuarantined
}

// newestRefused returns the newest refused records, newest first. The question
// lists them from a sequence on, so it is asked from further and further back,
// until there are enough, or too many to read.
func newestRefused(ctx context.Context, c *cli.Client,
	applied uint64) (newest []api.Refused, err error) {
	for window := uint64(refusedWindow); ; window *= 16 {
		after := applied - min(window, applied)
		found, whole, err := refusedAfter(ctx, c, after)
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

// refusedAfter returns the last refused records after a sequence, in order, and
// whether it got to the end of them. Void ones, which have lost a race, are left
// out; so is what a page cuts off of its last commit, which is there in part.
func refusedAfter(ctx context.Context, c *cli.Client, after uint64) (found []api.Refused,
	whole bool, err error) {
	for range refusedPages {
		page, err := cli.Ask(ctx, c, api.RefusedLs,
			api.ListQuery{AfterSequence: after, Limit: cli.PageSize})
		if err != nil {
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

package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// history reads what is recorded of a plan: all of it, page by page, or one page. It
// waits for an executor until ctx ends. Agent is empty when there is no such plan.
func (c *Coordinator) history(ctx context.Context, q api.HistoryQuery,
	all bool) (whole api.HistoryAnswer, err error) {
	if q.Limit == 0 {
		q.Limit = historyPage
	}
	for delay := askDelay; ; {
		page, err := c.historyPage(ctx, q)
		switch {
		case err == nil && q.After == 0:
			whole = page
		case err == nil:
			whole.Actions = append(whole.Actions, page.Actions...)
		case errors.Is(err, ErrConnectionClosed):
			return whole, err
		case ctx.Err() != nil:
			return whole, fmt.Errorf("%w (%v)", ctx.Err(), err)
		default:
			c.logger.Warn("what is recorded is not known yet", "tenant", c.tenant, "plan", q.Plan, "error",
				err)
			pause.For(ctx, delay)
			delay = min(2*delay, askDelayMax)
			continue
		}
		if !all || page.Next <= q.After {
			return whole, nil
		}
		q.After, delay = page.Next, askDelay
	}
}

func (c *Coordinator) historyPage(ctx context.Context,
	q api.HistoryQuery) (answer api.HistoryAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyWait)
	defer cancel()
	answer, err = ask(ctx, c.bus, c.tenant, api.PlanHistory(c.agent), q)
	if err != nil && !errors.As(err, new(*api.Problem)) && !errors.Is(err, errUnread) {
		err = fmt.Errorf("cannot ask what is recorded: %w", err)
	}
	return answer, err
}

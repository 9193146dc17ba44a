package door

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// movedSlack is how far a deadline that a repeated request gives as a duration may be from the
// recorded one, since its record took a while to the ledger and clocks differ.
const movedSlack = time.Minute

// doDeadline is plan.deadline. A request names the record that has set the deadline which it has
// seen, so that it moves that one or nothing, however often it comes.
func (d *Door) doDeadline(ctx context.Context, who Caller, q *Deadline) (State, error) {
	to, err := q.instant(time.Now())
	if err != nil {
		return State{}, err
	}
	if err := ofAgents(q.Plan); err != nil {
		return State{}, err
	}
	answer, moved, err := d.movedBy(ctx, who, q, to)
	if err != nil || moved {
		return answer, err
	}
	if !to.After(time.Now()) {
		return State{}, ledger.Refuse(q.field(), "it has passed: "+to.UTC().Format(time.RFC3339),
			"an instant to come; plan.cancel undoes the plan now")
	}
	w, h, done, err := d.take(ctx, who, q.Writer, q.Plan)
	if err != nil {
		return State{}, err
	}
	defer done()
	err = coordinator.MoveDeadlineAfter(ctx, h.plan, uint64(q.Follows), to, q.Reason)
	if err != nil {
		w.superseded(q.Plan, h, err)
	}
	var refused *ledger.Refused
	decided := errors.As(err, &refused) && refused.Field == "deadline" ||
		errors.Is(err, coordinator.ErrUnwinding) || errors.Is(err, coordinator.ErrClosed)
	if err != nil && !decided {
		return State{}, err
	}
	answer, moved, seen := d.movedBy(ctx, who, q, to)
	switch {
	case seen != nil && err == nil:
		e := explain(seen)
		e.Stored = StoredAll
		return State{}, e
	case moved || seen != nil:
		return answer, seen
	case refused != nil: // its deadline has come, or it is a part of one that is not open
		return State{}, notOpen(refused.Problem)
	case err == nil:
		err = errors.New("the deadline that is in force is another one")
	}
	return State{}, notOpen(err.Error())
}

func notOpen(problem string) *Error {
	e := conflict(problem, "plan.wait, for the end", StoredNothing)
	e.Field = "plan"
	return e
}

// field is the one that gives the deadline.
func (q *Deadline) field() string {
	if q.DeadlineAt.IsZero() {
		return "deadline"
	}
	return "deadline_at"
}

// instant is the deadline that a request which is made now asks for.
func (q *Deadline) instant(now time.Time) (time.Time, error) {
	switch {
	case ledger.IsBlank(q.Reason):
		return now, ledger.Refuse("reason", "empty", "why the deadline is moved")
	case q.Deadline != 0 && !q.DeadlineAt.IsZero():
		return now, ledger.Refuse("deadline_at", "given beside deadline", "one of them")
	case q.Deadline == 0 && q.DeadlineAt.IsZero():
		return now, ledger.Refuse("deadline", "missing", `a duration, as in "2h", or deadline_at`)
	case q.Follows == 0:
		return now, ledger.Refuse("follows", "0", followsWanted)
	}
	to := q.DeadlineAt.Time
	if to.IsZero() {
		to = now.Add(time.Duration(q.Deadline))
	}
	_, err := ledger.InstantNs(q.field(), to)
	return to, err
}

const followsWanted = "deadline_set, as plan.get has it"

// movedBy is the answer to a request that has moved the deadline, or why it cannot any more; false:
// it is still to be moved.
func (d *Door) movedBy(ctx context.Context, who Caller, q *Deadline, to time.Time) (State, bool,
	error) {
	h, err := d.historyAt(ctx, who, api.HistoryQuery{Plan: q.Plan, Limit: 1,
		Sequence: d.storedOf(who, q.Plan)})
	follows := uint64(q.Follows)
	switch {
	case err != nil:
	case h.DueSet < follows:
		err = ledger.Refuse("follows", fmt.Sprintf("%d, and the record that has set the deadline is %d",
			follows, h.DueSet), followsWanted)
	case h.DueSet > follows:
		if err = d.sameMove(ctx, who, q, to, h.DueSet); err == nil {
			return State{Plan: q.Plan, State: h.State, Reason: h.Reason, Writer: h.Writer,
				Ended: ledger.HasEnded(h.State), DeadlineAt: instant(h.DueNs),
				DeadlineSet: int(h.DueSet)}, true, nil
		}
	case h.State != ledger.StateOpen:
		err = notOpen("the plan is " + h.State + ", and its deadline is not moved any more")
	}
	return State{}, false, err
}

// sameMove refuses a request that has not moved the deadline: the record that has set it is another
// one.
func (d *Door) sameMove(ctx context.Context, who Caller, q *Deadline, to time.Time,
	set uint64) error {
	answer, err := ask(ctx, d, who, api.LedgerRead, api.ReadQuery{From: set, Limit: 1,
		WaitMs: (askMax / 2).Milliseconds()})
	if err != nil || len(answer.Messages) == 0 || answer.Messages[0].Sequence != set {
		return unavailable("what has set the deadline cannot be read", sameAgain, StoredUnknown)
	}
	was := answer.Messages[0]
	entries, err := ledger.Decode(who.Tenant, ledger.Message{Sequence: set, Subject: was.Subject,
		ContentType: was.ContentType, Data: was.Data})
	if err != nil {
		return err
	}
	moved, source := new(pb.DeadlineMoved), ledger.Source{}
	for _, e := range entries {
		if k := e.Record.GetDeadlineMoved(); k != nil && e.Record.Plan == q.Plan {
			moved, source = k, e.Source
		}
	}
	own := source.Class == ledger.ClassAgent && source.Name == who.Name
	switch {
	case source.Name == "":
		return ledger.Refuse("follows", fmt.Sprintf("%d, and the record that has set the deadline is %d",
			q.Follows, set), followsWanted)
	case !own || moved.Follows != uint64(q.Follows):
		e := conflict(fmt.Sprintf("the deadline is another one since %d: %s has moved it to %s: %s",
			set, source.Name, instant(moved.DeadlineNs), moved.Reason),
			"a look at it, and deadline_set of plan.get if it is still to be moved", StoredNothing)
		e.Field = "follows"
		return e
	case moved.Reason != q.Reason:
		return repeated("follows", count(q.Follows), "reason")
	case !q.DeadlineAt.IsZero() && moved.DeadlineNs != to.UnixNano():
		return repeated("follows", count(q.Follows), "deadline_at")
	case q.DeadlineAt.IsZero() && (time.Duration(moved.DeadlineNs-was.StampNs)-
		time.Duration(q.Deadline)).Abs() > movedSlack:
		return repeated("follows", count(q.Follows), "deadline")
	}
	return nil
}

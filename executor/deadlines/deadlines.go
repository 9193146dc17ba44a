// Package deadlines says when a plan that is still open is undone, and whether that may be moved.
// It knows the row of a plan alone.
package deadlines

import (
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Of is the deadline of a plan, in unix ns, as it was moved last, or declared; 0: it has none.
func Of(p *rowspb.PlanRow) int64 {
	if p.Moved != nil {
		return p.Moved.Ns
	}
	return p.Declared.GetDeadlineNs()
}

// Default is the deadline that a tenant gives to a plan which is opened now and names none; nil:
// it gives none. A child plan ends with its root, at the latest.
func Default(declared *pb.PlanOpened, m *rowspb.Meta) *rowspb.Deadline {
	seconds := m.Tenant.GetLimits().GetDefaultDeadline()
	if seconds == 0 || declared.DeadlineNs != 0 || declared.ParentPlan != "" ||
		m.HolderFold < ledger.MovedSince {
		return nil
	}
	return &rowspb.Deadline{Ns: m.TimeNs + int64(seconds)*int64(time.Second)}
}

// Passed refuses a deadline that cannot have been meant: it had passed, by more
// than clocks differ and an append may wait, when the ledger took the plan. since is the
// earlier of the plan's own stamp and the logical time before it: a stamp that is ahead
// by itself is the server's error, and not the agent's.
func Passed(p *pb.PlanOpened, since int64) error {
	if p.DeadlineNs == 0 || p.DeadlineNs > since-int64(ledger.DeadlinePastMax) {
		return nil
	}
	return ledger.Refuse("plan_opened.deadline_ns",
		"it had passed when the plan was opened: "+
			time.Unix(0, p.DeadlineNs).UTC().Format(time.RFC3339),
		"unix nanoseconds of an instant to come, or 0 for none")
}

// SetAt is the record that has set it.
func SetAt(p *rowspb.PlanRow) *pb.Address {
	if p.Moved.GetAt() != nil {
		return p.Moved.At
	}
	return p.Opened
}

// Says reports whether the last move of a plan's deadline has said the same: a copy of a record, or
// an agent that has heard no answer to it.
func Says(p *rowspb.PlanRow, k *pb.DeadlineMoved) bool {
	return k.Follows != 0 && p.Moved.GetFollows() == k.Follows && p.Moved.Ns == k.DeadlineNs
}

// Refuses says why the deadline of an open plan is not moved so at a logical time, or "". An agent
// has to say what it follows: a late copy of its record would move the deadline back.
func Refuses(plan string, p *rowspb.PlanRow, k *pb.DeadlineMoved, nowNs int64, agent bool) string {
	was, set := Of(p), SetAt(p).GetSequence()
	switch {
	case was != 0 && was <= nowNs:
		return fmt.Sprintf("the deadline of plan %s has come, at %s, and is not moved any more", plan,
			instant(was))
	case k.Follows == 0 && agent:
		return ledger.Refuse("deadline_moved.follows", "missing",
			"the sequence of the plan_opened, or of the last deadline_moved").Error()
	case k.Follows != 0 && k.Follows != set:
		return ledger.Refuse("deadline_moved.follows", fmt.Sprintf("%d, and the deadline of plan %s is "+
			"another one since %d%s", k.Follows, plan, set, by(p.Moved)),
			"a look at it, and another record if it is still to be moved").Error()
	case k.DeadlineNs <= nowNs:
		return ledger.Refuse("deadline_moved.deadline_ns", instant(k.DeadlineNs)+" has passed",
			"an instant to come; plan unwind undoes the plan now").Error()
	}
	return ""
}

func by(d *rowspb.Deadline) string {
	if d.GetAt() == nil {
		return ""
	}
	return ", by " + d.By
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

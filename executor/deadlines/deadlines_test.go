package deadlines_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/deadlines"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const second = int64(time.Second)

var (
	opened   = &pb.Address{Sequence: 3}
	movedAt  = &pb.Address{Sequence: 9}
	declared = &rowspb.PlanRow{Opened: opened, Declared: &pb.PlanOpened{DeadlineNs: 10 * second}}
	moved    = &rowspb.PlanRow{Opened: opened, Declared: &pb.PlanOpened{DeadlineNs: 10 * second},
		Moved: &rowspb.Deadline{Ns: 20 * second, At: movedAt, Follows: 3, By: "ops"}}
	none = &rowspb.PlanRow{Opened: opened, Declared: &pb.PlanOpened{}}
	// given is one that its tenant has given: no record but the opening has set it.
	given = &rowspb.PlanRow{Opened: opened, Declared: &pb.PlanOpened{},
		Moved: &rowspb.Deadline{Ns: 20 * second}}
)

func TestWhatADeadlineIsAndWhatHasSetIt(t *testing.T) {
	for name, c := range map[string]struct {
		row *rowspb.PlanRow
		ns  int64
		set *pb.Address
	}{
		"declared": {declared, 10 * second, opened}, "moved": {moved, 20 * second, movedAt},
		"none": {none, 0, opened}, "of the tenant": {given, 20 * second, opened},
	} {
		if got := deadlines.Of(c.row); got != c.ns {
			t.Errorf("%s: the deadline is %d, want %d", name, got, c.ns)
		}
		if got := deadlines.SetAt(c.row); got != c.set {
			t.Errorf("%s: set at %v, want %v", name, got, c.set)
		}
	}
}

func TestWhichMovesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		row   *rowspb.PlanRow
		to    int64
		after uint64 // the record that it follows
		agent bool
		now   int64
		why   string // part of the refusal; empty: it is taken
	}{
		"later":                          {declared, 30, 3, true, 5, ""},
		"earlier":                        {declared, 6, 3, true, 5, ""},
		"the first one":                  {none, 6, 3, true, 5, ""},
		"by an operator, of any":         {moved, 30, 0, false, 5, ""},
		"of the tenant":                  {given, 30, 3, true, 5, ""},
		"it has come":                    {declared, 30, 3, true, 10, "has come"},
		"it has come, as it was moved":   {moved, 30, 9, false, 20, "has come"},
		"it had come, and was moved":     {moved, 30, 9, true, 15, ""},
		"an agent that says nothing":     {declared, 30, 0, true, 5, "deadline_moved.follows: missing"},
		"a copy of a record before":      {moved, 30, 3, true, 5, "another one since 9, by ops"},
		"an operator who saw another":    {moved, 30, 3, false, 5, "another one since 9, by ops"},
		"another one, of its tenant":     {given, 30, 7, true, 5, "another one since 3;"},
		"to an instant that is now":      {declared, 5, 3, true, 5, "deadline_moved.deadline_ns"},
		"to an instant that has been":    {none, 4, 0, false, 5, "has passed"},
		"to the instant after this one":  {declared, 6, 3, true, 6, "has passed"},
		"to where it is, which is taken": {declared, 10, 3, true, 5, ""},
	} {
		k := &pb.DeadlineMoved{DeadlineNs: c.to * second, Follows: c.after}
		why := deadlines.Refuses("p", c.row, k, c.now*second, c.agent)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: refused with %q, want %q", name, why, c.why)
		}
	}
}

func TestOnlyACopySaysTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		row  *rowspb.PlanRow
		k    *pb.DeadlineMoved
		want bool
	}{
		"a copy":             {moved, &pb.DeadlineMoved{DeadlineNs: 20 * second, Follows: 3}, true},
		"to another instant": {moved, &pb.DeadlineMoved{DeadlineNs: 21 * second, Follows: 3}, false},
		"after another one":  {moved, &pb.DeadlineMoved{DeadlineNs: 20 * second, Follows: 9}, false},
		"an operator's, who says nothing of what it follows": {given,
			&pb.DeadlineMoved{DeadlineNs: 20 * second}, false},
		"never moved": {declared, &pb.DeadlineMoved{DeadlineNs: 10 * second, Follows: 3}, false},
	} {
		if got := deadlines.Says(c.row, c.k); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestATenantGivesADeadlineToRootsThatNameNone(t *testing.T) {
	meta := func(seconds uint64, fold uint32) *rowspb.Meta {
		return &rowspb.Meta{TimeNs: 100 * second, HolderFold: fold,
			Tenant: &pb.TenantChanged{Limits: &pb.TenantLimits{DefaultDeadline: seconds}}}
	}
	for name, c := range map[string]struct {
		declared *pb.PlanOpened
		meta     *rowspb.Meta
		ns       int64 // 0: none
	}{
		"a root":                     {&pb.PlanOpened{}, meta(60, ledger.MovedSince), 160 * second},
		"one that names its own":     {&pb.PlanOpened{DeadlineNs: 1}, meta(60, ledger.MovedSince), 0},
		"a child":                    {&pb.PlanOpened{ParentPlan: "q"}, meta(60, ledger.MovedSince), 0},
		"a tenant that gives none":   {&pb.PlanOpened{}, meta(0, ledger.MovedSince), 0},
		"under an earlier holder":    {&pb.PlanOpened{}, meta(60, ledger.MovedSince-1), 0},
		"a tenant without any limit": {&pb.PlanOpened{}, &rowspb.Meta{HolderFold: ledger.MovedSince}, 0},
	} {
		if got := deadlines.Default(c.declared, c.meta).GetNs(); got != c.ns {
			t.Errorf("%s: %d, want %d", name, got, c.ns)
		}
	}
}

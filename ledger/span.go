package ledger

import (
	"fmt"
	"time"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// One lower and one upper bound for every duration and every instant, asked at every door: a
// worker gets a timeout in ms, and an int64 of ns ends in the year 2262 without a word.
const (
	// DurationMin is the shortest duration that may be given; 0 is not given.
	DurationMin = time.Millisecond
	// DurationMax is the longest one, where nothing says less: 100 years of 365 days.
	DurationMax = 100 * 365 * 24 * time.Hour
	// InstantMax is the last instant, in unix ns: the end of the year 2261 in UTC.
	InstantMax = int64(9_214_646_400)*int64(time.Second) - 1
)

// InstantWanted is what is right in place of an instant that is out of range.
const InstantWanted = "an instant from 1970 to 2261, after 1970-01-01T00:00:00Z"

// CheckSpan refuses a duration that is given, and is not from DurationMin to most.
func CheckSpan(field string, d, most time.Duration) error {
	if inSpan(d, most) {
		return nil
	}
	return Refuse(field, d.String(), fmt.Sprintf("%v to %.0fh, or nothing", DurationMin,
		most.Hours()))
}

func inSpan(d, most time.Duration) bool { return d == 0 || d >= DurationMin && d <= most }

// InstantNs is an instant in unix ns. Errors: a *Refused of the field.
func InstantNs(field string, t time.Time) (int64, error) {
	if s := t.Unix(); s < 0 || s == 0 && t.Nanosecond() == 0 || s > InstantMax/int64(time.Second) {
		return 0, Refuse(field, t.UTC().Format(time.RFC3339), InstantWanted)
	}
	return t.UnixNano(), nil
}

// CheckSpans refuses a record that declares a duration or an instant out of range. What an agent
// declares is refused for it in the fold, too, under a holder of NumbersSince.
func CheckSpans(r *pb.Record) error {
	switch k := r.Kind.(type) {
	case *pb.Record_PlanOpened:
		return instant("plan_opened.deadline_ns", k.PlanOpened.DeadlineNs)
	case *pb.Record_ForwardRegistered:
		f := k.ForwardRegistered
		err := spans("forward_registered.",
			span{"timeout_ns", f.TimeoutNs, TimeoutMax}, span{"settle_ns", f.SettleNs, SettleMax},
			span{"grace_ns", f.GraceNs, GraceMax})
		if err == nil && f.Deliver != nil {
			err = InDelivery(compensationSpans(f.Deliver))
		}
		return err
	case *pb.Record_CompensationRegistered:
		return compensationSpans(k.CompensationRegistered)
	case *pb.Record_ClockConfirmed:
		return instant("clock_confirmed.wall_ns", k.ClockConfirmed.WallNs)
	case *pb.Record_CompensationProgressed:
		return instant("compensation_progressed.until_ns", k.CompensationProgressed.UntilNs)
	default:
		return nil
	}
}

func compensationSpans(c *pb.CompensationRegistered) error {
	const at = "compensation_registered."
	err := spans(at, span{"backoff_ns", c.BackoffNs, BackoffMax},
		span{"backoff_max_ns", c.BackoffMaxNs, BackoffMax},
		span{"timeout_ns", c.TimeoutNs, TimeoutMax},
		span{"valid_for_ns", c.ValidForNs, DurationMax}, span{"warn_ns", c.WarnNs, DurationMax},
		span{"dedupe_ns", c.DedupeNs, DurationMax},
		span{"unserved_after_ns", c.UnservedAfterNs, UnservedMax},
		span{"ask_after_ns", c.AskAfterNs, AskAfterMax})
	return firstOf(err, instant(at+"valid_until_ns", c.ValidUntilNs),
		callSpans(at+"probe.call.", c.Probe.GetCall()),
		callSpans(at+"verify.call.", c.Verify.GetCall()))
}

func callSpans(at string, c *pb.Call) error {
	return spans(at, span{"timeout_ns", c.GetTimeoutNs(), TimeoutMax},
		span{"backoff_ns", c.GetBackoffNs(), BackoffMax})
}

// span is a duration of a record, in ns.
type span struct {
	name string
	ns   int64
	most time.Duration
}

func spans(at string, list ...span) error {
	for _, s := range list { // for every record of the fold: a name is made where it is told
		if d := time.Duration(s.ns); !inSpan(d, s.most) {
			return CheckSpan(at+s.name, d, s.most)
		}
	}
	return nil
}

// instant checks an instant in unix ns; 0 is not given.
func instant(field string, ns int64) error {
	if ns < 0 || ns > InstantMax {
		return Refuse(field, fmt.Sprintf("%d", ns), InstantWanted+", in unix ns, or 0 for none")
	}
	return nil
}

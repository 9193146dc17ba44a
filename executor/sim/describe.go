package sim

import (
	"fmt"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// describe says what a record is, for a trace.
func describe(e ledger.Entry) string {
	if e.Record == nil {
		return "no record"
	}
	r := e.Record
	text := ledger.KindOf(r).Name
	if text == "" {
		text = "no kind"
	}
	if about := strings.TrimSpace(r.Plan + " " + r.Action); about != "" {
		text += " " + about
	}
	if more := detail(r); more != "" {
		text += " (" + more + ")"
	}
	return text
}

func detail(r *pb.Record) string {
	switch k := r.Kind.(type) {
	case *pb.Record_TermStarted:
		return fmt.Sprintf("term %d, %s", r.Term, k.TermStarted.Holder)
	case *pb.Record_LeaseFired:
		return k.LeaseFired.Lease + ": " + k.LeaseFired.Condition
	case *pb.Record_CompensationDispatched:
		return fmt.Sprintf("attempt %d", k.CompensationDispatched.Attempt)
	case *pb.Record_CompensationFailed:
		if k.CompensationFailed.InDoubt {
			return fmt.Sprintf("attempt %d, in doubt", k.CompensationFailed.Attempt)
		}
		return fmt.Sprintf("attempt %d, %s", k.CompensationFailed.Attempt, k.CompensationFailed.Code)
	case *pb.Record_CompensationSucceeded:
		return fmt.Sprintf("attempt %d", k.CompensationSucceeded.Attempt)
	case *pb.Record_ProbeAsked:
		return fmt.Sprintf("question %d, %s", k.ProbeAsked.Attempt,
			word(k.ProbeAsked.Question.String(), "QUESTION_"))
	case *pb.Record_ProbeAnswered:
		return fmt.Sprintf("question %d, %s", k.ProbeAnswered.Attempt,
			word(k.ProbeAnswered.Presence.String(), "PRESENCE_"))
	case *pb.Record_CommitWaits:
		return k.CommitWaits.Reason
	case *pb.Record_ActionQuarantined:
		return k.ActionQuarantined.Reason
	case *pb.Record_CompensationSkipped:
		return k.CompensationSkipped.Reason
	case *pb.Record_PlanEnded:
		return word(k.PlanEnded.End.String(), "PLAN_END_")
	case *pb.Record_FactAsserted:
		return fmt.Sprintf("%s=%.40s", k.FactAsserted.Key, k.FactAsserted.Value)
	case *pb.Record_FactRetracted:
		return k.FactRetracted.Key
	case *pb.Record_Resolved:
		return word(k.Resolved.Outcome.String(), "RESOLUTION_")
	case *pb.Record_VerdictGiven:
		return word(k.VerdictGiven.Outcome.String(), "VERDICT_OUTCOME_")
	case *pb.Record_CheckpointSigned:
		return fmt.Sprintf("%d records", k.CheckpointSigned.Size)
	case *pb.Record_KeyRotated:
		return fmt.Sprintf("at %d records", k.KeyRotated.Size)
	case *pb.Record_RecordRefused:
		return fmt.Sprintf("%d.%d", k.RecordRefused.Sequence, k.RecordRefused.Index)
	default:
		return ""
	}
}

// word is the name of an enum's value without its prefix.
func word(name, prefix string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", " ")
}

// Shrink leaves plans, actors and faults out of a failing run for as long as the same
// rule still fails, and returns what is left of it with its result. A run that does
// not fail comes back as it is.
func Shrink(o Options) (Options, Result) {
	o.Trace, o.Seen = false, nil
	best := Run(o)
	if len(best.Violations) == 0 {
		return o, best
	}
	rule := best.Violations[0].Rule
	try := func(smaller Options) bool {
		if smaller.String() == o.String() {
			return false
		}
		result := Run(smaller)
		if len(result.Violations) == 0 || result.Violations[0].Rule != rule {
			return false
		}
		o, best = smaller, result
		return true
	}
	for again := true; again; {
		again = false
		for _, smaller := range smallerThan(o) {
			smaller.Without, smaller.Drop = smaller.Without|o.Without, smaller.Drop|o.Drop
			smaller.Alone = smaller.Alone || o.Alone
			if o.Hosts != 0 && (smaller.Hosts == 0 || smaller.Hosts > o.Hosts) {
				smaller.Hosts = o.Hosts
			}
			if try(smaller) {
				again = true
			}
		}
	}
	return o, best
}

// smallerThan lists worlds with one thing less.
func smallerThan(o Options) (list []Options) {
	add := func(change func(*Options)) {
		smaller := o
		change(&smaller)
		list = append(list, smaller)
	}
	for n := range plansMax {
		if o.Drop>>n&1 == 0 {
			add(func(s *Options) { s.Drop |= 1 << n })
		}
	}
	if !o.Alone {
		add(func(s *Options) { s.Alone = true })
	}
	for hosts := 1; hosts < 3; hosts++ {
		if o.Hosts == 0 || hosts < o.Hosts {
			add(func(s *Options) { s.Hosts = hosts })
		}
	}
	for _, f := range FaultsOf(o.Seed).List() {
		if !o.Without.Has(f) {
			add(func(s *Options) { s.Without |= 1 << f })
		}
	}
	return list
}

// FaultsOf is the set of faults that a seed may have.
func FaultsOf(seed uint64) Faults { return faultsOf(newRandom(seed, streamFaults)) }

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

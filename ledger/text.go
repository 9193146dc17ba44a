package ledger

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A text that people read never stops an act: a plan whose reason is a tool's whole output is
// undone all the same. Such a text is made valid, and cut. Whatever else is a string in a record
// names something, and is exact or refused.

// Text returns a text for people as a record keeps it: at most TextMax bytes of UTF-8. See TextTo.
func Text(s string) string { return TextTo(s, TextMax) }

// TextTo returns a text as valid UTF-8 of at most most bytes: every run of bytes that are none is
// one U+FFFD, and a longer text is cut between two characters, and a mark after it says how
// many bytes there were. What it returns it returns unchanged.
func TextTo(s string, most int) string {
	if len(s) <= most && utf8.ValidString(s) {
		return s
	}
	size := len(s)
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= most {
		return s
	}
	mark := fmt.Sprintf(" … [cut: %d bytes]", size)
	if len(mark) > most {
		mark = ""
	}
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// IsBlank reports whether a text says nothing: it is empty, or white space alone. Whoever writes a
// record that has to say why refuses such a reason; a record that is in a ledger is taken as it is.
func IsBlank(text string) bool { return strings.TrimSpace(text) == "" }

// eachText calls each with every text of a record that people read and nothing else does, and the
// name of its field. isForPeople names the same fields.
func eachText(r *pb.Record, each func(field string, s *string)) {
	switch k := r.Kind.(type) {
	case *pb.Record_PlanOpened:
		each("label", &k.PlanOpened.Label)
	case *pb.Record_ForwardFailed:
		each("code", &k.ForwardFailed.Code)
		each("message", &k.ForwardFailed.Message)
	case *pb.Record_ForwardInDoubt:
		each("code", &k.ForwardInDoubt.Code)
		each("message", &k.ForwardInDoubt.Message)
	case *pb.Record_PlanFailed:
		each("reason", &k.PlanFailed.Reason)
	case *pb.Record_PlanCancelled:
		each("reason", &k.PlanCancelled.Reason)
	case *pb.Record_UnwindRequested:
		each("reason", &k.UnwindRequested.Reason)
	case *pb.Record_VerdictGiven:
		each("reason", &k.VerdictGiven.Reason)
	case *pb.Record_CompensationReported:
		each("code", &k.CompensationReported.Code)
		each("message", &k.CompensationReported.Message)
	case *pb.Record_CompensationProgressed:
		each("note", &k.CompensationProgressed.Note)
	default:
		eachTextOfOperator(r, each)
	}
}

// eachTextOfOperator is eachText of the kinds that operators write.
func eachTextOfOperator(r *pb.Record, each func(field string, s *string)) {
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationRequested:
		each("reason", &k.CompensationRequested.Reason)
	case *pb.Record_CancelRequested:
		each("reason", &k.CancelRequested.Reason)
	case *pb.Record_RetryRequested:
		each("reason", &k.RetryRequested.Reason)
	case *pb.Record_Resolved:
		each("reason", &k.Resolved.Reason)
		each("evidence", &k.Resolved.Evidence)
	case *pb.Record_ClockConfirmed:
		each("reason", &k.ClockConfirmed.Reason)
	case *pb.Record_EvictRequested:
		each("reason", &k.EvictRequested.Reason)
	case *pb.Record_RestoreRequested:
		each("reason", &k.RestoreRequested.Reason)
	case *pb.Record_CascadeAnswered:
		each("reason", &k.CascadeAnswered.Reason)
	case *pb.Record_EffectReported:
		each("reason", &k.EffectReported.Reason)
	case *pb.Record_DeadlineMoved:
		each("reason", &k.DeadlineMoved.Reason)
	case *pb.Record_PlanAdopted:
		each("reason", &k.PlanAdopted.Reason)
	case *pb.Record_LedgerRepaired:
		each("problem", &k.LedgerRepaired.Problem)
		each("reason", &k.LedgerRepaired.Reason)
	case *pb.Record_KeyRotated:
		each("reason", &k.KeyRotated.Reason)
	case *pb.Record_PlanErased:
		each("reason", &k.PlanErased.Reason)
	}
}

// CutTexts makes the texts of a record that people read what a record keeps: see Text. It writes
// nothing to a record that it has made so: others may read it by then.
func CutTexts(r *pb.Record) {
	eachText(r, func(_ string, s *string) {
		if hasToBeCut(*s) {
			*s = Text(*s)
		}
	})
	if hasPlainDetail(r) {
		r.Payload.Detail = asText(r.Payload.Detail)
	}
}

func hasToBeCut(text string) bool { return len(text) > TextMax || !utf8.ValidString(text) }

// hasPlainDetail reports whether an error is kept as the tool printed it, and not as JSON.
func hasPlainDetail(r *pb.Record) bool {
	detail := r.Payload.GetDetail()
	return len(detail) > 0 && !json.Valid(detail)
}

// hasLongText reports whether CutTexts would change a record.
func hasLongText(r *pb.Record) (found bool) {
	if hasPlainDetail(r) {
		return true
	}
	eachText(r, func(_ string, s *string) {
		found = found || hasToBeCut(*s)
	})
	return found
}

var kinds = (&pb.Record{}).ProtoReflect().Descriptor().Oneofs().ByName("kind")

// isForPeople reports whether a field of a record's kind is a text that people read.
func isForPeople(f protoreflect.FieldDescriptor) bool {
	if f.Kind() != protoreflect.StringKind || f.IsList() {
		return false
	}
	switch f.Name() {
	case "reason", "message", "code", "note", "label", "evidence", "problem":
		return true
	default:
		return false
	}
}

// storyOfDelivery tells what a plan that delivers does in words of its own: it undoes nothing.
// Empty: as of any plan.
func storyOfDelivery(r *pb.Record) string {
	if !strings.HasSuffix(r.Plan, "~0") {
		return ""
	}
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationSucceeded:
		text := fmt.Sprintf("delivered by attempt %d", k.CompensationSucceeded.Attempt)
		if k.CompensationSucceeded.Probed {
			text += ": a question found it"
		}
		return storyWorker(text, k.CompensationSucceeded.Worker)
	case *pb.Record_CompensationFailed:
		if !k.CompensationFailed.InDoubt {
			return ""
		}
		return storyText(storyWorker(fmt.Sprintf("attempt %d is in doubt: it may have been delivered",
			k.CompensationFailed.Attempt), k.CompensationFailed.Worker),
			storyError(k.CompensationFailed.Code, k.CompensationFailed.Message))
	case *pb.Record_CompensationSkipped:
		return storyText("it is not delivered", k.CompensationSkipped.Reason)
	case *pb.Record_CancelRequested:
		return asked("its deliveries were stopped", k.CancelRequested.Reason, k.CancelRequested.Actor)
	case *pb.Record_PlanEnded:
		text := fmt.Sprintf("the deliveries ended %s: %d delivered, %d dropped", strings.ToLower(
			strings.TrimPrefix(k.PlanEnded.End.String(), "PLAN_END_")), k.PlanEnded.Compensated,
			k.PlanEnded.Skipped)
		if len(k.PlanEnded.Outstanding) > 0 {
			text += "; not delivered: " + storyClip(strings.Join(k.PlanEnded.Outstanding, ", "))
		}
		return text
	}
	return ""
}

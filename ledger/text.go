package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A text that people read never stops an act: a plan whose reason is a tool's whole output is
// undone all the same. Such a text is made valid, and cut. Whatever else is a string in a record
// names something, and is exact or refused.

// Text returns a text for people as a record keeps it: at most TextMax bytes of UTF-8. See TextTo.
func Text(s string) string { return TextTo(s, TextMax) }

// TextTo returns a text as valid UTF-8 of at most most bytes: every run of bytes that are none is
// one U+FFFD, and a longer text is cut between two characters, with a mark behind it that says how
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
	case *pb.Record_LedgerRepaired:
		each("problem", &k.LedgerRepaired.Problem)
		each("reason", &k.LedgerRepaired.Reason)
	case *pb.Record_KeyRotated:
		each("reason", &k.KeyRotated.Reason)
	case *pb.Record_PlanErased:
		each("reason", &k.PlanErased.Reason)
	}
}

// CutTexts makes the texts of a record that people read what a record keeps: see Text.
func CutTexts(r *pb.Record) {
	eachText(r, func(_ string, s *string) { *s = Text(*s) })
	if hasPlainDetail(r) {
		r.Payload.Detail = asText(r.Payload.Detail)
	}
}

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
		found = found || len(*s) > TextMax || !utf8.ValidString(*s)
	})
	return found
}

// Under returns the entries of a message as a holder with this version of the fold reads them:
// those of before TextsSince refused a record for a text that people read, and took a value that
// is not exact. What is stored under them stays as it was.
func Under(entries []Entry, fold uint32) []Entry {
	if fold >= TextsSince || !slices.ContainsFunc(entries, func(e Entry) bool {
		return e.strict != nil
	}) {
		return entries
	}
	entries = slices.Clone(entries)
	for i, e := range entries {
		entries[i] = e.Under(fold)
	}
	return entries
}

// Under is Under of one entry.
func (e Entry) Under(fold uint32) Entry {
	if e.strict != nil && fold < TextsSince {
		e.Record, e.Err, e.Pair = e.strict.record, e.strict.err, e.strict.pair
		e.Partial = false
	}
	return e
}

// strict is what holders of before TextsSince read.
type strict struct {
	record *pb.Record
	err    error
	pair   *pb.Record
}

// pairUp is checkPairs of the entries of a message, also as earlier holders read them.
func pairUp(entries []Entry) {
	old := Under(entries, 0)
	changed := &old[0] != &entries[0]
	if changed {
		checkPairs(old)
	}
	checkPairs(entries)
	if !changed {
		return
	}
	for i := range entries {
		entries[i].strict = &strict{old[i].Record, old[i].Err, old[i].Pair}
	}
}

// judge cuts the texts of an entry's record, leaves out what is not exact, and checks it.
func (e *Entry) judge() {
	if hasLongText(e.Record) || hasInexact(e.Record) {
		if e.strict == nil {
			e.strict = &strict{record: e.Record.CloneVT(),
				err: firstOf(wellFormed(e.Record, e.Source), textFault(e.Record))}
		}
		CutTexts(e.Record)
		leaveOut(e.Record)
	}
	e.Err = Check(e.Record, e.Source)
}

// mend is judge for a record in JSON that could not be read, where its texts are why.
func (e *Entry) mend(raw json.RawMessage) {
	if record := readMended(raw); record != nil {
		e.strict = &strict{record: e.Record, err: e.Err}
		e.Record = record
		e.judge()
	}
}

// textFault is why a record was refused before TextsSince.
func textFault(r *pb.Record) (err error) {
	eachText(r, func(field string, s *string) {
		if err == nil {
			err = text(KindOf(r).Name+"."+field, *s)
		}
	})
	return err
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

// referenceField is what the provider calls the effect of a forward.
var referenceField = (&pb.ForwardCompleted{}).ProtoReflect().Descriptor().Fields().
	ByName("external_ref")

// readMended reads a record in JSON that protojson does not take, with its texts for people made
// texts: bytes that are no UTF-8, half a surrogate pair, a number or an object in place of a
// string; and without the name of an effect that is not exact, as in leaveOut. nil: that is not
// what is wrong with it.
func readMended(raw json.RawMessage) *pb.Record {
	record := new(pb.Record)
	fields, unnamed := record.ProtoReflect().Descriptor(), false
	mended, err := rewrite(raw, func(name string, value json.RawMessage) json.RawMessage {
		f := fieldNamed(fields, name)
		if f == nil || f.ContainingOneof() != kinds {
			return value
		}
		body, err := rewrite(value, func(name string, value json.RawMessage) json.RawMessage {
			switch f := fieldNamed(f.Message(), name); {
			case f == nil:
			case isForPeople(f):
				return asText(value)
			case f == referenceField && isNumber(value):
				return asText(value)
			case f == referenceField && !ExactJSON(value):
				unnamed = true
				return json.RawMessage(`""`)
			}
			return value
		})
		if err != nil {
			return value
		}
		return body
	})
	if err != nil || protojson.Unmarshal(mended, record) != nil {
		return nil
	}
	if unnamed {
		record.GetForwardCompleted().ReferenceIncomplete = true
	}
	return record
}

// asText is a JSON value as a JSON string.
func asText(value json.RawMessage) json.RawMessage {
	var s string
	switch {
	case string(value) == "null":
		return value
	case json.Unmarshal(value, &s) != nil:
		s = Text(string(value))
	}
	text, err := json.Marshal(s)
	if err != nil {
		return value // a string is always JSON
	}
	return text
}

// rewrite returns a JSON object with its values replaced by what each returns for them.
func rewrite(raw json.RawMessage,
	each func(name string, value json.RawMessage) json.RawMessage) (json.RawMessage, error) {
	out := bytes.NewBufferString("{")
	err := members(raw, func(name string, value json.RawMessage) error {
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		key, err := json.Marshal(name)
		out.Write(key)
		out.WriteByte(':')
		out.Write(each(name, value))
		return err
	})
	out.WriteByte('}')
	return out.Bytes(), err
}

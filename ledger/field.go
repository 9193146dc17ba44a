package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Checks of single fields.

// text checks a string that must be kept as it is.
func isText(s string) bool { return len(s) <= TextMax && utf8.ValidString(s) }

func text(field, s string) error {
	if !isText(s) {
		return Refuse(field, "too long or not UTF-8", fmt.Sprintf("at most %d bytes of UTF-8", TextMax))
	}
	return nil
}

func token(field, s string) error {
	if !ValidToken(s) {
		return Refuse(field, fmt.Sprintf("%q is not a name", s), TokenWanted)
	}
	return nil
}

// owned checks an owner's word: it has a reason and a name.
func owned(at, reason, actor string) error {
	for _, f := range [...]struct{ name, value string }{{"reason", reason}, {"actor", actor}} {
		if f.value == "" {
			return Refuse(at+"."+f.name, "empty", "the owner's "+f.name)
		}
	}
	return text(at+".actor", actor)
}

func factKey(field, key string) error {
	if len(key) == 0 || len(key) > FactKeyMax || !utf8.ValidString(key) {
		return Refuse(field, "empty, too long or not UTF-8",
			fmt.Sprintf("1 to %d bytes of UTF-8", FactKeyMax))
	}
	return nil
}

// object checks that lifted values are a JSON object or absent.
func object(field string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil || !utf8.Valid(data) {
		return Refuse(field, "not a JSON object", "a JSON object")
	}
	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkMoved holds the rules of a deadline that is moved: by an operator, or by the plan's agent.
func checkMoved(k *pb.DeadlineMoved, s Source) error {
	switch agent := s.Class == ClassAgent; {
	case k.DeadlineNs == 0:
		return Refuse("deadline_moved.deadline_ns", "missing", InstantWanted+", in unix ns")
	case agent && k.Actor != "":
		return Refuse("deadline_moved.actor", "given by an agent", "none: the subject names it")
	case agent && k.Reason == "":
		return Refuse("deadline_moved.reason", "empty", "why, in a few words")
	case agent:
		return instant("deadline_moved.deadline_ns", k.DeadlineNs)
	}
	return firstOf(instant("deadline_moved.deadline_ns", k.DeadlineNs),
		owned("deadline_moved", k.Reason, k.Actor))
}

// checkAdopted holds the rules of a plan that is handed to another agent.
func checkAdopted(k *pb.PlanAdopted) error {
	return firstOf(token("plan_adopted.agent", k.Agent),
		owned("plan_adopted", k.Reason, k.Actor))
}

// cut keeps what a foreign program wrote short enough for a log.
func cut(text string) string {
	return TextTo(text, 64)
}

// duplicatesMax bounds the extra effects that one report names.
const duplicatesMax = 32

// checkEffect holds the rules of what an operator reports of an effect; nil: it is another record.
func checkEffect(k *pb.EffectReported, output []byte) error {
	if k == nil {
		return nil
	}
	if len(k.Duplicates) > duplicatesMax {
		return Refuse("effect_reported.duplicates", fmt.Sprintf("%d names", len(k.Duplicates)),
			fmt.Sprintf("at most %d", duplicatesMax))
	}
	named := map[string]bool{k.ExternalRef: true}
	for i, name := range k.Duplicates {
		field := fmt.Sprintf("effect_reported.duplicates[%d]", i)
		if name == "" || named[name] {
			return Refuse(field, fmt.Sprintf("%.64q is empty or given twice", name),
				"what the provider calls an effect beside external_ref")
		}
		named[name] = true
		if err := text(field, name); err != nil {
			return err
		}
	}
	if len(output) > 0 && !isValue(output) {
		return Refuse("payload.output", "no JSON, or text that is not exact", WantExact)
	}
	return firstOf(owned("effect_reported", k.Reason, k.Actor),
		text("effect_reported.external_ref", k.ExternalRef))
}

// EffectAnswer is a report of an effect as the answer that a second operator has to give, too:
// two are the same if they name the same effects, in any order, and the same output. It begins with
// the first names, so that the second operator sees what the first one has said.
func EffectAnswer(k *pb.EffectReported, output []byte) string {
	extra := slices.Sorted(slices.Values(k.GetDuplicates()))
	h := sha256.New()
	for _, part := range append([]string{k.GetExternalRef(), string(Compact(output))}, extra...) {
		fmt.Fprintf(h, "%d %s,", len(part), part)
	}
	said := "present"
	if k.GetExternalRef() != "" {
		said += fmt.Sprintf(" %.32q", k.GetExternalRef())
	}
	for i, name := range extra {
		if i == 3 {
			said += fmt.Sprintf(" and %d more", len(extra)-i)
			break
		}
		said += fmt.Sprintf(" +%.32q", name)
	}
	return said + " " + hex.EncodeToString(h.Sum(nil))
}

// Compact is a JSON document without the space between its tokens; what is none stays as it is.
func Compact(document []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, document) != nil {
		return document
	}
	return b.Bytes()
}

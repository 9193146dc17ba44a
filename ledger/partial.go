package ledger

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A worker's report says what was done, and other things beside. What was done stays done,
// whatever is wrong with the others: they are left out.

// readPartly makes an entry of a worker partial where what is wrong with it allows that; raw is
// its record in JSON, nil in protobuf.
func (e *Entry) readPartly(raw json.RawMessage) {
	if e.Err == nil || e.Source.Class != ClassWorker || e.Record == nil {
		return
	}
	record := proto.CloneOf(e.Record)
	if raw != nil {
		record = new(pb.Record)
		rest, ok := legible(record.ProtoReflect().Descriptor(), raw)
		if !ok {
			return
		}
		if protojson.Unmarshal(rest, record) != nil {
			if record = readMended(rest); record == nil {
				return
			}
		}
	}
	CutTexts(record)
	if k := record.GetCompensationReported(); k != nil && !ExactText(k.ExternalRef) {
		k.ExternalRef = ""
	}
	if p := record.Payload; p != nil {
		for _, value := range [...]*[]byte{&p.Input, &p.Output, &p.Arguments, &p.Detail, &p.Before} {
			if len(*value) > 0 && !json.Valid(*value) {
				*value = nil
			}
		}
	}
	if checkForm(record, e.Source) == nil {
		e.Record, e.Partial = record, true
	}
}

// essential are the fields of a worker's record without which it says nothing: what it is about,
// and what was done.
func essential(f protoreflect.FieldDescriptor) bool {
	if f.ContainingOneof() != nil {
		return true // the kind
	}
	switch f.Name() {
	case "plan", "action", "attempt", "key", "token", "answer":
		return true
	default:
		return false
	}
}

// legible is a message in JSON without the fields that cannot be read; a number is taken where a
// text is meant. False: one of them is essential.
func legible(d protoreflect.MessageDescriptor, raw json.RawMessage) (json.RawMessage, bool) {
	rest, seen := map[string]json.RawMessage{}, map[protoreflect.Name]bool{}
	err := members(raw, func(name string, value json.RawMessage) error {
		f := fieldNamed(d, name)
		if f == nil {
			return nil
		}
		ok := !seen[f.Name()]
		seen[f.Name()] = true
		switch {
		case !ok:
			delete(rest, f.JSONName())
		case f.Kind() == protoreflect.MessageKind && !f.IsList():
			value, ok = legible(f.Message(), value)
		case f.Kind() == protoreflect.StringKind && !isForPeople(f) && !ExactJSON(value):
			ok = false
		case faultOf(f, value, name) == nil || string(value) == "null":
		case f.Kind() == protoreflect.StringKind && !essential(f) && isNumber(value):
			value = asText(value)
		default:
			ok = false
		}
		if !ok && essential(f) {
			return errNoObject
		}
		if ok {
			rest[f.JSONName()] = value
		}
		return nil
	})
	if err != nil {
		return nil, false
	}
	text, err := json.Marshal(rest) // in the order of the names
	return text, err == nil
}

// isNumber reports whether a valid value is a number.
func isNumber(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}

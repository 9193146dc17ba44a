package ledger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/proto/rawjson"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// A record in JSON is written by someone who has no compiler to find a misspelt field.
// What is ignored or only called unreadable is found weeks later, at the undo. So the
// first field that is wrong is named, and what would be right there.

// readJSON reads a record. Where that fails, the error names the field below at, and the
// record has what can be read of it: plan, action and kind at the least, so that the
// refusal is attributed and a forward that may be under way is known.
func readJSON(raw json.RawMessage, at string) (*pb.Record, error) {
	record := new(pb.Record)
	if protojson.Unmarshal(raw, record) == nil {
		return record, nil
	}
	// The reasons are texts of our own: they become state, and those of protojson differ
	// between versions, and on purpose between builds.
	err := faultIn(record.ProtoReflect().Descriptor(), raw, at)
	if err == nil {
		err = Refuse(at, "not a record in protojson", "a record of sagenbaum.v1")
	}
	return salvage(raw), err
}

// salvage reads what it can of a record that is wrong.
func salvage(raw json.RawMessage) *pb.Record {
	record := new(pb.Record)
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, record) == nil {
		return record
	}
	record = new(pb.Record)
	message := record.ProtoReflect()
	_ = members(raw, func(name string, value json.RawMessage) error {
		var text string
		isText := json.Unmarshal(value, &text) == nil
		switch f := fieldNamed(message.Descriptor(), name); {
		case f == nil:
		case f.Kind() == protoreflect.StringKind && isText && ValidDerived(text):
			message.Set(f, protoreflect.ValueOfString(text)) // plan or action
		case f.ContainingOneof() == kinds && message.WhichOneof(kinds) == nil:
			message.Mutable(f)
		}
		return nil
	})
	return record
}

// members calls each for the members of a JSON object, in their order, until it returns
// an error. What is no object is errNoObject.
func members(raw json.RawMessage, each func(name string, value json.RawMessage) error) error {
	if !json.Valid(raw) || kindOfJSON(raw) != "an object" {
		return errNoObject
	}
	for name, value := range rawjson.Members(raw) {
		if err := each(string(name), value); err != nil {
			return err
		}
	}
	return nil
}

var errNoObject = Refuse("json", "not an object", "an object")

// envelopeFault says what is wrong with a commit in JSON that cannot be split. As with
// records, the texts are ours.
func envelopeFault(data []byte) error {
	const want = `{"records": [...]} and no other field`
	if !json.Valid(data) {
		return Refuse("commit", "not JSON", want)
	}
	err := envelopeNames(data)
	if err == nil || err == errNoObject {
		return Refuse("commit", "not a commit in JSON", want)
	}
	return err
}

// envelopeNames refuses what encoding/json lets pass: a name in other letters, and one
// that is given twice, of which other parsers take the other one.
func envelopeNames(data []byte) error {
	commit := (&pb.Commit{}).ProtoReflect().Descriptor()
	seen := map[protoreflect.Name]bool{}
	return members(data, func(name string, _ json.RawMessage) error {
		f := fieldNamed(commit, name)
		switch {
		case f == nil:
			return unknownField(commit, name, "commit")
		case seen[f.Name()]:
			return Refuse("commit."+name, "given twice", "one value")
		}
		seen[f.Name()] = true
		return nil
	})
}

// fieldNamed is the field of a name, in either spelling of protojson, or nil.
func fieldNamed(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByJSONName(name); f != nil {
		return f
	}
	return d.Fields().ByTextName(name)
}

// faultIn names the first field of a message that protojson does not take, or nil.
func faultIn(d protoreflect.MessageDescriptor, raw json.RawMessage, at string) error {
	seen := map[protoreflect.Name]string{} // fields and oneofs, by what was written
	err := members(raw, func(name string, value json.RawMessage) error {
		f := fieldNamed(d, name)
		if f == nil {
			return unknownField(d, name, at)
		}
		place := at + "." + name
		if seen[f.Name()] != "" {
			return Refuse(place, "given twice", "one value")
		}
		seen[f.Name()] = name
		if string(value) == "null" {
			return nil
		}
		if o := f.ContainingOneof(); o != nil {
			if other := seen[o.Name()]; other != "" {
				return Refuse(place, "given beside "+other, "one "+string(o.Name())+" for each record")
			}
			seen[o.Name()] = name
		}
		return faultOf(f, value, place)
	})
	if err == errNoObject {
		return Refuse(at, "not an object", "an object with the fields of sagenbaum.v1."+string(d.Name()))
	}
	return err
}

// unknownField refuses a name that no field has.
func unknownField(d protoreflect.MessageDescriptor, name, at string) error {
	var names []string
	for i := range d.Fields().Len() {
		names = append(names, d.Fields().Get(i).JSONName())
	}
	want := nearest.DidYouMean(name, names)
	switch {
	case want != "":
	case len(names) == 0:
		want = "no field: " + string(d.Name()) + " has none"
	case len(names) > namesShown:
		want = "a field of sagenbaum.v1." + string(d.Name())
	default:
		want = strings.Join(names, ", ")
	}
	problem := "there is no such field"
	if !ValidToken(name) {
		return Refuse(at, fmt.Sprintf("%s: %.64q", problem, name), want)
	}
	return Refuse(at+"."+name, problem, want)
}

// namesShown is up to how many fields a refusal lists.
const namesShown = 16

// faultOf says what is wrong with the value of a field, or nil.
func faultOf(f protoreflect.FieldDescriptor, value json.RawMessage, at string) error {
	if !f.IsList() {
		return faultOfOne(f, value, at)
	}
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		return Refuse(at, "not a list", "a list, as in [...]")
	}
	for i, item := range items {
		if err := faultOfOne(f, item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func faultOfOne(f protoreflect.FieldDescriptor, value json.RawMessage, at string) error {
	var text string
	isText := json.Unmarshal(value, &text) == nil && len(value) > 0 && value[0] == '"'
	switch f.Kind() {
	case protoreflect.MessageKind:
		return faultIn(f.Message(), value, at)
	case protoreflect.StringKind:
		if !isText {
			return Refuse(at, "not a string", "a string in quotes")
		}
	case protoreflect.BytesKind:
		if !isText || !isBase64(text) {
			return Refuse(at, "not base64", `base64 of the bytes, as in "eyJpZCI6MX0=" for {"id":1}`)
		}
	case protoreflect.BoolKind:
		if s := string(value); s != "true" && s != "false" {
			return Refuse(at, "not a truth", "true or false")
		}
	case protoreflect.EnumKind:
		return faultOfEnum(f.Enum(), value, at)
	case protoreflect.Int32Kind, protoreflect.Int64Kind,
		protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		if !isText {
			text = string(value)
		}
		if !isWhole(f.Kind(), text) {
			return Refuse(at, "not a whole number in range", "a number, as a number or a string of digits")
		}
	}
	return nil
}

func faultOfEnum(e protoreflect.EnumDescriptor, value json.RawMessage, at string) error {
	name, isText := strings.CutPrefix(string(value), `"`)
	name = strings.TrimSuffix(name, `"`)
	switch {
	case isText && e.Values().ByName(protoreflect.Name(name)) != nil:
		return nil
	case !isText && isWhole(protoreflect.Int32Kind, name):
		return nil
	}
	var names []string
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); v.Number() != 0 {
			names = append(names, string(v.Name()))
		}
	}
	return Refuse(at, fmt.Sprintf("%.64q is none of its values", name), strings.Join(names, ", "))
}

// isBase64 reports whether protojson takes a text for bytes: either alphabet, with or
// without padding.
func isBase64(text string) bool {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	_, err := base64.RawStdEncoding.DecodeString(text)
	return err == nil
}

// isWhole reports whether a number, as JSON writes it, is a whole one of a kind.
func isWhole(kind protoreflect.Kind, text string) bool {
	var err error
	switch kind {
	case protoreflect.Int32Kind:
		_, err = strconv.ParseInt(text, 10, 32)
	case protoreflect.Uint32Kind:
		_, err = strconv.ParseUint(text, 10, 32)
	case protoreflect.Uint64Kind:
		_, err = strconv.ParseUint(text, 10, 64)
	default:
		_, err = strconv.ParseInt(text, 10, 64)
	}
	if err == nil {
		return true
	}
	whole, err := strconv.ParseFloat(text, 64) // 1.0 and 1e3 are whole, too
	inRange := err == nil && whole == math.Trunc(whole) && math.Abs(whole) < 1<<63
	return inRange && strings.ContainsAny(text, ".eE")
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

package web

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Essence lists the fields of a record's kind that are set, in a line, without digests
// and keys, which say nothing to people.
func Essence(record *pb.Record) string {
	message := record.ProtoReflect()
	kind := message.WhichOneof(message.Descriptor().Oneofs().ByName("kind"))
	if kind == nil {
		return ""
	}
	return clip(fields(message.Get(kind).Message()), 160)
}

func fields(message protoreflect.Message) string {
	var parts []string
	list := message.Descriptor().Fields()
	for i := range list.Len() {
		f := list.Get(i)
		name := string(f.Name())
		if !message.Has(f) || name == "key" && f.Number() > 2 || strings.HasSuffix(name, "digest") {
			continue
		}
		if text := fieldText(f, message.Get(f)); text != "" {
			parts = append(parts, strings.TrimSuffix(strings.ReplaceAll(name, "_", " "), " ns")+": "+text)
		}
	}
	return strings.Join(parts, " · ")
}

// enumPrefixes are what the values of enumerations begin with, which is their type.
var enumPrefixes = []string{
	"class_", "plan_end_", "resolution_", "verdict_outcome_", "question_", "presence_",
	"on_in_doubt_", "on_late_", "fidelity_", "on_undo_failure_",
}

func fieldText(f protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch {
	case f.IsList() && f.Kind() == protoreflect.StringKind:
		var all []string
		for i := range value.List().Len() {
			all = append(all, value.List().Get(i).String())
		}
		return clip(strings.Join(all, ", "), 80)
	case f.IsList():
		return fmt.Sprint(value.List().Len())
	case f.Kind() == protoreflect.EnumKind:
		known := f.Enum().Values().ByNumber(value.Enum())
		if known == nil {
			return fmt.Sprint(value.Enum()) // of a newer writer
		}
		name := strings.ToLower(string(known.Name()))
		for _, prefix := range enumPrefixes {
			name = strings.TrimPrefix(name, prefix)
		}
		return strings.ReplaceAll(name, "_", " ")
	case f.Kind() == protoreflect.BytesKind:
		if raw := value.Bytes(); json.Valid(raw) {
			return clip(string(raw), 80)
		}
		return ""
	case f.Kind() == protoreflect.MessageKind:
		if a, ok := value.Message().Interface().(*pb.Address); ok {
			return ledger.FormatAddress(a)
		}
		return clip(fields(value.Message()), 80)
	case f.Kind() == protoreflect.Int64Kind && strings.HasSuffix(string(f.Name()), "_ns"):
		if ns := value.Int(); ns > 1e17 {
			return Moment(ns)
		}
		return lasted(value.Int())
	default:
		return clip(fmt.Sprint(value.Interface()), 120)
	}
}

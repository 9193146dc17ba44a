package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestATextOfWhiteSpaceAloneIsBlank(t *testing.T) {
	for text, want := range map[string]bool{"": true, " ": true, "\t\r\n\u00a0\u2003": true, " x ": false, ".": false} {
		if ledger.IsBlank(text) != want {
			t.Errorf("%q is blank: %v", text, !want)
		}
	}
}

func TestATextForPeopleIsMadeValidAndCutWithAMark(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"", 10, ""},
		{"fits", 4, "fits"},
		{"caf\xe9", 10, "caf\uFFFD"},
		{"a\xe9\xff\xfeb", 10, "a\uFFFDb"},
		{strings.Repeat("x", 41), 40, strings.Repeat("x", 20) + " … [cut: 41 bytes]"},
		{strings.Repeat("é", 30), 40, strings.Repeat("é", 10) + " … [cut: 60 bytes]"},
		{"longer than that", 4, "long"},
		{strings.Repeat("\xff.", 20), 40, strings.Repeat("\uFFFD.", 5) + " … [cut: 40 bytes]"},
	} {
		if got := ledger.TextTo(c.in, c.most); got != c.want {
			t.Errorf("%.20q in %d bytes: %q, want %q", c.in, c.most, got, c.want)
		}
	}
	for size := range 200 {
		for most := range 60 {
			text := strings.Repeat("aé€\U0001F600\xff", size/8+1)[:size]
			got := ledger.TextTo(text, most)
			if len(got) > most || !utf8.ValidString(got) || ledger.TextTo(got, most) != got {
				t.Fatalf("%d bytes in %d: %q", size, most, got)
			}
		}
	}
}

// exact are the strings of records that name something: whatever may be in them, they are kept as
// they are, or the record is refused.
var exact = strings.Fields(`plan_opened.owner plan_opened.parent_plan plan_opened.parent_action
	plan_opened.function forward_registered.capability compensation_registered.capability
	compensation_registered.key compensation_registered.worker_version compensation_registered.fidelity
	compensation_registered.actuator compensation_registered.done compensation_registered.stop
	compensation_registered.page compensation_registered.handler_version compensation_registered.unchanged
	savepoint_set.name unwind_requested.to_savepoint fact_asserted.key fact_retracted.key
	compensation_requested.actor compensation_requested.to_savepoint compensation_requested.from_action
	cancel_requested.actor retry_requested.actor resolved.actor contract_published.capability
	clock_confirmed.actor evict_requested.actor restore_requested.actor cascade_answered.lease
	cascade_answered.actor compensation_reported.key compensation_reported.external_ref
	compensation_reported.token compensation_progressed.key compensation_progressed.token
	plan_erased.actor effect_reported.external_ref effect_reported.actor
	deadline_moved.actor plan_adopted.agent plan_adopted.actor`)

// TestEveryStringOfARecordIsExactOrATextForPeople: one that is too long and no UTF-8 is refused by
// its name, or cut, in protobuf and in JSON. Kinds that only a holder writes have no strings of
// others.
func TestEveryStringOfARecordIsExactOrATextForPeople(t *testing.T) {
	bad := strings.Repeat("é", ledger.TextMax) + "\xe9"
	var seen []string
	for _, g := range good() {
		kind := ledger.KindOf(g.record)
		if g.source.Class == ledger.ClassExecutor {
			continue
		}
		for _, f := range stringsOf(g.record) {
			name := kind.Name + "." + string(f.Name())
			inProto, inJSON := proto.CloneOf(g.record), jsonWith(t, g.record, kind.Name, string(f.Name()), bad)
			body := inProto.ProtoReflect()
			message := body.Mutable(body.WhichOneof(kindsOf(body))).Message()
			message.Set(f, protoreflect.ValueOfString(bad))
			entries := map[string]ledger.Entry{
				"protobuf": decoded(t, g.source, "", rawCommit(t, inProto)),
				"JSON":     decoded(t, g.source, ledger.ContentTypeJSON, inJSON),
			}
			if name == "forward_completed.external_ref" { // the effect is there, whatever it is called
				for format, e := range entries {
					if done := e.Record.GetForwardCompleted(); e.Err != nil || done.ExternalRef != "" || !done.ReferenceIncomplete ||
						e.Under(ledger.TextsSince-1).Err == nil {
						t.Errorf("%s in %s: %v, %v", name, format, done, e.Err)
					}
				}
				continue
			}
			if slices.Contains(exact, name) {
				seen = append(seen, name)
				for format, e := range entries {
					if field := refusedField(e.Err); !strings.HasSuffix(field, "."+string(f.Name())) &&
						!(format == "JSON" && field == "records[0]") {
						t.Errorf("%s in %s: %v", name, format, e.Err)
					}
				}
				continue
			}
			for format, e := range entries {
				wantCut(t, name+" in "+format, e, f)
			}
		}
	}
	slices.Sort(seen)
	want := slices.Sorted(slices.Values(exact))
	if !slices.Equal(seen, want) {
		t.Errorf("the strings that are exact are\n%v, want\n%v", seen, want)
	}
}

// wantCut checks a text that was cut, and that earlier holders refused its record.
func wantCut(t *testing.T, what string, e ledger.Entry, f protoreflect.FieldDescriptor) {
	t.Helper()
	if e.Err != nil {
		t.Errorf("%s: %v", what, e.Err)
		return
	}
	body := e.Record.ProtoReflect()
	got := body.Get(body.WhichOneof(kindsOf(body))).Message().Get(f).String()
	if !utf8.ValidString(got) || len(got) > ledger.TextMax || !strings.HasSuffix(got, "bytes]") ||
		!strings.HasPrefix(got, strings.Repeat("é", ledger.TextMax/2-20)) {
		t.Errorf("%s: %d bytes, %.40q ... %q", what, len(got), got, got[max(0, len(got)-40):])
	}
	since := uint32(ledger.TextsSince)
	if e.Record.GetEffectReported() != nil { // no holder before knows of the kind
		since = ledger.EffectsSince
	}
	if e.Record.GetDeadlineMoved() != nil {
		since = ledger.MovedSince
	}
	if e.Record.GetPlanAdopted() != nil {
		since = ledger.AdoptedSince
	}
	old := e.Under(since - 1)
	if old.Err == nil || e.Under(since).Err != nil {
		t.Errorf("%s: an earlier holder reads %v, this one %v", what, old.Err, e.Under(since).Err)
	}
}

// stringsOf are the fields of a record's kind that hold one string.
func stringsOf(r *pb.Record) (fields []protoreflect.FieldDescriptor) {
	body := r.ProtoReflect()
	all := body.WhichOneof(kindsOf(body)).Message().Fields()
	for i := range all.Len() {
		if f := all.Get(i); f.Kind() == protoreflect.StringKind && !f.IsList() {
			fields = append(fields, f)
		}
	}
	return fields
}

func kindsOf(body protoreflect.Message) protoreflect.OneofDescriptor {
	return body.Descriptor().Oneofs().ByName("kind")
}

// rawCommit is a commit as a program writes it that cuts nothing.
func rawCommit(t *testing.T, r *pb.Record) []byte {
	t.Helper()
	body, err := r.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	data := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	return protowire.AppendBytes(protowire.AppendTag(data, 2, protowire.BytesType), body)
}

// jsonWith is a commit in JSON with one text of its kind replaced, byte for byte.
func jsonWith(t *testing.T, r *pb.Record, kind, field, text string) []byte {
	t.Helper()
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]json.RawMessage
	var body map[string]any
	if json.Unmarshal(raw, &record) != nil || json.Unmarshal(record[kind], &body) != nil {
		t.Fatalf("%s", raw)
	}
	body[field] = "TEXT"
	record[kind], _ = json.Marshal(body)
	data, _ := json.Marshal(record)
	return []byte(`{"records":[` + strings.Replace(string(data), "TEXT", text, 1) + `]}`)
}

func decoded(t *testing.T, s ledger.Source, contentType string, data []byte) ledger.Entry {
	t.Helper()
	entries, err := ledger.Decode(s.Tenant, ledger.Message{Sequence: 7, Subject: s.Subject(),
		ContentType: contentType, Data: data})
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %d entries", err, len(entries))
	}
	return entries[0]
}

// TestATextForPeopleInJSONIsWhateverIsThere: it does not have to be a string.
func TestATextForPeopleInJSONIsWhateverIsThere(t *testing.T) {
	for raw, want := range map[string]string{
		`"half \ud83d a pair"`:        "half \uFFFD a pair",
		`404`:                         "404",
		`{"code":404,"why":"\u0000"}`: `{"code":404,"why":"\u0000"}`,
		`["a","b"]`:                   `["a","b"]`,
		`null`:                        "",
		"\"stderr: \xe9\"":            "stderr: \uFFFD",
	} {
		for _, kind := range []string{"plan_failed", "planFailed", "planCancelled"} {
			e := decoded(t, agentSource, ledger.ContentTypeJSON,
				fmt.Appendf(nil, `{"records":[{"plan":"p1",%q:{"reason":%s}}]}`, kind, raw))
			got := e.Record.GetPlanFailed().GetReason() + e.Record.GetPlanCancelled().GetReason()
			if e.Err != nil || got != want {
				t.Errorf("%s %s: %q, %v", kind, raw, got, e.Err)
			}
		}
	}
	for _, raw := range []string{`{"plan":"p\xff1","plan_failed":{"reason":"x"}}`, `{"plan":"p1","plan_failed":{"resaon":1}}`,
		`{"plan":"p1","plan_failed":[1]}`, `{"plan":"p1","plan_failed":{"reason":1,"reason":"a"}}`} {
		if e := decoded(t, agentSource, ledger.ContentTypeJSON, []byte(`{"records":[`+raw+`]}`)); e.Err == nil {
			t.Errorf("%q is taken", raw)
		}
	}
}

// TestACommitIsEncodedWithItsTextsCut: whoever writes it.
func TestACommitIsEncodedWithItsTextsCut(t *testing.T) {
	r := &pb.Record{Plan: "p1", Kind: &pb.Record_PlanFailed{
		PlanFailed: &pb.PlanFailed{Reason: strings.Repeat("\xe9 stderr ", ledger.CommitSizeMax)}}}
	data, err := ledger.EncodeCommit([]*pb.Record{r})
	if err != nil {
		t.Fatal(err)
	}
	e := decoded(t, agentSource, "", data)
	if got := e.Record.GetPlanFailed().Reason; e.Err != nil || e.Under(1).Err != nil || len(got) > ledger.TextMax ||
		!strings.HasPrefix(got, "\uFFFD stderr ") {
		t.Fatalf("%v, %.40q", e.Err, got)
	}
}

// TestWhatIsCutIsNotWrittenAgain: whoever has queued a record reads it as the commit with it is
// encoded. The race detector sees it.
func TestWhatIsCutIsNotWrittenAgain(t *testing.T) {
	r := &pb.Record{Plan: "p", Action: "a", Payload: &pb.Payload{Detail: []byte(`caf` + "\xe9")},
		Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: "c", Message: "caf\xe9"}}}
	ledger.CutTexts(r)
	read := make(chan string)
	go func() { read <- r.GetForwardFailed().Message + string(r.Payload.Detail) }()
	if _, err := ledger.EncodeCommit([]*pb.Record{r}); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != "caf\uFFFD\"caf\uFFFD\"" {
		t.Errorf("%q", got)
	}
}

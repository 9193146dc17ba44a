package ledger_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestTheFieldThatIsWrongIsNamed, with what would be right, and what can be read of the
// record is there: its plan, action and kind.
func TestTheFieldThatIsWrongIsNamed(t *testing.T) {
	for _, c := range []struct{ record, want string }{
		{`{"plan":"p1","action":"x1","forwardRegistred":{}}`,
			"records[0].forwardRegistred: there is no such field; want did you mean forwardRegistered?"},
		{`{"plan":"p1","action":"x1","forwardRegistered":{"capability":"do.x","klass":1}}`,
			"records[0].forwardRegistered.klass: there is no such field; want did you mean class?"},
		{`{"plan":"p1","action":"x1","compensation_registered":{"backoff":"1s"}}`,
			"records[0].compensation_registered.backoff: there is no such field; want did you mean backoffNs?"},
		{`{"plan":"p1","action":"x1","compensationRegistered":{"bindings":[{"name":"x","expression":"1"},{"name":"y","cel":"1"}]}}`, "records[0].compensationRegistered.bindings[1].cel: there is no such field; want name, expression"},
		{`{"plan":"p1","action":"x1","compensationRegistered":{"probe":{"call":{"kapability":"x"}}}}`,
			"records[0].compensationRegistered.probe.call.kapability: there is no such field; want did you mean capability?"},
		{`{"plan":"p1","planResumed":{"reason":"x"}}`,
			"records[0].planResumed.reason: there is no such field; want follows"},
		{`{"plan":"p1","planOpened":{"deadlineNs":"tomorrow"}}`,
			"records[0].planOpened.deadlineNs: not a whole number in range; want a number, as a number or a string of digits"},
		{`{"plan":"p1","planOpened":{"concurrency":-1}}`, "records[0].planOpened.concurrency: not a whole number in range"},
		{`{"plan":"p1","planOpened":{"secondApprover":"yes"}}`,
			"records[0].planOpened.secondApprover: not a truth; want true or false"},
		{`{"plan":"p1","planOpened":{"triggers":{}}}`, "records[0].planOpened.triggers: not a list"},
		{`{"plan":"p1","planOpened":[]}`, "records[0].planOpened: not an object; want an object with the fields of " +
			"sagenbaum.v1.PlanOpened"},
		{`{"plan":"p1","action":"x1","forwardRegistered":{"class":"compensable"}}`,
			`records[0].forwardRegistered.class: "compensable" is none of its values; want CLASS_COMPENSABLE, CLASS_IRREVERSIBLE, CLASS_EFFECTLESS`},
		{`{"plan":"p1","action":"x1","forwardCompleted":{},"payload":{"output":{"id":1}}}`,
			`records[0].payload.output: not base64; want base64 of the bytes, as in "eyJpZCI6MX0=" for {"id":1}`},
		{`{"plan":"p1","plan":"p2","planCommitted":{}}`, "records[0].plan: given twice"},
		{`{"plan":"p1","planCommitted":{},"planFailed":{}}`,
			"records[0].planFailed: given beside planCommitted; want one kind for each record"},
		{`{"plan":7,"planCommitted":{}}`, "records[0].plan: not a string"},
		{`{"plan":"p1","planCommitted":{},"a b\u001b[31m":1}`,
			"records[0]: there is no such field: \"a b\\x1b[31m\"; want a field of sagenbaum.v1.Record"},
		{`[]`, "records[0]: not an object"},
	} {
		e := decode(t, message(agentSource, ledger.ContentTypeJSON, []byte(`{"records":[`+c.record+`]}`)))
		if len(e) != 1 || !strings.HasPrefix(fmt.Sprint(e[0].Err), "refused: "+c.want) {
			t.Errorf("%s:\n%v\nwant %s", c.record, e[0].Err, c.want)
			continue
		}
		r := e[0].Record
		if strings.Contains(c.record, `"plan":"p1"`) && r.GetPlan() != "p1" && !strings.Contains(c.record, "p2") {
			t.Errorf("%s: of plan %q", c.record, r.GetPlan())
		}
		if strings.Contains(c.record, `"action":"x1"`) && r.GetAction() != "x1" {
			t.Errorf("%s: of action %q", c.record, r.GetAction())
		}
		if strings.Contains(c.record, `forwardRegistered`) && !strings.Contains(c.record, "Registred") &&
			r.GetForwardRegistered() == nil {
			t.Errorf("%s: kind %q", c.record, ledger.KindOf(r).Name)
		}
	}
}

// TestWhatProtojsonTakesIsNoFault: nothing is called wrong that is read.
func TestWhatProtojsonTakesIsNoFault(t *testing.T) {
	for _, record := range []string{
		`{"plan":"p1","planOpened":{"deadlineNs":1e18,"concurrency":2.0,"secondApprover":null}}`,
		`{"plan":"p1","plan_opened":{"deadline_ns":"1000000000000000000","on_undo_failure":1},"action":null}`,
		`{"plan":"p1","action":"x1","forwardCompleted":{"externalRef":"y","lifted":"e30"},"planFailed":null}`,
	} {
		if e := decode(t, message(agentSource, ledger.ContentTypeJSON, []byte(`{"records":[`+record+`]}`))); e[0].Err != nil {
			t.Errorf("%s: %v", record, e[0].Err)
		}
	}
}

// TestAnEnvelopeIsReadOneWayOnly: names in other letters and given twice are read
// differently by different parsers. What is refused for it has the leaves that it had.
func TestAnEnvelopeIsReadOneWayOnly(t *testing.T) {
	fact := `{"factRetracted":{"key":"k"}}`
	for data, want := range map[string]string{
		`{"Records":[` + fact + `]}`:                              "commit.Records",
		`{"records":[],"records":[` + fact + `]}`:                 "commit.records",
		`{"minReader":1,"min_reader":1,"records":[` + fact + `]}`: "commit.min_reader",
		`{"records":[` + fact + `],"recrods":[]}`:                 "commit.recrods",
	} {
		e := decode(t, message(factSource, ledger.ContentTypeJSON, []byte(data)))
		if len(e) != 1 || refusedField(e[0].Err) != want || strings.Contains(want, "rods") != (e[0].Count == 0) {
			t.Errorf("%s: %d records, %v", data, e[0].Count, e[0].Err)
		}
	}
}

// FuzzRecordsInJSON: a record that protojson takes has no fault, one that it does not
// take has one, named in words without its own; nothing panics.
func FuzzRecordsInJSON(f *testing.F) {
	for _, g := range good() {
		text, err := protojson.Marshal(g.record)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		for _, change := range [][2]string{{`":"`, `":7,"x":"`}, {`{`, `{"x":1,`}, {`":`, `x":`}, {`"`, `'`},
			{`}`, `,"plan":"q"}`}} {
			f.Add([]byte(strings.Replace(string(text), change[0], change[1], 1)))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		e := decode(t, message(agentSource, ledger.ContentTypeJSON, fmt.Appendf(nil, `{"records":[%s]}`, text)))
		err := protojson.Unmarshal(text, new(pb.Record))
		unread := e[0].Err != nil && strings.HasPrefix(refusedField(e[0].Err), "records[0]")
		if len(e) != 1 || (err != nil) != unread {
			t.Fatalf("%s: %v, and protojson says %v", text, e[0].Err, err)
		}
		if unread && strings.Contains(e[0].Err.Error(), "proto:") {
			t.Fatalf("%s: %v", text, e[0].Err)
		}
	})
}

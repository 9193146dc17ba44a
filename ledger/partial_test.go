package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAReportLosesOnlyWhatCannotBeRead: what its worker has done stays done.
func TestAReportLosesOnlyWhatCannotBeRead(t *testing.T) {
	const about = `"attempt":1,"key":"0f","token":"aa","answer":"ANSWER_DONE"`
	for _, c := range []struct{ kind, beside, fault, left string }{
		{about, "", "", ""},
		{`"attempt":1.0,"key":"0f","token":"aa","answer":1,"timing":{"workNs":4.1e6}`, "", "", ""},
		{about + `,"externalRef":481516`, "", "compensationReported.externalRef", "481516"},
		{about + `,"external_ref":1.50,"code":404,"message":-7`, "", "compensationReported.external_ref", "1.50 404 -7"},
		{about + `,"external_ref":{"id":1},"code":"x"`, "", "compensationReported.external_ref", "x"},
		{about + ",\"external_ref\":\"caf\xe9\",\"message\":\"caf\xe9\"", "", "records[0]", "caf\uFFFD"},
		{about + `,"external_ref":"` + strings.Repeat("x", ledger.TextMax+1) + `","code":"x"`, "",
			"compensation_reported.external_ref", "x"},
		{about + `,"work_ns":5,"code":"x"`, "", "compensationReported.work_ns", "x"},
		{about + `,"code":"x","code":"y","message":"m"`, "", "compensationReported.code", "m"},
		{about + `,"timing":{"work_ns":"long","toolNs":4.0},"code":"x"`, "", "compensationReported.timing.work_ns", "x 4"},
		{about + `,"timing":[4],"code":"x"`, "", "compensationReported.timing", "x"},
		{about + `,"code":"x"`, `,"payload":{"output":{"n":1}}`, "payload.output", "x"},
		{about + `,"code":"x"`, `,"payload":{"output":"eyJuIjpOYU59"}`, "payload.output", "x"},
		{about + `,"code":"x"`, `,"worker":"w"`, "worker", "x"},
	} {
		text := `{"records":[{"plan":"p1","action":"x1","compensationReported":{` + c.kind + `}` + c.beside + `}]}`
		e := decode(t, message(workerSource, ledger.ContentTypeJSON, []byte(text)))[0]
		k := e.Record.GetCompensationReported()
		if e.Partial != (c.fault != "") || (e.Err != nil) != e.Partial || k.GetAttempt() != 1 || k.GetKey() != "0f" ||
			k.GetToken() != "aa" || k.GetAnswer() != pb.Answer_ANSWER_DONE || e.Record.Payload.GetOutput() != nil {
			t.Errorf("%s: %+v", text, e)
			continue
		}
		if c.fault != "" && !strings.HasSuffix(refusedField(e.Err), c.fault) {
			t.Errorf("%s: %v, want a fault of %s", text, e.Err, c.fault)
		}
		left := strings.Join(strings.Fields(k.ExternalRef+" "+k.Code+" "+k.Message), " ")
		if ns := k.GetTiming().GetToolNs(); ns != 0 {
			left += fmt.Sprint(" ", ns)
		}
		if left != c.left {
			t.Errorf("%s: it says %q, want %q", text, left, c.left)
		}
	}
}

// TestAReportInProtobufLosesAnOutputThatIsNoJSON, and nothing else.
func TestAReportInProtobufLosesAnOutputThatIsNoJSON(t *testing.T) {
	r := &pb.Record{Plan: "p1", Action: "x1", Payload: &pb.Payload{Output: []byte(`{"n":NaN}`)},
		Kind: &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{
			Attempt: 1, Key: "0f", Answer: pb.Answer_ANSWER_DONE}}}
	e := decode(t, message(workerSource, "", encode(t, r)))[0]
	if !e.Partial || refusedField(e.Err) != "payload.output" || e.Record.Payload.GetOutput() != nil ||
		e.Record.GetCompensationReported().GetKey() != "0f" {
		t.Errorf("%+v", e)
	}
}

// TestAReportThatDoesNotSayWhatWasDoneIsRefused, and so is what others say wrongly.
func TestAReportThatDoesNotSayWhatWasDoneIsRefused(t *testing.T) {
	const good = `"attempt":1,"key":"0f","answer":"ANSWER_DONE"`
	for _, record := range []string{
		`{"plan":7,"action":"x1","compensationReported":{` + good + `}}`,
		`{"plan":"p1","action":["x1"],"compensationReported":{` + good + `}}`,
		`{"plan":"p1","action":"x1","compensationReported":[]}`,
		`{"plan":"p1","action":"x1","compensationReported":{` + good + `,"token":7}}`,
		`{"plan":"p1","action":"x1","compensationReported":{` + good + `,"attempt":2}}`,
		`{"plan":"p1","action":"x1","compensationReported":{"attempt":1.5,"key":"0f","answer":"ANSWER_DONE"}}`,
		`{"plan":"p1","action":"x1","compensationReported":{"attempt":1,"key":"0f","answer":"done"}}`,
		`{"plan":"p1","action":"x1","compensationReported":{"attempt":1,"key":"0f","anwser":"ANSWER_DONE"}}`,
		`{"plan":"p1","action":"x1","compensationReported":{` + good + `},"compensationProgressed":{}}`,
		`{"plan":"p1","action":"x1","term":4,"compensationReported":{` + good + `}}`,
	} {
		e := decode(t, message(workerSource, ledger.ContentTypeJSON, []byte(`{"records":[`+record+`]}`)))[0]
		if e.Err == nil || e.Partial {
			t.Errorf("%s: %+v", record, e)
		}
	}
	const agents = `{"records":[{"plan":"p1","action":"x1","forwardCompleted":{"externalRef":[7]}}]}`
	if e := decode(t, message(agentSource, ledger.ContentTypeJSON, []byte(agents)))[0]; e.Err == nil || e.Partial {
		t.Errorf("an agent: %+v", e)
	}
}

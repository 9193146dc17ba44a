package ledger_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAnErrorIsKeptAsTheToolPrintedIt, as a text in JSON.
func TestAnErrorIsKeptAsTheToolPrintedIt(t *testing.T) {
	failed := &pb.Record{Plan: "p1", Action: "x1", Payload: &pb.Payload{Detail: []byte("stderr: caf\xe9\n")},
		Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: "x"}}}
	e := decoded(t, agentSource, "", rawCommit(t, failed))
	if e.Err != nil || string(e.Record.Payload.Detail) != `"stderr: caf\ufffd\n"` &&
		string(e.Record.Payload.Detail) != "\"stderr: caf\uFFFD\\n\"" || refusedField(e.Under(1).Err) != "payload.detail" {
		t.Errorf("%v, %s, %v", e.Err, e.Record.GetPayload().GetDetail(), e.Under(1).Err)
	}
}

// TestACompletionIsHeardWhateverItReturned: of what is no JSON nothing is kept, and a number is a
// name.
func TestACompletionIsHeardWhateverItReturned(t *testing.T) {
	done := &pb.Record{Plan: "p1", Action: "x1", Payload: &pb.Payload{Output: []byte(`{"n":NaN}`)},
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}
	e := decoded(t, agentSource, "", rawCommit(t, done))
	if e.Err != nil || !e.Record.GetForwardCompleted().OutputIncomplete || e.Record.Payload.GetOutput() != nil ||
		refusedField(e.Under(ledger.TextsSince-1).Err) != "payload.output" {
		t.Errorf("%v, %v", e.Err, e.Record)
	}
	e = decoded(t, agentSource, ledger.ContentTypeJSON,
		[]byte(`{"records":[{"plan":"p1","action":"x1","forward_completed":{"external_ref":481516.0}}]}`))
	if ref := e.Record.GetForwardCompleted().ExternalRef; e.Err != nil || ref != "481516.0" {
		t.Errorf("%q, %v", ref, e.Err)
	}
}

func TestExactJSONIsTheSameToEveryReader(t *testing.T) {
	for value, want := range map[string]bool{
		``: true, `1.50`: true, `"café"`: true, `"\u00e9"`: true, `"\ufffd"`: true, "\"\uFFFD\"": true,
		`"\ud83d\ude00"`: true, `"\uD83D\uDE00!"`: true, `"\\ud83d"`: true, `"\\\\ud83d"`: true, `"a\"b\\"`: true,
		"\"caf\xe9\"": false, `"\ud83d"`: false, `"\ud83d\n"`: false, `"\ude00"`: false, `"\ud83d\ud83d\ude00"`: false,
		`"\\\ud83d"`: false, `{"\udc00":1}`: false, `["\ud83dx"]`: false, `"\ud83d\u0041"`: false,
		`"\`: true, `"\u`: true, `"\ud8`: true, `"\ud83d\u`: false, // these are no JSON
	} {
		if got := ledger.ExactJSON([]byte(value)); got != want {
			t.Errorf("%q: %v", value, got)
		}
		if !json.Valid([]byte(value)) {
			continue
		}
		var decoded any
		if err := json.Unmarshal([]byte(value), &decoded); err != nil {
			t.Fatal(err)
		}
		again, _ := json.Marshal(decoded)
		if lost := strings.Contains(string(again), "\uFFFD") && !strings.Contains(strings.ToLower(value), `\ufffd`) &&
			!strings.Contains(value, "\uFFFD"); lost == want {
			t.Errorf("%q is read as %s", value, again)
		}
	}
}

// TestEarlierHoldersReadAPairAsItWas: both halves of it, also where only one is not exact.
func TestEarlierHoldersReadAPairAsItWas(t *testing.T) {
	for _, half := range []int{0, 1} {
		pair := []*pb.Record{forward("x1"), registration("x1")}
		if half == 0 {
			pair[0].Payload.Input = []byte(`{"path":"\ud83d"}`)
		} else {
			pair[1].Payload = &pb.Payload{Before: []byte(`"\ud83d"`)}
		}
		data := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
		for _, r := range pair {
			body, err := r.MarshalVT()
			if err != nil {
				t.Fatal(err)
			}
			data = protowire.AppendBytes(protowire.AppendTag(data, 2, protowire.BytesType), body)
		}
		entries, err := ledger.Decode("t", ledger.Message{Sequence: 1, Subject: agentSource.Subject(), Data: data})
		if err != nil {
			t.Fatal(err)
		}
		for i, old := range ledger.Under(entries, ledger.TextsSince-1) {
			if old.Err != nil || old.Pair == nil || entries[i].Err == nil || entries[i].Pair != nil ||
				entries[i].Under(ledger.TextsSince-1).Pair == nil {
				t.Errorf("%d is inexact: half %d is read as %v, before as %v", half, i, entries[i].Err, old.Err)
			}
		}
	}
}

// TestWhatIsNotExactIsRefusedBeforeItsForwardAndLeftOutBehindIt: as protobuf and as JSON have it.
func TestWhatIsNotExactIsRefusedBeforeItsForwardAndLeftOutBehindIt(t *testing.T) {
	bad := []byte("{\"path\":\"caf\xe9.txt\"}")
	half := []byte(`{"path":"\ud83d.txt"}`)
	for _, value := range [][]byte{bad, half} {
		fact := &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k", Value: value}}}
		for what, c := range map[string]struct {
			record *pb.Record
			source ledger.Source
			field  string
		}{
			"input":  {forward("x1"), agentSource, "payload.input"},
			"lifted": {forward("x1"), agentSource, "forward_registered.lifted"},
			"before": {registration("x1"), agentSource, "payload.before"},
			"a fact": {fact, factSource, "fact_asserted.value"},
		} {
			switch what {
			case "input":
				c.record.Payload.Input = value
			case "lifted":
				c.record.GetForwardRegistered().Lifted = value
			case "before":
				c.record.Payload = &pb.Payload{Before: value}
			}
			e := decoded(t, c.source, "", rawCommit(t, c.record))
			// Half a pair has no other half: that is said too.
			if field := refusedField(e.Err); field != c.field && field != "pair" ||
				refusedField(ledger.Check(c.record, c.source)) != c.field {
				t.Errorf("%s: %v", what, e.Err)
			}
		}
		done := &pb.Record{Plan: "p1", Action: "x1", Payload: &pb.Payload{Output: value},
			Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{
				ExternalRef: strings.Repeat("x", ledger.TextMax) + "1", Lifted: value}}}
		e := decoded(t, agentSource, "", rawCommit(t, done))
		k := e.Record.GetForwardCompleted()
		if e.Err != nil || !k.OutputIncomplete || !k.ReferenceIncomplete || k.ExternalRef != "" ||
			len(k.Lifted)+len(e.Record.Payload.Output) != 0 {
			t.Errorf("%v, %v", e.Err, e.Record)
		}
		if old := e.Under(ledger.TextsSince - 1); refusedField(old.Err) != "forward_completed.external_ref" {
			t.Errorf("an earlier holder read %v", old.Err)
		}
		done.GetForwardCompleted().ExternalRef, done.GetForwardCompleted().Lifted = "x", nil
		e = decoded(t, agentSource, "", rawCommit(t, done))
		old := e.Under(ledger.TextsSince - 1)
		if old.Err != nil || string(old.Record.Payload.Output) != string(value) ||
			e.Record.GetForwardCompleted().ExternalRef != "x" {
			t.Errorf("an earlier holder read %v, %v", old.Err, old.Record)
		}
	}
}

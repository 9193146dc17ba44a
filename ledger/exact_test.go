package ledger_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

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

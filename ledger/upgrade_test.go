package ledger_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// commitOf is the canonical envelope around the bytes of records.
func commitOf(minReader uint64, bodies ...[]byte) []byte {
	data := protowire.AppendVarint([]byte{8}, minReader)
	for _, body := range bodies {
		data = protowire.AppendBytes(append(data, 18), body)
	}
	return data
}

// withField appends a field that this version does not know.
func withField(body []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(bytes.Clone(body), number, protowire.BytesType), text)
}

// TestARecordOfALaterKindHaltsWhenTheHolderWroteIt, whatever its commit says of its
// reader; anybody else's is refused, and what is beside it in the commit is read.
func TestARecordOfALaterKindHaltsWhenTheHolderWroteIt(t *testing.T) {
	known, err := (&pb.Record{Term: 1,
		Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h"}}}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	later := withField([]byte{10, 1, 'p'}, 199, "a kind of a later version")
	m := message(holderSource, "", commitOf(1, known, later))
	entries, err := ledger.Decode("t", m)
	if !isHalted(err, "reader") || entries != nil ||
		!strings.Contains(err.Error(), "records[1] is of kind 199, which needs a later version") {
		t.Errorf("the holder's: %d entries, %v", len(entries), err)
	}
	m = message(holderSource, "", commitOf(ledger.ReaderVersion+1, later))
	if _, err := ledger.Decode("t", m); !isHalted(err, "reader") ||
		!strings.Contains(err.Error(), fmt.Sprintf("needs version %d of the reader", ledger.ReaderVersion+1)) {
		t.Errorf("the holder's of a later version: %v", err)
	}
	fact, err := good()[0].record.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	e := decode(t, message(good()[0].source, "", commitOf(1, later, fact)))
	if len(e) != 2 || e[0].Err == nil || e[1].Err != nil {
		t.Errorf("another's: %+v", e)
	}
}

// TestAFieldOfALaterVersionHaltsNobody: in a known kind, in the record or inside of
// it, from the holder as from others.
func TestAFieldOfALaterVersionHaltsNobody(t *testing.T) {
	inner := withField([]byte{10, 1, 'h'}, 900, "of a later version")
	term := protowire.AppendBytes(protowire.AppendTag([]byte{40, 1}, 60, protowire.BytesType), inner)
	for what, body := range map[string][]byte{"inside": term, "beside": withField(term, 900, "too"),
		"a control field": withField(term, 19, "too")} {
		source := holderSource
		source.Term = true
		e := decode(t, message(source, "", commitOf(1, body)))
		if e[0].Err != nil || e[0].Record.GetTermStarted().GetHolder() != "h" {
			t.Errorf("%s: %v", what, e[0].Err)
		}
	}
}

// TestAnAddressCoversWhatALaterVersionWrote: the leaf is over the bytes as they came,
// and what decodes encodes to them again, unknown fields of every depth included.
func TestAnAddressCoversWhatALaterVersionWrote(t *testing.T) {
	for _, g := range good() {
		body, err := g.record.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		for _, changed := range [][]byte{body, withField(body, 900, "x"), withField(body, 900, "y")} {
			m := message(g.source, "", commitOf(1, changed))
			entries := decode(t, m)
			if len(entries) != 1 || entries[0].Record == nil {
				t.Fatalf("%s: %+v", ledger.KindOf(g.record).Name, entries)
			}
			leaf := ledger.Leaf("t", m, 0, 1, 1, changed)
			again, err := entries[0].Record.MarshalVT()
			if err != nil || !bytes.Equal(entries[0].Address.Leaf, leaf[:]) || !bytes.Equal(entries[0].Body, changed) {
				t.Fatalf("%s: leaf or body differ, %v", ledger.KindOf(g.record).Name, err)
			}
			if !bytes.Equal(again, changed) {
				t.Errorf("%s: encodes to %x, was %x", ledger.KindOf(g.record).Name, again, changed)
			}
		}
	}
}

// TestEarlierHoldersRefuseAWordOfPlans that they do not know, and read what else the opening says:
// their plan has failed, under its label. So they do of any word that no version knows.
func TestEarlierHoldersRefuseAWordOfPlans(t *testing.T) {
	const json = `{"records":[{"plan":"p1","planOpened":{"label":"l","onUndoFailure":%s}},{"plan":"p1","planCommitted":{}}]}`
	opened := func(word pb.OnUndoFailure) []byte {
		return encode(t, &pb.Record{Plan: "p1", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Label: "l",
			OnUndoFailure: word}}})
	}
	inJSON := func(word string) ledger.Message {
		return message(agentSource, ledger.ContentTypeJSON, fmt.Appendf(nil, json, word))
	}
	last := pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST
	for _, c := range []struct {
		what    string
		m, none ledger.Message // none has a word that this version does not know
	}{
		{"protobuf", message(agentSource, "", opened(last)), message(agentSource, "", opened(last+9))},
		{"a number", inJSON("3"), inJSON("12")},
		{"a name", inJSON(`"ON_UNDO_FAILURE_HALT_UNLESS_LAST"`), inJSON(`"ON_UNDO_FAILURE_NONE"`)},
	} {
		entries, unknown := decode(t, c.m), decode(t, c.none)[0]
		for _, fold := range []uint32{0, ledger.LastActSince} { // 0: before the first holder
			if got := ledger.Under(entries, fold); got[0].Err != nil {
				t.Errorf("%s, under fold version %d: %v", c.what, fold, got[0].Err)
			}
		}
		for _, fold := range []uint32{1, ledger.TextsSince, ledger.LastActSince - 1} {
			got, want := ledger.Under(entries, fold), unknown.Under(fold)
			if got[0].Err == nil || want.Err == nil ||
				got[0].Record.GetPlanOpened().GetLabel() != want.Record.GetPlanOpened().GetLabel() {
				t.Errorf("%s, under fold version %d: %v, %v; want %v, %v", c.what, fold, got[0].Err, got[0].Record,
					want.Err, want.Record)
			}
			for _, rest := range got[1:] {
				if rest.Err != nil || rest.Record == nil {
					t.Errorf("%s, under fold version %d: the record after it is %v", c.what, fold, rest.Err)
				}
			}
		}
	}
}

package ledger_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAnIDIsAULIDOrAUUIDOfVersion7, which say when they were made (examples of RFC 9562 and of the
// specification of ULIDs); anything else is refused by its name.
func TestAnIDIsAULIDOrAUUIDOfVersion7(t *testing.T) {
	for text, ms := range map[string]int64{
		"017F22E2-79B0-7CC3-98C4-DC0C0C07398F": 1645557742000,
		"017f22e2-79b0-7cc3-98c4-dc0c0c07398f": 1645557742000,
		"01ARZ3NDEKTSV4RRFFQ69G5FAV":           1469922850259,
	} {
		if id, err := ledger.ParseRecordID(text); err != nil || id.Ms() != ms {
			t.Errorf("%s is of %d ms: %v, want %d", text, id.Ms(), err, ms)
		}
	}
	for _, text := range []string{"x", "7", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01ARZ3NDEKTSV4RRFFQ69G5FA",
		"017f22e279b07cc398c4dc0c0c07398f", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", // of version 4
		"017f22e2-79b0-7cc3-18c4-dc0c0c07398f", "017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
		"017f22e-279b0-7cc3-98c4-dc0c0c07398f", strings.Repeat("-", 36), strings.Repeat("0", 64)} {
		if _, err := ledger.ParseRecordID(text); refusedField(err) != "id" {
			t.Errorf("%q is an id: %v", text, err)
		}
		r := &pb.Record{Id: text, Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "k"}}}
		if err := ledger.Check(r, factSource); refusedField(err) != "id" {
			t.Errorf("a fact may have the id %q: %v", text, err)
		}
	}
	for _, g := range good() {
		g.record.Id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
		if err := ledger.Check(g.record, g.source); (err == nil) != ledger.TakesID(g.source.Class) {
			t.Errorf("%s with an id: %v", ledger.KindOf(g.record).Name, err)
		}
	}
}

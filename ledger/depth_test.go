package ledger

import (
	"errors"
	"strings"
	"testing"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAValueThatIsNestedTooDeepIsRefused by writers, with its field, and not by the fold.
func TestAValueThatIsNestedTooDeepIsRefused(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte {
		return []byte(strings.Repeat("[", n) + `"\"[[{"` + strings.Repeat("]", n))
	}
	wide := []byte("[" + strings.Repeat(`{},`, 2*depthMax) + `"` + strings.Repeat(`[`, 2*depthMax) + `"]`)
	source := Source{Tenant: "t", Class: ClassFact, Name: "src"}
	put := func(value []byte) *pb.Record {
		return &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "k", Value: value}}}
	}
	for _, fine := range [][]byte{nested(depthMax), wide} {
		if err := Check(put(fine), source); err != nil {
			t.Error(err)
		}
	}
	deep := nested(depthMax + 1)
	var refused *Refused
	if err := Check(put(deep), source); !errors.As(err, &refused) || refused.Field != "fact_asserted.value" {
		t.Errorf("%v", err)
	}
	if err := checkForm(put(deep), source); err != nil {
		t.Errorf("the fold: %v", err)
	}
	for field, p := range map[string]*pb.Payload{
		"payload.input": {Input: deep}, "payload.before": {Before: deep}, "payload.output": {Output: deep},
	} {
		if err := tooDeep(&pb.Record{Payload: p}); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

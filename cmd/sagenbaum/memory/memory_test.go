package memory

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAFactThatChangedMeanwhileIsShownAsItIs: another record may come between a
// request that was carried out and the look at it.
func TestAFactThatChangedMeanwhileIsShownAsItIs(t *testing.T) {
	for _, c := range []struct {
		fact api.Fact
		at   string
		same bool
	}{
		{api.Fact{State: api.FactEvicted, Asserted: "1.0", Evicted: "2.0"}, "at 2.0", true},
		{api.Fact{State: api.FactInMemory, Asserted: "1.0", Reingested: "3.0"}, "at 3.0", false},
		{api.Fact{State: api.FactInMemory, Asserted: "4.0"}, "at 4.0", false},
		{api.Fact{State: api.FactRetracted, Tombstone: "5.0"}, "at 5.0", false},
	} {
		if got, more := sinceText(c.fact), overtaken(c.fact, api.FactEvicted); got != c.at ||
			(more == "") != c.same {
			t.Errorf("%+v: %s%s", c.fact, got, more)
		}
	}
}

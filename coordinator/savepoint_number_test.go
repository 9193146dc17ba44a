package coordinator

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestNoSavepointNumberIsUsedTwice: a number that was used before the plan went back is the
// number of no later savepoint. The fold would take that for a copy, and nothing would be
// set under a name that Savepoint has called durable.
func TestNoSavepointNumberIsUsedTwice(t *testing.T) {
	for _, byNotice := range []bool{false, true} {
		in(t, func(t *testing.T) {
			store, e := memory(), &executor{}
			p := begin(t, start(t, store, e), PlanSpec{})
			mustSet(t, p, "s1")
			mustDo(t, p, write("a"))
			mustSet(t, p, "s2")
			mustDo(t, p, write("b"))
			mustSet(t, p, "s3")
			if byNotice { // an operator has it rewound
				e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateUnwinding})
				e.notify(t, api.Notice{Plan: p.ID(), State: ledger.StateOpen, Savepoint: "s1"})
			} else {
				e.say(isOpen)
				if err := p.UnwindTo(t.Context(), "s1", "x"); err != nil {
					t.Fatal(err)
				}
			}
			mustDo(t, p, write("c"))
			mustSet(t, p, "s2")
			mustSet(t, p, "s4")
			last, names := uint32(0), ""
			for _, c := range stored(t, store) {
				for _, r := range c.records {
					set := r.GetSavepointSet()
					if set == nil {
						continue
					}
					if set.Number <= last {
						t.Errorf("savepoint %s has number %d behind number %d", set.Name, set.Number, last)
					}
					last, names = set.Number, names+set.Name
				}
			}
			if names != "s1s2s3s2s4" {
				t.Errorf("the ledger holds savepoints %s", names)
			}
		})
	}
}

package coordinator

import (
	"maps"
	"slices"
	"sync"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// expressions checks CEL before it is appended: what the executor could not
// compile is refused here, where its author reads the error. Plans often share
// their triggers, and compiling one costs more than all else that a pair needs, so
// what was checked is remembered.
type expressions struct {
	mu    sync.Mutex // the cache is not safe for concurrent use
	cache *triggers.Cache
}

func newExpressions() *expressions {
	return &expressions{cache: triggers.NewCache(expressionsMax)}
}

// contract compiles a contract. Errors are *Refused.
func (x *expressions) contract(t contract.Contract) (*compile.Compiled, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return compile.Contract(t, x.cache)
}

// triggers returns the records' form of conditions, sorted by name.
func (x *expressions) triggers(at string, conditions map[string]string) ([]*pb.Trigger, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*pb.Trigger
	for _, name := range slices.Sorted(maps.Keys(conditions)) {
		if _, err := x.cache.Condition(conditions[name]); err != nil {
			return nil, ledger.Refuse(at+".triggers["+name+"]", err.Error(),
				"a condition as in docs/triggers.md")
		}
		out = append(out, &pb.Trigger{Name: name, Condition: conditions[name]})
	}
	return out, nil
}

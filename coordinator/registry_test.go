package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// shelf is an executor with published contracts, one a page.
type shelf struct {
	executor
	published []contract.Contract
	views     map[string]map[string]any // to tell lies
	problem   any                       // instead of an answer
	queries   []api.ContractQuery
}

func newShelf(t *testing.T, published ...contract.Contract) *shelf {
	s := &shelf{published: published, views: map[string]map[string]any{}}
	s.serve = map[string]func([]byte) any{"query.default.contract.ls": func(body []byte) any {
		var q api.ContractQuery
		if err := json.Unmarshal(body, &q); err != nil {
			return err
		}
		s.queries = append(s.queries, q)
		if s.problem != nil {
			return s.problem
		}
		answer := map[string]any{"contracts": []any{}}
		for i, c := range s.published {
			if q.Capability != "" && q.Capability != c.Capability || c.Capability <= q.After {
				continue
			}
			view := s.views[c.Capability]
			if view == nil {
				compiled := compiled(t, c)
				view = map[string]any{"capability": c.Capability, "digest": fmt.Sprintf("%x", compiled.Digest),
					"contract": json.RawMessage(compiled.Canonical), "revision": 1}
			}
			answer["contracts"] = []any{view}
			if i+1 < len(s.published) && q.Capability == "" {
				answer["next"] = c.Capability
			}
			break
		}
		return answer
	}}
	return s
}

func refund(call string) contract.Contract {
	return contract.Contract{
		Capability: "pay.charge", Class: contract.Compensable,
		Inverse: &contract.Inverse{Call: call, With: map[string]any{"why": `=input.n > 1 && input.n < 3 ? "<many>" : "one"`}},
	}
}

func startPublished(t *testing.T, store Appender, s *shelf, own ...contract.Contract) *Coordinator {
	t.Helper()
	return startConfigured(t, s, Config{Appender: store, Tenant: tenant, Agent: "a1", Contracts: own, Published: true})
}

func startConfigured(t *testing.T, s *shelf, config Config) *Coordinator {
	t.Helper()
	c, err := newCoordinator(config, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(t.Context()); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Error(err)
		}
	})
	return c
}

func charge(id string) Action { return Action{ID: id, Capability: "pay.charge"} }

func inverseOf(t *testing.T, store ledger.Store, id string) string {
	t.Helper()
	return find(t, store, "compensation_registered/"+id).GetCompensationRegistered().Capability
}

func TestS50AnUndeclaredCapabilityIsRefused(t *testing.T) {
	in(t, func(t *testing.T) {
		store := memory()
		for name, c := range map[string]*Coordinator{
			"without a registry": start(t, store, nil),
			"with an empty one":  startPublished(t, store, newShelf(t)),
		} {
			p := begin(t, c, PlanSpec{})
			_, err := p.Do(t.Context(), charge("a"), never(t))
			wantRefused(t, err, "action.capability")
			wantRefused(t, p.Report(t.Context(), charge("a"), Outcome{}), "action.capability")
			_, err = p.Do(t.Context(), Action{Capability: "no name"}, never(t))
			wantRefused(t, err, "action.capability")
			_, err = p.Do(t.Context(), Action{}, never(t))
			wantRefused(t, err, "action.capability")
			if lines(t, store) != "" {
				t.Errorf("%s: something was registered", name)
			}
		}
	})
}

func TestS103InlineTheContractInCodeWinsElsewhereThePublishedOne(t *testing.T) {
	in(t, func(t *testing.T) {
		for _, c := range []struct {
			name            string
			own, published  []contract.Contract
			inline, outside string
		}{
			{"both", []contract.Contract{refund("pay.code")}, []contract.Contract{refund("pay.published")}, "pay.code",
				"pay.published"},
			{"in code only", []contract.Contract{refund("pay.code")}, nil, "pay.code", "pay.code"},
			{"published only", nil, []contract.Contract{refund("pay.published")}, "pay.published", "pay.published"},
		} {
			store, s := memory(), newShelf(t, c.published...)
			p := begin(t, startPublished(t, store, s, c.own...), PlanSpec{})
			mustDo(t, p, charge("a"))
			if err := p.Report(t.Context(), charge("b"), Outcome{}); err != nil {
				t.Fatal(err)
			}
			if a, b := inverseOf(t, store, "a"), inverseOf(t, store, "b"); a != c.inline || b != c.outside {
				t.Errorf("%s: Do registers %s, Report %s", c.name, a, b)
			}
			if len(s.queries) != 1 {
				t.Errorf("%s: asked %d times", c.name, len(s.queries))
			}
		}
	})
}

func TestS11ThePublishedContractIsFrozenIntoThePair(t *testing.T) {
	in(t, func(t *testing.T) {
		store, s := memory(), newShelf(t, refund("pay.one"))
		c := startPublished(t, store, s)
		p := begin(t, c, PlanSpec{})
		mustDo(t, p, charge("a"))
		s.published = []contract.Contract{refund("pay.two")}
		mustDo(t, p, charge("b")) // not read yet
		if err := c.ReadContracts(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustDo(t, p, charge("c"))
		for id, call := range map[string]string{"a": "pay.one", "b": "pay.one", "c": "pay.two"} {
			want := compiled(t, refund(call)).Digest
			if f := find(t, store, "forward_registered/"+id).GetForwardRegistered(); inverseOf(t, store, id) != call ||
				string(f.ContractDigest) != string(want[:]) {
				t.Errorf("action %s: %s, %x", id, inverseOf(t, store, id), f.ContractDigest)
			}
		}
		wantRefused(t, start(t, store, nil).ReadContracts(t.Context()), "config.published")
	})
}

// TestAPublishedContractIsReadAgainForEachPlan, and in a plan that goes on after a while: new actions freeze
// the one in force. No action asks that comes soon after another one of its plan.
func TestAPublishedContractIsReadAgainForEachPlan(t *testing.T) {
	in(t, func(t *testing.T) {
		store, s := memory(), newShelf(t, refund("pay.one"))
		c := startConfigured(t, s, Config{Appender: store, Tenant: tenant, Agent: "a1", Published: true,
			PublishedFor: time.Second})
		acts, asked := 0, len(s.queries)
		does := func(p *Plan, call string, questions int) {
			t.Helper()
			for range 3 {
				acts++
				id := fmt.Sprintf("a%d", acts)
				mustDo(t, p, charge(id))
				if got := inverseOf(t, store, id); got != call {
					t.Errorf("action %s: %s, want %s", id, got, call)
				}
			}
			if asked += questions; len(s.queries) != asked {
				t.Errorf("asked %d times, want %d", len(s.queries), asked)
			}
		}
		p := begin(t, c, PlanSpec{})
		does(p, "pay.one", 0) // read in this instant
		s.published = []contract.Contract{refund("pay.two")}
		elapse(time.Millisecond)
		q := begin(t, c, PlanSpec{})
		does(q, "pay.two", 1)
		does(p, "pay.two", 0)
		s.published = []contract.Contract{refund("pay.three")}
		does(p, "pay.two", 0)
		elapse(time.Second)
		does(p, "pay.three", 1)
		s.problem = errNobody
		elapse(time.Second)
		does(p, "pay.three", 1) // as it was read
	})
}

func TestAllPagesAreReadAndWhatComesLaterIsAskedFor(t *testing.T) {
	in(t, func(t *testing.T) {
		one, two, later := refund("pay.x"), refund("pay.x"), refund("pay.x")
		one.Capability, two.Capability, later.Capability = "pay.a", "pay.b", "pay.c"
		s := newShelf(t, one, two)
		p := begin(t, startPublished(t, memory(), s), PlanSpec{})
		for _, capability := range []string{"pay.a", "pay.b"} {
			mustDo(t, p, Action{Capability: capability})
		}
		if len(s.queries) != 2 || s.queries[1].After != "pay.a" {
			t.Errorf("asked %+v", s.queries)
		}
		s.published = append(s.published, later)
		mustDo(t, p, Action{Capability: "pay.c"})
		mustDo(t, p, Action{Capability: "pay.c"})
		if len(s.queries) != 3 || s.queries[2].Capability != "pay.c" {
			t.Errorf("asked %+v", s.queries)
		}
	})
}

func TestWithoutAnExecutorTheContractsInCodeServe(t *testing.T) {
	in(t, func(t *testing.T) {
		for name, problem := range map[string]any{"nobody": errNobody, "an error": map[string]string{"error": "no holder"},
			"no JSON": []byte("{")} {
			store, s := memory(), newShelf(t, refund("pay.published"))
			s.problem = problem
			own := refund("pay.code")
			own.Capability = "pay.own"
			p := begin(t, startPublished(t, store, s, own), PlanSpec{})
			mustDo(t, p, Action{ID: "a", Capability: "pay.own"})
			if err := p.Report(t.Context(), Action{ID: "b", Capability: "pay.own"}, Outcome{}); err != nil {
				t.Errorf("%s: what has happened is not registered: %v", name, err)
			}
			_, err := p.Do(t.Context(), charge("c"), never(t))
			wantRefused(t, err, "action.capability")
			s.problem = nil
			mustDo(t, p, charge("c")) // asked again
		}
	})
}

func TestAPublishedContractThatCannotBeUsedSaysSoWhereItIsNeeded(t *testing.T) {
	in(t, func(t *testing.T) {
		good := compiled(t, refund("pay.published"))
		for name, view := range map[string]map[string]any{
			"another digest": {"digest": "00", "contract": json.RawMessage(good.Canonical)},
			"another capability": {"digest": fmt.Sprintf("%x", good.Digest),
				"contract": json.RawMessage(compiled(t, contracts()[0]).Canonical)},
			"of a later version": {"digest": "00",
				"contract": json.RawMessage(`{"capability":"pay.charge","class":"compensable","colour":"red"}`)},
			"no contract": {"digest": "00", "contract": json.RawMessage(`[]`)},
			"one that is refused": {"digest": "00",
				"contract": json.RawMessage(`{"capability":"pay.charge","class":"compensable"}`)},
		} {
			view["capability"] = "pay.charge"
			s := newShelf(t, refund("pay.published"))
			s.views["pay.charge"] = view
			p := begin(t, startPublished(t, memory(), s, contracts()...), PlanSpec{})
			mustDo(t, p, write("a"))
			_, err := p.Do(t.Context(), charge("b"), never(t))
			wantRefused(t, err, "action.capability")
			if !isRefused(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

package executor_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
)

// What scripts show of working memory.

// memory sets the capacity, and says what is in memory.
func (s *script) memory(most string) string {
	s.t.Helper()
	if most != "" {
		var err error
		if s.memoryMax, err = strconv.ParseInt(most, 10, 64); err != nil {
			s.t.Fatal(err)
		}
	}
	v := view.NewReader(s.kv, "t", s).Memory(s.memoryMax)
	return fmt.Sprintf("%d of %d bytes, %d facts; %d evicted, %d tombstones, %d evictions so far", v.Bytes, v.Capacity,
		v.Facts, v.Evicted, v.Tombstones, v.Evictions)
}

func (s *script) showFacts(r *view.Reader, d *datadriven.TestData) string {
	s.t.Helper()
	switch d.Cmd {
	case "facts":
		var out []string
		for _, state := range []string{"", api.FactRetracted} {
			views, _, err := r.Facts(api.FactsQuery{State: state})
			if err != nil {
				s.t.Fatal(err)
			}
			for _, v := range views {
				out = append(out, factLine(v))
			}
		}
		return strings.Join(out, "\n")
	case "queue":
		next, latest := r.Queue(api.QueueQuery{}, s.memoryMax)
		out := []string{}
		for i, v := range next {
			out = append(out, fmt.Sprintf("%d. %s, %d bytes, since %s%s", i+1, v.Key, v.Bytes, since(v.SinceNs),
				flag(", a lease reads it", v.Watched)))
		}
		return strings.Join(append(out, s.events(latest)...), "\n")
	}
	shown, ok := r.Fact(arg(d))
	if !ok {
		return "there is no such fact"
	}
	places, _ := r.Chronicle(shown.Key, 0)
	return strings.Join(append([]string{factLine(shown)}, s.events(places)...), "\n")
}

func (s *script) events(places []rows.Place) (out []string) {
	for _, at := range places {
		e := s.entryAt(&pb.Address{Sequence: at.Sequence, Index: at.Index})
		v, ok := view.Event(e)
		if !ok {
			s.t.Fatalf("%+v is about no fact", at)
		}
		by := v.By
		if by == "" {
			by = "holder"
		}
		line := fmt.Sprintf("  %s %s %s by %s", barePlace(v.At), v.Kind, v.Key, by) + joined(" = ",
			string(v.Value)) + joined(" of ", barePlace(v.Fact))
		line += joined(" for ", v.Plan) + joined("/", v.Action) + joined(" compensates ",
			barePlace(v.Compensates)) + joined(" cause ", barePlace(v.Cause))
		out = append(out, line+flag(", a lease reads it", v.Watched))
	}
	return out
}

// barePlace is an address without its leaf.
func barePlace(address string) string {
	at, _, _ := strings.Cut(address, "-")
	return at
}

func factLine(v api.Fact) string {
	by := v.By
	if by == "" {
		by = "holder"
	}
	out := fmt.Sprintf("%s: %s", v.Key, v.State) + joined(" = ", string(v.Value)) + joined(" asserted at ",
		barePlace(v.Asserted)) + " by " + by
	out += joined(" for ", v.Plan) + joined("/", v.Action)
	if v.Compensates {
		out += joined(", compensates ", barePlace(v.About)) + joined(" as dispatched at ", barePlace(v.Cause))
	} else {
		out += joined(", effect of ", barePlace(v.About))
	}
	out += joined(", evicted at ", barePlace(v.Evicted)) + joined(", read from the ledger at ",
		barePlace(v.ReadFrom)) + joined(", back in memory at ", barePlace(v.Reingested))
	return out + joined(", retracted at ", barePlace(v.Tombstone)) + joined(", asked at ",
		barePlace(v.Asked)) + flag(", a lease reads it", v.Watched)
}

package audit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// anyFailed asks about the facts of a prefix.
const anyFailed = `facts.exists("job/", k, v, v.state == "failed")`

// knows begins the term of a holder that may ask about prefixes, and a plan that does.
func (s *scribe) knows(condition string) {
	s.rules = ledger.PrefixSince
	s.begin(2)
	s.agent(opened(0, &pb.Trigger{Name: "jobs", Condition: condition}))
}

// prefixForgeries are about conditions over the facts of a prefix.
var prefixForgeries = []forgery{
	{"a firing for a fact of another prefix", "I11", func(s *scribe) {
		s.knows(anyFailed)
		s.write(sensor, asserted("job/a", `{"state":"done"}`))
		s.write(sensor, asserted("jobs", `{"state":"failed"}`))
		s.forge(fired("jobs", anyFailed, 1, s.at("fact_asserted", "")))
	}, false},
	{"a firing for a fact that is gone", "I11", func(s *scribe) {
		s.knows(`facts.count("job/") == 2`)
		s.write(sensor, asserted("job/a", `1`))
		s.write(sensor, &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "job/a"}}})
		s.write(sensor, asserted("job/b", `1`))
		s.forge(fired("jobs", `facts.count("job/") == 2`, 1, s.at("fact_asserted", "")))
	}, false},
	{"a firing that tells of another fact of the prefix", "I11", func(s *scribe) {
		s.knows(anyFailed)
		s.write(sensor, asserted("job/a", `{"state":"done"}`), asserted("job/b", `{"state":"failed"}`))
		r := fired("jobs", anyFailed, 1, s.lastOf("fact_asserted"))
		r.GetLeaseFired().Readings = []*pb.Reading{{Name: `facts.exists("job/")`, Value: []byte(`"job/a"`)}}
		s.forge(r)
	}, false},
	{"a condition over a prefix that never fired", "I13", func(s *scribe) {
		s.knows(anyFailed)
		s.write(sensor, asserted("job/a", `{"state":"done"}`))
		s.write(sensor, asserted("job/b", `{"state":"failed"}`))
	}, true},
	{"a condition over a prefix whose fact goes, and that never fired", "I13", func(s *scribe) {
		s.knows(`seen("job/a") && !facts.exists("job/")`)
		s.write(sensor, asserted("job/a", `1`))
		s.write(sensor, &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "job/a"}}})
	}, true},
	{"a condition over a prefix that turned true after the commit and is not acted upon", "I13", func(s *scribe) {
		s.rules = ledger.PrefixSince
		s.begin(2)
		s.plan("a")
		s.agent(append(pair("b", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.ValidForNs = int64(time.Minute)
			c.Triggers = []*pb.Trigger{{Name: "jobs", Condition: anyFailed, AfterCommit: true}}
		}), completed("b"))...)
		s.agent(planCommitted())
		s.decide()
		s.write(sensor, asserted("job/b", `{"state":"failed"}`))
	}, true},
	{"a firing of a condition of which its holder did not know", "I14", func(s *scribe) {
		s.rules = ledger.PrefixSince - 1
		s.begin(2)
		s.agent(opened(0, &pb.Trigger{Name: "jobs", Condition: anyFailed}))
		s.write(sensor, asserted("job/a", `{"state":"failed"}`))
		s.forge(fired("jobs", anyFailed, 1, s.at("fact_asserted", "")))
	}, false},
}

// TestManyFactsOfAPrefixAreAuditedAsTheyAreFolded: as many as a condition reads, one more, and then
// fewer, from a shelf or not.
func TestManyFactsOfAPrefixAreAuditedAsTheyAreFolded(t *testing.T) {
	gone := func(n int) *pb.Record {
		return &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: fmt.Sprintf("job/%04d", n)}}}
	}
	s := newScribe(t)
	for n := range 1200 {
		s.write(sensor, asserted(fmt.Sprintf("job/%04d", n), fmt.Sprintf(`{"state":"done","pad":%q}`, strings.Repeat("x", 200))))
	}
	s.knows(`facts.count("job/", k, v, v.state == "done") == 500`)
	for n := range 650 {
		s.write(sensor, gone(n))
	}
	s.write(sensor, asserted("job/0000", `{"state":"done"}`)) // of 551
	for n := 1149; n < 1199; n++ {
		s.write(sensor, gone(n))
	}
	s.write(sensor, gone(0))
	s.decide()
	if s.lastOf("lease_fired") == nil {
		t.Fatal("no lease has fired")
	}
	for _, m := range []audit.Memory{{}, {Shelf: desk{}, HandMax: 1 << 10}} {
		l := audit.NewOver("t", m)
		var found []audit.Violation
		for _, m := range s.log {
			found = append(found, l.Add(m)...)
		}
		if found = append(found, l.End()...); len(found) > 0 {
			t.Errorf("%+v", found)
		}
	}
}

// TestAFactIsLookedAtByThoseThatWatchIt, by its key or a prefix of it, and by no other open plan.
func TestAFactIsLookedAtByThoseThatWatchIt(t *testing.T) {
	const plans = 40
	s := newScribe(t)
	s.rules = ledger.PrefixSince
	s.begin(2)
	for n := range plans {
		r := opened(0, &pb.Trigger{Name: "x", Condition: fmt.Sprintf(`facts.exists("job/%d/", k, v, v == 1)`, n)},
			&pb.Trigger{Name: "y", Condition: fmt.Sprintf(`facts["key/%d"] == 1`, n)})
		r.Plan = fmt.Sprint("p", n)
		s.write(agentA, r)
	}
	before := len(s.log)
	for n := range plans {
		s.write(sensor, asserted(fmt.Sprintf("job/%d/a", n), "0"))
		s.write(sensor, asserted(fmt.Sprintf("key/%d", n), "0"))
		s.write(sensor, asserted(fmt.Sprintf("other/%d", n), "0"))
	}
	s.write(sensor, asserted("job/7/b", "1"))
	s.write(sensor, asserted("key/8", "1"))
	looks, l := map[string]int{}, audit.New("t")
	l.OnRead(func(plan string, _, _ []string) { looks[plan]++ })
	for i, m := range s.log {
		if i == before {
			clear(looks)
		}
		if found := l.Add(m); len(found) > 0 {
			t.Fatal(found)
		}
	}
	for n := range plans {
		most := 2 // that it was asserted of each
		if n == 7 || n == 8 {
			most += 3 // it turns, and what it has read is told
		}
		if got := looks[fmt.Sprint("p", n)]; got < 2 || got > most {
			t.Errorf("plan %d was asked %d times, want 2 to %d", n, got, most)
		}
	}
	turned := 0
	for _, v := range l.End() {
		if v.Rule == "I13" {
			turned++
		}
	}
	if turned != 2 {
		t.Errorf("%d conditions have turned true, want 2: %+v", turned, l.End())
	}
}

// desk is a shelf in memory.
type desk map[string]string

// Put implements audit.Shelf.
func (d desk) Put(key string, value []byte) { d[key] = string(value) }

// Get implements audit.Shelf.
func (d desk) Get(key string) ([]byte, bool) { v, ok := d[key]; return []byte(v), ok }

// Each implements audit.Shelf.
func (d desk) Each(prefix string, each func(string, []byte)) {
	for _, key := range slices.Sorted(maps.Keys(d)) {
		if strings.HasPrefix(key, prefix) {
			each(key, []byte(d[key]))
		}
	}
}

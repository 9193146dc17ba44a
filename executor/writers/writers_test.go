package writers_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/writers"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// opened is a plan that process w1 of agent ann has opened.
func opened() *rowspb.PlanRow {
	return &rowspb.PlanRow{Agent: "ann", Opened: &pb.Address{Sequence: 2}, Declared: &pb.PlanOpened{},
		Writer: "w1", Opener: "w1"}
}

func adopt(p *rowspb.PlanRow, agent string, sequence, follows uint64) {
	writers.Adopt(p, &pb.PlanAdopted{Agent: agent, Follows: follows, Reason: "gone"}, &pb.Address{Sequence: sequence},
		int64(sequence), "ops")
}

// resume has a process of the plan's agent resume it.
func resume(p *rowspb.PlanRow, writer string, sequence uint64) {
	p.Writer, p.ResumedAt = writers.Name(p, p.Agent, writer), sequence
}

func TestWhoseRecordsAPlanTakes(t *testing.T) {
	mine, theirs := &rowspb.ActionStatic{Id: "a"}, &rowspb.ActionStatic{Id: "b", Writer: "bob/w2"}
	handed := opened()
	adopt(handed, "bob", 5, 2)
	gone := opened()
	adopt(gone, "bob", 5, 2)
	resume(gone, "w2", 6)
	back := opened()
	adopt(back, "bob", 5, 2)
	resume(back, "w2", 6)
	adopt(back, "ann", 8, 6)
	forward := &pb.Record{Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{}}}
	completed := &pb.Record{Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}
	doubted := &pb.Record{Kind: &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{}}}
	failed := &pb.Record{Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{}}}
	for name, c := range map[string]struct {
		p             *rowspb.PlanRow
		a             *rowspb.ActionStatic
		r             *pb.Record
		agent, writer string
		why           string // part of the refusal; empty: it is taken
	}{
		"of its process":                       {opened(), nil, forward, "ann", "w1", ""},
		"of another process":                   {opened(), nil, forward, "ann", "w2", "process that opened it"},
		"of the agent before":                  {handed, nil, forward, "ann", "w1", "is agent bob's since"},
		"of the agent that has it, too early":  {handed, nil, forward, "bob", "w2", "resumes the plan first"},
		"of a namesake of the process before":  {handed, nil, forward, "bob", "w1", "resumes the plan first"},
		"of the process that has resumed it":   {gone, nil, forward, "bob", "w2", ""},
		"of a namesake at the agent before":    {gone, nil, forward, "ann", "w2", "is agent bob's since"},
		"what the agent before has done":       {gone, mine, completed, "ann", "w1", ""},
		"what it may have done":                {gone, mine, doubted, "ann", "w1", ""},
		"what it has not done":                 {gone, mine, failed, "ann", "w1", "is agent bob's since"},
		"what the other has done":              {gone, theirs, completed, "ann", "w1", "is agent bob's since"},
		"what it never registered":             {gone, nil, completed, "ann", "w1", "is agent bob's since"},
		"what the other says of its own":       {gone, theirs, completed, "bob", "w2", ""},
		"of the first process, handed back":    {back, nil, forward, "ann", "w1", "resumes the plan first"},
		"what the agent between has done":      {back, theirs, completed, "bob", "w2", ""},
		"what a namesake there says of it":     {back, theirs, completed, "ann", "w2", "resumes the plan first"},
		"what the first process says, at last": {back, mine, completed, "ann", "w1", ""},
	} {
		c.r.Writer = c.writer
		why := writers.Refuses("p", c.p, c.a, c.r, c.agent, ledger.AdoptedSince)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: refused with %q, want %q", name, why, c.why)
		}
	}
}

func TestWhichAdoptionsAreRefused(t *testing.T) {
	handed := opened()
	adopt(handed, "bob", 5, 2)
	function := opened()
	function.Declared = &pb.PlanOpened{Function: "f"}
	often := opened()
	for n := range uint64(writers.AdoptionsMax) {
		adopt(often, map[bool]string{true: "bob", false: "ann"}[n%2 == 0], 5+n, 0)
	}
	for name, c := range map[string]struct {
		p       *rowspb.PlanRow
		agent   string
		follows uint64
		why     string
		says    bool
	}{
		"to another agent":           {opened(), "bob", 2, "", false},
		"without a look":             {opened(), "bob", 0, "", false},
		"to its own":                 {opened(), "ann", 2, "plan_adopted.agent: plan p is agent ann's", false},
		"that was resumed since":     {handed, "eve", 2, "plan_adopted.follows: 2", false},
		"on":                         {handed, "eve", 5, "", false},
		"back":                       {handed, "ann", 5, "", false},
		"once more, the same record": {handed, "bob", 2, "is agent bob's", true},
		"of a function":              {function, "bob", 2, "begun by function f of agent ann", false},
		"too often":                  {often, "eve", 0, "32 times", false},
	} {
		k := &pb.PlanAdopted{Agent: c.agent, Follows: c.follows}
		why := writers.RefusesAdoption("p", c.p, k)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: refused with %q, want %q", name, why, c.why)
		}
		if got := writers.Says(c.p, k); got != c.says {
			t.Errorf("%s: says the same: %v", name, got)
		}
	}
}

func TestWhichChildPlansAreTaken(t *testing.T) {
	const since = ledger.AttachEndsSince
	token := []byte("the token of plan p")
	digest := sha256.Sum256(token)
	parent := func(adopts ...string) *rowspb.PlanRow {
		p := opened()
		p.Declared.AttachDigest = digest[:]
		for i, agent := range adopts {
			adopt(p, agent, 5+uint64(i), 0)
		}
		return p
	}
	for name, c := range map[string]struct {
		parent *rowspb.PlanRow
		agent  string
		token  []byte
		fold   uint32
		why    string
	}{
		"of its agent":                {parent(), "ann", nil, since, ""},
		"by the token":                {parent(), "eve", token, since, ""},
		"by another token":            {parent(), "eve", digest[:], since, "of agent eve without its token"},
		"without one":                 {parent(), "eve", nil, since, "of agent eve without its token"},
		"where it has no token":       {opened(), "eve", nil, since, "of agent eve without its token"},
		"of the agent that has it":    {parent("bob"), "bob", nil, since, ""},
		"of the agent that had it":    {parent("bob"), "ann", token, since, "agent bob opens child plans in it"},
		"of a third one, handed over": {parent("bob"), "eve", token, since, "is agent bob's since it was handed over"},
		"of a third one, handed back": {parent("bob", "ann"), "eve", token, since, "is agent ann's since it was handed"},
		"under an earlier holder":     {parent("bob"), "ann", token, since - 1, ""},
		"and without the token":       {parent("bob"), "ann", nil, since - 1, "without its token"},
	} {
		child := &rowspb.PlanRow{Agent: c.agent, Declared: &pb.PlanOpened{ParentPlan: "p", ParentToken: c.token}}
		why := writers.RefusesChild(c.parent, child, c.fold)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: refused with %q, want %q", name, why, c.why)
		}
	}
}

func TestAPlanKnowsItsAgents(t *testing.T) {
	p := opened()
	if writers.First(p) != "ann" || writers.Awaited(p) || writers.From(p) != 2 || writers.Had(p, "bob") {
		t.Errorf("%v", p)
	}
	adopt(p, "bob", 5, 2)
	if writers.First(p) != "ann" || !writers.Awaited(p) || writers.From(p) != 5 || !writers.Had(p, "bob") ||
		!writers.Had(p, "ann") || writers.Had(p, "eve") {
		t.Errorf("%v", p)
	}
	late := &pb.PlanResumed{Follows: 2}
	if why := writers.RefusesResume("p", p, late, ledger.AdoptedSince); !strings.Contains(why, "plan_resumed.follows: 2") {
		t.Errorf("a resume that was long on its way: %q", why)
	}
	if resume(p, "w2", 6); writers.Awaited(p) || writers.From(p) != 6 || writers.Bare(p.Writer) != "w2" {
		t.Errorf("%v", p)
	}
	if writers.Bare("w1") != "w1" || writers.Bare("bob/") != "" {
		t.Error("the bare names of processes")
	}
}

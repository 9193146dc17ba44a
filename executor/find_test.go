package executor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// findWorld has plans of three agents in every state that they can end in, opened a
// second apart.
func findWorld(t *testing.T, plans int) *world {
	w := newWorld(t)
	random := rand.New(rand.NewPCG(7, 7))
	for i := range plans {
		w.now += second
		id := fmt.Sprintf("%c%03d", 'a'+rune(random.IntN(3)), i)
		opening := opened(0)
		opening.GetPlanOpened().Label = []string{"", "red", "redder", "blue"}[random.IntN(4)]
		opening.GetPlanOpened().Labels = []*pb.Label{{Key: "env", Value: []string{"test", "prod"}[random.IntN(2)]}}
		opening.Plan = id
		agent := []string{"a1", "a2", "a3"}[random.IntN(3)]
		w.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: agent, Plan: id}, opening)
		for n := range random.IntN(3) {
			records := pair(fmt.Sprintf("x%d", n))
			for _, r := range records {
				r.Plan = id
				if f := r.GetForwardRegistered(); f != nil {
					f.Capability = []string{"c.one", "c.two"}[random.IntN(2)]
				}
			}
			w.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: agent, Plan: id}, records...)
		}
		var last *pb.Record
		switch random.IntN(3) {
		case 0:
			last = &pb.Record{Plan: id, Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}
		case 1:
			last = &pb.Record{Plan: id, Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "r"}}}
		}
		if last != nil {
			w.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: agent, Plan: id}, last)
		}
		w.turn()
	}
	return w
}

// naiveFind looks at every plan.
func naiveFind(r *view.Reader, q view.FindQuery) (ids []string) {
	var all []view.Plan
	for after, more := "", true; more; more = after != "" {
		var page []view.Plan
		page, after = r.Plans(view.Filter{After: after, Limit: 1000})
		all = append(all, page...)
	}
	slices.SortFunc(all, func(a, b view.Plan) int { return int(b.OpenedNs - a.OpenedNs) })
	if q.Text != "" { // ids first, in their order
		slices.SortStableFunc(all, func(a, b view.Plan) int { return strings.Compare(a.Plan, b.Plan) })
	}
	for _, p := range all {
		full, _ := r.Plan(p.Plan)
		has := slices.ContainsFunc(full.Actions, func(a view.Action) bool { return a.Capability == q.Capability })
		labelled := q.Label == p.Label || q.Label == "env="+p.Labels["env"]
		if (q.State == "" || p.State == q.State) && (q.Agent == "" || p.Agent == q.Agent) && (q.Capability == "" || has) &&
			(q.Label == "" || labelled) &&
			p.OpenedNs >= q.FromNs && (q.UntilNs == 0 || p.OpenedNs < q.UntilNs) && strings.HasPrefix(p.Plan, q.Text) {
			ids = append(ids, p.Plan)
		}
	}
	return ids
}

// findAll follows Next to the end.
func findAll(t *testing.T, r *view.Reader, q view.FindQuery) (ids []string) {
	t.Helper()
	for range 1000 {
		answer, err := r.Find(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range answer.Plans {
			ids = append(ids, p.Plan)
		}
		if q.After = answer.Next; q.After == "" {
			return ids
		}
	}
	t.Fatal("pages without end")
	return nil
}

func TestPlansAreFoundByWhatTheyAreWithoutLookingAtAll(t *testing.T) {
	t.Parallel()
	const plans = 90
	w := findWorld(t, plans)
	r := view.NewReader(w.kv, "t", w).At(w.now)
	found := 0
	for _, state := range []string{"", "open", "committing", "committed", "compensated", "failed", "quarantined",
		"unwinding"} {
		for _, agent := range []string{"", "a2"} {
			for _, capability := range []string{"", "c.one"} {
				for _, label := range []string{"", "red", "env=prod"} {
					for _, since := range []int{0, 30} {
						q := view.FindQuery{State: state, Agent: agent, Capability: capability, Label: label, Limit: 7}
						if since > 0 {
							q.FromNs, q.UntilNs = epoch0+int64(since)*second, epoch0+int64(since+180)*second
						}
						got, want := findAll(t, r, q), naiveFind(r, q)
						if !slices.Equal(got, want) {
							t.Fatalf("%+v: %v, want %v", q, got, want)
						}
						found += len(got)
					}
				}
			}
		}
	}
	if found < 10*plans {
		t.Errorf("%d found in all: the plans are too much alike", found)
	}
	for _, text := range []string{"a", "b00", "zz"} {
		if got, want := findAll(t, r, view.FindQuery{Text: text, Limit: 3}), naiveFind(r, view.FindQuery{Text: text}); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := findAll(t, r, view.FindQuery{Text: "redd", Limit: 5}); len(got) == 0 ||
		len(got) != len(naiveFind(r, view.FindQuery{Label: "redder"})) {
		t.Errorf("labels that begin with redd: %v", got)
	}
	for _, q := range []view.FindQuery{{State: "gone"}, {After: "zz"}} {
		if _, err := r.Find(q); err == nil {
			t.Errorf("%+v was taken", q)
		}
	}
}

func TestOnePageOfAListLooksAtSoManyPlansOnly(t *testing.T) {
	w := newWorld(t)
	var openings []*pb.Record
	for i := range view.FindScanMax + 10 {
		opening := opened(0)
		opening.Plan = fmt.Sprintf("p%d", i)
		openings = append(openings, opening)
	}
	for commit := range slices.Chunk(openings, 200) {
		w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: ledger.ManyPlans}, commit...))
	}
	w.state.Flush()
	r := view.NewReader(w.kv, "t", w).At(w.now)
	q := view.FindQuery{Agent: "a1", UntilNs: 1 << 62, State: ledger.StateCommitted, Label: "test"}
	answer, err := r.Find(q)
	if err != nil || !answer.Paused || answer.Next == "" || len(answer.Plans) != 0 {
		t.Fatalf("a page that finds none: paused %v, next %q, %d plans, %v", answer.Paused, answer.Next, len(answer.Plans),
			err)
	}
	q.After = answer.Next
	if answer, err = r.Find(q); err != nil || answer.Paused || answer.Next != "" {
		t.Errorf("the one behind it: paused %v, next %q, %v", answer.Paused, answer.Next, err)
	}
}

func TestWhatFallsDueNextAndWhatIsOldest(t *testing.T) {
	w := newWorld(t)
	for i, id := range []string{"late", "soon", "never"} {
		w.now += second
		record := opened(0)
		if i < 2 {
			record = opened(w.now + int64(time.Hour)/int64(i+1))
		}
		record.Plan = id
		w.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: id}, record)
	}
	w.turn()
	shown := view.NewReader(w.kv, "t", w).At(w.now).Upcoming(0)
	var due []string
	for _, d := range shown.Due {
		due = append(due, d.Plan+" "+d.Kind+" "+d.Lease)
	}
	if want := []string{"soon lease plan.deadline", "late lease plan.deadline"}; !slices.Equal(due, want) {
		t.Errorf("due %q, want %q", due, want)
	}
	if len(shown.Oldest) != 1 || shown.Oldest[0].Plan != "late" {
		t.Errorf("oldest %+v", shown.Oldest)
	}
}

func TestCapabilitiesAreListedWithWhoUndidThem(t *testing.T) {
	w := newWorld(t)
	w.worker = func(c Command) *api.Reply { return &api.Reply{Status: api.StatusDone, Worker: "w1"} }
	w.agent("p1", opened(0))
	w.do("p1", "a", "b")
	w.agent("p1", &pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "r"}}})
	for range 10 {
		w.turn()
	}
	list := view.NewReader(w.kv, "t", w).At(w.now).Capabilities()
	if len(list.Capabilities) == 0 {
		t.Fatal("no capability")
	}
	for _, c := range list.Capabilities {
		if c.Latest != "p1" || len(c.Workers) != 1 || c.Workers[0].Worker != "w1" || c.Workers[0].Failed != 0 ||
			len(c.InFlight) != 0 {
			t.Errorf("%+v", c)
		}
	}
}

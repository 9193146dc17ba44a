package executor_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
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
func naiveFind(r *view.Reader, q api.FindQuery) (ids []string) {
	var all []api.Plan
	for after, more := "", true; more; more = after != "" {
		var page []api.Plan
		page, after = r.Plans(api.Filter{After: after, Limit: 1000})
		all = append(all, page...)
	}
	slices.SortFunc(all, func(a, b api.Plan) int { return int(b.OpenedNs - a.OpenedNs) })
	if q.Text != "" { // ids first, in their order
		slices.SortStableFunc(all, func(a, b api.Plan) int { return strings.Compare(a.Plan, b.Plan) })
	}
	for _, p := range all {
		full, _ := r.Plan(p.Plan)
		has := slices.ContainsFunc(full.Actions, func(a api.Action) bool { return a.Capability == q.Capability })
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
func findAll(t *testing.T, r *view.Reader, q api.FindQuery) (ids []string) {
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
						q := api.FindQuery{State: state, Agent: agent, Capability: capability, Label: label, Limit: 7}
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
		got, want := findAll(t, r, api.FindQuery{Text: text, Limit: 3}), naiveFind(r, api.FindQuery{Text: text})
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := findAll(t, r, api.FindQuery{Text: "redd", Limit: 5}); len(got) == 0 ||
		len(got) != len(naiveFind(r, api.FindQuery{Label: "redder"})) {
		t.Errorf("labels that begin with redd: %v", got)
	}
	for _, q := range []api.FindQuery{{State: "gone"}, {After: "zz"}} {
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
	q := api.FindQuery{Agent: "a1", UntilNs: 1 << 62, State: ledger.StateCommitted, Label: "test"}
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

// unwind fails open plans that have an action, and leaves their undos under way.
func (w *world) unwind(t *testing.T, plans ...string) (moving []string) {
	t.Helper()
	w.state.Flush()
	for _, id := range plans {
		p, _ := view.NewReader(w.kv, "t", w).Plan(id)
		if p.State != ledger.StateOpen || len(p.Actions) == 0 {
			continue
		}
		done := completed(p.Actions[0].Action)
		done.Plan = id
		w.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: p.Agent, Plan: id}, done,
			&pb.Record{Plan: id, Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "r"}}})
		for records := w.decide(nil); len(records) > 0; records = w.decide(nil) {
			w.deciding = true
			w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
			w.deciding = false
		}
		w.state.Flush()
		if p, _ = view.NewReader(w.kv, "t", w).Plan(id); p.State == ledger.StateUnwinding {
			moving = append(moving, id)
		}
	}
	return moving
}

// listed follows Next to the end of a list of plans; between does something between two batches.
func listed(t *testing.T, w *world, q api.Filter, between func(batch int)) (ids []string) {
	t.Helper()
	for batch := range 1000 {
		r := view.NewReader(w.kv, "t", w).At(w.now)
		answer, err := r.List(q)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range answer.Plans {
			if moving := i < answer.Moving; moving && p.State != ledger.StateUnwinding {
				t.Errorf("%s is %s, and among what is being undone", p.Plan, p.State)
			}
			ids = append(ids, p.Plan)
		}
		if n := len(answer.Plans); n > 0 && answer.Next != "" { // a list may also go on after a plan of it
			next, last := q, q
			next.After, last.After = answer.Next, view.PlaceOf(answer, n-1)
			one, _ := r.List(next)
			other, err := r.List(last)
			same := func(a, b api.Plan) bool { return a.Plan == b.Plan }
			if err != nil || !slices.EqualFunc(one.Plans, other.Plans, same) {
				t.Errorf("after %q comes something else than after %q (%v)", last.After, next.After, err)
			}
		}
		if q.After = answer.Next; q.After == "" {
			return ids
		}
		if between != nil {
			between(batch)
			w.state.Flush()
		}
	}
	t.Fatal("batches without end")
	return nil
}

// TestAListOfPlansHasWhatIsBeingUndoneFirst and then the latest, in batches of any size, with each
// filter, as a list that looks at every plan has it.
func TestAListOfPlansHasWhatIsBeingUndoneFirst(t *testing.T) {
	t.Parallel()
	w := findWorld(t, 90)
	w.state.Flush()
	r := view.NewReader(w.kv, "t", w).At(w.now)
	for i, id := range naiveFind(r, api.FindQuery{State: ledger.StateOpen}) {
		if i%2 == 0 {
			w.unwind(t, id)
		}
	}
	r = view.NewReader(w.kv, "t", w).At(w.now)
	states := map[string]int{}
	for _, state := range []string{"", "open", "unwinding", "committed"} {
		for _, agent := range []string{"", "a2"} {
			for _, label := range []string{"", "red", "env=prod"} {
				var want []string
				for _, moving := range []bool{true, false} {
					for _, id := range naiveFind(r, api.FindQuery{State: state, Agent: agent}) {
						p, _ := r.Plan(id)
						states[p.State]++
						if (p.State == ledger.StateUnwinding) == moving && (label == "" || p.Label == label) {
							want = append(want, id)
						}
					}
				}
				for _, limit := range []int{1, 7, 1000} {
					q := api.Filter{State: state, Agent: agent, Label: label, Limit: limit}
					if got := listed(t, w, q, nil); !slices.Equal(got, want) {
						t.Fatalf("%+v: %v, want %v", q, got, want)
					}
				}
			}
		}
	}
	if states[ledger.StateUnwinding] < 10 || states[ledger.StateOpen] < 10 {
		t.Errorf("the plans are too much alike: %v", states)
	}
	all := listed(t, w, api.Filter{Limit: 1000}, nil)
	for i := range all[:len(all)-1] { // the id of a plan will do
		answer, err := r.List(api.Filter{After: all[i], Limit: 1})
		if err != nil || answer.Plans[0].Plan != all[i+1] {
			t.Fatalf("after %s: %+v, %v; want %s", all[i], answer.Plans, err, all[i+1])
		}
	}
	for _, after := range []string{
		"nowhere", "x/" + all[0], "1/2/" + all[0], "1/unwinding/2/" + all[0], "/", "-1/" + all[0],
	} {
		var refused *ledger.Refused
		if _, err := r.List(api.Filter{After: after}); !errors.As(err, &refused) || refused.Field != "after" {
			t.Errorf("after %q: %v", after, err)
		}
	}
}

// TestAListOfPlansLosesNoneWhilePlansMove reads on while plans are opened, begin to unwind and end:
// every plan of the beginning comes, and none of them twice but one whose unwind has ended since.
func TestAListOfPlansLosesNoneWhilePlansMove(t *testing.T) {
	t.Parallel()
	w := findWorld(t, 90)
	w.state.Flush()
	r := view.NewReader(w.kv, "t", w).At(w.now)
	open := naiveFind(r, api.FindQuery{State: ledger.StateOpen})
	slices.Reverse(open) // the list comes to the oldest last
	if moving := w.unwind(t, open[len(open)/2:]...); len(moving) < 5 {
		t.Fatalf("%d plans are being undone, too few for a second batch", len(moving))
	}
	before := listed(t, w, api.Filter{Limit: 1000}, nil)
	began := 0
	got := listed(t, w, api.Filter{Limit: 4}, func(batch int) {
		w.now += second
		fresh := opened(0)
		fresh.Plan = fmt.Sprintf("n%03d", batch)
		w.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: fresh.Plan}, fresh)
		if batch < len(open)/2 {
			began += len(w.unwind(t, open[batch]))
		}
	})
	if began < 5 {
		t.Errorf("%d plans have begun to unwind: the test has lost its teeth", began)
	}
	times := map[string]int{}
	for _, id := range got {
		times[id]++
	}
	for _, id := range before {
		if times[id] != 1 {
			p, _ := view.NewReader(w.kv, "t", w).At(w.now).Plan(id)
			t.Errorf("%s, which is %s now, was listed %d times", id, p.State, times[id])
		}
	}
}

// TestAListOfPlansHasWhatItsOwnerLetsGoOn: a plan whose unwind goes on since the list began was not
// among what was being undone, and still comes among the others.
func TestAListOfPlansHasWhatItsOwnerLetsGoOn(t *testing.T) {
	t.Parallel()
	s := newSchedule(t)
	s.play("open a a+ a=stop fail turn q/open q/b")
	s.state.Flush()
	if got := s.show("p").State; got != ledger.StateQuarantined {
		t.Fatal(got)
	}
	got := listed(t, s.world, api.Filter{Limit: 1}, func(batch int) {
		if batch == 0 {
			s.play("retry:a")
		}
	})
	if now := s.show("p").State; now != ledger.StateUnwinding || !slices.Equal(got, []string{"q", "p"}) {
		t.Errorf("%v were listed, want q and p, which is %s", got, now)
	}
}

// readKV counts the rows that are read.
type readKV struct {
	rows.KV
	reads int
}

func (c *readKV) Get(key []byte) ([]byte, bool) {
	c.reads++
	return c.KV.Get(key)
}

func (c *readKV) Scan(from, to []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for k, v := range c.KV.Scan(from, to) {
			if c.reads++; !yield(k, v) {
				return
			}
		}
	}
}

// TestTheFirstBatchOfAListCostsWhatItShows and not what there is: the rows that it reads are counted.
func TestTheFirstBatchOfAListCostsWhatItShows(t *testing.T) {
	t.Parallel()
	reads := func(plans int) int {
		w := findWorld(t, plans)
		w.state.Flush()
		kv := &readKV{KV: w.kv}
		if _, err := view.NewReader(kv, "t", w).At(w.now).List(api.Filter{Limit: 5}); err != nil {
			t.Fatal(err)
		}
		return kv.reads
	}
	if few, many := reads(40), reads(400); many > few+20 {
		t.Errorf("a batch of 5 reads %d rows of 40 plans, and %d of 400", few, many)
	}
}

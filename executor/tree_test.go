package executor

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// modelAction is one action of a random tree, with all that decides its fate.
type modelAction struct {
	id      string
	before  []int // that it came after, directly
	branch  bool
	class   pb.Class
	outcome pb.Outcome
	askme   bool
	fails   int // failed attempts before the undo is done; attempts are 2
	stop    bool
}

// randomTree draws up to ten actions in a random partial order.
func randomTree(r *rand.Rand) []modelAction {
	tree := make([]modelAction, r.IntN(11))
	for i := range tree {
		a := &tree[i]
		a.id = string(rune('a' + i))
		a.branch = r.IntN(2) == 0
		if !a.branch && i > 0 {
			a.before = append(a.before, i-1)
		}
		for j := range i {
			if (a.branch || j != i-1) && r.IntN(4) == 0 {
				a.before = append(a.before, j)
			}
		}
		a.class = pb.Class(1 + max(0, r.IntN(8)-5))
		a.outcome = [...]pb.Outcome{pb.Outcome_OUTCOME_COMPLETED, pb.Outcome_OUTCOME_COMPLETED, pb.Outcome_OUTCOME_COMPLETED,
			pb.Outcome_OUTCOME_FAILED, pb.Outcome_OUTCOME_IN_DOUBT, pb.Outcome_OUTCOME_UNKNOWN}[r.IntN(6)]
		a.askme = r.IntN(6) == 0
		a.fails = max(0, r.IntN(8)-5)
		a.stop = r.IntN(12) == 0
	}
	return tree
}

// fate is the slow and obvious model: what becomes of every action and the plan.
func fate(tree []modelAction) (state string, undos []string) {
	undos = make([]string, len(tree))
	quarantined, inScope := false, false
	for i := len(tree) - 1; i >= 0; i-- {
		a := tree[i]
		inScope = inScope || a.outcome != pb.Outcome_OUTCOME_FAILED
		halted := false
		for j := i + 1; j < len(tree); j++ {
			for _, b := range tree[j].before {
				halted = halted || b == i && (undos[j] == "owed" || undos[j] == "quarantined")
			}
		}
		known := a.outcome == pb.Outcome_OUTCOME_COMPLETED
		switch {
		case halted:
			undos[i] = "owed"
		case a.outcome == pb.Outcome_OUTCOME_FAILED, a.class == pb.Class_CLASS_EFFECTLESS:
			undos[i] = "skipped"
		case a.class == pb.Class_CLASS_IRREVERSIBLE, !known && a.askme, a.stop, a.fails >= 2:
			undos[i], quarantined = "quarantined", true
		default:
			undos[i] = "compensated"
		}
	}
	switch {
	case !inScope:
		state = "failed"
	case quarantined:
		state = "quarantined"
	default:
		state = "compensated"
	}
	return state, undos
}

// plant writes a tree into the ledger.
func (w *world) plant(plan string, tree []modelAction, concurrency uint32) {
	w.t.Helper()
	open := opened(0)
	open.GetPlanOpened().Concurrency = concurrency
	w.must(w.agent(plan, open))
	for _, a := range tree {
		w.must(w.agent(plan, pair(a.id, func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			f.Class, f.Branch = a.class, a.branch
			for _, b := range a.before {
				f.After = append(f.After, tree[b].id)
			}
			if a.askme {
				c.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE
			}
		})...))
		switch a.outcome {
		case pb.Outcome_OUTCOME_COMPLETED:
			w.must(w.agent(plan, completed(a.id)))
		case pb.Outcome_OUTCOME_FAILED:
			w.must(w.agent(plan, failedForward(a.id)))
		case pb.Outcome_OUTCOME_IN_DOUBT:
			w.must(w.agent(plan, inDoubt(a.id)))
		}
	}
}

// drive lets workers answer in a random order until the plan ends.
func (w *world) drive(r *rand.Rand, tree []modelAction) {
	w.t.Helper()
	var flying []Command
	for range 1000 {
		flying = append(flying, w.state.Commands()...)
		var answers []Answer
		if len(flying) > 0 && r.IntN(3) > 0 {
			at := r.IntN(len(flying))
			c := flying[at]
			flying = append(flying[:at:at], flying[at+1:]...)
			answers = []Answer{{Plan: c.Plan, Number: c.Number, Attempt: c.Attempt, Reply: tree[c.Number-1].answer(c.Attempt)}}
		}
		records := w.decide(answers)
		if len(records) > 0 {
			w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
			continue
		}
		if len(flying) == 0 {
			next, ok := w.state.NextWake()
			if !ok {
				return
			}
			w.now = max(w.now+1, next)
		}
	}
	w.t.Fatal("it never ends (L1)")
}

func (a modelAction) answer(attempt uint32) *ledger.Reply {
	switch {
	case a.stop:
		return &ledger.Reply{Status: ledger.StatusStop}
	case int(attempt) > a.fails:
		return &ledger.Reply{Status: ledger.StatusDone}
	case a.fails%2 == 1:
		return nil // no answer in time
	default:
		return &ledger.Reply{Status: ledger.StatusFailed}
	}
}

// TestRandomTreesAgainstTheModel: order (I21), exactly once (I22), quarantine
// (I23) and all counters (I24) hold at every step, and the end is the model's.
func TestRandomTreesAgainstTheModel(t *testing.T) {
	cases := 10_000
	if testing.Short() {
		cases = 1000
	}
	programs := triggers.NewCache(100)
	seen := map[string]int{}
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 1))
		tree := randomTree(r)
		w := newWorldWith(t, programs)
		w.plant("p", tree, uint32(r.IntN(4)))
		w.must(w.agent("p", planFailed()))
		w.drive(r, tree)
		state, undos := fate(tree)
		for i := range undos {
			undos[i] = tree[i].id + "=" + undos[i]
		}
		seen[state]++
		if got := w.show("p").State; got != state || w.undos("p") != strings.Join(undos, " ") {
			t.Fatalf("seed %d: %s %s\nmodel: %s %v\n%+v", seed, got, w.undos("p"), state, undos, tree)
		}
	}
	for _, state := range []string{"compensated", "quarantined", "failed"} {
		if seen[state] < cases/100 {
			t.Errorf("only %d cases end %s", seen[state], state)
		}
	}
}

// TestRandomMeddling: pairs, outcomes, verdicts, reports and the owner's words at
// random moments of an unwind. Whatever comes, the rows agree with each other, the
// order holds, and once the owner has answered everything the plan ends for good.
func TestRandomMeddling(t *testing.T) {
	cases := 3000
	if testing.Short() {
		cases = 300
	}
	programs := triggers.NewCache(100)
	for seed := range uint64(cases) {
		r := rand.New(rand.NewPCG(seed, 2))
		tree := randomTree(r)
		s := &schedule{world: newWorldWith(t, programs), answers: map[string][]string{}}
		s.plant("p", tree, uint32(r.IntN(4)))
		s.must(s.agent("p", planFailed()))
		s.worker = func(c Command) *ledger.Reply {
			if r.IntN(4) == 0 {
				return &ledger.Reply{Status: ledger.StatusWorking}
			}
			if int(c.Number) > len(tree) {
				return &ledger.Reply{Status: ledger.StatusDone}
			}
			return tree[c.Number-1].answer(c.Attempt)
		}
		for range 40 {
			s.meddle(r)
			if r.IntN(2) == 0 {
				s.now += int64(r.IntN(int(3 * second)))
				s.turn()
			}
		}
		s.finish()
		if state := s.show("p").State; state != "compensated" && state != "resolved" && state != "failed" {
			t.Fatalf("seed %d: %s %s", seed, state, s.outcome())
		}
		if Digest(s.refold(5)) != Digest(s.kv) {
			t.Fatalf("seed %d: another digest", seed)
		}
	}
}

func (s *schedule) meddle(r *rand.Rand) {
	id := string(rune('a' + r.IntN(14)))
	attempt := 1 + r.IntN(3)
	switch r.IntN(12) {
	case 0, 1:
		s.word(id + [...]string{"", "<", ":irr", ":askme", ":eff"}[r.IntN(5)])
	case 2:
		s.word(id + "<" + string(rune('a'+r.IntN(12))))
	case 3:
		s.word(id + "+")
	case 4:
		s.word(id + "-")
	case 5:
		s.word(id + "?")
	case 6:
		s.word(fmt.Sprintf("tell:%s#%d=%s", id, attempt, [...]string{"done", "fail", "stop"}[r.IntN(3)]))
	case 7:
		s.word("judge:" + id + "=block")
	case 8:
		s.word([...]string{"resolve:", "halt:", "retry:"}[r.IntN(3)] + id)
	case 9:
		s.word("lone:" + id)
	case 10:
		s.word([...]string{"commit", "fail", "cancel", "stop"}[r.IntN(4)])
	case 11:
		m := s.log[r.IntN(len(s.log))]
		if class, _ := ledger.ParseSubject(m.Subject); class.Class == ledger.ClassAgent || class.Class == ledger.ClassExecutor {
			s.raw(m.Subject, "", m.Data)
		}
	}
}

// finish answers everything until nothing is left for anybody.
func (s *schedule) finish() {
	s.t.Helper()
	s.worker = nil
	for range 200 {
		for _, c := range s.state.InFlight() {
			s.word(fmt.Sprintf("tell:%s#%d=done", c.Action, c.Attempt))
		}
		s.now += 100 * second
		s.turn()
		view := s.show("p")
		switch view.State {
		case "unwinding":
			continue
		case "quarantined":
		default:
			return
		}
		for _, a := range view.Actions {
			if a.Undo == "quarantined" {
				s.word("resolve:" + a.Action)
			}
		}
		for _, id := range view.Orphans {
			s.word("resolve:" + id)
		}
	}
	s.t.Fatalf("it never ends (L1): %s", s.outcome())
}

package executor_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/view"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// grower draws random plans.
type grower struct {
	*rand.Rand
	plans int  // drawn so far
	calm  bool // nothing in this tree needs its owner
}

// one draws one of the words; the first is as likely as all others together.
func (g *grower) one(words ...string) string {
	return words[max(0, g.IntN(2*len(words)-2)-len(words)+2)]
}

// plan draws up to size actions in a random partial order, some of them child plans.
func (g *grower) plan(size int) *modelPlan {
	p := &modelPlan{id: string(rune('p' + g.plans)), goOn: g.IntN(4) == 0,
		closing: g.one(closingCommit, closingOpen, closingFail)}
	if g.plans++; p.id == "p" {
		p.closing, g.calm = closingOpen, g.IntN(2) == 0
	}
	p.orphan = !g.calm && g.IntN(12) == 0
	for range g.IntN(size + 1) {
		g.action(p, g.IntN(2) == 0)
	}
	return p
}

// action adds one action to a plan.
func (g *grower) action(p *modelPlan, branch bool) {
	i := len(p.actions)
	a := modelAction{id: string(rune('a' + i)), branch: branch, class: pb.Class(1 + max(0, g.IntN(12)-9))}
	if !a.branch && i > 0 {
		a.before = append(a.before, i-1)
	}
	if g.plans < 4 && g.IntN(8) == 0 {
		a.child, a.class = g.plan(5), pb.Class_CLASS_UNSPECIFIED
		a.id = EntryPrefix + a.child.id
		if branch && i > 0 && p.actions[i-1].child == nil { // under an action that is not the last
			a.before = []int{g.IntN(i)}
		}
		if a.branch = len(a.before) > 0 && p.actions[a.before[0]].child == nil; !a.branch && i > 0 {
			a.before = []int{i - 1}
		}
		p.actions = append(p.actions, a)
		return
	}
	for j := range i {
		if (a.branch || j != i-1) && p.actions[j].child == nil && g.IntN(4) == 0 {
			a.before = append(a.before, j)
		}
	}
	a.outcome = [...]rowspb.Outcome{rowspb.Outcome_OUTCOME_COMPLETED, rowspb.Outcome_OUTCOME_COMPLETED,
		rowspb.Outcome_OUTCOME_COMPLETED,
		rowspb.Outcome_OUTCOME_FAILED, rowspb.Outcome_OUTCOME_IN_DOUBT, rowspb.Outcome_OUTCOME_UNKNOWN}[g.IntN(6)]
	a.doubt = [...]string{"", "", "probe", "probe", "blind", "ask"}[g.IntN(6)]
	a.effect = g.one("present", "absent", "duplicate", "inconclusive", "lost")
	a.binds = a.probed() && g.IntN(8) > 0
	a.gate = [...]string{"", "", "", "", "", "", "open", "open", "pivot", "approve", "for", "until"}[g.IntN(12)]
	a.verify = g.IntN(4) == 0
	for n := range a.tries {
		a.tries[n] = modelTry{
			word:  g.one("done", "fail", "lost", "lost", "stop"),
			asked: g.one("present", "absent", "duplicate", "inconclusive"),
			check: g.one("gone", "there", "lost"),
		}
	}
	a.late = [...]pb.Late{pb.Late_LATE_NEVER, pb.Late_LATE_NEVER, pb.Late_LATE_UNSPECIFIED,
		pb.Late_LATE_REFUSED}[g.IntN(4)]
	if g.calm {
		a.soothe()
	}
	p.actions = append(p.actions, a)
}

// soothe leaves an action only what ends without its owner.
func (a *modelAction) soothe() {
	if a.class == pb.Class_CLASS_IRREVERSIBLE {
		a.class = pb.Class_CLASS_COMPENSABLE
	}
	if a.gate != "open" {
		a.gate = ""
	}
	if a.doubt == "ask" || a.effect == "inconclusive" || a.effect == "lost" {
		a.doubt, a.effect = "", ""
	}
	for n, try := range a.tries {
		if try.word == "stop" || try.asked == "inconclusive" || try.check == "lost" || n == attemptsOfModel-1 {
			a.tries[n] = modelTry{word: "done", check: "gone"}
		}
	}
	a.binds = a.probed()
}

// planted is a world in which a model plan lives.
type planted struct {
	*world
	r       *rand.Rand
	root    *modelPlan
	scripts map[string]modelAction // by plan/action
	last    map[string]uint32      // attempts, by plan/action
	asked   map[string]bool
	flying  []Command
}

func plantTree(t *testing.T, programs *triggers.Cache, r *rand.Rand, root *modelPlan) *planted {
	w := &planted{world: newWorldWith(t, programs), r: r, root: root, scripts: map[string]modelAction{},
		last: map[string]uint32{}, asked: map[string]bool{}}
	open := accepting(opened(0)) // what a commit waits for has tests of its own
	open.GetPlanOpened().Concurrency = uint32(r.IntN(4))
	w.open(root, open)
	return w
}

func (w *planted) open(p *modelPlan, open *pb.Record) {
	w.t.Helper()
	open.GetPlanOpened().OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST
	if p.goOn {
		open.GetPlanOpened().OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	}
	w.must(w.agent(p.id, open))
	if p.orphan && w.agent(p.id, pair("z")[0])[0].Verdict != Refused {
		w.t.Fatal("a forward without its registration was taken")
	}
}

// plant registers the actions of a plan from one on, and what became of them.
func (w *planted) plant(p *modelPlan, from, to int) {
	w.t.Helper()
	for _, a := range p.actions[from:to] {
		if a.child == nil {
			w.scripts[p.id+"/"+a.id] = a
			w.must(w.agent(p.id, w.pair(p, a)...))
			if r := outcomeOf(a); r != nil {
				w.must(w.agent(p.id, r))
			}
			continue
		}
		open := opened(0)
		open.GetPlanOpened().ParentPlan = p.id
		if a.branch {
			open.GetPlanOpened().ParentAction = p.actions[a.before[0]].id
		}
		w.open(a.child, open)
		w.plant(a.child, 0, len(a.child.actions))
	}
}

func outcomeOf(a modelAction) *pb.Record {
	switch a.outcome {
	case rowspb.Outcome_OUTCOME_COMPLETED:
		return completed(a.id)
	case rowspb.Outcome_OUTCOME_FAILED:
		return failedForward(a.id)
	case rowspb.Outcome_OUTCOME_IN_DOUBT:
		return inDoubt(a.id)
	default:
		return nil
	}
}

func (w *planted) pair(p *modelPlan, a modelAction) []*pb.Record {
	return pair(a.id, func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		f.Class, f.Branch, f.Pivot, f.Late = a.class, a.branch, a.gate == "pivot", a.late
		for _, b := range a.before {
			if p.actions[b].child == nil && (a.branch || b != len(p.actions)-1) {
				f.After = append(f.After, p.actions[b].id)
			}
		}
		if a.class == pb.Class_CLASS_EFFECTLESS {
			c.Capability = ""
		}
		c.Attempts, c.Approve = attemptsOfModel, a.gate == "approve"
		if a.probed() {
			c.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe." + a.id, Attempts: 2}}
			c.AskAfterNs = int64(ledger.AskAfterMax) // the model knows no question of an open plan
		}
		c.OnInDoubt = map[string]pb.OnInDoubt{"ask": pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE,
			"blind": pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE}[a.doubt]
		if a.binds {
			c.Bindings = []*pb.Binding{{Name: "ref", Expression: "meta.?external_ref"}}
		}
		if a.verify {
			c.Bindings = append(c.Bindings, &pb.Binding{Name: "key", Expression: "meta.key"},
				&pb.Binding{Name: "attempt", Expression: "meta.attempt"})
			c.Verify = &pb.Verify{Call: &pb.Call{Capability: "verify." + a.id, Attempts: 2}, Ok: "verify.gone"}
		}
		if f.Late == pb.Late_LATE_REFUSED {
			f.SettleNs = int64(time.Hour) // what is asked before its undo is asked too early
			c.Bindings = append(c.Bindings, &pb.Binding{Name: "forward", Expression: "meta.forward_key"})
		}
		switch a.gate {
		case "for":
			c.ValidForNs = second
		case "until":
			c.ValidUntilNs = epoch0 + second
		case "open":
			c.ValidForNs = 1_000_000 * second
		}
	})
}

// close lets the agents of child plans do what they do, the innermost first.
func (w *planted) close(p *modelPlan) {
	w.t.Helper()
	w.now = max(w.now, epoch0+2*second)
	for _, a := range p.actions {
		if a.child == nil {
			continue
		}
		w.close(a.child)
		switch state := w.show(a.child.id).State; {
		case state != "open":
		case a.child.closing == closingCommit:
			if w.agent(a.child.id, planCommitted())[0].Verdict != Effective { // a child of it is open or quarantined
				a.child.closing = closingOpen
			}
		case a.child.closing == closingFail:
			w.must(w.agent(a.child.id, planFailed()))
			w.drive(w.say)
		}
	}
}

// say is what the model says of a call.
func (w *planted) say(c Command) *api.Reply {
	plan := strings.TrimSuffix(c.Plan, UndoneSuffix)
	a, ok := w.scripts[plan+"/"+c.Action]
	if !ok { // an extra effect
		a = modelAction{tries: [attemptsOfModel]modelTry{{word: "done", check: "gone"}}}
	}
	id := c.Plan + "/" + c.Action
	if c.Purpose == ledger.PurposeUndo {
		w.last[id] = c.Attempt
		return replyOf(a.tries[c.Attempt-1].word)
	}
	word := a.effect
	if attempt := w.last[id]; c.Purpose == api.PurposeVerify {
		word = a.tries[attempt-1].check
	} else if attempt > 0 {
		word = a.tries[attempt-1].asked
	}
	question := fmt.Sprint(id, c.Purpose, w.last[id])
	if !w.asked[question] && w.r.IntN(4) == 0 { // it may not know at first
		word = "lost"
	}
	w.asked[question] = true
	return replyOf(word)
}

// replyOf is a worker's answer in one word.
func replyOf(word string) *api.Reply {
	say := func(v any) *api.Reply {
		output, _ := json.Marshal(v)
		return &api.Reply{Status: api.StatusDone, Output: output}
	}
	switch word {
	case "done":
		return &api.Reply{Status: api.StatusDone}
	case "fail":
		return &api.Reply{Status: api.StatusFailed}
	case "stop":
		return &api.Reply{Status: api.StatusStop}
	case "gone", "there":
		return say(map[string]bool{"gone": word == "gone"})
	case "duplicate":
		return say(map[string]string{"presence": word, "external_ref": "extra"})
	case "lost":
		return nil
	default:
		return say(map[string]string{"presence": word})
	}
}

// drive lets workers answer in a random order until nothing is left to do.
func (w *planted) drive(say func(Command) *api.Reply) {
	w.t.Helper()
	if !w.driveFor(2000, say) {
		w.t.Fatal("it never ends (L1)")
	}
}

// driveFor does so for some steps, and reports whether nothing is left.
func (w *planted) driveFor(steps int, say func(Command) *api.Reply) bool {
	w.t.Helper()
	for range steps {
		w.flying = append(w.flying, w.state.Commands()...)
		var answers []Answer
		if len(w.flying) > 0 && w.r.IntN(3) > 0 {
			at := w.r.IntN(len(w.flying))
			c := w.flying[at]
			w.flying = slices.Delete(w.flying, at, at+1)
			answers = []Answer{{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt, Reply: say(c)}}
		}
		records := w.decide(answers)
		if len(records) > 0 {
			w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
			continue
		}
		if len(w.flying) == 0 {
			next, ok := w.state.NextWake()
			if !ok || next > epoch0+1000*second { // a warning before an open window closes
				return true
			}
			w.now = max(w.now+1, next)
		}
	}
	return false
}

// found is what became of a plan and all that is part of it.
func (w *planted) found(root *modelPlan, suffix string) *fates {
	w.t.Helper()
	f := newFates()
	root.each(func(p *modelPlan) {
		shown, ok := view.NewReaderWith(w.kv, "t", nil, w.programs).Plan(p.id + suffix)
		if !ok { // a child that was undone before the commit
			shown = w.show(p.id)
		}
		f.states[p.id], f.undos[p.id] = shown.State, map[string]string{}
		for _, a := range shown.Actions {
			if id := a.Action; a.Child != "" {
				f.undos[p.id][strings.TrimSuffix(id, suffix)] = a.Undo
			} else {
				f.undos[p.id][id] = a.Undo
			}
		}
	})
	return f
}

func (w *planted) want(f *fates, suffix string) {
	w.t.Helper()
	got := w.found(w.root, suffix)
	w.root.each(func(p *modelPlan) {
		if got.states[p.id] != f.states[p.id] || !maps.Equal(got.undos[p.id], f.undos[p.id]) {
			w.t.Fatalf("plan %s%s is %s %v\nmodel: %s %v\n%+v\n%+v", p.id, suffix, got.states[p.id], got.undos[p.id],
				f.states[p.id], f.undos[p.id], f, p)
		}
	})
}

// many runs a test on random plans and counts the words that it gives.
func many(t *testing.T, cases int, run func(*triggers.Cache, *grower) string) map[string]int {
	t.Helper()
	cases = testenv.Cases(cases/25, cases)
	programs := triggers.NewCache(100)
	seen, seed := map[string]int{}, uint64(0)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for ; seed < uint64(cases); seed++ {
		seen[run(programs, &grower{Rand: rand.New(rand.NewPCG(seed, 1))})]++
	}
	t.Log(seen)
	return seen
}

// some fails a test in which one of these words came out in less than one case of
// a hundred.
func some(t *testing.T, seen map[string]int, words ...string) {
	t.Helper()
	total := 0
	for _, n := range seen {
		total += n
	}
	for _, word := range words {
		if seen[word] < total/100 {
			t.Errorf("only %d of %d: %s", seen[word], total, word)
		}
	}
}

// TestRandomTreesAgainstTheModel: order (I21), exactly once (I22), quarantine
// (I23) and all counters (I24) hold at every step, and the end is the model's:
// with doubt and every answer to it, checks, pivots, windows, child plans.
func TestRandomTreesAgainstTheModel(t *testing.T) {
	t.Parallel()
	seen := many(t, 5000, func(programs *triggers.Cache, g *grower) string {
		root := g.plan(10)
		w := plantTree(t, programs, g.Rand, root)
		w.plant(root, 0, len(root.actions))
		w.close(root)
		w.must(w.agent("p", planFailed()))
		w.drive(w.say)
		f := newFates()
		f.hold(root)
		f.unwind(root, 0)
		w.want(f, "")
		return f.states["p"]
	})
	some(t, seen, "compensated", "quarantined", "failed")
}

// TestRandomSavepointsAgainstTheModel: back to a savepoint; then on, and committed
// or undone.
func TestRandomSavepointsAgainstTheModel(t *testing.T) {
	t.Parallel()
	seen := many(t, 3000, func(programs *triggers.Cache, g *grower) string {
		root := g.plan(8)
		to := g.IntN(len(root.actions) + 1)
		w := plantTree(t, programs, g.Rand, root)
		w.plant(root, 0, to)
		w.must(w.agent("p", &pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "s", Number: 1}}}))
		w.plant(root, to, len(root.actions))
		w.close(root)
		f := newFates()
		f.hold(root)
		for round := range uint32(1 + g.IntN(2)) {
			w.must(w.agent("p",
				&pb.Record{Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{ToSavepoint: "s",
					Number: round + 1}}}))
			w.drive(w.say)
			if f.unwind(root, to); f.states["p"] == "quarantined" {
				w.want(f, "")
				return "quarantined on the way"
			}
			f.states["p"] = "open"
			w.want(f, "")
			w.grow(g, f)
		}
		if g.IntN(3) > 0 {
			w.must(w.agent("p", planFailed()))
			w.drive(w.say)
			f.unwind(root, 0)
			w.want(f, "")
			return f.states["p"]
		}
		return w.commit(f)
	})
	some(t, seen, "quarantined on the way", "compensated", "quarantined", "committed")
}

// grow adds actions to a plan that is open again.
func (w *planted) grow(g *grower, f *fates) {
	w.t.Helper()
	from := len(w.root.actions)
	for range g.IntN(4) {
		g.action(w.root, true)
	}
	w.plant(w.root, from, len(w.root.actions))
	w.now += 2 * second
	w.close(w.root)
	f.join(w.root, from)
}

// commit lets the root's agent commit; a child that is neither committed nor undone
// is in the way.
func (w *planted) commit(f *fates) string {
	w.t.Helper()
	inTheWay := w.root.orphan
	for _, a := range w.root.actions {
		inTheWay = inTheWay || a.child != nil && !slices.Contains([]string{"committed", "compensated", "failed"},
			f.states[a.child.id])
	}
	if got := w.agent("p", planCommitted())[0].Verdict; got != Effective == !inTheWay {
		w.t.Fatalf("the commit is %v; a child is in the way: %v", got, inTheWay)
	}
	if w.drive(w.say); inTheWay {
		w.want(f, "")
		return "open"
	}
	f.retire(w.root)
	w.want(f, "")
	return "committed"
}

// TestRandomCommittedPlansAgainstTheModel: undone by their owner, unless a window
// has closed; once more what is not settled is undone.
func TestRandomCommittedPlansAgainstTheModel(t *testing.T) {
	t.Parallel()
	seen := many(t, 3000, func(programs *triggers.Cache, g *grower) string {
		root := g.plan(8)
		root.each(func(p *modelPlan) {
			for i := range p.actions {
				if a := &p.actions[i]; (a.gate == "for" || a.gate == "until") && g.IntN(4) > 0 {
					a.gate = ""
				}
			}
		})
		w := plantTree(t, programs, g.Rand, root)
		w.plant(root, 0, len(root.actions))
		w.close(root)
		f := newFates()
		f.hold(root)
		if end := w.commit(f); end != "committed" {
			return end
		}
		undo := &pb.Record{Plan: "p",
			Kind: &pb.Record_CompensationRequested{CompensationRequested: &pb.CompensationRequested{Reason: "undo it",
				Actor: "ops"}}}
		got := w.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"}, undo)[0]
		if root.past(f, 0) {
			if got.Verdict != Refused || !strings.Contains(got.Reason, "windows have closed") {
				t.Fatalf("a window has closed: %+v", got)
			}
			return "too late"
		}
		w.must([]Result{got})
		w.drive(w.say)
		w.want(f, "") // the old plan stays as it is
		f.again(root)
		f.unwind(root, 0)
		w.want(f, UndoneSuffix)
		return f.states["p"]
	})
	some(t, seen, "too late", "compensated", "quarantined")
}

// letGoChild is a plan p that goes on after its child q was given up, with r, a child of that, let go.
const letGoChild = "open a a+ q/open^a q/x q/x+ r/open^q.x r/b r/b+ q/y q/y+ q/fail y=stop turn q/halt:y turn z z+ "

// TestAChildThatWasLetGoIsNoPart of the plan that its parent is a part of.
func TestAChildThatWasLetGoIsNoPart(t *testing.T) {
	for _, c := range []struct{ line, p, r string }{
		{"s/open^r.b s/c s/c+ s/commit turn commit turn r/fail turn",
			"committed: a=retired plan:q=resolved z=retired [c b]", "compensated"},
		{"commit turn undo:!z turn", "committed: a=retired plan:q=resolved z=retired [z]", "open"},
		{"r/commit commit turn", "committed: a=retired plan:q=resolved z=retired []", "committed"},
		{"fail turn", "resolved: a=compensated plan:q=resolved z=compensated [z a]", "open"},
	} {
		s := newSchedule(t)
		s.play(letGoChild + c.line)
		if got := s.outcome(); got != c.p || s.show("r").State != c.r {
			t.Errorf("%s: %s, r is %s", c.line, got, s.show("r").State)
		}
		s.wantRefolded()
	}
}

// TestAChildThatUnwindsByItselfIsReachedBeforeADuty that joins with the very undo which lets the
// unwind come to it: its plan waits for the child, and again when that goes on.
func TestAChildThatUnwindsByItselfIsReachedBeforeADuty(t *testing.T) {
	s := newReplaying(t)
	for _, c := range []struct{ line, p, q string }{
		{"open a a+ q/open^a q/x q/x+ c c+ q/fail x=late c=late turn fail turn newkey!:c turn tell:c#1=done turn",
			ledger.StateUnwinding, ledger.StateUnwinding},
		{"q/tell:x#1=stop turn", ledger.StateQuarantined, ledger.StateQuarantined},
		{"q/retry:x turn", ledger.StateUnwinding, ledger.StateUnwinding},
		{"q/tell:x#2=done turn", ledger.StateQuarantined, ledger.StateCompensated},
		{"skip:c~1 turn", ledger.StateResolved, ledger.StateCompensated},
	} {
		s.play(c.line)
		if p, q := s.show("p"), s.show("q"); p.State != c.p || q.State != c.q {
			t.Fatalf("%s: p is %s, q is %s: %s", c.line, p.State, q.State, s.outcome())
		}
	}
	s.wantRefolded()
}

// TestAPartThatWasGivenUpByMistakeIsUndone with its parent: holders of before PartsSince retired
// the parts of a child that was let go with a plan that they were no part of.
func TestAPartThatWasGivenUpByMistakeIsUndone(t *testing.T) {
	s := newSchedule(t)
	s.audit = nil // of that time it says what would have been right
	s.underHolder(ledger.PartsSince - 1)
	s.play(letGoChild + "s/open^r.b s/c:own s/c+ s/commit turn commit turn")
	if got := s.show("s").Actions[0].Undo; got != "retired" {
		t.Fatalf("c is %s", got)
	}
	s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 3, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: FoldVersion}}}))
	s.play("r/fail turn")
	if got := strings.Join(s.undone, " "); got != "c b" || s.show("r").State != ledger.StateCompensated {
		t.Fatalf("undone: %s; r is %s", got, s.show("r").State)
	}
	if held := s.state.Meta().Conditions; held != 0 {
		t.Errorf("%d conditions are held", held)
	}
	s.wantRefolded()
}

// TestAPartThatWasGivenUpByMistakeIsNotCommitted, whoever says something of it before its root ends:
// a verdict undoes it with its root, a report of it is taken, and the commit of its root retires it.
func TestAPartThatWasGivenUpByMistakeIsNotCommitted(t *testing.T) {
	for _, c := range []struct {
		play, undone, r string
		fold            uint32
	}{
		{"s/judge:c=block turn", "c", ledger.StateOpen, FoldVersion},
		{"s/judge:c=block* turn", "c b", ledger.StateCompensated, FoldVersion},
		{"s/effect:d=x7 r/fail turn", "d c b", ledger.StateCompensated, FoldVersion},
		{"fact:c=1 s/judge:c=allow turn", "c", ledger.StateOpen, FoldVersion},
		{"r/commit turn !r/fail turn", "", ledger.StateCommitted, FoldVersion},
		{"fact:c=1 !r/commit turn", "c", ledger.StateOpen, FoldVersion},
		{"fact:c=1 r/cancel turn", "c b", ledger.StateCompensated, FoldVersion},
		{"!s/effect:d=x7 r/fail turn", "c b", ledger.StateCompensated, ledger.TakenBackSince - 1},
	} {
		s := newSchedule(t)
		s.audit = nil // of that time it says what would have been right
		s.underHolder(ledger.PartsSince - 1)
		s.play(letGoChild + "s/open^r.b s/c:own s/c+ s/d s/d- s/commit turn commit turn")
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
			Term: 3, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: c.fold}}}))
		before := s.state.Meta().Held
		s.play(c.play)
		if got := strings.Join(s.undone, " "); got != c.undone || s.show("r").State != c.r || s.planOf("r~1") != nil {
			t.Errorf("%s: undone are %q, r is %s, s %s", c.play, got, s.show("r").State, s.undos("s"))
		}
		if held := s.state.Meta().Held; c.r != ledger.StateOpen && held != 0 {
			t.Errorf("%s: %d are held, %d before", c.play, held, before)
		}
		s.wantRefolded()
	}
}

package executor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// TestRandomMeddling: pairs, outcomes, child plans, savepoints, verdicts, answers of
// every kind, reports, restarts and the owner's words at random moments. Whatever
// comes, the rows agree with each other, the order holds, and once the owner has
// answered everything every plan ends for good.
func TestRandomMeddling(t *testing.T) {
	t.Parallel()
	cases := testenv.Cases(80, 1200)
	programs := triggers.NewCache(100)
	seen, seed := map[string]int{}, uint64(0)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for ; seed < uint64(cases); seed++ {
		r := rand.New(rand.NewPCG(seed, 2))
		s := &schedule{world: newWorldWith(t, programs), answers: map[string][]string{}, plan: "p"}
		s.worker = func(c Command) *api.Reply { return s.random(r, c) }
		s.word([...]string{"open", "open:1", "open:2+continue", "open:second", "open@9s"}[r.IntN(5)])
		for range 5 + r.IntN(46) {
			s.meddle(r)
			if r.IntN(2) == 0 {
				s.now += int64(r.IntN(int(3 * second)))
				s.turn()
			}
		}
		s.word("fail")
		s.finish()
		seen[s.show("p").State]++
		if rows.Digest(s.refold(5)) != rows.Digest(s.kv) {
			t.Fatal("another digest")
		}
	}
	t.Log(seen)
	some(t, seen, "compensated", "resolved", "committed")
}

// random is any answer that fits a call; working: none, or a report later.
func (s *schedule) random(r *rand.Rand, c Command) *api.Reply {
	if r.IntN(4) == 0 {
		return &api.Reply{Status: api.StatusWorking}
	}
	switch c.Purpose {
	case api.PurposeProbe:
		return replyOf([...]string{"present", "absent", "duplicate", "inconclusive", "lost", "fail"}[r.IntN(6)])
	case api.PurposeVerify:
		return replyOf([...]string{"gone", "gone", "there", "lost", "fail"}[r.IntN(5)])
	default:
		return replyOf([...]string{"done", "done", "done", "fail", "lost", "stop"}[r.IntN(6)])
	}
}

func (s *schedule) meddle(r *rand.Rand) {
	words := func(list ...string) string { return list[r.IntN(len(list))] }
	id := func() string { return words("a", "b", "c", "d", "e", "f", "g", "a~1", "b~1") }
	name := id()
	word := ""
	switch r.IntN(15) {
	case 0, 1, 2:
		mark := words("", "", "", "irr", "askme", "eff", "probe", "probe", "blind", "verify", "pivot", "approve", "lateask",
			"dedupe", "for=3s", "until=9s",
			"probe+verify", "blind+verify", "lateask+probe", "dedupe+for=9s")
		word = name + words("", "<", "<"+id()) + ":" + mark
	case 3, 4:
		word = name + "+"
	case 5:
		word = name + words("-", "?")
	case 6:
		word = fmt.Sprintf("tell:%s#%d=%s", name, 1+r.IntN(3), words("done", "fail", "stop"))
	case 7:
		word = "judge:" + name + words("=block", "=redirect", "=allow")
	case 8, 9:
		word = words("resolve:", "halt:", "retry:", "force:", "skip:") + name + words("", "", "@ann", "@bob")
	case 10:
		word = "lone:" + name
	case 11:
		word = words("commit", "commit", "fail", "cancel", "stop", "undo")
	case 12:
		word = words("save:", "save:", "back:", "undo:") + words("s", "t", "u")
	case 13:
		word = words("open^", "open^a", "open^p.b", "open^q", "open^q.a", "open", "turn")
	case 14:
		s.disturb(r)
		return
	}
	s.word(words("", "", "", "q/", "q/", "r/") + word)
}

// disturb restarts the holder, or stores an old message once more.
func (s *schedule) disturb(r *rand.Rand) {
	if r.IntN(2) == 0 {
		s.state = OpenWith(s.kv, "t", s, s.programs)
		return
	}
	m := s.log[r.IntN(len(s.log))]
	if class, _ := ledger.ParseSubject(m.Subject); class.Class == ledger.ClassAgent ||
		class.Class == ledger.ClassExecutor {
		s.raw(m.Subject, "", m.Data)
	}
}

// finish answers everything well until nothing is left for anybody.
func (s *schedule) finish() {
	s.t.Helper()
	s.worker = s.answer
	s.finishAll()
}

// finishAll is finish with the workers that there are, to which all goes well from now on.
func (s *schedule) finishAll() {
	s.t.Helper()
	s.answers = map[string][]string{}
	for range 200 {
		s.now += 100 * second
		var answers []Answer
		for _, c := range s.state.InFlight() {
			answers = append(answers, *s.work(c))
		}
		s.turn(answers...)
		plans, _ := view.NewReader(s.kv, "t", nil).Plans(api.Filter{})
		busy := slices.ContainsFunc(plans, func(p api.Plan) bool {
			return p.State == "unwinding" || p.State == "quarantined" || len(p.Orphans) > 0
		})
		if !busy {
			return
		}
		for _, p := range plans {
			s.settle(p.Plan)
		}
	}
	plans, _ := view.NewReader(s.kv, "t", nil).Plans(api.Filter{})
	for _, p := range plans {
		s.t.Logf("plan %s (of %s) is %s: %s", p.Plan, p.Parent, p.State, s.undos(p.Plan))
	}
	s.t.Fatal("it never ends (L1)")
}

// settle lets the owner of a plan resolve all that waits for an answer, as two
// operators.
func (s *schedule) settle(plan string) {
	defer func() { s.plan = "p" }()
	shown := s.show(plan)
	if s.plan = plan; shown.State != "quarantined" && len(shown.Orphans) == 0 {
		return
	}
	for _, operator := range []string{"ann", "bob"} {
		for _, a := range shown.Actions {
			if a.Undo == "quarantined" && a.Child == "" {
				s.about("resolve", a.Action+"@"+operator)
			}
		}
		for _, id := range shown.Orphans {
			s.about("resolve", id+"@"+operator)
		}
	}
}

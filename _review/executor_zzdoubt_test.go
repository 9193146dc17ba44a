package executor_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func (s *schedule) spy() *[]string {
	var list []string
	s.worker = func(c Command) *api.Reply {
		list = append(list, fmt.Sprintf("%s %s ref=%s args=%s key=%.6s", c.Purpose, c.Action, c.ExternalRef, c.Arguments, c.Key))
		return s.answer(c)
	}
	return &list
}

// A: Settled hangs with a committed child in doubt.
func TestZZSettledChild(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ q/open^a q/x q/x? q/commit turn @1h turn")
	s.state.Flush()
	asked, stay := view.NewReader(s.kv, "t", s).At(s.now).OpenDoubts("p")
	t.Logf("asked %+v stay %+v", asked, stay)
	t.Logf("q: %s", s.planOf("q").Row.Phase)
	s = newSchedule(t)
	s.play("open a a+ q/open^a q/x:probe q/x? q/x.probe=late q/commit turn @1h turn")
	s.state.Flush()
	asked, stay = view.NewReader(s.kv, "t", s).At(s.now).OpenDoubts("p")
	t.Logf("asked %+v stay %+v", asked, stay)
	// open child
	s = newSchedule(t)
	s.play("open a a+ q/open^a q/x:probe q/x? turn")
	s.state.Flush()
	asked, stay = view.NewReader(s.kv, "t", s).At(s.now).OpenDoubts("p")
	t.Logf("asked %+v stay %+v", asked, stay)
	asked, stay = view.NewReader(s.kv, "t", s).At(s.now).OpenDoubts("q")
	t.Logf("asked %+v stay %+v", asked, stay)
}

// R: the agent's own word is the one that was reported as extra.
func TestZZDouble(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a turn")
	t.Logf("%+v", s.effect(ops, "a", "x7", "x8"))
	s.play("turn")
	said := completed("a")
	said.GetForwardCompleted().ExternalRef = "x8"
	t.Logf("%+v", s.agent("p", said))
	s.play("fail turn")
	t.Log(s.outcome())
	for _, c := range *l {
		t.Log(c)
	}
	s.wantRefolded()
}

// Q: another effect reported of one that completed.
func TestZZOther(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a turn")
	said := completed("a")
	said.GetForwardCompleted().ExternalRef = "x1"
	s.agent("p", said)
	t.Logf("%+v", s.effect(ops, "a", "x9"))
	t.Logf("%+v", s.effect(ops, "a", "x9", "x1"))
	s.play("turn fail turn")
	t.Log(s.outcome())
	for _, c := range *l {
		t.Log(c)
	}
}

// worker moves money
func TestZZWorker(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a turn")
	said := completed("a")
	said.GetForwardCompleted().ExternalRef = "x1"
	s.agent("p", said)
	t.Logf("%+v", s.effect(workerW1, "a", "", "victim"))
	s.play("turn")
	t.Log(s.outcome())
	for _, c := range *l {
		t.Log(c)
	}
}


func dump(t *testing.T, s *schedule, l *[]string) {
	t.Log(s.outcome())
	for _, c := range *l {
		t.Log(c)
	}
	s.wantRefolded()
}

func TestZZDouble2(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a:probe turn")
	t.Logf("%+v", s.effect(ops, "a", "x7", "x8"))
	s.play("turn")
	said := completed("a")
	said.GetForwardCompleted().ExternalRef = "x8"
	t.Logf("%+v", s.agent("p", said))
	s.play("fail turn")
	dump(t, s, l)
}

func TestZZDouble3(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a:probe turn")
	t.Logf("%+v", s.effect(ops, "a", "x7", "x8"))
	said := completed("a")
	said.GetForwardCompleted().ExternalRef = "x8"
	t.Logf("%+v", s.agent("p", said))
	s.play("turn commit turn")
	dump(t, s, l)
}

func TestZZWorker2(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a:probe a+ turn")
	t.Logf("%+v", s.effect(workerW1, "a", "", "victim"))
	s.play("turn commit turn")
	dump(t, s, l)
}

// an extra effect that the operator sees, unnamed contract
func TestZZReviewDup(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a:probe+review turn")
	t.Logf("%+v", s.effect(workerW1, "a", "x7"))
	s.play("turn judge:a=block turn")
	dump(t, s, l)
}

func TestZZTwoRefs(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a:probe turn")
	t.Logf("%+v", s.effect(ops, "a", "x7"))
	t.Logf("second operator, corrected %+v", s.effect(ops, "a", "x70"))
	s.play("fail turn")
	dump(t, s, l)
}

func (s *schedule) effectOf(plan, action, ref string, duplicates ...string) Result {
	return s.append(ops, &pb.Record{Plan: plan, Action: action,
		Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{ExternalRef: ref, Duplicates: duplicates,
			Reason: "seen", Actor: "ops"}}})[0]
}

func TestZZUndoer(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open:accept a:probe a? a.probe=absent a=late commit turn undo: turn")
	t.Log(s.outcome())
	t.Logf("%+v", s.effectOf("p~1", "a", "x7"))
	t.Logf("origin: %+v", s.effectOf("p", "a", "x8"))
	s.play("turn")
	dump(t, s, l)
	t.Log(s.planOf("p~1").Row.Phase, s.planOf("p~1").Action(1).Row)
}

func TestZZChildLate(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open b b+ q/open^ q/a:probe q/a? q/a.probe=absent turn q/fail turn @10m turn")
	t.Log(s.planOf("q").Row.Phase, s.planOf("q").Action(1).Row.Undo)
	s.play("commit turn")
	t.Log(s.planOf("p").Row.Phase)
	t.Logf("%+v", s.effectOf("q", "a", "x7"))
	s.play("turn")
	t.Log(s.planOf("p").Row.Phase, s.planOf("q").Row.Phase)
	dump(t, s, l)
}

func TestZZResolved(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a:irr a? fail turn resolve:a turn")
	t.Log(s.outcome())
	t.Logf("%+v", s.effectOf("p", "a", "x7"))
	s.play("turn")
	dump(t, s, l)
}

func TestZZErased(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open:accept a:probe+for=240h a? a.probe=inconclusive commit turn @240h turn")
	t.Log(s.outcome())
	s.play("erase:force turn")
	t.Logf("%+v", s.effectOf("p", "a", "x7"))
	s.play("turn")
	t.Log(s.planOf("p").Action(1).Row)
	s.play("undo: turn")
	t.Log(s.planOf("p").Row)
	dump(t, s, l)
}

func TestZZStarve(t *testing.T) {
	const plans = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
	s := newSchedule(t)
	for _, p := range plans {
		s.play(fmt.Sprintf("%c/open", p))
		for j := range 8 {
			s.play(fmt.Sprintf("%c/a%d:probe %c/a%d? a%d.probe=late", p, j, p, j, j))
		}
	}
	s.play("turn @1m turn")
	t.Log("out", len(s.state.InFlight()))
	s.play("@2m g/open:1 h/open")
	for j := range 40 {
		s.play(fmt.Sprintf("g/g%d:probe g/g%d? g%d.probe=late", j, j, j))
	}
	s.play("@3m h/h:probe h/h? h.probe=late @6m turn")
	t.Log("out", len(s.state.InFlight()))
	for i := range 30 {
		s.play(fmt.Sprintf("%c/settle:a%d=absent turn", plans[i/8], i%8))
	}
	s.play("turn @7m turn @30m turn @2h turn")
	calls := s.state.InFlight()
	h := false
	for _, c := range calls {
		h = h || c.Plan == "h"
	}
	t.Logf("out %d, about plan h: %v", len(calls), h)
}

func TestZZState(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:probe a? a.probe=duplicate a~1=late turn @1m turn")
	s.state.Flush()
	r := view.NewReader(s.kv, "t", s).At(s.now)
	st, why, out, _ := r.Outcome("p")
	t.Log(s.outcome(), st, why, out)
	a, b := r.OpenDoubts("p")
	t.Log(a, b)
}

func TestZZWindow(t *testing.T) {
	s := newSchedule(t)
	s.play("open:accept a:probe+for=240h a? a.probe=inconclusive commit turn @480h turn")
	t.Log(s.outcome())
	t.Logf("%+v", s.effectOf("p", "a", "x7"))
	s.play("turn")
	t.Log(s.planOf("p").Action(1).Row.ClosesNs-s.now)
	s.state.Flush()
	t.Logf("%+v", view.NewReader(s.kv, "t", s).At(s.now).Upcoming(0).Due)
}

func TestZZSecond(t *testing.T) {
	s := newSchedule(t)
	s.play("open:second a:irr b b+ a? commit turn")
	t.Log(s.outcome(), s.planOf("p").Row.Phase, s.planOf("p").Action(1).Row.Undo)
	s.play("accept:a turn")
	t.Log("one answer:", s.planOf("p").Row.Phase)
	t.Logf("%+v", s.effect(ops, "a", "x7"))
	s.play("turn")
	t.Log("one report:", s.planOf("p").Row.Phase)

	s = newSchedule(t)
	s.play("open:second a:irr b b+ a? commit turn")
	t.Logf("worker %+v", s.effect(workerW1, "a", ""))
	s.play("turn")
	t.Log("a worker's report:", s.planOf("p").Row.Phase)
}

func TestZZMany(t *testing.T) {
	s := newSchedule(t)
	s.worker = func(c Command) *api.Reply { return &api.Reply{Status: api.StatusWorking} }
	s.play("open:1 a:probe a+ turn")
	start := time.Now()
	for i := range 121 {
		var names []string
		for j := range 32 {
			names = append(names, fmt.Sprintf("v%d-%d", i, j))
		}
		at := time.Now()
		r := s.effectOf("p", "a", "", names...)
		if i%40 == 0 {
			t.Logf("report %d: %v %s", i, time.Since(at), r.Reason)
		}
		if i%10 == 0 {
			at = time.Now()
			s.play("turn")
			if i%40 == 0 {
				t.Logf("turn %v", time.Since(at))
			}
		}
	}
	t.Log(time.Since(start), s.planOf("p").Row.Actions)
}

func TestZZProgressStale(t *testing.T) {
}

func TestZZOutputKept(t *testing.T) {
	s := newSchedule(t)
	l := s.spy()
	s.play("open a:probe turn")
	t.Logf("%+v", s.effect(workerW1, "a", "evil"))
	said := completed("a")
	said.Payload = nil
	said.GetForwardCompleted().ExternalRef = ""
	t.Logf("%+v", s.agent("p", said))
	t.Log(s.planOf("p").Action(1).Row)
	s.play("fail turn")
	dump(t, s, l)
}

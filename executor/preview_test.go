package executor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// well is a worker for whom all goes well: undos are done, effects are there, checks
// find nothing.
func well(c Command) *api.Reply {
	return replyOf(map[string]string{ledger.PurposeUndo: "done", api.PurposeProbe: "present",
		api.PurposeVerify: "gone"}[c.Purpose])
}

// stages goes on as a preview takes it: all calls of a stage are answered well, and
// what follows is the next stage. It returns every step that it took.
func (w *planted) stages(withStages bool) (steps []string) {
	w.t.Helper()
	var answers []Answer
	for stage := 1; stage < 1000; stage++ {
		for {
			records := w.decide(answers)
			answers = nil
			if len(records) > 0 {
				steps = append(steps, w.stepsOf(records, stage, withStages)...)
				w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
				continue
			}
			w.flying = append(w.flying, w.state.Commands()...)
			next, ok := w.state.NextWake()
			if len(w.flying) > 0 {
				break
			} else if !ok || next > epoch0+1000*second {
				slices.Sort(steps)
				return steps
			}
			w.now = max(w.now+1, next)
		}
		for _, c := range w.flying {
			answers = append(answers, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
				Reply: well(c)})
		}
		w.flying = nil
	}
	w.t.Fatal("it never ends (L1)")
	return nil
}

func (w *planted) stepsOf(records []*pb.Record, stage int, withStages bool) (steps []string) {
	for _, r := range records {
		step := api.PreviewStep{Stage: stage, Plan: strings.TrimSuffix(r.Plan, UndoneSuffix), Action: r.Action}
		switch k := r.Kind.(type) {
		case *pb.Record_CompensationDispatched:
			step.Step, step.Inverse, step.Arguments = "compensate", k.CompensationDispatched.Capability, r.Payload.Arguments
		case *pb.Record_ProbeAsked:
			if k.ProbeAsked.Question == pb.Question_QUESTION_VERIFY {
				continue
			}
			step.Step, step.Inverse, step.Arguments = "probe", k.ProbeAsked.Capability, r.Payload.Arguments
		case *pb.Record_CompensationSkipped:
			step.Step, step.Reason = "skip", k.CompensationSkipped.Reason
		case *pb.Record_ActionQuarantined:
			step.Step, step.Reason = "quarantine", k.ActionQuarantined.Reason
		default:
			continue
		}
		steps = append(steps, lineOf(step, withStages))
	}
	return steps
}

func lineOf(step api.PreviewStep, withStages bool) string {
	if !withStages {
		step.Stage = 0
	}
	if step.Step == "probe" {
		step.Reason = ""
	}
	return fmt.Sprintf("%d %s %s/%s %s%s %s", step.Stage, step.Step, step.Plan, step.Action, step.Inverse, step.Arguments,
		step.Reason)
}

// TestPreviewIsWhatHappens: for random plans at random moments, what a preview shows
// is what the unwind then does, if all goes well: the same steps with the same
// arguments in the same stages, the same end, the same outstanding. A preview
// changes nothing.
func TestPreviewIsWhatHappens(t *testing.T) {
	t.Parallel()
	seen := many(t, 3000, func(programs *triggers.Cache, g *grower) string {
		root := g.plan(8)
		to := g.IntN(len(root.actions) + 1)
		w := plantTree(t, programs, g.Rand, root)
		w.plant(root, 0, to)
		w.must(w.agent("p", &pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "s", Number: 1}}}))
		w.plant(root, to, len(root.actions))
		w.close(root)
		// With fewer places than calls the order of answers decides which stage a step is in.
		withStages := w.planOf("p").Row.Declared.Concurrency == 0
		moment, q := w.moment(), api.PreviewQuery{Plan: "p"}
		if moment == "open" && g.IntN(2) == 0 {
			q.To = "s"
		}
		before := rows.Digest(w.kv)
		viewed, err := view.NewReaderWith(w.kv, "t", nil, w.programs).Preview(q, w.now)
		if err != nil {
			t.Fatal(err)
		}
		if rows.Digest(w.kv) != before {
			t.Fatal("a preview changed something")
		}
		plan := w.unwindAs(viewed)
		if plan == "" {
			return moment + ", refused"
		}
		w.compare(viewed, plan, withStages)
		return moment
	})
	some(t, seen, "open", "fresh", "unwinding", "quarantined", "committed", "committed, refused")
}

// moment takes the plan to a random place in its life.
func (w *planted) moment() string {
	w.t.Helper()
	switch w.r.IntN(5) {
	case 0:
		return "open"
	case 1:
		if w.agent("p", planCommitted())[0].Verdict == Effective {
			w.drive(w.say)
			return "committed"
		}
		return "open"
	case 2:
		w.must(w.agent("p", planFailed()))
		return "fresh" // nothing is decided yet
	default:
		w.must(w.agent("p", planFailed()))
		w.driveFor(w.r.IntN(30), w.say)
		return w.show("p").State
	}
}

// unwindAs asks for what was previewed, unless it is under way; it returns the plan
// that unwinds, or nothing when that is refused as the preview says.
func (w *planted) unwindAs(viewed api.Preview) string {
	w.t.Helper()
	state := w.show("p").State
	if state != "open" && state != "committed" {
		if ended := state != "unwinding" && state != "quarantined"; (viewed.Refused != "") != ended {
			w.t.Fatalf("%s: %q", state, viewed.Refused)
		}
		if viewed.Refused != "" {
			return ""
		}
		return "p"
	}
	undo := &pb.Record{Plan: "p",
		Kind: &pb.Record_CompensationRequested{CompensationRequested: &pb.CompensationRequested{Reason: "undo it",
			Actor: "ops", ToSavepoint: viewed.To}}}
	got := w.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"}, undo)[0]
	switch {
	case state == "open" && viewed.Refused == "" && viewed.To == "": // it had failed before, or fails now
		return "p"
	case got.Reason != viewed.Refused:
		w.t.Fatalf("refused %q, the preview says %q", got.Reason, viewed.Refused)
	case got.Verdict != Effective:
		return ""
	case state == "open":
		return "p"
	}
	return "p" + UndoneSuffix
}

func (w *planted) compare(viewed api.Preview, plan string, withStages bool) {
	w.t.Helper()
	var shown []string
	for _, s := range viewed.Steps {
		shown = append(shown, lineOf(s, withStages))
	}
	slices.Sort(shown)
	did := w.stages(withStages)
	if !slices.Equal(shown, did) {
		w.t.Fatalf("%+v\n%v\nshown:\n%s\ndone:\n%s", viewed, w.undos(plan), strings.Join(shown, "\n"),
			strings.Join(did, "\n"))
	}
	end := w.show(plan)
	if end.State != viewed.End {
		w.t.Fatalf("it ends %s, the preview says %s", end.State, viewed.End)
	}
	var left, named []string
	for _, a := range end.Actions {
		if !slices.Contains([]string{"held", "compensated", "skipped", "resolved"}, a.Undo) {
			left = append(left, a.Action)
		}
	}
	left = append(left, end.Orphans...)
	for _, r := range w.effective() {
		if k := r.GetPlanEnded(); k != nil && r.Plan == plan {
			named = k.Outstanding
		}
	}
	if !slices.Equal(left, viewed.Outstanding) || end.State == "quarantined" && !slices.Equal(left, named) {
		w.t.Fatalf("%v are left, the preview says %v, and the end %v", left, viewed.Outstanding, named)
	}
}

// TestPreviewOfNothing: an unknown plan is an error, an unknown savepoint and an end
// are reasons.
func TestPreviewOfNothing(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ turn")
	if _, err := view.NewReader(s.kv, "t", nil).Preview(api.PreviewQuery{Plan: "none"}, s.now); err == nil {
		t.Fatal("a preview of an unknown plan")
	}
	refusal := func(q api.PreviewQuery) string {
		viewed, err := view.NewReader(s.kv, "t", nil).Preview(q, s.now)
		if err != nil || viewed.End != viewed.State || len(viewed.Steps) > 0 {
			t.Fatalf("%+v %v", viewed, err)
		}
		return viewed.Refused
	}
	if why := refusal(api.PreviewQuery{Plan: "p", To: "s"}); why != "plan p has no savepoint s" {
		t.Fatal(why)
	}
	s.play("fail turn")
	if why := refusal(api.PreviewQuery{Plan: "p"}); why != "plan p is compensated" {
		t.Fatal(why)
	}
}

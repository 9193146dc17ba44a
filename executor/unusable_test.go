package executor_test

import (
	"fmt"
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
	"github.com/sagenbaum/sagenbaum/triggers"
)

// unusablePairs are registrations that can never be carried out, by the field that says
// why.
var unusablePairs = []struct {
	field, problem string
	change         func(*pb.ForwardRegistered, *pb.CompensationRegistered)
}{
	{"compensation_registered.bindings[1].expression",
		`does not compile: 1:1: undeclared name "outptu"; want did you mean output?`,
		bind("a", "input.id", "b", "outptu.id")},
	{"compensation_registered.bindings[0].expression", "does not compile: it cannot be parsed", bind("a", "input.(")},
	{"compensation_registered.bindings[0].expression",
		"does not compile: 1:1: empty; want write an expression, as in output.id", bind("a", "")},
	{"compensation_registered.bindings[0].expression", "does not compile: 1:1: undeclared name \"probe\"",
		bind("a", "probe.id")},
	{"compensation_registered.triggers[0].condition",
		"does not compile: 1:1: undeclared name \"fatcs\"; want did you mean facts?",
		func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Triggers = []*pb.Trigger{when("x", `fatcs["a"] == 1`)}
		}},
	{"compensation_registered.triggers[1].condition", "does not compile: 1:1: the result is string, not a truth",
		func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Triggers = []*pb.Trigger{when("x", "true"), when("y", "plan.status")}
		}},
	{"compensation_registered.done", "does not compile: a single =; want use ==",
		func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Done = `error.code = "gone"` }},
	{"compensation_registered.done", "the result is string; want a bool",
		func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Done = `"gone"` }},
	{"compensation_registered.stop", "the result is int; want a bool",
		func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Stop = "1 + 1" }},
	{"compensation_registered.probe.call.bindings[0].expression", "does not compile",
		probed(&pb.Probe{Call: questionTo("probe.a", "(")})},
	{"compensation_registered.probe.answer", "does not compile",
		probed(&pb.Probe{Call: questionTo("probe.a", "1"), Answer: "("})},
	{"compensation_registered.probe.answer", "the result is bool; want a string",
		probed(&pb.Probe{Call: questionTo("probe.a", "1"), Answer: "probe.n == 1"})},
	{"compensation_registered.probe.external_ref", "does not compile",
		probed(&pb.Probe{Call: questionTo("probe.a", "1"), ExternalRef: "prob.ref"})},
	{"compensation_registered.verify.call.bindings[0].expression", "does not compile",
		checked(questionTo("verify.a", "("), "true")},
	{"compensation_registered.verify.ok", "does not compile", checked(questionTo("verify.a", "1"), "verify.(")},
	{"compensation_registered.verify.ok", "the result is int; want a bool", checked(questionTo("verify.a", "1"), "1")},
	{"forward_registered.class",
		"effectless, and undo.a is registered to undo it; want compensable, or no compensation_registered.capability",
		func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) { f.Class = pb.Class_CLASS_EFFECTLESS }},
	{"forward_registered.late", "refused, and no argument of the undo reads meta.forward_key; want a binding that does",
		barred("key", "meta.key")},
	{"forward_registered.late", "refused, and no argument of the undo reads meta.forward_key", barred()},
	{"forward_registered.late", "refused, and no argument of the undo reads meta.forward_key",
		barred("text", `"meta.forward_key"`, "x", "input.meta.forward_key")},
}

func questionTo(capability, expression string) *pb.Call {
	return &pb.Call{Capability: capability, Bindings: []*pb.Binding{{Name: "x", Expression: expression}}}
}

func probed(p *pb.Probe) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
	return func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Probe = p }
}

func checked(call *pb.Call, ok string) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
	return func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Verify = &pb.Verify{Call: call, Ok: ok} }
}

// barred is a forward that its provider refuses once its undo was there.
func barred(bindings ...string) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
	return func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		f.Late = pb.Late_LATE_REFUSED
		bind(bindings...)(f, c)
	}
}

// TestWhatCanNeverBeCarriedOutIsRefusedWhole: both halves say why, by the field; the act
// is known, and its plan cannot end without its owner; the same action registered right
// is held like any other.
func TestWhatCanNeverBeCarriedOutIsRefusedWhole(t *testing.T) {
	programs := triggers.NewCache(100)
	for _, c := range unusablePairs {
		for _, again := range []bool{false, true} {
			w := newWorldWith(t, programs)
			w.must(w.agent("p", opened(0)))
			results := w.agent("p", pair("a", c.change)...)
			results = append(results, w.agent("p", pair("a", c.change)...)...) // a copy
			for i, r := range results {
				if want := "refused: " + c.field + ": " + c.problem; r.Verdict != Refused || !strings.HasPrefix(r.Reason, want) {
					t.Fatalf("record %d: %+v, want %s", i, r, want)
				}
			}
			shown := w.show("p")
			if len(shown.Refused) != 4 || len(shown.Actions) != 0 || !slices.Equal(shown.Orphans, []string{"a"}) {
				t.Fatalf("%s: %d refusals, %d actions, forwards without registration %q", c.field, len(shown.Refused),
					len(shown.Actions), shown.Orphans)
			}
			want := ledger.StateQuarantined
			if again {
				want = ledger.StateCompensated
				w.must(w.agent("p", append(pair("a"), completed("a"))...))
			}
			w.must(w.agent("p", planFailed()))
			w.turn()
			if got := w.show("p").State; got != want {
				t.Fatalf("%s: %s, want %s", c.field, got, want)
			}
		}
	}
}

// TestWhatCanBeCarriedOutIsTaken: rules that go too far refuse what is right.
func TestWhatCanBeCarriedOutIsTaken(t *testing.T) {
	for i, change := range []func(*pb.ForwardRegistered, *pb.CompensationRegistered){
		barred("forward", "meta.forward_key"),
		func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			f.Class, c.Capability = pb.Class_CLASS_EFFECTLESS, ""
		},
		barred("all", "meta"),
		barred("forward", `"do/" + meta["forward_key"]`),
		func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			f.Late, c.HandlerVersion = pb.Late_LATE_REFUSED, "v1" // in the agent's own code, which is told
		},
		probed(&pb.Probe{Call: questionTo("probe.a", "before.x"), Answer: `probe.n == 0 ? "absent" : probe.presence`,
			ExternalRef: "probe.refs"}),
		func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
			c.Done, c.Stop = `error.code in ["gone"]`, "error.final"
		},
		checked(questionTo("verify.a", "meta.key"), "verify.gone"),
		bind("literal", `"booking-7"`, "number", "10.10", "json", "json('10.10')", "list", "[input.a, 1]"),
	} {
		w := newWorld(t)
		w.must(w.agent("p", opened(0)))
		if results := w.agent("p", pair("a", change)...); results[0].Verdict != Effective || results[1].Verdict != Effective {
			t.Errorf("%d: %+v", i, results)
		}
	}
}

// TestAPlanWhoseTriggerDoesNotCompileIsRefused, and has failed; whoever asks why learns the
// field.
func TestAPlanWhoseTriggerDoesNotCompileIsRefused(t *testing.T) {
	w := newWorld(t)
	results := w.agent("p", opened(0, when("x", "true"), when("late", "affter(plan.deadline)")))
	const want = `refused: plan_opened.triggers[1].condition: does not compile: 1:7: undeclared name "affter"; want did you mean after?`
	if results[0].Verdict != Refused || results[0].Reason != want {
		t.Fatalf("%+v", results)
	}
	w.turn()
	told := slices.DeleteFunc(w.state.Notices(), func(n Notice) bool { return !ledger.HasEnded(n.State) })
	if len(told) != 1 || told[0].At != 0 { // the notice of its end does not have the field
		t.Errorf("told %+v", told)
	}
	why, err := view.NewReader(w.kv, "t", w).Why(api.WhyQuery{Plan: "p"})
	said := "its opening was refused: " + strings.TrimPrefix(want, "refused: ")
	if err != nil || why.State != ledger.StateFailed || why.Reason != said {
		t.Fatalf("why says %+v, %v", why, err)
	}
	if got := w.agent("p", opened(0)); got[0].Verdict != Refused {
		t.Fatalf("the ID is used, and another opening is %+v", got)
	}
}

// TestARefusedOpeningFailsItsPlanAtOnce: the plan keeps who answers for it, and the pairs
// that follow are undone, whatever refused the opening.
func TestARefusedOpeningFailsItsPlanAtOnce(t *testing.T) {
	for what, change := range map[string]func(*pb.Record){
		"a trigger":  func(r *pb.Record) { r.GetPlanOpened().Triggers = []*pb.Trigger{when("x", "fatcs")} },
		"a deadline": func(r *pb.Record) { r.GetPlanOpened().DeadlineNs = 1767323045 },
		"a label": func(r *pb.Record) {
			r.GetPlanOpened().Labels, r.GetPlanOpened().DeadlineNs = []*pb.Label{{}}, epoch0+5*second
		},
		"a parent that is itself": func(r *pb.Record) { r.GetPlanOpened().ParentPlan = "p" },
	} {
		t.Run(what, func(t *testing.T) {
			s := newSchedule(t)
			s.must(s.append(sensor, asserted("k", "1")))
			bad := opened(0)
			bad.GetPlanOpened().Owner, bad.GetPlanOpened().SecondApprover = "ann", true
			change(bad)
			if got := s.agent("p", append([]*pb.Record{bad}, pair("1")...)...); got[0].Verdict != Refused ||
				got[1].Verdict != Effective {
				t.Fatalf("%+v", got)
			}
			s.must(s.agent("p", completed("1")))
			if got := s.agent("p", planCommitted())[0]; got.Verdict != Refused {
				t.Fatalf("its commit is %+v", got)
			}
			s.turn()
			s.turn()
			s.wantState("p", "compensated", "1=compensated")
			shown := s.show("p")
			if shown.Owner != "ann" || shown.DeadlineNs != 0 || !s.planOf("p").Row.Declared.SecondApprover {
				t.Fatalf("owner %q, deadline %d", shown.Owner, shown.DeadlineNs)
			}
		})
	}
}

// TestARefusedOpeningOpensNothing of another agent's plan, or on another plan's subject.
func TestARefusedOpeningOpensNothing(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	a2 := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a2", Plan: "p"}
	bad := opened(0, when("x", "fatcs"))
	bad.Plan = "p"
	other := w.append(a2, bad)
	if shown := w.show("p"); other[0].Verdict != Refused || shown.State != ledger.StateOpen || shown.Agent != "a1" {
		t.Fatalf("%+v: %+v", other, shown)
	}
	elsewhere := opened(0)
	elsewhere.Plan = "q"
	if got := w.append(a2, elsewhere); got[0].Verdict != Refused || w.planOf("q") != nil {
		t.Fatalf("%+v, and plan q is there", got)
	}
}

// TestADeadlineThatHadPassedIsRefused: by more than clocks differ and an append may wait,
// by the plan's stamp and by what stood before it. A copy that comes later is a copy.
func TestADeadlineThatHadPassedIsRefused(t *testing.T) {
	const slack = int64(ledger.DeadlinePastMax)
	for _, c := range []struct {
		name              string
		before, stamp, at int64 // instants of the record before, of the plan and of its deadline, from epoch0
		want              Verdict
	}{
		{"to come", 0, 0, second, Effective},
		{"just passed", 0, 0, -second, Effective},
		{"passed by all that is forgiven", 0, 0, -slack + 1, Effective},
		{"passed by more", 0, 0, -slack, Refused},
		{"in seconds, not nanoseconds", 0, 0, 1767323045 - epoch0, Refused},
		{"the plan's stamp is ahead, alone", 0, 1000 * slack, 5 * second, Effective},
		{"an earlier stamp was ahead", 1000 * slack, 0, 5 * second, Effective},
		{"both are ahead", 1000 * slack, 1000 * slack, 5 * second, Refused},
	} {
		w := newWorld(t)
		w.now = epoch0 + c.before
		w.must(w.append(sensor, asserted("k", "1")))
		w.now = epoch0 + c.stamp
		r := w.agent("p", opened(epoch0+c.at))[0]
		if r.Verdict != c.want || c.want == Refused &&
			!strings.HasPrefix(r.Reason, "refused: plan_opened.deadline_ns: it had passed when the plan was opened: ") {
			t.Errorf("%s: %+v", c.name, r)
		}
		if c.want != Effective {
			continue
		}
		w.now += 3000 * slack
		w.must(w.append(sensor, asserted("k", "2")))
		if r := w.agent("p", opened(epoch0+c.at))[0]; r.Verdict != Repeated {
			t.Errorf("%s: a copy, later: %+v", c.name, r)
		}
	}
}

// TestARefusalDependsOnNoCache: a state that has compiled much, and one that forgets
// everything, refuse the same in the same words.
func TestARefusalDependsOnNoCache(t *testing.T) {
	w := newWorld(t)
	for i, c := range unusablePairs {
		plan := fmt.Sprint("p", i)
		w.must(w.agent(plan, opened(0)))
		w.agent(plan, pair("a", c.change)...)
		w.must(w.agent(plan, pair("b", bind("x", fmt.Sprintf(`"n%d" + output.id`, i)))...))
	}
	for _, max := range []int{1, 3, 4096} {
		kv := rows.NewMemoryKV()
		programs := triggers.NewCache(max)
		s := OpenWith(kv, "t", w, programs)
		for range 2 { // the second time it knows everything
			for _, m := range w.log {
				foldMessage(t, s, m)
			}
			if rows.Digest(kv) != rows.Digest(w.kv) {
				t.Fatalf("a cache of %d: another state", max)
			}
			kv = rows.NewMemoryKV()
			s = OpenWith(kv, "t", w, programs)
		}
	}
}

// TestWhatDiffersInLiteralsIsCompiledOnce: registrations of one shape cost no
// compilation each.
func TestWhatDiffersInLiteralsIsCompiledOnce(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	compiled := func(from, to int) uint64 {
		before := w.programs.Compilations()
		for i := from; i < to; i++ {
			w.must(w.agent("p", pair(fmt.Sprint("a", i), bind("id", fmt.Sprintf(`"b%d" + output.id`, i), "n", fmt.Sprint(i)),
				func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) {
					c.Triggers = []*pb.Trigger{when("x", fmt.Sprintf(`facts["k%d"] == %d`, i, i))}
				})...))
		}
		return w.programs.Compilations() - before
	}
	if first, more := compiled(0, 5), compiled(5, 50); first == 0 || more != 0 {
		t.Fatalf("compiled %d times, then %d times", first, more)
	}
}

// TestARecordThatCannotBeReadIsOfThePlanOfItsSubject, and a forward among them is known
// to be under way.
func TestARecordThatCannotBeReadIsOfThePlanOfItsSubject(t *testing.T) {
	for _, c := range []struct{ contentType, data, want, orphan string }{
		{"", "garbage", "refused: commit: ", ""},
		{"", "\x08\x01\x12\x01\xff", "refused: records[0]: not a record in protobuf", ""},
		{"text/plain", "x", "refused: Content-Type: ", ""},
		{ledger.ContentTypeJSON, "{", "refused: commit: not JSON", ""},
		{ledger.ContentTypeJSON, `{"recrods":[]}`,
			"refused: commit.recrods: there is no such field; want did you mean records?", ""},
		{ledger.ContentTypeJSON, `{"records":[{"planCommited":{}}]}`,
			"refused: records[0].planCommited: there is no such field; want did you mean planCommitted?", ""},
		{ledger.ContentTypeJSON, `{"records":[{"plan":"other","planCommitted":{}}]}`,
			`refused: plan: "other" on the subject of plan "p"`, ""},
		{ledger.ContentTypeJSON,
			`{"records":[{"plan":"p","action":"a","forwardRegistered":{"capability":"do.a","class":"CLASS_COMPENSABLE","undo":"x"}},
			{"plan":"p","action":"a","compensationRegistered":{"capability":"undo.a"}}]}`,
			"refused: records[0].forwardRegistered.undo: there is no such field", "a"},
		{ledger.ContentTypeJSON,
			`{"records":[{"plan":"p","action":"a","forwardRegistered":{"capability":"do.a","class":"CLASS_COMPENSABLE"}},
			{"plan":"p","action":"a","compensationRegistered":{"capability":"undo.a","backoff":"1s"}}]}`,
			"refused: pair: its compensation_registered is refused: records[1].compensationRegistered.backoff: there is no " +
				"such field; want did you mean backoffNs?", "a"},
		{ledger.ContentTypeJSON,
			`{"records":[{"plan":"p","action":"a","forwardRegistered":{"capability":"do.a","class":"compensable"}}]}`,
			`refused: records[0].forwardRegistered.class: "compensable" is none of its values`, "a"},
	} {
		w := newWorld(t)
		w.must(w.agent("p", opened(0)))
		w.raw("saga.t.agent.a1.p", c.contentType, []byte(c.data))
		w.turn()
		shown := w.show("p")
		if len(shown.Refused) == 0 || !strings.HasPrefix(shown.Refused[0].Reason, c.want) || shown.Refused[0].Plan != "p" ||
			shown.Refused[0].Subject != "saga.t.agent.a1.p" {
			t.Errorf("%s: the plan shows %+v", c.data, shown.Refused)
		}
		if got := strings.Join(shown.Orphans, " "); got != c.orphan {
			t.Errorf("%s: forwards without registration: %q", c.data, got)
		}
		last, err := ledger.Decode("t", w.log[len(w.log)-1])
		if err != nil || last[0].Record.GetRecordRefused().GetReason() != shown.Refused[0].Reason ||
			last[0].Record.Plan != "p" {
			t.Errorf("%s: the ledger says %v", c.data, last[0].Record)
		}
	}
}

// BenchmarkFoldDistinct is the fold of pairs with three bindings and a condition: of one
// text, of texts that differ in literals, and of texts that nobody has seen.
func BenchmarkFoldDistinct(b *testing.B) {
	for _, c := range []struct{ name, binding string }{{"same", "output.id"}, {"literals", `"b%d" + output.id`},
		{"new", "output.id%d"}} {
		b.Run(c.name, func(b *testing.B) {
			const pairs = 1000
			var log []ledger.Message
			for i := range pairs {
				text := c.binding
				if strings.Contains(text, "%d") {
					text = fmt.Sprintf(text, i)
				}
				p := pair(fmt.Sprint("a", i), bind("x", text, "y", text, "z", text),
					func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
						f.Branch, c.Triggers = true, []*pb.Trigger{when("t", fmt.Sprintf(`facts["k%d"] == 1`, i%10))}
					})
				p[0].Plan, p[1].Plan = "p", "p"
				data, err := ledger.EncodeCommit(p)
				if err != nil {
					b.Fatal(err)
				}
				log = append(log, ledger.Message{Sequence: uint64(i + 1), StampNs: epoch0, Subject: "saga.t.agent.a1.p",
					Data: data})
			}
			var took time.Duration
			for b.Loop() {
				programs := triggers.NewCache(ExpressionsMax)
				s := OpenWith(rows.NewMemoryKV(), "t", nil, programs)
				began := time.Now()
				for _, m := range log {
					foldMessage(b, s, m)
				}
				took += time.Since(began)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*pairs), "ns/pair")
		})
	}
}

package executor_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/view"

	. "github.com/sagenbaum/sagenbaum/executor"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// ledgers are played once and then folded from every prefix.
var ledgers = []string{
	"open a a+ b b+ c c? d d- e fail turn",
	"open@5s a a+ b b+ fact:x=1 @6s",
	"open:1 a< a+ b< b+ c<a,b c+ c=fail,done b=stop fail turn @1s @9s retry:b turn",
	"open a a+ b b+ b=stop fail turn c c+ turn resolve:b turn !resolve:a !lone:x turn resolve:x turn",
	"open a a+ b:lateask b=late fail turn b+ tell:b#1=done turn halt:b~1 turn",
	"open a a+ judge:a=allow !lone:x resolve:x commit turn =again !b",
	"open a a+ a=late judge:a=block* turn forget:y tell:a#1=fail turn @2s tell:a#2=done turn",
}

func playedLedgers(t *testing.T) []*schedule {
	t.Helper()
	var out []*schedule
	for _, line := range ledgers {
		s := newSchedule(t)
		// Plan q is held throughout: whatever happens to p must not move it.
		s.must(s.agent("q", append([]*pb.Record{opened(epoch0+int64(1000*second), when("x", `facts["x"] == 2`))},
			pair("a")...)...))
		s.play(line)
		out = append(out, s)
	}
	return out
}

// foldAll folds messages into a new state, batch of them per flush.
func foldAll(t *testing.T, log []ledger.Message, batch int, programs *triggers.Cache) (*State, *rows.MemoryKV) {
	t.Helper()
	w := &world{t: t, log: log, programs: programs}
	kv := w.refold(batch)
	return OpenWith(kv, "t", nil, programs), kv
}

// TestEveryPrefixFoldsAlike: batches, restarts and rebuilds change no byte of the
// state (I7).
func TestEveryPrefixFoldsAlike(t *testing.T) {
	for _, s := range playedLedgers(t) {
		live := rows.NewMemoryKV()
		state := OpenWith(live, "t", s, s.programs)
		for n, m := range s.log {
			foldMessage(t, state, m)
			want := rows.Digest(live)
			for _, batch := range []int{1, 7, 1000} {
				if _, kv := foldAll(t, s.log[:n+1], batch, s.programs); rows.Digest(kv) != want {
					t.Fatalf("another digest after %d records with batches of %d", n+1, batch)
				}
			}
			state = OpenWith(live, "t", s, s.programs) // a restart after every commit
		}
		if rows.Digest(live) != rows.Digest(s.kv) {
			t.Fatal("another digest after restarts")
		}
	}
}

// runner continues a ledger by itself: workers answer done, time goes on.
type runner struct {
	*world
	restart bool // open the state anew after every commit
}

func (r *runner) run() {
	r.t.Helper()
	for range 500 {
		if r.restart {
			r.state = OpenWith(r.kv, "t", r, r.programs)
		}
		var answers []Answer
		for _, c := range r.state.InFlight() {
			answers = append(answers, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
				Reply: &api.Reply{Status: api.StatusDone}})
		}
		records := r.decide(answers)
		if len(records) > 0 {
			r.must(r.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
			continue
		}
		next, ok := r.state.NextWake()
		if !ok {
			return
		}
		r.now = max(r.now+1, next)
	}
	r.t.Fatal("it never ends")
}

// TestARestartAtEveryPrefixDecidesAlike: what was folded without a restart and
// what was opened anew go on with the same records, byte for byte (I9, I24).
func TestARestartAtEveryPrefixDecidesAlike(t *testing.T) {
	t.Parallel()
	for _, s := range playedLedgers(t) {
		for n := 1; n <= len(s.log); n++ {
			var ends []*runner
			for _, restart := range []bool{false, true} {
				r := &runner{restart: restart, world: worldOf(t, s.programs, s.log[:n])}
				r.run()
				ends = append(ends, r)
			}
			a, b := ends[0], ends[1]
			if len(a.log) != len(b.log) || rows.Digest(a.kv) != rows.Digest(b.kv) {
				t.Fatalf("after %d records a restart changes what follows: %d and %d commits", n, len(a.log), len(b.log))
			}
			for i := range a.log {
				if !bytes.Equal(a.log[i].Data, b.log[i].Data) || a.log[i].StampNs != b.log[i].StampNs {
					t.Fatalf("commit %d differs", i+1)
				}
			}
			if shown, ok := view.NewReader(a.kv, "t", nil).Plan("p"); ok && shown.State == "unwinding" {
				t.Fatalf("after %d records it sits unwinding (S26)", n)
			}
		}
	}
}

// TestAFencedHolderIsHarmless: another holder begins a term at every prefix; what
// the old one still decides is void, and the plan ends as if it were not there
// (I26).
func TestAFencedHolderIsHarmless(t *testing.T) {
	for _, s := range playedLedgers(t) {
		for n := 1; n <= len(s.log); n++ {
			w := worldOf(t, s.programs, s.log[:n])
			kv, state := w.kv, w.state
			var answers []Answer
			for _, c := range state.InFlight() {
				answers = append(answers, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt})
			}
			stale := state.Decide(Input{EpochNs: w.now, Answers: answers, SizeMax: 60 << 10})
			term := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
			claim := func(term uint64) *pb.Record {
				return &pb.Record{Term: term, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2"}}}
			}
			w.must(w.append(term, claim(2)))
			if r := w.append(term, claim(2)); r[0].Verdict != Void {
				t.Fatalf("%+v", r)
			}
			if len(stale) > 0 {
				before, _ := view.NewReader(kv, "t", nil).Plan("p")
				for _, r := range w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, stale...) {
					if r.Verdict != Void {
						t.Fatalf("%+v", r)
					}
				}
				if after, _ := view.NewReader(kv, "t", nil).Plan("p"); len(after.Refused) < len(before.Refused) ||
					after.State != before.State {
					t.Fatal("a void record changed the plan")
				}
			}
			if len(state.Commands()) > 0 && n == len(s.log) {
				continue // of the prefix itself
			}
			(&runner{world: w}).run()
			if shown, ok := view.NewReader(kv, "t", nil).Plan("p"); ok && shown.State == "unwinding" {
				t.Fatal("it sits unwinding")
			}
		}
	}
}

// TestCopiesOfCommitsChangeNoPlan: after every step a random earlier commit of
// the agent, a worker or the holder arrives once more; every schedule ends as
// without.
func TestCopiesOfCommitsChangeNoPlan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Cases(1, 5)) {
		for _, c := range schedules {
			if strings.Contains(c.setup, "retry:") || strings.Contains(c.setup, "again") || strings.Contains(c.setup, "!tell:") {
				continue // a retry is a wish, and a copy of it another; a report may come before what it reports on
			}
			if strings.Contains(c.setup, "!commit turn resolve:") {
				continue // a commit that was refused may be right later, and so may its copy
			}
			t.Run(c.name, func(t *testing.T) {
				s := newSchedule(t)
				r := rand.New(rand.NewPCG(seed, 3))
				for word := range strings.FieldsSeq(c.setup) {
					s.play(word)
					for range 3 {
						m := s.log[r.IntN(len(s.log))]
						switch source, _ := ledger.ParseSubject(m.Subject); source.Class {
						case ledger.ClassAgent, ledger.ClassWorker, ledger.ClassExecutor:
							s.raw(m.Subject, m.ContentType, m.Data)
						}
					}
				}
				s.turn()
				if got := s.outcome(); got != c.want {
					t.Fatalf("%s gives %s want  %s", c.setup, got, c.want)
				}
			})
		}
	}
}

// TestRecordsOfAnotherAgentAreRefused, whatever they are, and change nothing.
func TestRecordsOfAnotherAgentAreRefused(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+")
	before := s.show("p")
	other := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a2", Plan: "p"}
	for _, records := range [][]*pb.Record{
		{opened(0)}, pair("b"), pair("a"), {completed("a")}, {failedForward("a")}, {planFailed()}, {planCommitted()},
		{pair("c")[0]},
	} {
		for _, r := range records {
			r.Plan = "p"
		}
		for _, r := range s.append(other, records...) {
			if r.Verdict != Refused || r.Reason == "" {
				t.Fatalf("%v: %+v", records[0], r)
			}
		}
	}
	after := s.show("p")
	if after.State != "open" || len(after.Actions) != 1 || len(after.Orphans) != 0 || after.LastNs != before.LastNs ||
		len(after.Refused) != 10 {
		t.Fatalf("%+v", after)
	}
}

// TestADecisionNamesWhatItIsAbout: with another address, or another cause than the
// lease that fired, it is void (I6).
func TestADecisionNamesWhatItIsAbout(t *testing.T) {
	holder := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	spoil := []func(*pb.Record){
		func(r *pb.Record) { r.About = &pb.Address{Sequence: 2, Leaf: r.About.Leaf} },
		func(r *pb.Record) {
			leaf := bytes.Clone(r.About.Leaf)
			leaf[31]++
			r.About = &pb.Address{Sequence: r.About.Sequence, Index: r.About.Index, Leaf: leaf}
		},
		func(r *pb.Record) { r.About = nil },
		func(r *pb.Record) { r.GetCompensationDispatched().Key = undoKey("a") },
		func(r *pb.Record) { r.GetCompensationDispatched().Capability = "undo.a" },
		func(r *pb.Record) { r.GetCompensationDispatched().Attempt = 2 },
		func(r *pb.Record) { r.Action = "a" },
	}
	for i, change := range spoil {
		s := newSchedule(t)
		s.play("open a a+ b b+ fail")
		records := s.decide(nil)
		last := records[len(records)-1]
		s.must(s.append(holder, records[:len(records)-1]...))
		if last.Action != "b" || last.GetCompensationDispatched() == nil {
			t.Fatalf("%v", last)
		}
		change(last)
		if r := s.append(holder, last); r[0].Verdict != Void {
			t.Fatalf("%d: %+v", i, r)
		}
		if len(s.state.Commands()) != 0 {
			t.Fatalf("%d: a void dispatch was sent", i)
		}
	}
	s := newSchedule(t)
	s.play("open a a+ fail")
	records := s.decide(nil)
	s.must(s.append(holder, records[0]))
	records[1].Cause = &pb.Address{Sequence: 2}
	if r := s.append(holder, records[1]); records[1].GetUnwindStarted() == nil || r[0].Verdict != Void {
		t.Fatalf("%v: %+v", records[1], r)
	}
	s.turn()
	s.wantState("p", "compensated", "a=compensated")
}

// TestOneIDTwoContents: what has the id of something registered and says another
// thing is refused; what says the same is a copy.
func TestOneIDTwoContents(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	s.must(s.agent("p", pair("a")...))
	s.must(s.agent("p", completed("a")))
	otherInput := pair("a")
	otherInput[0].Payload.Input = []byte(`{"id":"other"}`)
	otherAttempts := pair("a", func(_ *pb.ForwardRegistered, c *pb.CompensationRegistered) { c.Attempts = 9 })
	otherOutput := completed("a")
	otherOutput.Payload.Output = []byte(`{"ref":"other"}`)
	otherRef := completed("a")
	otherRef.GetForwardCompleted().ExternalRef = "r"
	for i, c := range []struct {
		records []*pb.Record
		want    []Verdict
	}{
		{pair("a"), []Verdict{Repeated, Repeated}},
		{otherInput, []Verdict{Refused, Repeated}},
		{otherAttempts, []Verdict{Repeated, Refused}},
		{[]*pb.Record{completed("a")}, []Verdict{Repeated}},
		{[]*pb.Record{otherOutput}, []Verdict{Refused}},
		{[]*pb.Record{otherRef}, []Verdict{Refused}},
	} {
		for j, r := range s.agent("p", c.records...) {
			if r.Verdict != c.want[j] {
				t.Errorf("%d.%d: %+v", i, j, r)
			}
		}
	}
}

// TestAPairTheWrongWayRound is refused whole, in either encoding: its act is its
// owner's, unless the pair comes again and is right.
func TestAPairTheWrongWayRound(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := newSchedule(t)
		s.play("open")
		p := pair("a")
		p[0].Plan, p[1].Plan = "p", "p"
		inJSON := fmt.Sprintf(`{"records":[%s,%s]}`, protojson.Format(p[1]), protojson.Format(p[0]))
		for range 2 {
			results := s.agent("p", p[1], p[0])
			results = append(results, s.raw("saga.t.agent.a1.p", ledger.ContentTypeJSON, []byte(inJSON))...)
			for _, r := range results {
				if r.Verdict != Refused || !strings.Contains(r.Reason, "the compensation stands before its forward") {
					t.Fatalf("%+v", results)
				}
			}
		}
		if a := s.show("p").Actions; len(a) != 0 {
			t.Fatalf("registered %+v", a)
		}
		want := ledger.StateQuarantined
		if again {
			want = ledger.StateCompensated
			s.must(s.agent("p", p...))
		}
		s.play("fail turn")
		if state := s.show("p").State; state != want {
			t.Fatalf("%s, want %s", state, want)
		}
	}
}

// TestARefusalIsRecordedOnce, under its plan if it has one, whatever the plan is
// called: the answer must itself be a record that folds.
func TestARefusalIsRecordedOnce(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	many := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: ledger.ManyPlans}
	for _, plan := range []string{"p", ledger.ManyPlans, "", "no token!", "never-opened", strings.Repeat("x", 70)} {
		r := completed("nope")
		r.Plan = plan
		s.append(many, r)
	}
	s.raw("saga.t.agent.a1.p", "", []byte("garbage"))
	s.raw("saga.t.fact", "", []byte("garbage"))
	s.raw("nonsense", "text/html", nil)
	s.turn()
	s.turn()
	recorded := 0
	for _, r := range s.effective() {
		if r.GetRecordRefused() != nil {
			recorded++
		}
	}
	if recorded != 9 || s.state.HasWork() {
		t.Fatalf("%d refusals recorded, more to do: %v", recorded, s.state.HasWork())
	}
	if n := len(view.NewReader(s.kv, "t", nil).Refusals(0, 100)); n != 9 || s.state.Meta().Refused != 9 {
		t.Fatalf("%d shown", n)
	}
}

// TestASuccessNeedsItsCheck: a holder that says that an undo was verified, with no
// answer in the ledger that says so, is not believed.
func TestASuccessNeedsItsCheck(t *testing.T) {
	for _, mark := range []string{"verify", "probe"} {
		s := newSchedule(t)
		s.play("open a:" + mark + " a+ a=late fail turn")
		a := s.actionOf("p", "a")
		done := &pb.CompensationSucceeded{Attempt: 1, Verified: mark == "verify", Probed: mark == "probe"}
		r := s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, &pb.Record{
			Plan: "p", Action: "a", Term: 1, EpochNs: s.now, About: a.Fixed.Registered, Cause: a.Row.Dispatched,
			Kind: &pb.Record_CompensationSucceeded{CompensationSucceeded: done},
		})
		if r[0].Verdict != Void {
			t.Fatalf("%s: %+v", mark, r[0])
		}
	}
}

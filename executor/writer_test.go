package executor_test

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
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

// by says which process of an agent writes records.
func by(writer string, records ...*pb.Record) []*pb.Record {
	for _, r := range records {
		r.Writer = writer
	}
	return records
}

func resumed() *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanResumed{PlanResumed: &pb.PlanResumed{}}}
}

func calling(capability string) func(*pb.ForwardRegistered, *pb.CompensationRegistered) {
	return func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) { f.Capability = capability }
}

// writers is a world with a plan p, opened by process w1 with action 1, which completed.
func writers(t *testing.T) *schedule {
	s := newSchedule(t)
	s.must(s.agent("p", by("w1", append([]*pb.Record{opened(0)}, pair("1")...)...)...))
	s.must(s.agent("p", by("w1", completed("1"))...))
	return s
}

func (s *schedule) wantOrphans(want string) {
	s.t.Helper()
	if got := strings.Join(s.show("p").Orphans, " "); got != want {
		s.t.Fatalf("orphans %q, want %q", got, want)
	}
}

// TestAPlanTakesTheRecordsOfOneWriter: what another process says changes nothing, and what
// it claims to do stays with the plan until somebody has said what became of it.
func TestAPlanTakesTheRecordsOfOneWriter(t *testing.T) {
	savepointOf := &pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "s", Number: 1}}}
	for what, test := range map[string]struct {
		records []*pb.Record
		orphans string
	}{
		"the same pair":                {pair("1"), "1@4-0"},
		"another pair under its id":    {pair("1", calling("do.else")), "1@4-0"},
		"another action":               {pair("2"), "2"},
		"a completion of its action":   {[]*pb.Record{completed("1")}, "1@4-0"},
		"a completion of nothing":      {[]*pb.Record{completed("2")}, "2"},
		"a doubt about its action":     {[]*pb.Record{inDoubt("1")}, "1@4-0"},
		"a pair and its completion":    {append(pair("2"), completed("2")), "2"},
		"that its action failed":       {[]*pb.Record{failedForward("1")}, ""},
		"a savepoint":                  {[]*pb.Record{savepointOf}, ""},
		"a commit":                     {[]*pb.Record{planCommitted()}, ""},
		"a failure":                    {[]*pb.Record{planFailed()}, ""},
		"the opening":                  {[]*pb.Record{opened(0)}, ""},
		"a pair that it takes back":    {append(pair("2"), failedForward("2")), ""},
		"a pair after its completion":  {append([]*pb.Record{completed("2")}, pair("2")...), "2"},
		"a taking back of what it did": {append(pair("2"), completed("2"), failedForward("2")), "2"},
	} {
		t.Run(what, func(t *testing.T) {
			s := writers(t)
			effective := 0
			for _, r := range s.agent("p", by("w2", test.records...)...) {
				if r.Verdict == Effective {
					effective++
				}
			}
			if shown := s.show("p"); shown.State != "open" || len(shown.Actions) != 1 ||
				shown.Actions[0].Outcome != "completed" {
				t.Fatalf("the plan is %s with %+v", shown.State, shown.Actions)
			}
			if withdrawn := what == "a pair that it takes back"; (effective > 0) != withdrawn {
				t.Fatalf("%d records had an effect", effective)
			}
			place := test.orphans
			if strings.Contains(place, "@") {
				place = fmt.Sprintf("1@%d-0", len(s.log))
			}
			s.wantOrphans(place)
			got := s.agent("p", by("w1", planCommitted())...)[0]
			if (got.Verdict == Effective) != (place == "") {
				t.Fatalf("commit: %+v", got)
			}
		})
	}
}

// TestAnOrphanKeepsItsPlan from every end but its owner's.
func TestAnOrphanKeepsItsPlan(t *testing.T) {
	s := writers(t)
	s.agent("p", by("w2", pair("1", calling("do.else"))...)...)
	s.wantOrphans("1@4-0")
	if pages := s.state.Pages(); len(pages) != 1 || !strings.Contains(pages[0].Reason, "1@4-0") {
		t.Fatalf("pages %+v", pages)
	}
	if got := s.agent("p", by("w1", planCommitted())...)[0]; got.Verdict != Refused ||
		!strings.Contains(got.Reason, "1@4-0") {
		t.Fatalf("commit: %+v", got)
	}
	if list, _ := view.NewReader(s.kv, "t", s).Quarantined(api.ListQuery{}); len(list) != 1 ||
		list[0].State != ledger.StateOpen || len(list[0].Orphans) != 1 {
		t.Fatalf("its owner's list has %+v", list)
	}
	s.must(s.agent("p", by("w1", planFailed())...))
	s.turn()
	if list, _ := view.NewReader(s.kv, "t", s).Quarantined(api.ListQuery{}); len(list) != 1 ||
		list[0].State != ledger.StateQuarantined {
		t.Fatalf("its owner's list has %+v", list)
	}
	s.turn()
	s.wantState("p", "quarantined", "1=compensated")
	s.play("resolve:1@4-0")
	s.turn()
	s.wantState("p", "resolved", "1=compensated")
	s.agent("p", by("w2", pair("1", calling("do.else"))...)...) // a copy
	s.turn()
	s.wantState("p", "resolved", "1=compensated")
	s.agent("p", by("w2", pair("1", calling("do.third"))...)...)
	s.turn()
	s.wantState("p", "quarantined", "1=compensated")
}

// TestAnOwnersWordOnAnOrphanLetsAnOpenPlanCommit: also by two operators.
func TestAnOwnersWordOnAnOrphanLetsAnOpenPlanCommit(t *testing.T) {
	s := newSchedule(t)
	s.play("open:second")
	s.must(s.agent("p", append(pair("1"), completed("1"))...))
	s.agent("p", by("w2", pair("2")...)...)
	s.play("resolve:2@ann")
	s.wantOrphans("2")
	s.play("resolve:2@bob")
	s.wantOrphans("")
	s.must(s.agent("p", planCommitted()))
	s.turn()
	s.wantState("p", "committed", "1=retired")
}

// TestAResumedPlanTakesTheNewWriter: what its first process registered it may still say
// the outcome of, and nothing else.
func TestAResumedPlanTakesTheNewWriter(t *testing.T) {
	s := writers(t)
	s.must(s.agent("p", by("w1", pair("2")...)...))
	s.state.Notices()
	s.must(s.agent("p", by("w2", resumed())...))
	if n := s.state.Notices(); len(n) != 1 || n[0].Writer != "w2" || n[0].State != ledger.StateOpen {
		t.Fatalf("notices %+v", n)
	}
	if got := s.agent("p", by("w2", resumed())...)[0]; got.Verdict != Repeated {
		t.Fatalf("resumed again: %+v", got)
	}
	s.must(s.agent("p", by("w2", pair("3")...)...))
	for _, got := range s.agent("p", by("w1", append(pair("4"), planCommitted(), planFailed())...)...) {
		if got.Verdict != Refused || !strings.HasPrefix(got.Reason, "writer: ") {
			t.Fatalf("a record of the old writer: %+v", got)
		}
	}
	s.must(s.agent("p", by("w1", failedForward("4"))...)) // it says that its forward was never called
	s.must(s.agent("p", by("w1", completed("2"))...))
	if got := s.agent("p", by("w1", completed("3"))...)[0]; got.Verdict != Refused {
		t.Fatalf("a completion of another's action: %+v", got)
	}
	s.wantOrphans(fmt.Sprintf("3@%d-0", len(s.log)))
	s.must(s.agent("p", by("w2", completed("3"), planFailed())...))
	s.turn()
	s.turn()
	s.wantState("p", "quarantined", "1=compensated 2=compensated 3=compensated")
	if got := s.agent("p", by("w3", resumed())...)[0]; got.Verdict != Refused {
		t.Fatalf("resumed after its end: %+v", got)
	}
}

// TestALateResumeDoesNotTakeThePlanBack: a copy of it, or one that was long on its way, comes after
// another process has resumed the plan. What it names is no longer whom it would follow.
func TestALateResumeDoesNotTakeThePlanBack(t *testing.T) {
	follows := func(sequence int) *pb.Record {
		r := resumed()
		r.GetPlanResumed().Follows = uint64(sequence)
		return r
	}
	s := writers(t)
	const first = 2 // the sequence of the opening
	s.must(s.agent("p", by("w2", follows(first))...))
	second := len(s.log)
	s.must(s.agent("p", by("w3", follows(second))...))
	third := len(s.log)
	late := func(writer string, sequence int) {
		t.Helper()
		got := s.agent("p", by(writer, follows(sequence))...)[0]
		if got.Verdict != Refused || !strings.HasPrefix(got.Reason, "plan_resumed.follows: ") {
			t.Fatalf("%s after %d: %+v", writer, sequence, got)
		}
	}
	late("w2", first)
	late("w4", first) // it never came before
	late("w4", second)
	s.must(s.agent("p", by("w3", pair("2")...)...))
	s.must(s.agent("p", by("w2", follows(third))...)) // it resumes the plan once more
	late("w3", second)
	s.must(s.agent("p", by("w2", pair("3")...)...))
	s.must(s.agent("p", by("w5", resumed())...)) // of an earlier version: it names none

	old := writers(t)
	old.must(old.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1",
			FoldVersion: ledger.FollowsSince - 1}}}))
	old.must(old.agent("p", by("w2", follows(99))...)) // under an earlier holder nothing is compared
}

// TestACompletionWithoutItsPlanIsKept: its pair and its opening were lost.
func TestACompletionWithoutItsPlanIsKept(t *testing.T) {
	s := newSchedule(t)
	s.agent("p", by("w1", completed("1"))...)
	s.wantOrphans("1")
	s.must(s.agent("p", by("w1", planFailed())...))
	s.turn()
	s.wantState("p", "quarantined", "")
}

// TestAnActThatIsTakenBackLetsItsPlanEnd: also one that has ended quarantined for it alone,
// and no other.
func TestAnActThatIsTakenBackLetsItsPlanEnd(t *testing.T) {
	for what, test := range map[string]struct{ words, before, after string }{
		"nothing else waits":  {"1+", "1=compensated", "compensated"},
		"an undo waits, too":  {"1+ 1=stop", "1=quarantined", "quarantined"},
		"nothing has crossed": {"1-", "1=skipped", "failed"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSchedule(t)
			s.play("open 1 " + test.words)
			s.agent("p", by("w2", pair("2")...)...)
			s.play("fail turn turn")
			s.wantState("p", "quarantined", test.before)
			s.must(s.agent("p", by("w2", failedForward("2"))...))
			s.wantOrphans("")
			ended := len(s.log)
			s.play("turn turn")
			s.wantState("p", test.after, test.before)
			if again := len(s.log) > ended; again != (test.after != "quarantined") {
				t.Errorf("it ends once more: %v", again)
			}
		})
	}
}

// TestManyOrphansAreKeptInBounds: the last place is for all that come after, and opens
// again for the next one.
func TestManyOrphansAreKeptInBounds(t *testing.T) {
	s := writers(t)
	for n := range OrphansMax + 10 {
		s.agent("p", by("w2", completed(fmt.Sprint("x", n)))...)
	}
	names := s.show("p").Orphans
	last := names[len(names)-1]
	if len(names) != OrphansMax || !strings.HasPrefix(last, "others@") {
		t.Fatalf("%d orphans, the last one %s", len(names), last)
	}
	for _, name := range names {
		s.play("resolve:" + name)
	}
	s.wantOrphans("")
	s.agent("p", by("w2", completed("y"))...)
	s.wantOrphans(last)
}

// TestAnActionCalledOthersAnswersForNoOther: neither its pair, nor what its process takes
// back, is about the acts that share the last place.
func TestAnActionCalledOthersAnswersForNoOther(t *testing.T) {
	for what, records := range map[string][]*pb.Record{
		"its pair":                 pair("others"),
		"its pair, and completion": append(pair("others"), completed("others")),
		"that it failed":           {failedForward("others")},
		"that it completed":        {completed("others")},
	} {
		s := newSchedule(t)
		s.must(s.agent("p", opened(0)))
		for n := range OrphansMax + 10 {
			s.agent("p", by("w2", completed(fmt.Sprint("x", n)))...)
		}
		before := s.show("p").Orphans
		s.agent("p", records...)
		if after := s.show("p").Orphans; !slices.Equal(after, before) {
			t.Errorf("%s: %q, and then %q", what, before, after)
		}
		for _, name := range before {
			s.play("resolve:" + name)
		}
		s.wantOrphans("")
	}
}

// token is what a plan takes child plans of other agents by.
var token = []byte("between ann and bob")

// TestTheTokenOfAPlanEndsWhenItIsHandedOver: from then on only the agent that has the plan opens child
// plans in it, also where it had it before. Those that are there stay, and earlier holders go on
// taking the token.
func TestTheTokenOfAPlanEndsWhenItIsHandedOver(t *testing.T) {
	for play, state := range map[string]string{
		"open:token a a+ as:bob q/open:token^":                    "open",
		"open:token a a+ adopt:bob q/open:token^":                 "failed",
		"open:token a a+ adopt:bob q/open^":                       "failed",
		"open:token a a+ adopt:bob as:eve q/open:token^":          "failed",
		"open:token a a+ adopt:bob as:bob q/open^":                "open",
		"open:token a a+ adopt:bob as:bob resume q/open:token^":   "open",
		"open:token a a+ adopt:bob adopt:a1 as:eve q/open:token^": "failed",
		"open:token a a+ adopt:bob adopt:a1 as:bob q/open:token^": "failed",
		"open:token a a+ adopt:bob adopt:a1 q/open^":              "open",
		"open:token a a+ as:eve q/open:token^ adopt:bob":          "open",
		"open:token a a+ q/open:token^ adopt:bob":                 "open",
	} {
		for _, rules := range []uint32{FoldVersion, ledger.AttachEndsSince - 1} {
			s := newSchedule(t)
			s.underHolder(rules)
			s.play(play + " turn")
			shown := s.show("q")
			want := state
			if rules < ledger.AttachEndsSince && strings.Contains(play, ":token^") {
				want = "open" // the token is as good as ever
			}
			if shown.State != want {
				t.Errorf("%s, under fold %d: the child is %s: %s", play, rules, shown.State, shown.Reason)
			}
			if rules == FoldVersion && want == "failed" {
				agent := s.show("p").Agent
				if !strings.Contains(shown.Reason, "its parent plan p is agent "+agent+"'s since it was handed over") ||
					!strings.Contains(shown.Reason, "agent "+agent+" opens child plans in it") {
					t.Errorf("%s: %s", play, shown.Reason)
				}
			}
			s.wantRefolded()
		}
	}
	s := newSchedule(t)
	s.play("open:token a a+ adopt:bob q/open:token^ as:bob resume commit turn")
	s.wantState("p", ledger.StateCommitted, "a=retired")
	s = newSchedule(t)
	s.play("open q/open:token^ q/adopt:bob as:eve r/open:token^q. turn")
	s.wantState("r", ledger.StateFailed, "")
}

// TestAChildNeedsItsParentsAgentOrToken: nobody else blocks a plan's commit with it.
func TestAChildNeedsItsParentsAgentOrToken(t *testing.T) {
	digest := sha256.Sum256(token)
	for what, test := range map[string]struct {
		agent  string
		digest []byte
		token  []byte
		joins  bool
	}{
		"of the parent's agent":             {agent: "a1", joins: true},
		"of another":                        {agent: "a2"},
		"of another, with a token":          {agent: "a2", digest: digest[:], token: token, joins: true},
		"of another, with a wrong one":      {agent: "a2", digest: digest[:], token: []byte("guessed")},
		"of another, with none":             {agent: "a2", digest: digest[:]},
		"of another, with one for no plan":  {agent: "a2", token: token},
		"of another, with the digest":       {agent: "a2", digest: digest[:], token: digest[:]},
		"of the parent's agent, with token": {agent: "a1", digest: digest[:], joins: true},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSchedule(t)
			parent := opened(0)
			parent.GetPlanOpened().AttachDigest = test.digest
			s.must(s.agent("p", append([]*pb.Record{parent}, pair("a")...)...))
			s.must(s.agent("p", completed("a")))
			child := opened(0)
			child.Plan = "c"
			child.GetPlanOpened().ParentPlan, child.GetPlanOpened().ParentToken = "p", test.token
			s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: test.agent, Plan: "c"}, child))
			s.turn()
			if got := s.agent("p", planCommitted())[0]; (got.Verdict == Effective) == test.joins {
				t.Fatalf("the parent's commit: %+v", got)
			}
			if shown := s.show("c"); !test.joins &&
				(shown.State != "failed" || !strings.Contains(shown.Reason, "without its token")) {
				t.Fatalf("the child is %s: %s", shown.State, shown.Reason)
			}
		})
	}
}

// TestThatAForwardFailedIsTheWordOfThePlansProcess: the one that has resumed the plan may have
// called the forward once more, so that a failure of the one before says nothing of that call. A
// completion and a doubt of it count as ever.
func TestThatAForwardFailedIsTheWordOfThePlansProcess(t *testing.T) {
	s := writers(t)
	s.must(s.agent("p", by("w1", append(pair("2"), pair("3")...)...)...))
	s.must(s.agent("p", by("w2", resumed())...))
	if got := s.agent("p", by("w1", failedForward("2"))...)[0]; got.Verdict != Refused {
		t.Fatalf("a failure of the process before: %+v", got)
	}
	s.wantOrphans("") // it claims no act
	s.must(s.agent("p", by("w2", inDoubt("2"))...))
	s.must(s.agent("p", by("w1", inDoubt("3"))...))
	s.must(s.agent("p", by("w2", planFailed())...))
	s.play("turn turn")
	s.wantState("p", ledger.StateCompensated, "1=compensated 2=compensated 3=compensated")
}

// TestWhatIsNotThereMayBeCalledOnceMore while its plan is open: by a process that resumes the plan,
// or by the same one, of which no record says so. So the world is asked again when the plan ends.
func TestWhatIsNotThereMayBeCalledOnceMore(t *testing.T) {
	doubted := func(t *testing.T, timeout time.Duration) *schedule {
		s := newSchedule(t)
		s.must(s.agent("p", by("w1", append([]*pb.Record{opened(0)}, pair("b", func(f *pb.ForwardRegistered,
			c *pb.CompensationRegistered) {
			f.TimeoutNs = timeout.Nanoseconds()
			c.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.b", Attempts: 2}}
			c.Bindings = append(c.Bindings, &pb.Binding{Name: "ref", Expression: "meta.?external_ref"})
		})...)...)...))
		return s
	}
	for name, then := range map[string]func(*schedule) (writer string){
		"after the answer": func(s *schedule) string {
			s.must(s.agent("p", by("w1", inDoubt("b"))...))
			s.play("b.probe=absent turn @1m")
			s.must(s.agent("p", by("w2", resumed())...))
			return "w2"
		},
		"before the answer": func(s *schedule) string {
			s.must(s.agent("p", by("w1", inDoubt("b"))...))
			s.play("b.probe=late turn @1m")
			s.must(s.agent("p", by("w2", resumed())...))
			s.play("settle:b=absent turn")
			return "w2"
		},
		"before the question": func(s *schedule) string {
			s.must(s.agent("p", by("w1", inDoubt("b"))...))
			s.must(s.agent("p", by("w2", resumed())...))
			s.play("b.probe=absent turn @1m turn")
			s.agent("p", by("w2", inDoubt("b"))...)
			return "w2"
		},
		"by the same process": func(s *schedule) string {
			s.play("b.probe=absent turn @10m turn")
			return "w1"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := doubted(t, 5*time.Second)
			writer := then(s)
			if got := s.show("p").Actions[0].Presence; got != "" {
				t.Fatalf("it is %q, for good", got)
			}
			s.play("b.probe=present turn @20m turn")
			s.must(s.agent("p", by(writer, planFailed())...))
			s.play("turn @20m turn")
			s.wantState("p", ledger.StateCompensated, "b=compensated")
		})
	}
}

// TestExtraEffectsOfACommitWaitForNoLease: what a commit has found more than once is its owner's,
// and a firing that no holder writes changes nothing.
func TestExtraEffectsOfACommitWaitForNoLease(t *testing.T) {
	s := newSchedule(t)
	s.play("open b:probe b? b.probe=duplicate commit turn turn")
	got := s.append(holder, &pb.Record{Plan: "p", Action: "b", About: s.actionOf("p", "b").Fixed.Registered,
		Term: s.state.Meta().Term, EpochNs: s.now, Kind: &pb.Record_LeaseFired{
			LeaseFired: &pb.LeaseFired{Lease: "action.duplicate", Depth: 1, Condition: "x"}}})
	if got[0].Verdict != Void {
		t.Fatalf("%+v", got)
	}
}

func TestTheStoryOfAnAdoptedPlan(t *testing.T) {
	runScript(t, filepath.Join("testdata", "acceptance", "adopted.txt"), nil)
}

// TestAnAdoptedPlanIsItsNewAgents: both agents are told, it is listed as the other one's, conditions
// and arguments read the first one, and what undoes it after its commit takes late words of both.
func TestAnAdoptedPlanIsItsNewAgents(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:for=1h b:for=1h adopt:bob")
	told := map[string]string{}
	for _, n := range s.state.Notices() {
		told[n.Agent] = n.HandedTo + " by " + n.By + ": " + n.Reason
	}
	if want := "bob by ops: its agent is gone"; len(told) != 2 || told["a1"] != want || told["bob"] != want {
		t.Errorf("told %v", told)
	}
	reader := view.NewReader(s.kv, "t", s)
	for agent, want := range map[string]int{"a1": 0, "bob": 1} {
		if found, err := reader.Find(api.FindQuery{Agent: agent}); err != nil || len(found.Plans) != want {
			t.Errorf("%d plans of agent %s, %v", len(found.Plans), agent, err)
		}
	}
	shown := s.show("p")
	if len(shown.Adopted) != 1 || shown.Adopted[0].From != "a1" || shown.Adopted[0].By != "ops" || !shown.Awaited ||
		shown.NoWriter || shown.Agent != "bob" {
		t.Errorf("%+v", shown)
	}
	if w := reader.Writer("p"); w != "bob/" || reader.WriterAt("p") != 5 {
		t.Errorf("its writer is %q since %d", w, reader.WriterAt("p"))
	}
	s.play("as:bob resume c:for=1h c+ as: a+ b+ as:bob commit turn")
	r := view.NewReader(s.kv, "t", s)
	if agent, last := r.HandedTo("p"); r.Writer("p") != "of-bob" || agent != "bob" || last.From != "a1" ||
		last.By != "ops" {
		t.Errorf("its writer is %q of %q, by %+v", r.Writer("p"), agent, last)
	}
	for agent, want := range map[string]bool{"a1": true, "bob": true, "eve": false} {
		if got := r.History(agent, api.HistoryQuery{Plan: "p"}); got.Agent != "bob" || (got.Handed != nil) != want ||
			(got.State != "") != (agent == "bob") {
			t.Errorf("agent %s is told %+v", agent, got)
		}
	}
	s.play("undo turn turn turn")
	s.wantState("p~1", ledger.StateCompensated, "a=compensated b=compensated c=compensated")
	s.wantRefolded()
}

// TestWhichPlansAreNotHandedOver: what ends, or has, is no one's to go on with; nor a part of that.
func TestWhichPlansAreNotHandedOver(t *testing.T) {
	for play, why := range map[string]string{
		"open a a+ fail":                   "is failed, and is not handed",
		"open a a+ commit turn":            "is committed, and is not handed",
		"open a a+ undo turn turn":         "is compensated, and is not handed",
		"open adopt:bob adopt:a1":          "",
		"open adopt:bob as:bob resume as:": "plan_adopted.agent: plan p is agent bob's",
	} {
		s := newSchedule(t)
		s.play(play)
		got := s.adopt("bob")
		if why == "" != (got[0].Verdict == Effective) || !strings.Contains(got[0].Reason, why) {
			t.Errorf("%s: %+v, want %q", play, got, why)
		}
		s.wantRefolded()
	}
	s := newSchedule(t)
	s.play("open a a+ q/open^ q/b q/b+ fail turn")
	if s.plan = "q"; s.adopt("bob")[0].Verdict != Refused {
		t.Error("a part of a plan that unwinds is handed over")
	}
	old := newSchedule(t)
	old.underHolder(ledger.AdoptedSince - 1)
	old.play("open")
	if got := old.adopt("bob")[0]; got.Verdict != Refused || !strings.Contains(got.Reason, "does not know of it") {
		t.Errorf("under an earlier holder: %+v", got)
	}
}

// TestNoProcessWritesAPlanThatWasHandedOverBeforeItResumesIt, nor one without a name; and a copy of
// the adoption changes nothing of what undoes the plan.
func TestNoProcessWritesAPlanThatWasHandedOverBeforeItResumesIt(t *testing.T) {
	for _, play := range []string{
		"open a a+ adopt:bob adopt:a1 !c !commit !fail",
		"open a a+ b adopt:bob adopt:a1 b+ !c",
		"open a:for=1h a+ adopt:bob#2 as:bob resume commit turn undo =p~1/adopt:bob#2 turn",
	} {
		s := newSchedule(t)
		s.play(play)
		s.wantRefolded()
	}
	s := newSchedule(t)
	s.play("open a a+ adopt:bob")
	unnamed := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "bob", Plan: "p"}
	for _, r := range []*pb.Record{planCommitted(), planFailed()} {
		r.Plan = "p"
		if got := s.append(unnamed, r); got[0].Verdict != Refused ||
			!strings.Contains(got[0].Reason, "a process of it resumes the plan first") {
			t.Errorf("%+v", got)
		}
	}
}

// TestADoubtOfALaterProcessIsBelievedAfterAFailure: it may have called the tool again. The process
// that has recorded the failure, and one before it, have said all that they know.
func TestADoubtOfALaterProcessIsBelievedAfterAFailure(t *testing.T) {
	for line, want := range map[string]string{
		"b- resume b? b.probe=present fail":                  "compensated: a=compensated b=compensated [b a]",
		"b- resume b? b.probe=absent fail":                   "compensated: a=compensated b=skipped [a]",
		"b- resume b? b.probe=absent b- fail":                "compensated: a=compensated b=skipped [a]",
		"b- resume b? b.probe=present commit":                "committed: a=retired b=retired []",
		"b- resume b? b+ fail":                               "compensated: a=compensated b=compensated [b a]",
		"b- adopt:bob as:bob resume b? b.probe=present fail": "compensated: a=compensated b=compensated [b a]",
		"b- !b? fail":                               "compensated: a=compensated b=skipped [a]",
		"b? b- !b? fail":                            "compensated: a=compensated b=skipped [a]",
		"b- resume as: !b? as:a1 fail":              "compensated: a=compensated b=skipped [a]",
		"b? b- resume as: !b? as:a1 fail":           "compensated: a=compensated b=skipped [a]",
		"resume b- !b? fail":                        "compensated: a=compensated b=skipped [a]",
		"b- adopt:bob as:bob resume b? b- !b? fail": "compensated: a=compensated b=skipped [a]",
	} {
		t.Run(line, func(t *testing.T) {
			playOne(t, "open a a+ b:probe "+line+" turn @1m turn @2m turn", want, func(s *schedule) func() string {
				return func() string {
					for _, v := range s.audit.End() {
						t.Error(v)
					}
					return s.outcome()
				}
			})
		})
	}
}

// TestNoEarlierHolderBelievesADoubtAfterAFailure: what it has refused stays so.
func TestNoEarlierHolderBelievesADoubtAfterAFailure(t *testing.T) {
	s := newSchedule(t)
	s.underHolder(ledger.DoubtedSince - 1)
	s.play("open a a+ b:probe b- resume !b? b.probe=present fail turn")
	s.wantState("p", ledger.StateCompensated, "a=compensated b=skipped")
	s.wantRefolded()
}

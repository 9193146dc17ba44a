package executor_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// newRun is a schedule in which undos are dispatched ahead.
func newRun(t *testing.T) *schedule {
	s := newSchedule(t)
	s.ahead = 15
	return s
}

// attempts are the attempts of plan p, in the order of its actions: "a#1 done".
func (w *world) attempts() string {
	var out []string
	undos, _, err := view.NewReaderWith(w.kv, "t", w, w.programs).Undos(api.UndoQuery{Plan: "p", Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, u := range undos {
		out = append(out, fmt.Sprintf("%s#%d %s", u.Action, u.Attempt, u.State))
	}
	return strings.Join(out, ", ")
}

// TestARunTakesTwoCommits: the dispatches of an unwind are one commit, and its successes
// another.
func TestARunTakesTwoCommits(t *testing.T) {
	s := newRun(t)
	s.play("open a a+ b b+ c c+ d d+ e e- fail")
	before := len(s.log)
	s.play("turn")
	want := "compensated: a=compensated b=compensated c=compensated d=compensated e=skipped [d c b a]"
	if got := s.outcome(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if commits := len(s.log) - before; commits != 2 {
		t.Errorf("%d commits, want 2", commits)
	}
	var behind []string
	for _, r := range s.effective() {
		if k := r.GetCompensationDispatched(); k != nil {
			behind = append(behind, fmt.Sprintf("%s %v", r.Action, k.Behind != nil))
		}
	}
	if got := strings.Join(behind, ", "); got != "d false, c true, b true, a true" {
		t.Errorf("dispatches behind another one: %s", got)
	}
	s.wantRefolded()
}

// runCase is a schedule in which undos go ahead, and what comes of it.
type runCase struct{ line, outcome, attempts string }

func playRuns(t *testing.T, cases []runCase) {
	t.Helper()
	for _, c := range cases {
		s := newRun(t)
		s.play(c.line)
		if got := s.outcome(); got != c.outcome {
			t.Errorf("%s\n\tis   %s\n\twant %s", c.line, got, c.outcome)
		}
		if got := s.attempts(); got != c.attempts {
			t.Errorf("%s\n\tis   %s\n\twant %s", c.line, got, c.attempts)
		}
		s.wantRefolded()
	}
}

// TestWhatARunComesTo: whatever ends the undo before, or joins it, calls back what is behind.
func TestWhatARunComesTo(t *testing.T) {
	playRuns(t, []runCase{
		// All goes well.
		{"open a a+ b b+ c c+ fail turn",
			"compensated: a=compensated b=compensated c=compensated [c b a]", "a#1 done, b#1 done, c#1 done"},
		// The first of a run, or a later one, fails for now and for good.
		{"open a a+ b b+ c c+ c=fail,done fail turn @2s",
			"compensated: a=compensated b=compensated c=compensated [c b a]",
			"a#1 recalled, a#2 done, b#1 recalled, b#2 done, c#1 failed, c#2 done"},
		{"open a a+ b b+ c c+ b=fail,done fail turn @2s",
			"compensated: a=compensated b=compensated c=compensated [c b a]",
			"a#1 recalled, a#2 done, b#1 failed, b#2 done, c#1 done"},
		{"open a a+ b b+ c c+ b=stop fail turn",
			"quarantined: a=owed b=quarantined c=compensated [c]", "a#1 recalled, b#1 failed, c#1 done"},
		{"open:continue a a+ b b+ c c+ b=stop fail turn",
			"quarantined: a=compensated b=quarantined c=compensated [c a]",
			"a#1 recalled, a#2 done, b#1 failed, c#1 done"},
		{"open a a+ b b+ b=lost,done fail turn @1m",
			"compensated: a=compensated b=compensated [b a]", "a#1 recalled, a#2 done, b#1 in_doubt, b#2 done"},
		// An attempt that was called back is none of those that the contract allows.
		{"open a a+ b b+ b=fail,done a=fail,done fail turn @2s @5s",
			"compensated: a=compensated b=compensated [b a]",
			"a#1 recalled, a#2 failed, a#3 done, b#1 failed, b#2 done"},
		// A long undo, of which its worker reports.
		{"open a a+ b b+ c c+ c=late fail turn tell:c#1=done turn",
			"compensated: a=compensated b=compensated c=compensated [b a]",
			"a#1 done, b#1 done, c#1 done"},
	})
}

// TestWhatOthersSayOfARun: workers, owners and agents who say something while a run is out.
func TestWhatOthersSayOfARun(t *testing.T) {
	playRuns(t, []runCase{
		// The worker of one that was sent ahead reports before the success of the one before counts.
		{"open a a+ b b+ c c+ c=late fail turn tell:b#1=done turn tell:c#1=done turn",
			"compensated: a=compensated b=compensated c=compensated [a]",
			"a#1 recalled, a#2 done, b#1 done, c#1 done"},
		{"open a a+ b b+ c c+ c=late fail turn tell:b#1=done !resolve:b tell:c#1=stop turn",
			"quarantined: a=owed b=compensated c=quarantined []",
			"a#1 recalled, b#1 done, c#1 failed"},
		{"open a a+ b b+ b=late fail turn !tell:a#1=fail tell:b#1=done turn",
			"compensated: a=compensated b=compensated [a]", "a#1 done, b#1 done"},
		// Owners answer for what is out, and for what is ahead.
		{"open a a+ b b+ c c+ c=late fail turn resolve:c turn",
			"resolved: a=compensated b=compensated c=resolved [b a]",
			"a#1 recalled, a#2 done, b#1 recalled, b#2 done, c#1 in_doubt"},
		{"open a a+ b b+ c c+ c=late fail turn halt:c turn",
			"resolved: a=owed b=owed c=resolved []", "a#1 recalled, b#1 recalled, c#1 in_doubt"},
		{"open a a+ b b+ c c+ c=late fail turn resolve:b turn tell:c#1=done turn",
			"resolved: a=compensated b=resolved c=compensated [a]",
			"a#1 recalled, a#2 done, b#1 recalled, c#1 done"},
		{"open a a+ b b+ c c+ c=late,done fail turn force:c @1m",
			"compensated: a=compensated b=compensated c=compensated [c b a]",
			"a#1 recalled, a#2 done, b#1 recalled, b#2 done, c#1 in_doubt, c#2 done"},
		// What was called back may have been done all the same.
		{"open a a+ b b+ b=late fail turn resolve:a reply:a#1 tell:b#1=done turn",
			"quarantined: a=resolved b=compensated a~1=quarantined []", "a#1 done, b#1 done"},
		// A pair that comes late: after what is out, after what is ahead, beside all.
		{"open a a+ b b+ c c+ c=late fail turn d d+ turn tell:c#1=done turn",
			"compensated: a=compensated b=compensated c=compensated d=compensated [d b a]",
			"a#1 recalled, a#2 done, b#1 recalled, b#2 done, c#1 done, d#1 done"},
		{"open a a+ b b+ c c+ c=late fail turn d<b d+ turn tell:c#1=done turn",
			"compensated: a=compensated b=compensated c=compensated d=compensated [d b a]",
			"a#1 recalled, a#2 done, b#1 recalled, b#2 done, c#1 done, d#1 done"},
		{"open a a+ b b+ c c+ c=late fail turn d<a d+ turn tell:c#1=done turn",
			"compensated: a=compensated b=compensated c=compensated d=compensated [d b a]",
			"a#1 recalled, a#2 done, b#1 done, c#1 done, d#1 done"},
		{"open a a+ b b+ c c+ c=late fail turn d< d+ turn tell:c#1=done turn",
			"compensated: a=compensated b=compensated c=compensated d=compensated [d b a]",
			"a#1 done, b#1 done, c#1 done, d#1 done"},
		// An undo window that closes while the one before is out.
		{"open a:for=10s a+ b b+ b=late fail turn @20s tell:b#1=done turn",
			"quarantined: a=quarantined b=compensated []", "a#1 recalled, b#1 done"},
	})
}

// TestWhatDoesNotGoAhead: a question, an owner, a second thing that is missing, or the end of
// a window keeps a dispatch for its turn.
func TestWhatDoesNotGoAhead(t *testing.T) {
	for _, line := range []string{
		"open a:probe a+ b b+ fail", "open a:verify a+ b b+ fail", "open a:dedupe a+ b b+ fail",
		"open a a+ b:probe b+ fail", "open a a+ b:verify b+ fail", "open a:sealed a+ b b+ fail",
		"open a:approve a+ b b+ fail", "open a:pivot a+ b b+ fail", "open a:irr a+ b b+ fail", "open a:eff a+ b b+ fail",
		"open a a? b b+ fail", "open a a+ b b? fail", "open a a- b b+ fail",
		"open a:for=900ms a+ b b+ fail",
		"open a a+ b<a b+ c<a c+ fail",             // two come after it
		"open a a+ b< b+ c<a,b c+ fail",            // it came after two
		"open save:s a a+ b b+ back:s",             // the plan goes on
		"open q/open^ q/a q/a+ q/commit a a+ fail", // a child plan is before it
	} {
		s := newRun(t)
		s.play(line)
		records := s.decide(nil)
		for _, r := range records {
			if r.GetCompensationDispatched().GetBehind() != nil {
				t.Errorf("%s: action %s goes ahead", line, r.Action)
			}
		}
	}
}

// TestARunIsNoLongerThanItMay: a limit, and the room of a commit.
func TestARunIsNoLongerThanItMay(t *testing.T) {
	s := newRun(t)
	s.ahead = 2
	s.play("open a a+ b b+ c c+ d d+ e e+ fail turn")
	if got, want := s.outcome(), "compensated: a=compensated b=compensated c=compensated d=compensated e=compensated "+
		"[e d c b a]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var runs []string
	for _, r := range s.effective() {
		if k := r.GetCompensationDispatched(); k != nil {
			runs = append(runs, map[bool]string{true: "<"}[k.Behind != nil]+r.Action)
		}
	}
	if got := strings.Join(runs, " "); got != "e <d <c b <a" {
		t.Errorf("dispatched: %s", got)
	}
	s = newRun(t)
	s.play("open a a+ b b+ c c+ fail")
	in := Input{EpochNs: s.now, SizeMax: 1300, Ahead: 15}
	var ahead int
	for _, r := range s.state.Decide(in) {
		if r.GetCompensationDispatched().GetBehind() != nil {
			ahead++
		}
	}
	if ahead > 1 {
		t.Errorf("%d dispatches ahead in a commit of %d bytes", ahead, in.SizeMax)
	}
}

// TestTheNextTermSendsARunInTurn: what an earlier term has recorded ahead is sent when it counts,
// as what may have been sent before.
func TestTheNextTermSendsARunInTurn(t *testing.T) {
	s := newRun(t)
	s.play("open a a+ b b+ c c+ fail")
	s.must(s.append(holder, s.decide(nil)...))
	s.state.Commands()
	s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: FoldVersion}}}))
	flying := s.state.InFlight()
	if len(flying) != 1 || flying[0].Action != "c" || !flying[0].Earlier {
		t.Fatalf("a new holder sends %+v", flying)
	}
	for _, next := range []string{"b", "a"} {
		answer := s.work(flying[0])
		s.must(s.append(holder, s.decide([]Answer{*answer})...))
		if flying = s.state.Commands(); len(flying) != 1 || flying[0].Action != next || !flying[0].Earlier ||
			flying[0].Behind != "" || flying[0].Attempt != 1 {
			t.Fatalf("after %s it sends %+v", answer.Plan, flying)
		}
	}
	answer := s.work(flying[0])
	s.turn(*answer)
	if got, want := s.outcome(), "compensated: a=compensated b=compensated c=compensated [c b a]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestADispatchAheadIsSeen: people see what was recorded ahead, and what it waits for.
func TestADispatchAheadIsSeen(t *testing.T) {
	s := newRun(t)
	s.play("open a a+ b b+ c c+ c=late fail turn")
	if got, want := s.outcome(), "unwinding: a=ahead b=ahead c=dispatched []"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if a := s.show("p").Actions[1]; a.WaitsFor != "the undo of action c, to be sent behind it" || a.Attempt != 0 {
		t.Errorf("it waits for %q, attempt %d", a.WaitsFor, a.Attempt)
	}
	if got, want := s.attempts(), "a#1 ahead, b#1 ahead, c#1 dispatched"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestAPreviewShowsWhatIsAhead: the rest of an unwind is played, what was recorded ahead too.
func TestAPreviewShowsWhatIsAhead(t *testing.T) {
	s := newRun(t)
	s.play("open a a+ b b+ c c+ c=late fail turn")
	var shown []string
	end, refused := NewReading(s.kv, "t", s, s.programs).Rehearse("p", "", "", s.now, func(r Rehearsed) {
		if r.Record.GetCompensationDispatched() != nil {
			shown = append(shown, r.Record.Action)
		}
	})
	if refused != "" || end.State() != ledger.StateCompensated || strings.Join(shown, " ") != "b a" {
		t.Errorf("it ends %s and dispatches %v: %s", end.State(), shown, refused)
	}
}

// TestAForgedDispatchAheadIsVoid: it names a dispatch of the one action that is to be undone
// first, and only while nothing else is missing.
func TestAForgedDispatchAheadIsVoid(t *testing.T) {
	for what, forge := range map[string]func(r *pb.Record){
		"another place":            func(r *pb.Record) { r.GetCompensationDispatched().Behind.Index++ },
		"no dispatch":              func(r *pb.Record) { r.GetCompensationDispatched().Behind = r.About },
		"a second attempt":         func(r *pb.Record) { r.GetCompensationDispatched().Attempt = 2 },
		"another key":              func(r *pb.Record) { r.GetCompensationDispatched().Key = "k" },
		"another capability":       func(r *pb.Record) { r.GetCompensationDispatched().Capability = "x" },
		"blind":                    func(r *pb.Record) { r.GetCompensationDispatched().BlindCleanup = true },
		"after a dirty failure":    func(r *pb.Record) { r.GetCompensationDispatched().DirtyFailure = true },
		"no turn, and none before": func(r *pb.Record) { r.GetCompensationDispatched().Behind = nil },
		"twice":                    func(r *pb.Record) {},
	} {
		s := newRun(t)
		s.ahead = 1
		s.play("open a a+ b b+ c c+ fail")
		records := s.decide(nil)
		last := records[len(records)-1]
		if last.GetCompensationDispatched().GetBehind() == nil || last.Action != "b" {
			t.Fatalf("%v", last)
		}
		if what != "twice" {
			records = records[:len(records)-1]
		}
		s.must(s.append(holder, records...))
		at := s.actionOf("p", "c").Row.Dispatched
		last.Folded, last.GetCompensationDispatched().Behind = s.state.Meta().Applied.Sequence, proto.CloneOf(at)
		forge(last)
		if r := s.append(holder, last)[0]; r.Verdict != Void || r.Reason == "" {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

// TestAReportThatCameFirstIsNotSkipped: a decision to skip an undo, or to give it to its owner,
// is void where its worker has said meanwhile that it is done.
func TestAReportThatCameFirstIsNotSkipped(t *testing.T) {
	for _, c := range []struct{ line, outcome string }{
		{"open a a? a=late b=late fail @1m turn a- b b+ turn tell:a#1=fail turn tell:b#1=done",
			"compensated: a=compensated b=compensated []"},
		{"open a:until=90s a+ b b+ b=late fail turn tell:b#1=fail turn @3s tell:b#2=done @2m",
			"compensated: a=compensated b=compensated []"},
	} {
		s := newRun(t)
		words := strings.Fields(c.line)
		for i, word := range words {
			if i < len(words)-1 || word[0] != '@' {
				s.play(word)
			}
		}
		if strings.HasSuffix(c.line, "@2m") {
			s.now = epoch0 + 120*second
		}
		late := s.decide(nil)
		s.play("tell:a#1=done")
		for i, r := range s.append(holder, late...) {
			if a := late[i].Action; a == "a" && r.Verdict != Void {
				t.Errorf("%s: %v is %+v", c.line, late[i], r)
			}
		}
		s.turn()
		if got := s.outcome(); got != c.outcome {
			t.Errorf("%s\n\tis   %s\n\twant %s", c.line, got, c.outcome)
		}
		s.wantRefolded()
	}
}

// TestNothingGoesAheadOfAnOwnersLook: what may have been undone twice, under two keys, is looked at
// before what came before it is undone. Under an earlier holder that counted.
func TestNothingGoesAheadOfAnOwnersLook(t *testing.T) {
	const late = " b=compensated b~1=quarantined "
	for fold, want := range map[uint32]string{
		FoldVersion:                "a=owed" + late + "[]; a#1 recalled, b#1 done, b#2 dispatched",
		ledger.OwnerFirstSince - 1: "a=compensated" + late + "[a]; a#1 done, b#1 done, b#2 dispatched",
	} {
		s := newSchedule(t)
		s.deciding = true
		s.underHolder(fold)
		s.play("open a a+ b b+ b=late fail turn")
		s.ahead = 15
		s.play("newkey!:b turn tell:b#1=done turn")
		if got := s.outcome() + "; " + s.attempts(); got != "quarantined: "+want {
			t.Errorf("fold %d: %s, want %s", fold, got, want)
		}
		s.wantRefolded()
	}
}

package executor_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

var secretOfTests = []byte("of a host's process")

// dispatchedWith has the holder undo action a of plan p, with the secret of its process.
func (s *schedule) dispatchedWith(secret []byte) Command {
	s.t.Helper()
	for range 3 {
		records := s.state.Decide(Input{EpochNs: s.now, SizeMax: 60 << 10, Reporter: ledger.NewReporter(secret)})
		if len(records) == 0 {
			break
		}
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
	}
	commands := s.state.Commands()
	if len(commands) != 1 || commands[0].Action != "a" {
		s.t.Fatalf("commands %+v", commands)
	}
	return commands[0]
}

// says is a record of a worker about an attempt of the undo of action a.
func (s *schedule) says(worker, token string, attempt uint32, answer pb.Answer) Result {
	s.t.Helper()
	return s.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: worker},
		&pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_CompensationReported{
			CompensationReported: &pb.CompensationReported{Attempt: attempt, Key: undoKey("a"), Answer: answer,
				Token: token}}})[0]
}

// TestAWorkersRecordIsAboutACommandThatItWasGiven: whoever knows plan, action and key, which is
// made of them, can say nothing of an undo that another worker was sent. The ledger has a digest of
// the token; what a record has shown is from then on the word of that worker alone.
func TestAWorkersRecordIsAboutACommandThatItWasGiven(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0)))
	s.do("p", "a")
	s.must(s.agent("p", planFailed()))
	c := s.dispatchedWith(secretOfTests)
	token := ledger.NewReporter(secretOfTests).Token("t", "p", "a", c.Key, 1)
	if !bytes.Equal(c.ReportDigest, ledger.ReportDigest(token)) || c.ReportToken != "" {
		t.Fatalf("digest %x, token %q: the core has no token", c.ReportDigest, c.ReportToken)
	}
	for _, m := range s.log {
		if bytes.Contains(m.Data, []byte(token)) {
			t.Fatal("the ledger has the token before it was used")
		}
	}
	const wanted = "compensation_reported.token: "
	for name, guess := range map[string]string{
		"none": "", "another": strings.Repeat("0", len(token)),
		"of another secret":  ledger.NewReporter([]byte("x")).Token("t", "p", "a", c.Key, 1),
		"of another attempt": ledger.NewReporter(secretOfTests).Token("t", "p", "a", c.Key, 2),
		"of another action":  ledger.NewReporter(secretOfTests).Token("t", "p", "b", c.Key, 1),
	} {
		if got := s.says("w2", guess, 1, pb.Answer_ANSWER_DONE); got.Verdict != Refused ||
			!strings.HasPrefix(got.Reason, wanted) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w2"},
		&pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_CompensationProgressed{
			CompensationProgressed: &pb.CompensationProgressed{Attempt: 1, Key: c.Key, UntilNs: s.now + 3600*second}}}))
	if until := s.actionOf("p", "a").Row.AliveUntilNs; until != 0 {
		t.Errorf("another worker has said that the attempt goes on until %d", until)
	}
	if got := s.says("w1", token, 1, pb.Answer_ANSWER_FAILED); got.Verdict != Effective {
		t.Fatalf("the worker that was given it: %+v", got)
	}
	if got := s.says("w2", token, 1, pb.Answer_ANSWER_DONE); got.Verdict != Refused ||
		!strings.Contains(got.Reason, "worker w1 has shown") {
		t.Errorf("a worker that has read the token: %+v", got)
	}
	s.wantState("p", "unwinding", "a=dispatched")
	if got := s.says("w1", token, 1, pb.Answer_ANSWER_DONE); got.Verdict != Effective {
		t.Fatalf("the worker that was given it, once more: %+v", got)
	}
	s.turn()
	s.wantState("p", "compensated", "a=compensated")
}

// TestATokenThatARefusedRecordHasShownIsItsWorkers: readers of the ledger have it, too.
func TestATokenThatARefusedRecordHasShownIsItsWorkers(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0)))
	s.do("p", "a")
	s.must(s.agent("p", planFailed()))
	c := s.dispatchedWith(secretOfTests)
	token := ledger.NewReporter(secretOfTests).Token("t", "p", "a", c.Key, 1)
	if got := s.held(time.Minute, &pb.Record{Kind: &pb.Record_CompensationFailed{
		CompensationFailed: &pb.CompensationFailed{Attempt: 1, Code: "busy"}}}); got.Verdict != Effective {
		t.Fatalf("the attempt fails: %+v", got)
	}
	if got := s.says("w1", token, 1, pb.Answer_ANSWER_FAILED); got.Verdict != Refused {
		t.Fatalf("a failure of an attempt that has failed: %+v", got)
	}
	if got := s.says("w2", token, 1, pb.Answer_ANSWER_DONE); got.Verdict != Refused ||
		!strings.Contains(got.Reason, "worker w1 has shown") {
		t.Errorf("a worker that has read the token: %+v", got)
	}
	if got := s.says("w1", token, 1, pb.Answer_ANSWER_DONE); got.Verdict != Effective {
		t.Errorf("the worker that was given it: %+v", got)
	}
}

// TestADispatchWithoutADigestAsksForNoToken: one that an earlier host has recorded.
func TestADispatchWithoutADigestAsksForNoToken(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0)))
	s.do("p", "a")
	s.must(s.agent("p", planFailed()))
	if c := s.dispatchedWith(nil); len(c.ReportDigest) > 0 {
		t.Fatalf("digest %x", c.ReportDigest)
	}
	if got := s.says("w1", "", 1, pb.Answer_ANSWER_DONE); got.Verdict != Effective {
		t.Fatal(got)
	}
}

// TestTheHostThatHasRecordedACommandSendsItsToken: also again, and no other host does.
func TestTheHostThatHasRecordedACommandSendsItsToken(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0)))
	s.do("p", "a")
	s.must(s.agent("p", planFailed()))
	c := s.dispatchedWith(secretOfTests)
	token := ledger.NewReporter(secretOfTests).Token("t", "p", "a", c.Key, 1)
	for name, test := range map[string]struct {
		secret []byte
		want   string
	}{
		"its own": {secretOfTests, token}, "another host": {[]byte("x"), ""}, "an earlier host": {nil, ""},
	} {
		m := turn.New(turn.Config{Tenant: "t", Secret: test.secret}, s.state, 0)
		if got := m.WithToken(c).ReportToken; got != test.want {
			t.Errorf("%s sends %q, want %q", name, got, test.want)
		}
	}
}

// TestAReportCountsWithoutWhatCannotBeRead, under a holder whose fold knows of it: to one before
// it was refused as a whole, and is for ever.
func TestAReportCountsWithoutWhatCannotBeRead(t *testing.T) {
	for _, version := range []uint32{ledger.PartialSince - 1, ledger.PartialSince} {
		s := newSchedule(t)
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{Term: 2,
			Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: version}}}))
		s.must(s.agent("p", opened(0)))
		s.do("p", "a")
		s.must(s.agent("p", planFailed()))
		c := s.dispatchedWith(secretOfTests)
		token := ledger.NewReporter(secretOfTests).Token("t", "p", "a", c.Key, 1)
		got := s.raw("saga.t.worker.w1", ledger.ContentTypeJSON, fmt.Appendf(nil, `{"records":[{"plan":"p","action":"a",`+
			`"compensationReported":{"attempt":1.0,"key":%q,"token":%q,"answer":"ANSWER_DONE","externalRef":481516,`+
			`"code":404,"timing":{"workNs":4.1e6,"toolNs":"long"}}}]}`, c.Key, token))[0]
		if version < ledger.PartialSince {
			if got.Verdict != Refused || !strings.Contains(got.Reason, "externalRef: not a string") {
				t.Errorf("fold version %d: %+v", version, got)
			}
			continue
		}
		if got.Verdict != Effective {
			t.Fatalf("fold version %d: %+v", version, got)
		}
		s.turn()
		s.wantState("p", "compensated", "a=compensated")
		undos, _, err := view.NewReader(s.kv, "t", nil).Undos(api.UndoQuery{Plan: "p"})
		if err != nil || len(undos) != 1 || undos[0].WorkNs != 4_100_000 || undos[0].ToolNs != 0 {
			t.Errorf("attempts %+v, %v", undos, err)
		}
	}
}

// TestHowFarAnUndoIsIsShownOfTheAttemptInFlight: by its worker alone, until the next attempt.
func TestHowFarAnUndoIsIsShownOfTheAttemptInFlight(t *testing.T) {
	s := newSchedule(t)
	s.must(s.agent("p", opened(0)))
	s.do("p", "a")
	s.must(s.agent("p", planFailed()))
	c := s.dispatchedWith(secretOfTests)
	says := func(worker, token string, attempt uint32, note string) {
		s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: worker},
			&pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_CompensationProgressed{
				CompensationProgressed: &pb.CompensationProgressed{Attempt: attempt, Key: c.Key, Note: note, Token: token}}}))
	}
	shown := func(want string) {
		t.Helper()
		said := s.actionOf("p", "a").Row.Progress
		if said.GetNote() != want || (said.GetNs() != 0) != (want != "") {
			t.Errorf("shown is %v, want %q", said, want)
		}
	}
	token := ledger.NewReporter(secretOfTests).Token("t", "p", "a", c.Key, 1)
	shown("")
	says("w2", "guessed", 1, "of another")
	shown("")
	says("w1", token, 1, "40 of 100")
	says("w1", token, 1, "")
	shown("40 of 100")
	says("w1", token, 1, "60 of 100")
	shown("60 of 100")
	if a := s.show("p").Actions[0]; a.Progress != "60 of 100" {
		t.Errorf("while it is in flight, shown is %q", a.Progress)
	}
	if got := s.held(time.Minute, &pb.Record{Kind: &pb.Record_CompensationFailed{
		CompensationFailed: &pb.CompensationFailed{Attempt: 1, Code: "busy"}}}); got.Verdict != Effective {
		t.Fatalf("the attempt fails: %+v", got)
	}
	if a := s.show("p").Actions[0]; a.Progress != "" || a.ProgressNs != 0 {
		t.Errorf("while it backs off, shown is %q", a.Progress)
	}
	s.now += 3600 * second
	s.turn()
	if n := s.actionOf("p", "a").Row.Attempt; n != 2 {
		t.Fatalf("attempt %d is next", n)
	}
	shown("")
	says("w1", token, 1, "80 of 100")
	shown("")
}

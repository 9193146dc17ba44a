package executor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// replaying is a provider that stores its answer under the key, an error too.
type replaying struct {
	*schedule
	keys []string // of all attempts
}

func newReplaying(t *testing.T) *replaying {
	r := &replaying{schedule: newSchedule(t)}
	r.worker = func(c Command) *api.Reply {
		if c.Purpose == ledger.PurposeUndo {
			r.keys = append(r.keys, c.Key)
		}
		return r.answer(c)
	}
	return r
}

// TestARetryUnderANewKey: what a provider answers by the key it is asked again only under another
// one, which the ledger alone decides. Each such retry has its own, and every attempt after it.
func TestARetryUnderANewKey(t *testing.T) {
	s := newReplaying(t)
	s.play("open a a+ a=stop,stop,fail,done fail turn retry:a turn newkey:a")
	asked := s.log[len(s.log)-1].Sequence
	s.play("turn @1m turn @2m turn @3m turn @4m turn")
	first := undoKey("a")
	second := ledger.RetryKey(first, &pb.Address{Sequence: asked})
	if got := s.outcome(); !strings.HasPrefix(got, "compensated: a=compensated") ||
		!slices.Equal(s.keys, []string{first, first, second, second}) {
		t.Errorf("%s under %q, want %s and %s", got, s.keys, first, second)
	}

	s = newReplaying(t)
	s.play("open a a+ a=stop,stop,done fail turn newkey:a turn newkey:a turn")
	if slices.Sort(s.keys); len(slices.Compact(s.keys)) != 3 || s.show("p").State != "compensated" {
		t.Errorf("%s under %q, want three keys", s.outcome(), s.keys)
	}
}

// TestWhatIsRefusedOfANewKey: there has to be an undo whose next attempt has no new one yet.
func TestWhatIsRefusedOfANewKey(t *testing.T) {
	for _, line := range []string{
		"open a:approve a+ fail turn !newkey:a retry:a",                                        // no attempt was made
		"open a:irr a+ fail turn !newkey:a",                                                    // no undo
		"open a:probe a? a.probe=inconclusive commit turn @1m turn @2m turn !newkey:a retry:a", // a commit waits
		"open b a a+ b+ b=stop a=lost fail @1s turn newkey!:a !newkey!:a =retry:a",
	} {
		line = strings.Replace(line, "=retry:a", "!retry:a", 1)
		newReplaying(t).play(line)
	}
	s := newReplaying(t)
	s.play("open a a+ a=stop,done fail turn newkey:a")
	if got := s.show("p").Actions[0]; got.Undo != "ready" {
		t.Fatal(got.Undo)
	}
	s.play("!newkey:a turn")
	if got := s.show("p").State; got != "compensated" {
		t.Error(got)
	}
}

// TestASecondApproverAgreesOnTheKey: a retry under a new key is another answer than a retry.
func TestASecondApproverAgreesOnTheKey(t *testing.T) {
	s := newReplaying(t)
	s.play("open:second a a+ a=stop,done fail turn retry:a@bob newkey:a@ann turn")
	if len(s.keys) != 1 {
		t.Fatalf("sent under %q before two operators said the same", s.keys)
	}
	s.play("newkey:a@bob turn")
	if len(s.keys) != 2 || s.keys[0] == s.keys[1] {
		t.Errorf("sent under %q, want two keys", s.keys)
	}
}

// TestAnEarlierKeyIsDoneAfterAll: an attempt under the earlier key that turns out to be done is
// not an answer to the one under the new key; where both may have been carried out, the owner
// hears of it, once. By a report and by a reply alike.
func TestAnEarlierKeyIsDoneAfterAll(t *testing.T) {
	const twice = " a~1=quarantined"
	for _, c := range []struct{ before, after, want string }{
		// the new one is not sent: there is nothing left to do
		{"a=late newkey!:a", "turn", "compensated: a=compensated"},
		// it is out
		{"a=late newkey!:a turn", "turn", "quarantined: a=compensated" + twice},
		{"a=late,lost newkey!:a turn", "turn", "quarantined: a=compensated" + twice},
		// it is done, and so is the plan
		{"a=late,done newkey!:a turn", "turn", "quarantined: a=compensated" + twice},
		// it is its owner's again
		{"a=late,stop newkey!:a turn", "turn", "quarantined: a=quarantined"},
		{"a=late,stop newkey!:a turn resolve:a", "turn", "quarantined: a=resolved" + twice},
	} {
		for _, told := range []string{"tell:a#1=done", "reply:a#1"} {
			s := newReplaying(t)
			s.play("open a a+ fail")
			answers, rest, _ := strings.Cut(c.before, " ")
			s.play(answers + " turn " + rest)
			if strings.HasPrefix(told, "reply") && strings.HasSuffix(rest, "newkey!:a") {
				continue // the turn of the reply sends it, too
			}
			s.play(told + " " + c.after)
			got, _, _ := strings.Cut(s.outcome(), " [")
			if got != c.want {
				t.Errorf("%s, then %s: %s, want %s", c.before, told, got, c.want)
			}
			if a := s.show("p").Actions[0]; c.want == "quarantined: a=quarantined" &&
				!strings.Contains(a.Note, "attempt 1 of it was carried out") {
				t.Errorf("%s, then %s: the owner reads %q", c.before, told, a.Note)
			}
			before := len(s.log)
			if s.play("reply:a#1 turn"); len(s.log) != before {
				t.Errorf("%s, then %s: the same once more was recorded", c.before, told)
			}
		}
	}
}

// TestBothKeysAreDoneAtOnce: also while the answer to the new one waits to be recorded, or for
// its check.
func TestBothKeysAreDoneAtOnce(t *testing.T) {
	const twice = "quarantined: a=compensated a~1=quarantined"
	for line, want := range map[string]string{
		"open a a+ fail a=late turn newkey!:a turn tell:a#2=done tell:a#1=done turn":                           twice,
		"open a a+ fail a=late turn newkey!:a turn tell:a#1=done =tell:a#2=done turn":                          twice,
		"open a:verify a+ fail a=late,done a.verify=lost,gone turn newkey!:a turn reply:a#1 @1m turn @2m turn": twice,
	} {
		s := newReplaying(t)
		s.play(line)
		if got, _, _ := strings.Cut(s.outcome(), " ["); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestTheSameKeyIsDoneWhileItIsChecked: that another attempt under the key whose undo is being
// checked was carried out tells of no second undo, to the fold and to an auditor.
func TestTheSameKeyIsDoneWhileItIsChecked(t *testing.T) {
	const want = "quarantined: a=compensated a~1=quarantined" // the one under the new key is out
	for _, said := range []string{
		"tell:a#1=done turn !tell:a#2=done", "tell:a#2=done turn =tell:a#1=done", "tell:a#1=done turn =tell:a#1=done",
		"tell:a#1=done turn reply:a#2", "tell:a#2=done turn reply:a#1", "tell:a#1=done turn reply:a#1",
	} {
		s := newReplaying(t)
		s.play("open a:verify a+ fail a=late a.verify=lost,gone turn force:a turn newkey!:a turn " + said)
		if got := s.show("p"); len(got.Actions) != 1 || got.Actions[0].Undo != "waiting" {
			t.Errorf("%s: while it is checked it is %s", said, s.outcome())
		}
		s.play("@1m turn @2m turn @3m turn")
		if got, _, _ := strings.Cut(s.outcome(), " ["); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}

// TestReportsHaveTheKeyOfTheirAttempt: one under the earlier key is none of the new attempt, and
// the other way around.
func TestReportsHaveTheKeyOfTheirAttempt(t *testing.T) {
	s := newReplaying(t)
	s.play("open a a+ fail a=late turn newkey!:a turn")
	for attempt, key := range map[uint32]string{1: s.keys[1], 2: s.keys[0]} {
		if got := s.report("a", attempt, key, pb.Answer_ANSWER_DONE)[0]; got.Verdict != Refused {
			t.Errorf("attempt %d under the other's key: %+v", attempt, got)
		}
	}
	if got := s.report("a", 1, s.keys[0], pb.Answer_ANSWER_FAILED)[0]; got.Verdict != Refused {
		t.Errorf("a failure of the attempt that is given up: %+v", got)
	}
	s.play("tell:a#2=done turn")
	if got := s.show("p").State; got != "compensated" {
		t.Error(got)
	}
}

// TestEarlierHoldersKnewNoNewKey: what asks one of them for a new key it has refused, or, in a
// commit in protobuf that did not say that it needs a later reader, taken for one under the same key.
func TestEarlierHoldersKnewNoNewKey(t *testing.T) {
	for version, want := range map[uint32][3]string{
		ledger.NewKeySince - 1: {"quarantined, 1 key", "compensated, 1 key", "quarantined, 1 key"},
		ledger.NewKeySince:     {"compensated, 2 key", "compensated, 2 key", "compensated, 2 key"},
	} {
		for i, reader := range []byte{8, 1, 0} { // 0: in JSON
			s := newReplaying(t)
			s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{Term: 2,
				Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: version}}}))
			s.play("open a a+ a=stop,done fail turn")
			data, err := ledger.EncodeCommit([]*pb.Record{{Plan: "p", Action: "a", Kind: &pb.Record_RetryRequested{
				RetryRequested: &pb.RetryRequested{Reason: "again", Actor: "ops", NewKey: true}}}})
			if err != nil {
				t.Fatal(err)
			}
			if data[1] = reader; reader > 0 {
				s.raw("saga.t.operator.ops", "", data)
			} else {
				s.raw("saga.t.operator.ops", ledger.ContentTypeJSON, []byte(`{"records":[{"plan":"p","action":"a",`+
					`"retryRequested":{"reason":"again","actor":"ops","newKey":true}}]}`))
			}
			s.turn()
			slices.Sort(s.keys)
			if got := fmt.Sprintf("%s, %d key", s.show("p").State, len(slices.Compact(s.keys))); got != want[i] {
				t.Errorf("fold version %d, reader %d: %s, want %s", version, reader, got, want[i])
			}
		}
	}
}

// TestANewKeyWhereAnotherPlanUndoes: the plan that undoes a committed one has the keys of that
// one, and a new one comes in their place.
func TestANewKeyWhereAnotherPlanUndoes(t *testing.T) {
	s := newReplaying(t)
	s.play("open a a+ commit a=stop,done undo: turn")
	s.plan = "p" + UndoneSuffix
	s.play("newkey:a")
	asked := s.log[len(s.log)-1].Sequence
	s.play("turn")
	want := []string{undoKey("a"), ledger.RetryKey(undoKey("a"), &pb.Address{Sequence: asked})}
	if got := s.show(s.plan).State; got != "compensated" || !slices.Equal(s.keys, want) {
		t.Errorf("%s under %q, want %q", got, s.keys, want)
	}
}

package executor_test

import (
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
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestErasureWaitsForWhatIsHeldOrOwed unless it is forced; an end, or a commit of the
// root, lets it be.
func TestErasureWaitsForWhatIsHeldOrOwed(t *testing.T) {
	for play, why := range map[string]string{
		"open a:sealed a+ !erase":                              "plan p is open",
		"open a:sealed a+ a=lost fail turn !erase":             "plan p is unwinding",
		"open a:sealed+askme a? fail turn !erase":              "plan p is quarantined",
		"open a:sealed a+ commit turn a=lost undo turn !erase": "plan p is undone as plan p~1, which is unwinding",
		"open a:sealed a+ commit turn undo turn erase":         "",
		"open a:sealed a+ fail turn erase":                     "",
		"open a:sealed a+ commit turn erase":                   "",
		"open a:sealed a- fail turn erase":                     "",
		"open a:sealed a+ erase:force":                         "",
	} {
		s := newSchedule(t)
		s.play(play)
		shown := s.show("p")
		if erased := shown.Erasure != nil; erased != (why == "") {
			t.Errorf("%s: %+v", play, shown.Erasure)
		}
		if refused := view.NewReader(s.kv, "t", nil).RefusedAt(uint64(len(s.log))); why != "" &&
			(len(refused) != 1 || !strings.Contains(refused[0].Reason, why) ||
				!strings.Contains(refused[0].Reason, "or force it")) {
			t.Errorf("%s: %+v", play, refused)
		}
		if want := why == ""; slices.Equal(s.state.Unerased(), []string{"p"}) != want {
			t.Errorf("%s: to be destroyed: %v", play, s.state.Unerased())
		}
		s.wantRefolded()
	}
}

// TestForcedErasureLeavesToTheOwnerWhatNobodyCanUndo: with the reason and the record;
// what needs no sealed value is undone, what never crossed is skipped.
func TestForcedErasureLeavesToTheOwnerWhatNobodyCanUndo(t *testing.T) {
	for play, want := range map[string]string{
		"open a a+ b:sealed b+ erase:force fail turn":                "a=owed b=quarantined",
		"open b:sealed b+ a a+ erase:force fail turn":                "b=quarantined a=compensated",
		"open b:sealed b- erase:force fail turn":                     "b=skipped",
		"open b:sealed+probe b? erase:force fail turn":               "b=quarantined",
		"open b:sealed b+ b=fail,done fail turn erase:force @9s":     "b=quarantined",
		"open b:sealed b+ erase:force fail turn retry:b turn":        "b=quarantined",
		"open b:sealed b+ erase:force destroyed fail turn":           "b=quarantined",
		"open b:sealed+eff b+ erase:force destroyed fail turn":       "b=skipped",
		"open b:sealed b+ commit turn erase undo turn":               "",
		"open b:sealed b+ b=lost fail turn erase:force @1h turn @2h": "b=quarantined",
	} {
		s := newSchedule(t)
		s.play(play)
		plan := "p"
		if want == "" {
			plan, want = "p~1", "b=quarantined"
		}
		if got := s.undos(plan); got != want {
			t.Errorf("%s: %s, want %s", play, got, want)
		}
		for _, a := range s.show(plan).Actions {
			if a.Undo == "quarantined" && (!strings.HasPrefix(a.Note, "what undo.b takes was erased at ") ||
				!strings.HasSuffix(a.Note, ": nobody can read it any more")) {
				t.Errorf("%s: %q", play, a.Note)
			}
		}
		s.wantRefolded()
	}
}

// TestErasureIsDoneUntilTheHolderSaysSo: what is to be destroyed outlives a restart, the
// decision names the operator's record, and a second word for it is void.
func TestErasureIsDoneUntilTheHolderSaysSo(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:sealed a+ fail turn erase")
	if got := s.state.Erasures(); !slices.Equal(got, []string{"p"}) || s.state.Erasures() != nil {
		t.Errorf("%v", got)
	}
	s.state = Open(s.kv, "t", nil)
	if got := s.state.Unerased(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("after a restart %v", got)
	}
	records := s.state.Decide(Input{EpochNs: s.now, SizeMax: ledger.CommitSizeMax,
		Destroyed: []string{"p", "p", "nowhere"}})
	if len(records) != 1 || !records[0].GetPlanErased().GetDestroyed() ||
		ledger.FormatAddress(records[0].Cause) != s.show("p").Erasure.At {
		t.Fatalf("%v", records)
	}
	s.play("=again") // the operator's record once more
	s.play("destroyed")
	shown := s.show("p").Erasure
	if shown.Destroyed == "" || shown.By != "ops" || shown.Reason != "asked for" || len(s.state.Unerased()) != 0 {
		t.Errorf("%+v, left %v", shown, s.state.Unerased())
	}
	if r := s.append(holder, &pb.Record{Plan: "p", Term: 1, EpochNs: s.now, Cause: s.planOf("p").Row.Erased,
		Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Destroyed: true}}}); r[0].Verdict != Void {
		t.Errorf("%+v", r)
	}
	s.play("q/open q/a q/a+ q/fail turn")
	if r := s.append(holder,
		&pb.Record{Plan: "q", Term: 1, EpochNs: s.now,
			Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Destroyed: true}}}); r[0].Verdict != Void {
		t.Errorf("nobody had asked: %+v", r)
	}
	if agent, erased := view.NewReader(s.kv, "t", nil).KeyOwner("p"); agent == "" ||
		!strings.HasPrefix(erased, "erased by ops at ") {
		t.Errorf("%q %q", agent, erased)
	}
	s.wantRefolded()
}

// orphansOf are the orphans of plan p, whose owner answers for them or does not.
func (s *schedule) orphansOf(answers bool) []string {
	if !answers {
		return nil
	}
	return s.show("p").Orphans
}

// TestErasureAnywhereIsFoldedAlike: at any place of a plan's life both folds make the same
// of it, what is proposed holds, and whatever is owed comes to an end.
func TestErasureAnywhereIsFoldedAlike(t *testing.T) {
	t.Parallel()
	words := []string{
		"a:sealed", "a+", "a-", "b", "b+", "c:sealed+probe", "c?", "c+", "d:sealed+verify", "d+", "save:s", "back:s", "fail",
		"commit", "undo", "turn", "turn", "@5s", "@40s",
		"erase", "erase:force", "destroyed", "retry:a", "skip:a", "retry:c", "lone:e",
	}
	kinds := map[string]int{}
	for seed := range uint64(testenv.Cases(120, 400)) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := newSchedule(t)
		s.word("open")
		for _, id := range []string{"a", "b", "c", "d"} {
			s.answers[id] = []string{[]string{"done", "fail", "stop", "lost"}[r.IntN(4)], "done"}
		}
		for range 24 {
			word := words[r.IntN(len(words))]
			if outcome := strings.ContainsAny(word, "+-?") && len(word) == 2; outcome && s.actionOf("p", word[:1]) == nil {
				continue // its pair first: what is claimed without one is its owner's
			}
			if r.IntN(4) == 0 {
				s.plan = "p~1"
			}
			if s.planOf(s.plan) != nil {
				s.word(word)
			}
			s.plan = "p"
		}
		for i := range 8 {
			s.at(time.Duration(i+1) * time.Hour)
			s.turn()
			for _, id := range s.orphansOf(seed%2 == 0) {
				s.about("resolve", id)
			}
		}
		for _, id := range []string{"p", "p~1"} {
			p := s.planOf(id)
			if p == nil {
				continue
			}
			if p.Row.Phase == rowspb.Phase_PHASE_UNWINDING {
				t.Errorf("seed %d: plan %s unwinds still: %s", seed, id, s.undos(id))
			}
			if s.state.Erased(id) != nil {
				kinds["erased "+StateName(p.Row)]++
			}
		}
		s.wantRefolded()
	}
	for _, want := range []string{"erased open", "erased committed", "erased quarantined", "erased compensated"} {
		if kinds[want] == 0 {
			t.Errorf("no world is %s: %v", want, kinds)
		}
	}
}

package executor_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAForwardBehindACommitPagesTheOwner: nothing holds it, and no unwind will come
// upon it, so somebody must know; a copy of it is nothing new.
func TestAForwardBehindACommitPagesTheOwner(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ commit turn !b !again !lone:c")
	pages := s.state.Pages()
	if len(pages) != 2 || !strings.Contains(pages[0].Reason, "action b ") ||
		!strings.Contains(pages[1].Reason, "action c ") || pages[0].ID == pages[1].ID {
		t.Fatalf("%+v", pages)
	}
	if open := s.state.Unpaged(); len(open) != 1 || open[0].ID != pages[1].ID {
		t.Fatalf("%+v", open)
	}
	s.wantState("p", "committed", "a=retired")
}

// TestAPageOfThisTurnWasTakenByNobody: an action is quarantined again in the turn in
// which the hook's word on its earlier page is recorded; that word is not about the
// page that this commit asks for.
func TestAPageOfThisTurnWasTakenByNobody(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", opened(0)))
	w.do("p", "a")
	w.worker = func(Command) *api.Reply { return &api.Reply{Status: api.StatusStop, Code: "no"} }
	w.must(w.agent("p", planFailed()))
	w.turn()
	page := w.state.Unpaged()[0]
	w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ann"}, &pb.Record{
		Plan: "p", Action: "a",
		Kind: &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Actor: "ann", Reason: "again"}}}))
	w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor},
		w.state.Decide(Input{EpochNs: w.now, SizeMax: 60 << 10})...)
	c := w.state.Commands()[0]
	answers := []Answer{{Plan: "p", Number: 1, Purpose: c.Purpose, Attempt: c.Attempt, Reply: w.worker(c)}}
	taken := []Paged{{Plan: "p", Number: 1, Kind: page.Kind, Hook: page.Hook}}
	records := w.state.Decide(Input{EpochNs: w.now, Answers: answers, Paged: taken, SizeMax: 60 << 10})
	quarantined := false
	for _, r := range records {
		quarantined = quarantined || r.GetActionQuarantined() != nil
		if r.GetOwnerPaged() != nil {
			t.Errorf("a page that nobody has seen is taken: %v", r)
		}
	}
	if !quarantined {
		t.Errorf("not quarantined again: %v", records)
	}
}

// TestAPageIsTakenByWhoHasSeenIt: another act is claimed, and its owner paged, while the record is on
// its way that a hook has taken the page about the one before. No one has seen the later page.
func TestAPageIsTakenByWhoHasSeenIt(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ commit turn !lone:c")
	first := s.state.Unpaged()[0]
	taken := s.state.Decide(Input{EpochNs: s.now, SizeMax: 60 << 10,
		Paged: []Paged{{Plan: "p", Kind: first.Kind, Hook: first.Hook}}})
	s.play("resolve:c !lone:d")
	voids := 0
	for i, r := range s.append(holder, taken...) {
		if taken[i].GetOwnerPaged() == nil {
			continue
		}
		if voids++; r.Verdict != Void {
			t.Errorf("%+v", r)
		}
	}
	if open := s.state.Unpaged(); voids != 1 || len(open) != 1 || open[0].ID == first.ID {
		t.Errorf("%d records; %+v are open, and the page of %s was taken", voids, open, first.ID)
	}
}

// TestAPageHasTheKindOfWhatItIsAbout: an undo, a commit or an act that waits for its owner,
// until the owner has answered.
func TestAPageHasTheKindOfWhatItIsAbout(t *testing.T) {
	for _, c := range []struct{ words, kind, action, answer string }{
		{"open a a+ a=stop fail turn", api.PageQuarantined, "a", "resolve:a"},
		{"open a a? commit turn", api.PageCommitWaits, "a", "resolve:a"},
		{"open a a? commit turn", api.PageCommitWaits, "a", "fail turn"}, // no commit waits any more
		{"open a:probe a? a.probe=inconclusive commit turn @1s", api.PageCommitWaits, "a", "retry:a"},
		{"open a a+ !lone:c", api.PageActClaimed, "", "resolve:c"},
		{"open a a+ commit turn !lone:c", api.PageActClaimed, "", "resolve:c"},
		{"open a a+ !lone:c fail turn", api.PageActClaimed, "", "resolve:c"},
		{"open a:review", api.PageVerdictWanted, "a", "judge:a=allow"},
		{"open a:review", api.PageVerdictWanted, "a", "judge:a=block"},
		{"open a:review", api.PageVerdictWanted, "a", "a-"}, // its agent waits no more
		{"open a:review", api.PageVerdictWanted, "a", "a+"},
		{"open a:review+settle=1m", api.PageVerdictWanted, "a", "fail turn"},
		{"open a:review+settle=1m", api.PageVerdictWanted, "a", "commit"},
		{"open:accept a:review", api.PageVerdictWanted, "a", "commit turn"},
		{"open q/open^ q/a:review", api.PageVerdictWanted, "a", "q/commit"},
	} {
		s := newSchedule(t)
		s.play(c.words)
		open := s.state.Unpaged()
		if len(open) != 1 || open[0].Kind != c.kind || open[0].Action != c.action {
			t.Errorf("%s: the pages %+v are open", c.words, open)
			continue
		}
		s.state.Closed()
		s.play(c.answer)
		closed := s.state.Closed()
		if len(closed) != 1 || closed[0].Kind != c.kind || closed[0].Action != c.action {
			t.Errorf("%s %s closes %+v", c.words, c.answer, closed)
		}
		if open := s.state.Unpaged(); len(open) != 0 {
			t.Errorf("%s %s leaves %+v", c.words, c.answer, open)
		}
	}
}

// TestAWindowIsWarnedOfWhileItIsHeld: a page that no hook has taken ends with what it is
// about, and one about a window that has moved says its new end.
func TestAWindowIsWarnedOfWhileItIsHeld(t *testing.T) {
	const taken = "taken"
	for words, want := range map[string]string{
		"open a:for=1m a+ @53s":                                  "",
		"open a:for=1m a+ @55s":                                  "a@60 ",
		"open a:for=1m a+ @55s commit turn":                      "",
		"open a:for=1m a+ @55s fail turn":                        "",
		"open a:for=1m a+ @55s b b? commit turn":                 "a@60 b@0 ",
		"open a:for=1m a+ save:s b b+ @55s back:s turn":          "a@60 ",
		"open a:for=1m a+ save:s b b+ @55s taken back:s turn":    "",
		"open save:s a:for=1m a+ b b+ @55s back:s turn":          "",
		"open q/open^ q/x:for=1m q/x+ q/commit @55s commit turn": "",
		"open a:for=3s+until=1m @55s":                            "a@60 ",
		"open a:for=3s+until=1m @55s a+ turn":                    "a@58 ",
		"open a:for=3s+until=1m @55s taken a+ turn":              "a@58 ",
		"open a:for=30s+until=1m @55s taken a+ turn":             "",
	} {
		s := newSchedule(t)
		for i, part := range strings.Split(words, taken) {
			if i > 0 {
				var pages []Paged
				for _, page := range s.state.Unpaged() {
					pages = append(pages, Paged{Plan: page.Plan, Number: page.Number, Kind: page.Kind, Hook: page.Hook})
				}
				records := s.state.Decide(Input{EpochNs: s.now, Paged: pages, SizeMax: 60 << 10})
				s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
			}
			s.play(part)
		}
		got := ""
		for _, page := range s.state.Unpaged() {
			got += fmt.Sprintf("%s@%d ", page.Action, max(page.ClosesNs-epoch0, 0)/second)
		}
		if got != want {
			t.Errorf("%s: open are %q, want %q", words, got, want)
		}
	}
}

// TestWhatWaitsForAVerdict: what is listed is what waits, and whoever is to judge is paged about it,
// once, under a holder that does so. A list of the oldest first has no other.
func TestWhatWaitsForAVerdict(t *testing.T) {
	for words, want := range map[string]string{
		"open a:review b:review c":                      "a b / a b",
		"open a:review b:review judge:a=allow":          "b / b",
		"open a:review judge:b":                         "a / a",
		"open a:review judge:a=block judge:a=allow":     " / ",
		"open a:review save:s b b+ back:s turn":         "a / a", // waits again once the plan is open again
		"open save:s a:review+settle=1s b b+ back:s":    "a / a",
		"open save:s a:review b back:s turn @9m":        " / ",
		"open a:review a?":                              " / ",
		"open a a+ b:review commit":                     " / ",
		"open a:eff+review":                             "a / a",
		"old open a:review":                             "a / ",
		"old open a:review judge:a=block":               " / ",
		"old open a:review save:s b b+ new back:s turn": "a / a",
	} {
		s := newSchedule(t)
		term := uint64(1)
		for word := range strings.FieldsSeq(words) {
			switch word {
			case "old", "new":
				version := uint32(FoldVersion)
				if word == "old" {
					version = ledger.VerdictWantedSince - 1
				}
				term++
				s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true},
					&pb.Record{Term: term, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{
						Holder: "h1", FoldVersion: version}}}))
			case "judge:b":
				s.play("!judge:b=allow")
			default:
				s.play(word)
			}
		}
		s.state.Flush()
		reader := view.NewReader(s.kv, "t", nil)
		var listed, paged []string
		answer, err := reader.Reviews(api.ReviewQuery{}, s.now)
		if err != nil || answer.Next != "" {
			t.Errorf("%s: %+v, %v", words, answer, err)
		}
		for _, v := range answer.Reviews {
			listed = append(listed, v.Action)
		}
		for _, page := range s.state.Unpaged() {
			if page.Kind == api.PageVerdictWanted {
				paged = append(paged, page.Action)
			}
		}
		status := reader.Status()
		if int(status.Reviews) != len(listed) || (status.OldestReviewNs != 0) != (len(listed) > 0) {
			t.Errorf("%s: the status counts %d, the list %d", words, status.Reviews, len(listed))
		}
		if got := strings.Join(listed, " ") + " / " + strings.Join(paged, " "); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
}

// TestAPageOfAVerdictStaysTheSame: of several actions that wait each has a page of its own, also where
// one record opens their plan again, and the page is the same one then: who has seen it knows it.
func TestAPageOfAVerdictStaysTheSame(t *testing.T) {
	s := newSchedule(t)
	s.play("open a:review b:review c:eff+review save:s d d+")
	ids := func() map[string]string {
		pages := map[string]string{}
		for _, page := range s.state.Unpaged() {
			if other, twice := pages[page.ID]; twice {
				t.Errorf("%s and %s have one page", other, page.Action)
			}
			pages[page.ID] = page.Action
		}
		return pages
	}
	before := ids()
	for _, words := range []string{"back:s turn", "e e+ back:s turn"} {
		s.play(words)
		if after := ids(); len(after) != 3 || !maps.Equal(before, after) {
			t.Errorf("%v, and after the rewind %v", before, after)
		}
	}
}

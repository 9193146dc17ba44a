package executor_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// finder is a world whose undos get no answer until enough were sent, and whose probe tells what
// it is given, one answer after the other, then the last.
type finder struct {
	*schedule
	lost   int      // attempts without an answer
	probes []string // what the probe answers
	sent   []string // the name that each undo was sent with, by argument and command
}

// found begins plan p under a holder of a version. The caller's number is a name already, so its
// undo goes out blind.
func newFinder(t *testing.T, version uint32, lost int, probes ...string) *finder {
	f := &finder{schedule: newSchedule(t), lost: lost, probes: probes}
	f.worker = func(k Command) *api.Reply {
		if k.Purpose == api.PurposeProbe {
			answer := f.probes[0]
			if len(f.probes) > 1 {
				f.probes = f.probes[1:]
			}
			return &api.Reply{Status: api.StatusDone, Output: []byte(answer)}
		}
		_, named, _ := strings.Cut(string(k.Arguments), `"ref":`)
		f.sent = append(f.sent, fmt.Sprintf("%s %s %s", k.Action, strings.TrimSuffix(named, "}"), k.ExternalRef))
		if f.lost--; f.lost >= 0 {
			return nil
		}
		return &api.Reply{Status: api.StatusDone}
	}
	term := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
	f.must(f.append(term, &pb.Record{Term: 2, Kind: &pb.Record_TermStarted{
		TermStarted: &pb.TermStarted{Holder: "h", FoldVersion: version}}}))
	f.must(f.agent("p", opened(0)))
	f.must(f.agent("p", pair("a", func(r *pb.ForwardRegistered, k *pb.CompensationRegistered) {
		bind("id", "input.id", "ref", "meta.?external_ref")(r, k)
		k.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.a", Attempts: 2}}
		k.OnInDoubt, k.Attempts = pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE, 4
	})...))
	return f
}

func (f *finder) wants(sent ...string) {
	f.t.Helper()
	if got := f.show("p"); got.State != "compensated" || !slices.Equal(f.sent, sent) {
		f.t.Errorf("%s, sent %q, want %q: %s", got.State, f.sent, sent, got.Actions[0].Note)
	}
}

func present(ref string) string { return `{"presence":"present","external_ref":"` + ref + `"}` }

// TestTheNextAttemptHasTheNameThatTheProbeFound: an undo that was sent blind has no name; once the
// probe after it has found one, no attempt goes out without it.
func TestTheNextAttemptHasTheNameThatTheProbeFound(t *testing.T) {
	f := newFinder(t, FoldVersion, 1, present("x7"))
	f.play("a? fail turn @1m turn @2m turn")
	f.wants("a null ", `a "x7" x7`)

	// earlier holders, whose ledgers are folded as they were
	f = newFinder(t, ledger.FoundSince-1, 1, present("x7"))
	f.play("a? fail turn @1m turn @2m turn")
	f.wants("a null ", "a null ")

	// the last answer is of the effect that is there now
	f = newFinder(t, FoldVersion, 2, present("x7"), present("x8"))
	f.play("a? fail turn @1m turn @2m turn @3m turn @4m turn")
	f.wants("a null ", `a "x7" x7`, `a "x8" x8`)

	// an answer without a name takes none away
	f = newFinder(t, FoldVersion, 2, present("x7"), `{"presence":"present"}`)
	f.play("a? fail turn @1m turn @2m turn @3m turn @4m turn")
	f.wants("a null ", `a "x7" x7`, `a "x7" x7`)
}

// TestWhatHasANameKeepsIt: what the forward has said stays the name of its undo while that is
// tried, and so does that of an extra effect, whose probe names the first one, too.
func TestWhatHasANameKeepsIt(t *testing.T) {
	f := newFinder(t, FoldVersion, 1, present("other"))
	said := completed("a")
	said.GetForwardCompleted().ExternalRef = "mine"
	f.must(f.agent("p", said))
	f.play("fail turn @1m turn @2m turn")
	f.wants(`a "mine" mine`, `a "mine" mine`)

	f = newFinder(t, FoldVersion, 2, `{"presence":"duplicate","external_ref":["x7","x8"]}`, present("x7"))
	f.play("a? fail turn @1m turn @2m turn @3m turn @4m turn")
	f.wants("a null ", `a~1 "x8" x8`, `a "x7" x7`, `a~1 "x8" x8`)
}

// TestWhatAProbeFoundOutlivesTheForwardsWord: a completion that comes later and names nothing
// leaves the name as it is, and is a copy of itself; one that has another name tells of another effect.
func TestWhatAProbeFoundOutlivesTheForwardsWord(t *testing.T) {
	for _, c := range []struct {
		said string
		sent []string
	}{
		{"", []string{`a "x7" x7`}}, {"x7", []string{`a "x7" x7`}},
		{"mine", []string{`a~1 "x7" x7`, `a "mine" mine`}},
	} {
		f := newFinder(t, FoldVersion, 0, present("x7"))
		f.play("a? commit turn @1m turn") // a commit asks about a
		said := completed("a")
		said.GetForwardCompleted().ExternalRef = c.said
		f.must(f.agent("p", said))
		if got := f.agent("p", said)[0]; got.Verdict != Repeated {
			t.Errorf("%q: the same once more is %+v", c.said, got)
		}
		if got := f.show("p").State; got != "committed" {
			t.Fatal(got)
		}
		f.play("undo: turn @2m turn")
		if !slices.Equal(f.sent, c.sent) {
			t.Errorf("%q: sent %q, want %q", c.said, f.sent, c.sent)
		}
	}
}

// TestAnOwnersDutyHasTheNameThatTheProbeFound: who looks whether an action was undone once too often
// looks for that effect.
func TestAnOwnersDutyHasTheNameThatTheProbeFound(t *testing.T) {
	f := newFinder(t, FoldVersion, 2, present("x7"))
	f.play("a? fail turn @1m turn newkey!:a turn @2m turn @3m turn tell:a#1=done turn")
	f.state.Flush()
	past := view.NewReader(f.kv, "t", f).History("a1", api.HistoryQuery{Plan: "p"}).Actions
	if duty := past[len(past)-1]; duty.Action != "a~1" || duty.DutyOf != "a" || duty.ExternalRef != "x7" {
		t.Errorf("the owner's duty is %+v, want a~1 about x7", duty)
	}
}

// TestWhatIsSaidOfASeenEffectAddsNothing: once a probe has seen an effect, and its undo is of that
// name, neither its caller's doubt nor a completion of it is owed once more; that of another effect is.
func TestWhatIsSaidOfASeenEffectAddsNothing(t *testing.T) {
	const out = "open a:probe a=lost,done fail turn " // its undo has no answer yet
	const done = "open a:probe fail turn @10m turn "
	const blind = "open a:probe+blind a=lost,done fail turn @5100ms "
	for _, c := range []struct{ script, sent string }{
		{out + "a? @3h turn @4h turn", "a=x7 a=x7"},
		{out + "own:a= =own:a= @3h turn @4h turn", "a=x7 a=x7"},
		{out + "own:a=x7 @3h turn @4h turn", "a=x7 a=x7"},
		{out + "effect:a=x7 =a? @3h turn @4h turn", "a=x7 a=x7"},
		{out + "a? own:a=x7 @3h turn @4h turn", "a=x7 a=x7"},
		{out + "!effect:a=x9 @3h turn @4h turn", "a=x7 a=x7"},
		{out + "own:a=x9 =own:a=x9 turn @3h turn @4h turn", "a=x7 a~1=x9 a=x7"},
		{out + "a? own:a=x9 turn @3h turn @4h turn", "a=x7 a~1=x9 a=x7"},
		{done + "a? turn @3h turn", "a=x7"},
		{done + "own:a=x7 !effect:a=x7 turn", "a=x7"},
		{done + "own:a= turn", "a=x7"},
		{done + "!effect:a=x7 !effect:a= turn", "a=x7"},
		{done + "effect:a=x7,x9 turn turn", "a=x7 a~1=x9"},
		{done + "own:a=x9 turn", "a=x7 a~1=x9"},
		{"open a:probe+refused fail turn @10m turn own:a=x9 turn", "a=x7"},

		// Its owner knew of it.
		{"open a:probe a=stop,done fail turn @10m turn resolve:a a? turn @3h turn", "a=x7"},
		{"open a:probe a=stop,done fail turn @10m turn resolve:a own:a=x7 turn @3h turn", "a=x7"},
		{"open a:probe a=stop,done fail turn @10m turn resolve:a own:a=x9 turn retry:a~1 turn", "a=x7 a~1=x9"},
		{"open a:probe a=stop,done fail turn @10m turn own:a=x9 turn retry:a turn", "a=x7 a~1=x9 a=x7"},
		{"open a:probe+approve fail turn @10m turn own:a=x9 turn retry:a~1 retry:a turn", "a~1=x9 a=x7"},
		{"open a:probe+approve fail turn @10m turn a? turn retry:a turn", "a=x7"},

		// The probe has seen it after an attempt that did not know of it.
		{blind + "a? turn @4h turn", "a= a=x7"},
		{blind + "own:a=x7 turn @4h turn", "a= a=x7"},
		{blind + "own:a=x9 turn @4h turn", "a= a~1=x9 a=x7"},
		{"open a:probe+blind a=lost fail turn @5100ms tell:a#1=done turn own:a=x7 turn @4h turn", "a= a~1=x7"},
	} {
		s := newSchedule(t)
		sent := s.seen("x7")
		s.play(c.script)
		if got := strings.Join(*sent, " "); got != c.sent {
			t.Errorf("%s: sent %q, want %q; %s", c.script, got, c.sent, s.outcome())
		}
		s.wantRefolded()
	}
	s := newSchedule(t)
	s.underHolder(ledger.SeenSince - 1)
	sent := s.seen("x7")
	s.play(out + "a? turn @3h turn @4h turn")
	if got := strings.Join(*sent, " "); got != "a=x7 a~1=x7" {
		t.Errorf("under an earlier holder it is folded as it was decided: %s", got)
	}
	s.wantRefolded()
}

// seen has a probe see an effect of each action under one name, until an undo is answered. sent are the
// undos, each as its action and the name that it was sent with.
func (s *schedule) seen(name string) (sent *[]string) {
	sent = &[]string{}
	s.worker = func(c Command) *api.Reply {
		if c.Purpose == api.PurposeProbe {
			return s.sees(c, name)
		}
		*sent = append(*sent, c.Action+"="+c.ExternalRef)
		return s.answer(c)
	}
	return sent
}

// sees is the answer of a probe: what the schedule says, as x7+x8, or that an effect of this name is
// there.
func (s *schedule) sees(c Command, name string) *api.Reply {
	list := s.answers[c.Action+".probe"]
	switch refs := strings.Split(strings.Join(list, ","), "+"); {
	case len(list) == 0:
		return &api.Reply{Status: api.StatusDone, Output: []byte(present(cmp.Or(c.ExternalRef, name)))}
	case refs[0][0] != 'x':
		return s.answer(c)
	case len(refs) == 1:
		return &api.Reply{Status: api.StatusDone, Output: []byte(present(refs[0]))}
	default:
		return &api.Reply{Status: api.StatusDone, Output: []byte(`{"presence":"duplicate","external_ref":["` +
			strings.Join(refs, `","`) + `"]}`)}
	}
}

// seenSchedule is a schedule in which a probe sees x7, the undos that are sent, and what becomes of
// plan p.
type seenSchedule struct{ script, sent, want string }

func playSeen(t *testing.T, list []seenSchedule) {
	t.Helper()
	for _, c := range list {
		playOne(t, c.script, c.sent+"; "+c.want, func(s *schedule) func() string {
			sent := s.seen("x7")
			return func() string { return strings.Join(*sent, " ") + "; " + s.outcome() }
		})
	}
}

// TestWhatBecameOfAnUndoIsAnswered: an agent that asks whether an action is still there hears that it
// went, also where its plan went back to a savepoint and is open again.
func TestWhatBecameOfAnUndoIsAnswered(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ save:s b c c+ undo:s turn @3h turn")
	s.state.Flush()
	reader, got := view.NewReader(s.kv, "t", s), ""
	for _, of := range []string{"p/a", "p/b", "p/c", "p/d", "q/a"} {
		plan, action, _ := strings.Cut(of, "/")
		outcome, undo, _ := reader.Undo(plan, action)
		got += " " + outcome + "/" + undo
	}
	if got != " completed/held unknown/compensated completed/compensated / /" || s.show("p").State != ledger.StateOpen {
		t.Errorf("%s: undone are%s", s.outcome(), got)
	}
}

// TestAFailureTakesNothingAwayThatIsThere: what someone has found there is undone once, under one key and
// by its name, or is its owner's, though its agent says then that the forward has failed.
func TestAFailureTakesNothingAwayThatIsThere(t *testing.T) {
	const seen = "open a:probe a? turn @10m turn "
	const out = seen + "a=lost,done fail turn "
	playSeen(t, []seenSchedule{
		// In an open plan, by its end.
		{seen + "a- =a- fail turn", "a=x7", "compensated: a=compensated [a]"},

		{seen + "a- !a? fail turn", "a=x7", "compensated: a=compensated [a]"},
		{seen + "a- own:a=x7 fail turn", "a=x7", "compensated: a=compensated [a]"},
		{seen + "a- cancel turn", "a=x7", "compensated: a=compensated [a]"},
		{seen + "a- stop turn", "a=x7", "compensated: a=compensated [a]"},
		{"open a:probe turn @10m turn a- fail turn", "a=x7", "compensated: a=compensated [a]"},
		{"open save:s a:probe a? turn @10m turn a- back:s turn", "a=x7", "open: a=compensated [a]"},
		{"open a:probe a? turn @10m turn a- undo:!a turn", "a=x7", "open: a=compensated [a]"},
		{"open a:probe+own a? turn @10m turn a- fact:a=1 turn", "a=x7", "open: a=compensated [a]"},
		{"open a:irr+probe a? turn @10m turn a- fail turn", "", "quarantined: a=quarantined []"},
		{"open q/open^ q/a:probe q/a? turn @10m turn q/a- fail turn", "a=x7", "compensated: plan:q=compensated [a]"},
		{seen + "judge:a=block a- turn turn", "a=x7", "open: a=compensated [a]"},

		// While it is undone.
		{out + "a- @3h turn @4h turn", "a=x7 a=x7", "compensated: a=compensated [a]"},
		{seen + "a=stop fail turn a- retry:a a=done turn", "a=x7 a=x7", "compensated: a=compensated [a]"},
		{"open a:probe fail turn a- @10m turn", "a=x7", "compensated: a=compensated [a]"},
		{"open a:probe fail a- turn", "", "failed: a=skipped []"}, // no one had found it
		{"open a:probe a? a=fail,done fail @10m turn a- @3h turn", "a=x7 a=x7", "compensated: a=compensated [a]"},

		// The world has seen it after a failure that came first, or a check of its undo has.
		{"open a:probe+blind a=lost,done fail turn @5100ms a- turn @4h turn", "a= a=x7", "compensated: a=compensated [a]"},

		// At a commit and after it.
		{"open a:probe+for=9h a? commit @10m turn a- undo @20m turn", "a=x7", "committed: a=retired [a]"},
		{"open a:probe+for=9h a? turn @10m turn a- commit turn undo turn", "a=x7", "committed: a=retired [a]"},
		{"open a:probe+for=9h a? commit @10m turn undo a- turn", "a=x7", "committed: a=retired [a]"},
	})
	s := newSchedule(t)
	s.underHolder(ledger.ThereSince - 1)
	s.seen("x7")
	if s.play(seen + "a- fail turn"); s.outcome() != "failed: a=skipped []" {
		t.Errorf("under an earlier holder it is folded as it was decided: %s", s.outcome())
	}
	s.wantRefolded()
}

// TestAFailureTakesNothingAwayThatACommitOrACheckFound: likewise what the check after an undo, the worker
// of one, or the probe and the owner at a commit have said to be there.
func TestAFailureTakesNothingAwayThatACommitOrACheckFound(t *testing.T) {
	const both = "compensated: a=compensated a~1=compensated [a~1 a]"
	for _, c := range []struct{ script, want string }{
		{"open a:verify a? a.verify=there,gone fail @10m turn a- @4h turn", "compensated: a=compensated [a a]"},
		{"open a a? a=changed,done fail @10m turn a- retry:a turn", "compensated: a=compensated [a]"},
		{"open a:probe a? a.probe=duplicate commit @10m turn a- turn", "committing: a=quarantined []"},
		{"open a:probe a? a.probe=duplicate commit @10m turn a- skip:a turn", "committed: a=retired []"},
		{"open a:probe a? a.probe=duplicate commit @10m turn a- stop @20m turn turn", both},
		{"open a:probe a? a.probe=duplicate commit @10m turn stop a- @20m turn turn", both},
		{"open a:probe a? a.probe=duplicate,absent commit @10m turn retry:a a- @20m turn", "committed: a=retired []"},
		{"open b a:for=9h a? b? commit @10m turn accept:a a- resolve:b turn undo turn",
			"committed: b=retired a=retired [a]"},
		{"open b a a? b? commit @10m turn accept:a a- stop @20m turn turn", "resolved: b=compensated a=compensated [a b]"},
		{"open a:probe a.probe=duplicate a? turn @10m a- turn fail turn turn", both},
		{"open a:probe a.probe=duplicate a? turn @10m turn a- fail turn turn", both},
	} {
		s := newSchedule(t)
		s.play(c.script)
		if got := s.outcome(); got != c.want {
			t.Errorf("%s: %s, want %s", c.script, got, c.want)
		}
		s.wantRefolded()
	}
}

// TestACompletionUnderAnotherNameTakesNothingAway: what a probe has seen under one name is undone beside
// what the forward then says that it has done under another one; while the plan goes on, both stay.
func TestACompletionUnderAnotherNameTakesNothingAway(t *testing.T) {
	const seen = "open a:probe+for=9h a? turn @10m turn "
	const both = "compensated: a=compensated a~1=compensated [a~1 a]"
	playSeen(t, []seenSchedule{
		{seen + "own:a=x9 fail turn", "a~1=x7 a=x9", both},
		{seen + "own:a=x7 fail turn", "a=x7", "compensated: a=compensated [a]"},
		{seen + "own:a= fail turn", "a=x7", "compensated: a=compensated [a]"},
		{seen + "own:a=x9 turn", "", "open: a=held a~1=held []"},
		{seen + "own:a=x9 commit turn", "", "committed: a=retired a~1=retired []"},
		{seen + "own:a=x9 commit turn undo turn", "a~1=x7 a=x9", "committed: a=retired a~1=retired [a~1 a]"},
		{seen + "commit turn own:a=x9 turn undo turn", "a~1=x7 a=x9", "committed: a=retired a~1=retired [a~1 a]"},
		{"open a:probe+approve a? turn @10m turn fail own:a=x9 turn retry:a retry:a~1 turn", "a~1=x7 a=x9", both},
	})
}

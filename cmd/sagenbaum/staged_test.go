package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// newPost is an agent that stages letters, which the worker of the scene sends, but for those to
// "nowhere" while shut is set.
func newPost(t *testing.T, s *scene) (agent *coordinator.Coordinator, shut *atomic.Bool) {
	t.Helper()
	agent, err := coordinator.New(coordinator.Config{Conn: s.conn, Tenant: "default", Agent: "writer",
		Contracts: []contract.Contract{{Capability: "letter.send", Class: contract.Irreversible,
			Deliver: &contract.Deliver{With: map[string]any{"to": "=input.to"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	shut = new(atomic.Bool)
	if err := s.worker.Handle("letter.send", func(_ context.Context, c api.Command) (worker.Result, error) {
		if shut.Load() && strings.Contains(string(c.Arguments), "nowhere") {
			return worker.Result{}, worker.Stop(errors.New("no such address"))
		}
		return worker.Result{}, nil
	}); err != nil {
		t.Fatal(err)
	}
	return agent, shut
}

// staged begins a plan with letters in it, to whom they are called.
func staged(t *testing.T, agent *coordinator.Coordinator, id string, letters ...string) *coordinator.Plan {
	t.Helper()
	p, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: id, Owner: "post"})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range letters {
		if err := p.Stage(t.Context(), coordinator.Action{ID: to, Capability: "letter.send",
			Input: map[string]string{"to": to}}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func committed(t *testing.T, p *coordinator.Plan) {
	t.Helper()
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Delivered(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsStagedIsToldInWordsOfItsOwn: no command calls it an undo, and each says in which plan it
// is delivered.
func TestWhatIsStagedIsToldInWordsOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	agent, shut := newPost(t, s)
	defer agent.Close(context.WithoutCancel(t.Context()))
	p := staged(t, agent, "p", "ann", "bob")
	says(t, s.run(t, cli.ExitGood, "plan tree p"),
		"1 (ann) letter.send  not made  ── staged: made once the plan is committed")
	says(t, s.run(t, cli.ExitGood, "plan preview p"), "ends failed",
		"a commit would deliver: ann, bob")
	says(t, s.run(t, cli.ExitGood, "plan why p"), "plan p was opened")
	committed(t, p)
	says(t, s.run(t, cli.ExitGood, "plan show p"), "committed since", ", delivered as p~0", "completed  ── delivered")
	r := s.run(t, cli.ExitGood, "plan show p~0")
	says(t, r, "delivered since", ", delivers p (plan p was committed)",
		"delivered 2 · dropped 0", "made by     letter.send")
	never(t, r, "undo", "compensated", "skipped")
	r = s.run(t, cli.ExitGood, "plan why p~0")
	says(t, r, "it delivers what is staged in the committed plan p", "the plan was committed",
		"delivered by attempt 1 by worker hotel", "the deliveries ended delivered: 2 delivered, 0 dropped")
	never(t, r, "undo", "undone", "lease")
	says(t, s.run(t, cli.ExitGood, "undo ls --plan p~0"), "MADE BY", "letter.send")
	says(t, s.run(t, cli.ExitLook, "plan preview p~0"), "plan p~0 delivers plan p: preview that one")
	// the numbers are those of the committed plan
	says(t, s.run(t, cli.ExitLook, "plan preview p"), "1      1 (ann)  quarantine  letter.send",
		"1      2 (bob)  quarantine  letter.send",
		"irreversible: letter.send was delivered by plan p~0 and has no inverse")
	says(t, s.run(t, cli.ExitGood, "plan ls --state delivered"), "p~0")

	shut.Store(true)
	committed(t, staged(t, agent, "q", "nowhere", "cy"))
	says(t, s.run(t, cli.ExitGood, "plan tree q"), "quarantined: in plan q~0", "delivering")
	says(t, s.run(t, cli.ExitLook, "plan tree q~0"), "not made  ── to be delivered",
		"waits for what is delivered before it",
		"held 2 · delivered 0 · dropped 0 · quarantined 1")
	says(t, s.run(t, cli.ExitGood, "plan why q~0"),
		"cy is to be delivered and waits for what is delivered before it: ",
		"not delivered: cy, nowhere")
	says(t, s.run(t, cli.ExitLook, "quarantine show q nowhere"),
		"sagenbaum quarantine show q~0 nowhere; it is answered there")
	r = s.run(t, cli.ExitLook, "quarantine show q~0 nowhere")
	says(t, r, "staged: a worker makes it, and its agent does not call it",
		"its delivery", "has letter.send make it again",
		"it needs no delivery any more", "then        delivers 1 (cy) letter.send")
	never(t, r, "undo", "undone")
	says(t, s.run(t, cli.ExitLook, "plan preview q -o json"), `"deliveries":`, `"cy"`)
}

// TestUndoDropsWhatIsStaged also where nothing else is in the plan, and says so.
func TestUndoDropsWhatIsStaged(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	agent, _ := newPost(t, s)
	defer agent.Close(context.WithoutCancel(t.Context()))
	staged(t, agent, "p", "ann", "bob")
	says(t, s.run(t, cli.ExitGood, "undo --last 1 --dry-run"), "would: 2 staged and dropped", "ends failed",
		"drops what is staged, which is then never made: ann, bob")
	s.run(t, cli.ExitGood, "undo --last 1 --yes --reason wrong")
	says(t, s.run(t, cli.ExitGood, "plan tree p"), "dropped")
}

// TestADeliveryIsStoppedByACancel: what was not sent is dropped, and why tells who has stopped it.
func TestADeliveryIsStoppedByACancel(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	agent, shut := newPost(t, s)
	defer agent.Close(context.WithoutCancel(t.Context()))
	shut.Store(true)
	committed(t, staged(t, agent, "q", "nowhere", "cy"))
	says(t, s.run(t, cli.ExitGood, "plan cancel --help"), "Of PLAN~0, which delivers what is staged")
	s.run(t, cli.ExitLook, "plan cancel q~0 --reason 'wrong list' --actor ana --wait")
	says(t, s.run(t, cli.ExitLook, "plan show q~0"), "delivers q, stopped (wrong list")
	says(t, s.run(t, cli.ExitGood, "plan why q~0"), "its deliveries were stopped by ana: wrong list",
		"cy is to be dropped and waits for what is delivered before it")
	for _, of := range []string{"q", "q~0"} {
		r := s.run(t, map[string]int{"q": cli.ExitGood, "q~0": cli.ExitLook}[of], "plan tree "+of)
		says(t, r, "letter.send       not made  ── to be dropped")
		never(t, r, "delivering", "to be delivered")
	}
	says(t, s.run(t, cli.ExitLook, "plan show q~0"), "not made, to be dropped")
	never(t, s.run(t, cli.ExitLook, "plan preview q"), "to be delivered")
	r := s.run(t, cli.ExitLook, "quarantine show q~0 nowhere")
	says(t, r, "then        drops 1 (cy) letter.send; --halt leaves that as it is",
		"retry       refused now: there is nothing to retry: the deliveries of plan q were stopped at ")
	never(t, r, "make it again", "then        delivers", "quarantine retry")
	s.run(t, cli.ExitConflict, "quarantine retry q~0 nowhere --force --reason x", "were stopped at ")
	s.run(t, cli.ExitGood, "quarantine skip q~0 nowhere --reason gone --actor ana")
	says(t, s.run(t, cli.ExitGood, "plan tree q"), "resolved: in plan q~0", "dropped")
	if got := s.plan(t, "q~0").State; got != ledger.StateResolved {
		t.Errorf("q~0 is %s", got)
	}
}

// TestWhatWasDeliveredIsNotSentAgain when its plan is undone: it is its owner's, who has nothing to
// retry.
func TestWhatWasDeliveredIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	agent, _ := newPost(t, s)
	defer agent.Close(context.WithoutCancel(t.Context()))
	p := staged(t, agent, "p", "ann")
	if err := p.Report(t.Context(), coordinator.Action{Capability: "letter.send"}, coordinator.Outcome{}); err != nil {
		t.Fatal(err)
	}
	committed(t, p)
	s.run(t, cli.ExitLook, "plan unwind p --reason no --wait")
	says(t, s.run(t, cli.ExitLook, "plan tree p~1"),
		"staged       ── skipped: staged: it is delivered, or dropped, as plan p~0",
		"letter.send was delivered by plan")
	says(t, s.run(t, cli.ExitLook, "quarantine show p~0 ann"),
		"refused now: there is nothing to retry: letter.send was delivered",
		"records that it was undone by other means")
	s.run(t, cli.ExitFailed, "quarantine retry p~0 ann --reason x", "letter.send was delivered")
}

// never wants words not to be said.
func never(t *testing.T, r cmdtest.Result, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(r.Stdout, word) {
			t.Errorf("it says %q:\n%s", word, r.Stdout)
		}
	}
}

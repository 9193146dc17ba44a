package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/quarantine"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
)

// S28: an operator has a quarantined undo tried again; it goes on where it was, and
// the rest of the plan with it.
func TestS28RetryByAnOperatorRecovers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() { s.free = protected })
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge", "room.book")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait", "next: sagenbaum doctor --plan p1")
	s.run(t, cli.ExitUsage, "quarantine retry p1 2", "--reason")
	s.now(func() { s.free = cmdtest.Done })
	r := s.run(t, cli.ExitGood, "quarantine retry p1 2 --reason 'no longer protected' --actor ana")
	says(t, r, "p1 action 2 (room.book) is tried again, as told by ana", "plan now compensated")
	undos := cmdtest.Decoded[api.UndosAnswer](t, s.run(t, cli.ExitGood, "undo ls --plan p1 --action 2 -o json"))
	if len(undos.Undos) != 2 || undos.Undos[0].State != "failed" || undos.Undos[1].State != "done" ||
		undos.Undos[0].Key != undos.Undos[1].Key {
		t.Errorf("the attempts are %+v, want one that failed, one that is done, under one key", undos.Undos)
	}
	s.run(t, cli.ExitConflict, "quarantine retry p1 2 --reason again", "nothing of it is owed")
}

// TestARetryUnderANewKeyIsAsked: what the provider answers by the key it is asked once more under
// another one, which each attempt is shown with.
func TestARetryUnderANewKeyIsAsked(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	stored := ""
	s.now(func() { // it stores its error under the key
		s.free = func(ctx context.Context, c api.Command) (worker.Result, error) {
			if stored == "" {
				stored = c.Key
			}
			if c.Key == stored {
				return protected(ctx, c)
			}
			return worker.Result{}, nil
		}
	})
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge", "room.book")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	s.run(t, cli.ExitGood, "quarantine retry p1 2 --reason 'no longer protected' --actor ana")
	says(t, s.run(t, cli.ExitLook, "quarantine show p1 2"), "with --new-key under another one, and perhaps twice")
	r := s.run(t, cli.ExitGood, "quarantine retry p1 2 --reason 'it stands' --actor ana --new-key")
	says(t, r, "p1 action 2 (room.book) is tried again under a new key, as told by ana", "plan now compensated")
	undos := cmdtest.Decoded[api.UndosAnswer](t, s.run(t, cli.ExitGood, "undo ls --plan p1 --action 2 -o json"))
	if u := undos.Undos; len(u) != 3 || u[0].Key != stored || u[1].Key != stored || u[2].Key == stored ||
		u[2].State != "done" {
		t.Errorf("the attempts are %+v, want two under one key and one that is done under another", u)
	}
	says(t, s.run(t, cli.ExitGood, "plan why p1"), "under a new key")
	s.run(t, cli.ExitConflict, "quarantine retry p1 2 --reason again --new-key", "nothing of it is owed")
}

// S29: while an attempt that had no answer may be at work, a retry is refused and
// says until when; --force is a decision of its own.
func TestS29ForceIsASeparateDecision(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	given := make(chan api.Command, 16)
	s.now(func() { // at work beyond its time: an answer would race the executor's own clock
		s.shut = func(_ context.Context, c api.Command) (worker.Result, error) {
			given <- c
			<-release
			return worker.Result{}, nil
		}
	})
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "safe.open")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	until := time.Now().Add(time.Hour)
	progress := fmt.Sprintf(
		`{"records":[{"plan":"p1","action":"1","compensationProgressed":{"attempt":1,"key":%q,"token":%q,"untilNs":"%d"}}]}`,
		s.plan(t, "p1").Actions[0].Key, (<-given).ReportToken, until.UnixNano())
	said := &nats.Msg{Subject: "saga.default.worker.hotel",
		Header: nats.Header{"Content-Type": {ledger.ContentTypeJSON}}, Data: []byte(progress)}
	stored, err := s.conn.RequestMsgWithContext(t.Context(), said)
	if err != nil {
		t.Fatal(err)
	}
	var ack struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(stored.Data, &ack); err != nil || ack.Seq == 0 {
		t.Fatalf("the worker's record was answered with %s", stored.Data)
	}
	c := &cli.Client{Conn: s.conn, Tenant: "default", Server: s.URL, Timeout: testenv.Patience}
	if _, err := c.Plan(t.Context(), "p1", ack.Seq); err != nil {
		t.Fatal(err)
	}
	before := s.kept(t)
	clock := cli.Moment(until.UnixNano())
	s.run(t, cli.ExitConflict, "quarantine retry p1 1 --reason 'go on'",
		"attempt 1 of action 1 had no answer and may be at work until "+clock, "--force is a decision of its own")
	if s.kept(t) != before {
		t.Error("a retry that the command line refused reached the ledger")
	}
	says(t, s.run(t, cli.ExitLook, "quarantine show p1 1"), "refused now: attempt 1 of action 1 had no answer",
		"--force is a decision of its own", "in_doubt")
	_, _, err = c.Operate(t.Context(), "ana",
		cli.OwnerWord{As: cli.AnswerRetry, Reason: "x", Actor: "ana"}.Record("p1", "1"))
	var f *cli.Failure
	if !errors.As(err, &f) || f.Code != cli.ExitConflict || !strings.Contains(f.Text, "may be at work until") {
		t.Errorf("without the check of the command line the retry ended with %v, want a conflict", err)
	}
	let()
	says(t, s.run(t, cli.ExitGood, "quarantine retry p1 1 --reason 'its machine is gone' --actor ana --force"),
		"is tried again, as told by ana", "plan now compensated")
}

// S46, S52: looking at a quarantine, any number of times and in every way, changes
// nothing and finds the same; nothing is tried again by itself.
func TestS46S52LookingTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() { s.free = protected })
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge", "room.book")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	before := s.kept(t)
	for _, line := range []string{"quarantine ls", "quarantine show p1 2", "doctor --plan p1", "plan preview p1",
		"undo ls --plan p1", "plan show p1"} {
		first := s.Ask(t, "default", append(words(line), "-o", "json")...)
		second := s.Ask(t, "default", append(words(line), "-o", "json")...)
		if first != second {
			t.Errorf("%s says\n%s\nand then\n%s", line, first.Stdout, second.Stdout)
		}
	}
	s.run(t, cli.ExitLook, "doctor")
	s.run(t, cli.ExitLook, "doctor")
	if after := s.kept(t); after != before {
		t.Errorf("looking has changed the ledger from\n%s\nto\n%s", before, after)
	}
}

// S44, S54: what is shown of a quarantine names the target, the kind and the cause,
// what each answer would do, and what to type.
func TestS44S54AQuarantineIsReadable(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() { s.free = protected })
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel", Label: "to the sea"}, "card.charge", "room.book")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait --actor ana")
	r := s.run(t, cli.ExitLook, "quarantine show p1 2")
	says(t, r, "p1 2 room.book  quarantined since ", "the room is protected", "owner       travel", `"amount":120`,
		`"id":"pi_1"`,
		"exact", "room.free", "attempt 1", "failed after ", "worker hotel",
		"asks room.free again, 2 attempts, same key", "then        undoes 1 card.charge; --halt leaves that as it is",
		"sagenbaum quarantine retry p1 2 --reason WHY --actor NAME",
		"sagenbaum quarantine resolve p1 2 --as done --reason WHY --evidence REF --actor NAME",
		"sagenbaum quarantine skip p1 2 --reason WHY --actor NAME")
	o := cmdtest.Decoded[quarantine.Obligation](t, s.run(t, cli.ExitLook, "quarantine show p1 2 -o json"))
	if len(o.Answers) != 5 || len(o.Attempts) != 1 || o.Attempts[0].State != "failed" || len(o.Waiting) != 1 ||
		o.Plan.Owner != "travel" {
		t.Errorf("in JSON it is %+v", o)
	}
	s.run(t, cli.ExitFailed, "quarantine show p1 9", "it has 1, 2", "next: sagenbaum plan tree p1")
	s.run(t, cli.ExitFailed, "quarantine show nowhere 1", "next: sagenbaum plan ls")
}

// S51: the failure reaches the counts and the exit codes of every command.
func TestS51TheFailureReachesCountsAndExitCodes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() { s.free = protected })
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "room.book")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	for _, line := range []string{"status", "doctor", "quarantine ls", "quarantine show p1 1", "plan show p1",
		"plan tree p1", "doctor --plan p1"} {
		s.run(t, cli.ExitLook, line)
	}
	status := cmdtest.Decoded[status.TenantStatus](t, s.run(t, cli.ExitLook, "status -o json"))
	if status.Quarantined != 1 || len(status.Stuck) != 1 || status.Stuck[0].Plan != "p1" ||
		len(status.Stuck[0].Actions) != 1 {
		t.Errorf("the status is %+v", status)
	}
	says(t, s.run(t, cli.ExitLook, "status"), "1 quarantined", "p1, owner travel: 1 room.book")
	if n := strings.Count(s.kept(t), `"kind":"action_quarantined"`); n != 1 {
		t.Errorf("%d records say that the action is quarantined, want 1", n)
	}
}

// S106: an operator ends an obligation by its id, with an outcome, a reason and
// evidence; the record keeps all of it.
func TestS106AnObligationIsResolvedByIdAndOutcome(t *testing.T) {
	t.Parallel()
	for _, as := range cli.Resolutions {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			defer s.stop(t)
			s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "room.book", "mail.send")
			s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
			before := s.kept(t)
			line := fmt.Sprintf("quarantine resolve p1 2 --as %s --reason 'by phone'", as)
			s.run(t, cli.ExitUsage, line, "--evidence ticket:OPS-91; or sagenbaum quarantine skip")
			s.run(t, cli.ExitUsage, "quarantine resolve p1 2 --evidence x --as "+as, "--reason")
			s.run(t, cli.ExitFailed, "quarantine retry p1 2 --reason x",
				"there is nothing to retry: mail.send has no inverse")
			if s.kept(t) != before {
				t.Error("an answer that was refused by the command line reached the ledger")
			}
			r := s.run(t, cli.ExitGood, line+" --evidence ticket:OPS-91 --actor ana")
			says(t, r, "p1 action 2 (mail.send) resolved as "+as+" by ana, evidence ticket:OPS-91", "plan now resolved")
			a := s.plan(t, "p1").Actions
			if a[1].Resolution != as || a[1].ResolvedBy != "ana" || a[1].Evidence != "ticket:OPS-91" ||
				a[1].ResolvedReason != "by phone" || a[0].Undo != "compensated" {
				t.Errorf("the actions are %+v", a)
			}
			says(t, s.run(t, cli.ExitGood, "quarantine show p1 2"), as+" by ana: by phone, evidence ticket:OPS-91")
			s.run(t, cli.ExitConflict, line+" --evidence ticket:OPS-92", "nothing of it is owed")
		})
	}
}

func TestSkipClaimsNothingAndGoesOn(t *testing.T) {
	t.Parallel()
	const halt = coordinator.HaltOnUndoFailure // before there is an answer, nothing is undone
	s := newScene(t)
	defer s.stop(t)
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel", OnUndoFailure: halt}, "room.book", "mail.send")
	s.trip(t, coordinator.PlanSpec{ID: "p2", Owner: "travel", OnUndoFailure: halt}, "room.book", "mail.send")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	s.run(t, cli.ExitLook, "plan unwind p2 --reason 'no trip' --wait")
	r := s.run(t, cli.ExitGood, "quarantine skip p1 2 --reason 'nobody read it' --actor ana")
	says(t, r, "p1 action 2 (mail.send) skipped by ana", "plan now resolved")
	if a := s.plan(t, "p1").Actions; a[0].Undo != "compensated" || a[1].Resolution != "skipped" {
		t.Errorf("the actions are %+v", a)
	}
	s.run(t, cli.ExitGood, "quarantine skip p2 2 --reason 'leave it all' --halt")
	if a := s.plan(t, "p2").Actions; a[0].Undo == "compensated" {
		t.Errorf("--halt undid what the action came after: %+v", a)
	}
}

// An answer counts when a second operator has given the same; the first is told so,
// and that it is not enough to say it twice or something else.
func TestAPlanOfTwoOperatorsWaitsForTheSecond(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel", SecondApprover: true}, "room.book", "mail.send")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	resolve := "quarantine resolve p1 2 --reason 'by phone' --evidence ticket:OPS-91"
	r := s.run(t, cli.ExitLook, resolve+" --as accepted --actor ana",
		"next: sagenbaum quarantine resolve p1 2 --as accepted")
	says(t, r, "accepted proposed by ana", "waits for a second operator")
	again := s.run(t, cli.ExitLook, resolve+" --as accepted --actor ana")
	says(t, again, "it takes another operator to confirm")
	other := s.run(t, cli.ExitLook, resolve+" --as lost --actor ben")
	says(t, other, "it differs from what ana proposed (accepted), and takes its place")
	says(t, s.run(t, cli.ExitLook, "quarantine show p1 2"),
		"lost by ben; it counts when another operator has given the same answer", "a second operator has to agree")
	says(t, s.run(t, cli.ExitLook, "plan tree p1"), "lost proposed by ben, waits for a second operator",
		"answers take a second operator")
	says(t, s.run(t, cli.ExitLook, "quarantine ls"), "lost proposed by ben")
	proposal := cmdtest.Decoded[quarantine.Answered](t, s.run(t, cli.ExitLook, resolve+" --as lost --actor ben -o json"))
	if !strings.HasPrefix(proposal.Proposal, "lost by ben") || proposal.State != ledger.StateQuarantined {
		t.Errorf("the proposal is %+v", proposal)
	}
	says(t, s.run(t, cli.ExitGood, resolve+" --as lost --actor ana"), "resolved as lost by ana", "plan now resolved")
}

// An answer that somebody else gave first is a conflict, also when both were under
// way at once.
func TestOneOfTwoAnswersWins(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "mail.send")
	s.run(t, cli.ExitLook, "plan unwind p1 --reason 'no trip' --wait")
	codes := make(chan int)
	for _, actor := range []string{"ana", "ben", "cem"} {
		command := cmdtest.Sagenbaum(t, "quarantine", "skip", "p1", "1", "--reason", "race", "--actor", actor, "--server",
			s.URL)
		go func() {
			if err := command.Run(); err != nil && command.ProcessState == nil {
				codes <- -1
				return
			}
			codes <- command.ProcessState.ExitCode()
		}()
	}
	won := 0
	for range 3 {
		switch code := <-codes; code {
		case cli.ExitGood:
			won++
		case cli.ExitConflict:
		default:
			t.Errorf("an answer ended with %d", code)
		}
	}
	if won != 1 {
		t.Errorf("%d answers won, want 1", won)
	}
}

// What a worker answered reaches the terminal of its owner as text only.
func TestWhatAWorkerAnsweredReachesTheOwnerAsTextOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.now(func() {
		s.free = func(context.Context, api.Command) (worker.Result, error) {
			return worker.Result{}, worker.Stop(errors.New(evil))
		}
	})
	s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: evil, Label: evil}, "room.book")
	s.run(t, cli.ExitLook, "plan unwind p1 --wait --reason '"+strings.ReplaceAll(evil, "'", "")+"'")
	for _, line := range []string{
		"quarantine ls", "quarantine show p1 1", "doctor --plan p1", "doctor", "status", "undo ls --plan p1",
		"plan tree p1", "plan preview p1",
		"quarantine skip p1 1 --reason x",
	} {
		r := s.Ask(t, "default", words(line)...)
		checkPrintable(t, line, r.Stdout+r.Stderr)
	}
}

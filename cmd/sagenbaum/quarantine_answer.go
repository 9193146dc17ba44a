package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The answers that an owner can give to a quarantine.
const (
	answerRetry    = "retry"
	answerDone     = "done"
	answerLost     = "lost"
	answerAccepted = "accepted"
	answerSkipped  = "skipped"
)

// resolutions are the answers of `quarantine resolve`: each claims something and
// so names its evidence.
var resolutions = []string{answerDone, answerLost, answerAccepted}

// ownerWord is what the owner says about one quarantined action.
type ownerWord struct {
	as                      string
	reason, evidence, actor string
	halt, force             bool
}

func (w ownerWord) record(plan, action string) *pb.Record {
	r := &pb.Record{Plan: plan, Action: action}
	outcome := pb.Resolution_RESOLUTION_UNSPECIFIED
	switch w.as {
	case answerRetry:
		r.Kind = &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Reason: w.reason, Actor: w.actor, Force: w.force}}
		return r
	case answerDone:
		outcome = pb.Resolution_RESOLUTION_DONE
	case answerLost:
		outcome = pb.Resolution_RESOLUTION_LOST
	case answerAccepted:
		outcome = pb.Resolution_RESOLUTION_ACCEPTED
	case answerSkipped:
		outcome = pb.Resolution_RESOLUTION_SKIPPED
	}
	r.Kind = &pb.Record_Resolved{Resolved: &pb.Resolved{Outcome: outcome, Reason: w.reason, Evidence: w.evidence, Actor: w.actor, Halt: w.halt}}
	return r
}

// check refuses what is missing on the command line, before anything is sent.
func (w ownerWord) check() error {
	if w.reason == "" {
		return fail(exitUsage, `--reason "deleted by hand"`, "the owner's answer needs a reason")
	}
	return checkActor(w.actor)
}

// flags are those that every answer has.
func (w *ownerWord) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&w.actor, "actor", defaultActor(), "`NAME` of the operator who answers; the server lets it write under that name or not")
}

func newQuarantineRetry(s *settings) *cobra.Command {
	w := ownerWord{as: answerRetry}
	cmd := &cobra.Command{
		Use:   "retry PLAN ACTION",
		Short: "Let the undo of a quarantined action go on, with its attempts again",
		Long: `Let the undo of a quarantined action go on, with its contract's attempts again and
under the same idempotency key. ACTION is its number in the plan or its id. It is
also the owner's word for what waited for one: a pivot, a contract that asks for
approval, an undo window that has closed.

While an attempt that had no answer may still be at work the retry is refused, and
says until when. --force is a decision of its own: give it when you know that no
worker is at it any more, or that two at once do no harm.`,
		Example: `  sagenbaum quarantine retry 01JD3BX7 4 --reason "the branch is no longer protected" --actor operator1
  sagenbaum quarantine retry 01JD3BX7 4 --reason "the worker's machine is gone" --actor operator1 --force`,
		Args:              exactly("PLAN", "ACTION"),
		ValidArgsFunction: completePlans(s, "quarantine.ls"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			return answerQuarantine(cmd, s, args[0], args[1], w)
		},
	}
	w.flags(cmd)
	cmd.Flags().BoolVar(&w.force, "force", false, "also while an attempt may still be at work")
	return cmd
}

func newQuarantineResolve(s *settings) *cobra.Command {
	var w ownerWord
	cmd := &cobra.Command{
		Use:   "resolve PLAN ACTION",
		Short: "Say, as its owner, how a quarantined action ended",
		Long: `Say, as its owner, how a quarantined action ended. ACTION is its number in
the plan or its id.

  done      it was undone by other means
  lost      it cannot be undone any more
  accepted  the effect stays, deliberately

Each is a claim and names its evidence; 'quarantine skip' claims nothing. What the
action came after is undone next, unless --halt leaves it as it is. The resolution
is a record; exit code 75 means that another one was first.

A plan that asks for a second approver waits until another operator has given the
same answer; the command says so and ends with 1.`,
		Example: `  sagenbaum quarantine resolve 01JD3BX7 4 --as done --reason "deleted by hand" --evidence ticket:OPS-91 --actor operator1
  sagenbaum quarantine resolve 01JD3BX7 4 --as accepted --reason "the branch stays" --evidence ticket:OPS-92 --halt`,
		Args:              exactly("PLAN", "ACTION"),
		ValidArgsFunction: completePlans(s, "quarantine.ls"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			if err := oneOf("as", w.as, resolutions...); err != nil {
				return err
			}
			if w.evidence == "" {
				return fail(exitUsage, "--evidence ticket:OPS-91; or sagenbaum quarantine skip, which claims nothing", "%s is a claim and needs its evidence", w.as)
			}
			return answerQuarantine(cmd, s, args[0], args[1], w)
		},
	}
	cmd.Flags().StringVar(&w.as, "as", "", "`OUTCOME`: done, lost or accepted")
	w.flags(cmd)
	cmd.Flags().StringVar(&w.evidence, "evidence", "", "reference to the evidence, as ticket:OPS-91")
	cmd.Flags().BoolVar(&w.halt, "halt", false, "leave what this action came after as it is")
	fixedCompletion(cmd, "as", resolutions...)
	return cmd
}

func newQuarantineSkip(s *settings) *cobra.Command {
	w := ownerWord{as: answerSkipped}
	cmd := &cobra.Command{
		Use:   "skip PLAN ACTION",
		Short: "Have the unwind go on without a quarantined action, claiming nothing",
		Long: `Have the unwind go on without a quarantined action. Nothing is claimed about its
effect, which may stand; no evidence is asked for. What the action came after is
undone next, unless --halt leaves it as it is.`,
		Example: `  sagenbaum quarantine skip 01JD3BX7 4 --reason "a test mail, nobody has read it" --actor operator1
  sagenbaum quarantine skip 01JD3BX7 4 --reason "leave the whole release" --actor operator1 --halt`,
		Args:              exactly("PLAN", "ACTION"),
		ValidArgsFunction: completePlans(s, "quarantine.ls"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.check(); err != nil {
				return err
			}
			return answerQuarantine(cmd, s, args[0], args[1], w)
		},
	}
	w.flags(cmd)
	cmd.Flags().BoolVar(&w.halt, "halt", false, "leave what this action came after as it is")
	return cmd
}

// answered is what became of an owner's answer, as -o json prints it.
type answered struct {
	Plan   string `json:"plan"`
	Action string `json:"action"`
	Answer string `json:"answer"`
	By     string `json:"by"`
	Record uint64 `json:"record"` // sequence of the answer in the ledger
	// Proposal is set when the plan waits for a second operator to say the same.
	Proposal string `json:"proposal,omitempty"`
	api.OutcomeAnswer
}

func answerQuarantine(cmd *cobra.Command, s *settings, id, action string, w ownerWord) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.close()
	verb := map[string]string{answerRetry: "retry the undo", answerSkipped: "skip the action"}[w.as]
	if verb == "" {
		verb = "resolve the action"
	}
	return failed(verb, giveAnswer(cmd, s, c, id, action, w))
}

// pointsBack is what an answer refers to: the registration, and the quarantine that
// it answers, so that it never meets a later one.
func pointsBack(a executor.ActionView) (about, cause *pb.Address, err error) {
	if isOrphan(a) || a.QuarantinedAt == "" {
		return nil, nil, nil
	}
	if about, err = ledger.ParseAddress(a.About); err == nil {
		cause, err = ledger.ParseAddress(a.QuarantinedAt)
	}
	return about, cause, err
}

func giveAnswer(cmd *cobra.Command, s *settings, c *client, id, action string, w ownerWord) error {
	ctx := cmd.Context()
	plan, err := c.plan(ctx, id, 0)
	if err != nil {
		return err
	}
	found, err := findAction(plan, action)
	if err != nil {
		return err
	}
	if err := answerable(plan, found, w, time.Now()); err != nil {
		return err
	}
	result := answered{Plan: id, Action: found.Action, Answer: w.as, By: w.actor}
	record := w.record(id, found.Action)
	if record.About, record.Cause, err = pointsBack(found); err != nil {
		return err
	}
	result.OutcomeAnswer, result.Record, err = c.operate(ctx, w.actor, record)
	if err != nil {
		return err
	}
	if plan.SecondApprover {
		if result.Proposal, err = c.proposal(ctx, id, found.Action, result.Record); err != nil {
			return err
		}
	}
	if result.Proposal == "" {
		if result.OutcomeAnswer, err = c.settled(ctx, id, result.Record, result.OutcomeAnswer); err != nil {
			return err
		}
	}
	if s.json() {
		err = printJSON(cmd.OutOrStdout(), result)
	} else {
		writeAnswered(cmd, s.pen(cmd), forPeople(found), result, w)
	}
	if err == nil && result.Proposal != "" {
		return errLook
	}
	return err
}

// answerable says why an answer cannot be given as things stand, before anything
// is sent. The log has the last word.
func answerable(plan executor.PlanView, a executor.ActionView, w ownerWord, now time.Time) error {
	show := fmt.Sprintf("sagenbaum quarantine show %s %d", plan.Plan, a.Number)
	switch {
	case a.Child != "":
		return fail(exitFailed, "sagenbaum plan tree "+a.Child, "action %d of %s is plan %s: answer what is quarantined there", a.Number, plan.Plan, a.Child)
	case a.Undo != undoQuarantined && !a.Owed:
		return fail(exitConflict, "sagenbaum plan tree "+plan.Plan, "action %d of %s is %s: nothing of it is owed", a.Number, plan.Plan, a.Undo)
	case w.as != answerRetry:
		return nil
	case isOrphan(a):
		return fail(exitFailed, "sagenbaum quarantine resolve, or sagenbaum quarantine skip", "there is nothing to retry: %s", a.Note)
	case a.Compensation == "":
		return fail(exitFailed, show, "there is nothing to retry: %s has no inverse", a.Capability)
	case alive(a, now) && !w.force:
		return fail(exitConflict, fmt.Sprintf("wait until then; --force is a decision of its own (%s)", show),
			"attempt %d of action %d had no answer and may be at work until %s (%s)", a.Attempt, a.Number, moment(a.AliveNs), relative(a.AliveNs, now))
	}
	return nil
}

// alive reports whether an attempt without an answer may still be at work.
func alive(a executor.ActionView, now time.Time) bool { return a.AliveNs > now.UnixNano() }

// proposal is the answer that an action waits with for a second operator once
// the record at sequence is folded; empty when none is needed any more.
func (c *client) proposal(ctx context.Context, id, action string, sequence uint64) (string, error) {
	plan, err := c.plan(ctx, id, sequence)
	if err != nil {
		return "", err
	}
	for _, p := range plan.Proposals {
		if p.Action == action {
			return p.Answer + " by " + p.Operator, nil
		}
	}
	a, err := findAction(plan, action)
	if err != nil || a.Undo != undoQuarantined && !a.Owed {
		return "", nil // what is found no more is answered
	}
	return a.Proposal, nil
}

func writeAnswered(cmd *cobra.Command, p pen, a executor.ActionView, r answered, w ownerWord) {
	out := cmd.OutOrStdout()
	name := fmt.Sprintf("%s action %d (%s)", r.Plan, a.Number, capabilityOf(a))
	if isOrphan(a) {
		name = fmt.Sprintf("%s action %s (unregistered)", r.Plan, a.Action)
	}
	evidence := ""
	if w.evidence != "" {
		evidence = ", evidence " + printable(w.evidence)
	}
	if r.Proposal != "" {
		fmt.Fprintf(out, "%s: %s proposed by %s%s · record %d · waits for a second operator\n", name, answerWord(w.as+flagsOf(w)), w.actor, evidence, r.Record)
		if before, by := proposalOf(a); a.Proposal != "" && by != w.actor {
			fmt.Fprintf(out, "  it differs from what %s proposed (%s), and takes its place\n", by, answerWord(before))
		} else if a.Proposal != "" {
			fmt.Fprintf(out, "  %s has proposed before; it takes another operator to confirm\n", by)
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "  next:", confirmation(r.Plan, a, w), "(by the second operator)")
		return
	}
	said := "resolved as " + w.as
	switch w.as {
	case answerRetry:
		said = "is tried again, as told"
	case answerSkipped:
		said = "skipped"
	}
	fmt.Fprintf(out, "%s %s by %s%s · record %d · plan now %s\n", name, said, w.actor, evidence, r.Record, p.state(r.State))
	switch r.State {
	case ledger.StateQuarantined:
		fmt.Fprintln(cmd.ErrOrStderr(), "  next: sagenbaum doctor --plan "+r.Plan)
	case ledger.StateUnwinding:
		fmt.Fprintln(cmd.ErrOrStderr(), "  next: sagenbaum plan tree "+r.Plan)
	}
}

func answerWord(as string) string {
	as, flags, _ := strings.Cut(as, " ") // as in "skipped --halt"
	switch as {
	case answerRetry:
		as = "a retry"
	case answerSkipped:
		as = "a skip"
	}
	return strings.TrimSpace(as + " " + flags)
}

// confirmation is the command by which a second operator says the same.
func confirmation(plan string, a executor.ActionView, w ownerWord) string {
	return answerCommand(plan, a, w.as) + flagsOf(w)
}

// flagsOf are the flags that make an answer another one.
func flagsOf(w ownerWord) (flags string) {
	if w.halt {
		flags += " --halt"
	}
	if w.force {
		flags += " --force"
	}
	return flags
}

// answerCommand is the command line of an answer.
func answerCommand(plan string, a executor.ActionView, as string) string {
	action := fmt.Sprint(a.Number)
	if isOrphan(a) {
		action = a.Action
	}
	switch as {
	case answerRetry:
		return fmt.Sprintf("sagenbaum quarantine retry %s %s --reason WHY --actor NAME", plan, action)
	case answerSkipped:
		return fmt.Sprintf("sagenbaum quarantine skip %s %s --reason WHY --actor NAME", plan, action)
	default:
		return fmt.Sprintf("sagenbaum quarantine resolve %s %s --as %s --reason WHY --evidence REF --actor NAME", plan, action, as)
	}
}

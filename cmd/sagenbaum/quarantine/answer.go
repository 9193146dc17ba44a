package quarantine

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	plancmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

func newQuarantineRetry(s *cli.Settings) *cobra.Command {
	w := cli.OwnerWord{As: cli.AnswerRetry}
	cmd := &cobra.Command{
		Use:   "retry PLAN ACTION",
		Short: "Let the undo of a quarantined action go on, with its attempts again",
		Long: `Let the undo of a quarantined action go on, with its contract's attempts again and
under the same idempotency key. ACTION is its number in the plan or its id. It is
also the owner's word for what waited for one: a pivot, a contract that asks for
approval, an undo window that has closed.

While an attempt that had no answer may still be at work the retry is refused, and
says until when. --force is a decision of its own: give it when you know that no
worker is at it any more, or that two at once do no harm.

A provider may store its answer under the key, an error too, and give it again
without doing anything. --new-key has all attempts from here on carry another key,
which the ledger gives this retry alone. To the provider they are another undo: if
an earlier attempt was carried out, or is, it is done twice, as a second refund.
Give it when you have seen at the provider that the effect is still there, and that no
attempt is under way. What an attempt under the earlier key says later does not
count for the new one; if both say done, the owner hears of it.

What someone else has changed since the forward is asked about again, and comes back
while it is changed. --overwrite has it undone all the same, over what 'quarantine
show' says is there now: what that person wrote is gone then.`,
		Example: `  sagenbaum quarantine retry 01JD3BX7 4 --reason "the branch is no longer protected" --actor operator1
  sagenbaum quarantine retry 01JD3BX7 4 --reason "the worker's machine is gone" --actor operator1 --force
  sagenbaum quarantine retry 01JD3BX7 4 --reason "no refund there, its card was blocked" --actor operator1 --new-key
  sagenbaum quarantine retry 01JD3BX7 4 --reason "agreed with its editor" --actor operator1 --overwrite`,
		Args: cli.Exactly("PLAN", "ACTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.Check(); err != nil {
				return err
			}
			return answerQuarantine(cmd, s, args[0], args[1], w)
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&w.Force, "force", false, "also while an attempt may still be at work")
	cmd.Flags().BoolVar(&w.NewKey, "new-key", false,
		"under another idempotency key: a provider that has done it, or will, does it twice")
	cmd.Flags().BoolVar(&w.Overwrite, "overwrite", false,
		"also over what someone else has changed since")
	return cmd
}

func newQuarantineResolve(s *cli.Settings) *cobra.Command {
	var w cli.OwnerWord
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
		Args: cli.Exactly("PLAN", "ACTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.Check(); err != nil {
				return err
			}
			if err := cli.OneOf("as", w.As, cli.Resolutions...); err != nil {
				return err
			}
			if w.Evidence == "" {
				return cli.Fail(cli.ExitUsage,
					"--evidence ticket:OPS-91; or sagenbaum quarantine skip, which claims nothing",
					"%s is a claim and needs its evidence", w.As)
			}
			return answerQuarantine(cmd, s, args[0], args[1], w)
		},
	}
	cmd.Flags().StringVar(&w.As, "as", "", "`OUTCOME`: done, lost or accepted")
	w.Flags(cmd)
	cmd.Flags().StringVar(&w.Evidence, "evidence", "",
		"reference to the evidence, as ticket:OPS-91")
	cmd.Flags().BoolVar(&w.Halt, "halt", false, "leave what this action came after as it is")
	cli.FixedCompletion(cmd, "as", cli.Resolutions...)
	return cmd
}

func newQuarantineSkip(s *cli.Settings) *cobra.Command {
	w := cli.OwnerWord{As: cli.AnswerSkipped}
	cmd := &cobra.Command{
		Use:   "skip PLAN ACTION",
		Short: "Have the unwind go on without a quarantined action, claiming nothing",
		Long: `Have the unwind go on without a quarantined action. Nothing is claimed about its
effect, which may remain; no evidence is asked for. What the action came after is
undone next, unless --halt leaves it as it is.`,
		Example: `  sagenbaum quarantine skip 01JD3BX7 4 --reason "a test mail, no one has read it" --actor operator1
  sagenbaum quarantine skip 01JD3BX7 4 --reason "leave the whole release" --actor operator1 --halt`,
		Args: cli.Exactly("PLAN", "ACTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.Check(); err != nil {
				return err
			}
			return answerQuarantine(cmd, s, args[0], args[1], w)
		},
	}
	w.Flags(cmd)
	cmd.Flags().BoolVar(&w.Halt, "halt", false, "leave what this action came after as it is")
	return cmd
}

// Answered is what became of an owner's answer, as -o json prints it.
type Answered struct {
	Plan   string `json:"plan"`
	Action string `json:"action"`
	Answer string `json:"answer"`
	By     string `json:"by"`
	Record uint64 `json:"record"` // sequence of the answer in the ledger
	// Proposal is set when the plan waits for a second operator to say the same.
	Proposal string `json:"proposal,omitempty"`
	api.OutcomeAnswer
}

func answerQuarantine(cmd *cobra.Command, s *cli.Settings, id, action string,
	w cli.OwnerWord) error {
	return s.With(func(c *cli.Client) error {
		verb := map[string]string{cli.AnswerRetry: "retry the undo",
			cli.AnswerSkipped: "skip the action"}[w.As]
		if verb == "" {
			verb = "resolve the action"
		}
		return cli.Failed(verb, giveAnswer(cmd, s, c, id, action, w))
	})
}

// pointsBack is what an answer refers to: the registration, and the quarantine that
// it answers, so that it never meets a later one.
func pointsBack(a api.Action) (about, cause *pb.Address, err error) {
	if render.IsOrphan(a) || a.QuarantinedAt == "" {
		return nil, nil, nil
	}
	if about, err = ledger.ParseAddress(a.About); err == nil {
		cause, err = ledger.ParseAddress(a.QuarantinedAt)
	}
	return about, cause, err
}

func giveAnswer(cmd *cobra.Command, s *cli.Settings, c *cli.Client, id, action string,
	w cli.OwnerWord) error {
	ctx := cmd.Context()
	plan, err := c.Plan(ctx, id, 0)
	if err != nil {
		return err
	}
	found, err := render.FindAction(plan, action)
	if err != nil {
		return err
	}
	if err := answerable(plan, found, w, time.Now()); err != nil {
		return err
	}
	result := Answered{Plan: id, Action: found.Action, Answer: w.As, By: w.Actor}
	record := w.Record(id, found.Action)
	if record.About, record.Cause, err = pointsBack(found); err != nil {
		return err
	}
	result.OutcomeAnswer, result.Record, err = c.Operate(ctx, w.Actor, record)
	if err != nil {
		return err
	}
	if plan.SecondApprover {
		if result.Proposal, err = proposal(ctx, c, id, found.Action, result.Record); err != nil {
			return cli.Stored(result.Record, "sagenbaum plan show "+id, err)
		}
	}
	if result.Proposal == "" {
		if result.OutcomeAnswer, err = plancmd.Settled(ctx, c, id, result.Record,
			result.OutcomeAnswer); err != nil {
			return cli.Stored(result.Record, "sagenbaum plan show "+id, err)
		}
	}
	err = s.Print(cmd, result,
		func() { writeAnswered(cmd, s.Pen(cmd), cli.ForPeople(found), result, w) })
	return cli.Look(err, result.Proposal != "")
}

// answerable says why an answer cannot be given as things are, before anything
// is sent. The log has the last word.
func answerable(plan api.Plan, a api.Action, w cli.OwnerWord,
	now time.Time) error {
	show := "sagenbaum quarantine show " + plan.Plan + " " + render.ActionArg(a)
	number := render.NumberText(a)
	switch {
	case a.Child != "":
		return cli.Fail(cli.ExitFailed, "sagenbaum plan tree "+a.Child,
			"action %s of %s is plan %s: answer what is quarantined there", number, plan.Plan,
			a.Child)
	case a.Undo != cli.UndoQuarantined && !a.Owed:
		return cli.Fail(cli.ExitConflict, "sagenbaum plan tree "+plan.Plan,
			"action %s of %s is %s: nothing of it is owed", number, plan.Plan, a.Undo)
	case a.ForCommit && w.As == cli.AnswerLost:
		return cli.Fail(cli.ExitConflict, show, "nothing of plan %s is being undone: its commit waits; "+
			"want accepted (it is there, and stays), done (it is not there) or skipped", plan.Plan)
	case w.As != cli.AnswerRetry:
		return nil
	case a.ForCommit && a.Probe == "":
		return cli.Fail(cli.ExitFailed, show, "there is nothing to retry: %s has no probe",
			a.Capability)
	case a.ForCommit && (w.NewKey || w.Overwrite):
		return cli.Fail(cli.ExitConflict, show, "nothing of plan %s is being undone: its commit waits",
			plan.Plan)
	case render.IsOrphan(a):
		return cli.Fail(cli.ExitFailed,
			"sagenbaum quarantine resolve, or sagenbaum quarantine skip",
			"there is nothing to retry: %s", a.Note)
	case a.Compensation == "":
		return cli.Fail(cli.ExitFailed, show, "there is nothing to retry: %s has no inverse",
			a.Capability)
	case wasDelivered(a):
		return cli.Fail(cli.ExitFailed, show, "there is nothing to retry: %s was delivered",
			a.Capability)
	case render.Delivers(a) && plan.Stopped != "":
		return cli.Fail(cli.ExitConflict, show, "there is nothing to retry: the deliveries of plan %s "+
			"were stopped at %s", plan.Origin, plan.Stopped)
	case w.Overwrite && a.Unchanged == "":
		return cli.Fail(cli.ExitFailed, show,
			"there is nothing to overwrite: the contract of action %s has no unchanged", number)
	case w.NewKey && a.Attempt == 0:
		return cli.Fail(cli.ExitFailed, show,
			"there is no key to replace: no attempt of action %s was made", number)
	case render.Alive(a, now) && !w.Force:
		return cli.Fail(cli.ExitConflict,
			fmt.Sprintf("wait until then; --force is a decision of its own (%s)", show),
			"attempt %d of action %s had no answer and may be at work until %s (%s)", a.Attempt,
			number, cli.Moment(a.AliveNs), cli.Relative(a.AliveNs, now))
	}
	return nil
}

// proposal is the answer that an action waits with for a second operator once
// the record at sequence is folded; empty when none is needed any more.
func proposal(ctx context.Context, c *cli.Client, id, action string, sequence uint64) (string,
	error) {
	plan, err := c.Plan(ctx, id, sequence)
	if err != nil {
		return "", err
	}
	for _, p := range plan.Proposals {
		if p.Action == action {
			return p.Answer + " by " + p.Operator, nil
		}
	}
	a, err := render.FindAction(plan, api.ByID(action))
	if err != nil || a.Undo != cli.UndoQuarantined && !a.Owed {
		return "", nil // what is found no more is answered
	}
	return a.Proposal, nil
}

func writeAnswered(cmd *cobra.Command, p cli.Pen, a api.Action, r Answered,
	w cli.OwnerWord) {
	out := cmd.OutOrStdout()
	name := fmt.Sprintf("%s action %s (%s)", r.Plan, render.NumberText(a), render.CapabilityOf(a))
	if render.IsOrphan(a) {
		name = fmt.Sprintf("%s action %s (unregistered)", r.Plan, a.Action)
	}
	evidence := ""
	if w.Evidence != "" {
		evidence = ", evidence " + cli.Printable(w.Evidence)
	}
	if r.Proposal != "" {
		fmt.Fprintf(out, "%s: %s proposed by %s%s · record %d · waits for a second operator\n",
			name, render.AnswerWord(w.As+flagsOf(w)), w.Actor, evidence, r.Record)
		if before, by := render.ProposalOf(a); a.Proposal != "" && by != w.Actor {
			fmt.Fprintf(out, "  it differs from what %s proposed (%s), and takes its place\n", by,
				render.AnswerWord(before))
		} else if a.Proposal != "" {
			fmt.Fprintf(out, "  %s has proposed before; it takes another operator to confirm\n", by)
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "  next:", confirmation(r.Plan, a, w),
			"(by the second operator)")
		return
	}
	said := "resolved as " + w.As
	switch w.As {
	case cli.AnswerRetry:
		said = "is tried again, as told"
		if w.NewKey {
			said = "is tried again under a new key, as told"
		}
		if w.Overwrite {
			said += ", over what someone else has changed"
		}
	case cli.AnswerSkipped:
		said = "skipped"
	}
	fmt.Fprintf(out, "%s %s by %s%s · record %d · plan now %s\n", name, said, w.Actor, evidence,
		r.Record, p.State(r.State))
	switch r.State {
	case ledger.StateQuarantined:
		fmt.Fprintln(cmd.ErrOrStderr(), "  next: sagenbaum doctor --plan "+r.Plan)
	case ledger.StateUnwinding, ledger.StateDelivering:
		fmt.Fprintln(cmd.ErrOrStderr(), "  next: sagenbaum plan tree "+r.Plan)
	}
}

// confirmation is the command by which a second operator says the same.
func confirmation(plan string, a api.Action, w cli.OwnerWord) string {
	return answerCommand(plan, a, w.As) + flagsOf(w)
}

// flagsOf are the flags that make an answer another one.
func flagsOf(w cli.OwnerWord) (flags string) {
	if w.Halt {
		flags += " --halt"
	}
	if w.NewKey {
		flags += " --new-key"
	}
	if w.Overwrite {
		flags += " --overwrite"
	}
	if w.Force {
		flags += " --force"
	}
	return flags
}

// answerCommand is the command line of an answer.
func answerCommand(plan string, a api.Action, as string) string {
	action := render.ActionArg(a)
	switch as {
	case cli.AnswerRetry:
		return fmt.Sprintf("sagenbaum quarantine retry %s %s --reason WHY --actor NAME", plan,
			action)
	case cli.AnswerSkipped:
		return fmt.Sprintf("sagenbaum quarantine skip %s %s --reason WHY --actor NAME", plan,
			action)
	default:
		return fmt.Sprintf(
			"sagenbaum quarantine resolve %s %s --as %s --reason WHY --evidence REF --actor NAME",
			plan, action, as)
	}
}

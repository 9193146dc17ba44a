package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/spf13/cobra"
)

// DefaultActor is the name operators act under when they give none: that of the
// user who runs the command; empty when there is none that a subject can hold.
func DefaultActor() string {
	name := os.Getenv("USER")
	if name == "" {
		if current, err := user.Current(); err == nil {
			name = current.Username
		}
	}
	if !ledger.ValidToken(name) {
		return ""
	}
	return name
}

// CheckActor refuses a name that no operator's record may carry.
func CheckActor(actor string) error {
	if ledger.ValidToken(actor) {
		return nil
	}
	return Fail(ExitUsage, "--actor NAME of "+ledger.TokenWanted,
		"%q cannot act: an operator's record needs a name", actor)
}

// CheckWait refuses a --wait-timeout within which nothing can come; right is one to write instead.
func CheckWait(limit time.Duration, right string) error {
	if limit > 0 {
		return nil
	}
	return Fail(ExitUsage, "--wait-timeout "+right, "a wait of %s is none", limit)
}

// Operate appends one operator record and waits until the executor has folded
// it. Refused or void there means that the log decided otherwise: conflict.
func (c *Client) Operate(ctx context.Context, actor string, record *pb.Record) (api.OutcomeAnswer,
	uint64, error) {
	source := ledger.Source{Tenant: c.Tenant, Class: ledger.ClassOperator, Name: actor}
	sequence, err := c.AppendRecords(ctx, source, record)
	if err != nil {
		return api.OutcomeAnswer{}, 0, err
	}
	answer, err := c.Outcome(ctx,
		api.OutcomeQuery{Plan: record.Plan, Sequence: sequence,
			WaitMs: c.Timeout.Milliseconds() / 2})
	if err != nil {
		return answer, sequence, Stored(sequence, "sagenbaum plan show "+record.Plan, err)
	}
	if len(answer.Refused) > 0 {
		return answer, sequence, Fail(ExitConflict, "sagenbaum plan show "+record.Plan,
			"record %d has no effect: %s", sequence, strings.Join(answer.Refused, "; "))
	}
	return answer, sequence, nil
}

// Refusals asks why the record at a sequence, which may be of a plan, was refused; none: it was
// not. Whoever may append may ask that, and reads nothing else by it.
func (c *Client) Refusals(ctx context.Context, plan string, sequence uint64) ([]string, error) {
	reply, err := c.request(ctx, api.PlanOutcome.Subject(c.Tenant), api.OutcomeQuery{
		Plan: plan, Sequence: sequence, WaitMs: c.Timeout.Milliseconds() / 2})
	if err != nil {
		return nil, c.Explain("plan.outcome", err)
	}
	answer, err := api.PlanOutcome.Decode(reply.Data)
	// There may be no such plan, or none is named: what was folded is known all the same.
	if problem := new(api.Problem); errors.As(err, &problem) && answer.Applied >= sequence {
		err = nil
	}
	if err != nil {
		return nil, Fail(ExitFailed, "sagenbaum doctor", "%v", err)
	}
	return answer.Refused, nil
}

// Stored is an error of what follows an append, which says that the record is there and acts when a
// host goes on: who runs the command again would write another one. look shows what became of it.
func Stored(sequence uint64, look string, err error) error {
	if err == nil || sequence == 0 || errors.Is(err, context.Canceled) {
		return err
	}
	f := &Failure{Code: ExitFailed, Text: err.Error()}
	if errors.As(err, &f); f.Hint != "" {
		look = f.Hint + "; then " + look
	}
	code := f.Code
	if code == ExitFailed { // which says that nothing was done
		code = ExitLook
	}
	return Fail(code, look, "record %d is stored, and what became of it is not known: %s", sequence,
		f.Text)
}

// May reports whether the role of the credentials lets us ask a verb; where they do not say who we
// are, the server decides.
func (c *Client) May(verb string) bool {
	if c.self == nil || c.self.Role == "" {
		return true
	}
	self := access.User{Name: c.self.Name, Role: c.self.Role, Tenant: c.self.Tenant}
	return self.Publishes(api.QuerySubject(c.Tenant, verb))
}

// AppendRecords checks the records of one source, and appends them as one commit.
func (c *Client) AppendRecords(ctx context.Context, source ledger.Source,
	records ...*pb.Record) (uint64, error) {
	for _, record := range records {
		if err := ledger.Check(record, source); err != nil {
			return 0, err
		}
	}
	a, err := jetstream.NewAppend(source, records...)
	if err != nil {
		return 0, err
	}
	return c.Append(ctx, a)
}

// Append stores one commit. In doubt, it tries again with the same id: a second
// copy changes nothing.
func (c *Client) Append(ctx context.Context, a ledger.Append) (uint64, error) {
	ctx, cancel := c.Within(ctx)
	defer cancel()
	appender, err := jetstream.Attach(c.Conn, c.Tenant)
	if err != nil {
		return 0, err
	}
	sequence, err := appender.Append(ctx, a)
	if errors.Is(err, ledger.ErrInDoubt) && ctx.Err() == nil {
		sequence, err = appender.Append(ctx, a)
	}
	for errors.Is(err, ledger.ErrBusy) && !lasting(err) && Pause(ctx, busyPause) {
		sequence, err = appender.Append(ctx, a)
	}
	denied := c.Denied.Load()
	switch {
	case err == nil:
		return sequence, nil
	case denied != nil:
		hint := "credentials of an operator, with --creds FILE"
		switch source, _ := ledger.ParseSubject(a.Subject); source.Class {
		case ledger.ClassOperator:
			hint = operatorHint(c.self, source.Name)
		case ledger.ClassFact:
			hint = "--source NAME of one that your credentials may write as, or others with " +
				"--creds FILE"
		case ledger.ClassVerdict:
			hint = "credentials of a supervisor, with --creds FILE, and --by its name"
		}
		return 0, Fail(ExitNotAllowed, hint, "not allowed: %s", *denied)
	case errors.Is(err, ledger.ErrInDoubt):
		return 0, Fail(ExitFailed, "look before you try again: sagenbaum ledger tail",
			"it is not known whether the record was stored: %v", err)
	case errors.Is(err, jetstream.ErrNoStream):
		return 0, Fail(ExitNoServer, "sagenbaum serve --tenant "+c.Tenant,
			"tenant %s has no ledger at %s", c.Tenant, c.Server)
	case errors.Is(err, ledger.ErrFull):
		return 0, Fail(ExitFailed, "make room (sagenbaum doctor), then try again",
			"the record was not stored: %v", err)
	default:
		return 0, fmt.Errorf("cannot append the record: %w", err)
	}
}

// operatorHint is what an operator needs whose record was not let in: its own name, or credentials.
func operatorHint(self *access.Credentials, actor string) string {
	if self != nil && self.Role == access.Operator && self.Name != actor {
		return fmt.Sprintf("leave --actor out, or --actor %s: your credentials write under their "+
			"own name, and not as %s", self.Name, actor)
	}
	return "credentials of an operator, with --creds FILE"
}

// busyPause is how long a command waits before it tries a busy ledger again.
const busyPause = 100 * time.Millisecond

// lasting reports whether a busy ledger stays so until an operator acts.
func lasting(err error) bool {
	return errors.Is(err, jetstream.ErrNoStream) || errors.Is(err, ledger.ErrFull)
}

// The answers that an owner can give to a quarantine.
const (
	AnswerRetry    = "retry"
	AnswerDone     = "done"
	AnswerLost     = "lost"
	AnswerAccepted = "accepted"
	AnswerSkipped  = "skipped"
)

// Resolutions are the answers of `quarantine resolve`: each claims something and
// so names its evidence.
var Resolutions = []string{AnswerDone, AnswerLost, AnswerAccepted}

// OwnerWord is what the owner says about one quarantined action.
type OwnerWord struct {
	As                      string
	Reason, Evidence, Actor string
	Halt, Force, NewKey     bool
	Overwrite               bool
}

// Record is the operator record that says this about one action of a plan.
func (w OwnerWord) Record(plan, action string) *pb.Record {
	r := &pb.Record{Plan: plan, Action: action}
	outcome := pb.Resolution_RESOLUTION_UNSPECIFIED
	switch w.As {
	case AnswerRetry:
		r.Kind = &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Reason: w.Reason,
			Actor: w.Actor, Force: w.Force, NewKey: w.NewKey,
			Overwrite: w.Overwrite}}
		return r
	case AnswerDone:
		outcome = pb.Resolution_RESOLUTION_DONE
	case AnswerLost:
		outcome = pb.Resolution_RESOLUTION_LOST
	case AnswerAccepted:
		outcome = pb.Resolution_RESOLUTION_ACCEPTED
	case AnswerSkipped:
		outcome = pb.Resolution_RESOLUTION_SKIPPED
	}
	r.Kind = &pb.Record_Resolved{Resolved: &pb.Resolved{Outcome: outcome, Reason: w.Reason,
		Evidence: w.Evidence, Actor: w.Actor, Halt: w.Halt}}
	return r
}

// Check refuses what is missing on the command line, before anything is sent.
func (w OwnerWord) Check() error {
	if ledger.IsBlank(w.Reason) {
		return Fail(ExitUsage, `--reason "deleted by hand"`, "the owner's answer needs a reason")
	}
	return CheckActor(w.Actor)
}

// Flags are those that every answer has.
func (w *OwnerWord) Flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&w.Actor, "actor", DefaultActor(),
		"`NAME` of the operator who answers; the server decides who may write under it")
}

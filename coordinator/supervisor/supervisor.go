package supervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Outcome is what a verdict says.
type Outcome string

const (
	Allow    Outcome = "allow"    // the tool is called
	Block    Outcome = "block"    // it is not; what has happened is undone
	Redirect Outcome = "redirect" // as Block, and Verdict.Reason says what to do instead
)

// Verdict is a verdict on one action.
type Verdict struct {
	Plan, Action string  // required: their IDs
	Outcome      Outcome // required
	Reason       string  // the agent is told; required of Block, and of Redirect: what to do

	// WholePlan has a Block or a Redirect of an action that has happened undo its whole plan.
	// Without it that action is undone, with what came after it, and the plan goes on.
	WholePlan bool

	// ID is a ULID or a UUID of version 7 of this verdict: given twice, it counts once. Without one
	// each call is another verdict.
	ID string
}

// Given is a verdict that the ledger has taken.
type Given struct {
	Sequence uint64 // of its record
	State    string // of the plan then
	Outcome  string // of the action then: failed where its agent waits no more, completed and others

	// UndoneAs is the plan that undoes a committed one. UndoneIn is the plan that undoes an action
	// of a committed child which is not yet committed with its root: all of the child is undone in
	// it. A committed plan without either has nothing to undo for the verdict.
	UndoneAs, UndoneIn string
}

// Errors that a caller branches on, beside *ledger.Refused.
var (
	// ErrInDoubt means that the verdict may be stored. Give it again with the same ID.
	ErrInDoubt = ledger.ErrInDoubt
	// ErrUnconfirmed means that the verdict is stored, at Given.Sequence, and no executor has said
	// in time what it did.
	ErrUnconfirmed = errors.New("no executor has confirmed it")
	// ErrNotAllowed means that the user of the connection may not give verdicts under this name, or
	// not list what waits: nothing is stored.
	ErrNotAllowed = errors.New("the user of this connection may not do that under this name")
	// ErrConnectionClosed means that the connection is closed for good.
	ErrConnectionClosed = jetstream.ErrConnectionClosed
)

// Config is what New needs.
type Config struct {
	Conn   *nats.Conn // required; the caller keeps it and closes it
	Tenant string     // required
	Name   string     // required: under which the verdicts are given

	// Timeout bounds a call whose context has no deadline; default TimeoutDefault.
	Timeout time.Duration
}

// TimeoutDefault is the time that a call has without another one.
const TimeoutDefault = 30 * time.Second

// Times of one try of a call, which is tried again until its context ends.
const (
	tryTime   = 5 * time.Second
	foldTime  = 4 * time.Second // that a host waits for the record, before it says that it is behind
	tryPause  = 100 * time.Millisecond
	reviewMax = 1000 // actions that one question asks for
)

// Supervisor gives verdicts in one tenant, under one name. It is safe for concurrent use.
type Supervisor struct {
	conn     *nats.Conn
	appender *jetstream.Appender
	source   ledger.Source
	timeout  time.Duration
}

// New checks the configuration. It sends nothing. Errors: *ledger.Refused.
func New(config Config) (*Supervisor, error) {
	s := &Supervisor{conn: config.Conn, timeout: cmp.Or(config.Timeout, TimeoutDefault),
		source: ledger.Source{Tenant: config.Tenant, Class: ledger.ClassVerdict, Name: config.Name}}
	var err error
	switch {
	case !ledger.ValidToken(config.Name):
		err = ledger.Refuse("config.name", fmt.Sprintf("%q is not a name", config.Name),
			ledger.TokenWanted)
	case config.Timeout < 0:
		err = ledger.Refuse("config.timeout", config.Timeout.String(), "a positive duration, or 0")
	default:
		s.appender, err = jetstream.Attach(config.Conn, config.Tenant)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot judge: %w", err)
	}
	return s, nil
}

// Give records a verdict, and returns when an executor knows of it. The last verdict on an action
// counts.
//
// Errors: *ledger.Refused (a field is wrong, and nothing is stored; or the ledger has not taken the
// verdict: there is no such action, or an undo window has closed), ErrInDoubt, ErrUnconfirmed,
// ErrNotAllowed, ErrConnectionClosed, and what kept the ledger from storing it, where nothing is
// stored.
func (s *Supervisor) Give(ctx context.Context, v Verdict) (Given, error) {
	given, err := s.give(ctx, v)
	if err != nil {
		return given, fmt.Errorf("cannot give a verdict on action %q of plan %q: %w", v.Action, v.Plan,
			err)
	}
	return given, nil
}

func (s *Supervisor) give(ctx context.Context, v Verdict) (Given, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	record, err := v.record()
	if err == nil {
		err = ledger.Check(record, s.source)
	}
	if err != nil {
		return Given{}, err
	}
	commit, err := jetstream.NewAppend(s.source, record)
	if err != nil {
		return Given{}, err
	}
	sequence, err := s.append(ctx, commit)
	if err != nil {
		return Given{}, err
	}
	answer, err := s.outcome(ctx, api.OutcomeQuery{Plan: v.Plan, Sequence: sequence, Action: v.Action,
		WaitMs: foldTime.Milliseconds()})
	return Given{Sequence: sequence, State: answer.State, Outcome: answer.Outcome,
		UndoneAs: answer.UndoneAs, UndoneIn: answer.UndoneIn}, err
}

// record is the verdict as a record.
func (v Verdict) record() (*pb.Record, error) {
	outcome, known := ledger.VerdictOf(string(v.Outcome))
	switch {
	case !known:
		return nil, ledger.Refuse("verdict.outcome", fmt.Sprintf("%q", string(v.Outcome)),
			ledger.VerdictWanted)
	case ledger.IsBlank(v.Reason) && v.Outcome != Allow:
		return nil, ledger.Refuse("verdict.reason", "none, of what keeps an action from being done",
			"why, or what to do instead: the agent is told")
	case v.WholePlan && v.Outcome == Allow:
		return nil, ledger.Refuse("verdict.whole_plan", "given for what undoes nothing",
			"none, or block or redirect")
	}
	k := &pb.VerdictGiven{Outcome: outcome, Reason: v.Reason}
	if v.WholePlan {
		k.Scope = pb.Scope_SCOPE_PLAN
	}
	return &pb.Record{Plan: v.Plan, Action: v.Action, Id: v.ID,
		Kind: &pb.Record_VerdictGiven{VerdictGiven: k}}, nil
}

// within bounds a call whose context has no deadline.
func (s *Supervisor) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}

// append stores one commit: again with the same id until it is known to be stored.
func (s *Supervisor) append(ctx context.Context, commit ledger.Append) (uint64, error) {
	var doubt error
	for {
		try, cancel := context.WithTimeout(ctx, tryTime)
		sequence, err := s.appender.Append(try, commit)
		cancel()
		if err == nil {
			return sequence, nil
		}
		denied := errors.Is(err, jetstream.ErrDenied)
		uncertain := errors.Is(err, ledger.ErrInDoubt) && !denied
		switch {
		case denied && doubt == nil: // no earlier try may have stored it
			return 0, fmt.Errorf("%w: %s", ErrNotAllowed, commit.Subject)
		case uncertain:
			doubt = err
		}
		again := uncertain || errors.Is(err, ledger.ErrBusy) && !errors.Is(err, ledger.ErrFull)
		if !again || !s.mayTry(ctx) {
			return 0, cmp.Or(doubt, err)
		}
	}
}

// mayTry waits before another try; false: there is no time for one, or no connection any more.
func (s *Supervisor) mayTry(ctx context.Context) bool {
	if s.conn.IsClosed() {
		return false
	}
	pause.For(ctx, tryPause)
	return ctx.Err() == nil
}

// lasts reports whether an executor has answered with a problem that does not pass.
func lasts(err error) bool {
	var problem *api.Problem
	return errors.As(err, &problem) && !problem.Behind && !problem.Again
}

// outcome asks what a record has done until an executor says it.
func (s *Supervisor) outcome(ctx context.Context, q api.OutcomeQuery) (answer api.OutcomeAnswer,
	err error) {
	for {
		answer, err = ask(ctx, s, api.PlanOutcome, q)
		switch {
		case len(answer.Refused) > 0: // also of a plan that there is not
			return answer, ledger.Refuse("verdict", strings.Join(answer.Refused, "; "),
				"a verdict on an action that is registered, inside its undo window")
		case err == nil:
			return answer, nil
		case lasts(err), errors.Is(err, ErrNotAllowed): // to ask; the verdict is stored
			return answer, fmt.Errorf("%w: %v", ErrUnconfirmed, err)
		}
		if !s.mayTry(ctx) {
			return answer, fmt.Errorf("%w: %w", ErrUnconfirmed, err)
		}
	}
}

// ask puts one question to an executor.
func ask[Q, A any](ctx context.Context, s *Supervisor, verb api.Verb[Q, A], q Q) (answer A,
	err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	before, subject := s.conn.LastError(), verb.Subject(s.source.Tenant)
	reply, err := s.conn.RequestWithContext(ctx, subject, body)
	switch {
	case err != nil && jetstream.Denied(s.conn, subject, before):
		return answer, fmt.Errorf("%w: %s", ErrNotAllowed, subject)
	case err != nil:
		return answer, cmp.Or(jetstream.Closed(s.conn), err)
	}
	return verb.Decode(reply.Data)
}

// reviews asks for actions that wait for a verdict until an executor answers.
func (s *Supervisor) reviews(ctx context.Context, q api.ReviewQuery) (api.ReviewAnswer, error) {
	for {
		answer, err := ask(ctx, s, api.ReviewLs, q)
		if err == nil || lasts(err) || errors.Is(err, ErrNotAllowed) || !s.mayTry(ctx) {
			return answer, err
		}
	}
}

// Waiting returns the actions that wait for a verdict now, the one that has waited longest first:
// at most limit, 0 for all. The input of each is as its agent has recorded it; sensitive fields
// stay sealed. An input over 8 KiB is left out, and Omitted is set: [Supervisor.Show] has it. An
// agent can make an input that large, so allow no such action by what is in the list.
//
// It asks again until an executor answers or ctx ends. Errors: *ledger.Refused, ErrNotAllowed,
// ErrConnectionClosed, ctx's, and that no executor answers.
func (s *Supervisor) Waiting(ctx context.Context, limit int) ([]api.Review, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var all []api.Review
	q := api.ReviewQuery{Limit: reviewMax}
	for {
		if limit > 0 {
			q.Limit = min(reviewMax, limit-len(all))
		}
		answer, err := s.reviews(ctx, q)
		if err != nil {
			return all, fmt.Errorf("cannot list the actions that wait for a verdict: %w", err)
		}
		all = append(all, answer.Reviews...)
		if q.After = answer.Next; q.After == "" || limit > 0 && len(all) >= limit {
			return all, nil
		}
	}
}

// Show returns one action that waits for a verdict, by its id, with its whole input, and with what
// a block would undo, should it have happened: Block has the arguments of the action's own undo
// alone. waits is false where the action does not wait, or is not there.
//
// It asks again until an executor answers or ctx ends. Errors: *ledger.Refused, ErrNotAllowed,
// ErrConnectionClosed, ctx's, and that no executor answers.
func (s *Supervisor) Show(ctx context.Context, plan, action string) (v api.Review, waits bool,
	err error) {
	for _, name := range []string{plan, action} {
		if !ledger.ValidDerived(name) {
			return v, false, fmt.Errorf("cannot show an action: %w",
				ledger.Refuse("action", fmt.Sprintf("%.80q", name), "the ids of a plan and an action"))
		}
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	answer, err := s.reviews(ctx, api.ReviewQuery{Plan: plan, Action: api.ByID(action)})
	if err != nil {
		return v, false, fmt.Errorf("cannot show action %q of plan %q: %w", action, plan, err)
	}
	for _, v := range answer.Reviews {
		if v.Plan == plan && v.Action == action {
			return v, true, nil
		}
	}
	return v, false, nil
}

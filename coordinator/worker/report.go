package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Report tells the end of an undo that was answered with Working, as a record;
// problem is what the handler would have returned: nil, Stop(err) or any other
// error. It returns when the record is durable and tries until ctx ends; the
// error then wraps ledger.ErrInDoubt. Call it again to be sure: the fold keeps
// the first report of an attempt. Where the connection is closed for good it is
// ErrConnectionClosed at once, and ErrInDoubt too if it may be stored.
func (w *Worker) Report(ctx context.Context, c api.Command, result Result, problem error) error {
	record, err := w.reported(c, result, problem)
	if err != nil {
		return fmt.Errorf("cannot report on action %q: %w", c.Action, err)
	}
	source := ledger.Source{Tenant: w.tenant, Class: ledger.ClassWorker, Name: w.name}
	a, err := jetstream.NewAppend(source, record)
	if err == nil {
		err = w.append(ctx, a)
	}
	if err != nil {
		return fmt.Errorf("cannot report on action %q: %w", c.Action, err)
	}
	return nil
}

// Effect is what a worker has seen of the effect of an action.
type Effect struct {
	ExternalRef string          // what the provider calls it; empty: it has no name
	Duplicates  []string        // what it calls the others that are there: each is undone
	Output      json.RawMessage // what the forward would have returned; nil: it is not known
	Reason      string          // how this is known, for people; required
}

// ReportEffect tells that the effect of an action is there, whatever its agent has said: a worker
// that reads the provider's events may see it first. It returns as Report; what is known already
// counts once.
func (w *Worker) ReportEffect(ctx context.Context, plan, action string, e Effect) error {
	source := ledger.Source{Tenant: w.tenant, Class: ledger.ClassWorker, Name: w.name}
	record := &pb.Record{Plan: plan, Action: action,
		Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{
			ExternalRef: e.ExternalRef, Duplicates: e.Duplicates, Reason: e.Reason, Actor: w.name}}}
	if len(e.Output) > 0 {
		record.Payload = &pb.Payload{Output: e.Output}
	}
	err := ledger.Check(record, source)
	if err == nil {
		var a ledger.Append
		if a, err = jetstream.NewAppend(source, record); err == nil {
			err = w.append(ctx, a)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot report the effect of action %q: %w", action, err)
	}
	return nil
}

func (w *Worker) reported(c api.Command, result Result, problem error) (*pb.Record, error) {
	if c.Tenant != w.tenant {
		return nil, ledger.Refuse("command.tenant", fmt.Sprintf("%q", c.Tenant),
			"the worker's tenant "+w.tenant)
	}
	r := spoken(reply(result, problem), c)
	report := &pb.CompensationReported{Attempt: c.Attempt, Key: c.Key, Code: r.Code,
		Message: r.Message, ExternalRef: r.ExternalRef, Token: c.ReportToken}
	if t := result.Timing; t != (Timing{}) {
		report.Timing = &pb.Timing{SetupNs: t.Setup.Nanoseconds(), ToolNs: t.Tool.Nanoseconds(),
			LlmNs: t.LLM.Nanoseconds()}
	}
	switch r.Status {
	case api.StatusDone:
		report.Answer = pb.Answer_ANSWER_DONE
	case api.StatusFailed:
		report.Answer = pb.Answer_ANSWER_FAILED
	case api.StatusStop:
		report.Answer = pb.Answer_ANSWER_STOP
	case api.StatusChanged:
		report.Answer = pb.Answer_ANSWER_CHANGED
	default:
		return nil, ledger.Refuse("problem", r.Status, "an end: nil, Stop(err) or another error")
	}
	record := &pb.Record{Plan: c.Plan, Action: c.Action,
		Kind: &pb.Record_CompensationReported{CompensationReported: report}}
	if len(r.Output) > 0 {
		record.Payload = &pb.Payload{Output: r.Output}
	}
	return record, ledger.Check(record, ledger.Source{Tenant: w.tenant, Class: ledger.ClassWorker,
		Name: w.name})
}

// append tries the same commit with the same ID until its fate is known.
func (w *Worker) append(ctx context.Context, a ledger.Append) error {
	doubt := false
	for delay := reportDelayMin; ; delay = min(2*delay, reportDelayMax) {
		try, cancel := context.WithTimeout(ctx, reportAttemptMax)
		_, err := w.appender.Append(try, a)
		cancel()
		var refused *ledger.Refused
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrConnectionClosed) && doubt:
			return fmt.Errorf("%w: %w", ledger.ErrInDoubt, err)
		case errors.Is(err, ErrConnectionClosed):
			return err
		case errors.Is(err, ledger.ErrBusy):
		case errors.As(err, &refused) && !doubt:
			return err
		default:
			// A refusal of this try says nothing about an earlier one in doubt.
			doubt = true
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %v: %w", ledger.ErrInDoubt, err, ctx.Err())
		}
	}
}

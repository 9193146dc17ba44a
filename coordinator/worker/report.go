package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	if err := w.store(ctx, record); err != nil {
		return fmt.Errorf("cannot report on action %q: %w", c.Action, err)
	}
	return nil
}

// ProgressEvery is how often one undo may tell how far it is: each time it is a record for ever.
const ProgressEvery = 5 * time.Second

// Progress tells how far an undo is, whose command c is, as a record: people are shown note, which
// is cut at ledger.TextMax bytes, until the next one. until is when the undo may be at work yet;
// the zero time leaves what was said before. It may be called by the handler, and after Working.
//
// Of one undo at most one call within ProgressEvery makes a record; of the others nothing is kept,
// and they return nil. Otherwise it returns when the record is durable, with errors as Report has
// them. What is told of a command that has no report token, or of an attempt that another one has
// followed, is stored and shown to no one.
func (w *Worker) Progress(ctx context.Context, c api.Command, note string, until time.Time) error {
	record, err := w.progressed(c, note, until)
	if err != nil {
		return fmt.Errorf("cannot tell of action %q: %w", c.Action, err)
	}
	if !w.maySay(c.Key, time.Now()) {
		return nil
	}
	if err := w.store(ctx, record); err != nil {
		return fmt.Errorf("cannot tell of action %q: %w", c.Action, err)
	}
	return nil
}

func (w *Worker) progressed(c api.Command, note string, until time.Time) (*pb.Record, error) {
	switch {
	case c.Tenant != w.tenant:
		return nil, w.notMine(c)
	case c.Purpose != ledger.PurposeUndo:
		return nil, ledger.Refuse("command.purpose", c.Purpose, "an undo: a question has no progress")
	}
	k := &pb.CompensationProgressed{Attempt: c.Attempt, Key: c.Key, Token: c.ReportToken,
		Note: spoken(api.Reply{Message: note}, c).Message}
	if !until.IsZero() {
		ns, err := ledger.InstantNs("until", until)
		if err != nil {
			return nil, err
		}
		k.UntilNs = ns
	}
	record := &pb.Record{Plan: c.Plan, Action: c.Action,
		Kind: &pb.Record_CompensationProgressed{CompensationProgressed: k}}
	return record, ledger.Check(record, w.source())
}

// maySay reports whether an undo has told nothing of itself for ProgressEvery, and takes that it
// does so now.
func (w *Worker) maySay(key string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.said, func(_ string, at time.Time) bool { return now.Sub(at) >= ProgressEvery })
	if _, said := w.said[key]; said {
		return false
	}
	w.said[key] = now
	return true
}

func (w *Worker) notMine(c api.Command) error {
	return ledger.Refuse("command.tenant", fmt.Sprintf("%q", c.Tenant),
		"the worker's tenant "+w.tenant)
}

func (w *Worker) reported(c api.Command, result Result, problem error) (*pb.Record, error) {
	if c.Tenant != w.tenant {
		return nil, w.notMine(c)
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
		return nil, ledger.Refuse("problem", r.Status, "an end: nil, Stop(err) or another error; a "+
			"doubt is reported by no one, and ends with the time of the attempt")
	}
	record := &pb.Record{Plan: c.Plan, Action: c.Action,
		Kind: &pb.Record_CompensationReported{CompensationReported: report}}
	if len(r.Output) > 0 {
		record.Payload = &pb.Payload{Output: r.Output}
	}
	return record, ledger.Check(record, w.source())
}

func (w *Worker) source() ledger.Source {
	return ledger.Source{Tenant: w.tenant, Class: ledger.ClassWorker, Name: w.name}
}

// store appends a record of the worker as a commit of its own.
func (w *Worker) store(ctx context.Context, record *pb.Record) error {
	a, err := jetstream.NewAppend(w.source(), record)
	if err != nil {
		return err
	}
	return w.append(ctx, a)
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

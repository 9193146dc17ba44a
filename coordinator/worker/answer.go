package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Codes of replies that the worker gives itself. An error with a method
// Code() string names its own.
const (
	CodeError         = "error"          // the handler failed
	CodeStop          = "stop"           // the handler said Stop
	CodeTimeout       = "timeout"        // the handler ran out of the attempt's time
	CodePanic         = "panic"          // the handler panicked
	CodeWorkerVersion = "worker_version" // the registration asks for another version (S7)
	CodeStaleTerm     = "stale_term"     // the command comes from a holder that was replaced
	CodeBadCommand    = "bad_command"    // the command makes no sense
)

// Result is what a handler returns beside its error.
type Result struct {
	Output      any    // JSON, at most OutputMax bytes: kept with the record of the undo
	ExternalRef string // what the provider calls the undo, for people
}

// Handler undoes one action. Its context ends with the attempt's time and when
// the worker is closed by force. It must tolerate to be called again with the
// same Key, also after it was done.
type Handler func(ctx context.Context, c ledger.Command) (Result, error)

// Stop marks an error as final: no attempt will ever succeed, as for a protected
// branch. The action is quarantined for its owner at once. Nil stays nil.
func Stop(err error) error {
	if err == nil {
		return nil
	}
	return &stop{err}
}

type stop struct{ cause error }

func (e *stop) Error() string { return e.cause.Error() }
func (e *stop) Unwrap() error { return e.cause }

// Working says that the undo takes longer than an attempt may: Report will tell
// its end, and the executor asks again after until if it has not.
func Working(until time.Time) error { return &working{until} }

type working struct{ until time.Time }

func (e *working) Error() string { return "working until " + e.until.UTC().Format(time.RFC3339) }

// reply turns the end of a handler into the answer of the worker.
func reply(result Result, err error) ledger.Reply {
	var still *working
	var final *stop
	switch {
	case err == nil:
		return done(result)
	case errors.As(err, &still):
		return ledger.Reply{Status: ledger.StatusWorking, UntilMs: still.until.UnixMilli()}
	case errors.As(err, &final):
		return problem(ledger.StatusStop, codeOf(err, CodeStop), err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return problem(ledger.StatusFailed, codeOf(err, CodeTimeout), err.Error())
	default:
		return problem(ledger.StatusFailed, codeOf(err, CodeError), err.Error())
	}
}

// done never turns into a failure: the effect is undone whatever the output. An
// output that cannot be passed on is left out, and the message says so.
func done(result Result) ledger.Reply {
	r := ledger.Reply{Status: ledger.StatusDone, ExternalRef: clip(result.ExternalRef)}
	if result.Output == nil {
		return r
	}
	output, err := json.Marshal(result.Output)
	switch {
	case err != nil:
		r.Message = clip("output left out: " + err.Error())
	case len(output) > OutputMax:
		r.Message = fmt.Sprintf("output left out: %d bytes, at most %d", len(output), OutputMax)
	default:
		r.Output = output
	}
	return r
}

func problem(status, code, message string) ledger.Reply {
	return ledger.Reply{Status: status, Code: clip(code), Message: clip(message)}
}

func codeOf(err error, standard string) string {
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return standard
}

// clip shortens a text to what a record takes.
func clip(text string) string {
	if len(text) > ledger.TextMax {
		text = text[:ledger.TextMax]
	}
	return strings.ToValidUTF8(text, "")
}

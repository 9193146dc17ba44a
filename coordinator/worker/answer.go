package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/value"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Codes of replies that the worker gives itself. An error with a method
// Code() string names its own.
const (
	CodeError         = "error"               // the handler failed
	CodeStop          = "stop"                // the handler said Stop
	CodeChanged       = "changed"             // the handler said Changed
	CodeTimeout       = "timeout"             // the handler ran out of the attempt's time
	CodePanic         = "panic"               // the handler panicked
	CodeWorkerVersion = api.CodeWorkerVersion // the registration asks for another version
	CodeStaleTerm     = "stale_term"          // the command comes from a holder that was replaced
	CodeBadCommand    = "bad_command"         // the command makes no sense, or not on its subject
	CodeBadAnswer     = "bad_answer"          // what an answerer returned cannot be sent
)

// ErrStop is what errors of Stop wrap.
var ErrStop = errors.New("trying again will not help")

// Result is what a handler returns beside its error.
type Result struct {
	Output      any    // JSON, at most OutputMax bytes: kept with the record of the undo
	ExternalRef string // what the provider calls the undo, for people
	Timing      Timing // also beside an error
}

// Timing tells where a handler's time went, as far as it knows. The worker
// measures the whole by itself.
type Timing struct {
	Setup time.Duration // before the first tool
	Tool  time.Duration // in tools
	LLM   time.Duration // in a model; 0 for a single tool
}

// Handler undoes one action. Its context ends with the attempt's time and when
// the worker is closed by force. It must tolerate to be called again with the
// same Key, also after it was done.
type Handler func(ctx context.Context, c api.Command) (Result, error)

// Stop marks an error as final: no attempt will ever succeed, as for a protected
// branch. The action is quarantined for its owner at once. Nil stays nil.
func Stop(err error) error {
	if err == nil {
		return nil
	}
	return &stop{err}
}

type stop struct{ cause error }

func (e *stop) Error() string   { return e.cause.Error() }
func (e *stop) Unwrap() []error { return []error{e.cause, ErrStop} }

// Changed marks an error as another's write: the provider has refused the undo, or the worker has
// found before it, that what the forward left is not there any more as it was (412 Precondition
// Failed). The action is its owner's at once, who is shown found, what is there now; nil: it is
// not known. A nil error stays nil.
func Changed(found any, err error) error {
	if err == nil {
		return nil
	}
	return &changed{err, found}
}

type changed struct {
	cause error
	found any
}

func (e *changed) Error() string { return e.cause.Error() }
func (e *changed) Unwrap() error { return e.cause }

// InDoubt marks an error as doubt: no one knows whether it was done, as after a call of a provider
// that had no answer. What delivers a staged act must say so, or be silent: what has failed is
// tried again. An undo is tried again in either case. Nil stays nil.
func InDoubt(err error) error {
	if err == nil {
		return nil
	}
	return &inDoubt{err}
}

type inDoubt struct{ cause error }

func (e *inDoubt) Error() string { return e.cause.Error() }
func (e *inDoubt) Unwrap() error { return e.cause }

// Working says that the undo takes longer than an attempt may: Report will tell
// its end, and the executor asks again after until if it has not: in a second where until is
// past, or is the zero time as no one knows it, and in 24 hours at the latest. An attempt may
// say so for 24 hours; after that it counts as one without an answer.
func Working(until time.Time) error { return &working{until} }

type working struct{ until time.Time }

func (e *working) Error() string { return "working until " + e.until.UTC().Format(time.RFC3339) }

// Answerer answers a question, which changes nothing: c.Purpose says whether it is
// a probe, a check after an undo (verify) or a before-image (before). Its errors
// mean what a handler's mean; Working is none of them.
type Answerer func(ctx context.Context, c api.Command) (Answer, error)

// Answer is what the world said.
type Answer struct {
	// Output is JSON of at most OutputMax bytes: what the contract's expressions
	// read as probe or verify, or the before-image itself. Present, Absent, Duplicate
	// and Inconclusive make the one that a probe without expressions reads. Nil is null:
	// there is nothing.
	Output any
	Timing Timing
}

// presence is the Output that a probe without expressions reads.
type presence struct {
	Presence    string `json:"presence"`
	ExternalRef any    `json:"external_ref,omitempty"` // a text, or a list of them
	Reason      string `json:"reason,omitempty"`
}

// Present says that the effect is there; externalRef is what its provider calls
// it, where that is known.
func Present(externalRef string) Answer {
	return Answer{Output: presence{Presence: "present", ExternalRef: externalRef}}
}

// Absent says that the effect is not there.
func Absent() Answer { return Answer{Output: presence{Presence: "absent"}} }

// Duplicate says that the effect is there more than once. One external ref is
// that of the extra effect, which is undone beside the other; several are all of
// them, the one that the forward meant first.
func Duplicate(externalRefs ...string) Answer {
	if len(externalRefs) == 1 {
		return Answer{Output: presence{Presence: "duplicate", ExternalRef: externalRefs[0]}}
	}
	return Answer{Output: presence{Presence: "duplicate", ExternalRef: externalRefs}}
}

// Inconclusive says that the world was asked and does not tell, and why.
func Inconclusive(reason string) Answer {
	return Answer{Output: presence{Presence: "inconclusive", Reason: reason}}
}

// answer turns the end of an answerer into the answer of the worker.
func answer(a Answer, err error) api.Reply {
	var still *working
	switch {
	case errors.As(err, &still):
		return problem(api.StatusFailed, CodeBadAnswer, "a question cannot be answered later")
	case err != nil:
		return reply(Result{Timing: a.Timing}, err)
	}
	r := reply(Result{Output: a.Output, Timing: a.Timing}, nil)
	if a.Output == nil {
		r.Output = json.RawMessage("null")
	}
	if r.Message != "" { // an answer without what was asked for is none
		return problem(api.StatusFailed, CodeBadAnswer, r.Message)
	}
	return r
}

// reply turns the end of a handler into the answer of the worker.
func reply(result Result, err error) api.Reply {
	r := ended(result, err)
	r.SetupNs, r.ToolNs = result.Timing.Setup.Nanoseconds(), result.Timing.Tool.Nanoseconds()
	r.LLMNs = result.Timing.LLM.Nanoseconds()
	return r
}

func ended(result Result, err error) api.Reply {
	if err == nil {
		return done(result)
	}
	var still *working
	var foreign *changed
	var unknown *inDoubt
	switch {
	case errors.As(err, &unknown):
		code := CodeError
		if errors.Is(err, context.DeadlineExceeded) {
			code = CodeTimeout
		}
		return problem(api.StatusInDoubt, codeOf(err, code), err.Error())
	case errors.As(err, &foreign):
		r := done(Result{Output: foreign.found})
		r.Status, r.Code, r.Message = api.StatusChanged, codeOf(err, CodeChanged), err.Error()
		return r
	case errors.As(err, &still):
		return api.Reply{Status: api.StatusWorking, UntilMs: max(still.until.UnixMilli(), 0)}
	case errors.Is(err, blob.ErrGone):
		return problem(api.StatusStop, api.CodeBlob, err.Error())
	case errors.Is(err, blob.ErrNoPlan):
		return problem(api.StatusFailed, api.CodeBlobPlan, err.Error())
	case errors.Is(err, ErrStop):
		return problem(api.StatusStop, codeOf(err, CodeStop), err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return problem(api.StatusFailed, codeOf(err, CodeTimeout), err.Error())
	default:
		return problem(api.StatusFailed, codeOf(err, CodeError), err.Error())
	}
}

// done never turns into a failure: the effect is undone whatever the output. An
// output that cannot be passed on is left out, and the message says so.
func done(result Result) api.Reply {
	r := api.Reply{Status: api.StatusDone, ExternalRef: result.ExternalRef}
	if result.Output == nil {
		return r
	}
	output, err := value.Encode("output", result.Output)
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused):
		r.Message = "output left out: " + refused.Problem
	case len(output) > OutputMax:
		r.Message = fmt.Sprintf("output left out: %d bytes, at most %d", len(output), OutputMax)
	default:
		r.Output = output
	}
	return r
}

// handled is the answer of a handler. One that was to deliver a staged act, and was stopped in the
// middle, does not know whether it was made.
func handled(c api.Command, result Result, err error) api.Reply {
	stopped := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if c.Delivers && stopped && !errors.Is(err, ErrStop) {
		err = InDoubt(err)
	}
	return reply(result, err)
}

// panicked is the answer where a handler has ended with a panic.
func panicked(c api.Command, p any) api.Reply {
	if c.Delivers {
		return problem(api.StatusInDoubt, CodePanic, fmt.Sprint(p))
	}
	return problem(api.StatusFailed, CodePanic, fmt.Sprint(p))
}

func problem(status, code, message string) api.Reply {
	return api.Reply{Status: status, Code: code, Message: message}
}

func codeOf(err error, standard string) string {
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		return coded.Code()
	}
	return standard
}

// spoken is an answer as it may be recorded: without what was opened for its command, and
// only then no longer than a record takes.
func spoken(r api.Reply, c api.Command) api.Reply {
	had := r.Output != nil
	if r = seal.ScrubReply(r, seal.At(c.Arguments, c.Opened)); had && r.Output == nil {
		r.Message = strings.TrimSpace(r.Message + " output left out: it repeats what was sealed")
	}
	r.Code, r.Message = ledger.Text(r.Code), ledger.Text(r.Message)
	r.ExternalRef = ledger.Text(r.ExternalRef)
	return r
}

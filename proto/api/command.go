package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/sagenbaum/sagenbaum/proto/rawjson"
)

// Purposes of a Command.
const (
	PurposeProbe  = "probe"  // did the effect happen, is it still there?
	PurposeVerify = "verify" // is it gone after the undo?
	PurposeBefore = "before" // what is there before the forward crosses? Asked by the coordinator
)

// Command asks a worker for one compensation (purpose "undo"), on UndoSubject, or
// for an answer that changes nothing (any other purpose), on AskSubject. It is the
// JSON body of a NATS request; docs/workers.md describes it for other languages.
type Command struct {
	Purpose string `json:"purpose"`
	Tenant  string `json:"tenant"`
	Plan    string `json:"plan"`
	Action  string `json:"action"`
	// of the forward it undoes, as FormatAddress with the whole leaf
	Address    string          `json:"address"`
	Capability string          `json:"capability"`
	Arguments  json.RawMessage `json:"arguments"` // object; missing bindings are null
	// Opened are places in Arguments (RFC 6901) whose values were sealed in the ledger: not
	// for logs, and not for what is said of the call.
	Opened []string `json:"opened,omitempty"`
	// Key is the idempotency key: 32 lower-case hex digits, the same for every
	// attempt.
	Key string `json:"key"`
	// ReportToken goes into the worker's own records about this attempt; empty: none is asked for.
	ReportToken string `json:"report_token,omitempty"`
	// Attempt counts from 1, for each purpose.
	Attempt uint32 `json:"attempt"`
	// Term is the holder's; a worker refuses a command of a lower term than it
	// has seen.
	Term             uint64 `json:"term"`
	BlindCleanup     bool   `json:"blind_cleanup"`      // the forward left no usable output
	DirtyFailure     bool   `json:"dirty_failure"`      // the forward timed out or its agent vanished; it may be known by now
	HasForwardOutput bool   `json:"has_forward_output"` // arguments could bind to its output
	TimeoutMs        int64  `json:"timeout_ms"`         // answer within this, or say working
	WorkerVersion    string `json:"worker_version,omitempty"`
	// Forward is the capability that is undone, ExternalRef what its provider calls
	// the effect, where the forward or a probe said so.
	Forward     string `json:"forward"`
	ExternalRef string `json:"external_ref,omitempty"`
	// Traceparent is the W3C trace context of this attempt, where the executor traces;
	// it is linked to that of the forward.
	Traceparent string `json:"traceparent,omitempty"`
	// Delivers says that nothing is undone: it is the act itself, which was staged until its plan
	// was committed.
	Delivers bool `json:"delivers,omitempty"`
	// Agent is set for an actuator of kind "agent".
	Agent *AgentTask `json:"agent,omitempty"`
}

// DecodeCommand reads a command as [json.Unmarshal] does, with less work where it is written as
// hosts write commands.
func DecodeCommand(text []byte) (c Command, err error) {
	if json.Valid(text) && c.asWritten(text) {
		return c, nil
	}
	c = Command{}
	err = json.Unmarshal(text, &c)
	return c, err
}

// asWritten reads valid JSON that is written as hosts write commands; false: it is not.
func (c *Command) asWritten(text []byte) bool {
	if rawjson.TrimSpace(text)[0] != '{' {
		return false
	}
	for name, value := range rawjson.Members(text) {
		if !c.take(string(name), value) {
			return false
		}
	}
	return true
}

// take reads a field; false: it is written in another way, or seldom there.
func (c *Command) take(name string, value []byte) (ok bool) {
	var err error
	number := func(bits int) (n uint64) {
		n, err = strconv.ParseUint(string(value), 10, bits)
		return n
	}
	switch name {
	case "arguments":
		c.Arguments = bytes.Clone(value)
	case "attempt":
		c.Attempt = uint32(number(32))
	case "term":
		c.Term = number(64)
	case "timeout_ms":
		c.TimeoutMs = int64(number(63))
	case "blind_cleanup":
		c.BlindCleanup, ok = isTrue(value)
		return ok
	case "dirty_failure":
		c.DirtyFailure, ok = isTrue(value)
		return ok
	case "has_forward_output":
		c.HasForwardOutput, ok = isTrue(value)
		return ok
	default:
		to := c.textOf(name)
		if to == nil || value[0] != '"' {
			return false
		}
		*to, err = rawjson.Text(value)
	}
	return err == nil
}

// textOf is where the text of a name goes; nil: no text has that name.
func (c *Command) textOf(name string) *string {
	switch name {
	case "purpose":
		return &c.Purpose
	case "tenant":
		return &c.Tenant
	case "plan":
		return &c.Plan
	case "action":
		return &c.Action
	case "address":
		return &c.Address
	case "capability":
		return &c.Capability
	case "key":
		return &c.Key
	case "report_token":
		return &c.ReportToken
	case "forward":
		return &c.Forward
	case "external_ref":
		return &c.ExternalRef
	case "worker_version":
		return &c.WorkerVersion
	case "traceparent":
		return &c.Traceparent
	default:
		return nil
	}
}

func isTrue(value []byte) (is, ok bool) {
	is = string(value) == "true"
	return is, is || string(value) == "false"
}

// AgentTask is what a worker with a model is given beside the arguments: all the
// tools that it may call, what it is to do, and how long.
type AgentTask struct {
	Tools    []string `json:"tools"`
	Prompt   string   `json:"prompt,omitempty"`
	MaxTurns uint32   `json:"max_turns,omitempty"` // 0: the worker's own bound
	Model    string   `json:"model,omitempty"`
}

// Statuses of a Reply.
const (
	StatusDone    = "done"     // undone, or was undone already under this key
	StatusFailed  = "failed"   // not undone; may be tried again
	StatusStop    = "stop"     // never will be undone by trying again
	StatusChanged = "changed"  // not undone: someone else has changed what the forward left
	StatusInDoubt = "in_doubt" // not known, and known to be so now: as if it had not answered in time
	StatusWorking = "working"  // a CompensationReported record will follow
)

// Reply is a worker's answer to a Command. It counts only when it repeats the key and
// the attempt of the command (Command.CheckReply).
type Reply struct {
	Key         string          `json:"key"`
	Attempt     uint32          `json:"attempt"`
	Status      string          `json:"status"`
	Output      json.RawMessage `json:"output,omitempty"`
	ExternalRef string          `json:"external_ref,omitempty"`
	Code        string          `json:"code,omitempty"`
	Message     string          `json:"message,omitempty"`
	UntilMs     int64           `json:"until_ms,omitempty"` // working: unix ms by which to ask again
	Worker      string          `json:"worker,omitempty"`
	WorkNs      int64           `json:"work_ns,omitempty"`  // all of the worker's time, and of that:
	SetupNs     int64           `json:"setup_ns,omitempty"` // before the first tool
	ToolNs      int64           `json:"tool_ns,omitempty"`  // in tools
	LLMNs       int64           `json:"llm_ns,omitempty"`   // in a model; 0 for a single tool
}

// Answer returns r as the answer to c: with its key and its attempt.
func (c Command) Answer(r Reply) Reply {
	r.Key, r.Attempt = c.Key, c.Attempt
	return r
}

// CheckReply reports whether a reply answers c: it repeats the key and the attempt. One
// that does not was meant for another command, or comes from a worker that does not
// speak this protocol. The error is a *Mismatch that names the field.
func (c Command) CheckReply(r Reply) error {
	switch {
	case r.Key != c.Key:
		return &Mismatch{"reply.key", fmt.Sprintf("%.64q", r.Key), "the key of the command"}
	case r.Attempt != c.Attempt:
		want := fmt.Sprintf("the attempt of the command, %d", c.Attempt)
		return &Mismatch{"reply.attempt", fmt.Sprint(r.Attempt), want}
	}
	return nil
}

// Mismatch says which field of a message is not what it should be.
type Mismatch struct {
	Field   string // as in "reply.key"
	Problem string // what is wrong with it
	Want    string // what would be right
}

// Error reads "refused: reply.key: \"x\"; want the key of the command".
func (e *Mismatch) Error() string {
	return "refused: " + e.Field + ": " + e.Problem + "; want " + e.Want
}

// CodeWorkerVersion is the code of a reply, with StatusFailed, that refuses a command because its
// registration asks for another version of the worker. It ends no attempt: the command is sent
// again, as if no worker had been there.
const CodeWorkerVersion = "worker_version"

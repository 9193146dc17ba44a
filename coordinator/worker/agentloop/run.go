package agentloop

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// run is one command in the loop. One goroutine owns it, that of the handler.
type run struct {
	loop     *loop
	command  api.Command
	model    string
	started  time.Time
	messages []message

	called  map[string]bool // tool and arguments
	failed  map[string]bool // tools
	report  report
	setup   time.Duration // until the first tool, with the model's time
	inTools time.Duration
	inModel time.Duration
	before  time.Duration // the model's share of setup
}

// report is the output of a loop, kept with the record of the undo.
type report struct {
	Model   string   `json:"model,omitempty"`
	Turns   int      `json:"turns"`
	Called  []called `json:"called,omitempty"`
	Refused int      `json:"refused,omitempty"` // calls that the model wanted and that were not made
	Message string   `json:"message,omitempty"` // the model's last word
}

type called struct {
	Tool  string `json:"tool"`
	Error string `json:"error,omitempty"`
}

// verdict is the model's last word.
type verdict struct {
	Status      string `json:"status"`
	Code        string `json:"code"`
	Message     string `json:"message"`
	ExternalRef string `json:"external_ref"`
}

// single calls the only tool of a task, without a model.
func (r *run) single(ctx context.Context) (worker.Result, error) {
	arguments := r.command.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	output, err := r.call(ctx, r.command.Agent.Tools[0], arguments)
	if err != nil && !errors.Is(err, worker.ErrStop) && !coded(err) {
		err = fmt.Errorf("%w: %w", fail(CodeTool, "the tool failed"), err)
	}
	result := r.result(worker.Result{})
	if err == nil {
		result.Output = output
	}
	return result, err
}

func coded(err error) bool {
	var c interface{ Code() string }
	return errors.As(err, &c)
}

// converse asks the model until it ends the loop or the turns are spent. The calls
// of the last turn are not made: no one would be told what came of them.
func (r *run) converse(ctx context.Context, turns int) (worker.Result, error) {
	r.report.Model, r.messages = r.model, r.opening()
	for r.report.Turns = 1; ; r.report.Turns++ {
		answer, err := r.ask(ctx)
		if err != nil {
			return worker.Result{}, err
		}
		if len(answer.ToolCalls) == 0 {
			return r.end(answer.Content)
		}
		if r.report.Turns == turns {
			return worker.Result{}, fail(CodeTurns, fmt.Sprintf("no end within %d turns", turns))
		}
		r.messages = append(r.messages, answer)
		for i, wanted := range answer.ToolCalls {
			content, err := r.serve(ctx, i, wanted)
			if err != nil {
				return worker.Result{}, err
			}
			r.messages = append(r.messages, message{Role: "tool", ToolCallID: wanted.ID, Content: content})
		}
	}
}

// opening is what every loop begins with: the rules, then the task as data.
func (r *run) opening() []message {
	c := r.command
	task, err := json.Marshal(struct {
		Task             string          `json:"task"`
		Undo             string          `json:"undo"`
		Of               string          `json:"of"`
		Arguments        json.RawMessage `json:"arguments"`
		ExternalRef      string          `json:"external_ref,omitempty"`
		BlindCleanup     bool            `json:"blind_cleanup"`
		DirtyFailure     bool            `json:"dirty_failure"`
		HasForwardOutput bool            `json:"has_forward_output"`
	}{
		c.Agent.Prompt, c.Capability, c.Forward, c.Arguments, c.ExternalRef, c.BlindCleanup,
		c.DirtyFailure, c.HasForwardOutput,
	})
	if err != nil { // arguments that are no JSON cannot come out of a command that was JSON
		panic("agentloop: a task that is no JSON: " + err.Error())
	}
	return []message{{Role: "system", Content: Preamble}, {Role: "user", Content: string(task)}}
}

// serve makes one call that the model wants, or refuses it. The content is what
// the model gets them; an error ends the loop.
func (r *run) serve(ctx context.Context, place int, wanted toolCall) (content string, err error) {
	tool, ok := r.tool(wanted.Function.Name)
	arguments, sorted, isObject := object(wanted.Function.Arguments)
	once := tool + " " + sorted
	switch {
	case place >= CallsMax:
		return r.refuse(fmt.Sprintf("at most %d calls at once", CallsMax)), nil
	case !ok:
		return r.refuse("not a tool of this task"), nil
	case !isObject:
		return r.refuse("the arguments are no JSON object"), nil
	case r.failed[tool]:
		return r.refuse("the tool has failed, and nothing is tried again"), nil
	case r.called[once]:
		return r.refuse("this call was made already"), nil
	}
	r.called[once] = true
	output, err := r.call(ctx, tool, arguments)
	switch {
	case errors.Is(err, worker.ErrStop):
		return "", err
	case ctx.Err() != nil:
		return "", ctx.Err() // whatever came of it, the attempt's time is over
	case err != nil:
		r.failed[tool] = true
		return said("error", ledger.TextTo(err.Error(), reportMax)), nil
	}
	body, err := json.Marshal(output)
	if err != nil {
		return said("note", "it succeeded; its output cannot be shown: "+err.Error()), nil
	}
	if len(body) > ToolOutputMax {
		return said("note", fmt.Sprintf("it succeeded; its output of %d bytes is too large to be shown",
			len(body))), nil
	}
	return string(body), nil
}

func (r *run) refuse(why string) string {
	r.report.Refused++
	return said("refused", why)
}

func said(how, what string) string {
	body, err := json.Marshal(map[string]string{how: what})
	if err != nil {
		panic("agentloop: a text that is no JSON: " + err.Error())
	}
	return string(body)
}

// tool finds the capability of a name in a request, among those of the task.
func (r *run) tool(name string) (string, bool) {
	for _, capability := range r.command.Agent.Tools {
		if r.loop.wire[capability] == name {
			return capability, true
		}
	}
	return "", false
}

// call calls a tool and takes its time.
func (r *run) call(ctx context.Context, tool string, arguments json.RawMessage) (any, error) {
	began := time.Now()
	if len(r.report.Called) == 0 {
		r.setup, r.before = began.Sub(r.started), r.inModel
	}
	output, err := r.loop.config.Tools[tool].Call(ctx,
		Call{Key: r.command.Key, Tool: tool, Arguments: arguments, Command: r.command})
	r.inTools += time.Since(began)
	entry := called{Tool: tool}
	if err != nil {
		entry.Error = ledger.TextTo(err.Error(), reportMax)
	}
	r.report.Called = append(r.report.Called, entry)
	return output, err
}

// end reads the model's last word.
func (r *run) end(content string) (worker.Result, error) {
	var v verdict
	text := strings.TrimSpace(content)
	if inner, ok := strings.CutPrefix(text, "```"); ok { // models like to fence JSON
		text = strings.TrimSuffix(strings.TrimPrefix(inner, "json"), "```")
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		v = verdict{Message: content}
	}
	r.report.Message = ledger.TextTo(v.Message, reportMax)
	switch {
	case v.Status == api.StatusDone && len(r.report.Called) == 0:
		return worker.Result{}, fail(CodeIdle, "the model says done, and has called no tool: "+v.Message)
	case v.Status == api.StatusDone && len(r.failed) > 0:
		return worker.Result{}, fail(CodeTool, fmt.Sprintf("the model says done, and %s failed: %s",
			strings.Join(slices.Sorted(maps.Keys(r.failed)), ", "), v.Message))
	case v.Status == api.StatusDone:
		return worker.Result{ExternalRef: v.ExternalRef}, nil
	case v.Status == api.StatusFailed:
		return worker.Result{}, fail(cmp.Or(v.Code, CodeFailed), v.Message)
	case v.Status == api.StatusStop:
		return worker.Result{}, worker.Stop(fail(cmp.Or(v.Code, CodeStopped), v.Message))
	}
	return worker.Result{}, fail(CodeAnswer, "the model's last word is none of done, failed and "+
		"stop: "+ledger.TextTo(content, reportMax))
}

// result adds what is known of the run.
func (r *run) result(result worker.Result) worker.Result {
	if result.Output == nil {
		result.Output = r.report
	}
	if len(r.report.Called) == 0 {
		r.setup, r.before = time.Since(r.started), r.inModel
	}
	result.Timing = worker.Timing{Setup: r.setup - r.before, Tool: r.inTools, LLM: r.inModel}
	return result
}

// object returns compact JSON of arguments that are a JSON object, as they are and
// with sorted names, by which two calls are told to be one; none at all is an empty
// object.
func object(text string) (arguments json.RawMessage, sorted string, ok bool) {
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(text)) != nil {
		return nil, "", false
	}
	decoder := json.NewDecoder(bytes.NewReader(compact.Bytes()))
	decoder.UseNumber()
	var fields map[string]any
	if decoder.Decode(&fields) != nil || fields == nil {
		return nil, "", false
	}
	again, err := json.Marshal(fields)
	return compact.Bytes(), string(again), err == nil
}

// reportMax is the most bytes of a text in a report of many.
const reportMax = 1 << 10

package agentloop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// The chat completions protocol, as far as the loop needs it.

type message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type offered struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type completionRequest struct {
	Model    string    `json:"model"`
	Messages []message `json:"messages"`
	Tools    []offered `json:"tools"`
}

type completionResponse struct {
	Choices []struct {
		Message message `json:"message"`
	} `json:"choices"`
}

// offer lists the tools of the task, and no others.
func (r *run) offer() []offered {
	var tools []offered
	for _, capability := range r.command.Agent.Tools {
		tool := r.loop.config.Tools[capability]
		parameters := tool.Parameters
		if len(parameters) == 0 {
			parameters = json.RawMessage(`{"type":"object"}`)
		}
		tools = append(tools, offered{"function", function{r.loop.wire[capability], tool.Description,
			parameters}})
	}
	return tools
}

// ask makes one request to the model and takes its time.
func (r *run) ask(ctx context.Context) (message, error) {
	began := time.Now()
	defer func() { r.inModel += time.Since(began) }()
	body, err := json.Marshal(completionRequest{Model: r.model, Messages: r.messages,
		Tools: r.offer()})
	if err != nil {
		panic("agentloop: a request that is no JSON: " + err.Error())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.loop.config.Endpoint,
		bytes.NewReader(body))
	if err != nil {
		return message{}, fail(CodeModel, "cannot ask model: "+err.Error())
	}
	for name, values := range r.loop.config.Header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.loop.config.Client.Do(request)
	if err != nil {
		return message{}, r.unheard(ctx, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, ResponseMax+1))
	if err != nil {
		return message{}, r.unheard(ctx, err)
	}
	return read(response.StatusCode, text)
}

// unheard is an answer that did not come: for want of time, or another reason.
func (r *run) unheard(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("cannot ask model: %w", ctx.Err())
	}
	return fail(CodeModel, "cannot ask model: "+err.Error())
}

func read(status int, text []byte) (message, error) {
	var answer completionResponse
	switch {
	case status != http.StatusOK:
		return message{}, fail(CodeModel, fmt.Sprintf("the model's endpoint answers %d: %s", status,
			ledger.TextTo(string(text), reportMax)))
	case len(text) > ResponseMax:
		return message{}, fail(CodeModel, fmt.Sprintf("the model's answer is larger than %d bytes",
			ResponseMax))
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return message{}, fail(CodeModel, "cannot read the model's answer: "+err.Error())
	}
	if len(answer.Choices) == 0 {
		return message{}, fail(CodeModel, "the model's answer has no choices")
	}
	m := answer.Choices[0].Message
	m.Role = "assistant"
	for i := range m.ToolCalls {
		m.ToolCalls[i].Type = "function"
	}
	return m, nil
}

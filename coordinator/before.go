package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/value"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Answer answers a question in this process, where a worker would: what it returns
// is the before-image, as JSON. Nil is null: there was nothing. It changes nothing
// and may be asked again.
type Answer func(ctx context.Context, question api.Command) (any, error)

// planVars and metaVars are what the arguments of a question read as plan and
// meta, as far as they are known before the forward is registered.
type planVars struct {
	ID     string            `json:"id"`
	Label  string            `json:"label,omitempty"`
	Owner  string            `json:"owner,omitempty"`
	Agent  string            `json:"agent"`
	Labels map[string]string `json:"labels,omitempty"`
	Input  json.RawMessage   `json:"input,omitempty"`
}

type metaVars struct {
	Tenant     string `json:"tenant"`
	Plan       string `json:"plan"`
	Action     string `json:"action"`
	Capability string `json:"capability"`
	Key        string `json:"key"`         // of the undo
	ForwardKey string `json:"forward_key"` // of the forward
}

func mustJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic("coordinator: a value that is no JSON: " + err.Error())
	}
	return data
}

// errNotStored: the worker cannot answer before the ledger has the plan.
var errNotStored = errors.New("the worker says that the plan is not in the ledger")

// capture asks what is there before the forward crosses. Errors: *Refused
// for arguments that cannot be found and an answer that is too large, else
// ErrNotCaptured, which is a *Refused, too, where the worker says that asking again will not help.
func (d *draft) capture(ctx context.Context, p *Plan) (json.RawMessage, error) {
	action, t := d.ID, d.contract
	key := ledger.Key(p.c.tenant, p.id, action, ledger.PurposeDo)
	arguments, err := t.BeforeArguments(d.input, p.vars, mustJSON(metaVars{
		Tenant: p.c.tenant, Plan: p.id, Action: action, Capability: t.Capability,
		Key: ledger.Key(p.c.tenant, p.id, action, ledger.PurposeUndo), ForwardKey: key,
	}))
	if err != nil {
		return nil, err
	}
	call := t.Before
	timeout := cmp.Or(time.Duration(call.TimeoutNs), questionTimeoutDefault)
	question := api.Command{
		Purpose: api.PurposeBefore, Tenant: p.c.tenant, Plan: p.id, Action: action,
		Capability: call.Capability,
		Arguments:  arguments, Key: key, Forward: t.Capability, TimeoutMs: max(1, timeout.Milliseconds()),
	}
	attempts := cmp.Or(call.Attempts, questionAttemptsDefault)
	delay := cmp.Or(time.Duration(call.BackoffNs), questionBackoffDefault)
	for question.Attempt = 1; ; question.Attempt++ {
		before, final, err := p.c.question(ctx, question, timeout)
		if errors.Is(err, errNotStored) { // what the worker stores is for a plan that is there
			if err := p.Flush(ctx); err != nil {
				return nil, err
			}
			before, final, err = p.c.question(ctx, question, timeout)
		}
		switch {
		case err == nil && len(before) > BeforeMax:
			return nil, ledger.Refuse("action.before", fmt.Sprintf("%d bytes", len(before)),
				fmt.Sprintf("a before-image of at most %d bytes; store larger values as blobs, and answer "+
					"with their references", BeforeMax))
		case err == nil:
			return before, checkBlobs("action.before", p.id, before)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", ErrNotCaptured, ctx.Err())
		case final || question.Attempt >= attempts:
			return nil, fmt.Errorf("%w: %s, attempt %d: %w", ErrNotCaptured, call.Capability,
				question.Attempt, err)
		}
		pause.For(ctx, delay)
		delay = min(2*delay, ledger.BackoffMax)
	}
}

// question asks once, in this process or over NATS. final says that asking again
// will not help.
func (c *Coordinator) question(
	ctx context.Context, asked api.Command, timeout time.Duration,
) (answer json.RawMessage, final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if own := c.answers[asked.Capability]; own != nil {
		before, err := own(ctx, asked)
		if err != nil {
			return nil, false, err
		}
		if answer, err = value.Encode("action.before", before); answer == nil {
			answer = json.RawMessage("null")
		}
		return answer, true, err
	}
	reply, err := c.askWorker(ctx, asked)
	switch {
	case errors.Is(err, errNobody):
		return nil, false, errors.New("no worker answers")
	case errors.Is(err, ErrConnectionClosed):
		return nil, true, err
	case err != nil:
		return nil, false, err
	}
	switch {
	case reply.Status == api.StatusDone && len(reply.Output) > 0:
		return reply.Output, true, value.Check("action.before", reply.Output)
	case reply.Status == api.StatusDone: // asked again, it would answer the same
		return nil, true, ledger.Refuse("action.before",
			strings.Join(strings.Fields("the worker's answer has no output "+reply.Message), " "),
			fmt.Sprintf("an output of at most %d bytes that says what is there", BeforeMax))
	}
	if reply.Code == api.CodeBlobPlan {
		return nil, false, errNotStored
	}
	says := fmt.Sprintf("the worker says %s: %s: %s", reply.Status, reply.Code, reply.Message)
	if reply.Status == api.StatusStop {
		return nil, true, ledger.Refuse("action.before", says,
			"an action whose earlier state can be kept: the worker would answer the same again")
	}
	return nil, false, errors.New(says)
}

// askWorker asks over NATS. An answer that does not repeat key and attempt is none.
func (c *Coordinator) askWorker(ctx context.Context, asked api.Command) (api.Reply, error) {
	var reply api.Reply
	_, err := c.bus.question(ctx, question{
		subject: api.AskSubject(c.tenant, asked.Capability),
		replies: api.AgentReplySubject(c.tenant, c.agent, ""),
		body:    mustJSON(asked),
		accept: func(answer []byte) (err error) {
			var unread []*api.Mismatch
			reply, unread, err = asked.ReadReply(answer)
			log := c.logger.With("tenant", c.tenant, "capability", asked.Capability,
				"worker", ledger.Text(reply.Worker))
			if err != nil {
				log.Warn("an answer of a worker was refused", "error", err)
			}
			for _, field := range unread {
				log.Warn("a field of a worker's answer cannot be read; the rest counts", "error", field)
			}
			return err
		},
	})
	return reply, err
}

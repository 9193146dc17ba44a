package contract

import (
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
)

// Stage says when the act of an irreversible capability is made.
type Stage string

// StageCommit has each act of a capability staged: it is made by the executor once the plan has
// been committed, and not by the agent. Without it an agent may do either.
const StageCommit Stage = "commit"

// Deliver says how a staged act is made, by a worker of the capability itself, under the key of
// the forward. Nothing was called before, and so arguments read input, plan and meta.
type Deliver struct {
	With          map[string]any `json:"with,omitempty" jsonschema:"Its arguments, over input, plan and meta."`
	WorkerVersion string         `json:"worker_version,omitempty" jsonschema:"Version of the worker that must make the act. Default: any."`
	Attempts      int            `json:"attempts,omitempty" jsonschema:"Before the act is its owner's. Default: 5."`
	Backoff       time.Duration  `json:"backoff,omitempty" jsonschema:"Before attempt 2, doubling. Default: 1s."`
	BackoffMax    time.Duration  `json:"backoff_max,omitempty" jsonschema:"Where doubling ends. Default: 1m."`
	Jitter        *int           `json:"jitter,omitempty" jsonschema:"Percent by which each backoff may grow. Default: 20."`
	Timeout       time.Duration  `json:"timeout,omitempty" jsonschema:"Of one attempt. Default: 30s."`
	Dedupe        time.Duration  `json:"dedupe,omitempty" jsonschema:"How long the provider promises to remember an idempotency key. So long an attempt without an answer is repeated. Default: it promises nothing."`
	Done          string         `json:"done,omitempty" jsonschema:"CEL over error and result: true for an error that means made already."`
	Stop          string         `json:"stop,omitempty" jsonschema:"CEL over error and result: true for an error that will never go away."`
}

func (d Deliver) normal(refuse func(field, problem, want string)) *Deliver {
	d.With = argument.Normal("deliver.with", d.With, refuse)
	tries{&d.Attempts, &d.Backoff, &d.BackoffMax, &d.Timeout, &d.Jitter}.normal()
	d.Done, d.Stop = argument.Expression(d.Done), argument.Expression(d.Stop)
	return &d
}

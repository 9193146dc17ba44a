package compile

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Whether a worker serves a capability.
const (
	ServedYes     = "yes"
	ServedNo      = "no"
	ServedUnknown = "unknown"
	// ServedListener: only such subscribe as are not known as workers.
	ServedListener = "listener"
)

// WorkerCall is a call of contracts that a worker has to take.
type WorkerCall struct {
	Capability string
	Undo       bool   // it is an undo, else a question
	Version    string // of the worker, that is asked for; empty: any
}

// Serving is what is known of the workers that take a call.
type Serving struct {
	Served       string // one of the constants above
	Heard        string // when a worker last answered; empty: not known
	OtherVersion string // what one has answered that refuses the version; empty: none has
}

// workerCall is a call, and the field that it is in.
type workerCall struct {
	WorkerCall
	field string
}

// workerCalls are those of one contract. Handlers in an agent's code and working memory
// need no worker.
func workerCalls(c contract.Contract) (calls []workerCall) {
	if i := c.Inverse; i != nil {
		handled := ledger.MemoryArguments(i.Call) != nil || len(i.Call) > len(api.HandlerPrefix) &&
			i.Call[:len(api.HandlerPrefix)] == api.HandlerPrefix
		if !handled {
			calls = append(calls, workerCall{WorkerCall{i.Call, true, i.WorkerVersion}, "inverse.call"})
		}
		if i.Verify != nil {
			calls = append(calls, workerCall{WorkerCall{i.Verify.Call, false, i.WorkerVersion},
				"inverse.verify.call"})
		}
	}
	if d := c.Deliver; d != nil {
		calls = append(calls, workerCall{WorkerCall{c.Capability, true, d.WorkerVersion}, "deliver"})
	}
	if c.Probe != nil {
		version := ""
		if c.Deliver != nil {
			version = c.Deliver.WorkerVersion
		}
		if c.Inverse != nil {
			version = c.Inverse.WorkerVersion
		}
		calls = append(calls, workerCall{WorkerCall{c.Probe.Call, false, version}, "probe.call"})
	}
	return calls
}

// WorkerCalls lists what workers have to take for these contracts, each once.
func WorkerCalls(sources []contract.Source) (calls []WorkerCall) {
	for i := range sources {
		for _, call := range workerCalls(sources[i].Contract) {
			if !slices.Contains(calls, call.WorkerCall) {
				calls = append(calls, call.WorkerCall)
			}
		}
	}
	return calls
}

// LintWorkers warns of what no one serves now, or no one of the version that is asked for.
func LintWorkers(sources []contract.Source, serving func(WorkerCall) Serving) contract.Findings {
	var findings contract.Findings
	for i := range sources {
		l := &linter{source: &sources[i]}
		for _, call := range workerCalls(sources[i].Contract) {
			what := "the probe " + call.Capability
			switch call.field {
			case "inverse.call":
				what = call.Capability
			case "inverse.verify.call":
				what = "the check " + call.Capability
			}
			switch s := serving(call.WorkerCall); {
			case s.OtherVersion != "":
				l.warn(call.field, "only other versions of a worker serve "+what+": "+s.OtherVersion,
					"a worker of version "+call.Version)
			case s.Served == ServedListener:
				l.warn(call.field, "no worker serves "+what+" now, and whoever listens for it is none: an "+
					"action that needs it is its owner's after "+unservedAfter(sources[i].Contract),
					"start the worker in the queue group workers (docs/workers.md)")
			case s.Served == ServedNo:
				l.warn(call.field, "no worker serves "+what+" now: an action that needs it is its owner's "+
					"after "+unservedAfter(sources[i].Contract),
					"start the worker, or mend the name")
			case s.Served == ServedUnknown && s.Heard == "":
				l.warn(call.field, "whether a worker serves "+what+" is not known: the server cannot be "+
					"asked, and none has answered yet",
					"try it: docs/guide/testing.md")
			}
		}
		findings = append(findings, l.findings...)
	}
	findings.Sort()
	return findings
}

func unservedAfter(c contract.Contract) string {
	if c.UnservedAfter == 0 {
		return contract.FormatDuration(ledger.UnservedDefault)
	}
	return contract.FormatDuration(c.UnservedAfter)
}

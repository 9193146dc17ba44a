package contract

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// The head of every document.
const (
	APIVersion = "sagenbaum/v1"
	Kind       = "Contract"
	PackKind   = "MCPPack" // of contracts of an MCP server, which coordinator/mcp reads
)

// Source is a contract with where it is in its file.
type Source struct {
	Contract
	Document
	Examples []Example // run by Lint; no part of the contract or its digest
}

// InCode are contracts that are declared in Go, for Lint: its findings name the contract in the
// place of a file.
func InCode(contracts ...Contract) []Source {
	sources := make([]Source, len(contracts))
	for i, c := range contracts {
		sources[i] = Source{Contract: c, Document: Document{File: "contract[" + c.Capability + "]"}}
	}
	return sources
}

// Example is one case that the expressions of a contract must get right. What is
// not given is null; Plan and Meta are used as those of a run. Lint runs it.
type Example struct {
	Name   string `json:"name,omitempty" jsonschema:"What the case shows."`
	Input  any    `json:"input,omitempty" jsonschema:"Of the forward."`
	Output any    `json:"output,omitempty" jsonschema:"Of the forward; leave it out for a forward in doubt."`
	Before any    `json:"before,omitempty" jsonschema:"The before-image."`
	Probe  any    `json:"probe,omitempty" jsonschema:"What the probe found right before the undo."`
	Plan   any    `json:"plan,omitempty" jsonschema:"Default: id, label, owner and agent of a sample plan."`
	Meta   any    `json:"meta,omitempty" jsonschema:"Default: keys and the like of a sample action."`

	Actions any `json:"actions,omitempty" jsonschema:"What is read of other actions of the plan, by their ids: input, output, before, external_ref."`
	Facts   any `json:"facts,omitempty" jsonschema:"What is read of facts, by their keys."`

	Arguments  map[string]any   `json:"arguments,omitempty" jsonschema:"What the inverse must be called with."`
	Asks       *ExampleAsks     `json:"asks,omitempty" jsonschema:"What the questions must be asked with."`
	ValidUntil string           `json:"valid_until,omitempty" jsonschema:"What valid_until must give, as an RFC 3339 timestamp."`
	Probes     []ExampleProbe   `json:"probes,omitempty" jsonschema:"Outputs of the probe and how they must be read."`
	Verifies   []ExampleVerify  `json:"verifies,omitempty" jsonschema:"Outputs of the check after the undo and how they must be read."`
	Errors     []ExampleFailure `json:"errors,omitempty" jsonschema:"Errors of the undo and how they must be read."`
}

// ExampleAsks are the arguments that questions must be asked with.
type ExampleAsks struct {
	Before map[string]any `json:"before,omitempty" jsonschema:"Of the before call."`
	Probe  map[string]any `json:"probe,omitempty" jsonschema:"Of the probe."`
	Verify map[string]any `json:"verify,omitempty" jsonschema:"Of the check after the undo."`
}

// ExampleProbe is one output of a probe.
type ExampleProbe struct {
	Output      any    `json:"output,omitempty" jsonschema:"What the probe returned."`
	Presence    string `json:"presence" jsonschema:"How it must be read: present, absent, duplicate or inconclusive."`
	ExternalRef string `json:"external_ref,omitempty" jsonschema:"What external_ref must give; a list joined by commas."`
	Unchanged   *bool  `json:"unchanged,omitempty" jsonschema:"What inverse.unchanged must give: whether it is as the forward left it."`
}

// ExampleVerify is one output of a check after an undo.
type ExampleVerify struct {
	Output any  `json:"output,omitempty" jsonschema:"What the check returned."`
	Result any  `json:"result,omitempty" jsonschema:"What the undo returned."`
	Ok     bool `json:"ok" jsonschema:"Whether the effect must be taken for gone."`
}

// ExampleFailure is one error of an undo.
type ExampleFailure struct {
	Error  ExampleError `json:"error" jsonschema:"As the worker reports it."`
	Result any          `json:"result,omitempty" jsonschema:"What it returned beside the error."`
	Means  string       `json:"means" jsonschema:"done: undone already; stop: never will be; retry: neither."`
}

// ExampleError is the code and message of a worker.
type ExampleError struct {
	Code    string `json:"code" jsonschema:"As in Reply.code."`
	Message string `json:"message,omitempty" jsonschema:"As in Reply.message."`
}

// document is one YAML document as it is written.
type document struct {
	APIVersion string `json:"apiVersion" jsonschema:"Version of the format."`
	Kind       string `json:"kind" jsonschema:"Contract."`
	Contract
	Examples []Example `json:"examples,omitempty" jsonschema:"Cases that lint runs; no part of the digest."`
}

// LoadDir parses every .yaml and .yml file below fsys, in the order of their
// names. The error is a Findings; the sources that could be read come beside it.
func LoadDir(fsys fs.FS) ([]Source, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml"}, path.Ext(name)) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, Findings{{Severity: Error, File: ".", Message: err.Error()}}
	}
	slices.Sort(names)
	var sources []Source
	var findings Findings
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			findings = append(findings, Finding{Severity: Error, File: name, Message: err.Error()})
			continue
		}
		found, err := Parse(name, data)
		sources = append(sources, found...)
		if problems, ok := err.(Findings); ok {
			findings = append(findings, problems...)
		}
	}
	findings = append(findings, DeclaredTwice(sources)...)
	return sources, findings.err()
}

// DeclaredTwice finds capabilities that several documents declare.
func DeclaredTwice(sources []Source) Findings {
	var findings Findings
	first := map[string]*Source{}
	for i := range sources {
		s := &sources[i]
		before := first[s.Capability]
		switch {
		case s.Capability == "":
		case before == nil:
			first[s.Capability] = s
		default:
			findings = append(findings, s.Finding("capability", fmt.Sprintf("%s is declared twice",
				s.Capability),
				fmt.Sprintf("the first is %s:%d", before.File, before.Line)))
		}
	}
	return findings
}

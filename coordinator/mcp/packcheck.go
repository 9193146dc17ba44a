package mcp

import (
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// compiles refuses a tool whose contract no coordinator takes, with the field as the pack has it.
func (t Tool) compiles(field, name string, programs *triggers.Cache) error {
	if t.Class == contract.Effectless {
		return nil // such calls are not registered
	}
	anywhere := &Server{config: ServerConfig{Name: "server"}, instance: "server"}
	c, err := t.contract(anywhere, name)
	if err != nil {
		return err
	}
	_, err = compile.Contract(c, programs)
	var refused *ledger.Refused
	if !errors.As(err, &refused) {
		return err
	}
	_, below, _ := strings.Cut(refused.Field, "].")
	below = strings.TrimPrefix(below, "deliver.")
	return ledger.Refuse(field+"."+below, refused.Problem, refused.Want)
}

// works refuses expressions of a tool that can never give an answer: a condition that is no truth,
// and one that reads a probe which is not asked.
func (x *expressions) works(field string, t Tool) error {
	conditions := map[string]string{"effectless_when": t.EffectlessWhen, "not_taken": t.NotTaken,
		"done": t.Done}
	for part, guards := range map[string][]Guard{"stop": t.Stop, "refuse": t.Refuse} {
		for i, guard := range guards {
			conditions[fmt.Sprintf("%s[%d].when", part, i)] = guard.When
		}
	}
	for i, step := range t.Undo {
		conditions[fmt.Sprintf("undo[%d].when", i)] = step.When
	}
	for _, part := range sortedKeys(conditions) {
		text := conditions[part]
		if text == "" {
			continue
		}
		b, err := x.reader(text)
		switch {
		case err != nil:
			return err
		case !mayHold(b):
			return ledger.Refuse(field+"."+part, fmt.Sprintf("%q is never true or false", text),
				"CEL that gives true or false")
		case t.Probe == nil && b.Reads("probe"):
			return ledger.Refuse(field+"."+part, "it reads probe, and nothing is asked",
				"probe, the question whose answer it reads; or none of it")
		}
	}
	return nil
}

// mayHold reports whether an expression may be true. Of no variable the type is known, but input and
// output are objects.
func mayHold(b *triggers.Binding) bool {
	for _, read := range b.Paths() {
		if read.Copied && len(read.Path) == 1 && (read.Path[0] == "input" || read.Path[0] == "output") {
			return false
		}
	}
	return b.Type() == "bool" || b.Type() == "dyn"
}

// Has refuses contracts of tools of a server that call one which it does not have: what they promise
// could never be done. Errors: *ledger.Refused.
func (p Pack) Has(tools []*sdk.Tool) error {
	there := map[string]bool{}
	for _, t := range tools {
		there[t.Name] = true
	}
	for _, name := range sortedKeys(p.Tools) {
		if !there[name] {
			continue // no call of it is undone
		}
		calls := p.Tools[name].calls()
		for _, part := range sortedKeys(calls) {
			if called := calls[part]; !there[called] {
				return ledger.Refuse("tools."+name+"."+part, fmt.Sprintf("%s has no tool %q", p.Server, called),
					"a tool that it lists")
			}
		}
	}
	return nil
}

// calls are the tools that a contract calls, by the fields that name them.
func (t Tool) calls() map[string]string {
	named := map[string]string{}
	for part, ask := range map[string]*Ask{"before": t.Before, "after": t.After, "probe": t.Probe} {
		if ask != nil && ask.Tool != "" {
			named[part+".tool"] = ask.Tool
		}
	}
	for i, step := range t.Undo {
		if step.Tool != "" {
			named[fmt.Sprintf("undo[%d].tool", i)] = step.Tool
		}
	}
	return named
}

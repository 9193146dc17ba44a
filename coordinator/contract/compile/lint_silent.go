package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/triggers"
)

// An answer that says nothing (an error in a body, an empty object, no output) must not be
// read as "nothing is there", nor as "it is undone". What is compared with a path that is not
// there is not known, so that such an answer is inconclusive; but has() and orValue() answer
// for it, and a reader that leaves a whole case to "else" means more than it says.

// answerReading is an expression that reads an answer, and what it must not make of nothing.
type answerReading struct {
	field, text string
	variables   []string // that are the answer
	bad, means  string   // the value, and what it says
}

// silent warns of what an answer that says nothing counts as.
func (l *linter) silent(c *Compiled) {
	t, of := c.sent()
	failure := []string{"error", "result"}
	for _, r := range []answerReading{
		{"probe.answer", t.Probe.GetAnswer(), []string{"probe"}, `"absent"`, "absent"},
		{"inverse.verify.ok", t.Verify.GetOk(), []string{"verify", "result"}, "true",
			"taken for an effect that is gone"},
		{"inverse.unchanged", t.Unchanged, []string{"probe"}, "true",
			"taken for what the forward left"},
		{of + ".done", t.Done, failure, "true", "taken for an undo that is done"},
		{of + ".stop", t.Stop, failure, "true", "final"},
	} {
		if r.text == "" {
			continue
		}
		if b, err := l.programs.Reader(r.text); err == nil {
			l.silentIn(r, b)
		}
	}
}

func (l *linter) silentIn(r answerReading, b *triggers.Binding) {
	hint := `name the value that says so, as in probe.status == "cancelled" ? "absent" : "inconclusive"`
	if r.field != "probe.answer" {
		hint = `compare a field that says so, as in has(` + r.variables[0] + `.code) && ` +
			r.variables[0] + `.code == "gone"`
	}
	vars := standIns(r.variables, b)
	for _, answer := range []string{"", "null", "{}", `{"error":"rate limited"}`} {
		if value, _ := r.evaluate(b, vars, answer, true); value == r.bad {
			l.warn(r.field, fmt.Sprintf("an answer that says nothing, as %s, is %s",
				orNone(answer), r.means), hint)
			return
		}
	}
	for _, answer := range append([]string{"{}"}, emptyItems(b, r.variables[0])...) {
		strictly, err := r.evaluate(b, vars, answer, true)
		loosely, _ := r.evaluate(b, vars, answer, false)
		if loosely != r.bad || strictly == r.bad {
			continue
		}
		path := "what it reads"
		if _, named, ok := strings.Cut(fmt.Sprint(err), triggers.ErrNotThere.Error()+": "); ok {
			path = named
		}
		l.warn(r.field, "an answer without "+path+" is not "+r.means+": what is not there is "+
			"compared with nothing, and the result is null", hint+"; has() asks whether it is there")
		return
	}
}

func orNone(answer string) string {
	if answer == "" {
		return "no output"
	}
	return answer
}

// evaluate reads one answer; the error is triggers.ErrNotThere or one of the expression.
func (r answerReading) evaluate(b *triggers.Binding, vars triggers.BindingVars, answer string,
	strict bool) (string, error) {
	switch vars.Strict = strict; r.variables[0] {
	case "probe":
		vars.Probe = json.RawMessage(answer)
	case "verify":
		vars.Verify = json.RawMessage(answer)
	case "error":
		vars.Error = json.RawMessage(answer)
	}
	value, err := b.Evaluate(vars)
	if err != nil && !errors.Is(err, triggers.ErrNotThere) {
		return "", err
	}
	return string(value), err
}

// standIns are values for whatever expressions read beside the answer: each path leads to
// a text of its own.
func standIns(answer []string, readers ...*triggers.Binding) (vars triggers.BindingVars) {
	for _, v := range []struct {
		name string
		into *json.RawMessage
	}{{"input", &vars.Input}, {"output", &vars.Output}, {"before", &vars.Before},
		{"plan", &vars.Plan}, {"meta", &vars.Meta}, {"actions", &vars.Actions},
		{"facts", &vars.Facts}} {
		if slices.Contains(answer, v.name) {
			continue
		}
		tree := map[string]any{}
		for _, b := range readers {
			for _, read := range b.Paths() {
				if read.Path[0] == v.name {
					plant(tree, read.Path[1:], strings.Join(read.Path, "."))
				}
			}
		}
		*v.into = encoded(tree)
	}
	return vars
}

// emptyItems are answers in which one path that the expression reads is a list of one item
// without any field.
func emptyItems(b *triggers.Binding, variable string) (answers []string) {
	for _, read := range b.Paths() {
		if read.Path[0] == variable && len(read.Path) > 1 {
			tree := map[string]any{}
			plant(tree, read.Path[1:], []any{map[string]any{}})
			answers = append(answers, string(encoded(tree)))
		}
	}
	return answers
}

// plant puts a value at the end of a path, unless a longer one goes through it.
func plant(tree map[string]any, path []string, value any) {
	for i, step := range path {
		if i == len(path)-1 {
			if _, taken := tree[step]; !taken {
				tree[step] = value
			}
			return
		}
		below, ok := tree[step].(map[string]any)
		if !ok {
			below = map[string]any{}
			tree[step] = below
		}
		tree = below
	}
}

func encoded(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic("contract: cannot encode a stand-in: " + err.Error())
	}
	return out
}

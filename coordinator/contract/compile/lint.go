package compile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Lint returns all that is wrong with contracts, or probably not meant, in the
// order of their files, and runs their examples. It uses no network.
func Lint(sources []contract.Source) contract.Findings {
	programs := triggers.NewCache(programsMax)
	findings := contract.DeclaredTwice(sources)
	for i := range sources {
		l := &linter{source: &sources[i], programs: programs}
		l.lint()
		findings = append(findings, l.findings...)
	}
	findings = append(findings, cycles(sources, programs)...)
	findings.Sort()
	return findings
}

// linter looks at one contract.
type linter struct {
	source   *contract.Source
	programs *triggers.Cache
	findings contract.Findings
}

func (l *linter) warn(field, message, hint string) {
	l.findings = append(l.findings, l.source.Warning(field, message, hint))
}

func (l *linter) fail(field, message, hint string) {
	l.findings = append(l.findings, l.source.Finding(field, message, hint))
}

func (l *linter) lint() {
	x := &compiler{at: at(l.source.Capability), programs: l.programs}
	compiled := x.compile(l.source.Contract)
	compiles := compiled != nil && len(x.problems) == 0
	if compiles {
		x.checkKnown(l.source.Contract, compiled)
	}
	for _, p := range x.problems {
		l.problem(p)
	}
	l.warnings(l.source.Contract)
	if !compiles {
		return // examples of what does not compile only repeat it
	}
	l.duplicates(compiled)
	l.silent(compiled)
	l.names(compiled)
	l.triggers(compiled)
	for i := range l.source.Examples {
		(&exampleRun{linter: l, compiled: compiled, example: &l.source.Examples[i],
			at: fmt.Sprintf("examples[%d]", i)}).run()
	}
}

// problem places what the compiler refused.
func (l *linter) problem(p problem) {
	if p.cause != nil {
		l.findings = append(l.findings, l.source.ExpressionFinding(p.field, p.text, contract.Problem{
			Line: p.cause.Line, Column: p.cause.Column, Message: p.cause.Message, Hint: p.cause.Hint,
		}))
		return
	}
	hint := ""
	if p.want != "" {
		hint = "want " + p.want
	}
	l.fail(p.field, p.message, hint)
}

// deletes are the words in a capability after which nothing is left to restore.
var deletes = []string{"delete", "remove", "destroy", "drop", "purge", "erase", "truncate",
	"overwrite", "update", "replace", "rm", "wipe", "clear"}

// warnings says what is allowed and rarely meant.
func (l *linter) warnings(c contract.Contract) {
	l.staged(c)
	if word := deleteWord(c.Capability); word != "" && c.Class == contract.Irreversible && !c.Review &&
		c.Deliver == nil {
		l.warn("class", "what is called "+word+" is seldom the last act of its plan, and before "+
			"others an irreversible act stops an unwind", "keep what it takes away "+
			"(before, inverse), stage it (deliver, stage: commit), or add review: true")
	}
	if c.Class != contract.Compensable || c.Inverse == nil {
		return
	}
	if word := deleteWord(c.Capability); word != "" && c.Before == nil {
		l.warn("capability", c.Capability+" keeps no before-image: after the "+word+" there is nothing "+
			"to restore", "add before: a call whose answer is kept")
	}
	if c.Probe == nil && c.OnInDoubt == "" && c.Late != contract.LateRefused {
		l.warn("class", "no probe: an action in doubt is undone blindly",
			"add a probe, or write on_in_doubt: compensate or quarantine")
	}
	l.restoring(c)
	l.landing(c)
	if c.Fidelity == contract.Lossy && c.Inverse.Approve == "" {
		l.warn("fidelity", "a lossy undo runs without its owner's word", "add inverse.approve: owner")
	}
	if c.Inverse.Call == c.Capability {
		l.warn("inverse.call", "the inverse is the forward itself",
			"a capability of its own, so that its workers can tell an undo from an act")
	}
	if c.ValidFor > 0 && c.Warn >= c.ValidFor {
		l.warn("warn", "a window of "+contract.FormatDuration(c.ValidFor)+
			" is announced as soon as it opens", "less than valid_for")
	}
	if c.Warn > 0 && c.ValidFor == 0 && c.ValidUntil == "" {
		l.warn("warn", "there is no window to warn of", "add valid_for or valid_until")
	}
}

// restoring asks what keeps an undo that puts back what was there before from overwriting what
// someone else has written since.
func (l *linter) restoring(c contract.Contract) {
	if c.Inverse.Unchanged != "" {
		return
	}
	want := "add unchanged, as in probe.etag != null && probe.etag == output.etag, with a probe " +
		"that finds what is there, and pass =probe.etag for the provider to compare"
	if c.Inverse.Actuator == contract.ActuatorMemory { // which knows no probe
		want = "a key of its own for what the undo asserts"
	}
	for _, name := range slices.Sorted(maps.Keys(c.Inverse.With)) {
		b, err := l.programs.Binding(argument.Text(c.Inverse.With[name]))
		if err == nil && b.Reads("before") {
			l.warn("inverse", "it puts back what was there before, and may overwrite what someone else "+
				"has written since", want)
			return
		}
	}
}

// landing asks what keeps a forward from landing after its caller has given it up.
func (l *linter) landing(c contract.Contract) {
	if c.Late == contract.LateNever || c.Inverse.Actuator == contract.ActuatorMemory {
		return
	}
	if x := (&compiler{programs: l.programs}); !x.namesForward(c.Normal(x.refuse)) {
		l.warn("inverse.with", "no argument reads meta.forward_key: an undo in doubt cannot say which "+
			"forward it undoes",
			"pass forward: =meta.forward_key, so that the provider can find the effect and refuse a "+
				"forward whose undo came first")
	}
	if c.Late == "" && c.Settle == 0 && c.Timeout == 0 {
		l.warn("late", "nothing says when a forward that was given up can no longer land: an undo in "+
			"doubt waits "+contract.FormatDuration(ledger.SettleDefault),
			"late: refused if the provider refuses a forward whose undo came first; never if it happens "+
				"in the agent; else timeout and settle")
	}
	if c.Late == contract.LateRefused && c.OnLate != "" {
		l.warn("on_late", "nothing is owed for what completes late: its undo has undone it",
			"leave it out beside late: refused")
	}
}

// duplicates warns of an extra effect that its compensation could not name.
func (l *linter) duplicates(c *Compiled) {
	probe := c.inverse.Probe
	if probe == nil || probe.Answer == "" {
		return
	}
	answer, err := l.programs.Reader(probe.Answer)
	if err != nil || !slices.ContainsFunc(answer.Literals(),
		func(word json.RawMessage) bool { return string(word) == `"duplicate"` }) {
		return
	}
	for _, b := range c.inverse.Bindings {
		argument, err := l.programs.Reader(b.Expression)
		if err == nil && argument.ReadsField("meta", "external_ref") {
			return
		}
	}
	l.warn("probe.answer", "it may be duplicate, and no argument of the inverse reads "+
		"meta.external_ref: the extra effect goes to its owner", "read meta.external_ref in inverse.with")
}

func deleteWord(capability string) string {
	for word := range strings.FieldsFuncSeq(strings.ToLower(capability),
		func(r rune) bool { return r == '.' || r == '-' || r == '_' }) {
		if slices.Contains(deletes, word) {
			return word
		}
	}
	return ""
}

// triggers evaluates each condition as it is when an action has just been registered, for the
// values of each example. Without examples the input is not known.
func (l *linter) triggers(c *Compiled) {
	for _, t := range c.inverse.Triggers {
		condition, err := l.programs.Condition(t.Condition)
		if err != nil {
			continue // refused before
		}
		field := "triggers[" + t.Name + "]"
		if unheard := l.programs.Unheard(t.Condition); unheard != nil {
			l.warn(field, unheard.Message, unheard.Hint)
		}
		found, moot := c.undecided(field, condition, nil, nothing)
		for i := 0; i < len(l.source.Examples) && found == nil && !moot; i++ {
			example := &l.source.Examples[i]
			output := l.lifted(c, example.Output)
			if output == nil && example.Output != nil {
				output = nothing
			}
			found, moot = c.undecided(field, condition, l.lifted(c, example.Input), output)
		}
		if found != nil {
			l.problem(*found)
		}
		if moot {
			l.warn(field, "never fires: no later fact, time or outcome makes it true",
				"remove it, or see docs/triggers.md")
		}
	}
}

// lifted is what triggers may read of an example's value.
func (l *linter) lifted(c *Compiled, value any) []byte {
	text, err := argument.Encode(value)
	if err != nil || value == nil {
		return nil
	}
	lifted, err := c.Lifted(text)
	if err != nil {
		return nil
	}
	return lifted
}

// sameJSON compares two JSON texts, numbers as they are written.
func sameJSON(a, b []byte) bool {
	left, err := argument.Decode(a)
	if err != nil {
		return false
	}
	right, err := argument.Decode(b)
	if err != nil {
		return false
	}
	leftText, err := argument.Encode(left)
	if err != nil {
		return false
	}
	rightText, err := argument.Encode(right)
	return err == nil && bytes.Equal(leftText, rightText)
}

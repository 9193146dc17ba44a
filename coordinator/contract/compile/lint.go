package compile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
	"github.com/sagenbaum/sagenbaum/triggers/nearest"
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
	for _, p := range x.problems {
		l.problem(p)
	}
	l.warnings(l.source.Contract)
	if compiled == nil || len(x.problems) > 0 {
		return // examples of what does not compile only repeat it
	}
	l.fields(compiled)
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

// fieldsOf are the fields of variables whose shape is known; beforeFields are those
// that are known before the forward crosses.
var (
	fieldsOf = map[string][]string{
		"error": {"code", "message"},
		"meta": {"action", "address", "attempt", "blind_cleanup", "capability", "dirty_failure",
			"external_ref", "forward_at_ms", "forward_key",
			"has_forward_output", "key", "plan", "tenant"},
		"plan": {"agent", "id", "input", "label", "labels", "owner", "reason"},
	}
	beforeFields = map[string][]string{
		"meta": {"action", "capability", "forward_key", "key", "plan", "tenant"},
		"plan": {"agent", "id", "input", "label", "labels", "owner"},
	}
)

// fields refuses what would be null for ever, as a key that is misspelt.
func (l *linter) fields(c *Compiled) {
	with := func(field string, call *pb.Call, known map[string][]string) {
		for _, b := range call.GetBindings() {
			l.known(field+"."+b.Name, b.Expression, known)
		}
	}
	t, of := c.sent()
	with("before.with", c.Before, beforeFields)
	with(of+".with", &pb.Call{Bindings: t.Bindings}, fieldsOf)
	with("probe.with", t.Probe.GetCall(), fieldsOf)
	with("inverse.verify.with", t.Verify.GetCall(), fieldsOf)
	l.known("probe.answer", t.Probe.GetAnswer(), fieldsOf)
	l.known("probe.external_ref", t.Probe.GetExternalRef(), fieldsOf)
	l.known("inverse.verify.ok", t.Verify.GetOk(), fieldsOf)
	l.known("inverse.unchanged", t.Unchanged, fieldsOf)
	l.known(of+".done", t.Done, fieldsOf)
	l.known(of+".stop", t.Stop, fieldsOf)
}

func (l *linter) known(field, expression string, known map[string][]string) {
	program, err := l.programs.Reader(expression)
	if err != nil {
		return // there is none
	}
	for _, variable := range slices.Sorted(maps.Keys(known)) {
		for _, name := range program.Fields(variable) {
			if slices.Contains(known[variable], name) {
				continue
			}
			hint := nearest.DidYouMean(name, known[variable])
			if hint == "" {
				hint = "there is " + strings.Join(known[variable], ", ")
			}
			l.fail(field, variable+"."+name+" is null here, always", hint)
		}
	}
	for _, read := range program.Paths() {
		if read.Path[0] != "actions" || len(read.Path) < 3 || slices.Contains(otherFields, read.Path[2]) {
			continue
		}
		hint := nearest.DidYouMean(read.Path[2], otherFields)
		if hint == "" {
			hint = "there is " + strings.Join(otherFields, ", ")
		}
		l.fail(field, strings.Join(read.Path[:3], ".")+" is null here, always", hint)
	}
}

// otherFields are those of another action.
var otherFields = []string{"input", "output", "before", "external_ref"}

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

// sampleNs is the time of the sample plan, unix ns.
const sampleNs = int64(1_767_225_600_000_000_000) // 2026-01-01

// triggers evaluates each condition as it is when an action has just been
// registered: what is true there undoes every action at once. Without examples the
// input is not known.
func (l *linter) triggers(c *Compiled) {
	examples := append([]contract.Example{{}}, l.source.Examples...)
	for _, name := range slices.Sorted(maps.Keys(l.source.Triggers)) {
		condition, err := l.programs.Condition(argument.CEL(l.source.Triggers[name]))
		if err != nil {
			continue // refused before
		}
		if unheard := l.programs.Unheard(argument.CEL(l.source.Triggers[name])); unheard != nil {
			l.warn("triggers["+name+"]", unheard.Message, unheard.Hint)
		}
		for i := range examples {
			if l.trigger(c, "triggers["+name+"]", condition, &examples[i]) {
				break
			}
		}
	}
}

// trigger reports whether it found something.
func (l *linter) trigger(c *Compiled, field string, condition *triggers.Condition,
	example *contract.Example) bool {
	scope := triggers.Scope{
		Plan: triggers.Plan{ID: "plan", Status: "open", Agent: "agent", OpenedNs: sampleNs,
			DeadlineNs: sampleNs + int64(24*time.Hour), Actions: 1},
		Action: &triggers.Action{ID: "action", Capability: c.Capability, AtNs: sampleNs,
			Input: l.lifted(c, example.Input)},
		NowNs: sampleNs, ArmedNs: sampleNs,
	}
	if l.stuck(field, condition, scope) {
		return true
	}
	result := condition.Evaluate(scope, triggers.Nothing{})
	if result.Truth == triggers.True {
		l.fail(field, "fires at once: it is true of an action that was just registered",
			"a condition that a later fact, time or outcome makes true")
		return true
	}
	payload, waits := l.payload(c, field, result.Waits)
	if payload {
		return true
	}
	if result.Moot && !waits {
		l.warn(field, "never fires: no later fact, time or outcome makes it true",
			"remove it, or see docs/triggers.md")
		return true
	}
	if example.Output == nil {
		return false
	}
	if scope.Action.Output = l.lifted(c, example.Output); scope.Action.Output == nil {
		scope.Action.Output = []byte("{}")
	}
	if l.stuck(field, condition, scope) {
		return true
	}
	payload, _ = l.payload(c, field, condition.Evaluate(scope, triggers.Nothing{}).Waits)
	return payload
}

// stuck reports whether an error keeps a condition from ever being true for values as in an
// example.
func (l *linter) stuck(field string, condition *triggers.Condition, scope triggers.Scope) bool {
	err := condition.Stuck(scope)
	if err != nil {
		l.fail(field, "can never be true for an action as in the examples: "+err.Error(), stuckWanted)
	}
	return err != nil
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

// payload refuses a condition that waits for what is not lifted, and so for ever.
// waits says that it waits for a lifted field, which this value does not have.
func (l *linter) payload(c *Compiled, field string, waitsFor []string) (refused, waits bool) {
	for _, wait := range waitsFor {
		path, from, ok := strings.Cut(wait, ", which was not lifted from the ")
		if !ok {
			continue
		}
		waits = true
		name := path[strings.LastIndex(path, ".")+1:]
		if slices.ContainsFunc(c.Sensitive,
			func(p seal.Path) bool { return p.Overlaps([]string{from, name}) }) {
			l.fail(field, "reads "+path+", which is sensitive",
				"what is in the clear: a decision must be the same when the key is gone")
			return true, true
		}
		if !slices.Contains(c.Lift, name) {
			l.fail(field, "reads "+path+", which is payload",
				"lift: ["+name+"], so that triggers may read it of the "+from)
			return true, true
		}
	}
	return false, waits
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

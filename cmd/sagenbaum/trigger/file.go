package trigger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// triggerFile is a file of trigger test: a condition and one or more timelines.
type triggerFile struct {
	Condition string `json:"condition"`
	triggerCase
	Cases []triggerCase `json:"cases"`
}

// triggerCase is one timeline and what is expected of it.
type triggerCase struct {
	Name   string         `json:"name"`
	Action *triggerAction `json:"action"`
	Plan   *triggerPlan   `json:"plan"`
	Steps  []triggerStep  `json:"steps"`
	Until  string         `json:"until"`
	// AfterCommit is until when the condition is held in a committed plan.
	AfterCommit string         `json:"after_commit"`
	Expect      *triggerExpect `json:"expect"`
}

// triggerAction is the action that a condition is held for; without one it is held
// for the plan.
type triggerAction struct {
	ID         string            `json:"id"`
	Capability string            `json:"capability"`
	Input      any               `json:"input"`
	Labels     map[string]string `json:"labels"`
	At         string            `json:"at"`
}

type triggerPlan struct {
	ID       string            `json:"id"`
	Label    string            `json:"label"`
	Owner    string            `json:"owner"`
	Agent    string            `json:"agent"`
	Labels   map[string]string `json:"labels"`
	Status   string            `json:"status"`
	Opened   string            `json:"opened"`
	Deadline string            `json:"deadline"`
	Actions  *int              `json:"actions"`
}

// triggerStep is one thing that happens.
type triggerStep struct {
	At      string `json:"at"`
	Fact    string `json:"fact"`
	Value   any    `json:"value"`
	Retract bool   `json:"retract"`
	Plan    string `json:"plan"`
	Actions *int   `json:"actions"`
	Active  bool   `json:"active"`
	Outcome string `json:"outcome"`
	Output  any    `json:"output"`
	Verdict string `json:"verdict"`
	By      string `json:"by"`
	Reason  string `json:"reason"`
}

type triggerExpect struct {
	Fires string `json:"fires"`
	Moot  *bool  `json:"moot"`
}

// triggerCasesMax bounds the cases of one file; their steps together are bounded by
// triggers.EventsMax.
const triggerCasesMax = 32

// never is what a condition that does not fire is expected to do.
const never = "never"

// TriggerTest is a file that was read: a condition and its cases.
type TriggerTest struct {
	file      string
	text      string
	condition *triggers.Condition
	Cases     []timelineCase
}

// timelineCase is one case, ready to run.
type timelineCase struct {
	name     string
	timeline triggers.Timeline
	Expects  bool
	never    bool
	firesNs  int64
	moot     *bool
}

// ReadTriggerTest reads a file of trigger test whose lease is armed at an instant.
// The error is a contract.Findings.
func ReadTriggerTest(name string, data []byte, armed time.Time,
	programs *triggers.Cache) (*TriggerTest, error) {
	var f triggerFile
	document, err := contract.ReadDocument(name, data, &f)
	if err != nil {
		return nil, err
	}
	r := &triggerReader{document: document, armedNs: armed.UnixNano()}
	test := &TriggerTest{file: name, text: f.Condition}
	r.condition(test, programs)
	r.reads = test.condition != nil && test.condition.ReadsAction()
	if len(f.Cases) > 0 && (len(f.Steps) > 0 || f.Until != "" || f.Expect != nil) {
		r.refuse("cases", "beside steps, until or expect of the file", "write these in each case")
	}
	if len(f.Cases) == 0 {
		test.Cases = append(test.Cases, r.read("", &f.triggerCase))
	}
	if len(f.Cases) > triggerCasesMax {
		r.refuse("cases", fmt.Sprint(len(f.Cases)),
			fmt.Sprintf("at most %d, or several files", triggerCasesMax))
		f.Cases = nil
	}
	for i := range f.Cases {
		c := &f.Cases[i]
		if c.Action == nil {
			c.Action = f.Action
		}
		if c.Plan == nil {
			c.Plan = f.Plan
		}
		test.Cases = append(test.Cases, r.read(fmt.Sprintf("cases[%d].", i), c))
	}
	if len(r.findings) > 0 {
		return nil, r.findings
	}
	return test, nil
}

// triggerReader turns what is written into timelines.
type triggerReader struct {
	document *contract.Document
	armedNs  int64
	steps    int  // of all cases so far
	reads    bool // the condition reads the action
	findings contract.Findings
}

func (r *triggerReader) refuse(field, message, hint string) {
	r.findings = append(r.findings, r.document.Finding(field, message, hint))
}

func (r *triggerReader) condition(test *TriggerTest, programs *triggers.Cache) {
	condition, err := programs.Condition(test.text)
	var refused *triggers.Error
	if errors.As(err, &refused) {
		r.findings = append(r.findings, r.document.ExpressionFinding("condition", test.text,
			contract.Problem{
				Line: refused.Line, Column: refused.Column, Message: refused.Message,
				Hint: refused.Hint,
			}))
	}
	test.condition = condition
}

// offset reads a span of time from arming; nothing written is 0.
func (r *triggerReader) offset(field, text string) int64 {
	if text == "" {
		return 0
	}
	d, err := contract.ParseDuration(text)
	if err != nil {
		r.refuse(field, err.Error(), "")
	}
	if d > ledger.DurationMax || d < -ledger.DurationMax {
		r.refuse(field, text+" is out of reach",
			"at most "+contract.FormatDuration(ledger.DurationMax))
		return 0
	}
	return int64(d)
}

// word refuses what is not in a closed set.
func (r *triggerReader) word(field, text string, allowed ...string) {
	if slices.Contains(allowed, text) {
		return
	}
	hint := nearest.DidYouMean(text, allowed)
	if hint == "" {
		hint = "want " + strings.Join(allowed, ", ")
	}
	r.refuse(field, fmt.Sprintf("%q", text), hint)
}

// json writes a value as the timeline has it.
func (r *triggerReader) json(field string, value any) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		r.refuse(field, "no JSON: "+err.Error(), "")
		return nil
	}
	return bytes.TrimSpace(out.Bytes())
}

func (r *triggerReader) read(at string, c *triggerCase) timelineCase {
	if r.reads && c.Action == nil {
		field := "condition"
		if at != "" {
			field = at + "action"
		}
		r.refuse(field, "the condition reads action, and there is none",
			"add action: {} for a trigger of an action")
	}
	out := timelineCase{name: c.Name, timeline: triggers.Timeline{
		Scope:   triggers.Scope{Plan: r.plan(at, c), Action: r.action(at, c), ArmedNs: r.armedNs},
		UntilNs: r.offset(at+"until", c.Until),
		HeldNs:  r.offset(at+"after_commit", c.AfterCommit),
	}}
	if out.timeline.HeldNs <= 0 && c.AfterCommit != "" {
		r.refuse(at+"after_commit", fmt.Sprintf("%q is not after arming", c.AfterCommit),
			"the end of the undo window as an offset above zero, as in 720h")
	}
	if out.timeline.UntilNs <= 0 && c.Until != "" {
		r.refuse(at+"until", fmt.Sprintf("%q is not after arming", c.Until),
			"an offset above zero, as in 1h")
	}
	if r.steps += len(c.Steps); r.steps > triggers.EventsMax {
		r.refuse(at+"steps", fmt.Sprintf("%d steps so far", r.steps),
			fmt.Sprintf("at most %d in a file", triggers.EventsMax))
		return out
	}
	for i := range c.Steps {
		e := r.step(fmt.Sprintf("%ssteps[%d]", at, i), &c.Steps[i], c.Action != nil)
		if out.timeline.UntilNs > 0 && e.AtNs > out.timeline.UntilNs {
			r.refuse(fmt.Sprintf("%ssteps[%d].at", at, i), c.Steps[i].At+" is after until",
				"a later until, or none")
		}
		out.timeline.Events = append(out.timeline.Events, e)
	}
	r.possible(at, &out.timeline)
	r.expect(at+"expect", c.Expect, &out)
	return out
}

// possible refuses steps that no ledger has, in the order in which they happen.
func (r *triggerReader) possible(at string, t *triggers.Timeline) {
	order := make([]int, len(t.Events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order,
		func(a, b int) int { return cmp.Compare(t.Events[a].AtNs, t.Events[b].AtNs) })
	outcome, count := "", t.Scope.Plan.Actions
	for _, i := range order {
		field := fmt.Sprintf("%ssteps[%d].", at, i)
		switch e := &t.Events[i]; e.Kind {
		case triggers.EventOutcome:
			// the failure was not known to be none
			late := outcome == ledger.StateFailed && e.Text == "completed"
			if outcome != "" && outcome != "in_doubt" && !late || outcome == "in_doubt" &&
				e.Text == "in_doubt" {
				r.refuse(field+"outcome", "the forward is "+outcome+" already",
					"one outcome; after in_doubt completed or failed, after failed completed")
			}
			outcome = e.Text
		case triggers.EventActions:
			if e.Count < count {
				r.refuse(field+"actions", fmt.Sprintf("%d, after %d", e.Count, count),
					"a number that never goes down")
			}
			count = e.Count
		}
	}
}

func (r *triggerReader) plan(at string, c *triggerCase) triggers.Plan {
	if !r.document.Has(at + "plan") {
		at = "" // it is the one of the file
	}
	p := triggers.Plan{ID: "p1", Status: ledger.StateOpen, Agent: "agent", OpenedNs: r.armedNs,
		ActiveNs: r.armedNs}
	if c.Action != nil {
		p.Actions = 1
	}
	w := c.Plan
	if w == nil {
		return p
	}
	if w.ID != "" {
		p.ID = w.ID
	}
	if w.Agent != "" {
		p.Agent = w.Agent
	}
	if w.Status != "" {
		r.word(at+"plan.status", w.Status, triggers.Words("plan.status")...)
		p.Status = w.Status
	}
	p.Label, p.Owner, p.Labels = w.Label, w.Owner, w.Labels
	p.OpenedNs += r.offset(at+"plan.opened", w.Opened)
	if w.Deadline != "" {
		p.DeadlineNs = r.armedNs + r.offset(at+"plan.deadline", w.Deadline)
	}
	if w.Actions != nil {
		p.Actions = r.count(at+"plan.actions", *w.Actions)
	}
	return p
}

func (r *triggerReader) count(field string, n int) int {
	if n < 0 {
		r.refuse(field, fmt.Sprint(n), "0 or more")
	}
	return n
}

func (r *triggerReader) action(at string, c *triggerCase) *triggers.Action {
	w := c.Action
	if w == nil {
		return nil
	}
	if !r.document.Has(at + "action") {
		at = ""
	}
	a := &triggers.Action{ID: "a1", Capability: "act",
		AtNs: r.armedNs + r.offset(at+"action.at", w.At), Labels: w.Labels}
	if w.ID != "" {
		a.ID = w.ID
	}
	if w.Capability != "" {
		a.Capability = w.Capability
	}
	if w.Input != nil {
		if _, ok := w.Input.(map[string]any); !ok {
			r.refuse(at+"action.input", "no mapping", "the lifted fields, as in {order: o7}")
		}
		a.Input = r.json(at+"action.input", w.Input)
	}
	return a
}

// step reads one thing that happens.
func (r *triggerReader) step(at string, s *triggerStep, action bool) triggers.Event {
	if s.At == "" {
		r.refuse(at+".at", "no instant", "add at: 10s, counted from arming")
	}
	e := triggers.Event{AtNs: r.offset(at+".at", s.At)}
	has := func(name string) bool { return r.document.Has(at + "." + name) }
	var happens []string
	for _, name := range []string{"fact", "plan", "actions", "active", "outcome", "verdict"} {
		if has(name) {
			happens = append(happens, name)
		}
	}
	if len(happens) != 1 {
		r.refuse(at, fmt.Sprintf("%d things that happen", len(happens)),
			"one of fact, plan, actions, active, outcome, verdict")
		return e
	}
	for _, beside := range [][2]string{{"value", "fact"}, {"retract", "fact"},
		{"output", "outcome"}, {"by", "verdict"}, {"reason", "verdict"}} {
		if has(beside[0]) && happens[0] != beside[1] {
			r.refuse(at+"."+beside[0], "beside "+happens[0], "it belongs to "+beside[1])
		}
	}
	switch happens[0] {
	case "fact":
		r.fact(at, s, &e)
	case "plan":
		r.word(at+".plan", s.Plan, triggers.Words("plan.status")...)
		e.Kind, e.Text = triggers.EventStatus, s.Plan
	case "actions":
		e.Kind, e.Count = triggers.EventActions, r.count(at+".actions", *s.Actions)
	case "active":
		if e.Kind = triggers.EventActive; !s.Active {
			r.refuse(at+".active", "false", "true, for a record of the agent that changes nothing else")
		}
	case "outcome":
		r.word(at+".outcome", s.Outcome, "completed", "failed", "in_doubt")
		e.Kind, e.Text = triggers.EventOutcome, s.Outcome
		r.output(at, s, &e)
	case "verdict":
		r.word(at+".verdict", s.Verdict, triggers.Words("verdict.outcome")...)
		e.Kind, e.Text, e.By, e.Reason = triggers.EventVerdict, s.Verdict, s.By, s.Reason
	}
	if !action && (e.Kind == triggers.EventOutcome || e.Kind == triggers.EventVerdict) {
		r.refuse(at, "there is no action", "add action: {} for a trigger of an action")
	}
	return e
}

func (r *triggerReader) fact(at string, s *triggerStep, e *triggers.Event) {
	if s.Fact == "" || len(s.Fact) > ledger.FactKeyMax {
		r.refuse(at+".fact", fmt.Sprintf("a key of %d bytes", len(s.Fact)),
			fmt.Sprintf("1 to %d", ledger.FactKeyMax))
	}
	e.Kind, e.Key = triggers.EventAssert, s.Fact
	switch written := r.document.Has(at + ".value"); {
	case s.Retract && written:
		r.refuse(at+".retract", "beside a value", "one of the two")
	case s.Retract:
		e.Kind = triggers.EventRetract
	case !written:
		r.refuse(at, "a fact without a value", "add value: true, or retract: true")
	default:
		e.Value = r.json(at+".value", s.Value)
	}
}

// output is what a completed forward returned, {} when nothing is written.
func (r *triggerReader) output(at string, s *triggerStep, e *triggers.Event) {
	if s.Outcome != "completed" {
		if s.Output != nil {
			r.refuse(at+".output", "of a forward that is "+s.Outcome, "outcome: completed")
		}
		return
	}
	if s.Output == nil {
		s.Output = map[string]any{}
	}
	if _, ok := s.Output.(map[string]any); !ok {
		r.refuse(at+".output", "no mapping", "the lifted fields, as in {ref: r1}")
	}
	e.Value = r.json(at+".output", s.Output)
}

func (r *triggerReader) expect(at string, x *triggerExpect, out *timelineCase) {
	if x == nil {
		return
	}
	out.Expects, out.moot = true, x.Moot
	switch {
	case x.Fires == "" && x.Moot == nil:
		r.refuse(at, "nothing is expected", "fires: 15m, fires: never or moot: true")
	case x.Fires == never:
		out.never = true
	case x.Fires != "":
		out.firesNs = r.offset(at+".fires", x.Fires)
		if out.firesNs < 0 {
			r.refuse(at+".fires", x.Fires+" is before arming", "an offset from arming, or never")
		}
	default:
		out.never = *x.Moot // what is moot never fires
		out.firesNs = -1
	}
	if x.Moot != nil && *x.Moot && !out.never {
		r.refuse(at+".moot", "beside fires: "+x.Fires, "what is moot never fires")
	}
}

// unmet says what a course did not do as expected; nothing when it did. A window
// includes its end, so that it closes a nanosecond after what is expected.
func (c *timelineCase) unmet(course *triggers.Course) string {
	switch {
	case !c.Expects:
		return ""
	case c.never && course.Fires:
		return "expected never to fire"
	case !c.never && c.firesNs >= 0 && !course.Fires:
		return "expected to fire at " + triggers.FormatOffset(c.firesNs)
	case !c.never && c.firesNs >= 0 && course.FiresNs != c.firesNs && course.FiresNs != c.firesNs+1:
		return "expected to fire at " + triggers.FormatOffset(c.firesNs)
	case c.moot != nil && *c.moot && !course.Moot:
		return "expected to be moot"
	case c.moot != nil && !*c.moot && course.Moot:
		return "expected not to be moot"
	}
	return ""
}

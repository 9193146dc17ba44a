package compile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Contract checks a contract and every expression in it, and prepares it. The
// error is a *ledger.Refused with the path of the first field that is wrong, as in
// "contract[git.branch.create].inverse.with.sha". What it returns may be shared;
// programs belongs to one goroutine.
func Contract(c contract.Contract, programs *triggers.Cache) (*Compiled, error) {
	x := &compiler{at: at(c.Capability), programs: programs}
	out := x.compile(c)
	if len(x.problems) == 0 {
		x.checkKnown(c, out)
	}
	if err := x.first(); err != nil {
		return nil, err
	}
	return out, nil
}

func at(capability string) string { return "contract[" + capability + "]" }

// compiler collects what is wrong with one contract, in the order of its fields.
type compiler struct {
	at       string
	programs *triggers.Cache
	problems []problem
}

type problem struct {
	field, message, want string          // field: below the contract, as in inverse.with.sha
	cause                *triggers.Error // of an expression: where in text
	text                 string
}

func (x *compiler) refuse(field, message, want string) {
	x.problems = append(x.problems, problem{field: field, message: message, want: want})
}

func (x *compiler) first() error {
	if len(x.problems) == 0 {
		return nil
	}
	p := x.problems[0]
	field := x.at + "." + p.field
	if p.field == "" {
		field = x.at
	}
	message := p.message
	if p.cause != nil {
		message = p.cause.Error()
	}
	return ledger.Refuse(field, message, p.want)
}

func (x *compiler) compile(written contract.Contract) *Compiled {
	c := written.Normal(x.refuse)
	x.checkClass(c)
	x.checkStage(c)
	x.checkCalls(c)
	x.checkWarn(written, c)
	x.checkRanges(c)
	x.checkExpressions(written)
	if len(x.problems) > 0 {
		return nil
	}
	out := &Compiled{
		Capability: c.Capability, Class: c.Class, Lift: c.Lift, Review: c.Review,
		ReviewTimeout: c.ReviewTimeout,
		Timeout:       c.Timeout, Grace: c.Grace, Late: lates(c.Late), Settle: c.Settle,
	}
	var err error
	if out.Canonical, err = written.Canonical(); err != nil {
		x.refuse("", err.Error(), "a contract of JSON values")
		return nil
	}
	if len(out.Canonical) > ledger.ContractMax {
		x.refuse("", fmt.Sprintf("%d bytes of canonical JSON", len(out.Canonical)),
			fmt.Sprintf("at most %d", ledger.ContractMax))
		return nil
	}
	out.Digest = ledger.ContractDigest(out.Canonical)
	out.inverse, out.deliver = x.registration(c), x.delivery(c)
	x.checkElements(out.inverse)
	x.checkElements(out.deliver)
	out.stages = c.Stage == contract.StageCommit
	if sealed := x.checkSensitive(c, out); out.deliver != nil {
		out.deliver.Sealed = sealed
	} else {
		out.inverse.Sealed = sealed
	}
	out.own = x.conditions(c)
	out.reads, out.readsReference = x.outcomeReads(out.inverse)
	out.delivered = x.ofInput(out.deliver)
	if c.Before != nil {
		out.Before = x.call("before", c.Before.Call, c.Before.With, c.Before.Timeout, c.Before.Attempts,
			c.Before.Backoff)
		out.before = x.programsOf("before.with", out.Before.Bindings, x.programs.Binding)
	}
	if c.ValidUntil != "" {
		out.validUntil = x.program("valid_until", c.ValidUntil, x.programs.Binding)
	}
	if len(x.problems) == 0 {
		x.checkFits(out)
	}
	return out
}

// checkClass holds the rules between a class and the other fields.
func (x *compiler) checkClass(c contract.Contract) {
	if !ledger.ValidCapability(c.Capability) {
		x.refuse("capability", fmt.Sprintf("%q", c.Capability), "dotted names, as in git.branch.create")
	}
	given := func(field string, is bool) {
		if is {
			x.refuse(field, "given for an "+string(c.Class)+" capability", "none, or class compensable")
		}
	}
	switch c.Class {
	case contract.Compensable:
		if c.Inverse == nil {
			x.refuse("inverse", "missing", "what undoes it, as in call: git.branch.delete; or another class")
		}
	case contract.Irreversible, contract.Effectless:
		given("inverse", c.Inverse != nil)
		given("before", c.Before != nil)
		given("valid_for", c.ValidFor != 0)
		given("valid_until", c.ValidUntil != "")
		given("warn", c.Warn != 0)
		given("probe", c.Probe != nil && c.Deliver == nil)
		given("on_in_doubt", c.OnInDoubt != "")
		given("on_late", c.OnLate != "")
		given("late", c.Late != "")
		given("settle", c.Settle != 0 && c.Deliver == nil)
		given("ask_after", c.AskAfter != 0)
		given("unserved_after", c.UnservedAfter != 0 && c.Deliver == nil)
	default:
		x.refuse("class", fmt.Sprintf("%q", string(c.Class)), "compensable, irreversible or effectless")
	}
	oneOf(x, "fidelity", c.Fidelity, "", contract.Exact, contract.Semantic, contract.Lossy)
	oneOf(x, "on_in_doubt", c.OnInDoubt, "", contract.InDoubtProbe,
		contract.InDoubtCompensate, contract.InDoubtQuarantine)
	oneOf(x, "on_late", c.OnLate, "", contract.LateCompensate, contract.LateQuarantine)
	oneOf(x, "late", c.Late, "", contract.LateRefused, contract.LateNever)
	if c.Late == contract.LateNever && c.Settle != 0 {
		x.refuse("settle", "given beside late: never",
			"one of the two: such a forward ends with the call")
	}
	if c.Late == contract.LateRefused && !x.namesForward(c) {
		x.refuse("late", "refused, and no argument of the inverse reads meta.forward_key",
			"inverse.with: {forward: =meta.forward_key}, by which the provider knows what to refuse")
	}
	if c.OnInDoubt == contract.InDoubtProbe && c.Probe == nil {
		x.refuse("on_in_doubt", "probe, and there is none", "a probe, or compensate or quarantine")
	}
	if c.Class == contract.Compensable && c.AskAfter != 0 && c.Probe == nil {
		x.refuse("ask_after", "given without a probe", "a probe, which is what is asked then")
	}
	if c.Inverse != nil && c.Inverse.Unchanged != "" && c.Probe == nil {
		x.refuse("inverse.unchanged", "given without a probe",
			"a probe, which finds what is there before the undo")
	}
	if c.Inverse != nil && c.Inverse.Dedupe > 0 && c.Probe == nil {
		x.refuse("inverse.dedupe", "given without a probe",
			"a probe, which is asked when the provider may have forgotten the key")
	}
	if c.ReviewTimeout != 0 && !c.Review {
		x.refuse("review_timeout", "given without review", "review: true as well")
	}
}

// argument compiles an argument of the inverse. What the probe has found may be one where it is
// asked before each attempt.
func (x *compiler) argument(c contract.Contract) func(string) (*triggers.Binding, error) {
	if c.Inverse != nil && c.Inverse.Unchanged != "" {
		return x.programs.Reader
	}
	return x.programs.Binding
}

// namesForward reports whether the undo can tell its provider which forward it undoes:
// by an argument, or as a handler in the agent's code, which gets the key.
func (x *compiler) namesForward(c contract.Contract) bool {
	if c.Inverse == nil || strings.HasPrefix(c.Inverse.Call, api.HandlerPrefix) {
		return true // or refused for another reason
	}
	for _, name := range slices.Sorted(maps.Keys(c.Inverse.With)) {
		argument, err := x.argument(c)(argument.Text(c.Inverse.With[name]))
		if err != nil || argument.ReadsField("meta", "forward_key") {
			return true // what does not compile is refused for that
		}
	}
	return false
}

func oneOf[T ~string](x *compiler, field string, value T, allowed ...T) {
	if slices.Contains(allowed, value) {
		return
	}
	want := ""
	for i, a := range allowed {
		switch {
		case a == "":
		case want == "":
			want = string(a)
		case i == len(allowed)-1:
			want += " or " + string(a)
		default:
			want += ", " + string(a)
		}
	}
	x.refuse(field, fmt.Sprintf("%q", string(value)), want)
}

// checkCalls checks the names of what is called, and the actuator.
func (x *compiler) checkCalls(c contract.Contract) {
	call := func(field, capability string) {
		if !ledger.ValidCapability(capability) {
			x.refuse(field, fmt.Sprintf("%q", capability), "dotted names, as in git.branch.get")
		}
	}
	if c.Before != nil {
		call("before.call", c.Before.Call)
	}
	if c.Probe != nil {
		call("probe.call", c.Probe.Call)
	}
	i := c.Inverse
	if i == nil {
		return
	}
	call("inverse.call", i.Call)
	if i.Verify != nil {
		call("inverse.verify.call", i.Verify.Call)
		if i.Verify.Ok == "" {
			x.refuse("inverse.verify.ok", "missing", "CEL that is true when the effect is gone")
		}
	}
	oneOf(x, "inverse.actuator", i.Actuator, contract.ActuatorNATS, contract.ActuatorAgent,
		contract.ActuatorMemory)
	oneOf(x, "inverse.approve", i.Approve, "", contract.ApproveOwner)
	switch {
	case i.Actuator == contract.ActuatorAgent && i.Agent == nil:
		x.refuse("inverse.agent", "missing", "tools and prompt for actuator agent")
	case i.Actuator != contract.ActuatorAgent && i.Agent != nil:
		x.refuse("inverse.agent", "given for actuator "+i.Actuator, "actuator agent")
	case i.Agent != nil:
		x.checkAgent(i.Agent)
	case i.Actuator == contract.ActuatorMemory:
		x.checkMemory(i)
	case ledger.MemoryArguments(i.Call) != nil:
		x.refuse("inverse.actuator", fmt.Sprintf("%s for %s", i.Actuator, i.Call),
			"memory, which has these capabilities; or a capability of a worker")
	}
}

// checkMemory holds an inverse in working memory to what that can do.
func (x *compiler) checkMemory(i *contract.Inverse) {
	want := ledger.MemoryArguments(i.Call)
	if want == nil {
		x.refuse("inverse.call", fmt.Sprintf("%q with actuator memory", i.Call),
			ledger.CapabilityAssert+" or "+ledger.CapabilityRetract)
		return
	}
	if have := slices.Sorted(maps.Keys(i.With)); !slices.Equal(have, want) {
		x.refuse("inverse.with", fmt.Sprintf("arguments %q", have),
			fmt.Sprintf("%q, which %s takes", want, i.Call))
	}
	if i.Dedupe != 0 {
		x.refuse("inverse.dedupe", "given for actuator memory", "none: it forgets no key")
	}
	if i.Unchanged != "" {
		x.refuse("inverse.unchanged", "given for actuator memory",
			"none: a fact has one value, which the undo sets")
	}
	if i.Verify != nil {
		x.refuse("inverse.verify", "given for actuator memory",
			"none: the fact and the success of the undo are one commit of records")
	}
}

// checkAgent refuses a task that cannot be kept to: one tool is called without a model, so that a
// model and a prompt need two.
func (x *compiler) checkAgent(a *contract.Agent) {
	const field = "inverse.agent."
	switch n := len(a.Tools); {
	case n < 2 && a.Prompt != "":
		x.refuse(field+"prompt", fmt.Sprintf("given with %d tools", n),
			"two tools or more; one tool is called without a model, by actuator nats")
	case n < 2 || n > ledger.ToolsMax:
		x.refuse(field+"tools", fmt.Sprintf("%d different tools", n),
			fmt.Sprintf("2 to %d; one tool is called without a model, by actuator nats", ledger.ToolsMax))
	}
	for _, tool := range a.Tools {
		if !ledger.ValidCapability(tool) {
			x.refuse(field+"tools", fmt.Sprintf("%q", tool), "dotted names, as in git.branch.delete")
		}
	}
	x.atMost(field+"prompt", a.Prompt, ledger.PromptMax)
	x.atMost(field+"model", a.Model, ledger.TokenLenMax)
	x.between(field+"max_turns", a.MaxTurns, 0, turnsMax)
}

// checkWarn holds the range of warn; one that was not written is a part of valid_for.
func (x *compiler) checkWarn(written, c contract.Contract) {
	if written.Warn != 0 || c.Warn == 0 || c.Warn >= ledger.DurationMin {
		x.window("warn", c.Warn)
		return
	}
	least := ledger.DurationMin * (c.ValidFor / c.Warn)
	x.refuse("valid_for", c.ValidFor.String(), fmt.Sprintf("at least %v, or warn beside it: %v, a "+
		"part of it, is too short for that", least, c.Warn))
}

// checkRanges holds what a conversion to the record's types would hide.
func (x *compiler) checkRanges(c contract.Contract) {
	x.window("valid_for", c.ValidFor)
	x.window("review_timeout", c.ReviewTimeout)
	x.span("timeout", c.Timeout, ledger.TimeoutMax)
	x.span("grace", c.Grace, ledger.GraceMax)
	x.span("settle", c.Settle, ledger.SettleMax)
	x.span("ask_after", c.AskAfter, ledger.AskAfterMax)
	x.span("unserved_after", c.UnservedAfter, ledger.UnservedMax)
	if c.Before != nil {
		x.asked("before", c.Before.Timeout, c.Before.Attempts, c.Before.Backoff)
	}
	if c.Probe != nil {
		x.asked("probe", c.Probe.Timeout, c.Probe.Attempts, c.Probe.Backoff)
	}
	if len(c.Lift) > contract.LiftMax || slices.Contains(c.Lift, "") {
		x.refuse("lift", fmt.Sprintf("%d fields, or one without a name", len(c.Lift)),
			fmt.Sprintf("at most %d names of top-level fields", contract.LiftMax))
	}
	if !ledger.ValidToken(c.Page) {
		x.refuse("page", fmt.Sprintf("%q", c.Page), ledger.TokenWanted)
	}
	if c.Deliver != nil {
		x.checkDeliverRanges(c.Deliver)
	}
	i := c.Inverse
	if i == nil {
		return
	}
	x.asked("inverse", i.Timeout, i.Attempts, i.Backoff)
	x.backoff("inverse", i.Backoff, i.BackoffMax, *i.Jitter)
	x.window("inverse.dedupe", i.Dedupe)
	x.atMost("inverse.worker_version", i.WorkerVersion, ledger.TokenLenMax)
	if i.Verify != nil {
		x.asked("inverse.verify", i.Verify.Timeout, i.Verify.Attempts, i.Verify.Backoff)
	}
}

func (x *compiler) asked(field string, timeout time.Duration, attempts int, backoff time.Duration) {
	x.span(field+".timeout", timeout, ledger.TimeoutMax)
	x.between(field+".attempts", attempts, 1, ledger.AttemptsMax)
	x.span(field+".backoff", backoff, ledger.BackoffMax)
}

// backoff checks how the backoff of attempts grows.
func (x *compiler) backoff(field string, first, most time.Duration, jitter int) {
	x.span(field+".backoff_max", most, ledger.BackoffMax)
	if most < first {
		x.refuse(field+".backoff_max", most.String(), "at least the backoff of "+first.String())
	}
	x.between(field+".jitter", jitter, 0, 100)
}

func (x *compiler) window(field string, d time.Duration) { x.span(field, d, ledger.DurationMax) }

func (x *compiler) span(field string, d, most time.Duration) {
	if err := ledger.CheckSpan(field, d, most); err != nil {
		x.refuse(field, d.String(), fmt.Sprintf("%v to %s", ledger.DurationMin,
			contract.FormatDuration(most)))
	}
}

func (x *compiler) between(field string, n, least, most int) {
	if n < least || n > most {
		x.refuse(field, fmt.Sprint(n), fmt.Sprintf("%d to %d", least, most))
	}
}

func (x *compiler) atMost(field, text string, most int) {
	if len(text) > most {
		x.refuse(field, fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d", most))
	}
}

// registration returns the record's form of a checked contract, without a key.
func (x *compiler) registration(c contract.Contract) *pb.CompensationRegistered {
	out := &pb.CompensationRegistered{
		OnInDoubt: onInDoubt(c), OnLate: pb.OnLate_ON_LATE_COMPENSATE, Page: c.Page, Fidelity: string(
			c.Fidelity),
		ValidForNs: int64(c.ValidFor), WarnNs: int64(c.Warn), UnservedAfterNs: int64(c.UnservedAfter),
		AskAfterNs: int64(c.AskAfter),
	}
	if c.OnLate == contract.LateQuarantine {
		out.OnLate = pb.OnLate_ON_LATE_QUARANTINE
	}
	for _, name := range slices.Sorted(maps.Keys(c.Triggers)) {
		t := &pb.Trigger{Name: name, Condition: c.Triggers[name],
			AfterCommit: slices.Contains(c.AfterCommit, name)}
		if c.Scopes[name] == contract.ScopePlan {
			t.Scope = pb.Scope_SCOPE_PLAN
		}
		out.Triggers = append(out.Triggers, t)
	}
	if p := c.Probe; p != nil && c.Deliver == nil {
		out.Probe = &pb.Probe{Call: x.call("probe", p.Call, p.With, p.Timeout, p.Attempts, p.Backoff),
			Answer: p.Answer, ExternalRef: p.ExternalRef}
	}
	i := c.Inverse
	if i == nil {
		return out
	}
	out.Capability, out.Bindings = i.Call, x.bindings("inverse.with", i.With, x.argument(c))
	out.Attempts, out.BackoffNs, out.BackoffMaxNs = uint32(i.Attempts), int64(i.Backoff), int64(
		i.BackoffMax)
	out.JitterPercent, out.TimeoutNs, out.DedupeNs = uint32(*i.Jitter), int64(i.Timeout), int64(
		i.Dedupe)
	out.Actuator, out.WorkerVersion = i.Actuator, i.WorkerVersion
	out.Done, out.Stop, out.Approve = i.Done, i.Stop, i.Approve == contract.ApproveOwner
	out.Unchanged = i.Unchanged
	if i.Agent != nil {
		out.Agent = &pb.AgentTask{Tools: i.Agent.Tools, Prompt: i.Agent.Prompt,
			MaxTurns: uint32(i.Agent.MaxTurns), Model: i.Agent.Model}
	}
	if v := i.Verify; v != nil {
		out.Verify = &pb.Verify{Call: x.call("inverse.verify", v.Call, v.With, v.Timeout, v.Attempts,
			v.Backoff), Ok: v.Ok}
	}
	return out
}

func onInDoubt(c contract.Contract) pb.OnInDoubt {
	switch c.OnInDoubt {
	case contract.InDoubtProbe:
		return pb.OnInDoubt_ON_IN_DOUBT_PROBE
	case contract.InDoubtQuarantine:
		return pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE
	default:
		return pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE
	}
}

func lates(l contract.Late) pb.Late {
	switch l {
	case contract.LateRefused:
		return pb.Late_LATE_REFUSED
	case contract.LateNever:
		return pb.Late_LATE_NEVER
	default:
		return pb.Late_LATE_UNSPECIFIED
	}
}

func (x *compiler) call(field, capability string, with map[string]any, timeout time.Duration,
	attempts int, backoff time.Duration) *pb.Call {
	return &pb.Call{Capability: capability, TimeoutNs: int64(timeout),
		Bindings: x.bindings(field+".with", with, x.programs.Binding), Attempts: uint32(attempts),
		BackoffNs: int64(backoff)}
}

// checkFits tries the contract in a pair: the ledger's own rules, and room in a
// commit beside it.
func (x *compiler) checkFits(out *Compiled) {
	forward, inverse := out.Pair("plan", "action", "",
		&pb.ForwardRegistered{Capability: out.Capability})
	Until(inverse.GetCompensationRegistered(), 0) // valid_until may find none
	source := ledger.Source{Class: ledger.ClassAgent, Plan: "plan"}
	pair := []*pb.Record{forward, inverse}
	if out.MayStage() {
		staged, undo := out.StagedPair("plan", "action", "",
			&pb.ForwardRegistered{Capability: out.Capability})
		pair = append(pair, staged, undo)
	}
	for _, r := range pair {
		var refused *ledger.Refused
		if err := ledger.Check(r, source); errors.As(err, &refused) {
			x.refuse(refused.Field, refused.Problem, refused.Want)
		}
	}
	last := pair[len(pair)-2:]
	size := ledger.RecordSize(last[0]) + ledger.RecordSize(last[1])
	if size > ledger.CommitSizeMax/2 {
		x.refuse("", fmt.Sprintf("%d bytes in every registration", size),
			fmt.Sprintf("at most %d bytes", ledger.CommitSizeMax/2))
	}
}

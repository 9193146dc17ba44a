package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The rules of what a contract puts into a registration.

func checkCompensation(c *pb.CompensationRegistered) error {
	const at = "compensation_registered."
	switch {
	case c.Capability != "" && !ValidCapability(c.Capability):
		return Refuse(at+"capability", fmt.Sprintf("%q", c.Capability),
			"dotted names, as in git.branch.delete")
	case c.Attempts > AttemptsMax:
		return Refuse(at+"attempts", fmt.Sprint(c.Attempts), fmt.Sprintf("1 to %d", AttemptsMax))
	case c.BackoffNs < 0 || c.BackoffNs > int64(BackoffMax) || c.BackoffMaxNs < 0 ||
		c.BackoffMaxNs > int64(BackoffMax):
		return Refuse(at+"backoff_ns", "out of range", "0 to 24h")
	case c.TimeoutNs < 0 || c.TimeoutNs > int64(TimeoutMax):
		return Refuse(at+"timeout_ns", "out of range", "0 to 24h")
	case c.ValidForNs < 0:
		return Refuse(at+"valid_for_ns", "negative", "nanoseconds, or 0 for no limit")
	case pb.OnInDoubt_name[int32(c.OnInDoubt)] == "":
		return Refuse(at+"on_in_doubt", c.OnInDoubt.String(), "probe, compensate or quarantine")
	case pb.OnLate_name[int32(c.OnLate)] == "":
		return Refuse(at+"on_late", c.OnLate.String(), "compensate or quarantine")
	case c.ValidUntilNs < 0 || c.WarnNs < 0:
		return Refuse(at+"valid_until_ns", "negative", "unix nanoseconds, or 0 for no limit")
	case c.JitterPercent > 100:
		return Refuse(at+"jitter_percent", fmt.Sprint(c.JitterPercent), "0 to 100")
	case c.DedupeNs < 0:
		return Refuse(at+"dedupe_ns", "negative", "nanoseconds, or 0 for ever")
	case c.UnservedAfterNs < 0 || c.UnservedAfterNs > int64(UnservedMax):
		return Refuse(at+"unserved_after_ns", "out of range", "0 to 720h")
	case c.AskAfterNs < 0 || c.AskAfterNs > int64(AskAfterMax):
		return Refuse(at+"ask_after_ns", "out of range", "0 to 720h")
	case c.Page != "" && !ValidToken(c.Page):
		return Refuse(at+"page", fmt.Sprintf("%q", c.Page), TokenWanted)
	case c.HandlerVersion != "" && !ValidToken(c.HandlerVersion):
		return Refuse(at+"handler_version", fmt.Sprintf("%q", c.HandlerVersion), TokenWanted)
	}
	return firstOf(checkBindings(at, c.Bindings), text(at+"key", c.Key),
		text(at+"worker_version", c.WorkerVersion),
		checkFidelity(at+"fidelity", c.Fidelity), expression(at+"done", c.Done), expression(at+"stop",
			c.Stop), checkUnchanged(at, c),
		checkTriggers("compensation_registered", c.Triggers), checkHeld(at, c), checkCalls(at, c),
		checkActuator(at, c))
}

const beside = "given beside "

// kindDeliver is the field that makes an act a staged one.
const kindDeliver = "forward_registered.deliver"

// deliverFields are the fields that the delivery of a staged act may have. It has no window and
// none to ask for approval, nothing undoes it, and a worker makes it.
var deliverFields = []protoreflect.Name{"capability", "bindings", "attempts", "backoff_ns",
	"backoff_max_ns", "jitter_percent", "timeout_ns", "dedupe_ns", "done", "stop", "probe",
	"worker_version", "unserved_after_ns", "page", "sealed"}

// stagedFields are those that the other half of its pair may have: there is nothing to undo.
var stagedFields = []protoreflect.Name{"key", "triggers"}

// checkDeliver checks what is said of an act that the executor makes, and not its caller.
func checkDeliver(f *pb.ForwardRegistered) error {
	d := f.Deliver
	if d == nil {
		return nil
	}
	switch {
	case f.Class != pb.Class_CLASS_IRREVERSIBLE:
		return Refuse(kindDeliver, "given for a forward that is not irreversible",
			"class irreversible, or no deliver")
	case f.EffectCrossed, f.Pivot, f.Review:
		return Refuse(kindDeliver, beside+"effect_crossed, pivot or review",
			"none of them: nothing is called before the commit")
	case f.TimeoutNs != 0 || f.GraceNs != 0 || f.Late != pb.Late_LATE_UNSPECIFIED:
		return Refuse(kindDeliver, beside+"timeout_ns, grace_ns or late",
			"none of them: no caller waits for it; deliver.timeout_ns bounds an attempt")
	case d.Capability != f.Capability:
		return Refuse(kindDeliver+".capability", fmt.Sprintf("%q", cut(d.Capability)),
			fmt.Sprintf("%q, as that of the forward", f.Capability))
	case d.DedupeNs < 0:
		return Refuse(kindDeliver+".dedupe_ns", "negative", "nanoseconds, or 0 for no promise")
	}
	if name := fieldBeside(d, deliverFields); name != "" {
		return Refuse(kindDeliver+"."+name, "given for a delivery", "none")
	}
	return InDelivery(checkCompensation(d))
}

// InDelivery names the field of a delivery where a check of registrations has named that of one.
func InDelivery(err error) error {
	var r *Refused
	if !errors.As(err, &r) {
		return err
	}
	return Refuse(kindDeliver+strings.TrimPrefix(r.Field, "compensation_registered"), r.Problem,
		r.Want)
}

// checkStaged checks the pair of a staged act.
func checkStaged(f *pb.ForwardRegistered, c *pb.CompensationRegistered) error {
	if f.GetDeliver() == nil {
		return nil
	}
	if name := fieldBeside(c, stagedFields); name != "" {
		return Refuse("compensation_registered."+name, beside+kindDeliver,
			"none: what is staged has nothing to undo")
	}
	return nil
}

// fieldBeside is the first field of a message that is set and not one of these; "": there is none.
func fieldBeside(m proto.Message, these []protoreflect.Name) string {
	set := m.ProtoReflect()
	fields := set.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); set.Has(f) && !slices.Contains(these, f.Name()) {
			return string(f.Name())
		}
	}
	return ""
}

// checkHeld checks the conditions that are held after the commit: without an undo window they would
// be held for ever.
func checkHeld(at string, c *pb.CompensationRegistered) error {
	for i, t := range c.Triggers {
		if t.AfterCommit && c.ValidForNs == 0 && c.ValidUntilNs == 0 {
			return Refuse(fmt.Sprintf("%striggers[%d].after_commit", at, i),
				"given without an undo window, and would be held for ever",
				"valid_for or valid_until, or no after_commit")
		}
	}
	return nil
}

// checkPlanScopes checks the conditions of a plan, which has no action to undo alone.
func checkPlanScopes(p *pb.PlanOpened) error {
	for i, t := range p.Triggers {
		switch field := fmt.Sprintf("plan_opened.triggers[%d].", i); {
		case t.Scope == pb.Scope_SCOPE_ACTION:
			return Refuse(field+"scope", "action, of a condition on a plan", "plan or none")
		case t.AfterCommit && p.ParentPlan != "":
			return Refuse(field+"after_commit", "given for a child plan, whose own conditions end with "+
				"its commit", "none: put it on an action of it, or on the root")
		}
	}
	return nil
}

// checkUnchanged checks the condition under which an undo overwrites nothing of anybody else's.
func checkUnchanged(at string, c *pb.CompensationRegistered) error {
	switch {
	case c.Unchanged == "":
		return nil
	case c.Probe == nil:
		return Refuse(at+"unchanged", "given without a probe",
			"a probe, which finds what is there now, or no unchanged")
	case c.Capability == "" || c.Actuator == ActuatorMemory:
		return Refuse(at+"unchanged", "given, and no worker undoes it",
			"none, or an undo that a worker carries out")
	}
	return expression(at+"unchanged", c.Unchanged)
}

func checkFidelity(field, fidelity string) error {
	if !slices.Contains([]string{"", "exact", "semantic", "lossy"}, fidelity) {
		return Refuse(field, fmt.Sprintf("%q", fidelity), "exact, semantic, lossy or nothing")
	}
	return nil
}

// checkCalls checks the probe and the check after the undo.
func checkCalls(at string, c *pb.CompensationRegistered) error {
	if c.Probe != nil {
		if err := firstOf(checkCall(at+"probe.call", c.Probe.Call),
			expression(at+"probe.answer", c.Probe.Answer), expression(at+"probe.external_ref",
				c.Probe.ExternalRef)); err != nil {
			return err
		}
	}
	if c.Verify != nil {
		if err := firstOf(checkCall(at+"verify.call", c.Verify.Call),
			expression(at+"verify.ok", c.Verify.Ok)); err != nil {
			return err
		}
		if c.Verify.Ok == "" {
			return Refuse(at+"verify.ok", "empty", "CEL that is true when the effect is gone")
		}
	}
	if c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_PROBE && c.Probe == nil {
		return Refuse(at+"probe", "missing", "a probe, or another on_in_doubt")
	}
	return nil
}

func checkCall(at string, c *pb.Call) error {
	switch {
	case c == nil || !ValidCapability(c.Capability):
		return Refuse(at+".capability", fmt.Sprintf("%q", c.GetCapability()),
			"dotted names, as in git.branch.get")
	case c.Attempts > AttemptsMax:
		return Refuse(at+".attempts", fmt.Sprint(c.Attempts), fmt.Sprintf("1 to %d", AttemptsMax))
	case c.TimeoutNs < 0 || c.TimeoutNs > int64(TimeoutMax):
		return Refuse(at+".timeout_ns", "out of range", "0 to 24h")
	case c.BackoffNs < 0 || c.BackoffNs > int64(BackoffMax):
		return Refuse(at+".backoff_ns", "out of range", "0 to 24h")
	}
	return checkBindings(at+".", c.Bindings)
}

func checkBindings(at string, bindings []*pb.Binding) error {
	if len(bindings) > BindingsMax {
		return Refuse(at+"bindings", fmt.Sprintf("%d", len(bindings)),
			fmt.Sprintf("at most %d", BindingsMax))
	}
	seen := make(map[string]bool, len(bindings))
	for i, b := range bindings {
		place := func(of string) string { return fmt.Sprintf("%sbindings[%d]%s", at, i, of) }
		switch {
		case b.Name == "" || len(b.Expression) > ExpressionMax:
			return Refuse(place(""), "no name, or an expression that is too long",
				"a name and at most 4 KiB of CEL")
		case seen[b.Name]: // parsers differ about which of two members counts
			return Refuse(place(".name"), fmt.Sprintf("%.64q is given twice", b.Name),
				"one value for each argument")
		case !isText(b.Name):
			return text(place(".name"), b.Name)
		case !isText(b.Expression):
			return text(place(".expression"), b.Expression)
		}
		seen[b.Name] = true
	}
	return nil
}

// Kinds of actuators that a registration may name.
const (
	ActuatorNATS   = "nats"   // a worker that calls one tool
	ActuatorAgent  = "agent"  // a worker that runs a model with several tools
	ActuatorMemory = "memory" // the executor's working memory: it asserts or retracts a fact
)

// Capabilities of ActuatorMemory and the arguments that they take.
const (
	CapabilityAssert  = "fact.assert"  // key, value
	CapabilityRetract = "fact.retract" // key
	ArgumentKey       = "key"          // text
	ArgumentValue     = "value"        // any JSON
)

// MemoryArguments are the arguments of a capability of ActuatorMemory, or nil when
// it is none.
func MemoryArguments(capability string) []string {
	switch capability {
	case CapabilityAssert:
		return []string{ArgumentKey, ArgumentValue}
	case CapabilityRetract:
		return []string{ArgumentKey}
	default:
		return nil
	}
}

// checkMemory holds a compensation in working memory to what that can do.
func checkMemory(at string, c *pb.CompensationRegistered) error {
	want := MemoryArguments(c.Capability)
	switch {
	case want == nil:
		return Refuse(at+"capability", fmt.Sprintf("%q with actuator memory", c.Capability),
			CapabilityAssert+" or "+CapabilityRetract)
	case c.Agent != nil:
		return Refuse(at+"agent", "given for actuator memory", "actuator agent")
	case c.DedupeNs != 0:
		return Refuse(at+"dedupe_ns", "given for actuator memory", "none: it forgets no key")
	case c.Verify != nil:
		return Refuse(at+"verify", "given for actuator memory",
			"none: the fact and the success of the undo are one commit of records")
	}
	var have []string
	for _, b := range c.Bindings {
		have = append(have, b.Name)
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		return Refuse(at+"bindings", fmt.Sprintf("%q", have),
			fmt.Sprintf("%q for %s", want, c.Capability))
	}
	return nil
}

func checkActuator(at string, c *pb.CompensationRegistered) error {
	switch c.Actuator {
	case "", ActuatorNATS:
		if c.Agent != nil {
			return Refuse(at+"agent", "given for actuator nats", "actuator agent")
		}
		return nil
	case ActuatorAgent:
		if len(c.Agent.GetTools()) < 2 || len(c.Agent.Tools) > ToolsMax {
			return Refuse(at+"agent.tools", fmt.Sprint(len(c.Agent.GetTools())),
				fmt.Sprintf("2 to %d; one tool is called without a model", ToolsMax))
		}
		if len(c.Agent.Prompt) > PromptMax || !utf8.ValidString(c.Agent.Prompt) {
			return Refuse(at+"agent.prompt", "too long or not UTF-8",
				fmt.Sprintf("at most %d bytes of UTF-8", PromptMax))
		}
		for i, tool := range c.Agent.Tools {
			if !ValidCapability(tool) {
				return Refuse(fmt.Sprintf(at+"agent.tools[%d]", i), fmt.Sprintf("%q", tool),
					"dotted names, as in git.branch.delete")
			}
		}
		return text(at+"agent.model", c.Agent.Model)
	case ActuatorMemory:
		return checkMemory(at, c)
	default:
		return Refuse(at+"actuator", fmt.Sprintf("%q", c.Actuator), "nats, agent or memory")
	}
}

func checkContract(c *pb.ContractPublished) error {
	if !ValidCapability(c.Capability) {
		return Refuse("contract_published.capability", fmt.Sprintf("%q", c.Capability),
			"dotted names, as in git.branch.create")
	}
	if len(c.Contract) > ContractMax || !json.Valid(c.Contract) || !utf8.Valid(c.Contract) {
		return Refuse("contract_published.contract",
			fmt.Sprintf("%d bytes, or not JSON",
				len(c.Contract)), fmt.Sprintf("the contract's canonical JSON, at most %d bytes", ContractMax))
	}
	if digest := ContractDigest(c.Contract); string(c.Digest) != string(digest[:]) {
		return Refuse("contract_published.digest", "not the digest of this contract",
			"ledger.ContractDigest of its bytes")
	}
	return nil
}

// expression checks a CEL text that may be absent.
func expression(field, s string) error {
	if len(s) > ExpressionMax || !utf8.ValidString(s) {
		return Refuse(field, "too long or not UTF-8",
			fmt.Sprintf("at most %d bytes of CEL", ExpressionMax))
	}
	return nil
}

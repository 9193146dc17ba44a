package ledger

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Check reports whether a record is well-formed and may be on a subject of
// this source: its kind belongs to the class, its names are names and
// within limits, and so are its durations and instants (CheckSpans). It is the same check for
// writers (before they append) and for the fold (which refuses what it finds). The error is a
// *Refused.
func Check(r *pb.Record, s Source) error {
	return firstOf(CheckSpans(r), needlessID(r, s), checkForm(r, s), tooDeep(r))
}

// checkForm is Check as a record is decoded: whether its durations count is for the fold to say.
func checkForm(r *pb.Record, s Source) error {
	return firstOf(wellFormed(r, s), inexact(r))
}

func wellFormed(r *pb.Record, s Source) error {
	kind := KindOf(r).On(s.Class)
	if kind.Name == "" {
		return Refuse("kind", "the record has none", "one of the kinds of sagenbaum.v1.Record")
	}
	if kind.Class != s.Class {
		return Refuse(kind.Name, fmt.Sprintf("not allowed on a subject of class %q", s.Class),
			fmt.Sprintf("class %q", kind.Class))
	}
	if _, term := r.Kind.(*pb.Record_TermStarted); s.Class == ClassExecutor && term != s.Term {
		return Refuse(kind.Name, "wrong executor subject",
			"term_started, and nothing else, on saga.<tenant>.executor.term")
	}
	if err := firstOf(checkNames(r, kind, s), checkID(r, s)); err != nil {
		return err
	}
	if err := checkPayload(r.Payload); err != nil {
		return err
	}
	return checkBody(r, s)
}

func checkNames(r *pb.Record, kind Kind, s Source) error {
	valid := ValidDerived
	if s.Class == ClassAgent {
		valid = ValidToken
	}
	switch {
	case kind.NeedsPlan && !valid(r.Plan), r.Plan != "" && !valid(r.Plan), r.Plan == ManyPlans:
		return Refuse("plan", fmt.Sprintf("%q is not a plan id", r.Plan), TokenWanted)
	case kind.NeedsAction && !valid(r.Action), r.Action != "" && !valid(r.Action):
		return Refuse("action", fmt.Sprintf("%q is not an action id", r.Action), TokenWanted)
	case s.Class == ClassAgent && s.Plan != ManyPlans && s.Plan != r.Plan:
		return Refuse("plan", fmt.Sprintf("%q on the subject of plan %q", r.Plan, s.Plan),
			"the plan of the subject")
	case s.Class != ClassExecutor && (r.Term != 0 || r.EpochNs != 0 || r.Folded != 0):
		return Refuse("term", "set outside the executor", "no term, no epoch_ns and no folded")
	case s.Class != ClassAgent && r.Writer != "":
		return Refuse("writer", "set outside an agent's records", "no writer")
	case r.Writer != "" && !ValidToken(r.Writer):
		return Refuse("writer", fmt.Sprintf("%q", cut(r.Writer)), TokenWanted)
	case s.Class == ClassExecutor && r.Term == 0:
		return Refuse("term", "missing", "the holder's term")
	case r.EpochNs < 0:
		return Refuse("epoch_ns", "negative", "unix nanoseconds")
	}
	for _, a := range [...]*pb.Address{r.About, r.Cause,
		r.GetCompensationDispatched().GetBehind()} {
		if a != nil && len(a.Leaf) != 0 && len(a.Leaf) != LeafSize {
			return Refuse("address.leaf", fmt.Sprintf("%d bytes", len(a.Leaf)), "32 bytes")
		}
	}
	return nil
}

func checkPayload(p *pb.Payload) error {
	if p == nil {
		return nil
	}
	for _, f := range [...]struct {
		name string
		json []byte
	}{{"input", p.Input}, {"output", p.Output}, {"arguments", p.Arguments}, {"detail",
		p.Detail}, {"before", p.Before}} {
		if len(f.json) > 0 && !json.Valid(f.json) {
			return Refuse("payload."+f.name, "not JSON", "one JSON value")
		}
	}
	return nil
}

// checkBody holds the rules of each kind, in life-cycle order.
func checkBody(r *pb.Record, s Source) error {
	switch k := r.Kind.(type) {
	case *pb.Record_PlanOpened:
		if k.PlanOpened.ParentPlan == r.Plan {
			return Refuse("plan_opened.parent_plan", "the plan itself", "another plan, or none")
		}
		return checkPlanOpened(k.PlanOpened)
	case *pb.Record_ForwardRegistered:
		return checkForward(k.ForwardRegistered)
	case *pb.Record_CompensationRegistered:
		return firstOf(checkKey(r, s, k.CompensationRegistered),
			checkCompensation(k.CompensationRegistered))
	case *pb.Record_ForwardCompleted:
		return firstOf(text("forward_completed.external_ref", k.ForwardCompleted.ExternalRef),
			object("forward_completed.lifted", k.ForwardCompleted.Lifted))
	case *pb.Record_SavepointSet:
		return token("savepoint_set.name", k.SavepointSet.Name)
	case *pb.Record_PlanResumed:
		return token("writer", r.Writer)
	case *pb.Record_UnwindRequested:
		return token("unwind_requested.to_savepoint", k.UnwindRequested.ToSavepoint)
	case *pb.Record_FactAsserted:
		return checkFact(k.FactAsserted)
	case *pb.Record_FactRetracted:
		return factKey("fact_retracted.key", k.FactRetracted.Key)
	case *pb.Record_VerdictGiven:
		return checkVerdict(k.VerdictGiven)
	case *pb.Record_CompensationRequested:
		return checkRequested(k.CompensationRequested)
	}
	return checkRequest(r, s)
}

// checkRequest holds the rules of what operators, workers and hosts write.
func checkRequest(r *pb.Record, s Source) error {
	switch k := r.Kind.(type) {
	case *pb.Record_CancelRequested:
		return text("cancel_requested.actor", k.CancelRequested.Actor)
	case *pb.Record_RetryRequested:
		return owned("retry_requested", k.RetryRequested.Reason, k.RetryRequested.Actor)
	case *pb.Record_Resolved:
		return checkResolved(k.Resolved)
	case *pb.Record_ContractPublished:
		return checkContract(k.ContractPublished)
	case *pb.Record_ClockConfirmed:
		return text("clock_confirmed.actor", k.ClockConfirmed.Actor)
	case *pb.Record_EvictRequested:
		return checkKeys("evict_requested", k.EvictRequested.Keys, k.EvictRequested.Actor)
	case *pb.Record_RestoreRequested:
		return checkKeys("restore_requested", k.RestoreRequested.Keys, k.RestoreRequested.Actor)
	case *pb.Record_CascadeAnswered:
		return firstOf(owned("cascade_answered", k.CascadeAnswered.Reason, k.CascadeAnswered.Actor),
			text("cascade_answered.lease", k.CascadeAnswered.Lease))
	case *pb.Record_PlanErased:
		return checkErased(k.PlanErased, s)
	case *pb.Record_DeadlineMoved:
		return checkMoved(k.DeadlineMoved, s)
	case *pb.Record_PlanAdopted:
		return checkAdopted(k.PlanAdopted)
	case *pb.Record_CompensationReported:
		return checkReported(k.CompensationReported)
	case *pb.Record_LedgerRepaired:
		return checkRepaired(k.LedgerRepaired)
	case *pb.Record_KeyRotated:
		return checkRotated(s.Tenant, k.KeyRotated)
	case *pb.Record_TermStarted:
		return checkTenant("term_started.tenant", k.TermStarted.Tenant)
	case *pb.Record_TenantChanged:
		return checkTenant("tenant_changed", k.TenantChanged)
	case *pb.Record_CompensationProgressed:
		return firstOf(text("compensation_progressed.key", k.CompensationProgressed.Key),
			text("compensation_progressed.token", k.CompensationProgressed.Token))
	}
	return checkEffect(r.GetEffectReported(), r.Payload.GetOutput())
}

func checkPlanOpened(p *pb.PlanOpened) error {
	if p.DeadlineNs < 0 {
		return Refuse("plan_opened.deadline_ns", "negative", "unix nanoseconds, or 0 for none")
	}
	if p.Concurrency > ConcurrencyMax {
		return Refuse("plan_opened.concurrency", fmt.Sprint(p.Concurrency),
			fmt.Sprintf("0 to %d", ConcurrencyMax))
	}
	labelled := map[string]bool{}
	for i, l := range p.Labels {
		if l.Key == "" || labelled[l.Key] { // triggers read one value by its key
			return Refuse(fmt.Sprintf("plan_opened.labels[%d].key", i),
				fmt.Sprintf("%.64q is empty or given twice", l.Key), "one value for each key")
		}
		labelled[l.Key] = true
		if err := firstOf(text(fmt.Sprintf("plan_opened.labels[%d].key", i), l.Key),
			text(fmt.Sprintf("plan_opened.labels[%d].value", i), l.Value)); err != nil {
			return err
		}
	}
	if _, ok := pb.OnUndoFailure_name[int32(p.OnUndoFailure)]; !ok {
		return Refuse("plan_opened.on_undo_failure", p.OnUndoFailure.String(),
			"halt_unless_last, halt or continue")
	}
	if n := len(p.AttachDigest); n != 0 && n != sha256.Size {
		return Refuse("plan_opened.attach_digest", fmt.Sprintf("%d bytes", n),
			"the SHA-256 of a token, or nothing")
	}
	if len(p.ParentToken) > TokenLenMax || len(p.ParentToken) > 0 && p.ParentPlan == "" {
		return Refuse("plan_opened.parent_token",
			fmt.Sprintf("%d bytes, parent_plan %q", len(p.ParentToken),
				p.ParentPlan), fmt.Sprintf("at most %d bytes, beside parent_plan", TokenLenMax))
	}
	switch _, known := pb.DoubtAtCommit_name[int32(p.DoubtAtCommit)]; {
	case !known:
		return Refuse("plan_opened.doubt_at_commit", p.DoubtAtCommit.String(), "settle or accept")
	case p.DoubtAtCommit != 0 && p.ParentPlan != "":
		return Refuse("plan_opened.doubt_at_commit", "given for a child plan", "none: its root says it")
	}
	if p.ParentPlan == "" && p.ParentAction != "" {
		return Refuse("plan_opened.parent_action", "given without parent_plan", "both, or none")
	}
	for _, f := range [...]struct{ name, id string }{{"parent_plan", p.ParentPlan},
		{"parent_action", p.ParentAction}, {"function", p.Function}} {
		if f.id != "" && !ValidToken(f.id) {
			return Refuse("plan_opened."+f.name, fmt.Sprintf("%q is not a name", f.id), TokenWanted)
		}
	}
	return firstOf(text("plan_opened.owner", p.Owner),
		checkTriggers("plan_opened", p.Triggers), checkPlanScopes(p))
}

func checkForward(f *pb.ForwardRegistered) error {
	if !ValidCapability(f.Capability) {
		return Refuse("forward_registered.capability", fmt.Sprintf("%q", f.Capability),
			"dotted names, as in git.branch.create")
	}
	switch f.Class {
	case pb.Class_CLASS_COMPENSABLE, pb.Class_CLASS_IRREVERSIBLE, pb.Class_CLASS_EFFECTLESS:
	default:
		return Refuse("forward_registered.class", "undeclared", "compensable, irreversible or effectless")
	}
	if err := checkLanding(f); err != nil {
		return err
	}
	if len(f.After) > AfterMax {
		return Refuse("forward_registered.after", fmt.Sprintf("%d actions", len(f.After)),
			fmt.Sprintf("at most %d", AfterMax))
	}
	for i, id := range f.After {
		if err := token(fmt.Sprintf("forward_registered.after[%d]", i), id); err != nil {
			return err
		}
	}
	if len(f.Trace) > TraceMax {
		return Refuse("forward_registered.trace", fmt.Sprintf("%d bytes", len(f.Trace)),
			fmt.Sprintf("a W3C traceparent, at most %d bytes", TraceMax))
	}
	return firstOf(object("forward_registered.lifted", f.Lifted), checkDeliver(f))
}

// checkLanding checks what is said of when a forward may land.
func checkLanding(f *pb.ForwardRegistered) error {
	const at = "forward_registered."
	for _, d := range [...]struct {
		name   string
		ns     int64
		max    time.Duration
		maxSay string
	}{
		{"timeout_ns", f.TimeoutNs, TimeoutMax, "24h"},
		{"settle_ns", f.SettleNs, SettleMax, "720h"},
		{"grace_ns", f.GraceNs, GraceMax, "1h"},
	} {
		if d.ns < 0 || d.ns > int64(d.max) {
			return Refuse(at+d.name, "out of range", "0 to "+d.maxSay)
		}
	}
	switch f.Late {
	case pb.Late_LATE_UNSPECIFIED, pb.Late_LATE_REFUSED:
		return nil
	case pb.Late_LATE_NEVER:
		if f.SettleNs != 0 {
			return Refuse(at+"settle_ns", "given for a forward that never lands late", "one of the two")
		}
		return nil
	default:
		return Refuse(at+"late", f.Late.String(), "refused, never, or nothing")
	}
}

// checkKey refuses a key of the writer's own: with another action's key one
// agent could make a provider take the other's undo for done.
func checkKey(r *pb.Record, s Source, c *pb.CompensationRegistered) error {
	if c.Key != "" && c.Key != Key(s.Tenant, r.Plan, r.Action, PurposeUndo) {
		return Refuse("compensation_registered.key", "not the key of this action",
			"none, or ledger.Key of tenant, plan, action and \"undo\"")
	}
	return nil
}

func checkTriggers(at string, triggers []*pb.Trigger) error {
	if len(triggers) > TriggersMax {
		return Refuse(at+".triggers", fmt.Sprintf("%d", len(triggers)),
			fmt.Sprintf("at most %d", TriggersMax))
	}
	seen := map[string]bool{}
	for i, t := range triggers {
		field := fmt.Sprintf("%s.triggers[%d]", at, i)
		if !ValidToken(t.Name) || seen[t.Name] {
			return Refuse(field+".name", fmt.Sprintf("%q is no name or not unique", t.Name), TokenWanted)
		}
		seen[t.Name] = true
		if len(t.Condition) == 0 || len(t.Condition) > ExpressionMax || !utf8.ValidString(t.Condition) {
			return Refuse(field+".condition", "empty, too long or not UTF-8", "1 to 4096 bytes of CEL")
		}
		if err := checkScope(field+".scope", t.Scope); err != nil {
			return err
		}
	}
	return nil
}

// checkScope checks what a condition or a verdict on an action undoes.
func checkScope(field string, s pb.Scope) error {
	switch s {
	case pb.Scope_SCOPE_UNSPECIFIED, pb.Scope_SCOPE_ACTION, pb.Scope_SCOPE_PLAN:
		return nil
	default:
		return Refuse(field, fmt.Sprint(int32(s)), "action, plan or none")
	}
}

func checkFact(f *pb.FactAsserted) error {
	if err := factKey("fact_asserted.key", f.Key); err != nil {
		return err
	}
	if !json.Valid(f.Value) || !utf8.Valid(f.Value) {
		return Refuse("fact_asserted.value", "not JSON", "one JSON value")
	}
	return nil
}

// VerdictWanted is what is right in place of a verdict that there is not.
const VerdictWanted = "allow, block or redirect"

// VerdictOf is a verdict by its name; false: there is none of it.
func VerdictOf(name string) (v pb.VerdictOutcome, known bool) {
	switch name {
	case "allow":
		v = pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW
	case "block":
		v = pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK
	case "redirect":
		v = pb.VerdictOutcome_VERDICT_OUTCOME_REDIRECT
	}
	return v, v != 0
}

func checkVerdict(v *pb.VerdictGiven) error {
	switch v.Outcome {
	case pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW, pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK,
		pb.VerdictOutcome_VERDICT_OUTCOME_REDIRECT:
		return checkScope("verdict_given.scope", v.Scope)
	default:
		return Refuse("verdict_given.outcome", "not given", VerdictWanted)
	}
}

func checkResolved(r *pb.Resolved) error {
	switch r.Outcome {
	case pb.Resolution_RESOLUTION_DONE, pb.Resolution_RESOLUTION_LOST,
		pb.Resolution_RESOLUTION_ACCEPTED, pb.Resolution_RESOLUTION_SKIPPED:
	default:
		return Refuse("resolved.outcome", "not given", "done, lost, accepted or skipped")
	}
	if err := owned("resolved", r.Reason, r.Actor); err != nil {
		return err
	}
	if r.Evidence == "" && r.Outcome != pb.Resolution_RESOLUTION_SKIPPED {
		return Refuse("resolved.evidence", "empty",
			"a reference to what proves it, as a ticket; or outcome skipped, which claims nothing")
	}
	return nil
}

// checkErased keeps the request of an operator apart from the word of the holder that
// it is done, which names no reason of its own.
func checkErased(k *pb.PlanErased, s Source) error {
	switch asks := s.Class == ClassOperator; {
	case asks && k.Destroyed:
		return Refuse("plan_erased.destroyed", "said by an operator", "only the holder destroys a key")
	case asks:
		return owned("plan_erased", k.Reason, k.Actor)
	case !k.Destroyed || k.Force || k.Reason != "" || k.Actor != "":
		return Refuse("plan_erased.destroyed", "not given, or given with more",
			"destroyed alone, and the operator's record as its cause")
	}
	return nil
}

// checkKeys checks a request about facts; each key is in it once.
func checkKeys(at string, keys []string, actor string) error {
	if len(keys) == 0 || len(keys) > RequestKeysMax {
		return Refuse(at+".keys", fmt.Sprintf("%d", len(keys)),
			fmt.Sprintf("1 to %d keys of facts", RequestKeysMax))
	}
	for i, key := range keys {
		field := fmt.Sprintf("%s.keys[%d]", at, i)
		if err := factKey(field, key); err != nil {
			return err
		}
		if slices.Contains(keys[:i], key) {
			return Refuse(field, fmt.Sprintf("%q is given twice", key), "each key once")
		}
	}
	return text(at+".actor", actor)
}

func checkRequested(k *pb.CompensationRequested) error {
	if k.ToSavepoint != "" && !ValidToken(k.ToSavepoint) {
		return Refuse("compensation_requested.to_savepoint",
			fmt.Sprintf("%q is not a name", k.ToSavepoint), TokenWanted)
	}
	entry, _ := strings.CutPrefix(k.FromAction, "plan:") // of a child plan
	switch {
	case k.FromAction == "":
	case k.ToSavepoint != "":
		return Refuse("compensation_requested.from_action", "given beside to_savepoint",
			"one of the two")
	case !ValidDerived(entry):
		return Refuse("compensation_requested.from_action",
			fmt.Sprintf("%q is not a name", k.FromAction), TokenWanted)
	}
	return text("compensation_requested.actor", k.Actor)
}

func checkReported(c *pb.CompensationReported) error {
	switch c.Answer {
	case pb.Answer_ANSWER_DONE, pb.Answer_ANSWER_FAILED, pb.Answer_ANSWER_STOP,
		pb.Answer_ANSWER_CHANGED:
	default:
		return Refuse("compensation_reported.answer", "not given", "done, failed, stop or changed")
	}
	return firstOf(text("compensation_reported.key", c.Key),
		text("compensation_reported.token", c.Token),
		text("compensation_reported.external_ref", c.ExternalRef))
}

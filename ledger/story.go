package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A story tells what led to what, from records alone: cause, lease with the values
// that made it true, decision, command, answer, outcome. Hosts tell it of a plan, and
// so can a verifier of a bundle: every line names its record, whose bytes say the same.

// Told is one record that a story is told from, and what became of it in a fold.
type Told struct {
	Entry
	Void string // why it does not count: refused, or lost a race; empty: it counts
}

// Roles of the lines of a story, in the order of a chain.
const (
	RolePlan     = "plan"     // what the agent said it does
	RoleCause    = "cause"    // what someone said, or a fact
	RoleLease    = "lease"    // a condition that turned true, or is held over a limit
	RoleDecision = "decision" // what the holder decided of it
	RoleCommand  = "command"  // a call to a worker
	RoleAnswer   = "answer"   // what a worker or the world answered
	RoleOutcome  = "outcome"  // what became of an action
	RoleOwner    = "owner"    // a page to the owner, and the owner's word
	RoleEnd      = "end"      // what became of the plan
)

// RecordName names a record by its kind and place: "lease_fired@14.0-0fd319a7".
func RecordName(kind string, at *pb.Address) string { return kind + "@" + FormatAddress(at) }

// Story tells records, in the order of the ledger. Records that are no records of a
// known kind are left out; causes are named by kind where they are among the records.
func Story(records []Told) (lines []api.StoryLine) {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b Told) int {
		if d := int64(a.Address.GetSequence()) - int64(b.Address.GetSequence()); d != 0 {
			return int(d)
		}
		return int(a.Address.GetIndex()) - int(b.Address.GetIndex())
	})
	names := map[[2]uint64]string{}
	for _, t := range records {
		if t.Record != nil {
			names[storyPlace(t.Address)] = RecordName(KindOf(t.Record).Name, t.Address)
		}
	}
	for i, t := range records {
		if t.Record == nil || KindOf(t.Record).Name == "" || i > 0 &&
			storyPlace(records[i-1].Address) == storyPlace(t.Address) {
			continue
		}
		lines = append(lines, storyLine(t, names))
	}
	return lines
}

func storyPlace(a *pb.Address) [2]uint64 { return [2]uint64{a.GetSequence(), uint64(a.GetIndex())} }

// CauseOf is the place of the record that caused one; nil: it names none. A reference
// within a commit has no leaf.
func CauseOf(e Entry) *pb.Address {
	c := e.Record.GetCause()
	if c == nil || c.Sequence != 0 {
		return c
	}
	return &pb.Address{Sequence: e.Address.GetSequence(), Index: c.Index}
}

func storyLine(t Told, names map[[2]uint64]string) api.StoryLine {
	r := t.Record
	line := api.StoryLine{
		Record: RecordName(KindOf(r).Name,
			t.Address), Sequence: t.Address.GetSequence(), Kind: KindOf(
			r).Name, Plan: r.Plan, Action: r.Action,
		By: strings.TrimSpace(t.Source.Class.String() + " " +
			t.Source.Name), TimeNs: t.StampNs, EpochNs: r.EpochNs, Void: t.Void,
	}
	if cause := CauseOf(t.Entry); cause != nil {
		if line.Because = names[storyPlace(cause)]; line.Because == "" {
			line.Because = FormatAddress(cause)
		}
	}
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		line.Condition, line.Read = k.LeaseFired.Condition, readLines(k.LeaseFired.Readings)
	case *pb.Record_CascadeCut:
		line.Condition = k.CascadeCut.Condition
	}
	line.Role, line.Text = storyOfAgent(r)
	if said := storyOfDelivery(r); said != "" {
		line.Text = said
	}
	return line
}

func readLines(readings []*pb.Reading) (lines []api.ReadLine) {
	for _, reading := range readings {
		line := api.ReadLine{Name: reading.Name, Value: string(reading.Value)}
		if reading.Sequence != 0 {
			line.Record = fmt.Sprint(reading.Sequence)
		}
		lines = append(lines, line)
	}
	return lines
}

// storyText joins what is said and what it is about, where there is any.
func storyText(head, tail string) string {
	if tail == "" {
		return head
	}
	return head + ": " + tail
}

func asked(head, reason, actor string) string {
	if actor != "" {
		head += " by " + actor
	}
	return storyText(head, reason)
}

// storyOfAgent gives a record's role and tells it in words; what agents write first.
func storyOfAgent(r *pb.Record) (role, text string) {
	switch k := r.Kind.(type) {
	case *pb.Record_PlanOpened:
		text = "plan " + r.Plan + " was opened"
		if k.PlanOpened.DeadlineNs != 0 {
			text += ", its deadline " + storyMoment(k.PlanOpened.DeadlineNs)
		}
		return RolePlan, text
	case *pb.Record_ForwardRegistered:
		if k.ForwardRegistered.Deliver != nil {
			return RolePlan, k.ForwardRegistered.Capability + " was staged, to be made once the plan is " +
				"committed"
		}
		return RolePlan, k.ForwardRegistered.Capability + " was registered, before it crossed" +
			map[bool]string{true: ": it had crossed already"}[k.ForwardRegistered.EffectCrossed]
	case *pb.Record_CompensationRegistered:
		if k.CompensationRegistered.Capability == "" {
			return RolePlan, "no undo is registered: its class has none"
		}
		return RolePlan, "its undo is " + k.CompensationRegistered.Capability
	case *pb.Record_ForwardCompleted:
		return RolePlan, storyText("the forward completed", k.ForwardCompleted.ExternalRef)
	case *pb.Record_ForwardFailed:
		return RolePlan, storyText("the forward failed and did not cross",
			storyError(k.ForwardFailed.Code, k.ForwardFailed.Message))
	case *pb.Record_ForwardInDoubt:
		return RolePlan, storyText("the forward is in doubt: it may have crossed",
			storyError(k.ForwardInDoubt.Code, k.ForwardInDoubt.Message))
	case *pb.Record_SavepointSet:
		return RolePlan, "savepoint " + k.SavepointSet.Name + " was set"
	case *pb.Record_PlanCommitted:
		return RolePlan, "the plan was committed"
	case *pb.Record_PlanResumed:
		return RolePlan, "another process of its agent resumed the plan"
	case *pb.Record_DeadlineMoved:
		return RolePlan, asked("its deadline was moved to "+storyMoment(k.DeadlineMoved.DeadlineNs),
			k.DeadlineMoved.Reason, k.DeadlineMoved.Actor)
	case *pb.Record_PlanAdopted:
		return RoleOwner, asked("the plan was handed to agent "+k.PlanAdopted.Agent,
			k.PlanAdopted.Reason, k.PlanAdopted.Actor)
	case *pb.Record_PlanFailed:
		return RoleCause, storyText("the plan was declared failed", k.PlanFailed.Reason)
	case *pb.Record_PlanCancelled:
		return RoleCause, storyText("the plan was cancelled", k.PlanCancelled.Reason)
	case *pb.Record_UnwindRequested:
		return RoleCause,
			storyText("the plan was told to unwind back to savepoint "+k.UnwindRequested.ToSavepoint,
				k.UnwindRequested.Reason)
	}
	return storyOfOthers(r)
}

// storyOfOthers tells what sources, supervisors and operators write.
func storyOfOthers(r *pb.Record) (role, text string) {
	switch k := r.Kind.(type) {
	case *pb.Record_FactAsserted:
		return RoleCause, fmt.Sprintf("fact %s was asserted: %s", k.FactAsserted.Key,
			storyClip(string(k.FactAsserted.Value)))
	case *pb.Record_FactRetracted:
		return RoleCause, "fact " + k.FactRetracted.Key + " was retracted"
	case *pb.Record_VerdictGiven:
		name := strings.ToLower(strings.TrimPrefix(k.VerdictGiven.Outcome.String(), "VERDICT_OUTCOME_"))
		switch k.VerdictGiven.Scope {
		case pb.Scope_SCOPE_ACTION:
			name += ", for the action"
		case pb.Scope_SCOPE_PLAN:
			name += ", for the plan"
		}
		return RoleCause, storyText("the verdict was "+name, k.VerdictGiven.Reason)
	case *pb.Record_CompensationRequested:
		text = "an unwind was asked for"
		if k.CompensationRequested.ToSavepoint != "" {
			text += ", back to savepoint " + k.CompensationRequested.ToSavepoint
		}
		text += storyFrom(k.CompensationRequested.FromAction)
		return RoleCause, asked(text, k.CompensationRequested.Reason, k.CompensationRequested.Actor)
	case *pb.Record_CancelRequested:
		return RoleCause, asked("the plan was cancelled", k.CancelRequested.Reason,
			k.CancelRequested.Actor)
	case *pb.Record_RetryRequested:
		text := "another try was asked for"
		if k.RetryRequested.NewKey {
			text += ", under a new key"
		}
		if k.RetryRequested.Overwrite {
			text += ", over what someone else has changed"
		}
		return RoleOwner, asked(text, k.RetryRequested.Reason, k.RetryRequested.Actor)
	case *pb.Record_Resolved:
		name := strings.ToLower(strings.TrimPrefix(k.Resolved.Outcome.String(), "RESOLUTION_"))
		text = asked("it was resolved as "+name, k.Resolved.Reason, k.Resolved.Actor)
		if k.Resolved.Evidence != "" {
			text += ", evidence " + k.Resolved.Evidence
		}
		return RoleOwner, text +
			map[bool]string{true: "; what it depended on is not undone"}[k.Resolved.Halt]
	case *pb.Record_CascadeAnswered:
		word := map[bool]string{true: "the cut lease was resumed",
			false: "the cut lease was given up"}[k.CascadeAnswered.Resume]
		return RoleOwner, asked(word, k.CascadeAnswered.Reason, k.CascadeAnswered.Actor)
	case *pb.Record_EffectReported:
		return RoleAnswer, storyEffect(k.EffectReported)
	case *pb.Record_PlanErased:
		if k.PlanErased.Destroyed {
			return RoleEnd, "the key of its sealed values is destroyed: no one can read them any more"
		}
		text = "its sealed values are to be erased"
		if k.PlanErased.Force {
			text += ", also if an undo needs them"
		}
		return RoleOwner, asked(text, k.PlanErased.Reason, k.PlanErased.Actor)
	case *pb.Record_CompensationReported:
		name := strings.ToLower(strings.TrimPrefix(k.CompensationReported.Answer.String(), "ANSWER_"))
		return RoleAnswer,
			storyText(fmt.Sprintf("the worker reports attempt %d %s", k.CompensationReported.Attempt, name),
				storyError(k.CompensationReported.Code, k.CompensationReported.Message))
	case *pb.Record_CompensationProgressed:
		return RoleAnswer, storyText(fmt.Sprintf("the worker is at work on attempt %d",
			k.CompensationProgressed.Attempt), k.CompensationProgressed.Note)
	}
	return storyOfDecisions(r)
}

// storyEffect tells what was reported of an effect.
func storyEffect(k *pb.EffectReported) string {
	word := "its effect was reported to be there"
	if k.ExternalRef != "" {
		word += ", as " + k.ExternalRef
	}
	if len(k.Duplicates) > 0 {
		word += ", and again as " + strings.Join(k.Duplicates, ", ")
	}
	return asked(word, k.Reason, k.Actor)
}

// storyFrom says that an unwind undoes one action, and what came after it.
func storyFrom(action string) string {
	if action == "" {
		return ""
	}
	return ", of action " + action + " and what came after it"
}

// storyOfDecisions tells what a holder decided.
func storyOfDecisions(r *pb.Record) (role, text string) {
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		return RoleLease, fmt.Sprintf("lease %s turned true%s", k.LeaseFired.Lease,
			storyDepth(k.LeaseFired.Depth))
	case *pb.Record_CascadeCut:
		return RoleLease, fmt.Sprintf("lease %s turned true and is held for the owner: cascade cut, %s",
			k.CascadeCut.Lease, k.CascadeCut.Why)
	case *pb.Record_UnwindStarted:
		text = "the unwind started"
		switch {
		case k.UnwindStarted.ToSavepoint != "":
			text += ", back to savepoint " + k.UnwindStarted.ToSavepoint
		case k.UnwindStarted.FromAction != "":
			text += storyFrom(k.UnwindStarted.FromAction)
		case k.UnwindStarted.ParentPlan != "":
			text += ", as a part of plan " + k.UnwindStarted.ParentPlan
		}
		return RoleDecision, storyText(text, k.UnwindStarted.Reason)
	case *pb.Record_CompensationDispatched:
		text = fmt.Sprintf("attempt %d of %s was dispatched", k.CompensationDispatched.Attempt,
			k.CompensationDispatched.Capability)
		if k.CompensationDispatched.Behind != nil {
			text = fmt.Sprintf("attempt %d of %s was recorded ahead, to be sent once the undo before "+
				"it is done", k.CompensationDispatched.Attempt, k.CompensationDispatched.Capability)
		}
		return RoleCommand, text + map[bool]string{true: ", blind: the outcome of the forward is not " +
			"known"}[k.CompensationDispatched.BlindCleanup]
	case *pb.Record_ProbeAsked:
		return RoleCommand, fmt.Sprintf("%s was asked: %s", k.ProbeAsked.Capability,
			storyQuestions[k.ProbeAsked.Question])
	case *pb.Record_HeldSetRetired:
		text = fmt.Sprintf("registrations retired, and not owed any more: %d", k.HeldSetRetired.Count)
		if doubts := k.HeldSetRetired.InDoubt; len(doubts) > 0 {
			text += "; in doubt: " + storyClip(strings.Join(doubts, ", "))
		}
		return RoleEnd, text
	case *pb.Record_UndoWindowClosing:
		return RoleOwner, "its undo window closes at " + storyMoment(k.UndoWindowClosing.ClosesNs)
	case *pb.Record_OwnerPaged:
		return RoleOwner, fmt.Sprintf("hook %s took the page: %s", k.OwnerPaged.Hook, k.OwnerPaged.Kind)
	case *pb.Record_TenantChanged:
		text = "what the tenant may do was changed"
		if k.TenantChanged.Suspended {
			text = "the tenant was suspended"
		}
		return RoleDecision, asked(text, k.TenantChanged.Reason, k.TenantChanged.By)
	case *pb.Record_RecordRefused:
		return RoleDecision, fmt.Sprintf("the record at %d.%d was refused: %s", k.RecordRefused.Sequence,
			k.RecordRefused.Index, WhyRefused(k.RecordRefused.Reason))
	}
	return storyOfOutcomes(r)
}

var storyQuestions = map[pb.Question]string{
	pb.Question_QUESTION_EFFECT:    "did the forward happen?",
	pb.Question_QUESTION_UNDO:      "does the effect still stand?",
	pb.Question_QUESTION_VERIFY:    "is the effect gone?",
	pb.Question_QUESTION_UNCHANGED: "is it as the forward left it?",
	pb.Question_QUESTION_DELIVERED: "was it delivered?",
}

// storyOfOutcomes tells what became of actions and plans. A kind without a line of its
// own is told by its name.
func storyOfOutcomes(r *pb.Record) (role, text string) {
	switch k := r.Kind.(type) {
	case *pb.Record_CompensationSucceeded:
		text = fmt.Sprintf("undone by attempt %d", k.CompensationSucceeded.Attempt)
		switch {
		case k.CompensationSucceeded.Probed:
			text += ": a question found the effect gone"
		case k.CompensationSucceeded.Verified:
			text += ", and a check found the effect gone"
		}
		return RoleOutcome, storyWorker(text, k.CompensationSucceeded.Worker)
	case *pb.Record_CompensationFailed:
		text = fmt.Sprintf("attempt %d failed", k.CompensationFailed.Attempt)
		if k.CompensationFailed.InDoubt {
			text = fmt.Sprintf("attempt %d is in doubt: the undo may have happened",
				k.CompensationFailed.Attempt)
		} else if k.CompensationFailed.Changed {
			text += ": someone else has changed what it is about"
		} else if k.CompensationFailed.Final {
			text += " for good"
		}
		return RoleAnswer, storyText(storyWorker(text, k.CompensationFailed.Worker),
			storyError(k.CompensationFailed.Code, k.CompensationFailed.Message))
	case *pb.Record_ProbeAnswered:
		name := strings.ToLower(strings.TrimPrefix(k.ProbeAnswered.Presence.String(), "PRESENCE_"))
		if k.ProbeAnswered.Presence == pb.Presence_PRESENCE_UNSPECIFIED {
			name = "inconclusive"
		}
		switch k.ProbeAnswered.Change {
		case pb.Change_CHANGE_NONE:
			name += ", and as the forward left it"
		case pb.Change_CHANGE_FOREIGN:
			name += ", and someone else has changed it"
		}
		return RoleAnswer, storyText("the effect is "+name, k.ProbeAnswered.Message)
	case *pb.Record_CompensationSkipped:
		return RoleOutcome, storyText("nothing was undone", k.CompensationSkipped.Reason)
	case *pb.Record_ActionQuarantined:
		return RoleOutcome, storyText("quarantined: it waits for its owner", k.ActionQuarantined.Reason)
	case *pb.Record_CommitWaits:
		return RoleOwner, storyText("the commit waits for its owner", k.CommitWaits.Reason)
	case *pb.Record_PlanRewound:
		switch {
		case k.PlanRewound.FromAction != "":
			text = "without action " + k.PlanRewound.FromAction + " and what came after it"
		case k.PlanRewound.Savepoint != "":
			text = "back at savepoint " + k.PlanRewound.Savepoint
		}
		return RoleEnd, storyText("the plan is open again", text)
	case *pb.Record_PlanEnded:
		end := strings.ToLower(strings.TrimPrefix(k.PlanEnded.End.String(), "PLAN_END_"))
		text = fmt.Sprintf("the plan ended %s: %d undone, %d skipped", end, k.PlanEnded.Compensated,
			k.PlanEnded.Skipped)
		if len(k.PlanEnded.Outstanding) > 0 {
			text += "; not undone: " + storyClip(strings.Join(k.PlanEnded.Outstanding, ", "))
		}
		return RoleEnd, text
	}
	return RoleDecision, strings.ReplaceAll(KindOf(r).Name, "_", " ")
}

func storyDepth(depth uint32) string {
	if depth < 2 {
		return ""
	}
	return fmt.Sprintf(", at depth %d of a cascade", depth)
}

func storyWorker(text, worker string) string {
	if worker == "" {
		return text
	}
	return text + " by worker " + worker
}

func storyError(code, message string) string {
	if code == "" || message == "" {
		return storyClip(code + message)
	}
	return storyClip(code + ": " + message)
}

// storyMax bounds what a line quotes, in runes.
const storyMax = 160

func storyClip(text string) string {
	if runes := []rune(text); len(runes) > storyMax {
		return string(runes[:storyMax-1]) + "…"
	}
	return text
}

func storyMoment(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05Z") }

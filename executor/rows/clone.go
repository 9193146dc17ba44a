package rows

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// ClonePlan copies what the fold changes and shares what it never does. A test
// holds it to the fields of PlanRow.
func ClonePlan(r *rowspb.PlanRow) *rowspb.PlanRow {
	return &rowspb.PlanRow{
		Agent: r.Agent, Opened: r.Opened, OpenedNs: r.OpenedNs, Declared: r.Declared,
		Implicit: r.Implicit,
		Phase:    r.Phase, Signal: r.Signal, Reason: r.Reason, Signalled: r.Signalled,
		Turned: r.Turned, Behind: slices.Clone(r.Behind), Fired: r.Fired,
		Unwinding: r.Unwinding, Resumed: r.Resumed,
		Committed: r.Committed, Retired: r.Retired, Ended: r.Ended, EndedNs: r.EndedNs,
		LastNs:  r.LastNs,
		Actions: r.Actions, Unsettled: r.Unsettled, InFlight: r.InFlight, InScope: r.InScope,
		ByHand: r.ByHand, Compensated: r.Compensated, Skipped: r.Skipped,
		Quarantined: r.Quarantined, Resolved: r.Resolved,
		Ready: slices.Clone(r.Ready), Parked: slices.Clone(r.Parked),
		Reported: slices.Clone(r.Reported),
		Watchers: slices.Clone(r.Watchers), Counting: slices.Clone(r.Counting),
		ActiveNs: r.ActiveNs, Moved: r.Moved, Adoptions: slices.Clone(r.Adoptions),
		Idling:     slices.Clone(r.Idling),
		Duplicated: slices.Clone(r.Duplicated), Orphans: CloneOrphans(r), Writer: r.Writer,
		Opener: r.Opener, ResumedNs: r.ResumedNs, ResumedAt: r.ResumedAt, Leases: cloneLeases(r.Leases),
		Savepoints: slices.Clone(r.Savepoints), ToSavepoint: r.ToSavepoint,
		FromAction: r.FromAction, Parts: r.Parts, PartWords: slices.Clone(r.PartWords),
		Rewinding: r.Rewinding, Target: r.Target,
		ParentEntry: r.ParentEntry, OpenChildren: r.OpenChildren,
		Children: slices.Clone(r.Children), Windows: slices.Clone(r.Windows),
		Reviews: slices.Clone(r.Reviews), LastGoes: r.LastGoes, LetGo: r.LetGo,
		MayLetGo: r.MayLetGo, UndoneNow: r.UndoneNow,
		Origin: r.Origin, UndoneAs: r.UndoneAs, Depth: r.Depth, RetiredCount: r.RetiredCount,
		Rewinds: r.Rewinds, SavepointsSet: r.SavepointsSet,
		Proposals: slices.Clone(r.Proposals), Settling: slices.Clone(r.Settling),
		UnwindingNs: r.UnwindingNs,
		Firing:      r.Firing, Cascaded: r.Cascaded, Cuts: slices.Clone(r.Cuts), Passed: r.Passed,
		Asked: r.Asked, Verdicts: slices.Clone(r.Verdicts), Answered: slices.Clone(r.Answered),
		Doubts: r.Doubts, InDoubt: r.InDoubt, Erased: r.Erased, Erasure: r.Erasure,
		Shredded: r.Shredded, Conditions: r.Conditions, Asking: slices.Clone(r.Asking),
		EndsNs: r.EndsNs, HeldOn: r.HeldOn, Delivers: r.Delivers, DeliveredAs: r.DeliveredAs,
		Stopped: r.Stopped,
	}
}

// ClonePayload is ClonePlan for what an action's process has sent along.
func ClonePayload(p *pb.Payload) *pb.Payload {
	return &pb.Payload{
		Input: p.Input, Output: p.Output, Arguments: p.Arguments, Detail: p.Detail,
		Before: p.Before, Found: p.Found,
	}
}

// CloneAction is ClonePlan for actions.
func CloneAction(r *rowspb.ActionRow) *rowspb.ActionRow {
	return &rowspb.ActionRow{
		Outcome: r.Outcome, ExternalRef: r.ExternalRef, Failure: r.Failure, OutcomeAt: r.OutcomeAt,
		Undo: r.Undo, Blockers: r.Blockers, Attempt: r.Attempt, AttemptsFrom: r.AttemptsFrom,
		Blind:      r.Blind,
		Dispatched: r.Dispatched, DueNs: r.DueNs, Settled: r.Settled, SettledNs: r.SettledNs,
		Note:   r.Note,
		LetsGo: r.LetsGo, UndoneAfter: r.UndoneAfter,
		Verdict: r.Verdict, VerdictBy: r.VerdictBy, VerdictReason: r.VerdictReason,
		Resolution: r.Resolution,
		Leases:     cloneLeases(r.Leases), LiftedOutput: r.LiftedOutput, Late: r.Late,
		Reported: r.Reported, ReportedAt: r.ReportedAt, Asking: r.Asking, Asked: r.Asked,
		AskedFrom: r.AskedFrom, AskedToSend: r.AskedToSend, Presence: r.Presence,
		Pending: r.Pending, AliveUntilNs: r.AliveUntilNs, Approved: r.Approved,
		Proposal: r.Proposal, ClosesNs: r.ClosesNs,
		Warned: r.Warned, SentNs: r.SentNs, Duties: r.Duties, ReadyNs: r.ReadyNs,
		VerdictNs: r.VerdictNs, Confirmed: r.Confirmed, Duplicates: r.Duplicates,
		PresenceAt: r.PresenceAt, ResolvedBy: r.ResolvedBy, HasOutput: r.HasOutput,
		OutcomeNs: r.OutcomeNs, AskedNs: r.AskedNs, AbsentNs: r.AbsentNs,
		DoubtedAs: r.DoubtedAs, OutputIncomplete: r.OutputIncomplete,
		ReferenceIncomplete: r.ReferenceIncomplete, FoundRef: r.FoundRef,
		Keys: r.Keys, SaidEarlier: r.SaidEarlier,
		Change: r.Change, ChangeNs: r.ChangeNs, Overwrite: r.Overwrite,
		DispatchedNs: r.DispatchedNs, Unserved: r.Unserved, SaidDone: r.SaidDone,
		Undone: r.Undone, Answered: r.Answered, Ahead: r.Ahead, Behind: r.Behind,
		AskNs: r.AskNs, Told: r.Told, WordAt: r.WordAt, Extra: r.Extra,
		Progress: r.Progress, Unsure: r.Unsure, Forgotten: r.Forgotten, There: r.There,
		Overtaken: r.Overtaken, Allowed: r.Allowed,
	}
}

func cloneLeases(list []*rowspb.LeaseRow) []*rowspb.LeaseRow {
	if list == nil {
		return nil
	}
	out := make([]*rowspb.LeaseRow, len(list))
	for i, l := range list {
		out[i] = &rowspb.LeaseRow{
			Name: l.Name, ArmedNs: l.ArmedNs, WakeNs: l.WakeNs,
			Keys: l.Keys, Fired: l.Fired, Moot: l.Moot, Node: l.Node, Faulty: l.Faulty,
			Cascade: l.Cascade, OfAction: l.OfAction, Exact: l.Exact, UntilNs: l.UntilNs,
			TurnedNs: l.TurnedNs,
		}
	}
	return out
}

// CloneOrphans copies the orphans of a plan.
func CloneOrphans(r *rowspb.PlanRow) (list []*rowspb.Orphan) {
	for _, o := range r.Orphans {
		list = append(list, proto.CloneOf(o))
	}
	return list
}

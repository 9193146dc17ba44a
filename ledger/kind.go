package ledger

import pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

// Kind says what a record is, by the name of its field in Record.
type Kind struct {
	Name        string // as in "plan_opened"; empty: the record has no kind
	Class       Class  // of the subject it may be on; a fact and an erasure also on the executor's
	NeedsPlan   bool
	NeedsAction bool
}

// On is what a kind needs on a subject of this class. A fact that the holder
// asserts or retracts is the compensation of an action; an erasure that it writes says
// that the key is gone. Agents move the deadlines of their own plans.
func (k Kind) On(c Class) Kind {
	if k.Class == ClassFact && c == ClassExecutor {
		return Kind{k.Name, c, true, true}
	}
	if k.Name == kindErased && c == ClassExecutor || k.Name == kindMoved && c == ClassAgent {
		return Kind{k.Name, c, true, false}
	}
	return k
}

// kindEffect is what an operator reports of an effect.
const kindEffect = "effect_reported"

// kindMoved is what operators and agents write of a plan's deadline.
const kindMoved = "deadline_moved"

// kindErased is asked for by an operator, and said to be done by the holder.
const kindErased = "plan_erased"

// KindOf returns the kind of a record, in the order of record.proto.
func KindOf(r *pb.Record) Kind {
	switch r.Kind.(type) {
	case *pb.Record_PlanOpened:
		return Kind{"plan_opened", ClassAgent, true, false}
	case *pb.Record_ForwardRegistered:
		return Kind{"forward_registered", ClassAgent, true, true}
	case *pb.Record_CompensationRegistered:
		return Kind{"compensation_registered", ClassAgent, true, true}
	case *pb.Record_ForwardCompleted:
		return Kind{"forward_completed", ClassAgent, true, true}
	case *pb.Record_ForwardFailed:
		return Kind{"forward_failed", ClassAgent, true, true}
	case *pb.Record_ForwardInDoubt:
		return Kind{"forward_in_doubt", ClassAgent, true, true}
	case *pb.Record_SavepointSet:
		return Kind{"savepoint_set", ClassAgent, true, false}
	case *pb.Record_PlanCommitted:
		return Kind{"plan_committed", ClassAgent, true, false}
	case *pb.Record_PlanFailed:
		return Kind{"plan_failed", ClassAgent, true, false}
	case *pb.Record_PlanCancelled:
		return Kind{"plan_cancelled", ClassAgent, true, false}
	case *pb.Record_UnwindRequested:
		return Kind{"unwind_requested", ClassAgent, true, false}
	case *pb.Record_PlanResumed:
		return Kind{"plan_resumed", ClassAgent, true, false}
	case *pb.Record_FactAsserted:
		return Kind{"fact_asserted", ClassFact, false, false}
	case *pb.Record_FactRetracted:
		return Kind{"fact_retracted", ClassFact, false, false}
	case *pb.Record_VerdictGiven:
		return Kind{"verdict_given", ClassVerdict, true, true}
	}
	return kindOfPeople(r)
}

func kindOfPeople(r *pb.Record) Kind {
	switch r.Kind.(type) {
	case *pb.Record_CompensationRequested:
		return Kind{"compensation_requested", ClassOperator, true, false}
	case *pb.Record_CancelRequested:
		return Kind{"cancel_requested", ClassOperator, true, false}
	case *pb.Record_RetryRequested:
		return Kind{"retry_requested", ClassOperator, true, true}
	case *pb.Record_Resolved:
		return Kind{"resolved", ClassOperator, true, true}
	case *pb.Record_ContractPublished:
		return Kind{"contract_published", ClassOperator, false, false}
	case *pb.Record_ClockConfirmed:
		return Kind{"clock_confirmed", ClassOperator, false, false}
	case *pb.Record_EvictRequested:
		return Kind{"evict_requested", ClassOperator, false, false}
	case *pb.Record_RestoreRequested:
		return Kind{"restore_requested", ClassOperator, false, false}
	case *pb.Record_CascadeAnswered:
		return Kind{"cascade_answered", ClassOperator, true, false}
	case *pb.Record_EffectReported:
		return Kind{kindEffect, ClassOperator, true, true}
	case *pb.Record_DeadlineMoved:
		return Kind{kindMoved, ClassOperator, true, false}
	case *pb.Record_PlanAdopted:
		return Kind{"plan_adopted", ClassOperator, true, false}
	case *pb.Record_PlanErased:
		return Kind{kindErased, ClassOperator, true, false}
	case *pb.Record_CompensationReported:
		return Kind{"compensation_reported", ClassWorker, true, true}
	case *pb.Record_CompensationProgressed:
		return Kind{"compensation_progressed", ClassWorker, true, true}
	}
	return kindOfHolder(r)
}

func kindOfHolder(r *pb.Record) Kind {
	switch r.Kind.(type) {
	case *pb.Record_TermStarted:
		return Kind{"term_started", ClassExecutor, false, false}
	case *pb.Record_LeaseFired:
		return Kind{"lease_fired", ClassExecutor, true, false}
	case *pb.Record_UnwindStarted:
		return Kind{"unwind_started", ClassExecutor, true, false}
	case *pb.Record_CompensationDispatched:
		return Kind{"compensation_dispatched", ClassExecutor, true, true}
	case *pb.Record_CompensationSucceeded:
		return Kind{"compensation_succeeded", ClassExecutor, true, true}
	case *pb.Record_CompensationFailed:
		return Kind{"compensation_failed", ClassExecutor, true, true}
	case *pb.Record_CompensationSkipped:
		return Kind{"compensation_skipped", ClassExecutor, true, true}
	case *pb.Record_ProbeAsked:
		return Kind{"probe_asked", ClassExecutor, true, true}
	case *pb.Record_ProbeAnswered:
		return Kind{"probe_answered", ClassExecutor, true, true}
	case *pb.Record_ActionQuarantined:
		return Kind{"action_quarantined", ClassExecutor, true, true}
	case *pb.Record_HeldSetRetired:
		return Kind{"held_set_retired", ClassExecutor, true, false}
	case *pb.Record_PlanEnded:
		return Kind{"plan_ended", ClassExecutor, true, false}
	case *pb.Record_FactEvicted:
		return Kind{"fact_evicted", ClassExecutor, false, false}
	case *pb.Record_FactReingested:
		return Kind{"fact_reingested", ClassExecutor, false, false}
	case *pb.Record_RecordRefused:
		return Kind{"record_refused", ClassExecutor, false, false}
	case *pb.Record_CheckpointSigned:
		return Kind{"checkpoint_signed", ClassExecutor, false, false}
	case *pb.Record_PlanRewound:
		return Kind{"plan_rewound", ClassExecutor, true, false}
	case *pb.Record_UndoWindowClosing:
		return Kind{"undo_window_closing", ClassExecutor, true, true}
	case *pb.Record_OwnerPaged:
		return Kind{"owner_paged", ClassExecutor, true, false}
	case *pb.Record_CascadeCut:
		return Kind{"cascade_cut", ClassExecutor, true, false}
	case *pb.Record_LedgerRepaired:
		return Kind{"ledger_repaired", ClassExecutor, false, false}
	case *pb.Record_CommitWaits:
		return Kind{"commit_waits", ClassExecutor, true, true}
	case *pb.Record_KeyRotated:
		return Kind{"key_rotated", ClassExecutor, false, false}
	case *pb.Record_TenantChanged:
		return Kind{"tenant_changed", ClassExecutor, false, false}
	}
	return Kind{}
}

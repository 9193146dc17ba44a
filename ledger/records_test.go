package ledger_test

import (
	"errors"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

var (
	agentSource    = ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: "p1"}
	factSource     = ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"}
	verdictSource  = ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "guard"}
	operatorSource = ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "root"}
	workerSource   = ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"}
	holderSource   = ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	termSource     = ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
)

// refusedField is the field of a *ledger.Refused, or the error's text.
func refusedField(err error) string {
	var refused *ledger.Refused
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return refused.Field
	}
	return err.Error()
}

func isHalted(err error, guard string) bool {
	var halted *ledger.Halted
	return errors.As(err, &halted) && halted.Guard == guard
}

func forward(action string) *pb.Record {
	return &pb.Record{
		Plan: "p1", Action: action, Payload: &pb.Payload{Input: []byte(`{"branch":"x","price":1.10}`)},
		Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
			Capability: "git.branch.create", Class: pb.Class_CLASS_COMPENSABLE, Lifted: []byte(`{"branch":"x"}`),
		}},
	}
}

func registration(action string) *pb.Record {
	return &pb.Record{
		Plan: "p1", Action: action,
		Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
			Capability: "git.branch.delete", Attempts: 3, BackoffNs: 1e9, TimeoutNs: 1e9,
			Bindings: []*pb.Binding{{Name: "branch", Expression: "input.branch"}},
			Triggers: []*pb.Trigger{{Name: "late", Condition: "after(plan.deadline)"}},
		}},
	}
}

// good is one record of every kind that its checks accept, on a subject that
// may carry it.
func good() []struct {
	source ledger.Source
	record *pb.Record
} {
	agent := func(r *pb.Record) *pb.Record { r.Plan = "p1"; return r }
	action := func(r *pb.Record) *pb.Record { r.Plan, r.Action = "p1", "x1"; return r }
	holder := func(r *pb.Record) *pb.Record { r.Term, r.EpochNs, r.Folded = 1, 5, 3; return r }
	return []struct {
		source ledger.Source
		record *pb.Record
	}{
		{agentSource, agent(&pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{
			Label: "demo", Owner: "me", DeadlineNs: 9, Labels: []*pb.Label{{Key: "k", Value: "v"}}, Triggers: []*pb.Trigger{{Name: "a", Condition: "true"}},
		}}})},
		{agentSource, forward("x1")},
		{agentSource, registration("x1")},
		{agentSource, action(&pb.Record{Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{ExternalRef: "r", Lifted: []byte(`{}`)}}})},
		{agentSource, action(&pb.Record{Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Code: "c", Message: "m"}}})},
		{agentSource, action(&pb.Record{Kind: &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{}}})},
		{agentSource, agent(&pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "s", Number: 1}}})},
		{agentSource, agent(&pb.Record{Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})},
		{agentSource, agent(&pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "r"}}})},
		{agentSource, agent(&pb.Record{Kind: &pb.Record_PlanCancelled{PlanCancelled: &pb.PlanCancelled{Reason: "r"}}})},
		{agentSource, agent(&pb.Record{Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{ToSavepoint: "s", Reason: "r", Number: 1}}})},
		{agentSource, agent(&pb.Record{Writer: "w2", Kind: &pb.Record_PlanResumed{PlanResumed: &pb.PlanResumed{}}})},
		{factSource, &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "stock/å", Value: []byte(`{"n":3}`)}}}},
		{factSource, &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "stock"}}}},
		{verdictSource, action(&pb.Record{Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK}}})},
		{operatorSource, agent(&pb.Record{Kind: &pb.Record_CompensationRequested{CompensationRequested: &pb.CompensationRequested{Actor: "me"}}})},
		{operatorSource, agent(&pb.Record{Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Actor: "me"}}})},
		{operatorSource, action(&pb.Record{Kind: &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Reason: "again", Actor: "me"}}})},
		{operatorSource, action(&pb.Record{Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{Outcome: pb.Resolution_RESOLUTION_DONE, Reason: "by hand", Actor: "me", Evidence: "ticket"}}})},
		{operatorSource, &pb.Record{Kind: &pb.Record_ContractPublished{ContractPublished: contract()}}},
		{operatorSource, &pb.Record{Kind: &pb.Record_ClockConfirmed{ClockConfirmed: &pb.ClockConfirmed{Actor: "me"}}}},
		{operatorSource, &pb.Record{Kind: &pb.Record_EvictRequested{EvictRequested: &pb.EvictRequested{Keys: []string{"a", "b"}, Reason: "r", Actor: "root"}}}},
		{operatorSource, &pb.Record{Kind: &pb.Record_RestoreRequested{RestoreRequested: &pb.RestoreRequested{Keys: []string{"a"}, Actor: "root"}}}},
		{operatorSource, agent(&pb.Record{Kind: &pb.Record_CascadeAnswered{CascadeAnswered: &pb.CascadeAnswered{Resume: true, Reason: "the loop ends here", Actor: "me"}}})},
		{operatorSource, action(effectReported())},
		{operatorSource, agent(deadlineMoved())},
		{operatorSource, agent(planAdopted())},
		{workerSource, action(&pb.Record{Kind: &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{Answer: pb.Answer_ANSWER_DONE}}})},
		{workerSource, action(&pb.Record{Kind: &pb.Record_CompensationProgressed{CompensationProgressed: &pb.CompensationProgressed{Note: "half"}}})},
		{termSource, holder(&pb.Record{Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h"}}})},
		{holderSource, holder(agent(&pb.Record{Kind: &pb.Record_LeaseFired{LeaseFired: &pb.LeaseFired{Lease: "late"}}}))},
		{holderSource, holder(agent(&pb.Record{Kind: &pb.Record_UnwindStarted{UnwindStarted: &pb.UnwindStarted{}}}))},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_CompensationDispatched{CompensationDispatched: &pb.CompensationDispatched{Attempt: 1}}}))},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_CompensationSucceeded{CompensationSucceeded: &pb.CompensationSucceeded{}}}))},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{}}}))},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_CompensationSkipped{CompensationSkipped: &pb.CompensationSkipped{}}}))},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_ProbeAsked{ProbeAsked: &pb.ProbeAsked{}}}))},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_ProbeAnswered{ProbeAnswered: &pb.ProbeAnswered{}}}))},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_ActionQuarantined{ActionQuarantined: &pb.ActionQuarantined{}}}))},
		{holderSource, holder(agent(&pb.Record{Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{}}}))},
		{holderSource, holder(agent(&pb.Record{Kind: &pb.Record_PlanEnded{PlanEnded: &pb.PlanEnded{}}}))},
		{holderSource, holder(&pb.Record{Kind: &pb.Record_FactEvicted{FactEvicted: &pb.FactEvicted{Key: "k"}}})},
		{holderSource, holder(&pb.Record{Kind: &pb.Record_FactReingested{FactReingested: &pb.FactReingested{Key: "k"}}})},
		{holderSource, holder(&pb.Record{Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{}}})},
		{holderSource, holder(&pb.Record{Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{}}})},
		{holderSource, holder(agent(&pb.Record{Kind: &pb.Record_PlanRewound{PlanRewound: &pb.PlanRewound{Savepoint: "s"}}}))},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_UndoWindowClosing{UndoWindowClosing: &pb.UndoWindowClosing{ClosesNs: 9}}}))},
		{holderSource, holder(agent(&pb.Record{Kind: &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Hook: "default", Kind: api.PageQuarantined}}}))},
		{holderSource, holder(agent(&pb.Record{Kind: &pb.Record_CascadeCut{CascadeCut: &pb.CascadeCut{Lease: "late", Depth: 9}}}))},
		{holderSource, holder(&pb.Record{Kind: &pb.Record_LedgerRepaired{LedgerRepaired: &pb.LedgerRepaired{Through: 7, Size: 9, Root: make([]byte, ledger.LeafSize), Reason: "a flipped bit", Actor: "me"}}})},
		{holderSource, holder(&pb.Record{Kind: &pb.Record_KeyRotated{KeyRotated: rotation()}})},
		{operatorSource, agent(&pb.Record{Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for by the customer", Actor: "me"}}})},
		{holderSource, holder(action(&pb.Record{Kind: &pb.Record_CommitWaits{CommitWaits: &pb.CommitWaits{Reason: "no probe"}}}))},
		{holderSource, holder(&pb.Record{Kind: &pb.Record_TenantChanged{TenantChanged: &pb.TenantChanged{
			Revision: 3, Suspended: true, By: "ana", Reason: "not paid", Limits: &pb.TenantLimits{OpenPlans: 9}}}})},
	}
}

// rotation is a rotation between two keys of the tenant, signed by the first.
func rotation() *pb.KeyRotated {
	old, oldKey := madeKey("sagenbaum/t", 1)
	_, newKey := madeKey("sagenbaum/t", 2)
	k := &pb.KeyRotated{OldKey: oldKey, NewKey: newKey, Size: 7, Reason: "a year is over", Actor: "me"}
	var err error
	if k.Signature, err = old.Sign([]byte(ledger.RotationText("t", k))); err != nil {
		panic(err)
	}
	return k
}

// contract is a published contract under its own digest.
func contract() *pb.ContractPublished {
	text := []byte(`{"capability":"git.branch.create"}`)
	digest := ledger.ContractDigest(text)
	return &pb.ContractPublished{Capability: "git.branch.create", Digest: digest[:], Contract: text}
}

func effectReported() *pb.Record {
	return &pb.Record{Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{
		ExternalRef: "ch_9", Duplicates: []string{"ch_10"}, Reason: "charged twice", Actor: "me"}}}
}

func planAdopted() *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanAdopted{PlanAdopted: &pb.PlanAdopted{
		Agent: "writer-2", Reason: "its machine is gone", Actor: "me"}}}
}

func deadlineMoved() *pb.Record {
	return &pb.Record{Kind: &pb.Record_DeadlineMoved{DeadlineMoved: &pb.DeadlineMoved{
		DeadlineNs: 1_796_083_200_000_000_000, Reason: "the agent is back then", Actor: "me"}}}
}

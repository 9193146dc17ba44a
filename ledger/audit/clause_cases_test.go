package audit

import (
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// clauseCases are, for each clause, a record that is right and one thing that makes it wrong.
var clauseCases = []struct {
	id     string
	record func(*scene)
	fool   func(*scene)
}{
	// Form and writers.
	{"I17.pair", skips, malformedAs("pair")},
	{"I19.declared", skips, malformedAs("compensation_registered.key")},
	{"I27.subject", skips, malformedAs("subject")},
	{"I3.message", skips, malformedAs("commit.records")},
	{"I3.message", skips, func(s *scene) { s.err = errBroken }},
	{"I4.form", skips, malformedAs("forward_registered.class")},
	{"I4.writer", skips, func(s *scene) { s.source.Class = ledger.ClassFact }},
	{"I4.condition", opens, func(s *scene) {
		s.record.GetPlanOpened().Triggers = []*pb.Trigger{{Name: "x", Condition: "1 +"}}
	}},
	{"I4.range", opens, func(s *scene) {
		s.l.book.rules = ledger.NumbersSince
		s.record.GetPlanOpened().DeadlineNs = ledger.InstantMax + 1
	}},
	{"I17.range", registers, func(s *scene) {
		s.l.book.rules = ledger.NumbersSince
		s.record.GetForwardRegistered().TimeoutNs = 30_000
	}},
	{"I17.range", pairs, func(s *scene) {
		s.l.book.rules = ledger.NumbersSince
		s.record.GetCompensationRegistered().ValidUntilNs = ledger.InstantMax + 1
	}},
	{"I17.expressions", registers, func(s *scene) { s.pair.GetCompensationRegistered().Done = "1" }},
	{"I17.expressions", pairs, func(s *scene) { s.record.GetCompensationRegistered().Done = "1" }},
	{"I17.range", registers, func(s *scene) {
		s.l.book.rules = ledger.NumbersSince
		s.record.GetForwardRegistered().Deliver = &pb.CompensationRegistered{DedupeNs: 30_000}
	}},
	{"I17.delivery", registers, func(s *scene) {
		s.record.GetForwardRegistered().Deliver = &pb.CompensationRegistered{Done: "1"}
	}},
	{"I17.delivery", pairs, func(s *scene) {
		s.pair = &pb.Record{Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
			Deliver: &pb.CompensationRegistered{
				Bindings: []*pb.Binding{{Name: "id", Expression: "output.id"}}}}}}
	}},
	{"I38.last", registers, func(s *scene) {
		s.a.forward = &pb.ForwardRegistered{Deliver: &pb.CompensationRegistered{}}
		s.record.GetForwardRegistered().After = []string{"a"}
	}},
	{"I38.cancel", stopsDeliveries, func(s *scene) { s.p.delivers, s.p.stopped = true, &pb.Address{Sequence: 3} }},
	{"I38.judged", judgesCommitted, func(s *scene) { s.p.delivers = true }},
	{"I38.blocked", judgesCommitted, func(s *scene) {
		s.p.deliveredAs = "p~0"
		s.l.book.found(&plan{id: "p~0", delivers: true, actions: []*action{{n: 1, id: "a", undo: compensated}}})
	}},
	{"I38.stopped", dispatches, func(s *scene) { s.p.delivers, s.p.stopped = true, &pb.Address{Sequence: 3} }},
	{"I38.again", dispatches, func(s *scene) { s.p.delivers, s.a.unsureOf = true, 1 }},
	{"I38.end", ended, func(s *scene) { s.p.delivers = true }},
	{"I38.order", dispatches, func(s *scene) { deliversBoth(s) }},
	{"I38.order", dispatches, func(s *scene) {
		o := deliversBoth(s)
		s.b.undo = compensated
		above := &plan{id: "top", actions: []*action{o.actions[0],
			{n: 2, id: "plan:o", before: []uint32{1}, child: o}}}
		s.l.book.found(above)
		s.p.entry, s.p.parent = 1, &plan{id: "top~0", delivers: true, origin: "top",
			actions: []*action{{n: 1, id: "plan:p", child: s.p}, {n: 2, id: "b", undo: dispatched, before: []uint32{1}}}}
	}},
	{"I38.once", succeeds, func(s *scene) {
		deliversBoth(s)
		s.a.outcome, s.a.saidDone = completed, 1
	}},
	{"I38.whole", nothingLeft, func(s *scene) { commitsStaged(s, "") }},
	{"I38.whole", nothingLeft, func(s *scene) { commitsStaged(s, skipped) }},
	{"I38.whole", nothingLeft, func(s *scene) { commitsStaged(s, dispatched) }},
	{"I38.commit", dispatches, func(s *scene) {
		s.a.forward = &pb.ForwardRegistered{Deliver: &pb.CompensationRegistered{}}
	}},
	{"I38.word", outcomes, func(s *scene) {
		s.a.forward = &pb.ForwardRegistered{Deliver: &pb.CompensationRegistered{}}
	}},
	{"I6.effect", reportsEffect, func(s *scene) {
		s.a.forward = &pb.ForwardRegistered{Deliver: &pb.CompensationRegistered{}}
	}},
	{"I17.effectless", registers, func(s *scene) { s.record.GetForwardRegistered().Class = pb.Class_CLASS_EFFECTLESS }},
	{"I17.late", registers, func(s *scene) { s.record.GetForwardRegistered().Late = pb.Late_LATE_REFUSED }},
	{"I26.begins", begins, func(s *scene) { s.record.Term = 1 }},
	{"I26.rules", begins, func(s *scene) { s.l.book.rules = ledger.AnytimeSince }},
	{"I26.term", skips, func(s *scene) { s.record.Term = 2 }},
	{"I26.order", skips, func(s *scene) { s.l.log.terms = 2 }},
	{"I5.decided", skips, func(s *scene) { s.record.Folded, s.l.book.decidedAt = 3, 4 }},
	{"I6.about", observes, func(s *scene) {
		s.source.Class, s.record.About = ledger.ClassExecutor,
			&pb.Address{Sequence: 8}
	}},
	{"I6.cause", observes, func(s *scene) {
		s.source.Class, s.record.Cause = ledger.ClassExecutor,
			&pb.Address{Sequence: 8}
	}},
	{"I27.tenant", observes, func(s *scene) { s.source.Tenant = "u" }},
	{"I8.time", skips, func(s *scene) { s.l.book.now = 5 }},
	{"I8.time", skips, func(s *scene) { s.stamp = 5 }},

	// The ledger and its tree.
	{"I1.repair", repairs, func(s *scene) { s.record.GetLedgerRepaired().Size = 7 }},
	{"I1.repair", repairs, func(s *scene) { s.record.GetLedgerRepaired().Through = 7 }},
	{"I6.refused", answersRefused, func(s *scene) { s.record.GetRecordRefused().Sequence = 3 }},
	{"I6.refused", answersRefused, func(s *scene) { s.l.log.leaves.Put(2, 0, [ledger.LeafSize]byte{}, false) }},
	{"I5.contract", publishes, func(s *scene) { s.l.book.contracts["c"] = []byte("d") }},
	{"I2.size", signs, func(s *scene) { s.record.GetCheckpointSigned().Size = 9 }},
	{"I2.root", signs, func(s *scene) { s.record.GetCheckpointSigned().Root = nil }},
	{"I2.rotated", rotates, func(s *scene) { s.record.GetKeyRotated().Size = 9 }},
	{"I2.ends", rotates, func(s *scene) { s.l.book.signed.key = "other" }},
	{"I2.ends", rotates, func(s *scene) { s.l.book.signed.size = 1 }},

	{"I4.named", observes, func(s *scene) { s.l.book.may = &pb.TenantChanged{RequireNames: true} }},
	{"I5.id", observes, func(s *scene) {
		s.keepID(knownID)
		s.record.Id = knownID
	}},
	{"I5.age", observes, func(s *scene) {
		s.l.book.rules, s.record.Id = ledger.CopiesSince, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
	}},
	{"I5.tenant", governs, func(s *scene) { s.l.book.may = s.record.GetTenantChanged() }},

	// Agents.
	{"I4.begins", opens, func(s *scene) { s.l.book.may = &pb.TenantChanged{Suspended: true} }},
	{"I4.begins", opens, func(s *scene) {
		s.l.book.may = &pb.TenantChanged{Limits: &pb.TenantLimits{OpenPlans: 2}}
		s.l.book.spent.open = 2
	}},
	{"I4.conditions", opens, func(s *scene) {
		s.record.GetPlanOpened().Triggers = []*pb.Trigger{{Name: "low", Condition: "true"}}
		s.l.book.may = &pb.TenantChanged{Limits: &pb.TenantLimits{HeldConditions: 2}}
		s.l.book.spent.leases = 2
	}},
	{"I4.holds", observes, func(s *scene) { s.l.book.may = &pb.TenantChanged{Suspended: true} }},
	{"I4.holds", observes, func(s *scene) {
		s.l.book.may = &pb.TenantChanged{Limits: &pb.TenantLimits{Facts: 2}}
		s.l.book.spent.facts = 2
	}},
	{"I4.deadline", opens, func(s *scene) { s.record.GetPlanOpened().DeadlineNs = -int64(ledger.DeadlinePastMax) }},
	{"I4.input", opens, func(s *scene) {
		s.record.Payload = &pb.Payload{Input: []byte(`"` + strings.Repeat("x", 16<<10) + `"`)}
	}},
	{"I4.input", opens, func(s *scene) { s.record.Payload = &pb.Payload{Input: []byte(`"\ud800"`)} }},
	{"I5.unopened", opens, func(s *scene) { s.record.Plan, s.p.unopened = "p", true }},
	{"I5.opened", opens, func(s *scene) { s.record.Plan = "p" }},
	{"I5.opened", opens, func(s *scene) { s.record.Plan, s.p.opener = "p", "w" }},
	{"I6.plan", registers, func(s *scene) { s.record.Plan = "q" }},
	{"I4.agent", registers, func(s *scene) { s.source.Name = "eve" }},
	{"I31.writer", registers, func(s *scene) { s.record.Writer = "w" }},
	{"I31.writer", registers, func(s *scene) { s.p.writer = "ann w2" }},
	{"I4.agent", outcomes, func(s *scene) { s.p.earlier, s.p.agent, s.a.writer = []string{"ann"}, "bob", "w1" }},
	{"I5.resumed", resumes, func(s *scene) { s.record.Writer = "" }},
	{"I5.adopted", adopts, func(s *scene) {
		s.p.earlier, s.p.agent, s.p.adoptedFrom, s.record.GetPlanAdopted().Follows = []string{"ann"}, "bob", 1, 1
	}},
	{"I15.adopted", adopts, func(s *scene) { s.p.phase = ledger.StateCommitting }},
	{"I15.adopted", adopts, func(s *scene) { s.p.signal = signalFailed }},
	{"I15.adopted", adopts, func(s *scene) { s.p.fired = &pb.Address{Sequence: 4} }},
	{"I15.adopted", adopts, func(s *scene) { s.p.parent = &plan{phase: ledger.StateUnwinding} }},
	{"I31.another", adopts, func(s *scene) { s.p.agent = "bob" }},
	{"I31.function", adopts, func(s *scene) { s.p.declared = &pb.PlanOpened{Function: "f"} }},
	{"I31.handed", adopts, func(s *scene) { s.p.resumedAt = 5 }},
	{"I31.often", adopts, func(s *scene) { s.p.earlier = slices.Repeat([]string{"eve"}, adoptionsMax) }},
	{"I31.follows", resumes, func(s *scene) {
		s.l.book.rules, s.record.GetPlanResumed().Follows = ledger.FollowsSince, 7
	}},
	{"I15.resumed", resumes, func(s *scene) { s.p.signal = signalFailed }},
	{"I5.action", registers, func(s *scene) { s.record.Action = "a" }},
	{"I5.action", registers, func(s *scene) { s.record.Action, s.a.input = "a", []byte("1") }},
	{"I15.forward", registers, func(s *scene) { s.p.phase = ledger.StateResolved }},
	{"I6.after", registers, func(s *scene) { s.record.GetForwardRegistered().After = []string{"z"} }},
	{"I17.forward", pairs, func(s *scene) { s.record.Action = "z" }},
	{"I5.undo", pairs, func(s *scene) { s.a.compensation = &pb.CompensationRegistered{} }},
	{"I17.commit", pairs, func(s *scene) { s.a.registered = &pb.Address{Sequence: 8} }},
	{"I6.outcome", outcomes, func(s *scene) { s.record.Action = "z" }},
	{"I5.outcome", outcomes, func(s *scene) { s.a.outcome = failed }},
	{"I5.outcome", outcomes, func(s *scene) { s.a.outcome = completed }},
	{"I5.outcome", outcomes, func(s *scene) { // a doubt of the process that has recorded the failure
		s.record.Kind = &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{}}
		s.a.outcome, s.a.outcomeAt, s.p.resumedAt = failed, 5, 3
	}},
	{"I5.savepoint", saves, func(s *scene) { s.record.GetSavepointSet().Number = 0 }},
	{"I5.savepoint", saves, func(s *scene) { s.p.savepointsSet = 1 }},
	{"I5.savepoint", saves, func(s *scene) { s.p.savepoints = []savepoint{{"s", 1}} }},
	{"I5.savepoint", saves, func(s *scene) { s.p.savepoints = make([]savepoint, savepointsMax) }},
	{"I15.savepoint", saves, func(s *scene) { s.p.phase = ledger.StateUnwinding }},
	{"I5.rewind", rewinds, func(s *scene) { s.record.GetUnwindRequested().Number = 0 }},
	{"I5.rewind", rewinds, func(s *scene) { s.p.rewinds = 1 }},
	{"I15.rewind", rewinds, func(s *scene) { s.p.phase = ledger.StateCommitting }},
	{"I6.savepoint", rewinds, func(s *scene) { s.p.savepoints = nil }},
	{"I5.end", rewinds, func(s *scene) { s.p.signal, s.p.signalled, s.p.toSavepoint = signalCancelled, true, "s" }},
	{"I15.end", rewinds, func(s *scene) { s.p.signal = signalFailed }},
	{"I15.end", rewinds, func(s *scene) { s.p.phase = ledger.StateFailed }},
	{"I5.commit", commits, func(s *scene) { s.p.committed = &pb.Address{} }},
	{"I15.open", commits, func(s *scene) { s.p.signal = signalFailed }},
	{"I15.open", commits, func(s *scene) { s.p.phase = ledger.StateFailed }},
	{"I15.commit", commits, func(s *scene) { s.p.phase = ledger.StateFailed }},
	{"I15.parts", commits, func(s *scene) { s.p.parts = 1 }},
	{"I13.commit", commits, turns},
	{"I15.children", commits, child(ledger.StateOpen)},
	{"I31.commit", commits, claims},
	{"I15.root", commits, func(s *scene) { s.p.parent = &plan{phase: ledger.StateUnwinding} }},
	{"I31.tree", commits, child(ledger.StateCommitted)},
	{"I13.tree", commits, child(ledger.StateCommitted)},

	// Sources, supervisors, operators and workers.
	{"I6.fact", observes, func(s *scene) { s.record.Plan = "q" }},
	{"I6.fact", observes, func(s *scene) { s.record.Action = "z" }},
	{"I6.fact-about", observes, func(s *scene) { s.record.About = &pb.Address{Sequence: 2} }},
	{"I6.action", reports, func(s *scene) { s.record.Action = "z" }},
	{"I10.asked", evictionAsked, func(s *scene) { s.record.GetEvictRequested().Keys = []string{"z"} }},
	{"I10.asked", evictionAsked, func(s *scene) { s.fact(&fact{asked: &pb.Address{}}) }},
	{"I10.asked", evictionAsked, func(s *scene) { s.fact(&fact{evicted: &pb.Address{}}) }},
	{"I15.part", undoAsked, func(s *scene) { s.p.parent = &plan{id: "up"} }},
	{"I5.undone", undoAsked, func(s *scene) { s.p.undoneAs = "p~1" }},
	{"I5.undone", undoAsked, func(s *scene) { s.p.origin = "o" }},
	{"I6.undone", undoAsked, func(s *scene) { s.p.savepoints = nil }},
	{"I6.undone-part", partAsked(ledger.StateCommitted), func(s *scene) {
		s.record.GetCompensationRequested().FromAction = "z"
	}},
	{"I6.part", partAsked(ledger.StateOpen), func(s *scene) {
		s.record.GetCompensationRequested().FromAction = "z"
	}},
	{"I6.part", partAsked(ledger.StateOpen), func(s *scene) { s.a.undo = compensated }},
	{"I15.busy", undoAsked, child(ledger.StateUnwinding)},
	{"I20.window", undoAsked, func(s *scene) { s.a.closesNs, s.l.book.now = 5, 5 }},
	{"I36.allowed", allows, func(s *scene) { s.a.undo = skipped }},
	{"I36.allowed", allows, func(s *scene) { s.a.undo = owed }},
	{"I5.reached", judgesCommitted, func(s *scene) { s.p.undoneAs = "p~1" }},
	{"I15.reached", judgesCommitted, child(ledger.StateUnwinding)},
	{"I20.reached", judgesCommitted, func(s *scene) { s.a.closesNs, s.l.book.now = 5, 5 }},
	{"I15.rewind", cancels, func(s *scene) { s.p.phase = ledger.StateCommitting }},
	{"I6.savepoint", cancels, func(s *scene) { s.p.savepoints = nil }},
	{"I6.answer", resolves, func(s *scene) { s.record.Action = "z" }},
	{"I23.child", resolves, func(s *scene) { s.a.child = &plan{} }},
	{"I23.owed", resolves, func(s *scene) { s.a.undo = compensated }},
	{"I18.done", resolves, func(s *scene) {
		s.a.undo, s.a.reported = dispatched, &pb.CompensationReported{Answer: pb.Answer_ANSWER_DONE}
	}},
	{"I6.answer-about", resolves, func(s *scene) { s.record.About = &pb.Address{Sequence: 2} }},
	{"I6.answer-cause", resolves, func(s *scene) { s.record.Cause = &pb.Address{Sequence: 2} }},
	{"I36.resolved", resolves, func(s *scene) { s.a.doubt, s.record.GetResolved().Halt = doubtGiven, true }},
	{"I36.retry", retries, func(s *scene) { s.a.doubt = doubtGiven }},
	{"I23.inverse", retries, func(s *scene) { s.a.compensation = &pb.CompensationRegistered{} }},
	{"I23.again", retries, func(s *scene) { s.a.undo, s.a.approved = owed, true }},
	{"I19.new-key", retries, func(s *scene) { s.record.GetRetryRequested().NewKey = true }},
	{"I19.new-key", retries, func(s *scene) {
		s.a.attempt, s.a.laterKeys, s.record.GetRetryRequested().NewKey = 1, []laterKey{{after: 1}}, true
	}},
	{"I23.overwrite", retries, func(s *scene) { s.record.GetRetryRequested().Overwrite = true }},
	{"I19.flight", retries, func(s *scene) { s.a.undo = dispatched }},
	{"I19.flight", retries, func(s *scene) { s.a.aliveUntilNs = 5 }},
	{"I24.erased", erases, func(s *scene) { s.p.origin = "o" }},
	{"I5.erased", erases, func(s *scene) { s.p.erased = &pb.Address{} }},
	{"I24.key", erases, func(s *scene) { s.p.phase = ledger.StateOpen }},
	{"I6.cut", answersCut, func(s *scene) { s.record.Action = "z" }},
	{"I25.answer", answersCut, func(s *scene) { s.record.GetCascadeAnswered().Lease = "z" }},
	{"I6.effect", reportsEffect, func(s *scene) { s.a.dutyOf = 1 }},
	{"I24.effect", reportsEffect, func(s *scene) {
		s.a.compensation.Sealed, s.record.Payload = true, &pb.Payload{Output: []byte("7")}
	}},
	{"I6.effect", reportsEffect, func(s *scene) { s.a.compensation = nil }},
	{"I6.effect", reportsEffect, func(s *scene) { s.a.forward.Class = pb.Class_CLASS_EFFECTLESS }},
	{"I6.effect", reportsEffect, func(s *scene) { s.a.child = s.p }},
	{"I15.effect", reportsEffect, func(s *scene) { s.p.phase = ledger.StateCommitted }},
	{"I15.effect", reportsEffect, func(s *scene) { s.p.undoneAs = "p~1" }},
	{"I15.effect", reportsEffect, func(s *scene) {
		s.p.origin, s.a.undo, s.l.book.rules = "o", skipped, ledger.LeftOutSince
	}},
	{"I23.effect", reportsEffect, func(s *scene) { s.a.undo, s.a.outcome = compensated, completed }},
	{"I23.effect", reportsEffect, func(s *scene) {
		s.a.undo, s.a.forward.Late = compensated, pb.Late_LATE_REFUSED
	}},
	{"I23.effect", reportsEffect, func(s *scene) {
		s.a.undo, s.a.resolution = resolved, &pb.Resolved{Outcome: pb.Resolution_RESOLUTION_LOST}
	}},
	{"I23.effect", reportsEffect, func(s *scene) {
		s.a.undo, s.a.presence, s.a.foundRef = compensated, pb.Presence_PRESENCE_PRESENT, "x"
		s.l.book.rules = ledger.SeenSince
	}},
	{"I23.effect", reportsEffect, func(s *scene) { s.a.doubt, s.a.surplus = doubtGiven, []string{"y"} }},
	{"I5.named", reportsEffect, func(s *scene) { s.a.outcome, s.a.externalRef = completed, "y" }},
	{"I5.named", reportsEffect, func(s *scene) { s.a.foundRef = "y" }},
	{"I5.named", reportsEffect, func(s *scene) { s.a.outcome = completed }},
	{"I5.named", reportsEffect, func(s *scene) { s.a.duplicates = []string{"x"} }},
	{"I15.extra", reportsEffect, func(s *scene) {
		s.p.phase, s.record.GetEffectReported().Duplicates = ledger.StateResolved, []string{"y"}
	}},
	{"I15.extra", reportsEffect, func(s *scene) {
		s.record.GetEffectReported().ExternalRef, s.record.GetEffectReported().Duplicates = "", []string{"y"}
	}},
	{"I15.extra", reportsEffect, func(s *scene) {
		s.a.duties, s.record.GetEffectReported().Duplicates = extrasMax, []string{"y"}
	}},
	{"I5.output", reportsEffect, func(s *scene) {
		s.a.outcome, s.a.externalRef, s.record.Payload = completed, "x", &pb.Payload{Output: []byte(`{"n":1}`)}
	}},
	{"I5.effect", reportsEffect, func(s *scene) { s.a.outcome, s.a.externalRef = completed, "x" }},
	{"I5.moved", movesDeadline, func(s *scene) {
		s.p.movedFrom, s.p.deadlineNs, s.record.GetDeadlineMoved().Follows = 3, 50, 3
	}},
	{"I15.moved", movesDeadline, func(s *scene) { s.p.phase = ledger.StateUnwinding }},
	{"I15.moved", movesDeadline, func(s *scene) { s.p.signal = signalFailed }},
	{"I15.moved", movesDeadline, func(s *scene) { s.p.fired = &pb.Address{Sequence: 4} }},
	{"I15.moved", movesDeadline, func(s *scene) { s.p.parent = &plan{phase: ledger.StateUnwinding} }},
	{"I16.moved", movesDeadline, func(s *scene) { s.l.book.now = 20 }},
	{"I6.moved", movesDeadline, func(s *scene) { s.record.GetDeadlineMoved().Follows = 4 }},
	{"I6.moved", agentMovesDeadline, func(s *scene) { s.record.GetDeadlineMoved().Follows = 0 }},
	{"I4.agent", agentMovesDeadline, func(s *scene) { s.source.Name = "bob" }},
	{"I31.writer", agentMovesDeadline, func(s *scene) { s.record.Writer = "w2" }},
	{"I16.to", movesDeadline, func(s *scene) { s.record.GetDeadlineMoved().DeadlineNs = 10 }},
	{"I19.report", reports, func(s *scene) { s.record.GetCompensationReported().Key = "k" }},
	{"I19.token", reports, func(s *scene) { s.a.secrets = []secret{{attempt: 1, digest: []byte("d")}} }},
	{"I19.token", reports, func(s *scene) {
		s.source.Name, s.record.GetCompensationReported().Token = "w2", "x"
		s.a.secrets = []secret{{attempt: 1, digest: ledger.ReportDigest("x"), by: "w1"}}
	}},
	{"I5.report", reports, func(s *scene) { s.a.saidDone = 1 }},
	{"I18.report", reports, func(s *scene) { s.a.attempt = 0 }},
	{"I18.report", reportsAhead, func(s *scene) { s.a.ahead = nil }},
	{"I18.report", reportsAhead, func(s *scene) { s.record.GetCompensationReported().Attempt = 2 }},
	{"I18.report", reportsAhead, func(s *scene) {
		s.record.GetCompensationReported().Answer = pb.Answer_ANSWER_FAILED
	}},
	{"I5.answer", reports, func(s *scene) {
		s.a.reported = &pb.CompensationReported{Answer: pb.Answer_ANSWER_DONE}
	}},

	// Leases and facts.
	{"I15.armed", fires, func(s *scene) { s.p.phase = ledger.StateUnwinding }},
	{"I15.own", fires, func(s *scene) {
		s.p.phase, s.p.parent = ledger.StateCommitted, &plan{id: "top", phase: ledger.StateOpen}
		s.l.book.rules = ledger.GivenUpSince
	}},
	{"I15.since", firesSince, func(s *scene) { s.p.leases[0].after = false }},
	{"I5.after", firesSince, func(s *scene) { s.p.undoneAs = "p~1" }},
	{"I20.after", firesSince, func(s *scene) { s.p.leases[0].untilNs = 0 }},
	{"I15.after", firesSince, child(ledger.StateUnwinding)},
	{"I12.tree", firesSince, func(s *scene) {
		child(ledger.StateCommitted)(s)
		q := s.p.below()[0]
		q.leases, q.holding = []*lease{{name: "other", text: "true", untilNs: 9}}, 1
		q.turned = &turn{lease: "other", at: &pb.Address{Sequence: 2}}
	}},
	{"I14.unwinds", fires, func(s *scene) { s.p.fired = &pb.Address{} }},
	{"I14.held", fires, func(s *scene) { s.p.leases[0].fired = true }},
	{"I15.deadline", fires, func(s *scene) {
		s.p.phase, s.p.leases[0].name = ledger.StateCommitting, leaseDeadline
		s.record.GetLeaseFired().Lease = leaseDeadline
	}},
	{"I25.cut", fires, func(s *scene) { s.p.leases[0].cascade = cutShort }},
	{"I12.first", fires, func(s *scene) { s.record.Cause = &pb.Address{Sequence: 4} }},
	{"I12.edge", fires, func(s *scene) { s.record.Cause = &pb.Address{Sequence: 4} }},
	{"I16.early", fires, func(s *scene) {
		s.p.turned, s.p.leases[0].text = nil,
			`after(timestamp("2030-01-01T00:00:00Z"))`
	}},
	{"I11.true", fires, func(s *scene) { s.p.turned, s.p.leases[0].text = nil, "false" }},
	{"I25.depth", fires, func(s *scene) { s.record.GetLeaseFired().Depth = 2 }},
	{"I25.chain", fires, func(s *scene) { s.record.GetLeaseFired().Chain = []*pb.Link{{Plan: "q"}} }},
	{"I11.duplicate", firesExtra, func(s *scene) { s.a.duplicates = nil }},
	{"I11.duplicate", firesExtra, func(s *scene) { s.p.phase = ledger.StateCommitted }},
	{"I14.once", fires, func(s *scene) { s.p.hasFired = map[string]place{"\x00low": {7, 0}} }},
	{"I11.text", fires, func(s *scene) { s.p.leases[0].text = "1 == 1" }},
	{"I11.read", fires, func(s *scene) { s.record.GetLeaseFired().Readings = []*pb.Reading{{Name: "x"}} }},
	{"I25.limit", fires, func(s *scene) { s.record.GetLeaseFired().Depth = DepthMax + 1 }},
	{"I25.by-fact", cuts, func(s *scene) { s.p.turned.firing = nil }},
	{"I10.fact", evicts, func(s *scene) { s.fact(&fact{retracted: true}) }},
	{"I10.evicted", evicts, func(s *scene) { s.fact(&fact{evicted: &pb.Address{}}) }},
	{"I6.evicted", evicts, func(s *scene) { s.record.GetFactEvicted().Fact = &pb.Address{Sequence: 2} }},
	{"I6.evict-cause", evicts, func(s *scene) { s.record.Cause = &pb.Address{Sequence: 2} }},
	{"I10.back", reingests, func(s *scene) { s.fact(&fact{}) }},
	{"I6.back", reingests, func(s *scene) { s.record.GetFactReingested().Fact = &pb.Address{Sequence: 2} }},
	{"I6.back-cause", reingests, func(s *scene) { s.record.Cause = &pb.Address{Sequence: 2} }},
	{"I10.value", reingests, func(s *scene) { s.record.GetFactReingested().Value = []byte("2") }},

	// Plans.
	{"I21.part", unwindsAsPart, func(s *scene) { s.p.declared.ParentPlan = "other" }},
	{"I21.turn", unwindsAsPart, func(s *scene) { s.p.parent.phase = ledger.StateOpen }},
	{"I15.held", unwindsAsPart, func(s *scene) { s.p.retired = true }},
	{"I6.parent-cause", unwindsAsPart, func(s *scene) { s.record.Cause = &pb.Address{Sequence: 2} }},
	{"I15.stops", unwinds, func(s *scene) { s.p.phase = ledger.StateFailed }},
	{"I15.unwind", unwinds, func(s *scene) { s.p.phase = ledger.StateFailed }},
	{"I21.part-of-plan", unwinds, func(s *scene) { s.p.fromAction = "a" }},
	{"I21.part-of-plan", unwinds, func(s *scene) { s.record.GetUnwindStarted().FromAction = "a" }},
	{"I11.fired", unwinds, func(s *scene) { s.p.fired = nil }},
	{"I21.rewound", rewound, func(s *scene) { s.a.undo = dispatched }},
	{"I31.end", ended, claims},
	{"I31.answered", ended, claims},
	{"I22.end", ended, func(s *scene) { s.a.undo = dispatched }},
	{"I22.end", ended, func(s *scene) { s.p.byHand = true }},
	{"I23.end", ended, func(s *scene) { s.record.GetPlanEnded().End = pb.PlanEnd_PLAN_END_FAILED }},
	{"I22.successes", ended, func(s *scene) { s.b.successes = 0 }},
	{"I22.successes", ended, func(s *scene) { s.b.undo = skipped }},
	{"I22.successes", ended, func(s *scene) { s.b.undo = owed }},
	{"I22.successes", ended, child(ledger.StateOpen)},
	{"I23.outstanding", ended, func(s *scene) { s.record.GetPlanEnded().Outstanding = []string{"a"} }},
	{"I22.counts", ended, func(s *scene) { s.record.GetPlanEnded().Compensated = 1 }},
	{"I36.decided", retiresLater, func(s *scene) { s.a.outcome = inDoubt }},
	{"I36.decided", retiresLater, func(s *scene) { s.l.book.rules, s.a.surplus = ledger.SurplusSince, []string{"x8"} }},
	{"I31.retired", retiresLater, claims},
	{"I15.retired", retiresLater, func(s *scene) { s.p.signal = signalFailed }},
	{"I13.retired", retiresLater, turns},
	{"I24.retired", retires, func(s *scene) { s.p.retired = true }},
	{"I36.named", retires, func(s *scene) { s.p.inDoubt = []string{"a"} }},
	{"I24.given-up", retires, func(s *scene) {
		s.l.book.rules, s.p.phase = ledger.OthersSince, ledger.StateCommitting
		s.record.GetHeldSetRetired().Count = 7
	}},
	{"I24.count", retires, func(s *scene) { s.p.gaveUp = 3 }},
	{"I36.doubt", retires, func(s *scene) { s.a.outcome = inDoubt }},
	{"I6.destroyed", destroys, func(s *scene) { s.p.erased = nil }},
	{"I5.destroyed", destroys, func(s *scene) { s.p.shredded = &pb.Address{} }},
	{"I6.page", pages, func(s *scene) { s.record.GetOwnerPaged().Kind = "y" }},

	// Undos.
	{"I6.registration", skips, func(s *scene) { s.record.About = &pb.Address{Sequence: 2} }},
	{"I15.unwinding", skips, func(s *scene) { s.p.phase = ledger.StateOpen }},
	{"I24.window", warns, func(s *scene) { s.a.warned = true }},
	{"I22.late", succeedsLate, func(s *scene) { s.a.saidDone = 1 }},
	{"I21.passed", dispatches, func(s *scene) { s.b.undo = dispatched }},
	{"I21.order", dispatches, func(s *scene) { s.b.undo = dispatched }},
	{"I21.order", skips, func(s *scene) { s.b.undo = waiting }},
	{"I19.waits", dispatches, func(s *scene) { s.a.undo = dispatched }},
	{"I19.attempt", dispatches, func(s *scene) { s.record.GetCompensationDispatched().Attempt = 2 }},
	{"I20.next", dispatches, func(s *scene) { s.a.outcome = failed }},
	{"I20.unchanged", dispatches, comparing(pb.Change_CHANGE_UNSPECIFIED, 0)},
	{"I20.unchanged", dispatches, comparing(pb.Change_CHANGE_FOREIGN, 0)},
	{"I20.unchanged", dispatches, comparing(pb.Change_CHANGE_NONE, -answerCounts-1)},
	{"I19.undo", dispatches, func(s *scene) { s.record.GetCompensationDispatched().Capability = "x" }},
	{"I20.blind", dispatches, func(s *scene) { s.a.outcome = inDoubt }},
	{"I20.output", dispatches, func(s *scene) {
		s.record.GetCompensationDispatched().HasForwardOutput, s.l.book.rules = false, ledger.EffectsSince
	}},
	{"I29.undo", dispatches, lands},
	{"I6.behind", dispatchesAhead, func(s *scene) { s.record.GetCompensationDispatched().Behind.Sequence = 7 }},
	{"I21.behind", dispatchesAhead, func(s *scene) { s.record.GetCompensationDispatched().Behind.Index = 1 }},
	{"I21.behind", dispatchesAhead, func(s *scene) { s.b.dispatched = nil }},
	{"I21.behind", dispatchesAhead, func(s *scene) { s.b.before = nil }},
	{"I21.whole", dispatchesAhead, func(s *scene) { s.p.rewinding = true }},
	{"I19.ahead", dispatchesAhead, func(s *scene) { s.a.undo = dispatched }},
	{"I19.ahead", dispatchesAhead, func(s *scene) { s.a.attempt = 1 }},
	{"I19.ahead", dispatchesAhead, func(s *scene) { s.a.ahead = &ahead{} }},
	{"I19.ahead", dispatchesAhead, func(s *scene) { s.record.GetCompensationDispatched().Attempt = 2 }},
	{"I21.missing", dispatchesAhead, func(s *scene) { s.b.undo = waiting }},
	{"I21.missing", dispatchesAhead, func(s *scene) { s.b.asking = pb.Question_QUESTION_UNDO }},
	{"I21.missing", dispatchesAhead, func(s *scene) { s.b.outcome = inDoubt }},
	{"I21.missing", dispatchesAhead, after("c", 1)},
	{"I21.missing", dispatchesAhead, after("c", 2)},
	{"I20.ahead", dispatchesAhead, func(s *scene) { s.a.outcome = inDoubt }},
	{"I20.ahead", dispatchesAhead, func(s *scene) { s.a.dutyOf = 1 }},
	{"I20.ahead", dispatchesAhead, contracted(func(c *pb.CompensationRegistered) { c.Probe = &pb.Probe{} })},
	{"I20.ahead", dispatchesAhead, contracted(func(c *pb.CompensationRegistered) { c.Verify = &pb.Verify{} })},
	{"I20.ahead", dispatchesAhead, contracted(func(c *pb.CompensationRegistered) { c.DedupeNs = 1 })},
	{"I20.ahead", dispatchesAhead, contracted(func(c *pb.CompensationRegistered) { c.Sealed = true })},
	{"I20.ahead", dispatchesAhead, contracted(func(c *pb.CompensationRegistered) { c.Approve = true })},
	{"I20.closes", dispatchesAhead, func(s *scene) { s.a.closesNs = aheadMaxNs }},
	{"I19.undo", dispatchesAhead, func(s *scene) { s.record.GetCompensationDispatched().Key = "k" }},
	{"I20.blind", dispatchesAhead, func(s *scene) { s.record.GetCompensationDispatched().BlindCleanup = true }},
	{"I20.output", dispatchesAhead, func(s *scene) {
		s.record.GetCompensationDispatched().HasForwardOutput = !s.a.hasOutput()
		s.l.book.rules = ledger.EffectsSince
	}},
	{"I20.dirty", dispatches, func(s *scene) { dirties(s, true) }},
	{"I20.dirty", dispatches, func(s *scene) { dirties(s, false); s.a.told = true }},
	{"I20.dirty", dispatches, func(s *scene) { dirties(s, false); s.a.outcome = inDoubt }},
	{"I20.dirty", dispatchesAhead, func(s *scene) { dirties(s, true) }},
	{"I17.registered", dispatches, func(s *scene) { s.a.compensation = nil }},
	{"I17.frozen", dispatches, func(s *scene) { s.record.GetCompensationDispatched().TimeoutNs++ }},
	{"I17.frozen", dispatches, func(s *scene) { s.a.output = nil }},
	{"I19.key", dispatches, func(s *scene) { s.record.GetCompensationDispatched().Key = "k" }},
	{"I19.key", dispatches, func(s *scene) { s.p.origin, s.a.key = "o", "k" }},
	{"I20.crossed", dispatches, func(s *scene) { s.a.presence = pb.Presence_PRESENCE_ABSENT }},
	{"I20.crossed", dispatches, func(s *scene) { s.a.outcome = failed }},
	{"I30.arguments", dispatches, func(s *scene) { s.record.Payload = &pb.Payload{Arguments: []byte(`{"x":1}`)} }},
	{"I30.arguments", asks, func(s *scene) { s.record.Payload = &pb.Payload{Arguments: []byte(`{"x":1}`)} }},
	{"I37.missing", dispatches, func(s *scene) {
		s.a.compensation = &pb.CompensationRegistered{
			Capability: "undo", Bindings: []*pb.Binding{{Name: "x", Expression: "output.x"}}}
		s.a.output, s.a.incomplete = nil, true
	}},
	{"I22.again", succeeds, func(s *scene) { s.a.undo = compensated }},
	{"I18.success", succeeds, func(s *scene) { s.a.attempt = 0 }},
	{"I18.verified", succeeds, func(s *scene) { s.record.GetCompensationSucceeded().Verified = true }},
	{"I18.check", succeeds, func(s *scene) { s.a.compensation = &pb.CompensationRegistered{Verify: &pb.Verify{}} }},
	{"I18.fact", succeeds, func(s *scene) {
		s.a.compensation = &pb.CompensationRegistered{Actuator: ledger.ActuatorMemory}
	}},
	{"I18.dispatched", succeeds, func(s *scene) { s.a.dispatched = nil }},
	{"I18.blob", succeeds, func(s *scene) {
		s.record.GetCompensationSucceeded().Code, s.l.book.rules = api.CodeBlob, ledger.AnytimeSince
	}},
	{"I22.once", succeeds, func(s *scene) { s.a.successes = 1 }},
	{"I18.failure", fails, func(s *scene) { s.a.undo = waiting }},
	{"I18.said", fails, func(s *scene) { s.a.reported = &pb.CompensationReported{Answer: pb.Answer_ANSWER_DONE} }},
	{"I23.worker", fails, func(s *scene) {
		s.record.GetCompensationFailed().Unserved = true
		s.a.compensation = &pb.CompensationRegistered{Actuator: ledger.ActuatorMemory}
	}},
	{"I23.offered", fails, func(s *scene) { s.record.GetCompensationFailed().Unserved = true }},
	{"I18.doubt", fails, func(s *scene) { s.record.GetCompensationFailed().Unserved, s.a.aliveUntilNs = true, 1 }},
	{"I22.owed", skips, func(s *scene) { s.a.undo = compensated }},
	{"I22.skip", skips, func(s *scene) { s.a.presence = 0 }},
	{"I23.nothing", quarantines, func(s *scene) { s.a.undo, s.a.outcome = owed, failed }},
	{"I29.quarantine", quarantines, func(s *scene) { s.a.undo = owed; lands(s) }},
	{"I21.passed", quarantines, func(s *scene) { s.a.undo, s.b.undo = owed, dispatched }},
	{"I23.state", quarantines, func(s *scene) { s.a.undo = dispatched }},
	{"I23.changed", quarantines, func(s *scene) { s.record.GetActionQuarantined().Changed = true }},
	{"I23.changed", quarantines, func(s *scene) { s.a.change = pb.Change_CHANGE_FOREIGN }},
	{"I23.ground", quarantines, func(s *scene) {
		s.a.undo, s.a.failedForNow, s.a.attempt = waiting, true, 1
		s.record.GetActionQuarantined().Reason = "gave up"
	}},
	{"I23.ground", quarantines, func(s *scene) { s.a.undo = owed }},
	{"I18.skip", skips, func(s *scene) { s.a.reported = &pb.CompensationReported{Answer: pb.Answer_ANSWER_DONE} }},
	{"I18.quarantine", quarantines, func(s *scene) {
		s.a.undo, s.a.reported = owed, &pb.CompensationReported{Answer: pb.Answer_ANSWER_DONE}
	}},
	{"I19.question", asks, func(s *scene) { s.record.GetProbeAsked().Key = "k" }},
	{"I19.question", asksForCommit, func(s *scene) { s.record.GetProbeAsked().Key = "k" }},
	{"I18.memory", makes, func(s *scene) { s.a.compensation = &pb.CompensationRegistered{} }},
	{"I18.made", makes, func(s *scene) { s.a.undo = compensated }},
	{"I18.made-for", makes, func(s *scene) { s.record.Cause = &pb.Address{Sequence: 2} }},
	{"I18.no-fact", makes, func(s *scene) { s.a.arguments = []byte("{}") }},
	{"I22.made", makes, func(s *scene) { s.fact(&fact{undo: true, cause: s.a.dispatched}) }},
	{"I18.same", makes, func(s *scene) { s.record.GetFactAsserted().Value = []byte("2") }},

	// Questions.
	{"I20.question", asks, func(s *scene) { s.record.GetProbeAsked().Capability = "x" }},
	{"I20.ask", asks, func(s *scene) { s.a.outcome = completed }},
	{"I29.asked", asks, func(s *scene) { s.a.outcome = unheardOf; s.a.atNs = 5 }},
	{"I29.asked", asksForChange, func(s *scene) { s.a.outcome = inDoubt; s.a.forward.SettleNs = 5 }},
	{"I20.number", asks, func(s *scene) { s.record.GetProbeAsked().Attempt = 2 }},
	{"I20.open", finds, func(s *scene) { s.a.asked = 2 }},
	{"I20.presence", finds, func(s *scene) { s.record.GetProbeAnswered().Presence = 99 }},
	{"I20.unserved", finds, func(s *scene) {
		k := s.record.GetProbeAnswered()
		k.Unserved, k.Presence = true, pb.Presence_PRESENCE_PRESENT
	}},
	{"I20.change", finds, func(s *scene) {
		k := s.record.GetProbeAnswered()
		k.Presence, k.Change = pb.Presence_PRESENCE_PRESENT, pb.Change_CHANGE_NONE
	}},
	{"I20.change", finds, func(s *scene) {
		comparing(pb.Change_CHANGE_UNSPECIFIED, 0)(s)
		s.record.GetProbeAnswered().Change = 9
	}},
	{"I20.change", finds, func(s *scene) {
		comparing(pb.Change_CHANGE_UNSPECIFIED, 0)(s)
		k := s.record.GetProbeAnswered()
		s.a.asking, k.Question = pb.Question_QUESTION_UNCHANGED, pb.Question_QUESTION_UNCHANGED
		k.Presence = pb.Presence_PRESENCE_PRESENT
	}},
	{"I23.question", finds, func(s *scene) { s.record.GetProbeAnswered().Unserved = true }},
	{"I20.openly", asksOpenly, func(s *scene) { s.record.GetProbeAsked().Question = pb.Question_QUESTION_UNDO }},
	{"I20.openly", asksOpenly, func(s *scene) { s.a.outcome = completed }},
	{"I20.openly", asksOpenly, func(s *scene) { s.a.askNs = 0 }},
	{"I20.openly", asksOpenly, func(s *scene) { s.record.GetProbeAsked().Capability = "x" }},
	{"I20.lasts", asksOpenly, func(s *scene) { s.a.askNs = 1 }},
	{"I20.number", asksOpenly, func(s *scene) { s.record.GetProbeAsked().Attempt = 2 }},
	{"I20.heard", findsOpenly, func(s *scene) { s.a.asked = 2 }},
	{"I20.presence", findsOpenly, func(s *scene) { s.record.GetProbeAnswered().Presence = 99 }},
	{"I20.doubt", asksForCommit, func(s *scene) { s.record.GetProbeAsked().Question = pb.Question_QUESTION_UNDO }},
	{"I20.waits", asksForCommit, func(s *scene) { s.a.doubt = doubtSpent }},
	{"I29.doubt", asksForCommit, func(s *scene) { s.a.outcome, s.a.atNs = unheardOf, 5 }},
	{"I20.answer", findsForCommit, func(s *scene) { s.a.asked = 2 }},
	{"I20.answer", findsForCommit, func(s *scene) {
		s.record.GetProbeAnswered().Change = pb.Change_CHANGE_NONE
	}},
	{"I15.committing", waits, func(s *scene) { s.p.phase = ledger.StateUnwinding }},
	{"I36.owner", waits, func(s *scene) { s.a.doubt = doubtAsked }},
	{"I29.owner", waits, func(s *scene) { s.a.doubt, s.a.outcome, s.a.atNs = doubtDue, unheardOf, 5 }},

	// The end of the ledger.
	{"L1.ends", nothingLeft, func(s *scene) { s.p.phase = ledger.StateUnwinding }},
	{"L1.ends", nothingLeft, func(s *scene) { s.p.phase, s.p.fired = ledger.StateOpen, &pb.Address{} }},
	{"L1.ends", nothingLeft, func(s *scene) { s.p.phase = ledger.StateCommitted }},
	{"L1.ends", nothingLeft, func(s *scene) { s.p.phase = ledger.StateCommitting }},
	{"L1.ends", nothingLeft, func(s *scene) { s.a.doubt = doubtDue }},
	{"L1.ends", nothingLeft, func(s *scene) { s.p.phase = ledger.StateQuarantined }},
	{"L2.deadline", nothingLeft, func(s *scene) {
		s.p.phase, s.p.deadlineNs, s.l.book.now = ledger.StateOpen, 5, 5
	}},
	{"I13.fires", nothingLeft, func(s *scene) {
		s.p.phase, s.p.leases = ledger.StateOpen, []*lease{{name: leaseDeadline}}
	}},
	{"I13.fires", nothingLeft, func(s *scene) {
		s.p.phase, s.a.undo, s.a.leases = ledger.StateOpen, held, []*lease{{name: "low", text: "true"}}
	}},
	{"I22.settled", nothingLeft, func(s *scene) { s.a.undo = dispatched }},
	{"I24.gone", nothingLeft, func(s *scene) { s.p.retired, s.a.undo = true, owed }},
}

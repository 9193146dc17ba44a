package main

import (
	"bytes"
	"fmt"
)

// mutant is a bug: in one file, old becomes new.
type mutant struct {
	name     string // what goes wrong, in words
	file     string // from the module's top
	old, new string // old stands once in the file
}

// apply returns the file with the bug in it.
func (m mutant) apply(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("the place of %q stands %d times in %s, not once: %s", m.name, n, m.file, m.old)
	}
	return bytes.Replace(source, []byte(m.old), []byte(m.new), 1), nil
}

// catalogue is in the order of an action's life.
var catalogue = []mutant{
	// The log and its time.
	{"time moves back", "executor/apply.go",
		"s.meta.TimeNs = max(s.meta.TimeNs, e.StampNs)", "s.meta.TimeNs = e.StampNs"},
	{"epochs of decisions do not move time", "executor/apply.go",
		"s.meta.TimeNs = max(s.meta.TimeNs, e.Record.EpochNs)", "_ = e.Record.EpochNs"},
	{"a term may begin twice", "executor/apply_executor.go",
		"if e.Record.Term <= s.meta.Term {", "if e.Record.Term < s.meta.Term {"},
	{"decisions of an old term count", "executor/apply_executor.go",
		"if r.Term != s.meta.Term {\n\t\treturn s.outOfTerm(r.Term)\n\t}\n\tif r.Folded != 0 &&",
		"if r.Term > s.meta.Term {\n\t\treturn s.outOfTerm(r.Term)\n\t}\n\tif r.Term == s.meta.Term && r.Folded != 0 &&"},

	// Registration.
	{"what can never be carried out is taken", "executor/apply.go",
		"if err := s.unusable(e); err != nil {", "if err := s.unusable(e); err != nil && e.Pair == nil {"},
	{"an opening that can never be meant is taken", "executor/apply.go",
		"if err := s.unusable(e); err != nil {", "if err := s.unusable(e); err != nil && e.Pair != nil {"},
	{"a deadline that had passed is taken", "executor/apply_agent.go",
		"if err := pastDeadline(declared, min(e.StampNs, s.beforeNs)); err != nil {", "if err := pastDeadline(declared, 0); err != nil {"},
	{"a compensation may stand before its forward", "ledger/pair.go",
		"case h.compensations[0] < h.forwards[0]:", "case h.compensations[0] == h.forwards[0]:"},
	{"an undo need not name what is to be refused", "executor/unusable.go",
		"if f.GetLate() == pb.Late_LATE_REFUSED && !s.namesForward(c) {", "if f == nil && !s.namesForward(c) {"},
	{"a field that nobody knows is ignored", "ledger/json.go",
		"if protojson.Unmarshal(raw, record) == nil {", "if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, record) == nil {"},
	{"a late copy of a decision counts", "executor/apply_executor.go",
		"if r.Folded < s.meta.Decided {", "if r.Folded+1 == 0 {"},
	{"a second copy of a pair is a second action", "executor/apply_agent.go",
		"if n := s.number(p.id, r.Action); n != 0 {", "if n := s.number(p.id, r.Action); n != 0 && p.row.Phase != pb.Phase_PHASE_OPEN {"},
	{"after is not read", "executor/apply_agent.go",
		"before = insert(before, n)\n\t}\n\treturn before, \"\"", "_ = insert(before, n)\n\t}\n\treturn before, \"\""},
	{"actions are branches unless they say so", "executor/apply_agent.go",
		"if !f.Branch {\n\t\tbefore = s.latest(p)", "if f.Branch {\n\t\tbefore = s.latest(p)"},
	{"a late pair does not join the unwind", "executor/apply_agent.go",
		"if p.row.Phase != pb.Phase_PHASE_OPEN {\n\t\ts.joinUnwind(p, a)\n\t}", "_ = s.joinUnwind"},
	{"a late pair leaves its plan ended", "executor/unwind.go",
		"func (s *State) joinUnwind(p *plan, a *action) {\n\ts.reopen(p)", "func (s *State) joinUnwind(p *plan, a *action) {"},
	{"what a refused record claims is forgotten", "executor/apply.go",
		"s.noteOrphan(e, result.Reason)", "_ = s.noteOrphan"},
	{"any process writes to a plan", "executor/writer.go",
		"if r.Writer == p.row.Writer {\n\t\treturn effective", "if r.Writer == p.row.Writer || p.row.Writer != \"none\" {\n\t\treturn effective"},
	{"a second process of the agent is never heard", "executor/writer.go",
		"p.row.Writer, p.row.ResumedNs = e.Record.Writer, s.meta.TimeNs", "p.row.ResumedNs = s.meta.TimeNs"},
	{"the first process goes on after a second has resumed", "executor/writer.go",
		"case *pb.Record_ForwardCompleted, *pb.Record_ForwardFailed, *pb.Record_ForwardInDoubt:", "default:"},
	{"what is said to have happened is taken back", "executor/orphan.go",
		"if o.Happened || at >= 0 {", "if at >= 0 {"},
	{"a plan commits beside an act that was refused", "executor/apply_agent.go",
		"case s.orphanedBelow(p) != \"\":", "case s.orphanedBelow(p) == \"none\":"},
	{"a completion after a failure is not believed", "executor/apply_agent.go",
		"if now != pb.Outcome_OUTCOME_COMPLETED {\n\t\t\treturn refused(\"the outcome of action %s is already failed\", a.fixed.Id)", "if now != pb.Outcome_OUTCOME_UNKNOWN {\n\t\t\treturn refused(\"the outcome of action %s is already failed\", a.fixed.Id)"},
	{"a late completion after a blind undo is nothing", "executor/apply_agent.go",
		"s.completedLate(e, p, a)", "_ = s.completedLate"},

	// Calls that nobody takes, and owners' answers.
	{"an undo is given up for want of a worker too early", "executor/unserved.go",
		"return plusNs(max(a.row.DispatchedNs, a.row.AliveUntilNs), unservedAfter(a.fixed.Compensation))",
		"return plusNs(max(a.row.DispatchedNs, a.row.AliveUntilNs), unservedAfter(a.fixed.Compensation)/2)"},
	{"a question is given up for want of a worker too early", "executor/unserved.go",
		"return plusNs(a.row.AskedNs, unservedAfter(a.fixed.Compensation))", "return plusNs(a.row.AskedNs, unservedAfter(a.fixed.Compensation)/2)"},
	{"an undo that nobody serves is tried again", "executor/step.go",
		"return a.row.Unserved || a.row", "return a.row"},
	{"an undo behind its owner's answer is nothing", "executor/owner.go",
		"if a.row.Undo == pb.Undo_UNDO_QUARANTINED {\n\t\ta.row.Note = clip(a.row.Note + \"; \" + said)\n\t\treturn effective\n\t}",
		"if true {\n\t\ta.row.Note = clip(a.row.Note + \"; \" + said)\n\t\treturn effective\n\t}"},

	// Commit.
	{"a plan commits while it unwinds", "executor/apply_agent.go",
		"case p.row.Phase != pb.Phase_PHASE_OPEN:\n\t\treturn refused(\"plan %s is %s: it was not open any more when the commit landed\", p.id, stateName(p.row))\n\tcase p.row.Signal != pb.Signal_SIGNAL_NONE || p.row.Fired != nil:", "case p.row.Phase == pb.Phase_PHASE_COMMITTED:"},
	{"a plan commits behind a lease that turned", "executor/apply_agent.go",
		"case p.row.Turned != nil && !p.row.Turned.Clocked:\n\t\treturn turnedBefore(p)", ""},
	{"a commit leaves its held set", "executor/child.go",
		"s.meta.Held -= uint64(count)\n\treturn count", "return count"},
	{"a child's held set is not retired with its root", "executor/child.go",
		"s.disarm(c)\n\t\t\tc.row.Retired, c.row.EndedNs = true, s.meta.TimeNs", "s.disarm(c)\n\t\t\tc.row.EndedNs = s.meta.TimeNs"},

	// Leases.
	{"a fired lease is not noted on its plan", "executor/apply_executor.go",
		"p.row.Fired = e.Address\n", "_ = e.Address\n"},
	{"the clock guard holds nothing", "executor/due.go",
		"case d.in.HoldClock:\n\t\treturn d.in.EpochNs + heldAgain\n\t}\n\tturned", "}\n\tturned"},
	{"a deadline comes a second early", "triggers/time.go",
		"func (e *evaluation) after(t int64) ref.Val {\n\tif e.nowNs >= t {", "func (e *evaluation) after(t int64) ref.Val {\n\tif e.nowNs >= t-1e9 {"},
	{"a deadline is never due", "triggers/time.go",
		"\te.flip(t)\n\treturn e.unknown(wait{kind: waitTime, ns: t})", "\treturn e.unknown(wait{kind: waitTime, ns: t})"},
	{"an outcome wakes no lease", "executor/apply_agent.go",
		"s.evaluateAction(p, a, e.Address)\n\tif p.row.UndoneAs", "if p.row.UndoneAs"},
	{"an assertion wakes no lease", "executor/fact.go",
		"s.occurred = append(s.occurred, occurrence{f.Key, now})\n\t\treturn\n\t}\n\ts.wakeReaders(f.Key, e.Address)", "s.occurred = append(s.occurred, occurrence{f.Key, now})\n\t\treturn\n\t}"},
	{"a retraction wakes no lease", "executor/fact.go",
		"if s.base == nil {\n\t\ts.wakeReaders(key, e.Address)\n\t}", ""},
	{"a verdict wakes no lease", "executor/apply_verdict.go",
		"s.evaluateAction(p, a, e.Address)", "_ = s.evaluateAction"},
	{"the depth of a cascade is not counted", "executor/cascade.go",
		"f.Depth = f.By.Depth + 1", "f.Depth = 1"},
	{"leases stay when the unwind begins", "executor/unwind.go",
		"func (s *State) startUnwind(p *plan) {\n\ts.disarm(p)", "func (s *State) startUnwind(p *plan) {"},

	// What is undone.
	{"nothing is ever in scope", "executor/apply_executor.go",
		"if a := s.action(p.id, n); !settled(a.row.Undo) && crossed(a) {\n\t\t\treturn true", "if a := s.action(p.id, n); !settled(a.row.Undo) && crossed(a) {\n\t\t\treturn false"},
	{"what never crossed is undone", "executor/step.go",
		"case a.row.Outcome == pb.Outcome_OUTCOME_FAILED:\n\t\treturn stepSkip, \"never crossed the boundary: the forward is known to have failed\"\n\tcase superseded(a):", "case a.row.Late && a.fixed.DutyOf == 0:"},
	{"what the probe found absent is undone", "executor/step.go",
		"case a.row.Presence == pb.Presence_PRESENCE_ABSENT:\n\t\treturn stepSkip, \"the probe found no effect\"", ""},
	{"an effectless action is undone", "executor/step.go",
		"case class == pb.Class_CLASS_EFFECTLESS:\n\t\treturn stepSkip, \"effectless: nothing to undo\"", ""},
	{"an irreversible action is skipped", "executor/step.go",
		"return stepQuarantine, \"irreversible: \" + a.fixed.Forward.Capability + \" has no inverse\"", "return stepSkip, \"irreversible\""},
	{"the probe is skipped", "executor/step.go",
		"case asks:\n\t\treturn stepProbe, \"\"", "case asks && a.row.Late:\n\t\treturn stepProbe, \"\""},
	{"doubt is not its owner's", "executor/step.go",
		"case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE && !a.row.Approved:\n\t\treturn stepQuarantine, \"in doubt: the contract asks its owner\"", ""},
	{"a closed undo window is not looked at", "executor/step.go",
		"return a.row.ClosesNs != 0 && s.meta.TimeNs >= a.row.ClosesNs", "return false"},

	// What may still land.
	{"absent is believed while the forward may land", "executor/apply_probe.go",
		"if k.Presence == pb.Presence_PRESENCE_ABSENT && mayLand(p, a, a.row.AskedNs) {", "if k.Presence == pb.Presence_PRESENCE_ABSENT && a.row.AskedNs == 0 {"},
	{"a blind undo does not wait for its forward", "executor/landing.go",
		"case next == stepDispatch, next == stepProbe && a.row.AbsentNs != 0:", "case next == stepProbe && a.row.AbsentNs != 0:"},
	{"the grace of a forward is not waited for", "executor/landing.go",
		"case a.row.Outcome == pb.Outcome_OUTCOME_UNKNOWN:\n", "case a.row.Outcome == pb.Outcome_OUTCOME_FAILED:\n"},
	{"settling counts from the registration, whenever it was given up", "executor/landing.go",
		"return plusNs(a.row.OutcomeNs, settle)", "return plusNs(a.fixed.AtNs, settle)"},
	{"a forward that is given up after its blind undo is nothing", "executor/duty.go",
		"if a.fixed.Forward.Class == pb.Class_CLASS_EFFECTLESS || a.row.Late || !s.tooLate(p, a) {\n\t\treturn\n\t}\n\td := s.owedAnew(e, p, a, &pb.ActionRow{\n\t\tOutcome: pb.Outcome_OUTCOME_IN_DOUBT,", "if true || s.tooLate(p, a) {\n\t\treturn\n\t}\n\td := s.owedAnew(e, p, a, &pb.ActionRow{\n\t\tOutcome: pb.Outcome_OUTCOME_IN_DOUBT,"},
	{"nothing found in time is believed of an undo", "executor/apply_probe.go",
		"early := absent && mayLand(p, a, a.row.AskedNs)", "early := absent && mayLand(p, a, a.row.AskedNs) && s == nil"},
	{"a provider that refuses what is late is undone twice", "executor/duty.go",
		"case a.row.Blind && refusesLate(a) && (flying(u) || u == pb.Undo_UNDO_COMPENSATED):\n\t\treturn false\n", ""},
	{"an action that settles ends its plan", "executor/apply.go",
		"&& r.InFlight == 0 && len(r.Settling) == 0", "&& r.InFlight == 0"},
	{"the unwind goes past its savepoint", "executor/savepoint.go",
		"return true, savepoint(p, to).Actions", "return true, 0"},

	// What an undo takes.
	{"the before-image is lost when the outcome is in doubt", "executor/apply_agent.go",
		"case pb.Outcome_OUTCOME_IN_DOUBT:\n\t\ts.doubtedLate(e, p, a)", "case pb.Outcome_OUTCOME_IN_DOUBT:\n\t\tkey := actionKey(keyPayload, p.id, a.id.n)\n\t\tpayload := s.payload(key)\n\t\tpayload.Before = nil\n\t\ts.set(key, encode(payload))\n\t\ts.doubtedLate(e, p, a)"},
	{"a duty has no before-image", "executor/duty.go",
		"payload.Output = output\n", "payload.Output, payload.Before = output, nil\n"},
	{"the forward key is that of the plan that undoes", "executor/arguments.go",
		"plan = p.row.Origin\n", "plan = p.id\n"},

	// In which order, how often.
	{"order: nobody waits for what came after", "executor/unwind.go",
		"s.action(p.id, m).row.Blockers++", "_ = m"},
	{"order: released by the first of several", "executor/unwind.go",
		"case b.row.Blockers > 0:\n", "case b.row.Blockers > 1:\n"},
	{"order: what a late pair came after goes on", "executor/unwind.go",
		"a.row.Undo = pb.Undo_UNDO_OWED\n\ts.block(p, a)\n\ts.makeReady(p, a)", "a.row.Undo = pb.Undo_UNDO_OWED\n\ts.makeReady(p, a)"},
	{"one attempt more than registered", "executor/step.go",
		"a.row.Attempt-a.row.AttemptsFrom >= attemptsOf(a.fixed.Compensation)", "a.row.Attempt-a.row.AttemptsFrom > attemptsOf(a.fixed.Compensation)"},
	{"a key for each attempt", "executor/command.go",
		"return ledger.Key(s.tenant, a.id.plan, a.fixed.Id, ledger.PurposeUndo)", "return ledger.Key(s.tenant, a.id.plan, a.fixed.Id, ledger.PurposeUndo+string(rune('0'+a.row.Attempt)))"},
	{"an undo in doubt is not asked about", "executor/apply_attempt.go",
		"case k.InDoubt && c.Probe != nil && !inMemory(a):", "case k.InDoubt && c.Probe != nil && inMemory(a):"},
	{"a failure is a success", "executor/decide_answer.go",
		"done, final, note := reply.Status == ledger.StatusDone, reply.Status == ledger.StatusStop, \"\"", "done, final, note := reply.Status != ledger.StatusStop, reply.Status == ledger.StatusStop, \"\""},
	{"a command in flight is not kept", "executor/apply_attempt.go",
		"s.set(actionKey(keyFlight, p.id, a.id.n), nil)\n", ""},
	{"the next call is not due", "executor/apply_attempt.go",
		"s.setDue(dueNs, dueRetry, leaseRef{plan: p.id, n: a.id.n})", ""},

	// How it ends.
	{"quarantined actions end compensated", "executor/apply.go",
		"case r.Quarantined > 0 || orphaned(r):\n\t\treturn pb.PlanEnd_PLAN_END_QUARANTINED", "case r.Quarantined > 0 || orphaned(r):\n\t\treturn pb.PlanEnd_PLAN_END_COMPENSATED"},
	{"a plan ends while an undo is in flight", "executor/apply.go",
		"len(r.Duplicated) == 0 && r.InFlight == 0 &&", "len(r.Duplicated) == 0 &&"},
	{"what the owner resolved ends compensated", "executor/apply.go",
		"case r.ByHand:\n\t\treturn pb.PlanEnd_PLAN_END_RESOLVED", ""},
	{"a retry by the owner has no attempts", "executor/owner.go",
		"a.row.AttemptsFrom, a.row.Approved, a.row.Unserved = a.row.Attempt, true, false", "a.row.Approved, a.row.Unserved = true, false"},
	{"a parent does not follow its child", "executor/child.go",
		"case pb.Phase_PHASE_COMPENSATED:\n\t\ts.settle(parent, a, pb.Undo_UNDO_COMPENSATED, p.row.Ended)", "case pb.Phase_PHASE_COMPENSATED:"},
	{"an extra effect is not owed", "executor/apply_probe.go",
		"s.land(p, a)\n\ts.owe(p, a)\n\tif k.Presence == pb.Presence_PRESENCE_DUPLICATE {", "s.land(p, a)\n\ts.owe(p, a)\n\tif k.Presence == pb.Presence_PRESENCE_UNSPECIFIED {"},

	// What a commit waits for, and what could not be kept.
	{"a commit retires what is in doubt", "executor/apply_agent.go",
		"case s.mustSettle(p):", "case s.mustSettle(p) && p.row.Actions == 0:"},
	{"absent is believed at a commit while the forward may land", "executor/apply_probe.go",
		"if k.Presence == pb.Presence_PRESENCE_ABSENT && mayLand(p, a, a.row.AskedNs) {", "if k.Presence == pb.Presence_PRESENCE_ABSENT && mayLand(p, a, a.row.AskedNs) && !s.committing(p) {"},
	{"no outcome is no doubt at a commit", "executor/commit.go",
		"return doubtful(a) && a.row.Resolution == nil", "return doubtful(a) && a.row.Resolution == nil && a.row.Outcome == pb.Outcome_OUTCOME_IN_DOUBT"},
	{"a commit that waits asks for a late word no more", "executor/apply_agent.go",
		"s.knownSince(p, a)", "_ = s.knownSince"},
	{"what a plan accepts is not named", "executor/commit.go",
		"p.row.InDoubt = s.inDoubt(p)", "p.row.InDoubt = nil"},
	{"an unwind forgets what its commit has begun", "executor/apply_executor.go",
		"s.stopSettling(p)", "_ = s.stopSettling"},
	{"the deadline fires while a commit waits", "executor/commit.go",
		"s.dropDeadline(p)\n", ""},
	{"null is sent in place of what was not kept", "executor/arguments.go",
		"Incomplete: a.row.OutputIncomplete", "Incomplete: false"},

	// Determinism and state.
	{"map order decides", "executor/decide.go",
		"for _, id := range d.fired {\n\t\td.plan(id)\n\t}", "unordered := map[string]bool{}\n\tfor _, id := range d.fired {\n\t\tunordered[id] = true\n\t}\n\tfor id := range unordered {\n\t\td.plan(id)\n\t}"},
	{"a row is not written", "executor/unwind.go",
		"a.row.Undo = to\n\ts.count(p, a, from, to)\n\ts.change(a)", "a.row.Undo = to\n\ts.count(p, a, from, to)"},
}

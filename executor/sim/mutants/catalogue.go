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
	{"a forward without its pair is forgotten", "executor/apply.go",
		"p.row.Orphans = append(p.row.Orphans, e.Record.Action)", "_ = e.Record.Action"},
	{"a completion after a failure is not believed", "executor/apply_agent.go",
		"if now != pb.Outcome_OUTCOME_COMPLETED {\n\t\t\treturn refused(\"the outcome of action %s is already failed\", a.fixed.Id)", "if now != pb.Outcome_OUTCOME_UNKNOWN {\n\t\t\treturn refused(\"the outcome of action %s is already failed\", a.fixed.Id)"},
	{"a late completion after a blind undo is nothing", "executor/apply_agent.go",
		"s.completedLate(e, p, a)", "_ = s.completedLate"},

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
		"case c.Probe != nil && (c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_PROBE || c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_UNSPECIFIED):\n\t\treturn stepProbe, \"\"", ""},
	{"doubt is not its owner's", "executor/step.go",
		"case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE && !a.row.Approved:\n\t\treturn stepQuarantine, \"in doubt: the contract asks its owner\"", ""},
	{"a closed undo window is not looked at", "executor/step.go",
		"return a.row.ClosesNs != 0 && s.meta.TimeNs >= a.row.ClosesNs", "return false"},
	{"the unwind goes past its savepoint", "executor/savepoint.go",
		"return true, savepoint(p, to).Actions", "return true, 0"},

	// In which order, how often.
	{"order: nobody waits for what came after", "executor/unwind.go",
		"s.action(p.id, m).row.Blockers++", "_ = m"},
	{"order: released by the first of several", "executor/unwind.go",
		"case b.row.Blockers > 0:\n", "case b.row.Blockers > 1:\n"},
	{"order: what a late pair came after goes on", "executor/unwind.go",
		"a.row.Undo = pb.Undo_UNDO_OWED\n\ts.block(p, a)\n\ts.makeReady(p, a)", "a.row.Undo = pb.Undo_UNDO_OWED\n\ts.makeReady(p, a)"},
	{"one attempt more than registered", "executor/step.go",
		"return a.row.Attempt-a.row.AttemptsFrom >= attemptsOf(a.fixed.Compensation)", "return a.row.Attempt-a.row.AttemptsFrom > attemptsOf(a.fixed.Compensation)"},
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
		"case r.Quarantined > 0 || len(r.Orphans) > 0:\n\t\treturn pb.PlanEnd_PLAN_END_QUARANTINED", "case r.Quarantined > 0 || len(r.Orphans) > 0:\n\t\treturn pb.PlanEnd_PLAN_END_COMPENSATED"},
	{"a plan ends while an undo is in flight", "executor/apply.go",
		"len(r.Duplicated) == 0 && r.InFlight == 0", "len(r.Duplicated) == 0"},
	{"what the owner resolved ends compensated", "executor/apply.go",
		"case r.ByHand:\n\t\treturn pb.PlanEnd_PLAN_END_RESOLVED", ""},
	{"a retry by the owner has no attempts", "executor/apply_operator.go",
		"a.row.AttemptsFrom, a.row.Approved = a.row.Attempt, true", "a.row.Approved = true"},
	{"a parent does not follow its child", "executor/child.go",
		"case pb.Phase_PHASE_COMPENSATED:\n\t\ts.settle(parent, a, pb.Undo_UNDO_COMPENSATED, p.row.Ended)", "case pb.Phase_PHASE_COMPENSATED:"},
	{"an extra effect is not owed", "executor/apply_probe.go",
		"s.land(p, a)\n\ts.owe(p, a)\n\tif k.Presence == pb.Presence_PRESENCE_DUPLICATE {", "s.land(p, a)\n\ts.owe(p, a)\n\tif k.Presence == pb.Presence_PRESENCE_UNSPECIFIED {"},

	// Determinism and state.
	{"map order decides", "executor/decide.go",
		"for _, id := range d.fired {\n\t\td.plan(id)\n\t}", "unordered := map[string]bool{}\n\tfor _, id := range d.fired {\n\t\tunordered[id] = true\n\t}\n\tfor id := range unordered {\n\t\td.plan(id)\n\t}"},
	{"a row is not written", "executor/unwind.go",
		"a.row.Undo = to\n\ts.count(p, a, from, to)\n\ts.change(a)", "a.row.Undo = to\n\ts.count(p, a, from, to)"},
}

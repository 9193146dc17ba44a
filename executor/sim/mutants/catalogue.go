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
		return nil, fmt.Errorf("the place of %q stands %d times in %s, not once: %s", m.name, n, m.file,
			m.old)
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
		"if r.Term > s.meta.Term {\n\t\treturn s.outOfTerm(r.Term)\n\t}\n\tif r.Term == s.meta.Term && " +
			"r.Folded != 0 &&"},

	// Registration.
	{"what can never be carried out is taken", "executor/apply.go",
		"if err := s.unusable(e); err != nil {",
		"if err := s.unusable(e); err != nil && e.Pair == nil {"},
	{"an opening that can never be meant is taken", "executor/apply.go",
		"if err := s.unusable(e); err != nil {",
		"if err := s.unusable(e); err != nil && e.Pair != nil {"},
	{"a deadline that had passed is taken", "executor/apply_agent.go",
		"if err := pastDeadline(declared, min(e.StampNs, s.beforeNs)); err != nil {",
		"if err := pastDeadline(declared, 0); err != nil {"},
	{"a compensation may stand before its forward", "ledger/pair.go",
		"case h.compensations[0] < h.forwards[0]:", "case h.compensations[0] == h.forwards[0]:"},
	{"an undo need not name what is to be refused", "executor/unusable.go",
		"if f.GetLate() == pb.Late_LATE_REFUSED && !s.namesForward(c) {",
		"if f == nil && !s.namesForward(c) {"},
	{"a field that no one knows is ignored", "ledger/json.go",
		"if protojson.Unmarshal(raw, record) == nil {",
		"if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, record) == nil {"},
	{"a late copy of a decision counts", "executor/apply_executor.go",
		"if r.Folded < s.meta.Decided {", "if r.Folded+1 == 0 {"},
	{"a second copy of a pair is a second action", "executor/apply_agent.go",
		"if n := s.number(p.id, r.Action); n != 0 {",
		"if n := s.number(p.id, r.Action); n != 0 && p.row.Phase != rowspb.Phase_PHASE_OPEN {"},
	{"after is not read", "executor/apply_agent.go",
		"before = insert(before, n)\n\t}\n\treturn before, \"\"",
		"_ = insert(before, n)\n\t}\n\treturn before, \"\""},
	{"actions are branches unless they say so", "executor/apply_agent.go",
		"if !f.Branch {\n\t\tbefore = s.latest(p)", "if f.Branch {\n\t\tbefore = s.latest(p)"},
	{"a late pair does not join the unwind", "executor/apply_agent.go",
		"if p.row.Phase != rowspb.Phase_PHASE_OPEN {\n\t\ts.joinUnwind(p, a)\n\t}", "_ = s.joinUnwind"},
	{"a late pair leaves its plan ended", "executor/unwind.go",
		"func (s *State) joinUnwind(p *plan, a *action) {\n\ts.reopen(p)",
		"func (s *State) joinUnwind(p *plan, a *action) {"},
	{"what a refused record claims is forgotten", "executor/apply.go",
		"s.noteOrphan(e, result.Reason)", "_ = s.noteOrphan"},
	{"any process writes to a plan", "executor/writer.go",
		"if r.Writer == p.row.Writer {\n\t\treturn effective",
		"if r.Writer == p.row.Writer || p.row.Writer != \"none\" {\n\t\treturn effective"},
	{"a second process of the agent is never heard", "executor/writer.go",
		"p.row.Writer, p.row.ResumedNs = e.Record.Writer, s.meta.TimeNs",
		"p.row.ResumedNs = s.meta.TimeNs"},
	{"the first process goes on after a second has resumed", "executor/writer.go",
		"case *pb.Record_ForwardCompleted, *pb.Record_ForwardFailed, *pb.Record_ForwardInDoubt:",
		"default:"},
	{"what is said to have happened is taken back", "executor/orphan.go",
		"if o.Happened || o.Withdrawn || at >= 0 {", "if o.Withdrawn || at >= 0 {"},
	{"a plan commits beside an act that was refused", "executor/apply_agent.go",
		"case s.orphanedBelow(p) != \"\":", "case s.orphanedBelow(p) == \"none\":"},
	{"a completion after a failure is not believed", "executor/apply_agent.go",
		"if now != rowspb.Outcome_OUTCOME_COMPLETED {\n\t\t\treturn refused(\"the outcome of action %s " +
			"is already failed\", a.fixed.Id)", "if now != rowspb.Outcome_OUTCOME_UNKNOWN {\n\t\t\treturn " +
			"refused(\"the outcome of action %s is already failed\", a.fixed.Id)"},
	{"a late completion after a blind undo is nothing", "executor/apply_agent.go",
		"s.completedLate(e, p, a)", "_ = s.completedLate"},

	// Calls that no one takes, and owners' answers.
	{"an undo is given up for want of a worker too early", "executor/unserved.go",
		"return plusNs(max(a.row.DispatchedNs, a.row.AliveUntilNs), unservedAfter(a.fixed.Compensation))",
		"return plusNs(max(a.row.DispatchedNs, a.row.AliveUntilNs), " +
			"unservedAfter(a.fixed.Compensation)/2)"},
	{"a question is given up for want of a worker too early", "executor/unserved.go",
		"return plusNs(a.row.AskedNs, unservedAfter(a.fixed.Compensation))",
		"return plusNs(a.row.AskedNs, unservedAfter(a.fixed.Compensation)/2)"},
	{"an undo that no one serves is tried again", "executor/step.go",
		"return a.row.Unserved || a.row", "return a.row"},
	{"an undo behind its owner's answer is nothing", "executor/owner.go",
		"if a.row.Undo == rowspb.Undo_UNDO_QUARANTINED {\n\t\ta.row.Note = clip(a.row.Note + \"; \" + " +
			"said)\n\t\treturn effective\n\t}",
		"if true {\n\t\ta.row.Note = clip(a.row.Note + \"; \" + said)\n\t\treturn effective\n\t}"},

	// Commit.
	{"a plan commits while it unwinds", "executor/apply_agent.go",
		"case p.row.Phase != rowspb.Phase_PHASE_OPEN:\n\t\treturn refused(\"plan %s is %s: it was not " +
			"open any more when the commit landed\", p.id,\n\t\t\tstateName(p.row))\n" +
			"\tcase p.row.Signal != rowspb.Signal_SIGNAL_NONE || p.row.Fired != nil:",
		"case p.row.Phase == rowspb.Phase_PHASE_COMMITTED:"},
	{"a plan commits behind a lease that turned", "executor/apply_agent.go",
		"case p.row.Turned != nil && !p.row.Turned.Clocked:\n\t\treturn turnedBefore(p)", ""},
	{"a commit leaves its held set", "executor/child.go",
		"s.meta.Held -= uint64(count)\n\treturn count", "return count"},
	{"a child's held set is not retired with its root", "executor/child.go",
		"s.disarm(c)\n\t\t\tc.row.Retired, c.row.EndedNs = true, s.meta.TimeNs",
		"s.disarm(c)\n\t\t\tc.row.EndedNs = s.meta.TimeNs"},

	// Leases.
	{"a fired lease is not noted on its plan", "executor/apply_executor.go",
		"p.row.Fired = e.Address\n", "_ = e.Address\n"},
	{"the clock guard holds nothing", "executor/due.go",
		"case d.in.HoldClock:\n\t\treturn d.in.EpochNs + heldAgain\n\t}\n\tturned", "}\n\tturned"},
	{"a deadline comes a second early", "triggers/time.go",
		"func (e *evaluation) after(t int64) ref.Val {\n\tif e.nowNs >= t {",
		"func (e *evaluation) after(t int64) ref.Val {\n\tif e.nowNs >= t-1e9 {"},
	{"a deadline is never due", "triggers/time.go",
		"\te.flip(t)\n\treturn e.unknown(wait{kind: waitTime, ns: t})",
		"\treturn e.unknown(wait{kind: waitTime, ns: t})"},
	{"an outcome wakes no lease", "executor/apply_agent.go",
		"s.evaluateAction(p, a, e.Address)\n\tif p.row.UndoneAs", "if p.row.UndoneAs"},
	{"an assertion wakes no lease", "executor/fact.go",
		"s.occurred = append(s.occurred, occurrence{f.Key, " +
			"now})\n\t\treturn\n\t}\n\ts.wakeReaders(f.Key, e.Address)",
		"s.occurred = append(s.occurred, occurrence{f.Key, now})\n\t\treturn\n\t}"},
	{"a retraction wakes no lease", "executor/fact.go",
		"if s.base == nil {\n\t\ts.wakeReaders(key, e.Address)\n\t}", ""},
	{"a verdict wakes no lease", "executor/apply_verdict.go",
		"s.evaluateAction(p, a, e.Address)", "_ = s.evaluateAction"},
	{"the depth of a cascade is not counted", "executor/cascade.go",
		"f.Depth = f.By.Depth + 1", "f.Depth = 1"},
	{"leases stay when the unwind begins", "executor/unwind.go",
		"func (s *State) startUnwind(p *plan) {\n\ts.disarm(p)",
		"func (s *State) startUnwind(p *plan) {"},

	// What is undone.
	{"nothing is ever in scope", "executor/apply_executor.go",
		"if a := s.action(p.id, n); !settled(a.row.Undo) && crossed(a) {\n\t\t\treturn true",
		"if a := s.action(p.id, n); !settled(a.row.Undo) && crossed(a) {\n\t\t\treturn false"},
	{"what never crossed is undone", "executor/step.go",
		"case a.row.Outcome == rowspb.Outcome_OUTCOME_FAILED:\n\t\treturn stepSkip, \"never crossed " +
			"the boundary: the forward is known to have failed\"\n\tcase superseded(a):",
		"case a.row.Late && a.fixed.DutyOf == 0:"},
	{"what the probe found absent is undone", "executor/step.go",
		"case a.row.Presence == pb.Presence_PRESENCE_ABSENT:\n\t\treturn stepSkip, \"the probe found " +
			"no effect\"", ""},
	{"an effectless action is undone", "executor/step.go",
		"case class == pb.Class_CLASS_EFFECTLESS:\n\t\treturn stepSkip, \"effectless: nothing to undo\"",
		""},
	{"an irreversible action is skipped", "executor/step.go",
		"return stepQuarantine, \"irreversible: \" + a.fixed.Forward.Capability + \" has no inverse\"",
		"return stepSkip, \"irreversible\""},
	{"the probe is skipped", "executor/step.go",
		"case asks:\n\t\treturn stepProbe, \"\"", "case asks && a.row.Late:\n\t\treturn stepProbe, \"\""},
	{"doubt is not its owner's", "executor/step.go",
		"case c.OnInDoubt == pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE && !a.row.Approved:\n\t\treturn " +
			"stepQuarantine, \"in doubt: the contract asks its owner\"", ""},
	{"a closed undo window is not looked at", "executor/step.go",
		"return a.row.ClosesNs != 0 && s.meta.TimeNs >= a.row.ClosesNs", "return false"},

	// What may still land.
	{"absent is believed while the forward may land", "executor/apply_probe.go",
		"if k.Presence == pb.Presence_PRESENCE_ABSENT && mayLand(p, a, a.row.AskedNs) {",
		"if k.Presence == pb.Presence_PRESENCE_ABSENT && a.row.AskedNs == 0 {"},
	{"a blind undo does not wait for its forward", "executor/landing.go",
		"case next == stepDispatch, next == stepProbe && a.row.AbsentNs != 0:",
		"case next == stepProbe && a.row.AbsentNs != 0:"},
	{"the grace of a forward is not waited for", "executor/landing.go",
		"case a.row.Outcome == rowspb.Outcome_OUTCOME_UNKNOWN:\n",
		"case a.row.Outcome == rowspb.Outcome_OUTCOME_FAILED:\n"},
	{"settling counts from the registration, whenever it was given up", "executor/landing.go",
		"return plusNs(a.row.OutcomeNs, settle)", "return plusNs(a.fixed.AtNs, settle)"},
	{"a forward that is given up after its blind undo is nothing", "executor/duty.go",
		"if a.fixed.Forward.Class == pb.Class_CLASS_EFFECTLESS || a.row.Late || !s.tooLate(p, a) " +
			"{\n\t\treturn\n\t}\n\td := s.owedAnew(e, p, a, &rowspb.ActionRow{\n\t\tOutcome: " +
			"rowspb.Outcome_OUTCOME_IN_DOUBT,", "if true || s.tooLate(p, a) {\n\t\treturn\n\t}\n\td := " +
			"s.owedAnew(e, p, a, &rowspb.ActionRow{\n\t\tOutcome: rowspb.Outcome_OUTCOME_IN_DOUBT,"},
	{"nothing found in time is believed of an undo", "executor/apply_probe.go",
		"early := absent && mayLand(p, a, a.row.AskedNs)",
		"early := absent && mayLand(p, a, a.row.AskedNs) && s == nil"},
	{"a provider that refuses what is late is undone twice", "executor/duty.go",
		"case a.row.Blind && refusesLate(a) && (flying(u) || u == " +
			"rowspb.Undo_UNDO_COMPENSATED):\n\t\treturn false\n", ""},
	{"an action that settles ends its plan", "executor/apply.go",
		"r.InFlight == 0 && len(r.Settling) == 0", "r.InFlight == 0"},
	{"the unwind goes past its savepoint", "executor/savepoint.go",
		"return true, savepoint(p, to).Actions", "return true, 0"},

	// What an undo takes.
	{"the before-image is lost when the outcome is in doubt", "executor/apply_agent.go",
		"case rowspb.Outcome_OUTCOME_IN_DOUBT:\n\t\ts.doubtedLate(e, p, a)",
		"case rowspb.Outcome_OUTCOME_IN_DOUBT:\n\t\tkey := actionKey(keyPayload, p.id, " +
			"a.id.n)\n\t\tpayload := s.payload(key)\n\t\tpayload.Before = nil\n\t\ts.set(key, " +
			"encode(payload))\n\t\ts.doubtedLate(e, p, a)"},
	{"a duty has no before-image", "executor/duty.go",
		"payload.Output = output\n", "payload.Output, payload.Before = output, nil\n"},
	{"the forward key is that of the plan that undoes", "executor/arguments.go",
		"plan = p.row.Origin\n", "plan = p.id\n"},

	// In which order, how often.
	{"order: no one waits for what came after", "executor/unwind.go",
		"s.action(p.id, m).row.Blockers++", "_ = m"},
	{"order: released by the first of several", "executor/unwind.go",
		"case b.row.Blockers > 0:\n", "case b.row.Blockers > 1:\n"},
	{"order: what a late pair came after goes on", "executor/unwind.go",
		"a.row.Undo = rowspb.Undo_UNDO_OWED\n\ts.block(p, a)\n\ts.makeReady(p, a)",
		"a.row.Undo = rowspb.Undo_UNDO_OWED\n\ts.makeReady(p, a)"},
	{"one attempt more than registered", "executor/step.go",
		"a.row.Attempt-a.row.AttemptsFrom >= attemptsOf(a.fixed.Compensation)",
		"a.row.Attempt-a.row.AttemptsFrom > attemptsOf(a.fixed.Compensation)"},
	{"a key for each attempt", "executor/command.go",
		"return ledger.Key(s.tenant, a.id.Plan, a.fixed.Id, ledger.PurposeUndo)",
		"return ledger.Key(s.tenant, a.id.Plan, a.fixed.Id, " +
			"ledger.PurposeUndo+string(rune('0'+a.row.Attempt)))"},
	{"an undo in doubt is not asked about", "executor/apply_attempt.go",
		"case k.InDoubt && c.Probe != nil && !inMemory(a):",
		"case k.InDoubt && c.Probe != nil && inMemory(a):"},
	{"a failure is a success", "executor/decide_answer.go",
		"done, final, note := reply.Status == api.StatusDone, reply.Status == api.StatusStop, \"\"",
		"done, final, note := reply.Status != api.StatusStop, reply.Status == api.StatusStop, \"\""},
	{"a command in flight is not kept", "executor/apply_attempt.go",
		"rows.Flights.Add(s.tx, a.id)\n", ""},
	{"the next call is not due", "executor/apply_attempt.go",
		"s.setDue(dueNs, rows.DueRetry, rows.Lease{Plan: p.id, N: a.id.N})", ""},

	// How it ends.
	{"quarantined actions end compensated", "executor/apply.go",
		"case r.Quarantined > 0 || orphaned(r):\n\t\treturn pb.PlanEnd_PLAN_END_QUARANTINED",
		"case r.Quarantined > 0 || orphaned(r):\n\t\treturn pb.PlanEnd_PLAN_END_COMPENSATED"},
	{"a plan ends while an undo is in flight", "executor/apply.go",
		"len(r.Duplicated) == 0 &&\n\t\tr.InFlight == 0 &&", "len(r.Duplicated) == 0 &&"},
	{"what the owner resolved ends compensated", "executor/apply.go",
		"case r.ByHand:\n\t\treturn pb.PlanEnd_PLAN_END_RESOLVED", ""},
	{"a retry by the owner has no attempts", "executor/owner.go",
		"a.row.AttemptsFrom, a.row.Approved, a.row.Unserved = a.row.Attempt, true, false",
		"a.row.Approved, a.row.Unserved = true, false"},
	{"a parent does not follow its child", "executor/child.go",
		"case rowspb.Phase_PHASE_COMPENSATED:\n\t\ts.settle(parent, a, rowspb.Undo_UNDO_COMPENSATED, " +
			"p.row.Ended)", "case rowspb.Phase_PHASE_COMPENSATED:"},
	{"an extra effect is not owed", "executor/apply_probe.go",
		"s.land(p, a)\n\ts.owe(p, a)\n\tif k.Presence == pb.Presence_PRESENCE_DUPLICATE {",
		"s.land(p, a)\n\ts.owe(p, a)\n\tif k.Presence == pb.Presence_PRESENCE_UNSPECIFIED {"},

	// What a commit waits for, and what could not be kept.
	{"a commit retires what is in doubt", "executor/apply_agent.go",
		"case s.mustSettle(p):", "case s.mustSettle(p) && p.row.Actions == 0:"},
	{"absent is believed at a commit while the forward may land", "executor/apply_probe.go",
		"if k.Presence == pb.Presence_PRESENCE_ABSENT && mayLand(p, a, a.row.AskedNs) {",
		"if k.Presence == pb.Presence_PRESENCE_ABSENT && mayLand(p, a, a.row.AskedNs) && " +
			"!s.committing(p) {"},
	{"no outcome is no doubt at a commit", "executor/commit.go",
		"return doubtful(a) && a.row.Resolution == nil",
		"return doubtful(a) && a.row.Resolution == nil && a.row.Outcome == " +
			"rowspb.Outcome_OUTCOME_IN_DOUBT"},
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
		"for _, id := range d.fired {\n\t\td.plan(id)\n\t}",
		"unordered := map[string]bool{}\n\tfor _, id := range d.fired {\n\t\tunordered[id] = " +
			"true\n\t}\n\tfor id := range unordered {\n\t\td.plan(id)\n\t}"},
	{"a row is not written", "executor/unwind.go",
		"a.row.Undo = to\n\ts.count(p, a, from, to)\n\ts.change(a)",
		"a.row.Undo = to\n\ts.count(p, a, from, to)"},

	// The turn.
	{"what is appended counts as read back", "executor/turn/machine.go",
		"return m.pending.stored != 0 && m.Cursor() >= m.pending.stored", "return m.pending.stored != 0"},
	{"a commit is retried under another id", "executor/turn/machine.go",
		"p.out, p.append.AfterNs = true, p.delay",
		"p.out, p.append.AfterNs, p.append.ID = true, p.delay, m.config.NewID()"},
	{"an append in doubt is given up", "executor/turn/machine.go",
		"p.out, p.append.AfterNs = true, p.delay", "m.pending = nil"},
	{"a refused append is given up", "executor/turn/machine.go",
		"p.out, p.append.AfterNs = true, int64(RetryMax)", "p.stored = 1 << 62"},
	{"decisions are not fenced", "executor/turn/machine.go",
		"FenceSubject: term.Subject(), Fence: fence,", "Fence: fence * 0,"},
	{"a host that was beaten goes on", "executor/turn/machine.go",
		"m.fenced(Down{Reason: \"another holder has begun a term\"})", "m.wants = true"},
	{"a term is whoever's that asked for its number", "executor/turn/term.go",
		"case !m.holding && m.term != 0 && meta.Term == m.term && meta.Holder == m.config.Holder:",
		"case !m.holding && m.term != 0 && meta.Term == m.term:"},
	{"a holder does not see that another term has begun", "executor/turn/term.go",
		"case m.holding && meta.Term != m.term:", "case m.holding && meta.Term < m.term:"},
	{"a new holder sends nothing again", "executor/turn/ready.go",
		"m.outstanding(m.state.InFlight(), true)", "m.outstanding(m.state.InFlight()[:0], true)"},
	{"a new holder forgets what was to be erased", "executor/turn/ready.go",
		"r.Pages, r.Erase = m.state.Unpaged(), m.state.Unerased()", "r.Pages = m.state.Unpaged()"},
	{"the guard of the clock holds nothing", "executor/turn/clock.go",
		"if ahead > int64(JumpMax) {", "if ahead > int64(JumpMax)<<10 {"},
	{"a wake is forgotten", "executor/turn/machine.go",
		"return true, max(due-now.EpochNs, 0)", "return due < 0, 0"},
	{"a command flies on that has an answer", "executor/turn/flights.go",
		"delete(f.flights, of)\n\treturn x", "return nil"},
	{"a copy goes out whose key may be forgotten", "executor/turn/flights.go",
		"if until := x.Command.ResendUntilNs; until != 0 && x.Reached && epochNs > until {",
		"if until := x.Command.ResendUntilNs; until != 0 && x.Reached && epochNs > until<<1 {"},
	{"a command is given up when no worker is there", "executor/turn/flights.go",
		"v.again(min(int64(WorkerWaitMin)<<min(x.Tries-1, 10), int64(WorkerWaitMax)))",
		"delete(f.flights, x.Attempt.About)"},
	{"the first record that was folded last is not looked at", "executor/turn/anchor.go",
		"if last.Index != meta.Applied.Index || !bytes.Equal(last.Leaf, meta.Applied.Leaf) {",
		"if last.Index != meta.Applied.Index && !bytes.Equal(last.Leaf, meta.Applied.Leaf) {"},
	{"state is on disk before its tiles", "executor/turn/machine.go",
		"if err := copied.Flush(); err != nil {\n\t\treturn " +
			"err\n\t}\n\tm.state.Flush()\n\trows.Commit()\n\treturn nil",
		"m.state.Flush()\n\trows.Commit()\n\treturn copied.Flush()"},
	{"a confirmed clock is forgotten", "executor/turn/ready.go",
		"n.confirmed = n.confirmed || e.Address.Sequence > attached", "n.confirmed = false"},
	{"a clock that was confirmed before a restart is right again", "executor/turn/ready.go",
		"n.confirmed = n.confirmed || e.Address.Sequence > attached",
		"n.confirmed = n.confirmed || attached > 0"},
	{"a clock is confirmed twice by one word", "executor/turn/ready.go",
		"m.news = news{}", "m.news = news{confirmed: m.news.confirmed}"},
	{"a halted tenant goes on after a restart", "executor/turn/halt.go",
		"if h.CreatedNs != head.CreatedNs || h.Sequence == 0 || h.Sequence > copied {",
		"if h.CreatedNs != head.CreatedNs || h.Sequence <= copied {"},
	{"what a scrub has found is not kept", "executor/turn/halt.go",
		"h.Guard == \"G3\" || h.Guard == \"G4\"", "h.Guard == \"G3\""},
	{"a mended ledger stays halted", "executor/turn/halt.go",
		"if err != nil || is {", "if err != nil || is && head.Last == 0 {"},
	{"a page that was not taken is forgotten", "executor/turn/ready.go",
		"r.Pages, r.Erase = m.state.Unpaged(), m.state.Unerased()", "r.Erase = m.state.Unerased()"},
	{"a page is taken and not recorded", "executor/turn/pages.go",
		"p.settle(l)\n\t\tp.done = append(p.done, l)", "p.forget(l)"},
	{"a key that was not destroyed is not tried again", "executor/turn/erasures.go",
		"e.queue = append(e.queue, plan)\n\t}\n}\n\n// Destroyed",
		"delete(e.asked, plan)\n\t}\n}\n\n// Destroyed"},
}

package executor_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A schedule is one line of what happens to plan p, in order; see play. A word
// counts as done if its records are effective; in front of it "!" wants them
// refused or void, and "=" wants them to be copies.
//
//	open  open:2  open@5s         open the plan; at most 2 undos in flight; a deadline
//	a  a<b,c  a<                  pair a after the one before; after b and c; after none
//	a:irr  :eff  :askme  :probe   irreversible, effectless, on_in_doubt quarantine or probe
//	:staged                       delivered when its plan is committed, and not by its agent
//	:verify  :pivot  :approve     a check after the undo; a pivot; the owner's word first
//	:review                       its forward waits for a verdict
//	:lateask  :dedupe             on_late quarantine; a provider that forgets keys after 10 s, with a probe
//	:may  :refused  :never        its forward may land after its caller gave up; its provider refuses it
//	                              after its undo; it ends with its caller, as it does without a mark
//	:settle=1m :timeout=5s :grace=2s  how long it may take to land; when its caller gives up; its grace
//	:later  :later=5s             how long its doubt lasts before an open plan asks; a month
//	:for=1m  :until=1m            the undo window, from completion or from the start; marks join with +
//	open:continue  open:halt  open:last  on_undo_failure
//	open:second                   a second approver
//	open:input  a:beside          opened with an input; an undo that reads that, facts and other actions
//	open:accept                   doubt_at_commit; open:settle says the default
//	a+  a-  a?                    the forward completed, failed, is in doubt
//	fail  cancel  commit          the agent ends the plan
//	stop                          an operator cancels it
//	save:s  back:s                the agent sets a savepoint, goes back to it
//	undo  undo:s                  an operator has the plan undone, back to a savepoint
//	q/...  p~1/...                about plan q, or what undoes p; q/open^a: a child of p under a, q/open^ of p
//	turn  @5s                     decide and let workers answer; the same at 5 s
//	a=stop  a=fail,lost,done      what the worker of a's undo answers, call by call;
//	                              lost: no answer in time, late: a report will follow
//	a.probe=present               what the probe answers: present, absent, duplicate, inconclusive, lost, fail
//	a:unchanged  a.probe=same     asked first whether it is unchanged; the probe says: same, other
//	a.verify=gone                 what the check answers: gone, there, lost
//	settle:a=present              the probe answers the question that is out about a
//	tell:a#1=done                 a worker reports on attempt 1 (done, fail, stop)
//	resolve:a  halt:a  retry:a    an operator's word on a quarantined action; resolve:a@bob of operator bob
//	accept:a  lost:a              likewise: it stays; it cannot be undone any more
//	skip:a  force:a  newkey:a     let the unwind go on without it; retry by force, under a new key, both (newkey!:a)
//	overwrite:a                   retry over what someone else has changed
//	lone:x                        a forward without its registration
//	effect:a=x7,x8                an operator reports that a is there, as x7, and again as x8; effect:a@bob=
//	own:a=x7                      a's forward completed, and calls its effect x7
//	judge:a=block  =block*        a verdict, which says that it undoes the plan
//	a:own  a:own*                 a condition on fact a, which undoes a; which undoes the plan
//	a:held  a:held*               the same, held after the commit, too
//	a:timer=1m                    a condition on the clock, held after the commit, too
//	open:idle=1m  a:idle=1m       a condition on an agent that writes nothing, of the plan or of a, which undoes the plan
//	open:due=5s  a:due=5s         a condition on the deadline being 5 s away, of the plan or of a, which undoes the plan
//	move:1m  moves:1m  moves:1m#2 an operator, the agent moves the deadline to a minute; it follows that of record 2
//	adopt:bob  adopt:bob#2        an operator hands the plan to agent bob; it follows what is so since record 2
//	open:token  q/open:token^     the plan takes child plans of other agents by a token, the child shows it
//	as:bob  as:                   the words from here on are of a process of agent bob; of the first agent's again
//	resume                        a process of the agent resumes the plan
//	undo:!a                       an operator has a and what came after it undone
//	commit:1                      the agent ends the plan, and knows of one part that was undone
//	fact:k=1  forget:k            a fact is asserted, retracted
//	again                         the last commit once more, as it was
type schedule struct {
	*world
	answers map[string][]string
	last    ledger.Message
	plan    string // that the word is about
	who     string // the agent that writes; empty: the first
}

// agent appends a commit of the agent that writes now.
func (s *schedule) agent(plan string, records ...*pb.Record) []Result {
	s.t.Helper()
	if s.who == "" {
		return s.world.agent(plan, records...)
	}
	for _, r := range records {
		r.Plan, r.Writer = plan, "of-"+s.who
	}
	return s.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: s.who, Plan: plan}, records...)
}

// adopt has an operator hand the plan to another agent.
func (s *schedule) adopt(to string) []Result {
	s.t.Helper()
	agent, follows, _ := strings.Cut(to, "#")
	k := &pb.PlanAdopted{Agent: agent, Reason: "its agent is gone", Actor: "ops"}
	k.Follows, _ = strconv.ParseUint(follows, 10, 64)
	return s.by("ops", "", &pb.Record{Kind: &pb.Record_PlanAdopted{PlanAdopted: k}})
}

// scheduled is a schedule, and what becomes of plan p.
type scheduled struct{ name, setup, want string }

// playAll plays schedules, each as a test of its own, and folds them again.
func playAll(t *testing.T, list []scheduled) {
	t.Helper()
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			playOne(t, c.setup, c.want, func(s *schedule) func() string { return s.outcome })
		})
	}
}

func newSchedule(t *testing.T) *schedule {
	s := &schedule{world: newWorld(t), answers: map[string][]string{}, plan: "p"}
	s.worker = s.answer
	return s
}

// answer is what the schedule says about a call; by default all goes well.
func (s *schedule) answer(c Command) *api.Reply {
	name, word := c.Action, "done"
	switch c.Purpose {
	case api.PurposeProbe:
		name, word = name+".probe", "present"
	case api.PurposeVerify:
		name, word = name+".verify", "gone"
	}
	if list := s.answers[name]; len(list) > 0 {
		word = list[0]
		if len(list) > 1 {
			s.answers[name] = list[1:]
		}
	}
	switch word {
	case "done":
		return &api.Reply{Status: api.StatusDone}
	case "present", "absent", "inconclusive":
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"presence":"` + word + `"}`)}
	case "duplicate":
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"presence":"duplicate","external_ref":"extra-` +
			c.Action + `"}`)}
	case "crowded": // one effect more than one answer may name
		many := strings.Repeat(`"x",`, 33)
		return &api.Reply{Status: api.StatusDone,
			Output: json.RawMessage(`{"presence":"duplicate","external_ref":[` + many + `"z"]}`)}
	case "long":
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"presence":"present","external_ref":"` +
			strings.Repeat("x", 1024) + `"}`)}
	case "both":
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"presence":"present","external_ref":["x","y"]}`)}
	case "gone", "there":
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"gone":` + strconv.FormatBool(word == "gone") +
			`}`)}
	case "same", "other":
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"presence":"present","same":` +
			strconv.FormatBool(word == "same") + `}`)}
	case "changed":
		return &api.Reply{Status: api.StatusChanged, Code: "precondition", Output: json.RawMessage(`{"etag":"e7"}`)}
	case "fail":
		return &api.Reply{Status: api.StatusFailed, Code: "locked", Message: "try later"}
	case "stop":
		return &api.Reply{Status: api.StatusStop, Code: "protected", Message: "never"}
	case "late":
		return &api.Reply{Status: api.StatusWorking}
	case nobody, nobodyMore:
		return &api.Reply{Status: word}
	case "doubt":
		return &api.Reply{Status: api.StatusInDoubt, Code: "bad_gateway", Message: "502", Worker: "w1"}
	case "lost":
		return nil
	}
	s.t.Fatalf("no such answer: %s", word)
	return nil
}

func (s *schedule) play(line string) {
	s.t.Helper()
	for word := range strings.FieldsSeq(line) {
		want := Effective
		switch {
		case word[0] == '!':
			want, word = Refused, word[1:]
		case word[0] == '=':
			want, word = Repeated, word[1:]
		}
		before := len(s.log)
		for _, r := range s.word(word) {
			got := r.Verdict
			if got == Void {
				got = Refused
			}
			if got != want || got != Effective && r.Reason == "" {
				s.t.Fatalf("%q in %q: %+v", word, line, r)
			}
		}
		if word != "turn" && word[0] != '@' && len(s.log) == before+1 {
			s.last = s.log[before]
		}
	}
}

func (s *schedule) word(word string) []Result {
	s.t.Helper()
	if plan, rest, ok := strings.Cut(word, "/"); ok && ledger.ValidToken(strings.TrimRight(plan, "~01")) {
		s.plan = plan
		defer func() { s.plan = "p" }()
		word = rest
	}
	verb, rest, _ := strings.Cut(word, ":")
	switch {
	case word == "turn":
		s.turn()
		return nil
	case word == "again":
		return s.raw(s.last.Subject, s.last.ContentType, s.last.Data)
	case word[0] == '@':
		d, err := time.ParseDuration(word[1:])
		if err != nil {
			s.t.Fatal(err)
		}
		s.at(d)
		return nil
	case verb == "settle" && strings.Contains(rest, "="): // what the probe about an action answers at last
		return s.settleBy(rest)
	case verb == "open" || strings.HasPrefix(word, "open@") || strings.HasPrefix(word, "open^"):
		return s.agent(s.plan, s.open(word))
	case verb == "save":
		return s.agent(s.plan,
			&pb.Record{Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: rest, Number: s.savepointsSet() + 1}}})
	case verb == "back":
		return s.agent(s.plan,
			&pb.Record{Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{ToSavepoint: rest,
				Reason: "another way", Number: s.rewinds() + 1}}})
	case verb == "undo":
		return s.undo(rest)
	case word == "fail":
		return s.agent(s.plan, planFailed())
	case word == "cancel":
		return s.agent(s.plan,
			&pb.Record{Kind: &pb.Record_PlanCancelled{PlanCancelled: &pb.PlanCancelled{Reason: "changed my mind"}}})
	case verb == "commit":
		r := planCommitted()
		r.GetPlanCommitted().Parts = uint32(len(rest) * strings.Index("0123456789", rest))
		return s.agent(s.plan, r)
	case word == "stop":
		return s.by("ops", "",
			&pb.Record{Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Reason: "stop it", Actor: "ops"}}})
	case verb == "erase":
		return s.by("ops", "",
			&pb.Record{Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for", Actor: "ops",
				Force: rest == "force"}}})
	case word == "destroyed":
		return s.append(holder, &pb.Record{
			Plan: s.plan, Term: s.state.Meta().Term, EpochNs: s.now, Cause: s.planOf(s.plan).Row.Erased,
			Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Destroyed: true}},
		})
	case verb == "lone":
		return s.agent(s.plan, pair(rest)[0])
	case slices.Contains([]string{"fact", "forget", "move", "moves", "adopt", "as", "resume"}, verb):
		return s.moveOrFact(verb, rest)
	case slices.Contains([]string{"resolve", "halt", "retry", "skip", "accept", "lost", "force", "newkey", "newkey!",
		"overwrite", "tell", "judge", "reply", "effect", "own"}, verb):
		return s.about(verb, rest)
	case strings.Contains(word, "=") && !strings.Contains(word, ":"):
		id, list, _ := strings.Cut(word, "=")
		s.answers[id] = strings.Split(list, ",")
		return nil
	}
	return s.forward(word)
}

// undo is an operator's request: of the plan, back to a savepoint, or of !action.
func (s *schedule) undo(what string) []Result {
	s.t.Helper()
	r := &pb.CompensationRequested{Reason: "undo it", Actor: "ops", ToSavepoint: what}
	if from, ok := strings.CutPrefix(what, "!"); ok {
		r.ToSavepoint, r.FromAction = "", from
	}
	return s.by("ops", "", &pb.Record{
		Kind: &pb.Record_CompensationRequested{CompensationRequested: r}})
}

// moveOrFact is a fact, a deadline that is moved, or a plan that is handed over.
func (s *schedule) moveOrFact(verb, rest string) []Result {
	s.t.Helper()
	switch verb {
	case "adopt":
		return s.adopt(rest)
	case "as":
		s.who = rest
		return nil
	case "resume":
		s.who = cmp.Or(s.who, "a1") // a process without a name cannot
		return s.agent(s.plan, resumed())
	}
	if verb == "move" || verb == "moves" {
		return s.move(verb == "moves", rest)
	}
	return s.fact(rest)
}

// move gives the plan another deadline, which an agent says to follow the one that there is.
func (s *schedule) move(agent bool, to string) []Result {
	s.t.Helper()
	to, follows, _ := strings.Cut(to, "#")
	d, err := time.ParseDuration(to)
	if err != nil {
		s.t.Fatal(err)
	}
	k := &pb.DeadlineMoved{DeadlineNs: epoch0 + int64(d), Reason: "it takes longer"}
	if n, err := strconv.ParseUint(follows, 10, 64); err == nil {
		k.Follows = n
	} else if agent {
		_, k.Follows, _ = view.NewReader(s.kv, "t", nil).Deadline(s.plan)
	}
	r := &pb.Record{Kind: &pb.Record_DeadlineMoved{DeadlineMoved: k}}
	if agent {
		return s.agent(s.plan, r)
	}
	k.Actor = "ops"
	return s.by("ops", "", r)
}

func (s *schedule) savepointsSet() uint32 {
	if p := s.planOf(s.plan); p != nil {
		return p.Row.SavepointsSet
	}
	return 0
}

// rewinds is how often the agent has asked to go back.
func (s *schedule) rewinds() uint32 {
	if p := s.planOf(s.plan); p != nil {
		return p.Row.Rewinds
	}
	return 0
}

func (s *schedule) open(word string) *pb.Record {
	r := opened(0)
	if _, in, ok := strings.Cut(word, "@"); ok {
		d, err := time.ParseDuration(in)
		if err != nil {
			s.t.Fatal(err)
		}
		r.GetPlanOpened().DeadlineNs = epoch0 + int64(d)
	}
	if before, under, ok := strings.Cut(word, "^"); ok {
		r.GetPlanOpened().ParentPlan, r.GetPlanOpened().ParentAction = "p", under
		word = before
		if parent, action, ok := strings.Cut(under, "."); ok {
			r.GetPlanOpened().ParentPlan, r.GetPlanOpened().ParentAction = parent, action
		}
	}
	if _, marks, ok := strings.Cut(word, ":"); ok {
		for mark := range strings.SplitSeq(marks, "+") {
			limit, err := strconv.Atoi(mark)
			switch {
			case mark == "continue":
				r.GetPlanOpened().OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
			case mark == "last":
				r.GetPlanOpened().OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST
			case mark == "halt":
				r.GetPlanOpened().OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_HALT
			case mark == "input":
				r.Payload = &pb.Payload{Input: json.RawMessage(`{"n": 1.0}`)}
			case mark == "second":
				r.GetPlanOpened().SecondApprover = true
			case mark == "accept":
				accepting(r)
			case mark == "token" && r.GetPlanOpened().ParentPlan != "":
				r.GetPlanOpened().ParentToken = token
			case mark == "token":
				digest := sha256.Sum256(token)
				r.GetPlanOpened().AttachDigest = digest[:]
			case strings.HasPrefix(mark, "due="):
				r.GetPlanOpened().Triggers = append(r.GetPlanOpened().Triggers, due(mark[len("due="):]))
			case strings.HasPrefix(mark, "idle="):
				r.GetPlanOpened().Triggers = append(r.GetPlanOpened().Triggers, idle(mark[len("idle="):]))
			case mark == "settle":
				r.GetPlanOpened().DoubtAtCommit = pb.DoubtAtCommit_DOUBT_AT_COMMIT_SETTLE
			case err != nil:
				s.t.Fatal(err)
			}
			r.GetPlanOpened().Concurrency = uint32(limit)
		}
	}
	return r
}

// forward is a+, a-, a? or the registration of a pair.
func (s *schedule) forward(word string) []Result {
	id := word[:len(word)-1]
	switch word[len(word)-1] {
	case '+':
		return s.agent(s.plan, completed(id))
	case '-':
		return s.agent(s.plan, failedForward(id))
	case '?':
		return s.agent(s.plan, inDoubt(id))
	}
	head, marks, _ := strings.Cut(word, ":")
	id, after, branch := strings.Cut(head, "<")
	return s.agent(s.plan, pair(id, func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		f.Branch = branch
		if after != "" {
			f.After = strings.Split(after, ",")
		}
		for mark := range strings.SplitSeq(marks, "+") {
			if mark != "" && !s.mark(mark, id, f, c) {
				s.t.Fatalf("no such mark: %s", mark)
			}
		}
	})...)
}

// mark is one of the marks of a pair.
func (s *schedule) mark(mark, id string, f *pb.ForwardRegistered, c *pb.CompensationRegistered) bool {
	name, value, _ := strings.Cut(mark, "=")
	d, err := time.ParseDuration(value)
	if value != "" && err != nil {
		s.t.Fatal(err)
	}
	probe := &pb.Probe{Call: &pb.Call{Capability: "probe." + id, Attempts: 2}}
	switch name {
	case "irr":
		f.Class, c.Capability = pb.Class_CLASS_IRREVERSIBLE, ""
	case "staged", "kept", "found", "secret", "reads":
		markDelivery(name, int64(d), probe, f, c)
	case "sealed":
		c.Sealed = true
	case "beside":
		beside(cmp.Or(f.Deliver, c))
	case "own", "own*", "held", "held*", "timer", "idle", "due":
		c.Triggers = append(c.Triggers, condition(name, value, id))
	case "eff":
		f.Class, c.Capability = pb.Class_CLASS_EFFECTLESS, ""
	case "askme":
		c.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE
	case "probe":
		c.Probe = probe
		c.Bindings = append(c.Bindings, &pb.Binding{Name: "ref", Expression: "meta.?external_ref"})
	case "later": // asked about while its plan is open after a month, or as it says
		c.AskAfterNs = cmp.Or(int64(d), int64(ledger.AskAfterMax))
	case "blind": // probes after an attempt without an answer, not before
		c.Probe, c.OnInDoubt = probe, pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE
	case "unchanged":
		c.Probe, c.Unchanged = probe, "probe.same"
	case "verify":
		c.Verify = &pb.Verify{Call: &pb.Call{Capability: "verify." + id, Attempts: 2}, Ok: "verify.gone"}
	case "pivot":
		f.Pivot = true
	case "review":
		f.Review = true
	case "approve":
		c.Approve = true
	case "lateask":
		c.OnLate = pb.OnLate_ON_LATE_QUARANTINE
	case "offer":
		c.UnservedAfterNs = int64(d)
	case "dedupe":
		c.Probe, c.DedupeNs, c.BackoffNs, c.Attempts = probe, 10*second, 20*second, 3
	case "may":
		f.Late = pb.Late_LATE_UNSPECIFIED
	case "never":
		f.Late, f.SettleNs = pb.Late_LATE_NEVER, 0
	case "refused":
		f.Late = pb.Late_LATE_REFUSED
		c.Bindings = append(c.Bindings, &pb.Binding{Name: "forward", Expression: "meta.forward_key"})
	case "settle":
		f.Late, f.SettleNs = pb.Late_LATE_UNSPECIFIED, int64(d)
	case "timeout":
		f.TimeoutNs = int64(d)
	case "grace":
		f.GraceNs = int64(d)
	case "for":
		c.ValidForNs = int64(d)
	case "until":
		c.ValidUntilNs = epoch0 + int64(d)
	default:
		return false
	}
	return true
}

// beside has a call read what is not of its action.
func beside(c *pb.CompensationRegistered) {
	bind("n", "plan.input.n", "a", `actions["a"].output.ref`, "b", `actions["b"].external_ref`, "fact", `facts["a"]`,
		"large", `facts["b"].x`)(nil, c)
}

// markDelivery is mark of a staged act: kept says for how long its provider remembers the key.
func markDelivery(name string, ns int64, probe *pb.Probe, f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
	switch name {
	case "staged":
		staged()(f, c)
	case "kept":
		f.Deliver.DedupeNs, f.Deliver.Attempts = ns, 4
	case "found":
		f.Deliver.Probe = proto.CloneOf(probe)
		f.Deliver.Probe.Call.Bindings = append(f.Deliver.Probe.Call.Bindings,
			&pb.Binding{Name: "why", Expression: "plan.reason"})
	case "reads":
		f.Deliver.Bindings = []*pb.Binding{{Name: "id", Expression: "input.id"}}
	case "secret":
		f.Deliver.Sealed, f.Deliver.Page = true, "mail"
	}
}

// condition is what a mark says that undoes an action, or its plan.
func condition(name, value, id string) *pb.Trigger {
	if name == "timer" {
		return &pb.Trigger{Name: name, AfterCommit: true,
			Condition: `elapsed(action.at, duration("` + value + `"))`}
	}
	switch name {
	case "idle":
		return idle(value)
	case "due":
		return due(value)
	}
	t := when(strings.TrimSuffix(name, "*"), `"`+id+`" in facts`)
	if t.Name == name {
		t.Scope = pb.Scope_SCOPE_UNSPECIFIED
	}
	t.AfterCommit = t.Name == "held"
	return t
}

// idle is a condition on an agent that writes nothing for so long.
func idle(value string) *pb.Trigger {
	return when("idle", `elapsed(plan.active_at, duration("`+value+`"))`)
}

// due is a condition on the deadline of the plan being less than that away.
func due(value string) *pb.Trigger {
	return when("due", `after(plan.deadline - duration("`+value+`"))`)
}

// by appends an operator's record about the plan of the word.
func (s *schedule) by(operator, action string, r *pb.Record) []Result {
	s.t.Helper()
	r.Plan, r.Action = s.plan, action
	return s.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: operator}, r)
}

func (w *world) fact(text string) []Result {
	w.t.Helper()
	key, value, ok := strings.Cut(text, "=")
	r := &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: key}}}
	if ok {
		r.Kind = &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: json.RawMessage(value)}}
	}
	return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"}, r)
}

func resolvedBy(halt bool) *pb.Record {
	return &pb.Record{Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
		Outcome: pb.Resolution_RESOLUTION_DONE, Reason: "did it by hand", Actor: "ops", Evidence: "ticket", Halt: halt}}}
}

// about is an operator's, worker's or supervisor's word on one action.
func (s *schedule) about(verb, rest string) []Result {
	s.t.Helper()
	if verb == "own" {
		id, ref, _ := strings.Cut(rest, "=")
		r := completed(id)
		r.GetForwardCompleted().ExternalRef = ref
		return s.agent(s.plan, r)
	}
	if verb == "effect" { // that it is there, and what its provider calls it, and the others that are there
		id, names, _ := strings.Cut(rest, "=")
		id, by, _ := strings.Cut(id, "@")
		list := strings.Split(names, ",")
		return []Result{s.effect(cmp.Or(by, "ops"), id, list[0], list[1:]...)}
	}
	head, answer, _ := strings.Cut(rest, "=")
	action, attempt, _ := strings.Cut(head, "#")
	operator := "ops"
	if at := strings.LastIndex(action, "@"); at >= 0 && !strings.Contains(action[at:], "-") { // no name of an orphan
		action, operator = action[:at], action[at+1:]
	}
	switch verb {
	case "resolve", "halt", "skip", "accept", "lost":
		r := resolvedBy(verb == "halt")
		switch verb {
		case "skip":
			r.GetResolved().Outcome, r.GetResolved().Evidence = pb.Resolution_RESOLUTION_SKIPPED, ""
		case "accept":
			r.GetResolved().Outcome = pb.Resolution_RESOLUTION_ACCEPTED
		case "lost":
			r.GetResolved().Outcome = pb.Resolution_RESOLUTION_LOST
		}
		return s.by(operator, action, r)
	case "retry", "force", "newkey", "newkey!", "overwrite":
		return s.by(operator, action,
			&pb.Record{Kind: &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Actor: "ops", Reason: "again",
				Force: verb == "force" || verb == "newkey!", NewKey: strings.HasPrefix(verb, "newkey"),
				Overwrite: verb == "overwrite"}}})
	case "judge":
		scope := pb.Scope_SCOPE_UNSPECIFIED
		if strings.HasSuffix(answer, "*") {
			answer, scope = strings.TrimSuffix(answer, "*"), pb.Scope_SCOPE_PLAN
		}
		outcome := pb.VerdictOutcome_value["VERDICT_OUTCOME_"+strings.ToUpper(answer)]
		return s.append(ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "compliance"},
			&pb.Record{Plan: s.plan, Action: action,
				Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: pb.VerdictOutcome(outcome),
					Reason: "policy 7", Scope: scope}}})
	}
	n, err := strconv.Atoi(attempt)
	if err != nil {
		s.t.Fatal(err)
	}
	if verb == "reply" { // of a worker, over NATS, to a command that is out or was
		s.turn(Answer{
			Plan: s.plan, Number: s.state.Number(s.plan, action), Purpose: ledger.PurposeUndo, Attempt: uint32(n),
			Reply: &api.Reply{Status: api.StatusDone, Worker: "w1"},
		})
		return nil
	}
	answers := map[string]pb.Answer{"done": pb.Answer_ANSWER_DONE, "fail": pb.Answer_ANSWER_FAILED,
		"stop": pb.Answer_ANSWER_STOP, "changed": pb.Answer_ANSWER_CHANGED}
	key := ledger.Key("t", s.plan, action, ledger.PurposeUndo)
	if s.planOf(s.plan) != nil && s.actionOf(s.plan, action) != nil { // of an undone plan: the key of the old one
		key = s.actionOf(s.plan, action).KeyOf(uint32(n))
	}
	return s.reportOn(s.plan, action, uint32(n), key, answers[answer])
}

// settleBy answers the question that is out about an action.
func (s *schedule) settleBy(what string) []Result {
	s.t.Helper()
	action, word, _ := strings.Cut(what, "=")
	s.answers[action+".probe"] = []string{word}
	var out []Answer
	for _, c := range s.state.InFlight() {
		if c.Plan == s.plan && c.Action == action && c.Purpose == api.PurposeProbe {
			out = append(out, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
				Reply: s.answer(c)})
		}
	}
	if len(out) != 1 {
		s.t.Fatalf("%d questions about %s are out", len(out), action)
	}
	s.turn(out...)
	return nil
}

func (w *world) report(action string, attempt uint32, key string, answer pb.Answer) []Result {
	w.t.Helper()
	return w.reportOn("p", action, attempt, key, answer)
}

func (w *world) reportOn(plan, action string, attempt uint32, key string, answer pb.Answer) []Result {
	w.t.Helper()
	return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"},
		&pb.Record{Plan: plan, Action: action,
			Kind: &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{Attempt: attempt, Key: key,
				Answer: answer, Code: "c"}}})
}

// outcome is the state of plan p, its actions, and in brackets what workers
// undid, in that order.
func (w *world) outcome() string {
	w.t.Helper()
	return w.show("p").State + ": " + w.undos("p") + " [" + strings.Join(w.undone, " ") + "]"
}

package door

import "encoding/json"

// States of an Acted.
const (
	StateAccepted = "accepted" // the ledger has taken the pair, and no outcome is known
	StateStaged   = "staged"   // it is made once the plan is committed: nothing is to be called
	StateWaiting  = "waiting"  // it is stored, and waits for a verdict: ask again
	StateRecorded = "recorded" // what became of it is known: nothing is to be called
)

// Acted answers plan.act and plan.report.
type Acted struct {
	Plan   string `json:"plan" doc:"the plan"`
	Action string `json:"action" doc:"the action"`
	State  string `json:"state" enum:"accepted,staged,waiting,recorded" doc:"accepted: call the tool, then plan.outcome. staged: call nothing, a worker makes the act once the plan is committed. waiting: for a verdict; ask again. recorded: what became of it is known"`
	// Repeated is set where an earlier call has registered the action: who does not know whether
	// the tool was called for that one must not call it.
	Repeated bool            `json:"repeated,omitempty" doc:"an earlier call has registered it: call the tool only if you know that it was not called"`
	Number   int             `json:"number,omitempty" doc:"of the action in the plan"`
	Key      string          `json:"key,omitempty" doc:"idempotency key for the tool"`
	Sequence int             `json:"sequence,omitempty" doc:"of the commit with the pair in the ledger"`
	Outcome  string          `json:"outcome,omitempty" enum:"completed,failed,in_doubt,unknown" doc:"where it is recorded"`
	Code     string          `json:"code,omitempty" doc:"of what failed or is in doubt: not_taken, blocked, redirected, no_verdict, not_started, error and others"`
	Message  string          `json:"message,omitempty" doc:"of what failed or is in doubt"`
	Output   json.RawMessage `json:"output,omitempty" doc:"of what completed"`
	By       string          `json:"by,omitempty" doc:"the supervisor who blocked or redirected it"`
	Problem  string          `json:"problem,omitempty" doc:"why not all of the output is recorded"`
}

// Told answers plan.outcome.
type Told struct {
	Plan    string `json:"plan" doc:"the plan"`
	Action  string `json:"action" doc:"the action"`
	Outcome string `json:"outcome" enum:"completed,failed,in_doubt" doc:"as recorded"`
	Problem string `json:"problem,omitempty" doc:"why not all of the output is recorded"`
}

// State answers plan.begin, plan.savepoint, plan.unwind_to, plan.deadline, plan.commit, plan.fail,
// plan.cancel and plan.wait.
type State struct {
	Plan        string   `json:"plan" doc:"the plan"`
	State       string   `json:"state" doc:"open, committing, committed, unwinding, compensated, quarantined, failed or resolved"`
	Reason      string   `json:"reason,omitempty" doc:"of the state"`
	Ended       bool     `json:"ended" doc:"it stays so, unless its owner answers a quarantine"`
	UndoneAs    string   `json:"undone_as,omitempty" doc:"of a committed plan, which stays committed: the plan that undoes it, or a part of it; plan.get of this plan names the acts that were undone, and plan.wait of the other one waits for them"`
	Outstanding []string `json:"outstanding,omitempty" doc:"actions that wait for the owner"`
	Doubts      []Doubt  `json:"doubts,omitempty" doc:"what its commit waits for; in plan.wait with settled, of an open plan, those that are asked about"`
	Settled     bool     `json:"settled,omitempty" doc:"in plan.wait with settled: of no other action than those of unknown it is in doubt whether it happened"`
	Unknown     []Doubt  `json:"unknown,omitempty" doc:"in plan.wait with settled, of a plan that is open, or whose commit waits for its owner: actions that nothing asks about, with why, the first 100; its end settles them, or its owner does"`
	DeadlineAt  string   `json:"deadline_at,omitempty" doc:"when it is undone if it is still open"`
	DeadlineSet int      `json:"deadline_set,omitempty" doc:"sequence of the record that has set that deadline, or that opened a plan without one: follows of plan.deadline"`
	Writer      string   `json:"writer,omitempty" doc:"whose requests it takes"`
	Actions     int      `json:"actions,omitempty" doc:"of a savepoint: how many are before it"`
	// Delivery is not told by plan.get and plan.resume, which say it of each act.
	Delivery *Delivery `json:"delivery,omitempty" doc:"of a committed plan, in plan.wait and plan.commit: what became of the acts that were staged"`

	whole bool // all of it is being undone, and it is not open again afterwards
}

// Delivery is what became of the acts that were staged in a committed plan, and in those that are a
// part of it: of those, plan/action. Each list has the first 100.
type Delivery struct {
	Plan      string   `json:"plan,omitempty" doc:"the plan that delivers them; none while they are staged"`
	State     string   `json:"state" enum:"staged,delivering,delivered,failed,quarantined,resolved" doc:"staged: the plan is a part of one that is not committed yet. delivering: not all is known yet. failed: all were dropped. quarantined: some wait for the owner"`
	Delivered []string `json:"delivered,omitempty"`
	Dropped   []string `json:"dropped,omitempty" doc:"that are not made any more"`
	Waiting   []string `json:"waiting,omitempty" doc:"that are not made yet, or left to be"`
	Owner     []string `json:"owner,omitempty" doc:"that wait for the owner's word"`
}

// Doubt is an action that a commit waits for.
type Doubt struct {
	Action string `json:"action"`
	Owner  bool   `json:"owner,omitempty" doc:"it waits for the owner's word"`
	Waits  string `json:"waits" doc:"for what"`
}

// Plan answers plan.get and plan.resume.
type Plan struct {
	State
	Label      string   `json:"label,omitempty"`
	Owner      string   `json:"owner,omitempty"`
	Savepoints []string `json:"savepoints,omitempty" doc:"that the plan can go back to"`
	Rewinds    int      `json:"rewinds,omitempty" doc:"number of the last plan.unwind_to"`
	Acts       []Acts   `json:"acts" doc:"the actions, as they were registered"`
}

// Acts is one action of a Plan.
type Acts struct {
	Action      string          `json:"action"`
	Number      int             `json:"number"`
	Capability  string          `json:"capability"`
	Key         string          `json:"key"`
	Sequence    int             `json:"sequence"`
	Outcome     string          `json:"outcome" enum:"completed,failed,in_doubt,unknown"`
	Staged      bool            `json:"staged,omitempty" doc:"a worker makes it once the plan is committed: of that delivery tells, and outcome does not"`
	Delivery    string          `json:"delivery,omitempty" enum:"staged,delivering,delivered,dropped,owner" doc:"of a staged act, what became of it. staged: the plan is not committed. owner: it waits for the owner's word, or has it"`
	Code        string          `json:"code,omitempty"`
	Message     string          `json:"message,omitempty"`
	Output      json.RawMessage `json:"output,omitempty" doc:"sealed values stay sealed"`
	Incomplete  bool            `json:"incomplete,omitempty" doc:"not all of its output is recorded"`
	ExternalRef string          `json:"external_ref,omitempty"`
	Verdict     string          `json:"verdict,omitempty"`
	Undone      bool            `json:"undone,omitempty" doc:"what it did is not there any more: the plan goes on without it, or was undone after its commit"`
}

// Fact answers fact.put and fact.retract.
type Fact struct {
	Sequence int             `json:"sequence" doc:"of the record"`
	Fact     json.RawMessage `json:"fact" doc:"what is so now"`
}

// Given answers verdict.give.
type Given struct {
	Plan     string `json:"plan"`
	Action   string `json:"action"`
	Verdict  string `json:"verdict"`
	Sequence int    `json:"sequence" doc:"of the record"`
	State    string `json:"state" doc:"of the plan now"`
	Note     string `json:"note,omitempty" doc:"that the plan is committed, where the verdict has undone nothing; that the action is undone with its child plan; what became of a staged act; that an allowed action has failed before"`
	UndoneAs string `json:"undone_as,omitempty" doc:"of a committed plan: the plan that undoes it"`
	UndoneIn string `json:"undone_in,omitempty" doc:"of a committed child plan that is not yet committed with its root: the plan that undoes the action, with all of the child; note says when"`
}

// Raw is what an executor answers, as it is.
type Raw = json.RawMessage

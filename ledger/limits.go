package ledger

import (
	"cmp"
	"time"
)

// Limits on what a ledger takes. They are part of the format: a reader refuses
// what exceeds them, so they only ever grow.
const (
	CommitSizeMax = 64 << 10 // bytes of one commit, and so of one record
	HeaderSizeMax = 1 << 10  // bytes of headers that a commit may carry beside
	CommitLenMax  = 1024     // records in one commit
	TokenLenMax   = 64       // bytes of a tenant, agent, plan, action or other name in a subject
	FactKeyMax    = 256      // bytes
	TextMax       = 4 << 10  // bytes of a reason, label or message
	TraceMax      = 64       // bytes of a W3C traceparent
	TriggersMax   = 16       // triggers of one plan or registration
	BindingsMax   = 64       // arguments of one compensation
	ArgumentsMax  = 60 << 10 // bytes of their values: there is room for the record beside them
	AfterMax      = 256      // dependencies of one action
	SavepointsMax = 256      // that one plan has at the same time
	ExpressionMax = 4 << 10  // bytes of one CEL expression

	RequestKeysMax = 64       // facts that one request of an operator names
	UndoFactMax    = 32 << 10 // bytes of a value that a compensation asserts
	PlanInputMax   = 16 << 10 // bytes of what a plan is opened with
	ElementsMax    = 16       // other actions, and facts, that the expressions of a registration read
	FrozenFactMax  = 4 << 10  // bytes of a fact that is kept with a registration that reads it

	// IDsKept is how many ids of a writer's records a tenant keeps, those that were made last; an
	// earlier one is refused, since it may be that of a copy. IDAheadMax is by how much an id may
	// have been made after the ledger's time: clocks differ.
	IDsKept    = 1 << 16
	IDAheadMax = 24 * time.Hour

	ContractMax = 32 << 10 // bytes of a published contract
	ToolsMax    = 32       // that one agent task may call
	PromptMax   = 8 << 10  // bytes of an agent task's prompt
	FoundMax    = 16 << 10 // bytes that are kept of what someone else has changed, as it is now

	AttemptsMax    = 100
	BackoffMax     = 24 * time.Hour
	TimeoutMax     = 24 * time.Hour
	GraceMax       = time.Hour
	SettleMax      = 30 * 24 * time.Hour
	UnservedMax    = 30 * 24 * time.Hour
	AskAfterMax    = 30 * 24 * time.Hour
	ConcurrencyMax = 1024

	// DeadlinePastMax is by how much the deadline of a plan may have passed when its
	// PlanOpened is stored: clocks differ, and an append may have waited for a server.
	DeadlinePastMax = time.Hour
)

// What a registration means that leaves them 0.
const (
	GraceDefault = 2 * time.Second // for which a forward runs on once its plan unwinds
	// for a forward that ends with its caller (late: never), and has no outcome
	NeverSettles    = 5 * time.Second
	SettleDefault   = 30 * time.Second // that a forward without a timeout may take to land
	UnservedDefault = time.Hour        // that no one may take a call before its action is its owner's
	AskAfterDefault = time.Minute      // that a doubt of an open plan lasts before the probe is asked
)

// SettleNs is the longest, in ns, that a forward may take to land, as a registration with
// this settle and timeout means it; 0 is not given.
func SettleNs(settle, timeout int64) int64 {
	return cmp.Or(settle, timeout, int64(SettleDefault))
}

// ReaderVersion is the version of this reader: it folds every commit whose min_reader is at most
// this. A commit asks for the lowest that folds it, by what its records say and by the rules of the
// holder whose term it begins (readersOfTerms); a commit without either asks for 1.
const ReaderVersion = 24

// ScopedSince is the version of a holder's fold from which on a condition or a verdict on an
// action that does not say what it undoes undoes that action, and not its plan.
const ScopedSince = 10

// BoundedSince is the version of a holder's fold from which on a plan that an outcome opens is
// bounded by what its tenant may do, as one that its agent opens; and a suspended tenant takes
// facts, and any tenant retractions, because they may undo what is committed otherwise.
const BoundedSince = 11

// KeptSince is the version of a holder's fold from which on a condition that has turned is
// acted upon after the unwind of a part, and what that part does not undo is asked for apart.
const KeptSince = 11

// FollowsSince is the version of a holder's fold from which on a process that resumes a plan
// and names the writer that it follows does so only while that one is the plan's; and a worker's
// own record about a command shows the token that came with it, where the dispatch asks for one.
const FollowsSince = 13

// TextsSince is the version of a holder's fold from which on a text that people read is made valid
// and cut, and no record is refused for it; and a value that an undo may read is exact, or refused,
// or left out.
const TextsSince = 14

// LaterSince is the version of a holder's fold from which on each message is later in logical
// time than the one before, also where neither its stamp nor its epoch is: what came after what
// is decided by the order in the ledger, whatever the clocks say.
const LaterSince = 14

// NamedSince is the version of a holder's fold from which on a contract that has a probe and
// does not say what to do in doubt is asked first, also where late is refused; and an undo that
// takes the name of its effect from an output or a reference is not sent while neither is known.
const NamedSince = 14

// PartialSince is the version of a holder's fold from which on a field of a worker's report that
// cannot be read costs only itself, where it does not say what was done (Entry.Partial).
const PartialSince = 14

// CopiesSince is the version of a holder's fold from which on a record that has an id counts once.
const CopiesSince = 15

// NumbersSince is the version of a holder's fold from which on conditions and bindings read numbers
// alike and exactly, a fact of the same value has not changed, however it is written, and a
// duration or an instant that is out of range (CheckSpans) is refused.
const NumbersSince = 15

// FoundSince is the version of a holder's fold from which on the name of an effect that a probe
// found is what the next attempt is sent with.
const FoundSince = 15

// NewKeySince is the version of a holder's fold from which on an owner may have an undo tried
// again under another key. What asks for one under an earlier holder is refused, as that holder's
// reader does; where it hides that from it, by its min_reader, it asks for a retry and no more.
const NewKeySince = 15

// AskedSince is the version of a holder's fold from which on the probe is asked about a doubt of an
// open plan, and an extra effect that it finds then is undone.
const AskedSince = 16

// ReachesSince is the version of a holder's fold from which on verdicts, and the conditions that
// say so, reach what is committed while it may be undone.
const ReachesSince = 16

// UnchangedSince is the version of a holder's fold from which on a contract may ask, before an
// undo, whether what the action left is unchanged.
const UnchangedSince = 16

// VerdictWantedSince is the version of a holder's fold from which on whoever is to judge is paged
// when an action waits for a verdict.
const VerdictWantedSince = 17

// AskedOnSince is the version of a holder's fold from which on a question about a doubt of an open
// plan that no one serves is asked again.
const AskedOnSince = 17

// AfterCommitSince is the version of a holder's fold from which on a condition may be held after
// the commit of its plan, inside undo windows.
const AfterCommitSince = 18

// EffectsSince is the version of a holder's fold from which on operators may report that an effect
// is there.
const EffectsSince = 18

// StillHeldSince is the version of a holder's fold from which on a supervisor allows only what is
// still held: an action that was undone before its forward was called is not called any more.
const StillHeldSince = 18

// PartsSince is the version of a holder's fold from which on a child plan that its parent has let
// go is no part of what the parent is a part of.
const PartsSince = 18

// LastActSince is the version of a holder's fold from which on an irreversible act that is the last
// of its plan does not stop an unwind, in a plan that does not say so. A plan that was opened
// before does not.
const LastActSince = 18

// LeftOutSince is the version of a holder's fold from which on what the undo of a part of a
// committed plan leaves out stays there, whatever becomes known of its forward.
const LeftOutSince = 19

// TakenBackSince is the version of a holder's fold from which on a part that one of before
// PartsSince gave up by mistake is held again as soon as anything is said of it.
const TakenBackSince = 19

// ReturnedSince is the version of a holder's fold from which on what an agent says of an effect
// that an operator has reported counts also while the world is asked before the first attempt.
const ReturnedSince = 19

// SeenSince is the version of a holder's fold from which on what is said of a forward adds nothing
// to an effect that a probe has seen and that is undone by its name; of another effect, it does.
// And what operators have reported of an action leaves room for its agent's own word.
const SeenSince = 20

// ThereSince is the version of a holder's fold from which on an effect that someone has found is
// there until it is undone or found gone, though its agent says that the forward has failed, or has
// done something else.
const ThereSince = 21

// ActiveSince is the version of a holder's fold from which on a condition may read when the agent
// of its plan last wrote.
const ActiveSince = 21

// AnsweredSince is the version of a holder's fold from which on an action that its owner has left
// as it is stays so when another part of its plan is undone: what would undo it fires no more.
const AnsweredSince = 22

// StagedSince is the version of a holder's fold from which on an act may be staged: it is made by
// the executor once its root has committed, and not by its caller.
const StagedSince = 22

// SurplusSince is the version of a holder's fold from which on an action of which a commit has
// found more than one effect is its owner's, whatever its agent says of it.
const SurplusSince = 23

// MovedSince is the version of a holder's fold from which on the deadline of a plan may be moved.
const MovedSince = 23

// RewindsSince is the version of a holder's fold from which on a plan that an operator has had go
// back to a savepoint is committed only by an agent that knows of it.
const RewindsSince = 24

// PrefixSince is the version of a holder's fold from which on a condition may ask about the facts
// whose keys begin with a prefix.
const PrefixSince = 24

// DirtySince is the version of a holder's fold from which on an undo follows a dirty failure also
// where its effect is known by now, but not from its agent.
const DirtySince = 24

// AdoptedSince is the version of a holder's fold from which on an operator may hand an open plan to
// another agent.
const AdoptedSince = 24

// OthersSince is the version of a holder's fold from which on expressions read other actions, facts
// and what their plan was opened with.
const OthersSince = 25

// AttachEndsSince is the version of a holder's fold from which on the token by which other agents
// attach children to a plan ends when the plan is handed to another agent.
const AttachEndsSince = 25

// GivenUpSince is the version of a holder's fold from which on the conditions that a child plan
// gave up with its commit stay given up, whatever its agent writes after that.
const GivenUpSince = 26

// ComparedSince is the version of a holder's fold from which on an undo that was to bar a forward
// is compared with what is there first, once something was found there.
const ComparedSince = 26

// BesidePartSince is the version of a holder's fold from which on a verdict that is to undo a plan
// does so also where its action was undone before, in a part of the plan.
const BesidePartSince = 26

// DoubtedSince is the version of a holder's fold from which on a doubt about a forward is believed
// after its failure, from a process that goes on with the plan since: it may have called it again.
const DoubtedSince = 27

// OwnerFirstSince is the version of a holder's fold from which on nothing is dispatched ahead of an
// owner's look at an action that may have been undone twice; a blind undo of what is owed as
// another action is not tried again; and what its worker calls done while its next attempt waits,
// and cannot be checked, is its owner's.
const OwnerFirstSince = 28

// WholeSince is the version of a holder's fold from which on a verdict that is to undo a plan does
// so also where its action is in a child that was committed, and is undone in a part of the plan or
// was.
const WholeSince = 29

// AllFoundSince is the version of a holder's fold from which on a report of further effects of an
// action has undone what a commit has found beside it as well.
const AllFoundSince = 31

// AnytimeSince is the version of a holder's fold from which on operators report effects of a plan
// that was committed or resolved, too, and extra ones of what is committed.
const AnytimeSince = 32

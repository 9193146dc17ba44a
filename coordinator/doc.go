// Package coordinator is what an agent acts through: it pairs every action with
// its compensation in the tenant's ledger before the action's effect may cross
// the boundary. It contains no rollback logic, and its caller needs none: a plan
// that must be undone is undone by the executor, which meets the coordinator only
// in the ledger.
//
// # Model
//
// A Coordinator serves one agent of one tenant. Begin gives a plan; Do runs one
// action of it in three steps:
//
//  1. the pair (the forward and its compensation) is appended as one commit,
//  2. the forward runs, once the pair is acknowledged as durable,
//  3. its outcome is queued and shares the commit of whatever comes next.
//
// An outcome that nothing follows is appended by itself after LingerMax, so that
// a sequence of n actions costs n commits and one for its end. All calls of one
// Coordinator share a committer: one append is in flight, and what arrives
// meanwhile goes into the next commit (group commit), so throughput grows with
// concurrency while every caller waits only for the commit with its records.
//
// A contract may add two steps: what is there before is asked for ahead of 1 and
// kept with the pair, and a supervisor's verdict is waited for between 1 and 2.
//
// Commit, Fail and Cancel end the plan; UnwindTo goes back to a savepoint and the
// plan goes on. A child plan (PlanSpec.Parent) is a part of its parent's order: what it
// did stays held until the outermost plan commits. A tool error by itself undoes
// nothing: Do returns it and the agent decides.
//
// What undoes an action, and what is asked before and after, is a contract: package
// contract, in code or published by an operator.
//
// # Replay
//
// Package replay runs a function under a plan that survives its process: run again, actions
// that are recorded return what is recorded. There, and only there, what undoes an action may
// be a handler in the agent's code. It is made of a Claim.
//
// # Doubt
//
// An append whose reply is lost is in doubt. The committer tries the same bytes
// under the same ID until it knows, and sends nothing after them before that,
// so that the records of a plan are stored in the order of its calls. A caller
// that gives up gets an error that wraps ErrInDoubt and may call again
// with the same Action.ID: the call joins the pair that is under way. The fold
// keeps the first record of every action, so there is never a second one.
//
// docs/agents.md says the same for users, with a list of the errors.
package coordinator

// Package replay runs functions that survive their process.
//
// Run calls a function under a plan. After a crash the same function runs again under the same
// plan: actions that are recorded return what is recorded, and the function goes on where it was.
// What undoes an action may be a handler in the agent's code, beside the action.
//
// What a function does differently from what is recorded ends the run with *Diverged, before
// anything is done; a plan that is undone ends it with *Unwound. The other errors are those of
// package coordinator.
//
// docs/guide/replay.md is the same for users.
package replay

// Package agentloop carries out undos that need more than one tool: a model is
// given the task that was frozen with the registration and calls the tools that it
// names, turn by turn. A New value is a worker.Handler.
//
// # What holds whatever the model says
//
// The prompt of a task says what to undo; it cannot change the rules.
// Preamble states them to the model in each request, and the loop enforces them:
//
//   - Only tools of the frozen task are called. Any other call is answered as
//     refused and counted.
//   - A tool that has failed is not called again, and no call is made twice: the
//     contract decides about attempts, not the model.
//   - Every call carries the key of the undo, the same in each attempt.
//   - There are at most max_turns requests to the model. A loop that has not come
//     to an end then has failed; it is never taken for done.
//   - A model that says done has failed all the same when it called no tool, or
//     when a tool failed.
//
// A task with a single tool needs no model: the tool is called once with the
// arguments of the command.
//
// # Format
//
// The model is asked over the chat completions protocol that most providers and
// local servers speak: a POST of {model, messages, tools}, answered with one
// message that calls tools or ends the loop with
//
//	{"status": "done"|"failed"|"stop", "code": "...", "message": "...", "external_ref": "..."}
package agentloop

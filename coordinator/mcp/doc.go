// Package mcp is a gateway between an MCP client and MCP servers that has the calls of
// the client undone: a call of a tool with a contract is an action of a plan.
//
// # Model
//
// A Server is an MCP server that runs as a child of this process, with the Pack that says what its
// tools do: nothing, something that a recipe undoes, or something that nothing undoes. A Gateway
// passes on what the client and its servers say to each other, byte for byte where it matters, and
// only steps in where a tool has an effect:
//
//  1. what the contract wants to know before is asked of the server, or of the local files,
//  2. the pair of forward and compensation is appended and durable,
//  3. the tool is called, and what it has left is looked at,
//  4. its outcome is recorded.
//
// A call without an outcome (a timeout, a server that has ended) is in doubt. So is an error of a
// tool, unless the contract says that nothing has happened, or all is as it was.
//
// # Undo
//
// The compensation has the recipe itself among its arguments: it is frozen with the registration.
// Server.Serve has a worker carry out recipes, in any process that can start the same server on the
// same data. The undo looks at what is there now and changes nothing that someone else has changed
// since; it says so instead, and the action is its owner's.
//
// Calls with an effect and undos of one server come one after the other, in all processes of a
// machine, so that what is there before a call and after it is exact.
//
// docs/guide/mcp.md says the same for users.
package mcp

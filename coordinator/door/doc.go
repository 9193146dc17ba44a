// Package door is the coordinator, hosted: agents in any language come in through it. It does for
// a remote agent what package coordinator does in the agent's process, and is made of it: it
// looks up the published contract, asks what is there before, makes the pair, appends it, waits
// until the ledger has taken it, and only then says that the agent may call its tool.
//
// # Verbs
//
// One table of verbs ([Verbs]) is served over NATS, on api.DoorSubject, and over HTTP, as POST
// /v1/TENANT/NAME/VERB with the same JSON; /openapi.json is made of it. What a verb takes and
// answers are Go types, and the same types decode a request strictly: an unknown field, a field
// of another type and a field that is there twice are refused, and the refusal ([Error]) names
// the field and what would be right. Whether anything was stored is in each of them.
//
// # Doing an action
//
//	plan.begin    the plan is in the ledger
//	plan.act      the pair is in the ledger and taken: the agent calls its tool, with the key
//	plan.outcome  what became of that
//	plan.commit
//
// # What is lost with a host
//
// Nothing that a verb has answered. The door keeps plans in memory only to be quick: after a
// crash, or when it has forgotten them, each verb goes on from the ledger
// ([coordinator.Coordinator.Recall]). A verb is repeated with the same ids and gives the same
// answer, or what is recorded by now. Each process of an agent is a writer, which it names itself,
// so that its requests before and after a crash of the host are those of one writer; plan.resume
// makes another writer the one of a plan.
package door

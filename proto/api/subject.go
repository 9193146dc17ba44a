package api

import (
	"fmt"
	"strings"
)

// UndoSubject is where commands for a capability of a tenant are sent.
func UndoSubject(tenant, capability string) string { return "undo." + tenant + "." + capability }

// AskSubject is where questions that change nothing are sent.
func AskSubject(tenant, capability string) string { return "ask." + tenant + "." + capability }

// WorkersGroup is the NATS queue group of all workers: of those that serve a capability, one
// gets each command.
const WorkersGroup = "workers"

// ReplyTokenLen is the length of the last token of a reply subject: lower-case hex
// digits of 128 random bits, new for each sending. Who was not sent the command cannot
// guess it.
const ReplyTokenLen = 32

// ReplySubject is where a host expects the answer to one sending of a command. It is
// what a worker may publish, beside its own records; the host alone subscribes to it.
func ReplySubject(tenant, token string) string { return "reply." + tenant + "." + token }

// AgentReplySubject is where an agent expects the answer to one question of its own, on
// AskSubject. The agent's name keeps it apart from the hosts' replies, and from those
// of other agents, so that permissions can.
func AgentReplySubject(tenant, agent, token string) string {
	return "reply." + tenant + "." + agent + "." + token
}

// PageSubject is where every page to an owner is published, beside the webhook
// that the host may have for the hook.
func PageSubject(tenant, hook string) string { return "page." + tenant + "." + hook }

// QuerySubject is where the holder of a tenant answers questions about its
// state, for example "plan.show". It carries no records.
func QuerySubject(tenant, verb string) string { return "query." + tenant + "." + verb }

// HostsSubject is where every host that may hold a tenant answers for itself, also one that
// stands by. It has a subject of its own because one question has many answers.
func HostsSubject(tenant string) string { return "hosts." + tenant }

// ServerSubject is where a server is asked for what belongs to no tenant: its users, and
// which tenants there are.
func ServerSubject(verb string) string { return "server." + verb }

// The verbs of ServerSubject. Those of tenants are answered by any host, the others by the
// embedded server.
const (
	TenantLs      = "tenant.ls"
	TenantErased  = "tenant.erased"
	TenantShow    = "tenant.show"
	TenantAdd     = "tenant.add"
	TenantLimit   = "tenant.limits"
	TenantSuspend = "tenant.suspend"
	TenantResume  = "tenant.resume"

	UserAdd    = "user.add"
	UserLs     = "user.ls"
	UserRotate = "user.rotate"
	UserRm     = "user.rm"
	UserTokens = "user.tokens"
	UserRevoke = "user.revoke"
)

// NoticeSubject is where the holder tells an agent what became of its plan:
// best effort, a hint and never truth.
func NoticeSubject(tenant, agent, plan string) string {
	return "notice." + tenant + "." + agent + "." + plan
}

// HistoryVerb is what HistorySubject ends with, before the agent.
const HistoryVerb = "history."

// HistorySubject is where an agent asks for what is recorded of its own plans, to
// run their functions again. The subject carries the authority: of another agent's
// plan the answer says no more than whose it is.
func HistorySubject(tenant, agent string) string {
	return QuerySubject(tenant, HistoryVerb+agent)
}

// DoorSubject is where an agent, source or supervisor asks the door of a host: the subject
// carries the authority, and the body is the request of the verb, such as "plan.act".
func DoorSubject(tenant, name, verb string) string {
	return "door." + tenant + "." + name + "." + verb
}

// RunSubject is where the process that runs a function under a plan says that it is
// there, so that a second one does not start beside it. A hint: the ledger decides.
func RunSubject(tenant, agent, plan string) string {
	return "run." + tenant + "." + agent + "." + plan
}

// YieldSubject is where a process of an agent that resumes a plan asks the one that writes it to
// let it go: a Yield, answered below the subject by an empty message, or by a Problem where the
// process keeps the plan. A hint: the ledger decides.
func YieldSubject(tenant, agent, process string) string {
	return "yield." + tenant + "." + agent + "." + process
}

// RevealSubject is where an operator asks to see a plan with its sealed values in the
// clear: a subject of its own, which neither query.> nor admin.> includes.
func RevealSubject(tenant string) string { return "reveal." + tenant }

// KeySubject is where an agent asks for the key of the sealed values of its own plans.
// The subject carries the authority: only the agent should be let publish on it, and
// read its replies. query.> does not include it, nor does admin.>.
//
// Hosts ask each other there under KeyHosts, which no agent is named.
func KeySubject(tenant, agent string) string { return "key." + tenant + "." + agent }

// AdminSubject is where an operator asks the host of a tenant to work on its own
// copies of the ledger: to repair, scrub or rebuild. Whoever may publish there can
// replace a damaged stream; query.> does not include it.
func AdminSubject(tenant, verb string) string { return "admin." + tenant + "." + verb }

// ourSubjects are the first tokens of the subjects on which messages have an effect by
// themselves.
var ourSubjects = map[string]bool{
	"saga": true, "undo": true, "ask": true, "query": true, "admin": true, "key": true,
	"reveal": true, "run": true, "notice": true, "page": true, "hosts": true, "server": true,
	"keys": true, "repair": true, "erased": true, "tenant": true, "door": true,
	"blob": true, "blobs": true, "yield": true,
}

// NoAnswer is the reply subject of a notice, which wants no answer. Whoever asks can have the
// answer sent to any subject of its account, where its own permissions would not let it publish;
// but what hosts, servers and workers answer has no reply subject. So a command, a page or a notice
// without one is none.
const NoAnswer = "_NO_ANSWER"

// CheckReplyTo reports whether a request may be answered on the reply subject that it
// names. A server does not hold reply subjects against the permissions of the one
// that names them, so whoever answers must not publish where a message has an effect of its own.
// The error is a *Mismatch.
func CheckReplyTo(reply string) error {
	const want = "an inbox of whoever asks"
	first, _, _ := strings.Cut(reply, ".")
	switch {
	case reply == "":
		return &Mismatch{"reply_to", "missing", want}
	case strings.HasPrefix(first, "$"), ourSubjects[first]:
		return &Mismatch{"reply_to", fmt.Sprintf("%.64q", reply), want}
	}
	return nil
}

// KeyHosts is in the place of the agent on KeySubject where a host asks the others for the
// tenant's key.
const KeyHosts = "$hosts"

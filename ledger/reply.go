package ledger

import (
	"fmt"
	"strings"
)

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

// Answer returns r as the answer to c: with its key and its attempt.
func (c Command) Answer(r Reply) Reply {
	r.Key, r.Attempt = c.Key, c.Attempt
	return r
}

// CheckReply reports whether a reply answers c: it repeats the key and the attempt. One
// that does not was meant for another command, or comes from a worker that does not
// speak this protocol. The error is a *Refused that names the field.
func (c Command) CheckReply(r Reply) error {
	switch {
	case r.Key != c.Key:
		return Refuse("reply.key", fmt.Sprintf("%q", cut(r.Key)), "the key of the command")
	case r.Attempt != c.Attempt:
		want := fmt.Sprintf("the attempt of the command, %d", c.Attempt)
		return Refuse("reply.attempt", fmt.Sprint(r.Attempt), want)
	}
	return nil
}

// cut keeps what a foreign program wrote short enough for a log.
func cut(text string) string {
	const most = 64
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// ourSubjects are the first tokens of the subjects on which messages have an effect by
// themselves.
var ourSubjects = map[string]bool{
	"saga": true, "undo": true, "ask": true, "query": true, "admin": true, "key": true,
	"reveal": true, "run": true, "notice": true, "page": true,
}

// CheckReplyTo reports whether a request may be answered on the reply subject that it
// names. A server does not hold reply subjects against the permissions of who names
// them, so whoever answers must not publish where a message has an effect of its own.
// The error is a *Refused.
func CheckReplyTo(reply string) error {
	const want = "an inbox of whoever asks"
	first, _, _ := strings.Cut(reply, ".")
	switch {
	case reply == "":
		return Refuse("reply_to", "missing", want)
	case strings.HasPrefix(first, "$"), ourSubjects[first]:
		return Refuse("reply_to", fmt.Sprintf("%q", cut(reply)), want)
	}
	return nil
}

// CodeWorkerVersion is the code of a reply that refuses a command because its
// registration asks for another version of the worker (S7).
const CodeWorkerVersion = "worker_version"

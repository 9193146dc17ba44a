package executor

import (
	"cmp"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A call that no one takes. It waits for a worker and spends no attempt; but not for
// ever: behind unserved_after its action is its owner's (S50, S102). That no one serves a
// capability is seen by the host only, and its record says so. For how long, the fold
// counts itself, from the record that made the call.

func unservedAfter(c *pb.CompensationRegistered) int64 {
	return cmp.Or(c.GetUnservedAfterNs(), int64(ledger.UnservedDefault))
}

// unservedFrom is the epoch from which on the call that is out may be given up because
// no one takes it; 0: never.
func unservedFrom(a *action) int64 {
	switch {
	case a.row.Undo != rowspb.Undo_UNDO_DISPATCHED || a.fixed.Child != "":
		return 0
	case a.row.Asking != pb.Question_QUESTION_UNSPECIFIED:
		return plusNs(a.row.AskedNs, unservedAfter(a.fixed.Compensation))
	case inMemory(a):
		return 0
	default: // not while a worker that has it may be at work
		return plusNs(max(a.row.DispatchedNs, a.row.AliveUntilNs), unservedAfter(a.fixed.Compensation))
	}
}

// reachedBefore reports whether an attempt before the present one, or a copy of it, may
// have come to a worker that has not said what became of it.
func reachedBefore(a *action) bool { return a.row.AliveUntilNs != 0 }

// unserved says why an attempt must not be given up for want of a worker, or "".
func unserved(e ledger.Entry, a *action, inDoubt bool) string {
	switch from := unservedFrom(a); {
	case from == 0:
		return "the undo of action " + a.fixed.Id + " needs no worker"
	case e.Record.EpochNs < from:
		return "a worker may take the undo of action " + a.fixed.Id + " until " + instant(from)
	case reachedBefore(a) && !inDoubt:
		return "an attempt of action " + a.fixed.Id +
			" may have come to a worker, and the record has no doubt"
	}
	return ""
}

// unservedQuestion is unserved for a question.
func unservedQuestion(e ledger.Entry, a *action, k *pb.ProbeAnswered) string {
	switch from := unservedFrom(a); {
	case k.Presence != pb.Presence_PRESENCE_UNSPECIFIED:
		return "nobody answered the question about action " + a.fixed.Id + ", and yet it found something"
	case e.Record.EpochNs < from:
		return "a worker may take the question about action " + a.fixed.Id + " until " + instant(from)
	}
	return ""
}

// unservedText says for how long no one has taken a call.
func unservedText(p *plan, a *action, capability string) string {
	c := a.fixed.Compensation
	who := "no worker serves " + capability
	if c.HandlerVersion != "" && capability == c.Capability {
		who = "no process offers " + api.HandlerText(a.fixed.Id, c.HandlerVersion, p.row.Agent)
	}
	return who + " for " + time.Duration(unservedAfter(c)).String()
}

// also puts what came of an attempt that no one served behind why it was given up.
func also(a *action, note string) string {
	if !a.row.Unserved {
		return note
	}
	return clip(a.row.Note + "; " + note)
}

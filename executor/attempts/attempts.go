// Package attempts tells the attempts of one undo, or of one delivery, apart as their provider
// does.
//
// Attempts under different keys are different undos to their provider: that one of them is done
// says nothing of the other, and where both are, it was undone twice. So it is with two attempts of
// a delivery, unless the provider remembered the key of the first when it was sent the second. So a
// delivery that may have been made is sent again only while that is certain.
package attempts

import (
	"math"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Of are the attempts of one action.
type Of struct {
	Row      *rowspb.ActionRow
	Delivers bool // the action is a delivery, and no undo

	TimeoutNs int64 // of one attempt
	SettleNs  int64 // for which a delivery may land; 0: its timeout
	DedupeNs  int64 // for which its provider remembers the key; 0: for ever, or of a delivery never
}

// NoteProbed is why an action is its owner's after the last question about it, before what was
// answered.
const NoteProbed = "in doubt, and the probe is "

// Ended says that the last attempt of an undo has failed, and why no other follows; without an
// answer it is in doubt, unless a probe has found the effect since.
func (o Of) Ended(c *pb.CompensationRegistered, why string) string {
	switch {
	case strings.HasPrefix(why, NoteProbed):
		return c.Capability + ": " + why
	case o.Row.Answered == o.Row.Attempt || c.Probe != nil:
		return c.Capability + " failed: " + why
	default:
		return c.Capability + " is in doubt: " + why
	}
}

// LandsIn is for how long, in ns, an attempt may land that had no answer.
func (o Of) LandsIn() int64 {
	if o.Delivers {
		return ledger.SettleNs(o.SettleNs, o.TimeoutNs)
	}
	return o.TimeoutNs
}

// FailedDirty reports whether a forward timed out, or its agent vanished, so that it may have
// happened in part: the agent has not said that it is completed, whatever else is known of its
// effect by now. reported: that it is completed is the word of an operator.
func FailedDirty(row *rowspb.ActionRow, reported bool) bool {
	return row.Outcome != rowspb.Outcome_OUTCOME_COMPLETED || reported
}

// Unsure reports whether no one knows of an attempt since the owner's last word whether it was
// carried out.
func (o Of) Unsure() bool { return o.Row.Unsure > o.Row.AttemptsFrom }

// MayRepeat reports whether the next attempt of a delivery cannot make the act twice: its provider
// knows the key for as long as it may land. The clock of this holder may be behind that of the one
// before: without a promise no time is early enough.
func (o Of) MayRepeat(ns int64) bool {
	return !o.Unsure() || o.DedupeNs > max(ns-o.Row.SentNs, 0)+o.LandsIn()
}

// ResendUntil is the instant after which no copy of a command is sent; 0: there is none. One of a
// delivery must not land later either.
func (o Of) ResendUntil() int64 {
	known := min(o.Row.SentNs, math.MaxInt64-o.DedupeNs) + o.DedupeNs
	switch {
	case o.DedupeNs == 0 && o.Delivers:
		return 1 // by whatever clock
	case o.DedupeNs == 0:
		return 0
	case o.Delivers:
		return max(known-o.LandsIn()-1, 1)
	default:
		return known
	}
}

// Leave notes of a delivery that from an instant on no one waits for the attempt that is out.
func (o Of) Leave(ns int64) {
	if o.Delivers {
		o.Row.Unsure = o.Row.Attempt
		o.Row.AliveUntilNs = max(o.Row.AliveUntilNs, ns+o.LandsIn())
	}
}

// Key is the key that the owner has asked for before an attempt, or "" for the first key.
func (o Of) Key(attempt uint32) string {
	for _, k := range slices.Backward(o.Row.Keys) {
		if attempt > k.After {
			return k.Key
		}
	}
	return ""
}

// same reports whether two attempts are one to their provider.
func (o Of) same(m, n uint32) bool {
	forgot := o.Row.Forgotten
	return o.Key(m) == o.Key(n) &&
		(m == n || forgot == 0 || max(m, n) < forgot || !o.Delivers)
}

// MayForget notes an attempt, sent at an instant, that may land after the time for which the
// provider of a delivery promises to remember the key: from there on it need not know it any more.
func (o Of) MayForget(attempt uint32, ns int64) {
	if o.Delivers && attempt > 1 && o.Row.Forgotten == 0 &&
		ns+o.LandsIn()-o.Row.SentNs >= o.DedupeNs {
		o.Row.Forgotten = attempt
	}
}

// SentAnew reports whether an attempt was followed by one that is another to its provider.
func (o Of) SentAnew(attempt uint32) bool {
	return attempt < o.Row.Attempt && !o.same(attempt, o.Row.Attempt)
}

// ReportedDone reports whether a word that an attempt is done waits to be recorded.
func (o Of) ReportedDone() bool { return o.Row.Reported.GetAnswer() == pb.Answer_ANSWER_DONE }

// Twice reports whether a word that an attempt is done tells of another undo than the one that
// was said to be done last.
func (o Of) Twice(attempt uint32) bool {
	said := o.Row.Reported.GetAttempt()
	switch {
	case o.Delivers && o.Row.Outcome == rowspb.Outcome_OUTCOME_COMPLETED:
		return !o.HeardDone(attempt)
	case o.Delivers:
		return o.ReportedDone() && !o.same(said, attempt)
	case !o.SentAnew(attempt):
		return false
	case o.Row.Undo == rowspb.Undo_UNDO_COMPENSATED:
		return true
	case o.Row.Pending != nil:
		said = o.Row.Pending.Attempt
	case !o.ReportedDone():
		return false
	}
	return !o.same(said, attempt)
}

// HeardDone reports whether an attempt, or a later one under its key, was called done.
func (o Of) HeardDone(attempt uint32) bool {
	return slices.ContainsFunc(append(slices.Clip(o.Row.SaidEarlier), o.Row.SaidDone),
		func(said uint32) bool {
			return said != 0 && (attempt <= said || o.Delivers) && o.same(attempt, said)
		})
}

// NoteDone keeps that an attempt was called done.
func (o Of) NoteDone(attempt uint32) {
	if o.HeardDone(attempt) {
		return
	}
	if said := o.Row.SaidDone; said != 0 && !o.same(said, attempt) {
		o.Row.SaidEarlier = append(slices.Clip(o.Row.SaidEarlier), said)
	}
	o.Row.SaidDone = attempt
}

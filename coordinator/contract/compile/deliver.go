package compile

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// What is staged is delivered by the capability itself once its plan is committed.

// Stages reports whether each act under this contract is staged, and MayStage whether one may be.
func (c *Compiled) Stages() bool { return c.stages }

// MayStage reports whether an act under this contract may be staged.
func (c *Compiled) MayStage() bool { return c.deliver != nil }

// StagedPair is Pair for an act that is staged.
func (c *Compiled) StagedPair(plan, action, key string, f *pb.ForwardRegistered) (forward,
	undo *pb.Record) {
	f.Class, f.ContractDigest = classes(c.Class), c.Digest[:]
	f.SettleNs, f.Deliver = int64(c.Settle), c.deliver
	forward = &pb.Record{Plan: plan, Action: action,
		Kind: &pb.Record_ForwardRegistered{ForwardRegistered: f}}
	undo = &pb.Record{Plan: plan, Action: action, Kind: &pb.Record_CompensationRegistered{
		CompensationRegistered: &pb.CompensationRegistered{Key: key, Triggers: c.inverse.Triggers}}}
	return forward, undo
}

// sent is what a worker is sent under this contract: the delivery, or else the inverse; and the
// field that it is in.
func (c *Compiled) sent() (call *pb.CompensationRegistered, field string) {
	if c.deliver != nil {
		return c.deliver, "deliver"
	}
	return c.inverse, "inverse"
}

// checkStage holds the rules between a delivery and the other fields.
func (x *compiler) checkStage(c contract.Contract) {
	oneOf(x, "stage", c.Stage, "", contract.StageCommit)
	beside := func(field string, is bool, want string) {
		if is {
			x.refuse(field, "given for what is staged", want)
		}
	}
	switch staged := c.Stage == contract.StageCommit; {
	case c.Deliver == nil && staged:
		x.refuse("stage", "commit, and nothing says how it is delivered",
			"deliver, as in with: {to: =input.to}")
	case c.Deliver == nil:
	case c.Class != contract.Irreversible:
		x.refuse("deliver", "given for a capability of class "+string(c.Class),
			"class irreversible: what has an inverse is undone, and need not wait for the commit")
	case staged:
		beside("timeout", c.Timeout != 0, "deliver.timeout: no caller waits for it")
		beside("grace", c.Grace != 0, "none: no caller waits for it")
		beside("review", c.Review, "none: a verdict on it drops it until its plan is committed")
	}
}

// checkDeliverRanges is checkRanges of a delivery.
func (x *compiler) checkDeliverRanges(d *contract.Deliver) {
	x.asked("deliver", d.Timeout, d.Attempts, d.Backoff)
	x.backoff("deliver", d.Backoff, d.BackoffMax, *d.Jitter)
	x.window("deliver.dedupe", d.Dedupe)
	x.atMost("deliver.worker_version", d.WorkerVersion, ledger.TokenLenMax)
}

// checkDeliverReads refuses what reads what nothing has left yet: nothing was called before.
func (x *compiler) checkDeliverReads(c contract.Contract) {
	roots := []string{"input", "plan", "meta", "actions", "facts"}
	d := c.Deliver
	x.checkWith("deliver.with", d.With, x.programs.Binding, roots...)
	x.readerOver("deliver.done", d.Done, "bool", append(roots, "error", "result"))
	x.readerOver("deliver.stop", d.Stop, "bool", append(roots, "error", "result"))
	if c.Probe != nil {
		x.checkWith("probe.with", c.Probe.With, x.programs.Binding, roots...)
		x.answer(x.readerOver("probe.answer", c.Probe.Answer, "string", append(roots, "probe")))
		x.reference(c.Probe.ExternalRef, append(roots, "probe"))
	}
}

// delivery returns the record's form of a checked delivery, or nil.
func (x *compiler) delivery(c contract.Contract) *pb.CompensationRegistered {
	d := c.Deliver
	if d == nil {
		return nil
	}
	out := &pb.CompensationRegistered{Capability: c.Capability,
		Bindings: x.bindings("deliver.with", d.With, x.programs.Binding),
		Attempts: uint32(d.Attempts), BackoffNs: int64(d.Backoff), BackoffMaxNs: int64(d.BackoffMax),
		JitterPercent: uint32(*d.Jitter), TimeoutNs: int64(d.Timeout), DedupeNs: int64(d.Dedupe),
		WorkerVersion: d.WorkerVersion, Done: d.Done, Stop: d.Stop, Page: c.Page,
		UnservedAfterNs: int64(c.UnservedAfter)}
	if p := c.Probe; p != nil {
		out.Probe = &pb.Probe{Call: x.call("probe", p.Call, p.With, p.Timeout, p.Attempts, p.Backoff),
			Answer: p.Answer, ExternalRef: p.ExternalRef}
	}
	return out
}

// ofInput are the arguments of a delivery that read its input alone: they are known when the act is
// staged.
func (x *compiler) ofInput(d *pb.CompensationRegistered) []bound {
	all := x.programsOf("deliver.with", d.GetBindings(), x.programs.Binding)
	return slices.DeleteFunc(all, func(b bound) bool {
		return b.program == nil || slices.ContainsFunc([]string{"plan", "meta", "actions", "facts"},
			b.program.Reads)
	})
}

// CheckDelivery refuses an act of whose input an argument of its delivery can never be made: it
// would be its owner's once its plan is committed. What is not there is null, and no error. The
// error is a *ledger.Refused.
func (c *Compiled) CheckDelivery(input json.RawMessage) error {
	_, err := c.resolve("deliver.with", c.delivered, triggers.BindingVars{Input: input})
	return err
}

// attemptTimeout is the default of one attempt.
const attemptTimeout = 30 * time.Second

// staged warns of a delivery after which its owner is called more often than need be.
func (l *linter) staged(c contract.Contract) {
	switch d := c.Deliver; {
	case d == nil:
	case d.Dedupe == 0 && c.Probe == nil:
		l.warn("deliver", "neither dedupe nor a probe: each attempt without an answer is its owner's to "+
			"look at", "dedupe, for as long as the provider promises to remember a key; or a probe, with "+
			"settle")
	case c.Probe != nil && c.Settle == 0:
		after := contract.FormatDuration(cmp.Or(d.Timeout, attemptTimeout))
		l.warn("settle", "not given beside a probe: it is taken for gone "+after+" after an attempt "+
			"that had no answer", "the longest that an attempt may take to land")
	}
}

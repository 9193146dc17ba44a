package compile

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Compiled is a contract that was checked, in the form registrations take. It does
// not change and may be shared.
type Compiled struct {
	Capability string
	Class      contract.Class
	Canonical  []byte            // as it is published
	Digest     [sha256.Size]byte // content address of Canonical
	Lift       []string          // sorted
	Sensitive  []seal.Path       // what is sealed before it is recorded
	Before     *pb.Call          // what to ask before the forward crosses; nil: nothing

	Review        bool          // the forward waits for a supervisor's verdict
	ReviewTimeout time.Duration // so long; 0 without Review

	Timeout time.Duration // after which the agent gives the forward up; 0: as long as it lets it run
	// for which it lets the forward run on once its plan unwinds; 0: ledger.GraceDefault
	Grace time.Duration
	Late  pb.Late // what keeps it from landing afterwards
	// how long it may take to land once it is given up; 0: its Timeout, or ledger.SettleDefault
	Settle time.Duration

	inverse    *pb.CompensationRegistered // without a key; its parts are shared and never changed
	deliver    *pb.CompensationRegistered // how a staged act is made; nil: none may be staged
	stages     bool                       // each act is
	before     []bound
	delivered  []bound    // arguments of deliver that read the input alone
	reads      [][]string // paths of the output that its calls and readers read
	validUntil *triggers.Binding
	own        []held // conditions that read the action

	readsReference bool // they read meta.external_ref
}

// held is a condition that is held for each action.
type held struct {
	name      string
	condition *triggers.Condition
}

// CheckTriggers refuses an action for whose values an error keeps a condition from ever being
// true: it would be held for nothing. What has happened is not refused for it. The error is a
// *ledger.Refused.
func (c *Compiled) CheckTriggers(scope func() triggers.Scope) error {
	if len(c.own) == 0 {
		return nil
	}
	s := scope()
	for _, t := range c.own {
		if err := t.condition.Stuck(s); err != nil {
			return ledger.Refuse("action.input", fmt.Sprintf("trigger %s of %s can never be true for it: "+
				"%v", t.name, c.Capability, err), stuckWanted)
		}
	}
	return nil
}

// stuckWanted is what to do about such a condition.
const stuckWanted = "a condition that takes such values, as with string(action.order)"

type bound struct {
	name    string
	program *triggers.Binding
}

// Pair makes the two records of a registration under this contract. f gives what
// the caller decides: capability, after, lifted, ...; the caller also sets
// ValidUntilNs of the second record, and its payload.
func (c *Compiled) Pair(plan, action, key string, f *pb.ForwardRegistered) (forward,
	inverse *pb.Record) {
	f.Class, f.ContractDigest, f.Review = classes(c.Class), c.Digest[:], f.Review || c.Review
	f.TimeoutNs, f.GraceNs, f.SettleNs = int64(c.Timeout), int64(c.AloneGrace()), int64(c.Settle)
	f.Late = c.Late
	if c.deliver != nil {
		f.SettleNs = 0 // that is of an attempt to deliver it
	}
	forward = &pb.Record{Plan: plan, Action: action,
		Kind: &pb.Record_ForwardRegistered{ForwardRegistered: f}}
	t := c.inverse
	inverse = &pb.Record{Plan: plan, Action: action, Kind: &pb.Record_CompensationRegistered{
		CompensationRegistered: &pb.CompensationRegistered{
			Capability: t.Capability, Bindings: t.Bindings, Key: key, Attempts: t.Attempts,
			BackoffNs: t.BackoffNs, BackoffMaxNs: t.BackoffMaxNs, TimeoutNs: t.TimeoutNs,
			OnInDoubt: t.OnInDoubt, Triggers: t.Triggers, WorkerVersion: t.WorkerVersion,
			ValidForNs: t.ValidForNs, Fidelity: t.Fidelity, Actuator: t.Actuator, Probe: t.Probe,
			Verify: t.Verify, Unchanged: t.Unchanged,
			Done: t.Done, Stop: t.Stop, OnLate: t.OnLate, Page: t.Page, Agent: t.Agent, Approve: t.Approve,
			JitterPercent: t.JitterPercent, DedupeNs: t.DedupeNs, WarnNs: t.WarnNs, Sealed: t.Sealed,
			UnservedAfterNs: t.UnservedAfterNs, AskAfterNs: t.AskAfterNs,
		},
	}}
	return forward, inverse
}

// Until sets the calendar end of the undo window of a registration, as ValidUntil has found it; 0:
// it has none. Without any window no condition is held after the commit, as it would be for ever:
// whether there is one may depend on the input, and no input is refused for it.
func Until(c *pb.CompensationRegistered, ns int64) {
	c.ValidUntilNs = ns
	if ns != 0 || c.ValidForNs != 0 {
		return
	}
	c.Triggers = slices.Clone(c.Triggers) // those of the contract stay as they are
	for i, t := range c.Triggers {
		if t.AfterCommit {
			c.Triggers[i] = proto.CloneOf(t)
			c.Triggers[i].AfterCommit = false
		}
	}
}

// AloneGrace is the grace that an executor has to count with: an agent that hears of no executor
// lets a forward run on for as long. It is Grace, but where nothing else bounds the forward (late:
// never, without a timeout) not below ledger.GraceDefault, so that an agent on a busy machine is
// not cut off. 0: ledger.GraceDefault.
func (c *Compiled) AloneGrace() time.Duration {
	if c.Late == pb.Late_LATE_NEVER && c.Timeout == 0 && c.Grace != 0 {
		return max(c.Grace, ledger.GraceDefault)
	}
	return c.Grace
}

func classes(c contract.Class) pb.Class {
	switch c {
	case contract.Compensable:
		return pb.Class_CLASS_COMPENSABLE
	case contract.Irreversible:
		return pb.Class_CLASS_IRREVERSIBLE
	case contract.Effectless:
		return pb.Class_CLASS_EFFECTLESS
	default:
		panic("contract: compiled without a class")
	}
}

// Lifted returns the JSON object of the lifted fields that data has, or nil when
// it is no object or has none of them.
func (c *Compiled) Lifted(data json.RawMessage) ([]byte, error) {
	if len(c.Lift) == 0 || len(data) == 0 {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil, nil // another kind of value: it has no fields
	}
	picked := map[string]json.RawMessage{}
	for _, name := range c.Lift {
		if value, ok := fields[name]; ok {
			picked[name] = value
		}
	}
	if len(picked) == 0 {
		return nil, nil
	}
	return json.Marshal(picked)
}

// BeforeArguments resolves the arguments of Before: a JSON object. plan and meta
// are JSON objects with the fields that are known before the forward crosses. An
// expression that cannot be evaluated is a *ledger.Refused, and the forward must
// not cross.
func (c *Compiled) BeforeArguments(input, plan, meta json.RawMessage) (json.RawMessage, error) {
	return c.resolve("before.with", c.before,
		triggers.BindingVars{Input: input, Plan: plan, Meta: meta})
}

func (c *Compiled) resolve(field string, arguments []bound,
	vars triggers.BindingVars) (json.RawMessage, error) {
	out := []byte{'{'}
	for i, a := range arguments {
		value, err := a.program.Evaluate(vars)
		if err != nil {
			return nil, ledger.Refuse(at(c.Capability)+"."+field+"."+a.name, err.Error(),
				"an expression that this input satisfies")
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, argument.Quote(a.name)...), ':'), value...)
	}
	return append(out, '}'), nil
}

// ValidUntil returns the calendar end of the undo window for this input in unix
// nanoseconds; 0: no limit, because the contract names none or its expression is
// null. What is no timestamp is a *ledger.Refused, and the forward must not cross.
func (c *Compiled) ValidUntil(input json.RawMessage) (int64, error) {
	if c.validUntil == nil {
		return 0, nil
	}
	field := at(c.Capability) + ".valid_until"
	const want = "a timestamp from 1970 to 2261, as in timestamp(input.start), or null"
	value, err := c.validUntil.Evaluate(triggers.BindingVars{Input: input})
	if err != nil {
		return 0, ledger.Refuse(field, err.Error(), want)
	}
	var text *string
	if err := json.Unmarshal(value, &text); err != nil {
		return 0, ledger.Refuse(field, fmt.Sprintf("%.64s", value), want)
	}
	if text == nil {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, *text)
	if err != nil {
		return 0, ledger.Refuse(field, fmt.Sprintf("%.64q", *text), want)
	}
	return ledger.InstantNs(field, t)
}

// Recorded returns what a registration under this contract records of it.
func (c *Compiled) Recorded() (class pb.Class, digest []byte) {
	return classes(c.Class), c.Digest[:]
}

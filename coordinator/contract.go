package coordinator

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Class says what can be done about an effect once it has happened. Its zero
// value is undeclared and refused (S50).
type Class uint8

// The classes of docs/glossary.md.
const (
	Undeclared   Class = iota
	Compensable        // Inverse undoes it
	Irreversible       // nothing undoes it: an unwind leaves it to the plan's owner (S86, S87)
	Effectless         // there is nothing to undo: an unwind skips it
)

var classNames = [...]string{"undeclared", "compensable", "irreversible", "effectless"}

func (c Class) String() string {
	if int(c) >= len(classNames) {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return classNames[c]
}

// OnInDoubt says what an unwind does with an action that may have happened.
type OnInDoubt uint8

// What to do in doubt.
const (
	InDoubtDefault    OnInDoubt = iota // as InDoubtCompensate
	InDoubtCompensate                  // undo it blindly: the inverse must tolerate that nothing happened
	InDoubtQuarantine                  // leave it to the plan's owner
)

// Contract declares a capability: what undoes it and how. It is data, frozen
// into every registration, so a later change of it touches no running plan
// (S11, S23). Limits are those of package ledger.
type Contract struct {
	Capability string // of the forward, as in "git.branch.create"
	Class      Class  // required

	// Inverse is the capability that undoes the forward. Compensable needs it,
	// the other classes refuse it.
	Inverse string

	// Bindings gives each argument of the inverse as CEL over input, output, plan
	// and meta, resolved when the undo is dispatched. A missing path is null (S20).
	Bindings map[string]string

	Attempts   int           // of the undo before its action is quarantined; 1 to 100, default 5
	Backoff    time.Duration // before attempt 2, doubling; default 1 s, at most 24 h
	BackoffMax time.Duration // where doubling ends; default 1 min, at most 24 h
	Timeout    time.Duration // of one attempt; default 30 s, at most 24 h

	OnInDoubt OnInDoubt // default InDoubtCompensate

	// Triggers are standing conditions per action, name -> CEL; one that turns
	// true unwinds the plan.
	Triggers map[string]string

	// Lift names the top-level fields of input and output that triggers may read
	// as action.input and action.output. What is not lifted is payload.
	Lift []string

	WorkerVersion string        // of the worker that must carry out the undo (S7); empty: any
	ValidFor      time.Duration // undo window after completion; 0: no limit
	Fidelity      string        // "exact", "semantic" or "lossy": how true the undo is; empty: not said
}

// withDefaults returns the contract as it is meant: defaults set, Lift sorted.
func (t Contract) withDefaults() Contract {
	if t.Class == Compensable {
		t.Attempts = orDefault(t.Attempts, attemptsDefault)
		t.Backoff = orDefault(t.Backoff, backoffDefault)
		t.BackoffMax = orDefault(t.BackoffMax, max(backoffMaxDefault, t.Backoff))
		t.Timeout = orDefault(t.Timeout, timeoutDefault)
	}
	if t.OnInDoubt == InDoubtDefault {
		t.OnInDoubt = InDoubtCompensate
	}
	if len(t.Bindings) == 0 {
		t.Bindings = nil
	}
	if len(t.Triggers) == 0 {
		t.Triggers = nil
	}
	t.Lift = slices.Compact(slices.Sorted(slices.Values(t.Lift)))
	return t
}

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}

// Digest is the contract's content address: SHA-256 over its fields with their
// defaults, so that equal contracts have equal digests wherever they are made.
func (t Contract) Digest() [sha256.Size]byte {
	t = t.withDefaults()
	// A struct of its own, so that the names in the text never move. encoding/json
	// keeps the order of fields and sorts the keys of maps.
	text, err := json.Marshal(struct {
		Capability, Class, Inverse string
		Bindings                   map[string]string
		Attempts                   int
		BackoffNs, BackoffMaxNs    time.Duration
		TimeoutNs                  time.Duration
		OnInDoubt                  OnInDoubt
		Triggers                   map[string]string
		Lift                       []string
		WorkerVersion              string
		ValidForNs                 time.Duration
		Fidelity                   string
	}{
		t.Capability, t.Class.String(), t.Inverse, t.Bindings, t.Attempts, t.Backoff, t.BackoffMax, t.Timeout,
		t.OnInDoubt, t.Triggers, t.Lift, t.WorkerVersion, t.ValidFor, t.Fidelity,
	})
	if err != nil {
		panic("coordinator: a contract that is no JSON: " + err.Error())
	}
	return sha256.Sum256(append([]byte("sagenbaum/contract/v1\n"), text...))
}

// compiled is a contract that was checked, in the form registrations take.
type compiled struct {
	class     pb.Class
	onInDoubt pb.OnInDoubt
	digest    []byte
	lift      []string
	inverse   *pb.CompensationRegistered // without a key; its parts are shared and never changed
}

// compile checks a contract and everything in it once. Errors are *ledger.Refused.
func compile(t Contract, language *expressions) (*compiled, error) {
	if !ledger.ValidCapability(t.Capability) {
		return nil, ledger.Refuse("contract.capability", fmt.Sprintf("%q", t.Capability), "dotted names, as in git.branch.create")
	}
	at := "contract[" + t.Capability + "]"
	t = t.withDefaults()
	out := &compiled{lift: t.Lift}
	if err := out.classify(at, t); err != nil {
		return nil, err
	}
	if err := checkRanges(at, t); err != nil {
		return nil, err
	}
	digest := t.Digest()
	out.digest = digest[:]
	triggers, err := language.triggers(at, t.Triggers)
	if err != nil {
		return nil, err
	}
	bindings, err := language.bindings(at, t.Bindings)
	if err != nil {
		return nil, err
	}
	out.inverse = &pb.CompensationRegistered{
		Capability: t.Inverse, Bindings: bindings, Triggers: triggers, OnInDoubt: out.onInDoubt,
		Attempts: uint32(t.Attempts), BackoffNs: int64(t.Backoff), BackoffMaxNs: int64(t.BackoffMax), TimeoutNs: int64(t.Timeout),
		WorkerVersion: t.WorkerVersion, ValidForNs: int64(t.ValidFor), Fidelity: t.Fidelity,
	}
	return out, out.checkFits(at, t.Capability)
}

// classify holds the rules between class and inverse.
func (o *compiled) classify(at string, t Contract) error {
	switch t.Class {
	case Compensable:
		o.class = pb.Class_CLASS_COMPENSABLE
		if !ledger.ValidCapability(t.Inverse) {
			return ledger.Refuse(at+".inverse", fmt.Sprintf("%q", t.Inverse), "the capability that undoes it, as in git.branch.delete")
		}
	case Irreversible, Effectless:
		o.class = pb.Class_CLASS_IRREVERSIBLE
		if t.Class == Effectless {
			o.class = pb.Class_CLASS_EFFECTLESS
		}
		if t.Inverse != "" || len(t.Bindings) > 0 {
			return ledger.Refuse(at+".inverse", "given for an "+t.Class.String()+" capability", "no inverse and no bindings, or class compensable")
		}
	default:
		return ledger.Refuse(at+".class", t.Class.String(), "compensable, irreversible or effectless")
	}
	switch t.OnInDoubt {
	case InDoubtCompensate:
		o.onInDoubt = pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE
	case InDoubtQuarantine:
		o.onInDoubt = pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE
	default:
		return ledger.Refuse(at+".on_in_doubt", fmt.Sprint(t.OnInDoubt), "InDoubtCompensate or InDoubtQuarantine")
	}
	return nil
}

// checkRanges holds what a conversion to the record's types would hide.
func checkRanges(at string, t Contract) error {
	switch {
	case t.Attempts < 0 || t.Attempts > ledger.AttemptsMax:
		return ledger.Refuse(at+".attempts", fmt.Sprint(t.Attempts), fmt.Sprintf("1 to %d", ledger.AttemptsMax))
	case t.BackoffMax < t.Backoff:
		return ledger.Refuse(at+".backoff_max", t.BackoffMax.String(), "at least the backoff of "+t.Backoff.String())
	case len(t.Lift) > LiftMax || slices.Contains(t.Lift, ""):
		return ledger.Refuse(at+".lift", fmt.Sprintf("%d fields, or one without a name", len(t.Lift)), fmt.Sprintf("at most %d names of top-level fields", LiftMax))
	case !slices.Contains([]string{"", "exact", "semantic", "lossy"}, t.Fidelity):
		return ledger.Refuse(at+".fidelity", fmt.Sprintf("%q", t.Fidelity), "exact, semantic, lossy or nothing")
	case len(t.WorkerVersion) > ledger.TokenLenMax:
		return ledger.Refuse(at+".worker_version", "too long", fmt.Sprintf("at most %d bytes", ledger.TokenLenMax))
	}
	return nil
}

// checkFits tries the contract in a pair: the ledger's own rules, and room in a
// commit beside it.
func (o *compiled) checkFits(at, capability string) error {
	forward, inverse := o.pair("plan", "action", "", &pb.ForwardRegistered{Capability: capability})
	source := ledger.Source{Class: ledger.ClassAgent, Plan: "plan"}
	for _, r := range []*pb.Record{forward, inverse} {
		if err := ledger.Check(r, source); err != nil {
			return fmt.Errorf("cannot use %s: %w", at, err)
		}
	}
	if size := ledger.RecordSize(inverse); size > ledger.CommitSizeMax/2 {
		return ledger.Refuse(at, fmt.Sprintf("%d bytes in every registration", size), fmt.Sprintf("at most %d bytes", ledger.CommitSizeMax/2))
	}
	return nil
}

// pair makes the two records of a registration under this contract.
func (o *compiled) pair(plan, action, key string, f *pb.ForwardRegistered) (forward, inverse *pb.Record) {
	f.Class, f.ContractDigest = o.class, o.digest
	t := o.inverse
	forward = &pb.Record{Plan: plan, Action: action, Kind: &pb.Record_ForwardRegistered{ForwardRegistered: f}}
	inverse = &pb.Record{Plan: plan, Action: action, Kind: &pb.Record_CompensationRegistered{
		CompensationRegistered: &pb.CompensationRegistered{
			Capability: t.Capability, Bindings: t.Bindings, Key: key, Attempts: t.Attempts,
			BackoffNs: t.BackoffNs, BackoffMaxNs: t.BackoffMaxNs, TimeoutNs: t.TimeoutNs,
			OnInDoubt: t.OnInDoubt, Triggers: t.Triggers, WorkerVersion: t.WorkerVersion,
			ValidForNs: t.ValidForNs, Fidelity: t.Fidelity,
		},
	}}
	return forward, inverse
}

// lifted returns the JSON object of the lifted fields that data has, or nil when
// it is no object or has none of them.
func (o *compiled) lifted(data json.RawMessage) ([]byte, error) {
	if len(o.lift) == 0 || len(data) == 0 {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil, nil // another kind of value: it has no fields
	}
	picked := map[string]json.RawMessage{}
	for _, name := range o.lift {
		if value, ok := fields[name]; ok {
			picked[name] = value
		}
	}
	if len(picked) == 0 {
		return nil, nil
	}
	return json.Marshal(picked)
}

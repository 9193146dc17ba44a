package executor

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A compensation in working memory asserts or retracts one fact and refers to the
// forward that it undoes by address (S79). The fact and the success of the undo are
// one commit of records, which follows the dispatch like any worker's answer.

// inMemory reports whether an action is undone in working memory.
func inMemory(a *action) bool { return a.fixed.Compensation.GetActuator() == ledger.ActuatorMemory }

// undoFact reads the fact that a compensation asserts or retracts out of its
// resolved arguments. The error names the argument.
func undoFact(capability string, arguments []byte) (key string, value json.RawMessage, err error) {
	var in struct {
		Key   json.RawMessage `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(arguments, &in); err != nil {
		return "", nil, fmt.Errorf("arguments: not a JSON object: %w", err)
	}
	switch {
	case len(in.Key) == 0 || string(in.Key) == "null":
		return "", nil, ledger.Refuse("key", "missing", "the key of a fact")
	case json.Unmarshal(in.Key, &key) != nil:
		return "", nil, ledger.Refuse("key", "not a text: "+clip(string(in.Key)), "the key of a fact")
	case len(key) == 0 || len(key) > ledger.FactKeyMax || !utf8.ValidString(key):
		return "", nil, ledger.Refuse("key", fmt.Sprintf("%d bytes", len(key)),
			fmt.Sprintf("1 to %d bytes of UTF-8", ledger.FactKeyMax))
	}
	switch capability {
	case ledger.CapabilityRetract:
		return key, nil, nil
	case ledger.CapabilityAssert:
		if len(in.Value) == 0 || len(in.Value) > ledger.UndoFactMax {
			return "", nil, ledger.Refuse("value", fmt.Sprintf("%d bytes", len(in.Value)),
				fmt.Sprintf("1 to %d bytes of JSON", ledger.UndoFactMax))
		}
		return key, in.Value, nil
	default:
		return "", nil, ledger.Refuse("capability", fmt.Sprintf("%q with actuator memory", capability),
			ledger.CapabilityAssert+" or "+ledger.CapabilityRetract)
	}
}

// undoByFact folds the fact of a compensation: once for each dispatch, and as
// dispatched.
func (s *State) undoByFact(e ledger.Entry, a *action) Result {
	if !inMemory(a) {
		return void("the compensation of action %s asserts no fact", a.fixed.Id)
	}
	if !inFlight(a, a.row.Attempt) {
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	if !sameAddress(e.Record.Cause, a.row.Dispatched) {
		return void("the undo of action %s was dispatched at %s, not at %s", a.fixed.Id,
			ledger.FormatAddress(a.row.Dispatched), ledger.FormatAddress(e.Record.Cause))
	}
	capability := a.fixed.Compensation.Capability
	key, value, err := undoFact(capability, s.commandRow(a).GetArguments())
	if err != nil {
		return void("the undo of action %s was dispatched with arguments that are no fact: %s",
			a.fixed.Id, clip(err.Error()))
	}
	if s.undidByFact(a, key) {
		return void("a copy: the undo of action %s has changed fact %q", a.fixed.Id, key)
	}
	asserted, retracted := e.Record.GetFactAsserted(), e.Record.GetFactRetracted()
	switch {
	case capability == ledger.CapabilityAssert && asserted != nil && asserted.Key == key &&
		string(asserted.Value) == string(value):
		s.assertFact(e, asserted)
	case capability == ledger.CapabilityRetract && retracted.GetKey() == key:
		s.retractFact(e, key)
	default:
		return void("the undo of action %s was dispatched as %s of fact %q, with another value or key "+
			"than this", a.fixed.Id, capability, key)
	}
	return effective
}

// undidByFact reports whether the attempt under way has changed its fact.
func (s *State) undidByFact(a *action, key string) bool {
	row := s.fact(key)
	return row != nil && row.Undo && sameAddress(row.Cause, a.row.Dispatched)
}

// withoutFact says why an undo in working memory cannot have succeeded, or "".
func (s *State) withoutFact(a *action) string {
	if !inMemory(a) {
		return ""
	}
	key, _, err := undoFact(a.fixed.Compensation.Capability, s.commandRow(a).GetArguments())
	if err == nil && s.undidByFact(a, key) {
		return ""
	}
	return fmt.Sprintf("the undo of action %s has not changed fact %q", a.fixed.Id, key)
}

// changeFact proposes the fact of a compensation, if its success fits into the same
// commit; true for an action that is undone elsewhere.
func (d *decider) changeFact(p *plan, a *action, success *pb.Record) bool {
	if !inMemory(a) {
		return true
	}
	capability := a.fixed.Compensation.Capability
	key, value, err := undoFact(capability, d.state.commandRow(a).GetArguments())
	if err != nil {
		panic("executor: dispatched an undo that is no fact: " + err.Error())
	}
	if d.state.undidByFact(a, key) {
		return true
	}
	r := d.about(p, a, a.row.Dispatched)
	r.Kind = &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: key}}
	if capability == ledger.CapabilityAssert {
		r.Kind = &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: value}}
	}
	need := d.size + ledger.RecordSize(r) + ledger.RecordSize(success) + 2*decisionSizeMin
	if len(d.records) > 0 && need > d.in.SizeMax || len(d.records)+2 > ledger.CommitLenMax {
		return false
	}
	return d.propose(r)
}

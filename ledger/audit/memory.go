package audit

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// observed folds what a source observed, also for an action that it names.
func (b *book) observed(e ledger.Entry) verdict {
	r := e.Record
	if r.Plan != "" {
		p := b.plan(r.Plan)
		switch {
		case p == nil:
			return refused("I6", "plan %s was never opened", r.Plan)
		case r.Action != "" && p.named(r.Action) == nil:
			return refused("I6", "action %s of plan %s is not registered", r.Action, r.Plan)
		case r.Action != "" && r.About != nil && !sameAddress(r.About, p.named(r.Action).registered):
			return refused("I6", "about: %s, but action %s was registered elsewhere", ledger.FormatAddress(r.About), r.Action)
		}
	}
	if k := r.GetFactAsserted(); k != nil {
		b.assert(e, k.Key, k.Value)
		return effective
	}
	key := r.GetFactRetracted().GetKey()
	if f := b.fact(key); f != nil && !f.retracted { // a tombstone stays as it is
		b.retract(e, key)
	}
	return effective
}

func (b *book) assert(e ledger.Entry, key string, value []byte) {
	f := &fact{value: value, assertedNs: b.now, changedNs: b.now, source: e.Address}
	if old := b.fact(key); old != nil {
		f.times, f.runs = old.times, old.runs
		if !old.retracted && bytes.Equal(old.value, value) {
			f.changedNs = old.changedNs
		}
	}
	b.asserted(f, key)
	f.undo, f.cause = e.Source.Class == ledger.ClassExecutor, e.Record.Cause
	b.provenance(e, f)
	b.facts.put(key, f, len(key)+len(value)+8*len(f.times)+recordLen)
	b.lookFact(key)
}

func (b *book) retract(e ledger.Entry, key string) {
	f := b.fact(key)
	if f == nil {
		f = &fact{} // of what was never asserted: a compensation says so nevertheless
		b.facts.put(key, f, len(key)+recordLen)
	}
	f.value, f.evicted, f.asked, f.retracted, f.changedNs, f.tombstone = nil, nil, nil, true, b.now, e.Address
	f.undo, f.cause = e.Source.Class == ledger.ClassExecutor, e.Record.Cause
	b.provenance(e, f)
	b.lookFact(key)
}

// factEvicted takes a value out of working memory, if it is still the one that was
// meant. This fold keeps the value: the ledger has it.
func (b *book) factEvicted(e ledger.Entry, k *pb.FactEvicted) verdict {
	f := b.fact(k.Key)
	switch {
	case f == nil || f.retracted:
		return void("I10", "there is no fact %q", k.Key)
	case f.evicted != nil:
		return void("I10", "fact %q was evicted at %s", k.Key, ledger.FormatAddress(f.evicted))
	case !sameAddress(k.Fact, f.source):
		return void("I6", "fact %q was asserted at %s", k.Key, ledger.FormatAddress(f.source))
	case e.Record.Cause != nil && !sameAddress(e.Record.Cause, f.asked):
		return void("I6", "nobody asked at %s to evict fact %q", ledger.FormatAddress(e.Record.Cause), k.Key)
	}
	f.evicted, f.asked = e.Address, nil
	return effective
}

// factReingested brings a value back: the very bytes that were evicted (I10).
func (b *book) factReingested(e ledger.Entry, k *pb.FactReingested) verdict {
	f := b.fact(k.Key)
	switch {
	case f == nil || f.retracted:
		return void("I10", "there is no fact %q", k.Key)
	case f.evicted == nil:
		return void("I10", "fact %q is in memory", k.Key)
	case !sameAddress(k.Fact, f.source), !sameAddress(k.Evicted, f.evicted):
		return void("I6", "fact %q was evicted at %s", k.Key, ledger.FormatAddress(f.evicted))
	case !sameAddress(e.Record.Cause, f.evicted) && (f.asked == nil || !sameAddress(e.Record.Cause, f.asked)):
		return void("I6", "nobody asked at %s for fact %q", ledger.FormatAddress(e.Record.Cause), k.Key)
	case len(k.Value) > 0 && !bytes.Equal(k.Value, f.value):
		return void("I10", "the value is not the one that fact %q was asserted with", k.Key)
	}
	f.evicted, f.asked = nil, nil
	return effective
}

// requested notes what an operator asks for, of all facts that are named or of none.
func (b *book) requested(e ledger.Entry, keys []string, evicted bool) verdict {
	for _, key := range keys {
		f := b.fact(key)
		switch {
		case f == nil || f.retracted:
			return refused("I10", "there is no fact %q", key)
		case f.asked != nil:
			return refused("I5", "fact %q: the same was asked at %s", key, ledger.FormatAddress(f.asked))
		case (f.evicted != nil) != evicted:
			return refused("I10", "fact %q is where it is asked to be", key)
		}
	}
	for _, key := range keys {
		b.fact(key).asked = e.Address
	}
	return effective
}

// undoFact is the fact that a compensation in working memory makes, after its
// arguments; ok is false when they are none.
func undoFact(capability string, arguments []byte) (key string, value []byte, ok bool) {
	var in struct {
		Key   json.RawMessage `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(arguments, &in) != nil || len(in.Key) == 0 || string(in.Key) == "null" || json.Unmarshal(in.Key, &key) != nil {
		return "", nil, false
	}
	if len(key) == 0 || len(key) > ledger.FactKeyMax || !utf8.ValidString(key) {
		return "", nil, false
	}
	if capability == ledger.CapabilityRetract {
		return key, nil, true
	}
	return key, in.Value, capability == ledger.CapabilityAssert && len(in.Value) > 0 && len(in.Value) <= ledger.UndoFactMax
}

// undoByFact folds the fact of a compensation: once for each dispatch, and as it was
// dispatched.
func (b *book) undoByFact(e ledger.Entry, a *action) verdict {
	switch {
	case !a.inMemory():
		return void("I18", "the compensation of action %s asserts no fact", a.id)
	case !a.inFlight(a.attempt):
		return void("I18", "the undo of action %s is %s", a.id, a.undo)
	case !sameAddress(e.Record.Cause, a.dispatched):
		return void("I18", "the undo of action %s was dispatched at %s", a.id, ledger.FormatAddress(a.dispatched))
	}
	capability := a.compensation.Capability
	key, value, ok := undoFact(capability, a.arguments)
	asserted, retracted := e.Record.GetFactAsserted(), e.Record.GetFactRetracted()
	switch {
	case !ok:
		return void("I18", "the undo of action %s was dispatched with arguments that are no fact", a.id)
	case b.changedBy(a, key):
		return void("I22", "the undo of action %s has changed fact %q", a.id, key)
	case capability == ledger.CapabilityAssert && asserted != nil && asserted.Key == key && bytes.Equal(asserted.Value, value):
		b.assert(e, key, asserted.Value)
	case capability == ledger.CapabilityRetract && retracted.GetKey() == key:
		b.retract(e, key)
	default:
		return void("I18", "the undo of action %s was dispatched as %s of fact %q, with another value or key", a.id, capability, key)
	}
	return effective
}

// changedBy: the attempt under way has changed its fact.
func (b *book) changedBy(a *action, key string) bool {
	f := b.fact(key)
	return f != nil && f.undo && sameAddress(f.cause, a.dispatched)
}

// changedItsFact: of an undo in working memory, that; of any other, true.
func (b *book) changedItsFact(a *action) bool {
	if !a.inMemory() {
		return true
	}
	key, _, ok := undoFact(a.compensation.Capability, a.arguments)
	return ok && b.changedBy(a, key)
}

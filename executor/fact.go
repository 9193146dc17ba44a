package executor

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// applyFact folds what a source observed.
func (s *fold) applyFact() Result {
	if err := s.turnsFactAway(); err != nil && s.e.Source.Class == ledger.ClassFact {
		return Result{Refused, err.Error()}
	}
	if why := s.unregistered(s.e.Record); why != "" {
		return Result{Refused, why}
	}
	if a := s.actionOf(s.e.Record); a != nil && s.e.Record.About != nil &&
		!sameAddress(s.e.Record.About, a.fixed.Registered) {
		return refused("about: %s, but action %s was registered at %s",
			ledger.FormatAddress(s.e.Record.About), a.fixed.Id, ledger.FormatAddress(a.fixed.Registered))
	}
	switch k := s.e.Record.Kind.(type) {
	case *pb.Record_FactAsserted:
		s.assertFact(k.FactAsserted)
	case *pb.Record_FactRetracted:
		// A tombstone keeps the record that ended the fact, whoever says it again.
		if row := s.memory.Fact(k.FactRetracted.Key); row != nil && !row.Retracted {
			s.retractFact(k.FactRetracted.Key)
		}
	default:
		panic("executor: unknown fact record " + ledger.KindOf(s.e.Record).Name)
	}
	return effective
}

// unregistered says which plan or action a record names that is not there, or "".
// A fact of an action is stored after its registration.
func (s *State) unregistered(r *pb.Record) string {
	switch {
	case r.Plan == "" || s.plan(r.Plan) != nil &&
		(r.Action == "" || s.byName(r.Plan, r.Action) != nil):
		return ""
	case r.Action == "":
		return "plan " + r.Plan + " was never opened"
	default:
		return "action " + r.Action + " of plan " + r.Plan + " is not registered"
	}
}

// actionOf is the action that a record names, or nil.
func (s *State) actionOf(r *pb.Record) *action {
	if r.Plan == "" || r.Action == "" || s.plan(r.Plan) == nil {
		return nil
	}
	return s.byName(r.Plan, r.Action)
}

func (s *fold) assertFact(f *pb.FactAsserted) {
	row := &rowspb.FactRow{Value: f.Value, AssertedNs: s.meta.TimeNs, Source: s.e.Address}
	s.attribute(row)
	s.factChanged(f.Key, s.memory.Assert(f.Key, row))
}

// factChanged wakes the readers of a fact, where the record is folded, and forgets what was asked
// about it as it was.
func (s *fold) factChanged(key string, asked bool) {
	if asked {
		s.unask(key)
	}
	if s.base == nil {
		s.wakeReaders(key, s.e.Address)
	}
}

func (s *fold) retractFact(key string) {
	row := s.memory.Fact(key)
	if row == nil {
		row = new(rowspb.FactRow) // of what was never asserted: a compensation says so nevertheless
	}
	s.attribute(row)
	s.factChanged(key, s.memory.Retract(key, row, s.e.Address, s.meta.TimeNs))
}

// attribute notes who asserted or retracted a fact, and for which action.
func (s *fold) attribute(row *rowspb.FactRow) {
	r := s.e.Record
	row.By, row.Plan, row.Action, row.About, row.Cause = s.e.Source.Name, r.Plan, r.Action, r.About,
		r.Cause
	row.Undo = s.e.Source.Class == ledger.ClassExecutor
	if row.About == nil {
		if a := s.actionOf(r); a != nil {
			row.About = a.fixed.Registered
		}
	}
	s.provenance(row)
}

// FactAt reads the value of a fact out of the message that asserted it, and holds
// the record to its leaf. Errors: *ledger.Halted (guard G2) when it is another.
func FactAt(tenant string, m ledger.Message, at *pb.Address, key string) (json.RawMessage, error) {
	entries, err := ledger.Decode(tenant, m)
	if err != nil {
		return nil, err
	}
	// As this holder reads it, or as an earlier one did.
	for _, e := range slices.Concat(entries, ledger.Under(entries, 0)) {
		k := e.Record.GetFactAsserted()
		if e.Err == nil && sameAddress(e.Address, at) && k.GetKey() == key {
			return k.Value, nil
		}
	}
	return nil, &ledger.Halted{Guard: "G2", Sequence: at.Sequence, Problem: fmt.Sprintf(
		"fact %q was folded from %s, and the stream has another record there", key,
		ledger.FormatFullAddress(at))}
}

// factEvicted takes a value out of memory, if it is still the one that was meant.
func (s *fold) factEvicted(k *pb.FactEvicted) Result {
	row, gone := s.memory.Standing(k.Key)
	switch {
	case gone != "":
		return Result{Void, gone}
	case row.Evicted != nil:
		return void("fact %q was evicted at %s", k.Key, ledger.FormatAddress(row.Evicted))
	case !sameAddress(k.Fact, row.Source):
		return void("fact %q was asserted at %s, not at %s", k.Key, ledger.FormatAddress(row.Source),
			ledger.FormatAddress(k.Fact))
	case s.e.Record.Cause != nil && !sameAddress(s.e.Record.Cause, row.Asked):
		return void("nobody asked at %s to evict fact %q", ledger.FormatAddress(s.e.Record.Cause), k.Key)
	}
	if s.memory.Evict(k.Key, row, s.e.Address) {
		s.unask(k.Key)
	}
	return effective
}

// factReingested brings a value back: the very bytes that were evicted.
func (s *fold) factReingested(k *pb.FactReingested) Result {
	row, gone := s.memory.Standing(k.Key)
	switch {
	case gone != "":
		return Result{Void, gone}
	case row.Evicted == nil:
		return void("fact %q is in memory", k.Key)
	case !sameAddress(k.Fact, row.Source), !sameAddress(k.Evicted, row.Evicted):
		return void("fact %q of %s was evicted at %s, not that of %s at %s", k.Key,
			ledger.FormatAddress(row.Source),
			ledger.FormatAddress(row.Evicted), ledger.FormatAddress(k.Fact), ledger.FormatAddress(k.Evicted))
	case !sameAddress(s.e.Record.Cause, row.Evicted) &&
		(row.Asked == nil || !sameAddress(s.e.Record.Cause, row.Asked)):
		return void("nobody asked at %s for fact %q", ledger.FormatAddress(s.e.Record.Cause), k.Key)
	}
	value := k.Value
	if len(value) == 0 {
		value = s.memory.Recall(k.Key, row)
	}
	if !memory.Hashes(row, value) {
		return void("the value is not the one that fact %q was asserted with at %s", k.Key,
			ledger.FormatAddress(row.Source))
	}
	if s.memory.Reingest(k.Key, row, value, s.e.Address, s.meta.TimeNs) {
		s.unask(k.Key)
	}
	return effective
}

// evictRequested and restoreRequested note what an operator asks for; Decide
// carries it out. A request about several facts is taken whole or not at all.
func (s *fold) evictRequested(keys []string) Result {
	return s.requested(keys, todoEvict, func(key string, row *rowspb.FactRow) Result {
		if row.Evicted != nil {
			return refused("fact %q is evicted already, at %s", key, ledger.FormatAddress(row.Evicted))
		}
		return effective
	})
}

func (s *fold) restoreRequested(keys []string) Result {
	return s.requested(keys, todoRestore, func(key string, row *rowspb.FactRow) Result {
		if row.Evicted == nil {
			return refused("fact %q is in memory", key)
		}
		return effective
	})
}

func (s *fold) requested(keys []string, todo string,
	allowed func(string, *rowspb.FactRow) Result) Result {
	found := make([]*rowspb.FactRow, len(keys))
	for i, key := range keys {
		row, gone := s.memory.Standing(key)
		switch {
		case gone != "":
			return Result{Refused, gone}
		case row.Asked != nil:
			return refused("fact %q: the same was asked at %s", key, ledger.FormatAddress(row.Asked))
		}
		if result := allowed(key, row); result.Verdict != Effective {
			return result
		}
		found[i] = row
	}
	for i, key := range keys {
		s.memory.Ask(key, found[i], s.e.Address)
		s.todo.Add(todo + key)
	}
	return effective
}

// unask forgets what an operator has asked about a fact.
func (s *fold) unask(key string) {
	s.todo.Remove(todoEvict + key)
	s.todo.Remove(todoRestore + key)
}

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
func (s about) undoByFact() Result {
	a := s.a
	if !inMemory(a) {
		return void("the compensation of action %s asserts no fact", a.fixed.Id)
	}
	if !inFlight(a, a.row.Attempt) {
		return void("the undo of action %s is %s", a.fixed.Id, undoName(a.row.Undo))
	}
	if !sameAddress(s.e.Record.Cause, a.row.Dispatched) {
		return void("the undo of action %s was dispatched at %s, not at %s", a.fixed.Id,
			ledger.FormatAddress(a.row.Dispatched), ledger.FormatAddress(s.e.Record.Cause))
	}
	capability := a.fixed.Compensation.Capability
	key, value, err := undoFact(capability, a.commandRow().GetArguments())
	if err != nil {
		return void("the undo of action %s was dispatched with arguments that are no fact: %s",
			a.fixed.Id, clip(err.Error()))
	}
	if a.undidByFact(key) {
		return void("a copy: the undo of action %s has changed fact %q", a.fixed.Id, key)
	}
	asserted, retracted := s.e.Record.GetFactAsserted(), s.e.Record.GetFactRetracted()
	switch {
	case capability == ledger.CapabilityAssert && asserted != nil && asserted.Key == key &&
		string(asserted.Value) == string(value):
		s.assertFact(asserted)
	case capability == ledger.CapabilityRetract && retracted.GetKey() == key:
		s.retractFact(key)
	default:
		return void("the undo of action %s was dispatched as %s of fact %q, with another value or key "+
			"than this", a.fixed.Id, capability, key)
	}
	return effective
}

// undidByFact reports whether the attempt under way has changed its fact.
func (a *action) undidByFact(key string) bool {
	row := a.plan.s.memory.Fact(key)
	return row != nil && row.Undo && sameAddress(row.Cause, a.row.Dispatched)
}

// withoutFact says why an undo in working memory cannot have succeeded, or "".
func (a *action) withoutFact() string {
	if !inMemory(a) {
		return ""
	}
	key, _, err := undoFact(a.fixed.Compensation.Capability, a.commandRow().GetArguments())
	if err == nil && a.undidByFact(key) {
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
	key, value, err := undoFact(capability, a.commandRow().GetArguments())
	if err != nil {
		panic("executor: dispatched an undo that is no fact: " + err.Error())
	}
	if a.undidByFact(key) {
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

// What a turn evicts from working memory, and brings back.

// evictScanMax bounds the facts that one turn looks at, the least recently asserted first.
const evictScanMax = 4096

// lowWater is how far an eviction goes down, in bytes: 90 % of the capacity.
func lowWater(memoryMax int64) uint64 { return uint64(memoryMax/10*9 + memoryMax%10*9/10) }

// MemoryWork reports whether Decide has something to do for working memory: too
// much is in it, or a lease missed an evicted fact and there may be room. memoryMax
// is as in Input.
func (s *State) MemoryWork(memoryMax int64) bool {
	if memoryMax > 0 && s.meta.FactBytes > uint64(memoryMax) {
		return true
	}
	return len(s.memory.Misses()) > 0 && (memoryMax <= 0 || s.meta.FactBytes <= lowWater(memoryMax))
}

// memory keeps working memory within its capacity, and brings back what leases
// read.
func (d *decider) memory() {
	// like what was snoozed: the next Decide does not ask again
	for _, key := range d.state.memory.Misses() {
		d.live.memory.Miss(key)
	}
	if d.in.MemoryMax > 0 && d.state.meta.FactBytes > uint64(d.in.MemoryMax) {
		d.makeRoom(uint64(d.in.MemoryMax))
		return
	}
	for _, key := range d.live.memory.Misses() {
		row := d.state.memory.Fact(key)
		if row == nil || row.Evicted.GetSequence() == 0 || !d.fits(uint64(len(key))+row.Size) {
			continue
		}
		if !d.reingest(key, row, row.Evicted) {
			return
		}
	}
}

// makeRoom evicts the facts that can never fit, for which nothing else goes; then,
// if that is not enough, others down to the low water. What has come into memory in
// this very turn is for the next one, whose order has it.
func (d *decider) makeRoom(capacity uint64) {
	came := d.state.meta.FactBytes - min(d.state.meta.FactBytes, d.live.meta.FactBytes)
	enough := capacity
	for _, c := range d.live.memory.EvictionOrder(evictScanMax, capacity, d.live.watched) {
		used := d.state.meta.FactBytes - came
		if used > capacity && !c.Oversize {
			enough = lowWater(d.in.MemoryMax)
		}
		if used <= enough || len(d.records) >= memory.EvictionsMax || d.full() {
			break
		}
		d.evict(c.Key, c.Row.SinceNs, nil)
	}
}

// fits reports whether a fact may come back by itself: only into memory that
// is not above its low water, and never so that another had to go for it.
func (d *decider) fits(bytes uint64) bool {
	used := d.state.meta.FactBytes
	return d.in.MemoryMax <= 0 || used <= lowWater(d.in.MemoryMax) &&
		used+bytes <= uint64(d.in.MemoryMax)
}

// asked carries out an operator's request about a fact.
func (d *decider) asked(entry string) {
	key := entry[1:]
	row := d.state.memory.Fact(key)
	switch {
	case row == nil || row.Asked == nil: // what was asked about is gone by what this turn has decided
	case entry[:1] == todoEvict:
		d.evict(key, row.SinceNs, row.Asked)
	case row.Evicted.GetSequence() != 0:
		d.reingest(key, row, row.Asked)
	}
}

// evict proposes an eviction of the fact that has this place in the order. A fact of
// this very turn has no address yet.
func (d *decider) evict(key string, sinceNs int64, cause *pb.Address) {
	row := d.state.memory.Fact(key)
	if row == nil || !memory.Resident(row) || row.SinceNs != sinceNs || row.Source.GetSequence() == 0 {
		return
	}
	d.propose(&pb.Record{Cause: cause, Kind: &pb.Record_FactEvicted{FactEvicted: &pb.FactEvicted{
		Key: key, Fact: row.Source, Bytes: memory.Size(key, row), Watched: d.live.watched(key),
	}}})
}

// reingest proposes to bring an evicted fact back; false when the commit is full.
func (d *decider) reingest(key string, row *rowspb.FactRow, cause *pb.Address) bool {
	k := &pb.FactReingested{Key: key, Fact: row.Source, Value: d.state.memory.Recall(key, row),
		Evicted: row.Evicted}
	r := &pb.Record{Cause: cause, Kind: &pb.Record_FactReingested{FactReingested: k}}
	if ledger.RecordSize(r) > dispatchMax {
		k.Value = nil // the fold reads it where it was asserted
	}
	return d.propose(r)
}

// watched reports whether a held lease is indexed by a fact.
func (s *State) watched(key string) bool {
	return s.watchers.Any(key)
}

package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/RaduBerinde/btreemap"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// factOf is the fact that a compensation in working memory makes, after its
// arguments; ok is false when they are none.
func factOf(capability string, arguments []byte) (key string, value []byte, ok bool) {
	var in struct {
		Key   json.RawMessage `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(arguments, &in) != nil || len(in.Key) == 0 || string(in.Key) == "null" ||
		json.Unmarshal(in.Key, &key) != nil {
		return "", nil, false
	}
	if len(key) == 0 || len(key) > ledger.FactKeyMax || !utf8.ValidString(key) {
		return "", nil, false
	}
	if capability == ledger.CapabilityRetract {
		return key, nil, true
	}
	return key, in.Value, capability == ledger.CapabilityAssert && len(in.Value) > 0 &&
		len(in.Value) <= ledger.UndoFactMax
}

// changedBy: the attempt under way has changed its fact.
func (b *book) changedBy(a *action, key string) bool {
	f := b.fact(key)
	return f != nil && f.undo && sameAddress(f.cause, a.dispatched)
}

// changedItsFact: of an undo in working memory, that; of any other, true.
func (b *book) changedItsFact(a *action) bool {
	if !a.makesFact() {
		return true
	}
	key, _, ok := factOf(a.compensation.Capability, a.arguments)
	return ok && b.changedBy(a, key)
}

// noteFact keeps the value of a fact.
func (b *book) noteFact(e ledger.Entry, key string, value []byte) {
	f := &fact{value: value, assertedNs: b.now, changedNs: b.now, source: e.Address}
	old := b.fact(key)
	b.spent.factTurned(old != nil && !old.retracted, true)
	if old != nil {
		f.times, f.runs = old.times, old.runs
		f.earlier = old.besides(e)
		byValue := readsExactly(b.rules) && !old.rough
		if !old.retracted && (bytes.Equal(old.value, value) ||
			byValue && triggers.Same(old.value, value)) {
			f.changedNs = old.changedNs
		}
	}
	b.asserted(f, key, b.now)
	f.undo, f.cause = e.Source.Class == ledger.ClassExecutor, e.Record.Cause
	b.notesCascade(e, f)
	b.facts.put(key, f, len(key)+len(value)+8*len(f.times)+recordLen)
	b.listed(key, f)
	b.lookFact(key)
}

// besides are the values of a fact that the message of a record has asserted before it.
func (f *fact) besides(e ledger.Entry) [][]byte {
	switch {
	case f.source.GetSequence() != e.Address.Sequence:
		return nil
	case f.retracted:
		return f.earlier
	}
	return append(slices.Clip(f.earlier), f.value)
}

// noteTombstone keeps that a fact is gone.
func (b *book) noteTombstone(e ledger.Entry, key string) {
	f := b.fact(key)
	if f == nil {
		f = &fact{} // of what was never asserted: a compensation says so nevertheless
		b.facts.put(key, f, len(key)+recordLen)
		f.retracted = true
	}
	if b.spent.factTurned(!f.retracted, false); !f.retracted {
		f.earlier = f.besides(e)
	}
	f.value, f.evicted, f.asked, f.retracted, f.changedNs, f.tombstone = nil, nil, nil, true, b.now,
		e.Address
	b.listed(key, f)
	f.undo, f.cause = e.Source.Class == ledger.ClassExecutor, e.Record.Cause
	b.notesCascade(e, f)
	b.lookFact(key)
}

// noteMade keeps the fact of a compensation.
func noteMade(b *book, c *claim) {
	key, _, _ := factOf(c.a.compensation.Capability, c.a.arguments)
	if said := c.Record.GetFactAsserted(); said != nil {
		b.noteFact(c.Entry, key, said.Value)
		return
	}
	b.noteTombstone(c.Entry, key)
}

// What a firing tells of what it has read: as much as a commit has room for.
const (
	readingsMax = 16 << 10 // bytes of all
	readingMax  = 1 << 10  // bytes of one value; a longer one is found at its sequence
)

// readings are what a condition reads here, as a firing tells it.
func (b *book) readings(p *plan, number uint32, l *lease) (list []*pb.Reading) {
	condition, err := b.programs.Condition(l.conditionText())
	if err != nil {
		return nil
	}
	var a *action
	if number != 0 {
		a = p.actions[number-1]
	}
	size := 0
	for _, r := range condition.Hold(p.scope(a, l)).Evaluate(b.now, factView{b}).Readings {
		reading := &pb.Reading{Name: r.Name, Sequence: r.Sequence}
		if len(r.Value) <= readingMax {
			reading.Value = r.Value
		}
		if size += reading.SizeVT(); size > readingsMax {
			break
		}
		list = append(list, reading)
	}
	return list
}

// sourceSequence is where a fact was asserted last; 0: it never was.
func (f *fact) sourceSequence() uint64 {
	if f == nil {
		return 0
	}
	return f.source.GetSequence()
}

// sameReading compares what stood there with what a firing tells: of a fact of its own
// commit it knows no sequence.
func sameReading(stood, told *pb.Reading, own uint64) bool {
	sequence := told.Sequence == stood.Sequence || told.Sequence == 0 && stood.Sequence == own
	return stood.Name == told.Name && sequence && bytes.Equal(stood.Value, told.Value)
}

// readFact is the key of a reading of a fact.
func readFact(name string) (key string, ok bool) {
	name, ok = strings.CutPrefix(name, "facts[")
	if !ok {
		return "", false
	}
	return key, json.Unmarshal([]byte(strings.TrimSuffix(name, "]")), &key) == nil
}

func readingsText(list []*pb.Reading) string {
	if len(list) == 0 {
		return "nothing"
	}
	var parts []string
	for _, r := range list {
		text := fmt.Sprintf("%s = %s", r.Name, r.Value)
		if r.Sequence != 0 {
			text += fmt.Sprintf(" of sequence %d", r.Sequence)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// verdictNames are as conditions read them.
var verdictNames = [...]string{"", "allow", "block", "redirect"}

// scope is what a condition may read of its plan and action.
func (p *plan) scope(a *action, l *lease) triggers.Scope {
	s := triggers.Scope{ArmedNs: l.armedNs, Inexact: !l.exact, Plan: triggers.Plan{
		ID: p.id, Status: p.status(), Label: p.declared.Label, Owner: p.declared.Owner,
		Agent:    openedBy(p),
		OpenedNs: p.openedNs, ActiveNs: p.activeNs, DeadlineNs: p.deadlineNs,
		Actions: len(p.actions),
	}}
	for _, label := range p.declared.Labels {
		if s.Plan.Labels == nil {
			s.Plan.Labels = map[string]string{}
		}
		s.Plan.Labels[label.Key] = label.Value
	}
	if a == nil {
		return s
	}
	s.Action = &triggers.Action{
		ID: a.id, Capability: a.forward.GetCapability(), AtNs: a.atNs, Input: a.forward.GetLifted(),
		Output:  a.lifted,
		Outcome: a.outcome, Presence: nameOf(a.presence),
	}
	if a.verdict != pb.VerdictOutcome_VERDICT_OUTCOME_UNSPECIFIED {
		outcome := verdictNames[a.verdict]
		s.Verdict = &triggers.Verdict{Outcome: outcome, Reason: a.verdictReason, By: a.verdictBy,
			AtNs: a.verdictNs}
	}
	return s
}

func nameOf(p pb.Presence) string {
	return map[pb.Presence]string{1: "present", 2: "absent", 3: "duplicate"}[p]
}

// factView lets conditions read the facts.
type factView struct{ b *book }

// Fact implements triggers.View.
func (v factView) Fact(key string) *triggers.Fact {
	f := v.b.fact(key)
	if f == nil || f.retracted {
		return nil
	}
	return &triggers.Fact{Value: json.RawMessage(f.value), AssertedNs: f.assertedNs,
		ChangedNs: f.changedNs, Sequence: f.source.GetSequence()}
}

// Occurrences implements triggers.View.
func (v factView) Occurrences(key string, fromNs, toNs int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		f := v.b.fact(key)
		if f == nil {
			return
		}
		all := func(times []int64) bool {
			for _, ns := range times {
				if ns > max(fromNs, 0) && ns <= toNs && !yield(ns) {
					return false
				}
			}
			return true
		}
		for i, r := range f.runs {
			if r.to > fromNs && r.from <= toNs && !all(v.b.times(key, i)) {
				return
			}
		}
		all(f.times)
	}
}

// named are the keys of the facts that there are, in their order. They are kept from the first time
// on that a condition asks for those of a prefix: a prefix costs what it holds then.
func (s *store) named() *btreemap.BTreeMap[string, struct{}] {
	if s.names == nil {
		if s.names = btreemap.New[string, struct{}](32, strings.Compare); s.under != nil {
			s.names = s.under.named().Clone()
		}
		s.facts.each(s.listed)
	}
	return s.names
}

// listed keeps whether a fact is there.
func (s *store) listed(key string, f *fact) {
	switch {
	case s.names == nil:
	case f.retracted:
		s.names.Delete(key)
	default:
		s.names.ReplaceOrInsert(strings.Clone(key), struct{}{})
	}
}

// Under implements triggers.View.
func (v factView) Under(prefix string) iter.Seq2[string, *triggers.Fact] {
	return func(yield func(string, *triggers.Fact) bool) {
		for key := range v.b.named().Ascend(btreemap.GE(prefix), btreemap.Max[string]()) {
			if !strings.HasPrefix(key, prefix) || !yield(key, v.Fact(key)) {
				return
			}
		}
	}
}

// watchers are the committed plans that wait for a fact, by its key or by a prefix of it.
func (s *store) watchers(fact string) []string {
	ids := slices.Clone(s.readers[fact])
	for n := range len(fact) + 1 {
		if s.byPrefix == 0 {
			break
		}
		ids = append(ids, s.readers[triggers.PrefixKey(fact[:n])]...)
	}
	return ids
}

// haveRead tells who asks which facts were read for a plan, and the prefixes of others.
func haveRead(b *book, p *plan, read, watched []string) {
	if b.onRead == nil {
		return
	}
	var prefixes []string
	for _, key := range watched {
		if prefix, is := triggers.PrefixOf(key); is {
			prefixes = append(prefixes, prefix)
		}
	}
	b.onRead(p.id, read, prefixes)
}

// noteReads lists a committed plan by the facts that could turn what it holds.
func noteReads(b *book, p *plan) {
	var keys []string
	if !p.holdsLeases() {
		for _, l := range p.heldOn() {
			if condition, err := b.programs.Condition(l.text); err == nil {
				h := condition.Hold(p.scope(l.a, l.lease))
				result := h.Evaluate(l.asOf(b.now), factView{b})
				keys = append(append(keys, l.watched...), h.Watched(result, b.now, factView{b})...)
			}
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	had := b.reads[p.id]
	if slices.Equal(keys, had) {
		return
	}
	for _, key := range had {
		others := slices.DeleteFunc(slices.Clone(b.readers[key]),
			func(id string) bool { return id == p.id })
		if b.readers[key] = others; len(others) == 0 {
			delete(b.readers, key)
			b.countPrefix(key, -1)
		}
	}
	for _, key := range keys {
		if len(b.readers[key]) == 0 {
			b.countPrefix(key, 1)
		}
		b.readers[key] = append(slices.Clip(b.readers[key]), p.id)
	}
	if b.reads[p.id] = keys; len(keys) == 0 {
		delete(b.reads, p.id)
	}
}

// countPrefix counts the prefixes that committed plans wait for.
func (s *store) countPrefix(key string, by int) {
	if _, is := triggers.PrefixOf(key); is {
		s.byPrefix += by
	}
}

func codeFact(c *coder, v **fact) {
	pointer(c, v, func(c *coder, f *fact) {
		c.bytes(&f.value)
		sequence(c, &f.earlier, (*coder).bytes)
		number(c, &f.assertedNs)
		number(c, &f.changedNs)
		codeTimes(c, &f.times)
		sequence(c, &f.runs, func(c *coder, r *run) { number(c, &r.from); number(c, &r.to) })
		record(c, &f.source)
		c.flag(&f.retracted)
		record(c, &f.tombstone)
		record(c, &f.evicted)
		c.flag(&f.rough)
		record(c, &f.asked)
		c.flag(&f.undo)
		record(c, &f.cause)
		number(c, &f.depth)
		record(c, &f.fired)
		record(c, &f.madeAt)
		c.text(&f.undonePlan)
		c.text(&f.undoneA)
	})
}

package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// What a firing tells of what it has read: as much as a commit has room for.
const (
	readingsMax = 16 << 10 // bytes of all
	readingMax  = 1 << 10  // bytes of one value; a longer one is found at its sequence
)

// readings are what a condition reads here, as a firing tells it.
func (b *book) readings(p *plan, number uint32, l *lease) (list []*pb.Reading) {
	condition, err := b.programs.Condition(l.condition())
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

// readingRule is a part of I11: what a firing says that its condition read is so. Where
// it turned by no clock that is what stood there then. One on the clock, and one that
// turned in this very commit, as one that is armed again does, was asked where its holder
// decided: of the facts that have not changed since, it has the values.
func (b *book) readingRule(e ledger.Entry, was before, k *pb.LeaseFired) string {
	if t := was.noted; t != nil {
		alike := func(stood, told *pb.Reading) bool { return sameReading(stood, told, e.Address.Sequence) }
		switch same := slices.EqualFunc(t.read, k.Readings, alike); {
		case same:
			return ""
		case !t.clocked && t.at.GetSequence() != e.Address.Sequence:
			return fmt.Sprintf("it says that lease %s read %.200s, and that was %.200s", k.Lease, readingsText(k.Readings), readingsText(t.read))
		}
	}
	for _, r := range k.Readings {
		key, ok := readFact(r.Name)
		if !ok || r.Sequence == 0 {
			continue
		}
		f := b.fact(key)
		switch at := f.sourceSequence(); {
		case at < r.Sequence:
			return fmt.Sprintf("it says that lease %s read fact %q of sequence %d, which asserts none", k.Lease, key, r.Sequence)
		case at == r.Sequence && len(r.Value) > 0 && !f.retracted && !bytes.Equal(r.Value, f.value):
			return fmt.Sprintf("it says that lease %s read %.80s as fact %q, which is %.80s", k.Lease, r.Value, key, f.value)
		}
	}
	return ""
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

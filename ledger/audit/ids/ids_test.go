package ids_test

import (
	"math/rand/v2"
	"testing"

	executor "github.com/sagenbaum/sagenbaum/executor/ids"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit/ids"
)

// TestAnAuditKeepsWhatTheFoldKeeps: the two know and drop the same ids, in any order of them.
func TestAnAuditKeepsWhatTheFoldKeeps(t *testing.T) {
	const kept = 40
	random := rand.New(rand.NewPCG(1, 2))
	var set ids.Set
	tx := rows.Over(rows.NewMemoryKV())
	old, known := 0, 0
	for i := range 5000 {
		window := executor.Of(tx, ledger.Source{Class: ledger.ClassFact, Name: "sensor"})
		id := ledger.RecordID{4: byte((i + random.IntN(400)) >> 8), 5: byte(random.IntN(256))}
		_, has := set.Find(id)
		if got := window.Find(id) != nil; got != has {
			t.Fatalf("%x is known to the fold: %v", id, got)
		}
		tooOld := set.TooOld(id)
		if got := window.IsBefore(id); got != tooOld {
			t.Fatalf("%x is too old for the fold: %v", id, got)
		}
		switch {
		case has:
			known++
		case tooOld:
			old++
		default:
			set.Keep(id, [16]byte{}, kept)
			window.Keep(id, new(rowspb.IdRow), kept)
		}
	}
	if old == 0 || known == 0 {
		t.Errorf("%d ids were too old and %d known: the ids are not mixed", old, known)
	}
}

// TestATrialKeepsForItself: what is folded on trial is not known afterwards, and what is kept below
// a trial that has kept nothing of that writer is known to it.
func TestATrialKeepsForItself(t *testing.T) {
	id := func(n byte) ledger.RecordID { return ledger.RecordID{5: n} }
	var book ids.ByWriter
	book.Keep("a", id(1), [16]byte{1}, 2)
	trial := book.Trial()
	second := trial.Trial()
	second.Keep("a", id(2), [16]byte{2}, 2)
	second.Keep("a", id(3), [16]byte{3}, 2)
	second.Keep("b", id(1), [16]byte{4}, 2)
	knows := func(of *ids.ByWriter, writer string, n byte) bool {
		_, known := of.Of(writer).Find(id(n))
		return known
	}
	if !second.Of("a").TooOld(id(1)) || knows(second, "a", 1) || !knows(second, "a", 3) || !knows(second, "b", 1) {
		t.Error("a trial does not keep what it is given")
	}
	for _, of := range []*ids.ByWriter{&book, trial} {
		if !knows(of, "a", 1) || knows(of, "a", 2) || knows(of, "b", 1) || of.Of("a").TooOld(id(1)) {
			t.Error("what a trial keeps is known below it")
		}
	}
}

package executor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// What a version makes of what another has written. An older one's ledgers are the
// goldens; a later one's are here: the rules are in docs/guide/upgrade.md.

// withoutLeaves is what a script prints of a plan, with the places of records only.
func withoutLeaves(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = barePlace(word)
	}
	return strings.Join(words, " ")
}

// written are the records of a ledger, as scripts print them.
func (s *script) written() (out []string) {
	for line := range strings.Lines(s.recordsAfter(1, true)) {
		out = append(out, strings.TrimSpace(withoutLeaves(line)))
	}
	return out
}

// TestFieldsOfALaterVersionFoldToTheSameState: the plan, every decision and what
// workers are sent are the same with unknown fields in each record and without; and
// a state that was stopped after any of them goes on alike.
func TestFieldsOfALaterVersionFoldToTheSameState(t *testing.T) {
	for _, line := range []string{
		"open a a+ b b+ c c? fail",
		"open@5s a:probe a? b:verify b+ fail",
		"open:continue a a+ b<a b+ c<a:irr c+ fail",
		"open a a+ fact:x=1 judge:a=block* cancel",
	} {
		played := newSchedule(t)
		played.play(line + " turn")
		log := withUnknownFields(t, played)
		plain, later := scriptOver(t, played.log), scriptOver(t, log)
		if a, b := withoutLeaves(planText(plain.world.show("p"))), withoutLeaves(planText(later.world.show("p"))); a != b {
			t.Errorf("%s:\n%s\nwith unknown fields:\n%s", line, a, b)
		}
		if a, b := plain.written(), later.written(); len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("%s:\n%s\nwith unknown fields:\n%s", line, strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
		later.rebuilt()
		for n := 1; n <= len(log); n++ {
			stopped := goldenFold(t, log, 1, func(at int) bool { return at == n })
			if got := stopped[len(log)]; got != rows.FormatDigest(rows.Digest(later.kv)) {
				t.Fatalf("%s: stopped after %d it ends at %s", line, n, got)
			}
		}
	}
}

// scriptOver is a script behind a ledger.
func scriptOver(t *testing.T, log []ledger.Message) *script {
	t.Helper()
	s := newScript(t)
	s.world = worldOf(t, s.programs, log)
	return s
}

// TestAHaltedFoldIsWhereItWas: what a later holder has written changes nothing in the
// state of this version, which goes on from there when it can be read.
func TestAHaltedFoldIsWhereItWas(t *testing.T) {
	s := newSchedule(t)
	s.play("open a a+ b b+ fail turn")
	log := slices.Clone(s.log)
	for n := 2; n < len(log); n++ {
		source, ok := ledger.ParseSubject(log[n].Subject)
		if !ok || source.Class != ledger.ClassExecutor {
			continue
		}
		before := goldenFold(t, log[:n], 1, func(int) bool { return false })[n]
		newer := log[n]
		newer.Data = slices.Clone(newer.Data)
		newer.Data[1] = ledger.ReaderVersion + 1
		if entries, err := ledger.Decode("t", newer); err == nil || entries != nil {
			t.Fatalf("message %d of a later version gives %d entries", n+1, len(entries))
		}
		w := worldOf(t, s.programs, log[:n])
		if got := rows.FormatDigest(rows.Digest(w.kv)); got != before {
			t.Fatalf("the state before message %d is %s, was %s", n+1, got, before)
		}
		for _, m := range log[n:] {
			w.now = m.StampNs
			w.raw(m.Subject, m.ContentType, m.Data)
		}
		if rows.Digest(w.kv) != rows.Digest(s.kv) {
			t.Fatalf("halted before message %d it ends elsewhere", n+1)
		}
	}
}

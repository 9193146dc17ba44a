package sim

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// TestNoWorldRaisesAFalseAlarm: the ledger of every world that ends well, with all its
// faults, is proven by the offline verifier: nothing was under way at its end. It keeps
// plans and facts on a shelf, and finds the same without.
func TestNoWorldRaisesAFalseAlarm(t *testing.T) {
	programs := triggers.NewCache(programsMax)
	proven, records, checkpoints, rotations := 0, uint64(0), uint64(0), 0
	worlds := testenv.Cases(50, 250)
	for seed := uint64(1); proven < worlds; seed++ {
		w := newWorld(Options{Seed: seed, Programs: programs})
		w.populate()
		w.play()
		if w.finish(); w.over {
			continue // a guard has found what the stream lost
		}
		public := w.notary.key(0).verifier
		data := packed(t, w)
		r, err := verify.Check(bytes.NewReader(data), verify.Options{Keys: []string{public}, AtRest: true,
			Memory: audit.Memory{Shelf: shelf{}, HandMax: 1}})
		if err != nil || r.Verdict != verify.Proven {
			t.Fatalf("seed %d: %v %s %+v %+v", seed, err, r.Verdict, r.Findings, r.Doubts)
		}
		if at, err := verify.Check(bytes.NewReader(data), verify.Options{Keys: []string{public}, AtRest: true}); err != nil ||
			!reflect.DeepEqual(at, r) {
			t.Fatalf("seed %d: with everything at hand: %v %+v, want %+v", seed, err, at, r)
		}
		if proven++; proven <= testenv.Cases(12, 60) {
			checkPlans(t, seed, data, public)
		}
		records, checkpoints, rotations = records+r.Size, checkpoints+r.Signed.Checkpoints-1,
			rotations+len(r.Signed.Rotations)
	}
	if checkpoints == 0 || rotations == 0 {
		t.Errorf("%d checkpoints and %d rotations in %d worlds", checkpoints, rotations, proven)
	}
	t.Logf("%d worlds, %d records, %d checkpoints of their own, %d rotations", proven, records, checkpoints, rotations)
}

// checkPlans holds the bundle of each plan to the rules, as far as it goes.
func checkPlans(t *testing.T, seed uint64, whole []byte, key string) {
	t.Helper()
	for n := range 8 {
		plan := fmt.Sprintf("p%d", n)
		var out bytes.Buffer
		if _, err := verify.Select(bytes.NewReader(whole), plan, nil, &out); err != nil {
			continue // it was never opened
		}
		r, err := verify.Check(bytes.NewReader(out.Bytes()), verify.Options{Keys: []string{key}})
		if err != nil || r.Verdict != verify.CannotTell || r.Signed.Size != r.Size {
			t.Fatalf("seed %d, plan %s: %v %s %+v %+v", seed, plan, err, r.Verdict, r.Findings, r.Doubts)
		}
	}
}

// shelf keeps everything in memory, as values that were put away and taken back.
type shelf map[string]string

// Put implements audit.Shelf.
func (s shelf) Put(key string, value []byte) { s[key] = string(value) }

// Get implements audit.Shelf.
func (s shelf) Get(key string) ([]byte, bool) {
	value, ok := s[key]
	return []byte(value), ok
}

// Each implements audit.Shelf.
func (s shelf) Each(prefix string, each func(key string, value []byte)) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if strings.HasPrefix(key, prefix) {
			each(key, []byte(s[key]))
		}
	}
}

// packed is the bundle of a world's ledger, signed with the key that is in force at its end.
func packed(t *testing.T, w *world) []byte {
	t.Helper()
	var out bytes.Buffer
	b, err := bundle.NewWriter(&out, bundle.Header{Tenant: tenant, Holds: bundle.Whole})
	if err != nil {
		t.Fatal(err)
	}
	var tree bundle.Tree
	for _, s := range w.stream.stored {
		for _, e := range s.entries {
			leaf := ledger.AppendLeaf(nil, tenant, s.message, e.Address.Index, e.Count, e.Reader, e.Body)
			tree.Append(ledger.LeafHash(leaf))
			if err := b.Record(leaf); err != nil {
				t.Fatal(err)
			}
		}
	}
	key := w.notary.key(w.notary.inForce(executor.OpenWith(w.hosts[0].kv, tenant, w.archive, w.programs).Key()))
	if err := b.Checkpoint(key.sign(&tree)); err != nil {
		t.Fatal(err)
	}
	if err := b.End(tree.Root()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

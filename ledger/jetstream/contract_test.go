package jetstream_test

import (
	"fmt"
	"testing"
)

// caseOf is one case of the contract: it has a tenant of its own.
type caseOf struct {
	name     string
	bytesMax int64 // capacity of the ledger; 0: none
	run      func(b *bed)
}

// TestStoreContract holds every store to the same promises, so that what is tried
// over Memory, as the simulator does, is true of JetStream: what a case sees is the
// same on Memory and on the server that Memory models, or the build fails. One
// server and a cluster differ in one thing, which Memory.Replicated has, too.
func TestStoreContract(t *testing.T) {
	for _, f := range []struct {
		name string
		rig  func(t *testing.T) rig
	}{
		{"memory R1", func(*testing.T) rig { return &memoryRig{} }},
		{"memory R3", func(*testing.T) rig { return &memoryRig{replicated: true} }},
		{"jetstream R1", func(t *testing.T) rig { return newServerRig(t) }},
		{"jetstream R3", func(t *testing.T) rig { return newClusterRig(t) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r, n := f.rig(t), 0
			for _, group := range [][]caseOf{appendCases, dedupeCases, fenceCases, readCases, lossCases} {
				for _, c := range group {
					n++
					tenant := fmt.Sprint("c", n)
					t.Run(c.name, func(t *testing.T) { c.run(r.open(t, tenant, c.bytesMax)) })
				}
			}
			for _, crash := range []bool{false, true} {
				t.Run(map[bool]string{false: "over a restart", true: "over a crash"}[crash], func(t *testing.T) { overRestart(t, r, crash) })
			}
		})
	}
}

// restartCase is a case in two halves, before and after a restart.
type restartCase struct {
	name     string
	bytesMax int64
	// before returns what is to be seen after.
	before func(b *bed) func()
}

// overRestart runs the first halves of all cases, restarts once, and runs the
// second halves.
func overRestart(t *testing.T, r rig, crash bool) {
	afters := make([]func(), len(restartCases))
	beds := make([]*bed, len(restartCases))
	for i, c := range restartCases {
		beds[i] = r.open(t, fmt.Sprintf("r%d-%v", i, crash), c.bytesMax)
		afters[i] = c.before(beds[i])
	}
	r.restart(t, crash)
	for i, c := range restartCases {
		t.Run(c.name, func(t *testing.T) {
			beds[i].T = t
			until(t, beds[i].ctx, "come back", func() error {
				_, err := headWithin(beds[i].ctx, beds[i].store)
				return err
			})
			afters[i]()
		})
	}
}

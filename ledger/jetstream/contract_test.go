package jetstream_test

import (
	"fmt"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// caseOf is one case of the contract: it has a tenant of its own.
type caseOf struct {
	name     string
	bytesMax int64 // capacity of the ledger; 0: none
	run      func(b *bed)
}

// TestStoreContract holds every store to the same promises, so that what is tried
// over Memory, as the simulator does, is true of JetStream: what a case sees is the
// same on Memory and on the server that Memory models, or the build fails.
func TestStoreContract(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		name string
		rig  func(t *testing.T) rig
		// again is a rig that may be restarted while others run; nil: as rig.
		again func(t *testing.T) rig
		slow  bool // a restart takes elections, and they many seconds
	}{
		{name: "memory", rig: func(*testing.T) rig { return &memoryRig{} }},
		{name: "jetstream R1", rig: func(t *testing.T) rig { return newServerRig(t) }},
		{
			name: "jetstream R3", rig: func(t *testing.T) rig { return newClusterRig(t, sharedCluster(t)) },
			again: func(t *testing.T) rig { return newClusterRig(t, ownCluster(t)) }, slow: true,
		},
	} {
		if f.again == nil {
			f.again = f.rig
		}
		for how, crash := range map[string]bool{"restart": false, "crash": true} {
			t.Run(f.name+" over a "+how, func(t *testing.T) {
				t.Parallel()
				if f.slow && !testenv.Long() {
					t.Skip("a cluster's restarts take elections of 4 to 15 s: they are tried in a long run")
				}
				overRestart(t, f.again(t), crash)
			})
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r, n := f.rig(t), 0
			for _, group := range [][]caseOf{appendCases, dedupeCases, fenceCases, readCases, lossCases} {
				for _, c := range group {
					n++
					tenant := fmt.Sprint("c", n)
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						c.run(r.open(t, tenant, c.bytesMax))
					})
				}
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

package sim_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/sim"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// TestNothingLandsAfterAPlansEnd: worlds in which effects came after their caller had hung
// up, beside all other faults; 10,000 of them in a long run.
func TestNothingLandsAfterAPlansEnd(t *testing.T) {
	t.Parallel()
	want, programs := testenv.Cases(150, 10_000), triggers.NewCache(1000)
	late, seed := 0, uint64(2_000_000)
	for ; late < want; seed++ {
		r := sim.Run(sim.Options{Seed: seed, Programs: programs})
		if strings.Contains(r.Faults, sim.FaultLanding.String()) {
			late++
		}
		if len(r.Violations) > 0 {
			t.Fatalf("seed %d: %v", seed, r.Violations)
		}
	}
	t.Logf("%d worlds with late effects, of %d", late, seed-2_000_000)
}

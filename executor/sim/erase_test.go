package sim

import "testing"

// TestPlansAreErasedInSomeWorlds: keys are destroyed, by force too, so that undos are left
// to owners; and nothing is broken there.
func TestPlansAreErasedInSomeWorlds(t *testing.T) {
	erased, worlds := 0, 0
	for seed := uint64(1); seed <= 400 && erased < 40; seed++ {
		if newErasing(seed) == nil {
			continue
		}
		w := newWorld(Options{Seed: seed})
		w.populate()
		w.play()
		w.finish()
		worlds++
		erased += len(w.erasing.keys)
		if len(w.check.violations) > 0 {
			t.Errorf("seed %d: %+v", seed, w.check.violations)
		}
	}
	if erased < 40 {
		t.Errorf("%d keys destroyed in %d worlds", erased, worlds)
	}
}

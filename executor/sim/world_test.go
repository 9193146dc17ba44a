package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

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

// TestAnEffectIsUndoneByItsNameOnce: the provider finds that two keys undo one effect, which both
// calls name; one that a call did not name may have met a blind undo.
func TestAnEffectIsUndoneByItsNameOnce(t *testing.T) {
	for _, c := range []struct {
		first, second string // what the calls of the undo name
		twice         bool
	}{{"x", "x", true}, {"", "x", false}, {"x", "", false}} {
		w := newWorld(Options{Seed: 1})
		a := &actionSpec{id: "a", key: "forward", plan: &planSpec{id: "p"},
			pair: pairSpec{forward: &pb.ForwardRegistered{}, compensation: &pb.CompensationRegistered{}}}
		ref := w.provider.make(a, false).ref
		for i, name := range []string{c.first, c.second} {
			name = strings.ReplaceAll(name, "x", ref)
			arguments := fmt.Sprintf(`{"fk":"forward","xref":%q}`, name)
			w.provider.undo(api.Command{Plan: "p", Action: []string{"a", "a~1"}[i], Key: []string{"k1", "k2"}[i],
				Arguments: []byte(arguments)}, a)
		}
		if found := len(w.check.violations) > 0; found != c.twice {
			t.Errorf("named %q, and then %q: %+v", c.first, c.second, w.check.violations)
		}
	}
}

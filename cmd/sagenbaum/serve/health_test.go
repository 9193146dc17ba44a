package serve

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host"
)

// A host that has not read yet which tenants there are is not ready, although nothing is wrong with
// any that it knows.
func TestAHostThatDoesNotKnowItsTenantsYetIsNotReady(t *testing.T) {
	t.Parallel()
	h, err := host.New(host.Config{Conn: new(nats.Conn), Dir: t.TempDir(), Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	w := new(Watching)
	w.running.Store(h)
	if answer := w.Health(); answer.OK || len(answer.Tenants) != 0 {
		t.Errorf("it answers %+v", answer)
	}
}

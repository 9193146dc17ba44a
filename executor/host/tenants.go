package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// What a process asks the host that runs in it, of one of its tenants.

// ErrNoTenant is what Watch and Ask return of a tenant that this host does not serve.
var ErrNoTenant = errors.New("this host does not serve the tenant")

func (h *Host) actorOf(tenant string) (*actor, error) {
	if a := h.roster.of(tenant); a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("cannot ask about tenant %q: %w", tenant, ErrNoTenant)
}

// Watch follows the fold of a tenant until the watch is closed. The error says that
// this host does not serve the tenant, or that it has too many watches already.
func (h *Host) Watch(tenant string) (*ask.Watch, error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return nil, err
	}
	return a.desk.Watch()
}

// Ask answers one question of the query API (docs/cli.md) from this host's own fold,
// as its NATS subject does, with what answers its verb. The error is an *api.Problem, or says
// that no one could be asked.
func (h *Host) Ask(tenant, verb string, q any) (any, error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return nil, err
	}
	return a.desk.Ask(verb, q)
}

// Pulse is where the fold of a tenant is, as Ask finds it.
func (h *Host) Pulse(tenant string) (pulse api.Pulse, err error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return pulse, err
	}
	return a.desk.Pulse()
}

// Tenants are the tenants of this host: those of its configuration in their order, then those
// that the control stream has named.
func (h *Host) Tenants() (names []string) {
	for _, a := range h.roster.all() {
		names = append(names, a.tenant)
	}
	return names
}

// Erased reports whether a tenant of this host was erased, as far as it knows.
func (h *Host) Erased(tenant string) bool {
	a := h.roster.of(tenant)
	return a != nil && a.board.Mode() == api.ModeErased
}

// Ledger reads a tenant's ledger, as this host does. The error says that the host does
// not serve the tenant, or that its ledger is not open yet.
func (h *Host) Ledger(tenant string) (ledger.Store, error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return nil, err
	}
	records := a.board.Records()
	if records == nil {
		return nil, fmt.Errorf("cannot read the ledger of %s: it is not open yet", tenant)
	}
	return records, nil
}

// Copied looks up a message of so many records in the tiles. The error says that they
// do not have it, or cannot be read.
func (h *Host) Copied(tenant string, sequence uint64, records int) (tiles.Copy, error) {
	a, err := h.actorOf(tenant)
	if err != nil {
		return tiles.Copy{}, err
	}
	return a.board.Copies().Copied(sequence, records)
}

// awaitEvery is how often Await looks.
const awaitEvery = 5 * time.Millisecond

// Await returns true once every tenant is past its start: its ledger is folded, and it is held,
// here or by another host, or says why it cannot be. It returns false when ctx ends.
func (h *Host) Await(ctx context.Context) bool {
	select {
	case <-h.Ready():
	case <-ctx.Done():
		return false
	}
	for slices.ContainsFunc(h.Health(), starts) {
		if !pause.For(ctx, awaitEvery) {
			return false
		}
	}
	return true
}

// Halted reports whether a guard has failed, so that nothing is done for the tenant.
func (t TenantHealth) Halted() bool { return t.Mode == api.ModeHalted }

// starts reports whether a tenant is about to be held.
func starts(t TenantHealth) bool {
	return t.Mode == api.ModeStarting || t.Mode == api.ModeStandby && t.Problem == ""
}

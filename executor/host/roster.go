package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/tenancy"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// roster is the tenants of a host. Tenants come, and none goes: one that is suspended or erased
// is answered for.
type roster struct {
	mu       sync.RWMutex
	order    []*actor
	byName   map[string]*actor
	silences []func()                   // end the subscriptions of the tenants
	entries  map[string]api.TenantEntry // of the control stream, the last of each tenant

	full string // why writes to the state of all wait; empty: they do not

	known sync.Once // that these are all, at the start

	forgotten []string // that had tiles here then, and that nothing named
}

// all are the actors of all tenants, in the order in which they came.
func (r *roster) all() []*actor {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.order[:len(r.order):len(r.order)]
}

// of is the actor of a tenant; nil: it is no tenant of this host.
func (r *roster) of(tenant string) *actor {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[tenant]
}

// entry is what the control stream says of a tenant.
func (r *roster) entry(tenant string) (api.TenantEntry, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e, ok := r.entries[tenant]
	return e, ok
}

// shown is what others see of the entry of a tenant; nil: it has none.
func (r *roster) shown(tenant string) (*api.TenantEntry, *api.TenantLimits) {
	e, there := r.entry(tenant)
	if !there {
		return nil, nil
	}
	effective := tenancy.Effective(e.Limits)
	return &e, &effective
}

// waits shows for all tenants that writes to their state wait, as store.Room.Waits says.
func (r *roster) waits(problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = problem
	for _, a := range r.order {
		a.lead.waits(problem)
	}
}

// note takes an entry of the control stream, unless a later one was there first, and has the
// tenant's actor look.
func (r *roster) note(e api.TenantEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries == nil {
		r.entries = map[string]api.TenantEntry{}
	}
	if r.entries[e.Tenant].Revision >= e.Revision {
		return
	}
	r.entries[e.Tenant] = e
	if a := r.byName[e.Tenant]; a != nil {
		select {
		case a.governed <- struct{}{}:
		default: // it looks soon
		}
	}
}

// silence ends the subscriptions of all tenants.
func (r *roster) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range r.silences {
		end()
	}
	r.silences = nil
}

// enlist adds a tenant whose actor does not run yet. A late one is not waited for by Ready.
func (h *Host) enlist(tenant string, late bool) *actor {
	a := newActor(h, tenant)
	if late {
		a.opened.Do(func() {})
	} else {
		h.attaching.Add(1)
	}
	r := &h.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName == nil {
		r.byName = map[string]*actor{}
	}
	r.order, r.byName[tenant] = append(r.order, a), a
	if r.full != "" {
		a.lead.waits(r.full)
	}
	return a
}

// launch runs an actor, until ctx ends.
func (h *Host) launch(ctx context.Context, running *sync.WaitGroup, a *actor,
	end context.CancelCauseFunc) error {
	silence, err := a.desk.Serve()
	h.roster.mu.Lock()
	h.roster.silences = append(h.roster.silences, silence)
	h.roster.mu.Unlock()
	if err != nil {
		return err
	}
	running.Go(func() {
		if err := a.run(ctx); err != nil {
			end(err)
		}
	})
	return nil
}

// follow follows the control stream until ctx ends: a tenant that it names is attached.
func (h *Host) follow(ctx context.Context, run func(*actor)) {
	known := func() { h.roster.known.Do(h.attaching.Done) }
	defer known()
	late := false
	var adding sync.WaitGroup
	defer adding.Wait()
	adding.Go(func() { h.goOnWithout(ctx) })
	for change := range h.control.Follow(ctx) {
		if change.Tenant == "" { // these are all that were there
			h.enlistErased(run)
			first := h.cfg.Tenants
			if h.cfg.First != "" && len(h.roster.all()) == 0 {
				first = []string{h.cfg.First}
				run(h.enlist(h.cfg.First, late))
			}
			late = true
			known()
			adding.Go(func() { h.addFlagged(ctx, first) })
			adding.Go(func() { h.findForgotten(ctx) })
			continue
		}
		e, err := tenancy.Parse(change.Tenant, change.Value, change.Sequence)
		if err != nil {
			h.log.Error("an entry of the control stream cannot be read; the one before it stays",
				"tenant", change.Tenant, "sequence", change.Sequence, "error", err)
			continue
		}
		h.noted(ctx, e, late, run)
	}
}

// goOnWithout lets a host be ready whose control stream cannot be read for long, where flags name
// tenants for it.
func (h *Host) goOnWithout(ctx context.Context) {
	if !pause.For(ctx, attachTimeout) || len(h.roster.all()) == 0 {
		return
	}
	h.roster.known.Do(func() {
		h.log.Warn("the control stream cannot be read: only the tenants of the flags are served yet")
		h.attaching.Done()
	})
}

// noted takes an entry of the control stream.
func (h *Host) noted(ctx context.Context, e api.TenantEntry, late bool, run func(*actor)) {
	h.roster.note(e)
	h.log.Debug("tenant", "tenant", e.Tenant, "state", e.State, "revision", e.Revision)
	if h.roster.of(e.Tenant) != nil || ctx.Err() != nil {
		return
	}
	if late {
		h.log.Info("a tenant is added", "tenant", e.Tenant, "by", e.By)
	}
	run(h.enlist(e.Tenant, late))
}

// addFlagged has the control stream name the tenants that flags have named, where it does not.
// It tries on while that stream cannot be written, as in a cluster that elects its leaders: a
// host without the flag serves no tenant that is not named there, and no limit of it can be set.
func (h *Host) addFlagged(ctx context.Context, tenants []string) {
	said := false
	for _, tenant := range tenants {
		for delay := retryDelayMin; ctx.Err() == nil; delay = min(delay*2, retryDelayMax) {
			a := h.nameFlagged(ctx, tenant)
			if a.Error == "" || ctx.Err() != nil {
				break
			}
			if a.Field != "" {
				h.log.Info("a tenant that a flag names is not added to the control stream", "tenant",
					tenant, "problem", a.Error)
				break
			}
			if delay == retryDelayMax && !said {
				said = true
				h.log.Warn("a tenant that a flag names is served, and cannot be added to the control "+
					"stream yet: until then its limits cannot be set, and hosts without the flag do not "+
					"serve it; it is tried again", "tenant", tenant, "problem", a.Error)
			}
			pause.For(ctx, delay)
		}
	}
}

// nameFlagged is one try of addFlagged.
func (h *Host) nameFlagged(ctx context.Context, tenant string) (a api.TenantAnswer) {
	if _, named := h.roster.entry(tenant); named {
		return a
	}
	a = h.tenancy().Do(ctx, api.TenantAdd,
		api.TenantRequest{Tenant: tenant, Actor: h.cfg.Holder, Reason: "named by a flag of its host"})
	if a.Changed {
		h.roster.note(*a.Entry)
	}
	return a
}

// findForgotten looks for tenants that have a second copy here and that nothing names: the control
// stream is lost with the server's folder, and they with it. The folder of an erased tenant is
// removed; one that could not be yet is not meant.
func (h *Host) findForgotten(ctx context.Context) {
	folders, err := os.ReadDir(h.tilesRoot())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.log.Error("cannot look which tenants have tiles here", "error", err)
	}
	var found []string
	for _, folder := range folders {
		tenant := folder.Name()
		if !ledger.ValidToken(tenant) || h.roster.of(tenant) != nil {
			continue
		}
		hashes, err := os.Stat(filepath.Join(h.tilesRoot(), tenant, tiles.HashesName))
		if err != nil || hashes.Size() == 0 {
			continue
		}
		if erased, err := h.erasedAt(ctx, tenant); err == nil && erased != "" || ctx.Err() != nil {
			continue
		}
		h.log.Error("a tenant has tiles here, and the control stream does not name it: nothing is done "+
			"for it", "tenant", tenant, "next", "sagenbaum tenant add, then sagenbaum ledger repair")
		found = append(found, tenant)
	}
	h.roster.mu.Lock()
	defer h.roster.mu.Unlock()
	h.roster.forgotten = found
}

// lost are the tenants that were forgotten, and are not added again yet.
func (r *roster) lost() (names []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, name := range r.forgotten {
		if r.byName[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

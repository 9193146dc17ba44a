package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// An erased tenant leaves a file beside the tiles of the others, with what the server's stream says
// of its erasure. Where that stream is lost, the tenant is still erased, and its name is not used.

// erasedSuffix ends the name of such a file. No tenant's name has a dot.
const erasedSuffix = ".erased"

func (h *Host) erasedMark(tenant string) string {
	return filepath.Join(h.tilesRoot(), tenant+erasedSuffix)
}

// markErased writes what is known of the erasure beside the tiles.
func (a *actor) markErased(context.Context) error {
	value, err := json.Marshal(a.erasure.TenantErasure)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.host.tilesRoot(), 0o700); err != nil {
		return err
	}
	return store.WriteSynced(a.host.erasedMark(a.tenant), value)
}

// erasureStored is what is stored of the erasure of a tenant, and its sequence; nil and 0: it was
// not erased. What the server has lost is stored again from what is beside the tiles.
func (h *Host) erasureStored(ctx context.Context, tenant string) ([]byte, uint64, error) {
	value, sequence, err := h.erasures.Get(ctx, tenant)
	if value != nil || err != nil {
		return value, sequence, err
	}
	name := h.erasedMark(tenant)
	value, err = os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	var e api.TenantErasure
	if err == nil {
		err = json.Unmarshal(value, &e)
	}
	if err == nil && e.Tenant != tenant {
		err = fmt.Errorf("it is about tenant %q", e.Tenant)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read %s, by which tenant %s was erased: %w", name, tenant, err)
	}
	if sequence, err = h.erasures.Put(ctx, tenant, value, 0); err != nil {
		return nil, 0, err
	}
	h.log.Warn("the server has lost that a tenant was erased; it is stored again", "tenant", tenant,
		"from", name)
	return value, sequence, nil
}

// enlistErased adds the tenants that were erased by what is beside the tiles, and that nothing
// names any more: they are answered for, and their users are not let in.
func (h *Host) enlistErased(run func(*actor)) {
	files, err := os.ReadDir(h.tilesRoot())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.log.Error("cannot look which tenants were erased here", "error", err)
	}
	for _, file := range files {
		tenant, marked := strings.CutSuffix(file.Name(), erasedSuffix)
		if marked && ledger.ValidToken(tenant) && h.roster.of(tenant) == nil {
			run(h.enlist(tenant, false))
		}
	}
}

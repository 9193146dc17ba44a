package host

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// tenancyOf carries out a request about a tenant.
func tenancyOf(t *testing.T, h *Host, verb string, r api.TenantRequest) api.TenantAnswer {
	t.Helper()
	if r.Actor == "" {
		r.Actor = "ana"
	}
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return h.Tenancy(t.Context(), verb, body).(api.TenantAnswer)
}

// holds waits until a host of the rig holds a tenant.
func (r *rig) holds(tenant string) {
	r.t.Helper()
	for deadline := time.Now().Add(testenv.Patience); ; <-time.After(10 * time.Millisecond) {
		m, err := r.conn.Request(api.QuerySubject(tenant, "status"), nil, askAgain)
		var answer api.StatusAnswer
		if err == nil && json.Unmarshal(m.Data, &answer) == nil && answer.Status.Mode == api.ModeHolding {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("tenant %s is not held: %+v, %v", tenant, answer, err)
		}
	}
}

// TestATenantOfAHostThatHasEndedIsRefusedWithWhatHasEndedIt: a request may come while the host
// goes, as on a full disk.
func TestATenantOfAHostThatHasEndedIsRefusedWithWhatHasEndedIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.follow = true
	h, _ := r.host("h1")
	body, err := json.Marshal(api.TenantRequest{Tenant: "shop", Actor: "ana"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancelCause(t.Context())
	end(fmt.Errorf("%w: no space left on device", ErrMute))
	for _, verb := range []string{api.TenantAdd, api.TenantShow} {
		a := h.Tenancy(ctx, verb, body).(api.TenantAnswer)
		if !strings.Contains(a.Error, "no space left on device") || a.Changed || a.Entry != nil {
			t.Errorf("%s: %+v", verb, a)
		}
	}
}

// TestTenantsComeWithoutARestart: every host attaches a tenant that one of them has added, and
// finds it again when it starts.
func TestTenantsComeWithoutARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.follow = true
	h1, stop1 := r.host("h1")
	h2, stop2 := r.host("h2")
	if a := tenancyOf(t, h1, api.TenantAdd, api.TenantRequest{Tenant: "shop"}); !a.Changed || a.Error != "" {
		t.Fatalf("%+v", a)
	}
	r.holds("shop")
	if a := tenancyOf(t, h2, api.TenantAdd, api.TenantRequest{Tenant: "shop"}); a.Changed || a.Error != "" {
		t.Errorf("again, by the other host: %+v", a)
	}
	for _, h := range []*Host{h1, h2} {
		for deadline := time.Now().Add(20 * time.Second); !slices.Contains(h.Tenants(), "shop"); {
			if time.Now().After(deadline) {
				t.Fatalf("%q", h.Tenants())
			}
			<-time.After(10 * time.Millisecond)
		}
		ls := h.Tenancy(t.Context(), api.TenantLs, nil).(api.TenantsAnswer)
		if !slices.Equal(ls.Tenants, []string{"shop", "t"}) {
			t.Errorf("%+v", ls)
		}
		if healths := h.Health(); len(healths) != 2 {
			t.Errorf("%+v", healths)
		}
	}
	stop2()
	r.holds("shop")
	r.holds("t")
	stop1()
	h1, _ = r.host("h1")
	r.holds("shop")
	entry := tenancyOf(t, h1, api.TenantShow, api.TenantRequest{Tenant: "t"})
	if entry.Error != "" || entry.Entry.Reason != "named by a flag of its host" {
		t.Errorf("a tenant of the flags: %+v", entry)
	}
}

// TestManyTenantsAreAddedAtOnce, while others ask, list and change.
func TestManyTenantsAreAddedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.follow = true
	h, _ := r.host("h1")
	names := strings.Fields("a b c d e f g h")
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			for range 2 { // the second finds it there
				if a := tenancyOf(t, h, api.TenantAdd, api.TenantRequest{Tenant: name}); a.Error != "" {
					t.Errorf("%s: %+v", name, a)
				}
			}
			a := tenancyOf(t, h, api.TenantLimit, api.TenantRequest{Tenant: name, Limits: api.TenantLimits{Facts: 3}})
			if a.Error != "" || a.Effective.Facts != 3 {
				t.Errorf("%s: %+v", name, a)
			}
			h.Health()
			h.Tenancy(t.Context(), api.TenantLs, nil)
		})
	}
	all.Wait()
	for _, name := range names {
		r.holds(name)
	}
}

// TestAServerWithoutTenantsGetsItsFirst, and one that has some gets no other.
func TestAServerWithoutTenantsGetsItsFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.follow, r.first, r.tenants = true, "default", []string{}
	h, stop := r.host("h1")
	r.holds("default")
	if a := tenancyOf(t, h, api.TenantAdd, api.TenantRequest{Tenant: "shop"}); a.Error != "" {
		t.Fatal(a)
	}
	stop()
	r.first = "another"
	h, _ = r.host("h1")
	r.holds("shop")
	if got := slices.Sorted(slices.Values(h.Tenants())); !slices.Equal(got, []string{"default", "shop"}) {
		t.Errorf("%q", got)
	}
}

// TestATenantOfAFlagIsNamedOnceTheControlStreamTakesIt: where it takes nothing at the start, as in a
// cluster that elects its leaders, the host tries on.
func TestATenantOfAFlagIsNamedOnceTheControlStreamTakesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.follow, r.first, r.tenants = true, "default", []string{}
	client, err := js.New(r.conn)
	if err != nil {
		t.Fatal(err)
	}
	full := js.StreamConfig{Name: jetstream.TenantsStream, Subjects: []string{"tenant.*"},
		Discard: js.DiscardNew, MaxBytes: 1}
	if _, err := client.CreateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	refused, err := r.conn.SubscribeSync("tenant.default")
	if err != nil {
		t.Fatal(err)
	}
	h, _ := r.host("h1")
	r.holds("default")
	if _, err := refused.NextMsg(testenv.Patience); err != nil {
		t.Fatalf("the host does not try to name it: %v", err)
	}
	if e, named := h.Wished("default"); named {
		t.Fatalf("a full stream names it: %+v", e)
	}
	full.MaxBytes = -1
	if _, err := client.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is named", func() bool { _, named := h.Wished("default"); return named })
}

// TestATenantThatTheControlStreamHasLostIsNamed, when its tiles are here, until it is added again.
func TestATenantThatTheControlStreamHasLostIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.follow = true
	h, stop := r.host("h1")
	if a := tenancyOf(t, h, api.TenantAdd, api.TenantRequest{Tenant: "shop"}); a.Error != "" {
		t.Fatal(a)
	}
	r.holds("shop")
	r.holds("t")
	stop()
	r.stopServer()
	if err := os.RemoveAll(filepath.Join(r.dir, "nats")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.dir, "h1", "tiles", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.startServer()
	h, _ = r.host("h1")
	forgotten := func() []string { return h.Tenancy(t.Context(), api.TenantLs, nil).(api.TenantsAnswer).Forgotten }
	r.eventually("it is missed", func() bool { return slices.Equal(forgotten(), []string{"shop"}) })
	if a := tenancyOf(t, h, api.TenantAdd, api.TenantRequest{Tenant: "shop"}); a.Error != "" {
		t.Fatal(a)
	}
	r.eventually("it is known again", func() bool { return len(forgotten()) == 0 })
}

// TestAnErasedTenantIsNotAddedAgain.
func TestAnErasedTenantIsNotAddedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.follow = true
	h, _ := r.host("h1")
	r.holds("t")
	q := api.TenantErasureQuery{Tenant: "t", Reason: "the contract has ended", Actor: "ana"}
	if a, err := r.eraseTenant(q, 20*time.Second); err != nil || a.Erasure == nil {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, verb := range []string{api.TenantAdd, api.TenantSuspend, api.TenantLimit} {
		a := tenancyOf(t, h, verb, api.TenantRequest{Tenant: "t", Reason: "x", Limits: api.TenantLimits{Facts: 3}})
		if a.Field != "tenant" || !strings.Contains(a.Error, "was erased at") {
			t.Errorf("%s: %+v", verb, a)
		}
	}
}

package tenancy_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/tenancy"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// shelf is a store in memory. before is called ahead of each Put, as others are that are faster.
type shelf struct {
	values   map[string][]byte
	revision map[string]uint64
	last     uint64
	before   func()
}

func (s *shelf) Get(_ context.Context, tenant string) ([]byte, uint64, error) {
	return s.values[tenant], s.revision[tenant], nil
}

func (s *shelf) Put(_ context.Context, tenant string, value []byte, after uint64) (uint64, error) {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	if s.revision[tenant] != after {
		return 0, ledger.ErrConflict
	}
	s.last++
	s.values[tenant], s.revision[tenant] = value, s.last
	return s.last, nil
}

func newDesk() (tenancy.Desk, *shelf) {
	s := &shelf{values: map[string][]byte{}, revision: map[string]uint64{}}
	now := time.Unix(1000, 0)
	return tenancy.Desk{Store: s, Now: func() time.Time { now = now.Add(time.Second); return now },
		Erased: func(_ context.Context, tenant string) (string, error) {
			if tenant == "gone" {
				return "2026-01-02T03:04:05Z", nil
			}
			return "", nil
		}}, s
}

func TestAnEntryIsAllThatIsWished(t *testing.T) {
	t.Parallel()
	d, s := newDesk()
	do := func(verb string, r api.TenantRequest) api.TenantAnswer {
		t.Helper()
		r.Tenant, r.Actor = "shop", "ana"
		a := d.Do(t.Context(), verb, r)
		if a.Error != "" {
			t.Fatalf("%s: %+v", verb, a)
		}
		return a
	}
	dry := do(api.TenantAdd, api.TenantRequest{DryRun: true, Limits: api.TenantLimits{OpenPlans: 7}})
	if !dry.Changed || dry.Entry.Limits.OpenPlans != 7 || len(s.values) != 0 {
		t.Errorf("a dry run: %+v, %v", dry, s.values)
	}
	first := do(api.TenantAdd, api.TenantRequest{Limits: api.TenantLimits{OpenPlans: 10}, Reason: "c1"})
	if !first.Changed || first.Entry.State != api.TenantActive || first.Entry.Revision != 1 ||
		first.Effective.OpenPlans != 10 || first.Effective.Facts == 0 {
		t.Errorf("%+v", first)
	}
	again := do(api.TenantAdd, api.TenantRequest{Limits: api.TenantLimits{OpenPlans: 10}, Reason: "c2"})
	if again.Changed || again.Entry.Revision != 1 || again.Entry.Reason != "c1" || s.last != 1 {
		t.Errorf("the same again: %+v", again)
	}
	do(api.TenantLimit, api.TenantRequest{Limits: api.TenantLimits{Facts: 5}})
	do(api.TenantSuspend, api.TenantRequest{Reason: "not paid"})
	if a := d.Do(t.Context(), api.TenantLimit, api.TenantRequest{Tenant: "shop", Actor: "bob",
		Reset: []string{"open_plans"}, Reason: "cheaper"}); a.Error != "" || !a.Changed {
		t.Errorf("%+v", a)
	}
	e := do(api.TenantShow, api.TenantRequest{})
	if e.Entry.State != api.TenantSuspended || e.Entry.Limits != (api.TenantLimits{Facts: 5}) ||
		e.Entry.Reason != "not paid" || e.Entry.By != "ana" || e.Entry.Revision != 4 {
		t.Errorf("%+v", e.Entry)
	}
	do(api.TenantResume, api.TenantRequest{Reason: "paid"})
	stored, err := tenancy.Parse("shop", s.values["shop"], s.last)
	if err != nil || stored.State != api.TenantActive || stored.Limits.Facts != 5 || stored.AtNs == 0 {
		t.Errorf("%+v, %v", stored, err)
	}
}

// TestAChangeIsMadeOfWhatIsThere, also where another one comes in between.
func TestAChangeIsMadeOfWhatIsThere(t *testing.T) {
	t.Parallel()
	d, s := newDesk()
	add := api.TenantRequest{Tenant: "shop", Actor: "ana"}
	if a := d.Do(t.Context(), api.TenantAdd, add); a.Error != "" {
		t.Fatal(a)
	}
	s.before = func() {
		d.Do(t.Context(), api.TenantLimit, api.TenantRequest{Tenant: "shop", Actor: "bob",
			Limits: api.TenantLimits{Facts: 9}})
	}
	a := d.Do(t.Context(), api.TenantLimit, api.TenantRequest{Tenant: "shop", Actor: "ana",
		Limits: api.TenantLimits{OpenPlans: 3}})
	if a.Error != "" || a.Entry.Limits != (api.TenantLimits{OpenPlans: 3, Facts: 9}) {
		t.Errorf("%+v", a)
	}
	s.before = func() {
		d.Do(t.Context(), api.TenantSuspend, api.TenantRequest{Tenant: "shop", Actor: "bob", Reason: "x"})
	}
	late := d.Do(t.Context(), api.TenantSuspend, api.TenantRequest{Tenant: "shop", Actor: "ana", Reason: "y"})
	if late.Field != "state" || !strings.Contains(late.Error, "by bob: x") {
		t.Errorf("%+v", late)
	}
}

func TestWhatNoOneCanHaveMeantIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	d, s := newDesk()
	for _, r := range []api.TenantRequest{{Tenant: "shop", Actor: "ana"},
		{Tenant: "late", Actor: "ana"}} {
		d.Do(t.Context(), api.TenantAdd, r)
	}
	d.Do(t.Context(), api.TenantSuspend, api.TenantRequest{Tenant: "late", Actor: "ana", Reason: "not paid"})
	before := s.last
	limits := func(l api.TenantLimits) api.TenantRequest { return api.TenantRequest{Tenant: "shop", Limits: l} }
	for name, c := range map[string]struct {
		verb  string
		r     api.TenantRequest
		field string
		says  string
		want  string
	}{
		"no name": {api.TenantAdd, api.TenantRequest{}, "tenant", `"" is no name`, "1 to 64"},
		"a long name": {api.TenantAdd, api.TenantRequest{Tenant: strings.Repeat("x", 10_000)},
			"tenant", "is no name", "1 to 64"},
		"dots": {api.TenantAdd, api.TenantRequest{Tenant: "a.b"},
			"tenant", `"a.b" is no name`, "letters"},
		"a wildcard": {api.TenantSuspend, api.TenantRequest{Tenant: "*"},
			"tenant", "is no name", "letters"},
		"unknown": {api.TenantLimit, api.TenantRequest{Tenant: "shpo"},
			"tenant", "there is no tenant shpo", "tenant ls"},
		"erased": {api.TenantAdd, api.TenantRequest{Tenant: "gone"},
			"tenant", "was erased at 2026", "another name"},
		"other limits": {api.TenantAdd, limits(api.TenantLimits{Facts: 9}), "tenant", "with other limits",
			"tenant limits shop"},
		"no limit": {api.TenantLimit, limits(api.TenantLimits{}), "limits", "no limit is given", "--open-plans"},
		"an absurd one": {api.TenantLimit, limits(api.TenantLimits{OpenPlans: 1 << 60}), "limits.open_plans",
			"1152921504606846976", "1 to 100000000"},
		"no such limit": {api.TenantLimit, api.TenantRequest{Tenant: "shop", Reset: []string{"plans"}}, "reset",
			`"plans" is no limit`, "open_plans"},
		"two words": {api.TenantLimit, api.TenantRequest{Tenant: "shop", Reset: []string{"facts"},
			Limits: api.TenantLimits{Facts: 1}}, "reset", "facts is given, too", "a value, or its default"},
		"no reason": {api.TenantSuspend, api.TenantRequest{Tenant: "shop"},
			"reason", "missing", "why"},
		"twice": {api.TenantSuspend, api.TenantRequest{Tenant: "late", Reason: "x"},
			"state", "by ana: not paid", "tenant resume late"},
		"is not so": {api.TenantResume, api.TenantRequest{Tenant: "shop"},
			"state", "active", "a suspended tenant"},
		"no verb": {"tenant.burn", api.TenantRequest{Tenant: "shop"}, "verb", "tenant.burn", "tenant.suspend"},
		"nobody asks": {api.TenantAdd, api.TenantRequest{Tenant: "new", Actor: "a b"},
			"actor", "is no name", "who asks"},
	} {
		if c.r.Actor == "" {
			c.r.Actor = "ana"
		}
		a := d.Do(t.Context(), c.verb, c.r)
		if a.Field != c.field || !strings.Contains(a.Error, c.says) || !strings.Contains(a.Want, c.want) ||
			a.Entry != nil {
			t.Errorf("%s: %+v", name, a)
		}
		if len(a.Error) > 1000 {
			t.Errorf("%s: the answer has %d bytes", name, len(a.Error))
		}
	}
	if s.last != before || len(s.values) != 2 {
		t.Errorf("something was stored: %v", s.values)
	}
}

// TestAReasonStopsNoChange: it is cut.
func TestAReasonStopsNoChange(t *testing.T) {
	t.Parallel()
	d, _ := newDesk()
	long := strings.Repeat("caf\xe9 ", ledger.TenantReasonMax)
	for _, verb := range []string{api.TenantAdd, api.TenantSuspend} {
		a := d.Do(t.Context(), verb, api.TenantRequest{Tenant: "shop", Actor: "ana", Reason: long})
		if a.Error != "" || a.Entry.Reason != ledger.TextTo(long, ledger.TenantReasonMax) {
			t.Errorf("%s: %+v", verb, a)
		}
	}
}

func TestARequestHasNoOtherFields(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `[]`, `{"tenant":"a","limit":{}}`, `{"tenant":"a"}{}`,
		`{"tenant":"a","limits":{"facts":-1}}`, `{"tenant":"a","limits":{"facts":1.5}}`, `{"tenant":7}`,
		`{"tenant":"a","limits":{"facts":18446744073709551616}}`, `{"tenant":"a","limits":{"facts":0}}`,
		`{"tenant":"a","limits":{"facts":2,"records":0}}`,
		`{"Tenant":"a"}`, `{"tenant":"a","tenant":"b"}`, `{"tenant":"a","limits":{"Facts":0}}`, `{"tenant":"a","Limits":{"facts":0}}`,
		`{"tenant":"a","limits":{"facts":2,"facts":0}}`, `{"tenant":"a","limits":null}`, `{"tenant":null}`, `null`} {
		if r, err := tenancy.ParseRequest([]byte(body)); err == nil {
			t.Errorf("%s: %+v", body, r)
		}
	}
	want := api.TenantRequest{Tenant: "a", Reset: []string{"facts"}, Limits: api.TenantLimits{Records: 3}, DryRun: true}
	body, _ := json.Marshal(want)
	if r, err := tenancy.ParseRequest(body); err != nil || r.Tenant != "a" || r.Limits != want.Limits || !r.DryRun {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAnEntryOfAnotherTenantIsNone(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{`, `{"tenant":"b","state":"active","by":"x"}`,
		`{"tenant":"a","state":"gone","by":"x"}`,
		`{"tenant":"a","state":"active","by":"x","limits":{"open_plans":100000001}}`} {
		if e, err := tenancy.Parse("a", []byte(value), 1); err == nil {
			t.Errorf("%s: %+v", value, e)
		}
	}
}

// TestRequiringNamesIsAWishLikeALimit: what is not said stays as it is, and the holder is told.
func TestRequiringNamesIsAWishLikeALimit(t *testing.T) {
	t.Parallel()
	d, _ := newDesk()
	yes, no := true, false
	ask := func(verb string, r api.TenantRequest) api.TenantAnswer {
		t.Helper()
		r.Tenant, r.Actor = "shop", "ana"
		a := d.Do(t.Context(), verb, r)
		if a.Error != "" {
			t.Fatal(a)
		}
		return a
	}
	a := ask(api.TenantAdd, api.TenantRequest{RequireNames: &yes})
	if !a.Entry.RequireNames || !tenancy.Record(*a.Entry).RequireNames {
		t.Errorf("%+v", a)
	}
	if a := ask(api.TenantLimit, api.TenantRequest{Limits: api.TenantLimits{Facts: 9}}); !a.Entry.RequireNames {
		t.Errorf("another wish takes it back: %+v", a)
	}
	if a := ask(api.TenantLimit, api.TenantRequest{RequireNames: &yes}); a.Changed {
		t.Errorf("it was so: %+v", a)
	}
	if a := ask(api.TenantLimit, api.TenantRequest{RequireNames: &no}); a.Entry.RequireNames || !a.Changed {
		t.Errorf("%+v", a)
	}
}

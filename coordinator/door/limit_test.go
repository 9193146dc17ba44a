package door_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestALimitOfTheTenantIsNamed: over HTTP with status 429, each time that it is asked.
func TestALimitOfTheTenantIsNamed(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p1"}`)
	body, err := json.Marshal(api.TenantRequest{Tenant: tenant, Actor: "ana", Limits: api.TenantLimits{OpenPlans: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testenv.Patience); ; <-time.After(5 * time.Millisecond) {
		if a := l.host.Tenancy(t.Context(), api.TenantLimit, body).(api.TenantAnswer); a.Error == "" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%+v", a)
		}
	}
	for end := time.Now().Add(testenv.Patience); ; <-time.After(5 * time.Millisecond) { // until it is in force
		p := "p" + time.Now().Format("150405000000000")
		status, _ := l.post("tripper", "plan.begin", `{"plan":"`+p+`"}`)
		if status == 200 {
			l.good(l.post, "tripper", "plan.commit", `{"plan":"`+p+`"}`)
		} else {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the limit is not in force")
		}
	}
	for range 2 {
		e := l.refused(l.post, "tripper", "plan.begin", `{"plan":"p3"}`, 429, "limits.open_plans")
		if e["limit"] != "open_plans" || e["stored"] != "all" {
			t.Errorf("%v", e)
		}
	}
	l.good(l.post, "tripper", "plan.act", `{"plan":"p1","action":"a","capability":"page.read"}`)
}

// TestAFactThatIsRefusedForALimitIsNamed: its source is told which one, and tries again.
func TestAFactThatIsRefusedForALimitIsNamed(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	body, err := json.Marshal(api.TenantRequest{Tenant: tenant, Actor: "ana", Limits: api.TenantLimits{Facts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testenv.Patience); ; <-time.After(5 * time.Millisecond) {
		if a := l.host.Tenancy(t.Context(), api.TenantLimit, body).(api.TenantAnswer); a.Error == "" {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%+v", a)
		}
	}
	l.good(l.post, "scanner", "fact.put", `{"key":"k","value":1}`)
	for n := 0; ; n++ { // until it is in force
		put := fmt.Sprintf(`{"key":"n%d","value":1}`, n)
		if status, _ := l.post("scanner", "fact.put", put); status != 200 {
			break
		}
		l.good(l.post, "scanner", "fact.retract", fmt.Sprintf(`{"key":"n%d"}`, n))
		if n > 2_000 {
			t.Fatal("the limit is not in force")
		}
	}
	e := l.refused(l.post, "scanner", "fact.put", `{"key":"other","value":1}`, 429, "limits.facts")
	if e["limit"] != "facts" || e["stored"] != "all" {
		t.Errorf("%v", e)
	}
	l.good(l.post, "scanner", "fact.put", `{"key":"k","value":2}`)
}

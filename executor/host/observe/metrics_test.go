package observe

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// However many tenants there are, the series are bounded; those without numbers of
// their own share some, which are the sums of theirs.
func TestMetricsOfManyTenantsAreBounded(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	for n := range 3 * tenantsMetered {
		meter := m.Tenant(fmt.Sprintf("t%d", n))
		meter.Mode("", api.ModeHolding)
		meter.level(Levels{}, Levels{Held: 2, NextDueNs: 5e9})
		if again := m.Tenant(fmt.Sprintf("t%d", n)); again != meter {
			t.Fatalf("tenant %d has two meters", n)
		}
	}
	body := testenv.Scrape(t, m.Handler())
	if n := len(regexp.MustCompile(`(?m)^sagenbaum_held\{`).FindAllString(body, -1)); n != tenantsMetered+1 {
		t.Errorf("%d series of held, want %d", n, tenantsMetered+1)
	}
	for _, want := range []string{
		`sagenbaum_held{tenant="t0"} 2`, fmt.Sprintf(`sagenbaum_held{tenant="(others)"} %d`, 2*2*tenantsMetered),
		fmt.Sprintf(`sagenbaum_tenants{mode="holding"} %d`, 3*tenantsMetered),
		`sagenbaum_next_due_timestamp_seconds{tenant="t0"} 5`, `sagenbaum_next_due_timestamp_seconds{tenant="(others)"} 0`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	others := m.Tenant("t299")
	others.level(Levels{Held: 2, NextDueNs: 5e9}, Levels{})
	others.Mode(api.ModeHolding, "")
	if body := testenv.Scrape(t, m.Handler()); !strings.Contains(body, fmt.Sprintf(`sagenbaum_held{tenant="(others)"} %d`, 2*2*tenantsMetered-2)) || !strings.Contains(body, fmt.Sprintf(`sagenbaum_tenants{mode="holding"} %d`, 3*tenantsMetered-1)) {
		t.Error("a tenant that is not run any more is still counted")
	}
}

// A turn that changes no number costs nothing, and no metrics cost nothing at all.
func TestNumbersThatStayCostNothing(t *testing.T) {
	m := NewMetrics()
	meter, is := m.Tenant("t"), Levels{Held: 1_000_000, Open: 7}
	meter.level(Levels{}, is)
	if n := testing.AllocsPerRun(100, func() { meter.level(is, is) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	var none *Metrics
	off := none.Tenant("t")
	off.level(Levels{}, is)
	off.Mode("", api.ModeHolding)
	off.Flying(1, 1)
	off.Stored(time.Now(), nil)
	off.Page(nil)
}

// What the numbers cost one record that is folded, and a turn.
func BenchmarkOneRecordInTheNumbers(b *testing.B) {
	meter := NewMetrics().Tenant("t")
	was, is := Levels{}, Levels{}
	for b.Loop() {
		meter.verdict(executor.Effective)
		meter.foldDelay.Observe(time.Since(time.Now()).Seconds())
		is.Held++
		meter.level(was, is)
		was = is
	}
}

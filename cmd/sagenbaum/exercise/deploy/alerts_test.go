//go:build exercise

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// series is one that a test of promtool has, which stays as it is.
type series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// modesOf are the modes that a host shows of 102 tenants: each is in a mode of its own, or in usual.
func modesOf(t *testing.T, instance, usual string, own map[string]string) (all []series) {
	t.Helper()
	m := observe.NewMetrics()
	for n := range 102 {
		tenant, mode := fmt.Sprintf("t%d", n), usual
		if other, has := own[tenant]; has {
			mode = other
		}
		meter := m.Tenant(tenant)
		meter.Mode("", api.ModeStarting)
		meter.Mode(api.ModeStarting, mode)
	}
	for line := range strings.Lines(testenv.Scrape(t, m.Handler())) {
		if labels, has := strings.CutPrefix(line, "sagenbaum_mode{"); has {
			name, value, _ := strings.Cut(strings.TrimSpace(labels), "} ")
			all = append(all, series{Series: fmt.Sprintf("sagenbaum_mode{instance=%q,%s}", instance, name),
				Values: value + "x10"})
		}
	}
	return all
}

// Tenants without numbers of their own share series that are sums. The alerts on modes tell for
// them too that one of them is in trouble, or several, and are silent while none is.
func TestTheAlertsOnModesAreRightForTenantsThatShareALabel(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("*** SKIPPED: promtool is not installed (apt-get install prometheus): the alerts are NOT tested ***")
	}
	type modes = map[string]string
	var tests []any
	for _, c := range []struct {
		name   string
		series []series
		every  string   // an alert for each tenant
		want   []string // further ones: alert and tenant
	}{
		{"all are held", modesOf(t, "a", api.ModeHolding, nil), "", nil},
		{"by one of two hosts each", append(
			modesOf(t, "a", api.ModeStandby, modes{"t0": api.ModeHolding, "t100": api.ModeHolding}),
			modesOf(t, "b", api.ModeHolding, modes{"t0": api.ModeStandby, "t100": api.ModeStandby})...), "", nil},
		{"erased", append(
			modesOf(t, "a", api.ModeHolding, modes{"t0": api.ModeErased, "t100": api.ModeErased}),
			modesOf(t, "b", api.ModeStandby, modes{"t0": api.ModeErased, "t100": api.ModeErased})...), "", nil},
		{"one is not held", modesOf(t, "a", api.ModeHolding,
			modes{"t0": api.ModeStarting, "t100": api.ModeStandby}), "",
			[]string{"SagenbaumNotHeld t0", "SagenbaumNotHeld (others)"}},
		{"nor by another host", append(modesOf(t, "a", api.ModeHolding, modes{"t100": api.ModeStandby}),
			modesOf(t, "b", api.ModeStandby, nil)...), "", []string{"SagenbaumNotHeld (others)"}},
		{"no host runs any", modesOf(t, "a", "", nil), "SagenbaumNotHeld", nil},
		{"a guard has failed", modesOf(t, "a", api.ModeHolding,
			modes{"t0": api.ModeHalted, "t100": api.ModeHalted, "t101": api.ModeHalted}), "",
			[]string{"SagenbaumHalted t0", "SagenbaumHalted (others)"}},
		{"a clock has jumped", modesOf(t, "a", api.ModeGuard, nil), "SagenbaumClockGuard", nil},
		{"a disk is full", modesOf(t, "a", api.ModeDegraded, modes{"t101": api.ModeHalted}), "SagenbaumDegraded",
			[]string{"SagenbaumHalted (others)"}},
	} {
		if c.every != "" {
			c.want = append(c.want, c.every+" (others)")
			for n := range 100 {
				c.want = append(c.want, fmt.Sprintf("%s t%d", c.every, n))
			}
		}
		samples := []any{}
		for _, want := range c.want {
			alert, tenant, _ := strings.Cut(want, " ")
			samples = append(samples, map[string]any{"value": 1,
				"labels": fmt.Sprintf("{alertname=%q,tenant=%q}", alert, tenant)})
		}
		tests = append(tests, map[string]any{"name": c.name, "interval": "1m", "input_series": c.series,
			"promql_expr_test": []any{map[string]any{"eval_time": "5m", "exp_samples": samples,
				"expr": `count by (alertname, tenant) (ALERTS{alertstate="firing"})`}}})
	}
	text, err := json.Marshal(map[string]any{ // which is YAML
		"rule_files": []string{cmdtest.InCheckout(t, "deploy", "prometheus", "alerts.yml")}, "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tests.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

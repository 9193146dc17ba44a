package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

func TestTheNumbersFollowWhatHappens(t *testing.T) {
	t.Parallel()
	s, url := cmdtest.ServeWatched(t, "--tenant", "default", "--tenant", "idle")
	if status, body := cmdtest.Get(t, url+"/healthz"); status != http.StatusOK || !strings.Contains(body, `"ok":true`) {
		t.Errorf("/healthz: %d %s", status, body)
	}
	if status, body := cmdtest.Get(t, url+"/readyz"); status != http.StatusOK ||
		!strings.Contains(body, `{"tenant":"idle","mode":"holding"}`) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	cmdtest.Trouble(t, s, "default")
	want := []string{
		`sagenbaum_plans{state="quarantined",tenant="default"} 1`,
		`sagenbaum_plans{state="unwinding",tenant="default"} 1`,
		`sagenbaum_waiting{tenant="default"} 1`, `sagenbaum_in_flight{tenant="default"} 1`,
		`sagenbaum_quarantines_total{tenant="default"} 1`,
		`sagenbaum_leases_fired_total{tenant="default"} 2`, `sagenbaum_dispatches_total{tenant="default"} 1`,
		`sagenbaum_dispatch_latency_seconds_count{tenant="default"} 1`,
		`sagenbaum_pages_total{result="taken",tenant="default"} 0`,
		`sagenbaum_pages_waiting{tenant="default"} 1`, `sagenbaum_mode{mode="holding",tenant="default"} 1`,
		`sagenbaum_fold_lag_commits{tenant="default"} 0`,
		`sagenbaum_held{tenant="idle"} 0`, `sagenbaum_leases_fired_total{tenant="idle"} 0`,
		`sagenbaum_tenants{mode="holding"} 2`,
	}
	cmdtest.Eventually(t, "the numbers", func() (string, bool) {
		_, body := cmdtest.Get(t, url+"/metrics")
		for _, line := range want {
			if !strings.Contains(body, "\n"+line+"\n") {
				return "no " + line + " in\n" + body, false
			}
		}
		return body, true
	})
	conn := cmdtest.Dial(t, s.URL)
	if _, err := conn.Subscribe("page.default.default", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "the page", func() (string, bool) {
		_, body := cmdtest.Get(t, url+"/metrics")
		return body, strings.Contains(body, "\nsagenbaum_pages_total{result=\"taken\",tenant=\"default\"} 1\n") &&
			strings.Contains(body, "\nsagenbaum_pages_waiting{tenant=\"default\"} 0\n") &&
			strings.Contains(body, "\nsagenbaum_pages_oldest_timestamp_seconds{tenant=\"default\"} 0\n")
	})
	cmdtest.Freeing(t, conn, "default")
	cmdtest.Eventually(t, "the undo", func() (string, bool) {
		_, body := cmdtest.Get(t, url+"/metrics")
		return body, strings.Contains(body, "\nsagenbaum_undos_total{tenant=\"default\"} 1\n") &&
			strings.Contains(body, "\nsagenbaum_waiting{tenant=\"default\"} 0\n") &&
			strings.Contains(body, "\nsagenbaum_in_flight{tenant=\"default\"} 0\n") &&
			strings.Contains(body, "\nsagenbaum_undo_latency_seconds_count{tenant=\"default\"} 1\n")
	})
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// What was folded before is history: a restart counts nothing again.
func TestARestartCountsNothingTwice(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0")
	cmdtest.Trouble(t, s, "default")
	s.End(t)
	again := cmdtest.ServeAs(t, dir, cmdtest.ServeCommand(t, dir, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"))
	var r serve.Ready
	if err := json.Unmarshal([]byte(again.Said), &r); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "the levels", func() (string, bool) {
		_, body := cmdtest.Get(t, "http://"+r.Metrics+"/metrics")
		return body, strings.Contains(body, "\nsagenbaum_plans{state=\"quarantined\",tenant=\"default\"} 1\n") &&
			strings.Contains(body, "\nsagenbaum_waiting{tenant=\"default\"} 1\n") &&
			strings.Contains(body, "\nsagenbaum_quarantines_total{tenant=\"default\"} 0\n") &&
			strings.Contains(body, "\nsagenbaum_leases_fired_total{tenant=\"default\"} 0\n")
	})
	again.End(t).Wants(t, "serve", cli.ExitGood)
}

func TestAHostThatIsNotReadySaysSo(t *testing.T) {
	w := new(serve.Watching)
	out := httptest.NewRecorder()
	serve.WriteHealth(out, w.Health())
	if out.Code != http.StatusServiceUnavailable || !strings.Contains(out.Body.String(), `"ok":false`) {
		t.Errorf("%d %s", out.Code, out.Body)
	}
	cmdtest.Run(t, "serve", "--data", cmdtest.DataDir(t), "--listen", "127.0.0.1:0", "--metrics", "9464").Wants(t,
		"a port alone", cli.ExitUsage, "next: --metrics 127.0.0.1:9464")
}

// TestTheNumbersAnswerToTheirHostOnly: a page whose name is made to point here reads none.
func TestTheNumbersAnswerToTheirHostOnly(t *testing.T) {
	t.Parallel()
	s, base := cmdtest.ServeWatched(t, "--metrics-name", "numbers.example")
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		for name, want := range map[string]int{
			"127.0.0.1:1": 200, "10.1.2.3": 200, "[::1]:9464": 200, "localhost": 200, own: 200,
			"numbers.example:9464": 200, "rebound.example": 421, "localhost.evil.example": 421,
			"numbers.example.evil": 421,
		} {
			r, err := http.NewRequest(http.MethodGet, base+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = name
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if err := errors.Join(err, answer.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != want || want == 421 && bytes.Contains(body, []byte("default")) {
				t.Errorf("%s as %s: %s, want %d", path, name, answer.Status, want)
			}
		}
	}
	s.End(t)
}

// metricsNamed are the metrics that a text of deploy/ names.
func metricsNamed(t *testing.T, path ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "deploy"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bsagenbaum_[a-z_]+`).FindAllString(string(text), -1)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 10 {
		t.Fatalf("%v names %v only", path, names)
	}
	return names
}

func TestWhatDashboardAndAlertsNameIsThere(t *testing.T) {
	t.Parallel()
	s, url := cmdtest.ServeWatched(t)
	body := ""
	cmdtest.Until(t, t.Context(), "the limits of the tenant are in force", func() bool {
		_, body = cmdtest.Get(t, url+"/metrics")
		return strings.Contains(body, `sagenbaum_limit{limit="open_plans",tenant="default"} 1e+06`)
	})
	for _, line := range []string{`sagenbaum_limit{limit="held_conditions",tenant="default"} 1e+07`,
		`sagenbaum_limit_used{limit="held_conditions",tenant="default"} 0`} {
		if !strings.Contains(body, line) {
			t.Errorf("the endpoint does not have %s", line)
		}
	}
	for _, file := range [][]string{{"prometheus", "alerts.yml"}, {"grafana", "sagenbaum.json"}} {
		for _, name := range metricsNamed(t, file...) {
			if !strings.Contains(body, "\n"+name+"{") && !strings.Contains(body, "\n"+name+" ") {
				t.Errorf("%v names %s, which the endpoint does not have", file, name)
			}
		}
	}
	s.End(t)
}

// The dashboard shows every number that is there, so that none is measured for nobody.
func TestTheDashboardLeavesNoNumberOut(t *testing.T) {
	t.Parallel()
	s, url := cmdtest.ServeWatched(t)
	_, body := cmdtest.Get(t, url+"/metrics")
	shown := strings.Join(metricsNamed(t, "grafana", "sagenbaum.json"),
		" ") + " " + strings.Join(metricsNamed(t, "prometheus", "alerts.yml"), " ")
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (sagenbaum_\S+)`).FindAllStringSubmatch(body, -1) {
		if !strings.Contains(shown, line[1]) {
			t.Errorf("%s is on no dashboard and in no alert", line[1])
		}
	}
	s.End(t)
}

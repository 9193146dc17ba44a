package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// eventually asks again and again until the answer is yes; what it last saw is told
// when it never is.
func eventually(t *testing.T, what string, seen func() (string, bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		saw, yes := seen()
		if yes {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: never; at last\n%s", what, saw)
		case <-tick.C:
		}
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// serveWatched starts `serve` with its numbers, and returns where they are.
func serveWatched(t *testing.T, args ...string) (_ *served, address string) {
	t.Helper()
	command := serveCommand(t, dataDir(t),
		append([]string{"--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}, args...)...)
	s := serveAs(t, "", command)
	var r serve.Ready
	if err := json.Unmarshal([]byte(s.said), &r); err != nil || r.Metrics == "" {
		t.Fatalf("serve says nothing of its numbers: %s", s.said)
	}
	return s, "http://" + r.Metrics
}

// trouble leaves a tenant with one plan in quarantine and one whose undo finds no worker.
func trouble(t *testing.T, s *served, tenant string) {
	t.Helper()
	conn := dial(t, s.url)
	openPlan(t, conn, tenant, "stuck")
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: tenant, Agent: "tester",
		Contracts: []contract.Contract{
			{Capability: "room.book", Class: contract.Compensable, Inverse: &contract.Inverse{Call: "room.free"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "lonely"})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Report(t.Context(), coordinator.Action{Capability: "room.book"}, coordinator.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ask(t, tenant, "plan", "cancel", "stuck", "--reason", "sold out", "--wait").wants(t, "cancel", cli.ExitLook)
	s.ask(t, tenant, "plan", "cancel", "lonely", "--reason", "sold out").wants(t, "cancel", cli.ExitGood)
}

func TestTheNumbersFollowWhatHappens(t *testing.T) {
	t.Parallel()
	s, url := serveWatched(t, "--tenant", "default", "--tenant", "idle")
	if status, body := get(t, url+"/healthz"); status != http.StatusOK || !strings.Contains(body, `"ok":true`) {
		t.Errorf("/healthz: %d %s", status, body)
	}
	if status, body := get(t, url+"/readyz"); status != http.StatusOK ||
		!strings.Contains(body, `{"tenant":"idle","mode":"holding"}`) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	trouble(t, s, "default")
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
	eventually(t, "the numbers", func() (string, bool) {
		_, body := get(t, url+"/metrics")
		for _, line := range want {
			if !strings.Contains(body, "\n"+line+"\n") {
				return "no " + line + " in\n" + body, false
			}
		}
		return body, true
	})
	conn := dial(t, s.url)
	if _, err := conn.Subscribe("page.default.default", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the page", func() (string, bool) {
		_, body := get(t, url+"/metrics")
		return body, strings.Contains(body, "\nsagenbaum_pages_total{result=\"taken\",tenant=\"default\"} 1\n") &&
			strings.Contains(body, "\nsagenbaum_pages_waiting{tenant=\"default\"} 0\n") &&
			strings.Contains(body, "\nsagenbaum_pages_oldest_timestamp_seconds{tenant=\"default\"} 0\n")
	})
	freeing(t, conn, "default")
	eventually(t, "the undo", func() (string, bool) {
		_, body := get(t, url+"/metrics")
		return body, strings.Contains(body, "\nsagenbaum_undos_total{tenant=\"default\"} 1\n") &&
			strings.Contains(body, "\nsagenbaum_waiting{tenant=\"default\"} 0\n") &&
			strings.Contains(body, "\nsagenbaum_in_flight{tenant=\"default\"} 0\n") &&
			strings.Contains(body, "\nsagenbaum_undo_latency_seconds_count{tenant=\"default\"} 1\n")
	})
	s.end(t).wants(t, "serve", cli.ExitGood)
}

// What was folded before is history: a restart counts nothing again.
func TestARestartCountsNothingTwice(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	s := serveFor(t, dir, "--listen", "127.0.0.1:0")
	trouble(t, s, "default")
	s.end(t)
	again := serveAs(t, dir, serveCommand(t, dir, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"))
	var r serve.Ready
	if err := json.Unmarshal([]byte(again.said), &r); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the levels", func() (string, bool) {
		_, body := get(t, "http://"+r.Metrics+"/metrics")
		return body, strings.Contains(body, "\nsagenbaum_plans{state=\"quarantined\",tenant=\"default\"} 1\n") &&
			strings.Contains(body, "\nsagenbaum_waiting{tenant=\"default\"} 1\n") &&
			strings.Contains(body, "\nsagenbaum_quarantines_total{tenant=\"default\"} 0\n") &&
			strings.Contains(body, "\nsagenbaum_leases_fired_total{tenant=\"default\"} 0\n")
	})
	again.end(t).wants(t, "serve", cli.ExitGood)
}

func TestAHostThatIsNotReadySaysSo(t *testing.T) {
	w := new(serve.Watching)
	out := httptest.NewRecorder()
	serve.WriteHealth(out, w.Health())
	if out.Code != http.StatusServiceUnavailable || !strings.Contains(out.Body.String(), `"ok":false`) {
		t.Errorf("%d %s", out.Code, out.Body)
	}
	finished(t, sagenbaum(t, "serve", "--data", dataDir(t), "--listen", "127.0.0.1:0", "--metrics", "9464")).wants(t,
		"a port alone", cli.ExitUsage, "next: --metrics 127.0.0.1:9464")
}

// TestTheNumbersAnswerToTheirHostOnly: a page whose name is made to point here reads none.
func TestTheNumbersAnswerToTheirHostOnly(t *testing.T) {
	t.Parallel()
	s, base := serveWatched(t, "--metrics-name", "numbers.example")
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
	s.end(t)
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
	s, url := serveWatched(t)
	body := ""
	until(t, t.Context(), "the limits of the tenant are in force", func() bool {
		_, body = get(t, url+"/metrics")
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
	s.end(t)
}

// The dashboard shows every number that is there, so that none is measured for nobody.
func TestTheDashboardLeavesNoNumberOut(t *testing.T) {
	t.Parallel()
	s, url := serveWatched(t)
	_, body := get(t, url+"/metrics")
	shown := strings.Join(metricsNamed(t, "grafana", "sagenbaum.json"),
		" ") + " " + strings.Join(metricsNamed(t, "prometheus", "alerts.yml"), " ")
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (sagenbaum_\S+)`).FindAllStringSubmatch(body, -1) {
		if !strings.Contains(shown, line[1]) {
			t.Errorf("%s is on no dashboard and in no alert", line[1])
		}
	}
	s.end(t)
}

// dashboardExpressions are what the panels ask, with Grafana's variables filled in.
func dashboardExpressions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "grafana", "sagenbaum.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("a panel %q without a question", p.Title)
		}
		for _, target := range p.Targets {
			all = append(all, strings.NewReplacer("$tenant", ".*", "$__rate_interval", "1m").Replace(target.Expr))
		}
	}
	if len(all) < 20 {
		t.Fatalf("the dashboard asks %d questions", len(all))
	}
	return all
}

// freeing has a worker serve what undoes room.book.
func freeing(t *testing.T, conn *nats.Conn, tenant string) {
	t.Helper()
	w, err := worker.New(worker.Config{Conn: conn, Tenant: tenant, Name: "rooms"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(context.Background()) })
	if err := w.Handle("room.free", done); err != nil {
		t.Fatal(err)
	}
}

// freeAddress is one that nothing listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// realPrometheus starts a real Prometheus on an endpoint with the alerts of deploy/, or
// skips the test loudly.
func realPrometheus(t *testing.T, target string) (url string) {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("*** SKIPPED: prometheus is not installed (apt-get install prometheus): the alerts are NOT loaded by " +
			"a real one ***")
	}
	dir := t.TempDir()
	alerts, err := filepath.Abs(filepath.Join("..", "..", "deploy", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(
		"global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- job_name: "+
			"sagenbaum\n  static_configs: [{targets: [%q]}]\n", alerts, strings.TrimPrefix(target, "http://"))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	command := exec.CommandContext(t.Context(), binary, "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
		if t.Failed() {
			t.Logf("prometheus said\n%s", &log)
		}
	})
	return "http://" + address
}

func TestARealPrometheusScrapesAndRaisesTheAlerts(t *testing.T) {
	t.Parallel()
	s, endpoint := serveWatched(t)
	prometheus := realPrometheus(t, endpoint)
	trouble(t, s, "default")
	eventually(t, "the alert", func() (string, bool) {
		answer, err := http.Get(prometheus + "/api/v1/alerts")
		if err != nil {
			return err.Error(), false // it starts
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err.Error(), false
		}
		var alerts struct {
			Data struct {
				Alerts []struct {
					State  string
					Labels map[string]string
				}
			}
		}
		if err := json.Unmarshal(body, &alerts); err != nil {
			return string(body), false
		}
		raised := map[string]string{}
		for _, a := range alerts.Data.Alerts {
			raised[a.Labels["alertname"]] = a.State
		}
		return string(body), raised["SagenbaumQuarantine"] == "firing" && raised["SagenbaumNoWorker"] == "pending"
	})
	_, rules := get(t, prometheus+"/api/v1/rules")
	if strings.Contains(rules, `"health":"err"`) || strings.Count(rules, `"type":"alerting"`) < 15 {
		t.Errorf("rules that cannot be evaluated: %s", rules)
	}
	for _, expression := range dashboardExpressions(t) {
		if status, body := get(t,
			prometheus+"/api/v1/query?query="+url.QueryEscape(expression)); status != http.StatusOK {
			t.Errorf("the dashboard asks %s: %s", expression, body)
		}
	}
	_, targets := get(t, prometheus+"/api/v1/targets")
	if !strings.Contains(targets, `"health":"up"`) {
		t.Errorf("the target is %s", targets)
	}
	s.end(t)
}

func TestPromtoolFindsNoFaultInTheRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("*** SKIPPED: promtool is not installed (apt-get install prometheus): deploy/prometheus is NOT " +
			"checked ***")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"check", "config", "prometheus.yml"}} {
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = filepath.Join("..", "..", "deploy", "prometheus")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	s, url := serveWatched(t)
	_, body := get(t, url+"/metrics")
	lint := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	lint.Stdin = strings.NewReader(body)
	if out, err := lint.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	s.end(t)
}

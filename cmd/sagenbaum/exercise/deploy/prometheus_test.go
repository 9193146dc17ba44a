//go:build exercise

package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// dashboardExpressions are what the panels ask, with Grafana's variables filled in.
func dashboardExpressions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(cmdtest.InCheckout(t, "deploy", "grafana", "sagenbaum.json"))
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
	alerts := cmdtest.InCheckout(t, "deploy", "prometheus", "alerts.yml")
	config := fmt.Sprintf(
		"global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- job_name: "+
			"sagenbaum\n  static_configs: [{targets: [%q]}]\n", alerts, strings.TrimPrefix(target, "http://"))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := cmdtest.FreeAddress(t)
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
	s, endpoint := cmdtest.ServeWatched(t)
	prometheus := realPrometheus(t, endpoint)
	cmdtest.Trouble(t, s, "default")
	cmdtest.Eventually(t, "the alert", func() (string, bool) {
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
	_, rules := cmdtest.Get(t, prometheus+"/api/v1/rules")
	if strings.Contains(rules, `"health":"err"`) || strings.Count(rules, `"type":"alerting"`) < 15 {
		t.Errorf("rules that cannot be evaluated: %s", rules)
	}
	for _, expression := range dashboardExpressions(t) {
		if status, body := cmdtest.Get(t,
			prometheus+"/api/v1/query?query="+url.QueryEscape(expression)); status != http.StatusOK {
			t.Errorf("the dashboard asks %s: %s", expression, body)
		}
	}
	_, targets := cmdtest.Get(t, prometheus+"/api/v1/targets")
	if !strings.Contains(targets, `"health":"up"`) {
		t.Errorf("the target is %s", targets)
	}
	s.End(t)
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
		command.Dir = cmdtest.InCheckout(t, "deploy", "prometheus")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	s, url := cmdtest.ServeWatched(t)
	_, body := cmdtest.Get(t, url+"/metrics")
	lint := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	lint.Stdin = strings.NewReader(body)
	if out, err := lint.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	s.End(t)
}

//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// deployed reads a file of deploy/cluster.
func deployed(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "cluster", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Every variable that a file of deploy/cluster reads is in the environment file
// beside it, and every one of those is read.
func TestTheClusterFilesReadWhatTheirEnvironmentHas(t *testing.T) {
	variable, assigned := regexp.MustCompile(`\$\{?([A-Z][A-Z0-9_]+)`), regexp.MustCompile(`(?m)^([A-Z][A-Z0-9_]+)=`)
	for reads, env := range map[string]string{"nats.conf": "nats.env", "sagenbaum-host.service": "host.env"} {
		used, given := map[string]bool{}, map[string]bool{}
		for _, m := range variable.FindAllStringSubmatch(deployed(t, reads), -1) {
			used[m[1]] = true
		}
		for _, m := range assigned.FindAllStringSubmatch(deployed(t, env), -1) {
			given[m[1]] = true
		}
		if len(used) == 0 || len(differing(used, given))+len(differing(given, used)) > 0 {
			t.Errorf("%s wants %v more of %s, which has %v too many", reads, differing(used, given), env, differing(given, used))
		}
	}
}

// The files of deploy/cluster are what the tests of a cluster start: its servers run
// nats.conf, and here two hosts run the command line of the systemd unit. An operator
// sees who holds the tenant, who stands by, and why a decision is void.
func TestAnOperatorSeesWhoHoldsAndWhoStandsBy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	c := startCluster(t, ctx)
	a := plainArena(t, c, ctx, jetstream.LeaseTTL)
	_, line, found := strings.Cut(deployed(t, "sagenbaum-host.service"), "\nExecStart=/usr/local/bin/sagenbaum serve --data /var/lib/sagenbaum ")
	if !found {
		t.Fatal("the unit does not start serve on /var/lib/sagenbaum")
	}
	line, _, _ = strings.Cut(line, "\n")
	for _, name := range []string{"host-a", "host-b"} {
		with := strings.NewReplacer("${NATS}", c.urls("host"), "${SYSTEM_NATS}", c.urls("system"), "${HOLDER}", name)
		a.hosts[name] = serveFor(t, filepath.Join(a.dir, name), strings.Fields(with.Replace(line))...)
		a.hosts[name].confess(t)
		if strings.Contains(a.hosts[name].url, "secret") {
			t.Errorf("%s shows a password: %s", name, a.hosts[name].url)
		}
	}
	if info := c.info(ctx, a.conn); info == nil || info.Config.Replicas != nodeCount {
		t.Errorf("the ledger is %+v, want %d replicas", info, nodeCount)
	}
	asked := &served{url: c.urls("host")}
	seen := func(what string, args ...string) string {
		t.Helper()
		r := asked.ask(t, tortureTenant, args...)
		r.wants(t, what, exitGood)
		return r.stdout
	}
	shows(t, seen("status", "status"), `holder +host-a, term 1 since \S+`, `host +host-b: standby, \d+ of \d+ folded, held by host-a`)
	shows(t, seen("doctor", "doctor"), `executor +tenant default is held by host-a, term 1 since`, `hosts +1 host would take over`, `host-b: standby`)
	status := decoded[tenantStatus](t, asked.ask(t, tortureTenant, "status", "-o", "json"))
	if len(status.Hosts) != 2 || status.Hosts[1].Host != "host-b" || status.Hosts[1].Mode != executor.ModeStandby || time.Since(time.Unix(0, status.SinceNs)) > torturePace {
		t.Errorf("the status in JSON is %+v", status)
	}

	openTorturePlan(t, ctx, a)
	a.hosts["host-a"].end(t).wants(t, "host-a", exitGood)
	a.holder(t, ctx, "host-a", 1)
	at := lateDecision(t, ctx, a)
	until(t, ctx, "the late decision is folded", func() bool {
		plan, err := a.client.plan(ctx, "p", at)
		return err == nil && len(plan.Refused) == 1 && plan.Refused[0].Void && plan.Refused[0].Reason == "term 1 had ended: host-b began term 2"
	})
	shows(t, seen("plan show", "plan", "show", "p"), `void \d+\.0 held_set_retired on saga\.default\.executor: term 1 had ended: host-b began term 2`)
	shows(t, seen("status", "status"), `holder +host-b, term 2 since`, `refused +0, void 1`)
	shows(t, seen("doctor", "doctor"), `hosts +no other host stands by for default`)
}

func shows(t *testing.T, text string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("no %s in\n%s", pattern, text)
		}
	}
}

func openTorturePlan(t *testing.T, ctx context.Context, a *arena) {
	t.Helper()
	agent, err := tortureAgent(a.conn)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(ctx, coordinator.Plan{ID: "p", Owner: "owner1"})
	if err == nil {
		err = plan.Flush(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lateDecision appends what a writer without a fence could: a decision of the term
// that has ended.
func lateDecision(t *testing.T, ctx context.Context, a *arena) (sequence uint64) {
	t.Helper()
	data, err := ledger.EncodeCommit([]*pb.Record{{Plan: "p", Term: 1, Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{}}}})
	if err != nil {
		t.Fatal(err)
	}
	appender, err := jetstream.Attach(a.conn, tortureTenant)
	if err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Tenant: tortureTenant, Class: ledger.ClassExecutor}
	if sequence, err = appender.Append(ctx, ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data}); err != nil {
		t.Fatal(err)
	}
	return sequence
}

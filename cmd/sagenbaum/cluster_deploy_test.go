//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
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
		for name := range given {
			if strings.HasPrefix(name, "SAGENBAUM_") {
				used[name] = true // serve reads it
			}
		}
		if len(used) == 0 || len(differing(used, given))+len(differing(given, used)) > 0 {
			t.Errorf("%s wants %v more of %s, which has %v too many", reads, differing(used, given), env,
				differing(given, used))
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
	_, line, found := strings.Cut(deployed(t, "sagenbaum-host.service"),
		"\nExecStart=/usr/local/bin/sagenbaum serve --data /var/lib/sagenbaum ")
	if !found {
		t.Fatal("the unit does not start serve on /var/lib/sagenbaum")
	}
	line, _, _ = strings.Cut(line, "\n")
	for _, name := range []string{"host-a", "host-b"} {
		dir := filepath.Join(a.dir, name)
		command := serveCommand(t, dir, strings.Fields(strings.ReplaceAll(line, "${HOLDER}", name))...)
		command.Env = append(command.Env, "SAGENBAUM_NATS="+c.urls("host"), "SAGENBAUM_SYSTEM_NATS="+c.urls("system"))
		a.hosts[name] = serveAs(t, dir, command)
		a.hosts[name].confess(t)
		if strings.Contains(strings.Join(command.Args, " "), "secret") {
			t.Errorf("the command line of %s has a password: %s", name, command.Args)
		}
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
		r.wants(t, what, cli.ExitGood)
		return r.stdout
	}
	shows(t, seen("status", "status"), `holder +host-a, term 1 since \S+`,
		`host +host-b: standby, \d+ of \d+ folded, held by host-a`)
	shows(t, seen("doctor", "doctor"), `executor +tenant default is held by host-a, term 1 since`,
		`hosts +1 host would take over`, `host-b: standby`)
	status := decoded[status.TenantStatus](t, asked.ask(t, tortureTenant, "status", "-o", "json"))
	if len(status.Hosts) != 2 || status.Hosts[1].Host != "host-b" || status.Hosts[1].Mode != view.ModeStandby ||
		time.Since(time.Unix(0, status.SinceNs)) > torturePace {
		t.Errorf("the status in JSON is %+v", status)
	}

	openTorturePlan(t, ctx, a)
	a.hosts["host-a"].end(t).wants(t, "host-a", cli.ExitGood)
	a.holder(t, ctx, "host-a", 1)
	at := lateDecision(t, ctx, a)
	until(t, ctx, "the late decision is folded", func() bool {
		plan, err := a.client.Plan(ctx, "p", at)
		return err == nil && len(plan.Refused) == 1 && plan.Refused[0].Void &&
			plan.Refused[0].Reason == "term 1 had ended: host-b began term 2"
	})
	shows(t, seen("plan show", "plan", "show", "p"),
		`void \d+\.0 held_set_retired on saga\.default\.executor: term 1 had ended: host-b began term 2`)
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
	plan, err := agent.Begin(ctx, coordinator.PlanSpec{ID: "p", Owner: "owner1"})
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
	data, err := ledger.EncodeCommit([]*pb.Record{{Plan: "p", Term: 1,
		Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{}}}})
	if err != nil {
		t.Fatal(err)
	}
	appender, err := jetstream.Attach(a.conn, tortureTenant)
	if err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Tenant: tortureTenant, Class: ledger.ClassExecutor}
	if sequence, err = appender.Append(ctx,
		ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data}); err != nil {
		t.Fatal(err)
	}
	return sequence
}

// stepsOf are the commands in the comments of a file of deploy/cluster, one a line.
func stepsOf(t *testing.T, name string) (steps []string) {
	t.Helper()
	for line := range strings.Lines(deployed(t, name)) {
		if command, is := strings.CutPrefix(line, "#   "); is {
			steps = append(steps, strings.TrimSpace(command))
		}
	}
	return steps
}

// machine is a host that is set up by the steps: its paths are below root.
type machine struct {
	root, name string
	work       string // where the steps are run: the repository's files, and what the steps made
}

// run runs a step as a shell does, with the paths of a machine below its root.
func (m machine) run(t *testing.T, step string) {
	t.Helper()
	step = strings.NewReplacer(" /etc/", " "+m.root+"/etc/", " /var/lib/", " "+m.root+"/var/lib/").Replace(step)
	command := exec.CommandContext(t.Context(), "sh", "-e", "-c", step)
	command.Dir = m.work
	command.Env = []string{"PATH=" + filepath.Join(m.work, "bin") + ":" + os.Getenv("PATH"), "HOME=" + m.root}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s, %s: %v\n%s", m.name, step, err, out)
	}
}

// edit gives host.env the values of the test, as an operator does.
func (m machine) edit(t *testing.T, values map[string]string) {
	t.Helper()
	path := filepath.Join(m.root, "etc", "sagenbaum", "host.env")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range values {
		line := regexp.MustCompile(`(?m)^` + name + `=.*$`)
		if !line.Match(text) {
			t.Fatalf("host.env has no %s", name)
		}
		text = line.ReplaceAllLiteral(text, []byte(name+"="+value))
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts what systemd starts: the command line of the unit, with its environment.
func (m machine) start(t *testing.T) *served {
	t.Helper()
	env, err := os.ReadFile(filepath.Join(m.root, "etc", "sagenbaum", "host.env"))
	if err != nil {
		t.Fatal(err)
	}
	var values, environment []string
	for _, pair := range regexp.MustCompile(`(?m)^([A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(env), -1) {
		values = append(values, "${"+pair[1]+"}", pair[2])
		environment = append(environment, pair[0])
	}
	found := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/sagenbaum serve --data (\S+) (.*)$`).FindStringSubmatch(
		deployed(t, "sagenbaum-host.service"))
	if found == nil {
		t.Fatal("the unit does not start serve on a folder")
	}
	dir := m.root + found[1]
	command := serveCommand(t, dir, strings.Fields(strings.NewReplacer(values...).Replace(found[2]))...)
	command.Env = append(command.Env, environment...)
	s := serveAs(t, dir, command)
	s.confess(t)
	return s
}

// An operator who does what the files of deploy/cluster say has two hosts with which the
// doctor is content, also when both have signed.
func TestTheStepsOfTheClusterEndWithADoctorThatIsContent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	c := startCluster(t, ctx)
	work, hosts := setUp(t)
	running := map[string]*served{}
	for _, m := range hosts {
		m.edit(t, map[string]string{"HOLDER": m.name, "SAGENBAUM_NATS": c.urls("host"),
			"SAGENBAUM_SYSTEM_NATS": c.urls("system")})
		running[m.name] = m.start(t)
	}
	asked := &served{url: c.urls("host")}
	signed := func(by string, least uint64) (v view.Checkpoint) {
		t.Helper()
		until(t, ctx, by+" signs a checkpoint", func() bool {
			var status view.Status
			r := asked.ask(t, "default", "status", "-o", "json")
			if r.code != cli.ExitGood || json.Unmarshal([]byte(r.stdout), &status) != nil || status.Holder != by ||
				status.Checkpoint == nil {
				return false
			}
			v = *status.Checkpoint
			return v.Size > least
		})
		r := asked.ask(t, "default", "doctor")
		if r.wants(t, "doctor while "+by+" holds", cli.ExitGood); r.code != cli.ExitGood {
			t.FailNow()
		}
		return v
	}
	first := signed("host-a", 0)
	made, err := filepath.Glob(filepath.Join(work, "keys", "default", "*.pub"))
	if err != nil || len(made) != 1 {
		t.Fatalf("the steps have made the keys %v, %v", made, err)
	}
	if verifier, err := os.ReadFile(made[0]); err != nil || strings.TrimSpace(string(verifier)) != first.Key {
		t.Errorf("host-a signs by %s, the steps have made %s, %v", first.Key, verifier, err)
	}
	running["host-a"].end(t).wants(t, "host-a", cli.ExitGood)
	if second := signed("host-b", first.Size); second.Key != first.Key {
		t.Errorf("host-b signs by %s, host-a by %s", second.Key, first.Key)
	}
	running["host-b"].end(t).wants(t, "host-b", cli.ExitGood)
}

// setUp runs the steps of the unit: those before the first host once, the others on each of
// two hosts. Nothing is started.
func setUp(t *testing.T) (work string, hosts []machine) {
	t.Helper()
	work = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(work, "bin")
	for name, script := range map[string]string{
		"sagenbaum": fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asCommand, self),
		"systemctl": "#!/bin/sh\n", // the test starts the unit's command line
	} {
		if err := errors.Join(os.MkdirAll(bin, 0o700),
			os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(repository, "deploy"), filepath.Join(work, "deploy")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"host-a", "host-b"} {
		root := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Join(root, "etc", "systemd", "system"), 0o700); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, machine{root: root, name: name, work: work})
	}
	for _, step := range stepsOf(t, "sagenbaum-host.service") {
		if strings.HasPrefix(step, "sagenbaum key new ") {
			hosts[0].run(t, step) // once, for all
			continue
		}
		for _, m := range hosts {
			m.run(t, step)
		}
	}
	return work, hosts
}

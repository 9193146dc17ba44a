//go:build exercise && linux

package torture

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
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
)

// written reads a file that `sagenbaum cluster config` has written for a host.
func (c *natsCluster) written(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.folder, "host-a", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// command is the command line of the systemd unit, without the program.
func (c *natsCluster) command(t *testing.T) (args string) {
	t.Helper()
	_, args, found := strings.Cut(c.written(t, "sagenbaum-host.service"),
		"\nExecStart=/usr/local/bin/sagenbaum serve --data /var/lib/sagenbaum ")
	if !found {
		t.Fatal("the unit does not start serve on /var/lib/sagenbaum")
	}
	args, _, _ = strings.Cut(args, "\n")
	return args
}

// Every variable that the unit reads is in the environment file beside it, and every one of
// those is read.
func (c *natsCluster) wantVariables(t *testing.T) {
	t.Helper()
	used := map[string]bool{"CREDENTIALS_DIRECTORY": true, "SAGENBAUM_NATS": true}
	given := map[string]bool{"CREDENTIALS_DIRECTORY": true} // by systemd
	variable := regexp.MustCompile(`\$\{?([A-Z][A-Z0-9_]+)`)
	for _, m := range variable.FindAllStringSubmatch(c.command(t), -1) {
		used[m[1]] = true
	}
	assigned := regexp.MustCompile(`(?m)^([A-Z][A-Z0-9_]+)=`)
	for _, m := range assigned.FindAllStringSubmatch(c.written(t, "host.env"), -1) {
		given[m[1]] = true
	}
	if len(differing(used, given))+len(differing(given, used)) > 0 {
		t.Errorf("the unit wants %v more of host.env, which has %v too many", differing(used, given),
			differing(given, used))
	}
}

// An operator sees who holds the tenant, who stands by, and why a decision is void, on servers
// and hosts that run what `sagenbaum cluster config` has written: TLS everywhere, and roles.
func TestAnOperatorSeesWhoHoldsAndWhoStandsBy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	c := configured(t, ctx, "host-a", "host-b")
	c.wantVariables(t)
	a := plainArena(t, c, ctx, jetstream.LeaseTTL)
	a.client = c.client(t, ctx)
	for _, name := range []string{"host-a", "host-b"} {
		dir := filepath.Join(a.dir, name)
		command := cmdtest.ServeCommand(t, dir, "--nats", c.urls(""), "--holder", name, "--replicas", "3",
			"--creds", filepath.Join(c.folder, name, "host.creds"),
			"--system-creds", filepath.Join(c.folder, name, "system.creds"))
		a.hosts[name] = cmdtest.ServeAs(t, dir, command)
		a.hosts[name].Confess(t)
	}
	if info := c.info(ctx, a.conn); info == nil || info.Config.Replicas != nodeCount {
		t.Errorf("the ledger is %+v, want %d replicas", info, nodeCount)
	}
	asked := &cmdtest.Served{URL: c.urls("")}
	seen := func(what string, args ...string) string {
		t.Helper()
		var r cmdtest.Result
		// A server of the ledger may be a commit or two behind for a moment, which doctor says.
		cmdtest.Eventually(t, what, func() (string, bool) {
			r = asked.Ask(t, tortureTenant, args...)
			return fmt.Sprintf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr), r.Code == cli.ExitGood
		})
		return r.Stdout
	}
	shows(t, seen("status", "status"), `holder +host-a, term 1 since \S+`,
		`host +host-b: standby, \d+ of \d+ folded, held by host-a`)
	// A follower of the ledger may be behind for a moment, which the doctor says.
	healthy := func() string {
		t.Helper()
		var r cmdtest.Result
		defer func() {
			if t.Failed() {
				t.Logf("the doctor said last:\n%s", r.Stdout)
			}
		}()
		cmdtest.Until(t, ctx, "the doctor finds nothing", func() bool {
			r = asked.Ask(t, tortureTenant, "doctor")
			return r.Code == cli.ExitGood
		})
		return r.Stdout
	}
	shows(t, healthy(), `executor +tenant default is held by host-a, term 1 since`,
		`hosts +1 host would take over`, `host-b: standby`)
	status := cmdtest.Decoded[status.TenantStatus](t, asked.Ask(t, tortureTenant, "status", "-o", "json"))
	if len(status.Hosts) != 2 || status.Hosts[1].Host != "host-b" || status.Hosts[1].Mode != api.ModeStandby ||
		time.Since(time.Unix(0, status.SinceNs)) > torturePace {
		t.Errorf("the status in JSON is %+v", status)
	}

	openTorturePlan(t, ctx, c.connect(t, ctx, "tester"))
	a.hosts["host-a"].End(t).Wants(t, "host-a", cli.ExitGood)
	a.holder(t, ctx, "host-a", 1)
	at := lateDecision(t, ctx, a)
	cmdtest.Until(t, ctx, "the late decision is folded", func() bool {
		plan, err := a.client.Plan(ctx, "p", at)
		return err == nil && len(plan.Refused) == 1 && plan.Refused[0].Void &&
			plan.Refused[0].Reason == "term 1 had ended: host-b began term 2"
	})
	shows(t, seen("plan show", "plan", "show", "p"),
		`void \d+\.0 held_set_retired on saga\.default\.executor: term 1 had ended: host-b began term 2`)
	shows(t, seen("status", "status"), `holder +host-b, term 2 since`, `refused +0, void 1`)
	shows(t, healthy(), `hosts +no other host stands by for default`)
}

func shows(t *testing.T, text string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("no %s in\n%s", pattern, text)
		}
	}
}

func openTorturePlan(t *testing.T, ctx context.Context, conn *nats.Conn) {
	t.Helper()
	agent, err := tortureAgent(conn)
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

// steps are the commands in the comments of the unit, one a line.
func (c *natsCluster) steps(t *testing.T) (steps []string) {
	t.Helper()
	for line := range strings.Lines(c.written(t, "sagenbaum-host.service")) {
		if command, is := strings.CutPrefix(line, "#   "); is {
			steps = append(steps, strings.TrimSpace(command))
		}
	}
	return steps
}

// machine is a host that is set up by the steps: its paths are below root.
type machine struct {
	root, name string
	cluster    *natsCluster
}

// run runs a step as a shell does, in the folder that was copied to the machine, with the
// paths of a machine below its root.
func (m machine) run(t *testing.T, step string) {
	t.Helper()
	step = strings.NewReplacer(" /etc/", " "+m.root+"/etc/", " /var/lib/", " "+m.root+"/var/lib/").Replace(step)
	command := exec.CommandContext(t.Context(), "sh", "-e", "-c", step)
	command.Dir = filepath.Join(m.cluster.folder, m.name)
	command.Env = []string{"PATH=" + filepath.Join(m.root, "bin") + ":" + os.Getenv("PATH"), "HOME=" + m.root}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s, %s: %v\n%s", m.name, step, err, out)
	}
}

// start starts what systemd starts: the command line of the unit, with its environment.
func (m machine) start(t *testing.T) *cmdtest.Served {
	t.Helper()
	env, err := os.ReadFile(filepath.Join(m.root, "etc", "sagenbaum", "host.env"))
	if err != nil {
		t.Fatal(err)
	}
	// systemd shows credentials to the service's own user by an entry of an access list.
	credentials := filepath.Join(m.root, "etc", "sagenbaum")
	for _, name := range []string{"host.creds", "system.creds"} {
		if err := os.Chmod(filepath.Join(credentials, name), 0o440); err != nil {
			t.Fatal(err)
		}
	}
	environment := []string{"CREDENTIALS_DIRECTORY=" + credentials}
	values := []string{"${CREDENTIALS_DIRECTORY}", credentials, "/var/lib/", m.root + "/var/lib/"}
	for _, pair := range regexp.MustCompile(`(?m)^([A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(env), -1) {
		value := strings.Trim(pair[2], `"`)
		values = append(values, "${"+pair[1]+"}", value, "$"+pair[1], value)
		environment = append(environment, pair[1]+"="+value)
	}
	dir := filepath.Join(m.root, "var", "lib", "sagenbaum")
	args := strings.Fields(strings.NewReplacer(values...).Replace(m.cluster.command(t)))
	command := cmdtest.ServeCommand(t, dir, args...)
	command.Env = append(command.Env, environment...)
	s := cmdtest.ServeAs(t, dir, command)
	s.Confess(t)
	return s
}

// An operator who does what the files of a cluster say has two hosts with which the doctor is
// content, also when both have signed. An agent and a worker with credentials of their own
// see a plan undone, and one that is removed is refused after a reload.
func TestTheStepsOfTheClusterEndWithADoctorThatIsContent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	c := configured(t, ctx, "host-a", "host-b")
	running := map[string]*cmdtest.Served{}
	for _, m := range setUp(t, c) {
		running[m.name] = m.start(t)
	}
	asked := &cmdtest.Served{URL: c.urls("")}
	signed := func(by string, least uint64) (v api.Checkpoint) {
		t.Helper()
		cmdtest.Until(t, ctx, by+" signs a checkpoint", func() bool {
			var status api.Status
			r := asked.Ask(t, "default", "status", "-o", "json")
			if r.Code != cli.ExitGood || json.Unmarshal([]byte(r.Stdout), &status) != nil || status.Holder != by ||
				status.Checkpoint == nil {
				return false
			}
			v = *status.Checkpoint
			return v.Size > least
		})
		cmdtest.Eventually(t, "doctor while "+by+" holds", func() (string, bool) {
			r := asked.Ask(t, "default", "doctor")
			return r.Stdout + r.Stderr, r.Code == cli.ExitGood
		})
		return v
	}
	first := signed("host-a", 0)
	made, err := filepath.Glob(filepath.Join(c.folder, "keys", "default", "*.pub"))
	if err != nil || len(made) != 1 {
		t.Fatalf("the command has made the keys %v, %v", made, err)
	}
	if verifier, err := os.ReadFile(made[0]); err != nil || strings.TrimSpace(string(verifier)) != first.Key {
		t.Errorf("host-a signs by %s, the command has made %s, %v", first.Key, verifier, err)
	}
	running["host-a"].End(t).Wants(t, "host-a", cli.ExitGood)
	if second := signed("host-b", first.Size); second.Key != first.Key {
		t.Errorf("host-b signs by %s, host-a by %s", second.Key, first.Key)
	}
	c.wantRoles(t, ctx)
	running["host-b"].End(t).Wants(t, "host-b", cli.ExitGood)
}

// wantRoles has an agent and a worker undo a plan. Then the agent is removed, and another one
// added: the servers know it after a reload.
func (c *natsCluster) wantRoles(t *testing.T, ctx context.Context) {
	t.Helper()
	world := newProvider()
	world.serveUnmake(t, c.connect(t, ctx, "maker"))
	agent, err := tortureAgent(c.connect(t, ctx, "tester"))
	if err != nil {
		t.Fatal(err)
	}
	made := &load{world: world, agent: agent, next: make(chan struct{}), acked: map[string]bool{},
		ends: map[string]string{}}
	if err := made.play(ctx, "p", 0); err != nil {
		t.Fatal(err)
	}
	client := c.client(t, ctx)
	cmdtest.Until(t, ctx, "the plan is undone", func() bool {
		plan, err := client.Plan(ctx, "p", 0)
		return err == nil && plan.State == ledger.StateCompensated
	})
	users := filepath.Join(c.folder, "users")
	cmdtest.Run(t, "user", "rm", "tester", "--file", users).Wants(t, "user rm", cli.ExitGood)
	c.addUser(t, "second", "--role", "agent")
	cmdtest.Run(t, "cluster", "config", c.folder, "--store-dir", "store").Wants(t, "config",
		cli.ExitGood)
	for _, n := range c.nodes {
		if err := n.command.Process.Signal(syscall.SIGHUP); err != nil { // nats-server --signal reload
			t.Fatal(err)
		}
	}
	c.connect(t, ctx, "second")
	own, _, err := connect.File(c.credsOf("tester"), "")
	if err != nil {
		t.Fatal(err)
	}
	own = append(own, nats.RootCAs(filepath.Join(c.folder, "ca.pem")))
	cmdtest.Until(t, ctx, "the agent that was removed is refused", func() bool {
		conn, err := nats.Connect(c.urls(""), own...)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, nats.ErrAuthorization)
	})
	plain := append(own[:len(own)-1:len(own)-1], nats.RootCAs(filepath.Join(c.folder, "host-a", "system.creds")))
	if _, err := nats.Connect(c.urls(""), plain...); err == nil {
		t.Error("a client has taken servers that no authority of its own has signed")
	}
}

// client is an operator's.
func (c *natsCluster) client(t *testing.T, ctx context.Context) *cli.Client {
	t.Helper()
	return &cli.Client{Conn: c.connect(t, ctx, "operator"), Tenant: tortureTenant, Server: "the cluster",
		Timeout: 500 * time.Millisecond}
}

// setUp runs the steps of the unit on each of two hosts. Nothing is started.
func setUp(t *testing.T, c *natsCluster) (hosts []machine) {
	t.Helper()
	for _, name := range []string{"host-a", "host-b"} {
		m := machine{root: filepath.Join(t.TempDir(), name), name: name, cluster: c}
		bin := filepath.Join(m.root, "bin")
		if err := errors.Join(os.MkdirAll(bin, 0o700),
			os.MkdirAll(filepath.Join(m.root, "etc", "systemd", "system"), 0o700),
			// The test starts the unit's command line itself.
			os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\n"), 0o700)); err != nil {
			t.Fatal(err)
		}
		for _, step := range c.steps(t) {
			m.run(t, step)
		}
		hosts = append(hosts, m)
	}
	return hosts
}

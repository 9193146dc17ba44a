package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
)

// findingOf is the finding of a check in what `doctor -o json` prints.
func findingOf(t *testing.T, r cmdtest.Result, check string) doctor.Finding {
	t.Helper()
	for _, f := range r.Checks(t) {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("the doctor does not look at %s: %s", check, r.Stdout)
	return doctor.Finding{}
}

// An agent of this server that runs as the same user is warned of, one of another server is not:
// both are processes of this machine.
func TestTheDoctorSeesAgentsOfItsOwnServer(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("SKIPPED: this system does not show the environment of its processes")
	}
	with := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	without := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	file := filepath.Join(t.TempDir(), "coder.creds")
	added := with.Ask(t, "default", "user", "add", "coder", "--role", "agent")
	added.Wants(t, "user add", cli.ExitGood)
	if err := os.WriteFile(file, []byte(added.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command("sleep", "600")
	agent.Env = append(os.Environ(), "SAGENBAUM_CREDS="+file)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	got := findingOf(t, with.Ask(t, "default", "doctor", "-o", "json"), "seed")
	if got.State != "warn" ||
		!strings.HasPrefix(got.Text, fmt.Sprintf("agent coder, process %d,", agent.Process.Pid)) {
		t.Errorf("its own server: %+v", got)
	}
	if got.Check != "seed" || !strings.HasPrefix(got.Next, "run agents as another Unix user") {
		t.Errorf("its own server: %+v", got)
	}
	must(t, agent.Process.Kill())
	_ = agent.Wait() // it says that it was killed
	other := exec.Command(agent.Path, "600")
	other.Env = agent.Env
	if os.Getuid() == 0 { // or else there is no other user to run it as
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		must(t, other.Start())
		t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	}
	if got = findingOf(t, with.Ask(t, "default", "doctor", "-o", "json"), "seed"); got.State != "ok" {
		t.Errorf("an agent of another user: %+v", got)
	}
	got = findingOf(t, without.Ask(t, "default", "doctor", "-o", "json"), "seed")
	if got.State != "ok" {
		t.Errorf("another server: %+v", got)
	}
}

// Trouble of every kind on real servers is found, said to be what it is, and comes with
// what to do; where there is none, nothing is said.
func TestTheDoctorFindsRealTrouble(t *testing.T) {
	t.Parallel()
	healthy := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	good := healthy.Ask(t, "default", "doctor", "-o", "json")
	for _, f := range good.Checks(t) {
		if f.State != "ok" {
			t.Errorf("nothing is wrong, and the doctor says %+v", f)
		}
	}
	healthy.End(t)

	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0", "--no-sync")
	conn := cmdtest.Dial(t, s.URL)
	cmdtest.Trouble(t, s, "default")
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "endless"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "endless", Label: "for ever"})
	if err == nil {
		err = plan.Flush(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	publishJSON(t, conn, "saga.default.agent.careless.nameless", `{"records":[{"plan":"nameless","planOpened":{}}]}`)
	publishJSON(t, conn, "saga.default.agent.careful.named",
		`{"records":[{"plan":"named","writer":"w1","planOpened":{}}]}`)
	sick := s.Ask(t, "default", "doctor", "--old", "1ms", "-o", "json")
	sick.Wants(t, "doctor", cli.ExitLook)
	for check, want := range map[string][2]string{
		"durability": {"may lose acknowledged records", "without --no-sync"},
		"worker":     {"room.free for plan lonely waits", "start a worker for room.free"},
		"capability": {"no worker serves 1 capability", "start a worker for room.free"},
		"deadlines":  {"3 plans without a deadline are open", "sagenbaum plan tree endless"},
		"writers":    {"1 plan of tenant default without a writer", "docs/records.md"},
		"quarantine": {"1 plan waits for its owner", "sagenbaum doctor --plan stuck"},
	} {
		if f := findingOf(t, sick, check); f.State != "warn" || !strings.Contains(f.Text, want[0]) ||
			!strings.Contains(f.Next, want[1]) {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if f := findingOf(t, sick, "writers"); len(f.Details) != 1 || !strings.HasPrefix(f.Details[0],
		"plan nameless of agent careless") {
		t.Errorf("writers: %+v", f)
	}
	cmdtest.Freeing(t, conn, "default")
	cmdtest.Eventually(t, "a worker that is seen", func() (string, bool) {
		r := s.Ask(t, "default", "doctor", "-o", "json")
		return r.Stdout, findingOf(t, r, "capability").State == "ok" && findingOf(t, r, "worker").State == "ok"
	})
	if f := findingOf(t, s.Ask(t, "default", "doctor", "-o", "json"), "deadlines"); f.State != "ok" {
		t.Errorf("a young plan without a deadline: %+v", f)
	}
	if err := agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.End(t)
}

// publishJSON writes a commit as a client without a library does.
func publishJSON(t *testing.T, conn *nats.Conn, subject, commit string) {
	t.Helper()
	message := nats.NewMsg(subject)
	message.Header.Set("Content-Type", "application/json")
	message.Data = []byte(commit)
	reply, err := conn.RequestMsg(message, testenv.Patience)
	if err != nil || !strings.Contains(string(reply.Data), `"seq"`) {
		t.Fatalf("%s: %s, %v", commit, reply.Data, err)
	}
}

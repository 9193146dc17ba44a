//go:build exercise

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// seedVariable repeats a session of kills.
const seedVariable = "SAGENBAUM_MCP_SEED"

// callWait is after how long a client gives a call up.
const callWait = 20 * time.Second

// mortal is a session of which any side is killed.
type mortal struct {
	played

	t       *testing.T
	random  *rand.Rand
	state   string
	file    string // configuration
	pack    string
	s       *cmdtest.Served
	client  *sdk.ClientSession
	gateway *exec.Cmd
	killed  map[string]int
}

// mark is the variable by which the servers of a session are found.
const mark = "KILLED_IN"

// connect starts a gateway and a client for it.
func (m *mortal) connect() {
	m.gateway = cmdtest.Sagenbaum(m.t, append([]string{"mcp", "--server", m.s.URL}, m.args()...)...)
	m.gateway.Env = m.gateway.Environ()
	for name, value := range m.env {
		m.gateway.Env = append(m.gateway.Env, name+"="+value)
	}
	m.client = mcpClientOf(m.t, nil, m.gateway)
}

func (m *mortal) args() []string {
	args := append([]string{"--state", m.state, "--pack", m.pack}, m.options...)
	return append(append(args, "--"), m.command...)
}

// act calls a tool at random.
func (m *mortal) act(ctx context.Context) (done bool) {
	tool, with := m.call(m.random)
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	began := time.Now()
	result, err := m.client.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: with})
	if took := time.Since(began); took > callWait/4 {
		m.t.Logf("%s %v took %s: %v %+v", tool, with, took, err, result)
	}
	return err == nil && !result.IsError
}

// kill kills one side while a call is under way, or between two.
func (m *mortal) kill() {
	m.t.Helper()
	late := time.Duration(m.random.Int64N(int64(m.within)))
	side := m.random.IntN(4)
	called := make(chan struct{})
	go func() {
		defer close(called)
		m.act(m.t.Context())
	}()
	<-time.After(late)
	switch side {
	case 0:
		m.killed["gateway"]++
		_ = m.gateway.Process.Kill()
	case 1:
		environments, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range environments {
			own, err := os.ReadFile(file)
			line, failed := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			n, bad := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if errors.Join(err, failed, bad) == nil && strings.HasPrefix(string(line), "node\x00") &&
				slices.Contains(strings.Split(string(own), "\x00"), mark+"="+m.env[mark]) {
				m.killed["upstream"]++
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
	case 2:
		m.killed["serve"]++
		m.s.Kill9(m.t)
		m.s = m.s.Again(m.t, "--mcp", m.file)
	case 3:
		m.killed["client"]++
	}
	if side == 0 || side == 3 { // the end of a client is the end of its pipes
		_ = m.client.Close()
	}
	<-called
	if side == 0 || side == 3 {
		m.connect()
	}
}

// shown is a plan as the ledger has it.
func (m *mortal) shown(plan string) api.Plan {
	m.t.Helper()
	r := m.s.Ask(m.t, "default", "plan", "show", plan, "-o", "json")
	var shown api.Plan
	if err := json.Unmarshal([]byte(r.Stdout), &shown); err != nil || shown.Plan != plan {
		m.t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	return shown
}

// undo undoes all plans, the last one first, and returns the texts of calls that their owner has to
// answer for, or that wait for that.
func (m *mortal) undo() (left []string) {
	m.t.Helper()
	var list struct{ Plans []api.Plan }
	r := m.s.Ask(m.t, "default", "plan", "ls", "-o", "json")
	if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil || len(list.Plans) == 0 {
		m.t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	slices.SortFunc(list.Plans, func(a, b api.Plan) int { return int(b.OpenedNs - a.OpenedNs) })
	for _, plan := range list.Plans {
		m.s.Ask(m.t, "default", "plan", "cancel", plan.Plan, "--reason", "it was killed")
		var now api.Plan
		cmdtest.Eventually(m.t, "plan "+plan.Plan+" ends", func() (string, bool) {
			now = m.shown(plan.Plan)
			return now.State, now.State == "compensated" || now.State == "quarantined"
		})
		if now.State == "quarantined" && now.Quarantined == 0 {
			m.t.Errorf("plan %s is quarantined, and no action of it is", plan.Plan)
		}
		for _, a := range now.Actions {
			switch {
			case a.Undo == "compensated", a.Undo == "skipped", a.Outcome == "failed":
				continue
			case a.Undo == "quarantined" && a.Note == "":
				m.t.Errorf("action %s of plan %s is quarantined, and why is not said", a.Action, plan.Plan)
			case now.State == "compensated":
				m.t.Errorf("plan %s is compensated, and action %s is %s", plan.Plan, a.Action, a.Undo)
			}
			m.t.Logf("plan %s, action %s: %s %s %s", plan.Plan, a.Action, a.Outcome, a.Undo, a.Note)
			left = append(left, testenv.Texts(m.t, a.Input)...)
		}
	}
	return left
}

// Gateway, server, upstream and client are killed with -9 at random moments of a session of calls.
// Once all is started again, an undo of what was done is exact; or it is quarantined with a reason,
// and what is not as before is of a call that is named.
func TestASessionOfWhichAnySideIsKilledIsUndoneOrSaid(t *testing.T) {
	seeds := []uint64{1}
	if testenv.Long() {
		seeds = []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	}
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q, want a number", seedVariable, text)
		}
		seeds = []uint64{seed}
	}
	for name, play := range map[string]func(*testing.T) played{
		"files": playFiles, "memory": playMemory, "git": playGit,
	} {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				defer func() {
					if t.Failed() {
						t.Logf("repeat with %s=%d", seedVariable, seed)
					}
				}()
				killsOf(t, play(t), seed)
			})
		}
	}
}

// hasty is a pack with short time-outs: what a gateway that was killed had under way may land until
// then, and is not undone before. With two minutes it would be undone as much later.
func hasty(t *testing.T, name string) string {
	t.Helper()
	pack, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "coordinator", "mcp", "packs", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const class = "    class: compensable\n"
	text := strings.ReplaceAll(string(pack), "    timeout: 30s\n", "")
	if n := strings.Count(text, class); n < 4 || strings.Contains(text, "timeout:") {
		t.Fatalf("%d tools of the pack can be undone, or some have a time-out of their own", n)
	}
	file := filepath.Join(t.TempDir(), "pack.yaml")
	text = strings.ReplaceAll(text, class, class+"    timeout: 5s\n")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func killsOf(t *testing.T, p played, seed uint64) {
	t.Helper()
	m := &mortal{played: p, t: t, random: rand.New(rand.NewPCG(seed, 5)), state: t.TempDir(),
		pack: hasty(t, p.name), killed: map[string]int{}}
	m.env[mark] = t.TempDir()
	args, err := json.Marshal(append([]string{"mcp"}, m.args()...))
	env, failed := json.Marshal(m.env)
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	m.file = configuration(t, `{"mcpServers": {"played": {"command": "sagenbaum", "args": %s, "env": %s}}}`,
		args, env)
	start := m.picture()
	m.s = cmdtest.ServeFor(t, t.TempDir(), "--mcp", m.file)
	m.connect()
	done := 0
	for range testenv.Cases(m.kills, 12) {
		for range 2 + m.random.IntN(m.often) {
			if m.act(t.Context()) {
				done++
			}
		}
		m.kill()
	}
	_ = m.client.Close()
	left := m.undo()
	t.Logf("seed %d: killed %v, %d calls done, texts that are their owner's: %.2000q", seed, m.killed, done,
		left)
	if done < m.often || len(m.killed) < 2 {
		t.Error("the session proves little")
	}
	now := m.picture()
	for _, tree := range []map[string]string{start, now} {
		for name := range tree {
			if start[name] != now[name] &&
				!slices.ContainsFunc(left, func(text string) bool { return m.of(text, name) }) {
				t.Errorf("%s was %.80q and is %.80q, and no call that is left is of it", name, start[name], now[name])
			}
		}
	}
}

//go:build exercise

package mcp_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// kill kills the processes that have an entry of a test in their environment, which only its server
// has, and what that has started: the server alone, or all of them.
func kill(entry string, all bool) (killed int) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environments {
		content, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(content), "\x00"), entry) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if program, _, _ := strings.Cut(string(line), "\x00"); err != nil || !all && program != "node" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			if process, err := os.FindProcess(pid); err == nil && process.Kill() == nil {
				killed++
			}
		}
	}
	return killed
}

// mortal is a server that is killed in a session.
type mortal struct {
	calls   int
	within  time.Duration      // of the beginning of a call it is killed
	servers []mcp.ServerConfig // the first one is killed
	act     func(c *client, random *rand.Rand)
	picture func(c *client) map[string]string
	of      func(text, name string) bool // what a call with this text may have changed
}

func mortalFiles(t *testing.T, w *world, _ *rand.Rand) mortal {
	dir := t.TempDir()
	furnish(t, dir)
	return mortal{60, 12 * time.Millisecond, []mcp.ServerConfig{w.files(dir)},
		func(c *client, random *rand.Rand) { messy(c, random, dir) },
		func(*client) map[string]string { return filesOnly(picture(t, dir)) },
		func(text, name string) bool {
			if filepath.IsAbs(text) {
				text, _ = filepath.Rel(dir, text)
			}
			return name == text || strings.HasPrefix(name, text+"/") || strings.HasPrefix(text, name+"/")
		}}
}

// lines of a graph, by the names of entities that they have.
func graphOf(c *client) map[string]string {
	lines := map[string]string{}
	for line := range strings.SplitSeq(c.graph(), "\n") {
		kind, quoted, _ := strings.Cut(line, " ")
		quoted = strings.TrimPrefix(quoted, "{")
		for range map[string]int{"entity": 1, "relation": 2}[kind] {
			prefix, _ := strconv.QuotedPrefix(quoted)
			name, _ := strconv.Unquote(prefix)
			lines[name] += line + "\n"
			quoted = strings.TrimPrefix(quoted, prefix+" ")
		}
	}
	return lines
}

func mortalMemory(t *testing.T, w *world, random *rand.Rand) mortal {
	config := w.memory(filepath.Join(t.TempDir(), "memory.jsonl"))
	seedling := w.gateway(mcp.Config{}, nil, config)
	for range 20 {
		muse(seedling, random, 3)
	}
	seedling.does("plan_commit", nil)
	seedling.leave()
	return mortal{60, 12 * time.Millisecond, []mcp.ServerConfig{config},
		func(c *client, random *rand.Rand) { muse(c, random, 6) }, graphOf,
		func(text, name string) bool { return text == name }}
}

func mortalGit(t *testing.T, w *world, _ *rand.Rand) mortal {
	dir := repository(t)
	return mortal{25, 100 * time.Millisecond, []mcp.ServerConfig{w.git(t, dir), w.files(dir)},
		func(c *client, random *rand.Rand) { untidy(c, random, dir) },
		func(*client) map[string]string { return gitPicture(t, dir) },
		func(text, name string) bool { return text == dir || filepath.Join(dir, name) == text }}
}

// A server is killed with -9 at random moments of a session, alone or with what it has started. Then
// all is as before, but for the times of folders, or the answer says which calls need their owner,
// and what is not as before is of one of them.
func TestASessionWhoseServerIsKilledIsUndoneOrSaid(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *world, *rand.Rand) mortal{
		"files": mortalFiles, "memory": mortalMemory, "git": mortalGit,
	} {
		for seed := range uint64(testenv.Cases(1, 20)) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, 3))
				w := newWorld(t)
				m := prepare(t, w, random)
				killsOf(t, w, m, random)
			})
		}
	}
}

const mark = "KILLED_IN" // the variable by which the servers of a test are found

func killsOf(t *testing.T, w *world, m mortal, random *rand.Rand) {
	t.Helper()
	env := maps.Clone(m.servers[0].Env)
	if env == nil {
		env = map[string]string{}
	}
	env[mark] = t.TempDir()
	m.servers[0].Env = env
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, m.servers...)
	start := m.picture(c)
	killed := 0
	for range m.calls {
		pause, all := time.Duration(random.Int64N(int64(m.within))), random.IntN(2) == 0
		if random.IntN(4) > 0 {
			m.act(c, random)
			continue
		}
		done := make(chan int)
		go func() {
			<-time.After(pause)
			done <- kill(mark+"="+env[mark], all)
		}()
		m.act(c, random)
		killed += <-done
	}
	if killed == 0 {
		t.Error("no server was killed: the session proves nothing")
	}
	r := c.reports("plan_fail", nil)
	now := m.picture(c)
	t.Logf("%d processes killed; %s; %d calls need their owner", killed, r.State, len(r.Stands))
	switch {
	case r.State == "compensated" && (differ(start, now) != "" || len(r.Stands) > 0):
		t.Errorf("called compensated, and left:\n%s%+v", differ(start, now), r.Stands)
	case r.State == "compensated":
	case r.State != "quarantined" || len(r.Stands) == 0:
		t.Errorf("it ended %+v", r)
	default:
		m.answersFor(t, w, r, start, now)
	}
}

// answersFor wants that what is not as before is of a call that needs its owner, and that it says why.
func (m mortal) answersFor(t *testing.T, w *world, r report, start, now map[string]string) {
	t.Helper()
	var shown api.PlanAnswer
	if err := json.Unmarshal([]byte(w.shown(r.Plan)), &shown); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, s := range r.Stands {
		if !strings.Contains(s.How, "quarantine show") && !strings.Contains(s.How, "is held until") ||
			strings.Contains(s.How, "owner (") {
			t.Errorf("%s of %s does not say why: %s", s.Tool, s.Action, s.How)
		}
		t.Logf("%s: %s", s.Tool, s.How)
		for _, a := range shown.Plan.Actions {
			if a.Action == s.Action {
				texts = append(texts, testenv.Texts(t, a.Input)...)
			}
		}
	}
	for name := range maps.Keys(start) {
		now[name] += "" // so that what is gone is looked at, too
	}
	for name := range now {
		if start[name] != now[name] &&
			!slices.ContainsFunc(texts, func(text string) bool { return m.of(text, name) }) {
			t.Errorf("%s was %.200q and is %.200q, and no call that needs its owner is of it", name, start[name],
				now[name])
		}
	}
}

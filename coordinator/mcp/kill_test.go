//go:build exercise

package mcp_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// kill kills the servers of a folder: only processes that this test has started have it in their
// command line.
func kill(dir string) (killed int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		content, err := os.ReadFile(line)
		arguments := strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")
		if err != nil || len(arguments) < 3 || arguments[0] != "node" || arguments[len(arguments)-1] != dir {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line))); err == nil {
			if process, err := os.FindProcess(pid); err == nil {
				_ = process.Kill()
			}
			killed++
		}
	}
	return killed
}

// The server is killed with -9 at random moments of a session. Then all is as before, but for the
// times of folders, or the answer says which calls need their owner.
func TestASessionWhoseServerIsKilledIsUndoneOrSaid(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Cases(1, 20)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w, dir := newWorld(t), t.TempDir()
			random := rand.New(rand.NewPCG(seed, 3))
			furnish(t, dir)
			start := filesOnly(picture(t, dir))
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.files(dir))
			killed := 0
			for range 60 {
				pause := time.Duration(random.IntN(12_000)) * time.Microsecond
				if random.IntN(4) > 0 {
					messy(c, random, dir)
					continue
				}
				done := make(chan int)
				go func() {
					<-time.After(pause)
					done <- kill(dir)
				}()
				messy(c, random, dir)
				killed += <-done
			}
			if killed == 0 {
				t.Error("no server was killed: the session proves nothing")
			}
			r := c.reports("plan_fail", nil)
			difference := differ(start, filesOnly(picture(t, dir)))
			t.Logf("killed %d times; %s; %d calls need their owner", killed, r.State, len(r.Stands))
			switch {
			case r.State == "compensated" && difference != "":
				t.Errorf("called compensated, and left:\n%s", difference)
			case r.State == "quarantined" && len(r.Stands) == 0:
				t.Errorf("quarantined, and no call is named: %+v", r)
			case r.State != "compensated" && r.State != "quarantined":
				t.Errorf("it ended %+v", r)
			}
		})
	}
}

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/executor"
)

// findingOf is the finding of a check in what `doctor -o json` prints.
func findingOf(t *testing.T, r result, check string) finding {
	t.Helper()
	for _, f := range decoded[map[string][]finding](t, r)["checks"] {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("the doctor does not look at %s: %s", check, r.stdout)
	return finding{}
}

// Trouble of every kind on real servers is found, said to be what it is, and comes with
// what to do; where there is none, nothing is said.
func TestTheDoctorFindsRealTrouble(t *testing.T) {
	t.Parallel()
	healthy := serveFor(t, dataDir(t), "--listen", "127.0.0.1:0")
	good := healthy.ask(t, "default", "doctor", "-o", "json")
	for _, f := range decoded[map[string][]finding](t, good)["checks"] {
		if f.State != "ok" && f.Check != "disk" { // this machine's disk is its own business
			t.Errorf("nothing is wrong, and the doctor says %+v", f)
		}
	}
	healthy.end(t)

	s := serveFor(t, dataDir(t), "--listen", "127.0.0.1:0", "--no-sync")
	conn := dial(t, s.url)
	trouble(t, s, "default")
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
	sick := s.ask(t, "default", "doctor", "--old", "1ms", "-o", "json")
	sick.wants(t, "doctor", exitLook)
	for check, want := range map[string][2]string{
		"durability": {"may lose acknowledged records", "without --no-sync"},
		"worker":     {"room.free for plan lonely waits", "start a worker for room.free"},
		"capability": {"nobody serves 1 capability", "start a worker for room.free"},
		"deadlines":  {"1 plan without a deadline is open", "sagenbaum plan tree endless"},
		"quarantine": {"1 plan waits for its owner", "sagenbaum doctor --plan stuck"},
	} {
		if f := findingOf(t, sick, check); f.State != "warn" || !strings.Contains(f.Text, want[0]) || !strings.Contains(f.Next, want[1]) {
			t.Errorf("%s: %+v", check, f)
		}
	}
	freeing(t, conn, "default")
	eventually(t, "a worker that is seen", func() (string, bool) {
		r := s.ask(t, "default", "doctor", "-o", "json")
		return r.stdout, findingOf(t, r, "capability").State == "ok" && findingOf(t, r, "worker").State == "ok"
	})
	if f := findingOf(t, s.ask(t, "default", "doctor", "-o", "json"), "deadlines"); f.State != "ok" {
		t.Errorf("a young plan without a deadline: %+v", f)
	}
	if err := agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.end(t)
}

func TestTheDoctorJudgesClockDisksAndReplicas(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	stream := func(text string) (info streamInfo) {
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			t.Fatal(err)
		}
		return info
	}
	disk := func(free, total uint64) executor.StatusView {
		return executor.StatusView{Disks: []executor.DiskView{{Store: "tiles", FreeBytes: 1 << 40, TotalBytes: 1 << 40}, {Store: "state", FreeBytes: free, TotalBytes: total}}}
	}
	for _, c := range []struct {
		what  string
		is    finding
		state string
		says  string
	}{
		{"guard", examineClock(executor.StatusView{Mode: executor.ModeGuard, Problem: "ahead"}, now), "FAIL", "no deadline fires: ahead"},
		{"time ahead", examineClock(executor.StatusView{Mode: executor.ModeHolding, TimeNs: now.Add(time.Hour).UnixNano()}, now), "warn", "1h00m ahead"},
		{"time", examineClock(executor.StatusView{Mode: executor.ModeHolding, TimeNs: now.UnixNano()}, now), "ok", ""},
		{"full disk", examineDisks(disk(1<<29, 1<<40)), "FAIL", "almost full"},
		{"filling disk", examineDisks(disk(5<<30, 100<<30)), "warn", "getting full"},
		{"large disk", examineDisks(disk(50<<30, 1<<40)), "ok", "(4 %)"},
		{"small disk", examineDisks(disk(5<<30, 8<<30)), "ok", ""},
		{"no disk", examineDisks(executor.StatusView{}), "skip", ""},
		{"one server", judgeReplicas(stream(`{"config":{"num_replicas":1}}`), "t"), "ok", "one server keeps"},
		{"one of a cluster", judgeReplicas(stream(`{"config":{"num_replicas":1},"cluster":{"name":"c1","leader":"a"}}`), "t"), "warn", "cluster c1"},
		{"one is away", judgeReplicas(stream(`{"config":{"num_replicas":3},"cluster":{"name":"c1","leader":"a","replicas":[{"name":"b","current":true},{"name":"c","current":false,"lag":7}]}}`), "t"), "warn", "1 of 3"},
		{"all there", judgeReplicas(stream(`{"config":{"num_replicas":3},"cluster":{"name":"c1","leader":"a","replicas":[{"name":"b","current":true},{"name":"c","current":true}]}}`), "t"), "ok", "3 servers"},
		{"full ledger", judgeRoom(stream(`{"config":{"max_bytes":1000},"state":{"bytes":950}}`)), "warn", "950 B of 1000 B"},
		{"ledger", judgeRoom(stream(`{"config":{"max_bytes":1000},"state":{"bytes":10}}`)), "ok", ""},
		{"ledger without bound", judgeRoom(stream(`{"config":{"max_bytes":-1},"state":{"bytes":10}}`)), "ok", "no bound"},
		{"lossy", examineDurable(executor.StatusView{Lossy: true}), "warn", "may lose"},
	} {
		if c.is.State != c.state || !strings.Contains(c.is.Text, c.says) || c.state != "ok" && c.state != "skip" && c.is.Next == "" {
			t.Errorf("%s: %+v, want %s", c.what, c.is, c.state)
		}
	}
}

func TestSizesAreSaidByTheirLargestUnit(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB", 1 << 63: "8.0 EiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

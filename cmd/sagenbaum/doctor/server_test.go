package doctor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestTheDoctorJudgesClockDisksAndReplicas(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	stream := func(text string) (info streamInfo) {
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			t.Fatal(err)
		}
		return info
	}
	disk := func(free, total uint64) api.Status {
		return api.Status{Disks: []api.Disk{{Store: "tiles", FreeBytes: 1 << 40, TotalBytes: 1 << 40},
			{Store: "state", FreeBytes: free, TotalBytes: total}}}
	}
	for _, c := range []struct {
		what  string
		is    Finding
		state string
		says  string
	}{
		{"guard", examineClock(api.Status{Mode: api.ModeGuard, Problem: "ahead"}, now), "FAIL",
			"no deadline fires: ahead"},
		{"time ahead",
			examineClock(api.Status{Mode: api.ModeHolding, TimeNs: now.Add(time.Hour).UnixNano()}, now),
			"warn", "1h00m ahead"},
		{"time", examineClock(api.Status{Mode: api.ModeHolding, TimeNs: now.UnixNano()}, now), "ok", ""},
		{"full disk", examineDisks(disk(1<<29, 1<<40)), "FAIL", "almost full"},
		{"filling disk", examineDisks(disk(5<<30, 100<<30)), "warn", "getting full"},
		{"large disk", examineDisks(disk(50<<30, 1<<40)), "ok", "(4 %)"},
		{"small disk", examineDisks(disk(5<<30, 8<<30)), "ok", ""},
		{"no disk", examineDisks(api.Status{}), "skip", ""},
		{"one server", judgeReplicas(stream(`{"config":{"num_replicas":1}}`), "t"), "ok", "one server keeps"},
		{"one of a cluster",
			judgeReplicas(stream(`{"config":{"num_replicas":1},"cluster":{"name":"c1","leader":"a"}}`), "t"), "warn",
			"cluster c1"},
		{"one is away",
			judgeReplicas(
				stream(`{"config":{"num_replicas":3},"cluster":{"name":"c1","leader":"a","replicas":[{"name":"b","current":true},{"name":"c","current":false,"lag":7}]}}`), "t"), "warn",
			"a, which leads the ledger, says that 1 of its 2 other servers does not keep up"},
		{"none keeps up",
			judgeReplicas(
				stream(`{"config":{"num_replicas":3},"cluster":{"name":"c1","leader":"a","replicas":[{"name":"b","current":false},{"name":"c","current":false}]}}`), "t"), "warn",
			"a, which leads the ledger, says that none of its 2 other servers keeps up: it may be a that does not"},
		{"no leader", examineStream(stream(`{"config":{"num_replicas":3},"cluster":{"name":"c1","replicas":[`+
			`{"name":"c"},{"name":"Server name unknown at this time"},{"name":"b","current":true}]}}`), "t", nil)[0],
			"FAIL", "no server leads the ledger, and nothing can be stored: more than half of its 3 servers (b, c)"},
		{"no leader of any stream",
			examineStream(stream(`{"error":{"code":503,"err_code":10008,"description":"unavailable"}}`), "t", nil)[0],
			"FAIL", "more than half of its servers"},
		{"another error", examineStream(stream(`{"error":{"code":404,"err_code":10059,"description":"not found"}}`), "t",
			nil)[0], "skip", "not found"},
		{"no host answers", examineStream(streamInfo{}, "t", errNoHost)[0], "skip", "no host answers"},
		{"the ledger without a leader", examineLedger(stream(`{"cluster":{"name":"c1"}}`), "t", nil), "skip",
			"no server leads"},
		{"the ledger without a host", examineLedger(streamInfo{}, "t", errNoHost), "skip", "no host answers"},
		{"all there", judgeReplicas(
			stream(`{"config":{"num_replicas":3},"cluster":{"name":"c1","leader":"a","replicas":[{"name":"b","current":true},{"name":"c","current":true}]}}`), "t"), "ok", "3 servers"},
		{"full ledger", judgeRoom(stream(`{"config":{"max_bytes":1000},"state":{"bytes":950}}`), "t"), "warn",
			"950 B of 1000 B"},
		{"ledger", judgeRoom(stream(`{"config":{"max_bytes":1000},"state":{"bytes":10}}`), "t"), "ok", ""},
		{"ledger without bound", judgeRoom(stream(`{"config":{"max_bytes":-1},"state":{"bytes":10}}`), "t"), "ok",
			"no bound"},
		{"lossy", examineDurable(api.Status{Lossy: true}), "warn", "may lose"},
	} {
		if c.is.State != c.state || !strings.Contains(c.is.Text, c.says) || c.state != "ok" && c.state != "skip" &&
			c.is.Next == "" {
			t.Errorf("%s: %+v, want %s", c.what, c.is, c.state)
		}
	}
}

// Only what the table of roles denies is skipped: a server that refuses more has another table.
func TestOnlyWhatTheTableDeniesIsSkipped(t *testing.T) {
	t.Parallel()
	for granted, want := range map[bool]string{false: skipped("x", "", "").State, true: broken("x", "", "").State} {
		err := &cli.Failure{Code: cli.ExitNotAllowed, Text: "not allowed", Granted: granted}
		for _, f := range append(examineStream(streamInfo{}, "default", err), problem("records", err)) {
			if f.State != want {
				t.Errorf("granted %v: %+v", granted, f)
			}
		}
	}
}

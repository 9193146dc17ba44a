package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestTheDoctorJudgesHosts: a host that has not opened the ledger does not take over, and what a host
// in standby has proved of the holder is said, which the holder itself does not know.
func TestTheDoctorJudgesHosts(t *testing.T) {
	t.Parallel()
	held := api.Status{Tenant: "t", Mode: api.ModeHolding, Holder: "a"}
	a, b := api.Host{Host: "a", Mode: api.ModeHolding}, api.Host{Host: "b", Mode: api.ModeStandby}
	starting := api.Host{Host: "c", Mode: api.ModeStarting, Problem: "no server leads JetStream"}
	proves := b
	proves.Forked = "the checkpoint at 7 is wrong"
	told := a
	told.Forked = proves.Forked
	for what, c := range map[string]struct {
		hosts             []api.Host
		state, says, next string
		details           int
	}{
		"alone":           {[]api.Host{a}, "ok", "no other host", "", 0},
		"one stands by":   {[]api.Host{a, b}, "ok", "1 host would take over", "", 1},
		"one is starting": {[]api.Host{a, starting}, "ok", "no other host", "", 1},
		"one of each":     {[]api.Host{a, b, starting}, "ok", "1 host would", "", 2},
		"one has proved":  {[]api.Host{a, proves}, "FAIL", "b has proved that a has folded another", "on a: stop serve", 1},
		"the holder says": {[]api.Host{told, b}, "ok", "1 host would", "", 1},
		"two of one name": {[]api.Host{{Host: "a", Process: "1", At: "m1"}, {Host: "a", Process: "2", At: "m2"}}, "warn",
			"a (m1); a (m2)", "--holder NAME", 2},
		"two of them hold": {[]api.Host{a, {Host: "b", Mode: api.ModeHolding}}, "warn", "2 hosts say", "again", 0},
	} {
		f := judgeHosts(c.hosts, held)
		if f.State != c.state || !strings.Contains(f.Text, c.says) || !strings.Contains(f.Next, c.next) ||
			len(f.Details) != c.details {
			t.Errorf("%s: %+v", what, f)
		}
	}
}

// TestTheDoctorSaysWhatFollowsFromALedgerWithoutALeader, and leaves the advice on what does not.
func TestTheDoctorSaysWhatFollowsFromALedgerWithoutALeader(t *testing.T) {
	t.Parallel()
	hosts := []api.Host{{Host: "a", Mode: api.ModeStandby, Problem: "not known"}}
	for mode, follows := range map[string]bool{api.ModeStandby: true, api.ModeStarting: true, api.ModeHalted: false,
		api.ModeDegraded: false, api.ModeGuard: false, api.ModeHolding: false} {
		f := examineLeaderless(hosts, api.Status{Tenant: "t", Mode: mode}, time.Unix(1000, 0))
		if strings.Contains(f[0].Next, "see replicas above") != follows || f[1].State != "skip" || f[2].State != "skip" ||
			len(f[1].Details) != 1 {
			t.Errorf("%s: %+v", mode, f)
		}
	}
}

package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestStatusAndDoctorSayWhatIsSignedAndWhatIsNot(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	shown := func(change func(*api.Checkpoint)) api.Status {
		c := api.Checkpoint{Size: 7, StampNs: now.Add(-time.Minute).UnixNano(), Key: "k"}
		change(&c)
		return api.Status{Records: 9, Checkpoint: &c}
	}
	for name, c := range map[string]struct {
		change func(*api.Checkpoint)
		states string
		text   string
	}{
		"signed": {func(*api.Checkpoint) {}, "ok", "7 of 9 records"},
		"none":   {func(c *api.Checkpoint) { c.Size = 0 }, "ok", "none signed yet"},
		"no key": {func(c *api.Checkpoint) { c.Problem, c.NoKey = "the key is away", true }, "warn",
			"the key is away"},
		"no room": {func(c *api.Checkpoint) { c.Problem = "no space left" }, "warn", "no space left"},
		"a fork": {func(c *api.Checkpoint) { c.Problem, c.Alarm = "another root", true }, "FAIL",
			"another root"},
		"a witness": {func(c *api.Checkpoint) { c.Witness, c.Cosigned = "w", 7 }, "ok ok",
			"w has cosigned 7"},
		"it is away": {func(c *api.Checkpoint) { c.Witness, c.Away = "w", "answers 502" }, "ok warn",
			"answers 502"},
		"it saw a fork": {func(c *api.Checkpoint) {
			c.Witness, c.Away, c.WitnessAlarm = "w", "of 5 another",
				true
		}, "ok FAIL", "of 5 another"},
		"a fork, by both": {func(c *api.Checkpoint) {
			c.Alarm, c.Problem, c.Away, c.WitnessAlarm = true, "x",
				"y", true
		}, "FAIL FAIL", "x"},
	} {
		v := shown(c.change)
		var states []string
		for _, f := range examineCheckpoints(v, nil, now) {
			states = append(states, f.State)
		}
		if got := strings.Join(states, " "); got != c.states {
			t.Errorf("%s: doctor says %s, want %s", name, got, c.states)
		}
		if text := render.CheckpointText(cli.Pen{}, *v.Checkpoint, v.Records, now); !strings.Contains(text, c.text) {
			t.Errorf("%s: status says %q", name, text)
		}
	}
	for rotated, want := range map[string]string{
		"":   `with the one that auditors have: sagenbaum key rotate --lost "VERIFIER-KEY" --reason "the key is lost"`,
		"k2": `if no copy is left: sagenbaum key rotate --lost "k2" --reason "the key is lost"`,
	} {
		lost := api.Checkpoint{Problem: "the key is away", NoKey: true}
		if rotated != "" {
			lost.Rotations = []api.Rotation{{NewKey: "k1"}, {NewKey: rotated}}
		}
		if next := lostKeyNext(lost); !strings.Contains(next, want) {
			t.Errorf("%q: %s", rotated, next)
		}
	}
	for _, f := range examineCheckpoints(shown(func(c *api.Checkpoint) { c.Problem = "no space left" }), nil, now) {
		if strings.Contains(f.Next, "rotate") {
			t.Errorf("no key is lost, and the advice is %s", f.Next)
		}
	}
	standby := []api.Host{{Host: "h2", Mode: api.ModeStandby, NoKey: "the key is not there"}}
	if f := examineCheckpoints(shown(func(*api.Checkpoint) {}), standby, now); len(f) != 2 ||
		f[1].State != "warn" || !strings.Contains(f[1].Text, "h2") {
		t.Errorf("%+v", f)
	}
}

// TestTheDoctorSaysThatSealedValuesCannotBeOpened, before an undo is due that takes them.
func TestTheDoctorSaysThatSealedValuesCannotBeOpened(t *testing.T) {
	t.Parallel()
	f := examineSealed([]api.Host{{Host: "h1"}, {Host: "h2", NoTenantKey: "the key is not there"}}, "shop")
	if len(f) != 1 || f[0].State != "warn" || !strings.Contains(f[0].Text, "h2 could not open what is sealed: the key") ||
		!strings.Contains(f[0].Next, "docs/guide/keys.md") {
		t.Errorf("%+v", f)
	}
	// a copy of before an erasure lacks the key as well, and putting it back would take that back
	if again := "sagenbaum tenant erase shop"; !strings.Contains(f[0].Next, again) {
		t.Errorf("the advice is %s", f[0].Next)
	}
	waits := api.Status{Tenant: "shop", Waiting: []api.Waiting{{Capability: "a.b", Tries: 1, Problem: "no key"}}}
	if f := ExamineWorkers(waits, time.Now()); !strings.Contains(f[0].Next, "sagenbaum tenant erase") {
		t.Errorf("the advice is %s", f[0].Next)
	}
}

// TestTheDoctorFindsHostsOfOneName, which another host with a name of its own is not.
func TestTheDoctorFindsHostsOfOneName(t *testing.T) {
	t.Parallel()
	hosts := []api.Host{{Host: "a", Process: "1", At: "machine m1, process 4"},
		{Host: "a", Process: "2", At: "machine m2, process 5"}, {Host: "b", Process: "3"}}
	got := cli.Twins(hosts)
	if len(got) != 2 || got[0] != "a (machine m1, process 4)" || got[1] != "a (machine m2, process 5)" {
		t.Errorf("%q", got)
	}
	if got := cli.Twins(hosts[1:]); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

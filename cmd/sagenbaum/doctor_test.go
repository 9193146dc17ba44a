package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
)

func TestTheDoctorTellsWaitingFromWorkingFromWorkingForLong(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(ago time.Duration) int64 { return now.Add(-ago).UnixNano() }
	short := api.Waiting{Capability: "a.b", Plan: "p", Action: "1", SinceNs: at(time.Minute), Working: true}
	long := api.Waiting{Capability: "c.d", Plan: "p", Action: "2", SinceNs: at(time.Hour), Working: true,
		AgainNs: at(-time.Hour)}
	alone := api.Waiting{Capability: "e.f", Plan: "p", Action: "3", SinceNs: at(time.Second), Tries: 3}
	for _, c := range []struct {
		waiting []api.Waiting
		states  string
		text    string
	}{
		{nil, "ok", "no command waits"},
		{[]api.Waiting{short}, "ok", "workers are at 1"},
		{[]api.Waiting{short, long}, "warn", "sent 1h00m ago, and its worker still says working; " +
			"asked again at 1970-01-12 14:46:40Z"},
		{[]api.Waiting{alone, long}, "warn warn", "no worker in 3 tries"},
	} {
		var states []string
		findings := doctor.ExamineWorkers(api.Status{Waiting: c.waiting}, now)
		for _, f := range findings {
			states = append(states, f.State)
		}
		if strings.Join(states, " ") != c.states || !strings.Contains(findings[0].Text, c.text) {
			t.Errorf("%+v: %+v", c.waiting, findings)
		}
	}
	if n := status.Waiting(api.Status{Waiting: []api.Waiting{short, alone}}); n != 1 {
		t.Errorf("%d commands wait, want 1", n)
	}
}

// An old refusal about a plan that has ended is history; a young one, or one
// about a plan that goes on, is not. The newest are told, however many there are.
func TestOldRefusalsAreHistory(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour.Nanoseconds()
	states := map[string]string{"ended": ledger.StateCompensated, "open": ledger.StateOpen,
		"parked": ledger.StateQuarantined}
	var records []api.Refused
	url := answering(t, map[string]func([]byte) any{
		"refused.ls": func(data []byte) any {
			var q api.ListQuery
			if err := json.Unmarshal(data, &q); err != nil {
				return api.Problem{Text: err.Error()}
			}
			answer := api.RefusedAnswer{Refused: []api.Refused{}}
			for _, r := range records {
				if r.Sequence > q.AfterSequence && len(answer.Refused) < min(q.Limit, 30) {
					answer.Refused = append(answer.Refused, r)
				}
			}
			return answer
		},
		"plan.outcome": func(data []byte) any {
			var q api.OutcomeQuery
			if err := json.Unmarshal(data, &q); err != nil || states[q.Plan] == "" {
				return api.Problem{Text: "there is no plan " + q.Plan}
			}
			return api.OutcomeAnswer{State: states[q.Plan]}
		},
	})
	c := &cli.Client{Conn: cmdtest.Dial(t, url), Tenant: "default", Server: url, Timeout: 10 * time.Second}
	for _, example := range []struct {
		plan  string
		age   int64
		state string
	}{
		{"ended", 2 * day, "ok"}, {"never", 2 * day, "ok"}, {"", 2 * day, "ok"},
		{"ended", day / 2, "warn"}, {"", day / 2, "warn"},
		{"open", 2 * day, "warn"}, {"parked", 2 * day, "warn"},
	} {
		records = nil
		for n := range uint64(300) {
			records = append(records,
				api.Refused{Sequence: 10*n + 1, Plan: "ended", Reason: "old", Subject: "s", StampNs: 1})
		}
		records = append(records,
			api.Refused{Sequence: 3100, Plan: example.plan, Reason: "the newest", Subject: "s",
				StampNs: 10*day - example.age})
		records = append(records,
			api.Refused{Sequence: 3101, Plan: "open", Reason: "lost a race", Subject: "s", StampNs: 10 * day,
				Void: true})
		f := doctor.ExamineRefused(context.Background(), c,
			api.Status{Refused: 301, Applied: 5000, TimeNs: 10 * day})
		if f.State != example.state || !strings.Contains(f.Text, "301 refused") ||
			!strings.HasPrefix(f.Details[0], "3100.0 on s at ") {
			t.Errorf("plan %q, %d ns old: %+v", example.plan, example.age, f)
		}
		if want := fmt.Sprintf("ledger tail --since %d", 3100); example.state == "warn" &&
			!strings.Contains(f.Next, want) {
			t.Errorf("next is %q, want %s", f.Next, want)
		}
	}
}

// An executor to which nothing is delivered any more knows of nothing that it lacks; the
// stream does.
func TestTheDoctorAsksTheStreamHowFarItGoes(t *testing.T) {
	t.Parallel()
	var applied atomic.Uint64
	url := answering(t, map[string]func([]byte) any{"status": func([]byte) any {
		return api.StatusAnswer{Status: api.Status{Mode: api.ModeHolding, Applied: applied.Load(),
			Last: applied.Load()}}
	}})
	conn := cmdtest.Dial(t, url)
	if _, err := jetstream.Open(t.Context(),
		jetstream.Config{Conn: conn, Tenant: "default", AcceptLossyBroker: true}); err != nil {
		t.Fatal(err)
	}
	appender, err := jetstream.Attach(conn, "default")
	if err != nil {
		t.Fatal(err)
	}
	data, err := ledger.EncodeCommit([]*pb.Record{{Plan: "p",
		Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}}})
	if err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Tenant: "default", Class: ledger.ClassAgent, Name: "a", Plan: "p"}
	if _, err := appender.Append(t.Context(),
		ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data}); err != nil {
		t.Fatal(err)
	}
	c := &cli.Client{Conn: conn, Tenant: "default", Server: url, Timeout: 10 * time.Second}
	if f := doctor.ExamineFold(t.Context(), c, api.Status{}); f.State != "warn" ||
		f.Text != "0 of 1 commits folded after 2s" {
		t.Errorf("%+v", f)
	}
	applied.Store(1)
	if f := doctor.ExamineFold(t.Context(), c, api.Status{Last: 9}); f.Text != "1 of 9 commits folded after 2s" ||
		!strings.Contains(f.Next, "it has folded 1 commit more") {
		t.Errorf("%+v", f)
	}
	if f := doctor.ExamineFold(t.Context(), c, api.Status{}); f.State != "ok" {
		t.Errorf("%+v", f)
	}
}

// While a host takes over, and while one has so much to do that the ledger is always further than
// what it has folded, the doctor finds nothing: it looks again, and waits for what was there.
func TestTheDoctorWaitsForWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	var asked atomic.Uint64
	url := answering(t, map[string]func([]byte) any{"status": func([]byte) any {
		n := asked.Add(1)
		v := api.Status{Tenant: "default", Mode: api.ModeHolding, Applied: 10 * n, Last: 10*n + 25, Holder: "h"}
		if n == 1 {
			v.Mode = api.ModeStandby
		}
		return api.StatusAnswer{Status: v}
	}})
	all := cmdtest.Run(t, "doctor", "--server", url, "-o", "json").Checks(t)
	for _, check := range []string{"executor", "fold"} {
		i := slices.IndexFunc(all, func(f doctor.Finding) bool { return f.Check == check })
		if i < 0 || all[i].State != "ok" {
			t.Errorf("%s: %+v", check, all)
		}
	}
	if n := asked.Load(); n < 4 {
		t.Errorf("the host was asked %d times", n)
	}
}

package host

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	out := httptest.NewRecorder()
	m.Handler().ServeHTTP(out, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(out.Body)
	if err != nil || out.Code != 200 {
		t.Fatal(out.Code, err)
	}
	return string(body)
}

// However many tenants there are, the series are bounded; those without numbers of
// their own share some, which are the sums of theirs.
func TestMetricsOfManyTenantsAreBounded(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	for n := range 3 * tenantsMetered {
		meter := m.tenant(fmt.Sprintf("t%d", n))
		meter.mode("", view.ModeHolding)
		meter.level(levels{}, levels{held: 2, nextDueNs: 5e9})
		if again := m.tenant(fmt.Sprintf("t%d", n)); again != meter {
			t.Fatalf("tenant %d has two meters", n)
		}
	}
	body := scrape(t, m)
	if n := len(regexp.MustCompile(`(?m)^sagenbaum_held\{`).FindAllString(body, -1)); n != tenantsMetered+1 {
		t.Errorf("%d series of held, want %d", n, tenantsMetered+1)
	}
	for _, want := range []string{
		`sagenbaum_held{tenant="t0"} 2`, fmt.Sprintf(`sagenbaum_held{tenant="(others)"} %d`, 2*2*tenantsMetered),
		fmt.Sprintf(`sagenbaum_tenants{mode="holding"} %d`, 3*tenantsMetered),
		`sagenbaum_next_due_timestamp_seconds{tenant="t0"} 5`, `sagenbaum_next_due_timestamp_seconds{tenant="(others)"} 0`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	others := m.tenant("t299")
	others.level(levels{held: 2, nextDueNs: 5e9}, levels{})
	others.mode(view.ModeHolding, "")
	if body := scrape(t, m); !strings.Contains(body, fmt.Sprintf(`sagenbaum_held{tenant="(others)"} %d`, 2*2*tenantsMetered-2)) || !strings.Contains(body, fmt.Sprintf(`sagenbaum_tenants{mode="holding"} %d`, 3*tenantsMetered-1)) {
		t.Error("a tenant that is not run any more is still counted")
	}
}

// A turn that changes no number costs nothing, and no metrics cost nothing at all.
func TestNumbersThatStayCostNothing(t *testing.T) {
	m := NewMetrics()
	meter, is := m.tenant("t"), levels{held: 1_000_000, open: 7}
	meter.level(levels{}, is)
	if n := testing.AllocsPerRun(100, func() { meter.level(is, is) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	var none *Metrics
	off := none.tenant("t")
	off.level(levels{}, is)
	off.mode("", view.ModeHolding)
	off.flying(1, 1)
	off.stored(time.Now(), nil)
	off.page(nil)
}

// A command without a worker, and one whose worker says working for ever, call
// operators once each, after a while and not before.
func TestACommandThatFindsNoEndIsSaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := executor.Command{Number: 1, Command: api.Command{Purpose: ledger.PurposeUndo, Plan: "p", Action: "a",
			Attempt: 1, Capability: "x.y", Address: "1.0-ab", Tenant: "t"}}
		busy := lost
		busy.Action = "b"
		answers := func(c api.Command) actuators.Result {
			if c.Action == "a" {
				return actuators.Result{Fate: actuators.NoWorker}
			}
			return actuators.Result{Fate: actuators.Replied,
				Reply: api.Reply{Status: api.StatusWorking, UntilMs: time.Now().Add(2 * time.Second).UnixMilli()}}
		}
		d := newDispatcher(always(answers), instant, nil)
		var said []api.Page
		d.stuckAfter = time.Minute
		d.stuck = func(f *flight, since time.Time) { said = append(said, stuckPage(f, since)) }
		d.send(turn.Sending{Command: lost})
		d.send(turn.Sending{Command: busy})
		wait(t, 55*time.Second)
		d.mu.Lock()
		if len(said) != 0 {
			t.Errorf("said too early: %+v", said)
		}
		d.mu.Unlock()
		wait(t, 5*time.Minute)
		d.mu.Lock()
		if len(said) != 2 || said[0].ID == said[1].ID && said[0].Action == said[1].Action {
			t.Errorf("%+v", said)
		}
		for _, page := range said {
			want := map[string]string{"a": "no worker serves x.y, since ",
				"b": "a worker of x.y says that it is still working, since "}[page.Action]
			if !strings.HasPrefix(page.Reason, want) || page.Kind != api.PageStuckWorker {
				t.Errorf("%+v", page)
			}
		}
		d.mu.Unlock()
		d.stop()
	})
}

// always answers every sending at once.
type always func(api.Command) actuators.Result

func (a always) Send(c api.Command, done func(actuators.Result)) { go done(a(c)) }

// wait lets time pass in a bubble.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	synctest.Wait()
}

// What the numbers cost one record that is folded, and a turn.
func BenchmarkOneRecordInTheNumbers(b *testing.B) {
	meter := NewMetrics().tenant("t")
	was, is := levels{}, levels{}
	for b.Loop() {
		meter.verdict(executor.Effective)
		meter.foldDelay.Observe(time.Since(time.Now()).Seconds())
		is.held++
		meter.level(was, is)
		was = is
	}
}

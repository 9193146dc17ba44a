package host

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestTheRoomOfALedgerFollowsItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 100 << 20
	none := jetstream.Room{}
	open := jetstream.Room{Most: limit - limit/10, Limit: limit}
	closed := jetstream.Room{Most: limit, Limit: limit, Closed: true}
	used := func(r jetstream.Room, n uint64) jetstream.Room { r.Used = n; return r }
	for _, c := range []struct {
		what  string
		limit uint64
		has   jetstream.Room
		full  bool
		want  jetstream.Room
	}{
		{"no limit", 0, none, false, none},
		{"a bound of somebody else", 0, jetstream.Room{Most: 5}, true, jetstream.Room{Most: 5}},
		{"a limit that is taken back", 0, closed, true, none},
		{"a first limit", limit, none, false, open},
		{"a limit instead of another bound", limit, jetstream.Room{Most: 5}, false, open},
		{"agents have found it full", limit, used(open, open.Most), false, used(open, open.Most)},
		{"the holder has, too", limit, used(open, open.Most), true, used(closed, open.Most)},
		{"a disk is full, and not the ledger", limit, used(open, 1), true, used(open, 1)},
		{"it stays closed", limit, used(closed, limit), false, used(closed, limit)},
		{"the holder needs more", limit, used(closed, limit), true,
			jetstream.Room{Used: limit, Most: limit + limit/10, Limit: limit, Closed: true}},
		{"a limit below what is used", limit, jetstream.Room{Used: 3 * limit}, false,
			jetstream.Room{Used: 3 * limit, Most: 3*limit + limit/10, Limit: limit, Closed: true}},
		{"it is raised", limit, jetstream.Room{Used: 60 << 20, Most: 60 << 20, Limit: 60 << 20, Closed: true},
			false, used(open, 60<<20)},
	} {
		if got := roomFor(c.limit, c.has, c.full); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// fill stores what no one can read as an agent, until the ledger takes nothing more of agents.
func (r *rig) fill() (err error) {
	r.t.Helper()
	agents, err := jetstream.Attach(r.conn, "t")
	if err != nil {
		r.t.Fatal(err)
	}
	junk := []byte(strings.Repeat("x", 60<<10))
	for n := range 20_000 {
		_, err = agents.Append(r.t.Context(), ledger.Append{ID: jetstream.NewID(),
			Subject: fmt.Sprintf("saga.t.agent.flood.p%d", n), Data: junk})
		switch {
		case errors.Is(err, ledger.ErrFull) && len(junk) > 100:
			junk = junk[:len(junk)/4] // there is room for less
		case errors.Is(err, jetstream.ErrNoStream):
			return err
		case errors.Is(err, ledger.ErrFull):
			<-time.After(20 * time.Millisecond) // until its holder has something to say
		case err != nil && !errors.Is(err, ledger.ErrBusy):
			r.t.Fatal(err)
		}
	}
	r.t.Fatal("the ledger is never full")
	return nil
}

// TestAFullLedgerStillTakesWhatIsOwed: a tenant that has filled its ledger is undone to its end,
// also after a restart, and goes on once its limit is raised.
func TestAFullLedgerStillTakesWhatIsOwed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.follow = true
	r.serve(done)
	h, stop := r.host("h1")
	limit := func(h *Host, q api.TenantRequest) {
		t.Helper()
		q.Tenant = "t"
		r.eventually("the limit is stored", func() bool { return tenancyOf(t, h, api.TenantLimit, q).Error == "" })
	}
	room := func(what string, is func(jetstream.Room) bool) {
		t.Helper()
		store, err := jetstream.Open(t.Context(), jetstream.Config{Conn: r.conn, Tenant: "t",
			DurableServer: r.srv.DurableID()})
		if err != nil {
			t.Fatal(err)
		}
		r.eventually(what, func() bool {
			has, err := store.Room(t.Context())
			return err == nil && is(has)
		})
	}
	r.plan("p", 20, time.Hour)
	r.plan("q", 20, time.Hour)
	const least = 16 << 20
	limit(h, api.TenantRequest{Limits: api.TenantLimits{Bytes: least}})
	room("the bound is that of the limit", func(has jetstream.Room) bool {
		return has.Limit == least && has.Most == least-least/10 && !has.Closed
	})
	if err := r.fill(); !errors.Is(err, jetstream.ErrNoStream) {
		t.Errorf("%v", err)
	}
	room("the holder has found it full", func(has jetstream.Room) bool { return has.Closed })
	if err := r.fill(); !errors.Is(err, jetstream.ErrNoStream) {
		t.Errorf("a full ledger takes of an agent: %v", err)
	}
	cancel := func(plan string) {
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ana"}, &pb.Record{Plan: plan,
			Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Reason: "x", Actor: "ana"}}})
	}
	cancel("p")
	if end := r.ended("p"); end.State != ledger.StateCompensated {
		t.Errorf("in a full ledger: %+v", end)
	}
	status := r.status()
	if !strings.Contains(status.Problem, "sagenbaum tenant limits t --bytes N") || status.May == nil ||
		status.May.Limits[len(status.May.Limits)-1].Most != least {
		t.Errorf("%q, %+v", status.Problem, status.May)
	}
	stop()
	h, _ = r.host("h2")
	cancel("q")
	if end := r.ended("q"); end.State != ledger.StateCompensated {
		t.Errorf("after a restart: %+v", end)
	}
	limit(h, api.TenantRequest{Limits: api.TenantLimits{Bytes: 4 * least}})
	room("a higher limit opens it", func(has jetstream.Room) bool { return !has.Closed && has.Limit == 4*least })
	r.plan("s", 2, time.Hour)
	r.fail("s")
	if end := r.ended("s"); end.State != ledger.StateCompensated {
		t.Errorf("with a higher limit: %+v", end)
	}
	limit(h, api.TenantRequest{Reset: []string{"bytes"}})
	room("no limit is no bound", func(has jetstream.Room) bool { return has.Most == 0 && has.Limit == 0 })
}

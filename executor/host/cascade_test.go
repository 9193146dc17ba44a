package host

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// watching opens a plan with one action that is undone when a fact is there.
func (r *rig) watching(plan, key string) {
	r.t.Helper()
	r.begun("agent", plan,
		&pb.PlanOpened{Owner: "ann", Triggers: []*pb.Trigger{{Name: "watch", Condition: `"` + key + `" in facts`}}})
	r.acted("agent", plan, "a")
}

// cutPage waits for the page about a cascade that was cut.
func cutPage(t *testing.T, sub *nats.Subscription) (page api.Page) {
	t.Helper()
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(m.Data, &page); err != nil || page.Kind != api.PageCascadeCut {
		t.Fatalf("%s, %v", m.Data, err)
	}
	return page
}

// TestACutCascadeWaitsForItsOwnerOverARestart: its page comes through the real
// server, another host that folds the ledger anew holds the same, and the owner's
// word lets the lease fire there.
func TestACutCascadeWaitsForItsOwnerOverARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cascade = executor.CascadeLimits{Depth: 2}
	r.serve(func(c api.Command) *api.Reply { // its store says what each undo did
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "store"}, &pb.Record{
			Plan: c.Plan, Action: c.Action,
			Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: "undone/" + c.Plan, Value: []byte("1")}}})
		return &api.Reply{Status: api.StatusDone}
	})
	sub, err := r.conn.SubscribeSync(api.PageSubject("t", api.PageDefault))
	if err != nil {
		t.Fatal(err)
	}
	_, stop := r.host("h1")
	r.watching("c", "undone/b")
	r.watching("b", "undone/a")
	r.plan("a", 1, 0)
	r.fail("a")
	if page := cutPage(t, sub); page.Plan != "c" || page.Owner != "ann" ||
		page.Reason != "lease watch is held, the cascade was cut: depth 3 of 2" {
		t.Errorf("%+v", page)
	}
	stop()
	r.host("h2")
	var why api.WhyAnswer
	r.caughtUp()
	if err := r.ask("plan.why", api.WhyQuery{Plan: "c"}, &why); err != nil ||
		len(why.Why.Steps) != 3 || len(why.Why.Cuts) != 1 {
		t.Fatalf("%v %+v", err, why)
	}
	if status := r.status(); status.Cut != 1 || status.Open != 1 ||
		status.Cascade != (api.Cascade{Depth: 2, Plan: 8, Tenant: 10_000}) || status.Cascaded != 1 {
		t.Errorf("%+v", status)
	}
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ann"},
		&pb.Record{Plan: "c", Kind: &pb.Record_CascadeAnswered{
			CascadeAnswered: &pb.CascadeAnswered{Resume: true, Reason: "seen", Actor: "ann"}}})
	if got := r.ended("c"); got.State != ledger.StateCompensated {
		t.Errorf("%+v", got)
	}
	if err := r.ask("plan.why", api.WhyQuery{Plan: "nowhere"}, &why); says(err) == "" {
		t.Errorf("%v %+v", err, why)
	}
}

// TestAHostRefusesCascadeLimitsThatAreNone, by the field.
func TestAHostRefusesCascadeLimitsThatAreNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := New(Config{Conn: r.conn, Tenants: []string{"t"}, Dir: t.TempDir(),
		Cascade: executor.CascadeLimits{Depth: 65}})
	var refused *ledger.Refused
	if !errors.As(err, &refused) || refused.Field != "cascade.depth" {
		t.Errorf("%v", err)
	}
}

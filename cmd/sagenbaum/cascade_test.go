package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// loop is a scene of three agents whose plans undo each other: what shop has done
// rests on the price, what stock has done on the shop, the price on the stock. Each
// begins anew when its plan is undone.
type loop struct {
	*scene
	pages *nats.Subscription
}

var watched = map[string]string{"shop": "price", "stock": "shop", "price": "stock"}

func newLoop(t *testing.T, args ...string) *loop {
	t.Helper()
	l := &loop{scene: newScene(t, args...)}
	var err error
	if l.pages, err = l.conn.SubscribeSync(api.PageSubject("default", api.PageDefault)); err != nil {
		t.Fatal(err)
	}
	l.now(func() { l.free = l.undo })
	for _, place := range []string{"shop", "stock", "price"} {
		if err := l.begin(t.Context(), place, 1); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// begin opens the n-th plan of a place, which watches for the n-th undo of another;
// the shop comes first in each round.
func (l *loop) begin(ctx context.Context, place string, n int) error {
	key, times := "undone/"+watched[place], n
	if place == "shop" {
		times--
	}
	condition := fmt.Sprintf(`%q in facts && facts[%q] == %d`, key, key, times)
	plan, err := l.agent.Begin(ctx,
		coordinator.PlanSpec{ID: fmt.Sprint(place, "-", n), Owner: "travel",
			Triggers: map[string]string{"moved": condition}})
	if err != nil {
		return err
	}
	action := coordinator.Action{Capability: "room.book", Input: map[string]any{"room": 7}}
	err = plan.Report(ctx, action,
		coordinator.Outcome{Output: map[string]any{"id": "pi_1"}, Before: json.RawMessage("null")})
	return errors.Join(err, plan.Flush(ctx))
}

// undo begins the next plan of a place, and says as a fact what it undid.
func (l *loop) undo(ctx context.Context, c api.Command) (worker.Result, error) {
	place, round, _ := strings.Cut(c.Plan, "-")
	var n int
	if _, err := fmt.Sscan(round, &n); err != nil {
		return worker.Result{}, err
	}
	if err := l.begin(ctx, place, n+1); err != nil {
		return worker.Result{}, err
	}
	fact := fmt.Sprintf(`{"records":[{"plan":%q,"action":%q,"factAsserted":{"key":"undone/%s","value":%q}}]}`, c.Plan,
		c.Action, place, base64Of(round))
	said := &nats.Msg{Subject: "saga.default.fact.store", Header: nats.Header{"Content-Type": {ledger.ContentTypeJSON}},
		Data: []byte(fact)}
	_, err := l.conn.RequestMsgWithContext(ctx, said)
	return worker.Result{}, err
}

func base64Of(text string) string {
	b, _ := json.Marshal([]byte(text))
	return strings.Trim(string(b), `"`)
}

// cut waits until a plan was cut.
func (l *loop) cut(t *testing.T, plan string) {
	t.Helper()
	var seen []api.Page
	for { // one that no one has taken comes again
		m, err := l.pages.NextMsg(20 * time.Second)
		var page api.Page
		if err != nil || json.Unmarshal(m.Data, &page) != nil || page.Kind != api.PageCascadeCut {
			t.Fatalf("%v, page %+v; before that %+v", err, page, seen)
		}
		if seen = append(seen, page); page.Plan == plan {
			return
		}
	}
}

// S93: a cycle of three plans is cut at the limit; what is printed shows the cycle
// and the commands, and the owner lets it go on or gives it up.
func TestS93PlanWhyShowsTheCycleAndItsAnswers(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	defer l.stop(t)
	l.run(t, cli.ExitConflict, "plan resume shop-1 --reason x --actor ana",
		"no lease of plan shop-1 waits after a cut cascade: it is open")
	says(t, l.run(t, cli.ExitGood, "plan why shop-1"), "no lease of it has fired")
	l.run(t, cli.ExitGood, "plan cancel shop-1 --reason 'the shop moves' --actor ana")
	l.cut(t, "price-3")
	says(t, l.run(t, cli.ExitLook, "quarantine ls", "next: sagenbaum plan why price-3"), "price-3", "lease moved",
		"travel", "cascade cut, depth 9 of 8")
	says(t, l.run(t, cli.ExitLook, "status"),
		"1 cut; limits: depth 8, plan 8, tenant 10000 an hour, 7 used in this one",
		"price-3, owner travel: lease moved (cascade cut, depth 9 of 8)")
	says(t, l.run(t, cli.ExitLook, "doctor"), "1 plan waits for its owner", "next: sagenbaum plan why price-3")
	says(t, l.run(t, cli.ExitLook, "plan show price-3"), "lease moved is held for its owner since", "cut")
	r := l.run(t, cli.ExitLook, "plan why price-3")
	says(t, r, "  1 plan shop-1 was cancelled by ana: the shop moves (",
		"that turned lease plan.cancelled of plan shop-1 true, and the undo of its plan began (",
		"  2 the undo of action 1 of plan shop-1 asserted fact undone/shop (",
		"that turned lease moved of plan stock-1 true, and the undo of its plan began (",
		`condition: "undone/shop" in facts && facts["undone/shop"] == 1`,
		"  9 the undo of action 1 of plan stock-3 asserted fact undone/stock (",
		"that turned lease moved of plan price-3 true, and is held: the cascade was cut",
		"cycle of 3: stock-1 -> price-1 -> shop-2 -> stock-2, went round 2 times, with other plans each time",
		"waits since ", "cascade cut, depth 9 of 8, owner travel",
		"  next: sagenbaum plan resume price-3 --reason WHY --actor NAME",
		"    or: sagenbaum plan give-up price-3 --reason WHY --actor NAME")
	t.Log("\n" + r.Stdout)
	why := cmdtest.Decoded[api.Why](t, l.run(t, cli.ExitLook, "plan why price-3 -o json"))
	if len(why.Steps) != 9 || why.Cycle.Rounds != 2 || len(why.Cuts) != 1 {
		t.Errorf("%+v", why)
	}
	l.run(t, cli.ExitUsage, "plan resume price-3", "the owner's answer needs a reason")
	l.run(t, cli.ExitConflict, "plan resume price-3 --lease other --reason x --actor ana",
		"is not cut; cut: lease moved")
	says(t, l.run(t, cli.ExitGood, "plan resume price-3 --reason 'the stock is right now' --actor ana"),
		"price-3 lease moved goes on from depth 1, as told by ana")
	l.cut(t, "stock-6")
	says(t, l.run(t, cli.ExitLook, "plan why stock-6"), "; resumed by ana: the stock is right now (",
		"), depth counts from 1 again", "went round 5 times")
	says(t, l.run(t, cli.ExitGood, "plan give-up stock-6 --reason 'enough' --actor ana"),
		"stock-6 lease moved given up, as told by ana", "plan now open")
	l.run(t, cli.ExitConflict, "plan give-up stock-6 --reason again --actor ana", "no lease of plan stock-6 waits")
	l.run(t, cli.ExitGood, "quarantine ls")
	says(t, l.run(t, cli.ExitGood, "plan show stock-6"), "given up")
	says(t, l.run(t, cli.ExitGood, "plan why stock-6"), "stock-6  open",
		"lease moved of plan stock-6 true, and was held: the cascade was cut", "went round 5 times",
		"lease moved was cut (", "), depth 9 of 8; given up by ana: enough (")
	says(t, l.run(t, cli.ExitGood, "plan why price-3"), "price-3  compensated", "went round 2 times",
		"; resumed by ana: the stock is right now (", "lease moved was cut (")
}

// TestServeRefusesCascadeLimitsThatAreNone, and says what would be right.
func TestServeRefusesCascadeLimitsThatAreNone(t *testing.T) {
	t.Parallel()
	for flags, says := range map[string]string{
		"--cascade-depth 0":        "--cascade-depth of at least 1; with 1 nothing fires by what an undo makes",
		"--cascade-plan 0":         "--cascade-plan of at least 1\n",
		"--cascade-depth 65":       "--cascade-depth of 1 to 64",
		"--cascade-plan 2000000":   "--cascade-plan of 1 to 1048576",
		"--cascade-tenant 0":       "--cascade-tenant cannot be 0",
		"--cascade-tenant -1":      "--cascade-tenant",
		"--cascade-depth plenty":   "--cascade-depth",
		"--cascade-tenant 1e99999": "--cascade-tenant",
	} {
		cmdtest.Run(t, append([]string{"serve"}, words(flags)...)...).Wants(t, flags, cli.ExitUsage, says)
	}
}

// TestPlanWhyTellsWhoToldAPlanToUnwind: of a plan that is open again, and of a
// committed one by the plan that undoes it.
func TestPlanWhyTellsWhoToldAPlanToUnwind(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	open := s.trip(t, coordinator.PlanSpec{ID: "p1", Owner: "travel"}, "card.charge")
	if err := open.Savepoint(t.Context(), "paid"); err != nil {
		t.Fatal(err)
	}
	report(t, open, "room.book")
	s.run(t, cli.ExitGood, "plan unwind p1 --to paid --reason 'wrong room' --actor ana --wait")
	says(t, s.run(t, cli.ExitGood, "plan why p1"), "p1  open",
		"  1 plan p1 was told to unwind (back to savepoint paid) by ana: wrong room (",
		"that turned lease plan.cancelled of plan p1 true, and the undo of its plan back to savepoint paid began (")
	done := s.trip(t, coordinator.PlanSpec{ID: "p2", Owner: "travel"}, "room.book")
	if err := done.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run(t, cli.ExitGood, "plan unwind p2 --reason 'bad release' --actor ana --wait")
	r := s.run(t, cli.ExitGood, "plan why p2")
	says(t, r, "p2  committed", "plan p2 is undone as plan p2~1",
		"  1 plan p2 was told to unwind by ana: bad release (", "that turned lease plan.cancelled of plan p2~1")
	if strings.Contains(r.Stdout, "is a part of it") {
		t.Error(r.Stdout)
	}
	says(t, s.run(t, cli.ExitGood, "plan why p2~1"), "it undoes the committed plan p2",
		"  1 plan p2 was told to unwind by ana: bad release (")
}

package coordinator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

const secretCard, secretToken = "4000123412341234", "tok-9f86d081884c7d65"

// keeps wants nothing of the secrets in the ledger.
func (l *live) keeps(t *testing.T) (records []*pb.Record) {
	t.Helper()
	head, err := l.store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for sequence := head.First; sequence <= head.Last; sequence++ {
		m, err := l.store.Get(t.Context(), sequence)
		if err != nil || bytes.Contains(m.Data, []byte(secretCard)) || bytes.Contains(m.Data, []byte(secretToken)) {
			t.Errorf("sequence %d: %v, %q", sequence, err, m.Data)
		}
		entries, err := ledger.Decode("default", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			records = append(records, e.Record)
		}
	}
	return records
}

// buying is an action whose card and token are sensitive, undone by a handler in code.
func buying(w *tour, card string) replay.Action {
	a := replay.Action{ID: "a", Capability: "tour.a", Input: map[string]any{"card": card, "seat": "7<&>"},
		Undo: w.undo("")}
	a.Undo.Contract.Sensitive = []string{"input.card", "output.token"}
	return a
}

// TestReplayReadsWhatWasSealedUntilItIsErased: what Do returns is the same as the first
// time, also in another process, whose handler is told all in the clear; another card is a
// change; and once the plan is erased it is refused, and says so.
func TestReplayReadsWhatWasSealedUntilItIsErased(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{})
	w := newTour(l)
	var outputs []string
	run := func(plan, card string, end func(p *process, cancel func()) error) error {
		p := l.process()
		defer p.end()
		ctx, cancel := bounded(t)
		defer cancel()
		return p.Run(ctx, config(plan), func(ctx context.Context, r *replay.Plan) error {
			output, err := r.Do(ctx, buying(w, card),
				w.forward(json.RawMessage(`{ "token" : "`+secretToken+`",  "n":10.10 }`), nil))
			if err != nil {
				return err
			}
			outputs = append(outputs, string(output))
			b := w.action("b") // whose pair takes the outcome of a with it
			b.Repeat = true
			if _, err := r.Do(ctx, b, w.forward(nil, nil)); err != nil {
				return err
			}
			return end(p, cancel)
		})
	}
	lost := func(p *process, cancel func()) error { return p.lose(cancel) }
	if run("p", secretCard, lost) == nil {
		t.Fatal("a lost process ended well")
	}
	wantDiverged(t, run("p", "5555", lost), "a", "input")
	if run("p", secretCard, lost) == nil || len(outputs) != 2 || outputs[0] != outputs[1] ||
		!strings.Contains(outputs[1], secretToken) || strings.Count(w.ranText(), "a") != 1 {
		t.Errorf("outputs %q, ran %s", outputs, w.ranText())
	}
	wantUnwound(t, run("p", secretCard, func(*process, func()) error { return errors.New("no seats") }),
		ledger.StateCompensated)
	w.mu.Lock()
	if u := w.calls["a"]; !strings.Contains(string(u.Input), secretCard) || string(u.Output) != outputs[0] {
		t.Errorf("the handler was told %s and %s", u.Input, u.Output)
	}
	w.mu.Unlock()
	if run("q", secretCard, lost) == nil {
		t.Fatal("a lost process ended well")
	}
	l.append(ledger.Source{Class: ledger.ClassOperator, Name: "ana"},
		&pb.Record{Plan: "q", Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for", Actor: "ana",
			Force: true}}})
	keys, err := jetstream.OpenKeys(t.Context(), jetstream.Config{Conn: l.root, Tenant: "default"})
	for deadline := time.Now().Add(10 * time.Second); !errors.Is(err, jetstream.ErrKeyDestroyed) &&
		time.Now().Before(deadline); {
		_, err = keys.Get(t.Context(), "q")
	}
	if !errors.Is(err, jetstream.ErrKeyDestroyed) {
		t.Fatal(err)
	}
	before := len(outputs)
	err = run("q", secretCard, lost)
	if !errors.Is(err, coordinator.ErrErased) || !strings.Contains(err.Error(), `plan "q", erased by ana at `) ||
		len(outputs) != before || strings.Count(w.ranText(), "a") != 2 {
		t.Errorf("after the erasure: %v, ran %s", err, w.ranText())
	}
	l.keeps(t)
}

// noJSON is an output that says why there is no JSON of it.
type noJSON string

func (n noJSON) MarshalJSON() ([]byte, error) { return nil, errors.New(string(n)) }

// TestForwardsThatTellASensitiveFieldAreScrubbed in their record; the caller gets the
// error as it is.
func TestForwardsThatTellASensitiveFieldAreScrubbed(t *testing.T) {
	t.Parallel()
	l := newLive(t, coordinator.Config{Contracts: []contract.Contract{{
		Capability: "pay.charge", Class: contract.Compensable, Sensitive: []string{"input.card"},
		Inverse: &contract.Inverse{Call: "pay.refund", With: map[string]any{"card": "=input.card"}},
	}}})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	_, err := p.Do(t.Context(), coordinator.Action{Capability: "pay.charge", Input: map[string]any{"card": secretCard}},
		func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, coordinator.NotTaken(fmt.Errorf("declined: %s", call.Input))
		})
	if !errors.Is(err, coordinator.ErrNotTaken) || !strings.Contains(err.Error(), secretCard) {
		t.Errorf("%v", err)
	}
	_, err = p.Do(t.Context(), coordinator.Action{Capability: "pay.charge", Input: map[string]any{"card": secretCard}},
		func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{Output: noJSON("paid with " + secretCard)}, nil
		})
	if err == nil || !strings.Contains(err.Error(), secretCard) {
		t.Errorf("%v", err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	said, sealed := "", false
	for _, r := range l.keeps(t) {
		if detail := string(r.Payload.GetDetail()); r.GetForwardCompleted() != nil &&
			(!strings.Contains(detail, "paid with [sealed]") || strings.Contains(detail, secretCard)) {
			t.Errorf("recorded is %s", detail)
		}
		if k := r.GetForwardFailed(); k != nil {
			said = k.Message
		}
		sealed = sealed || r.GetCompensationRegistered().GetSealed()
	}
	if said != `the effect did not happen: declined: {"card":"[sealed]"}` && said != `declined: {"card":"[sealed]"}` ||
		!sealed {
		t.Errorf("recorded is %q, sealed %v", said, sealed)
	}
}

// TestWithoutAKeyNothingSensitiveIsDone: no one gives it, and the forward does not run.
func TestWithoutAKeyNothingSensitiveIsDone(t *testing.T) {
	_, root, store := serve(t)
	c, err := coordinator.New(coordinator.Config{Conn: root, Tenant: "default", Agent: "a1",
		Contracts: []contract.Contract{{Capability: "pay.charge", Class: contract.Effectless, Sensitive: []string{"input"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	p, err := c.Begin(t.Context(), coordinator.PlanSpec{ID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Do(t.Context(), coordinator.Action{Capability: "pay.charge", Input: 1},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			t.Error("the forward ran")
			return coordinator.Outcome{}, nil
		})
	var refused *ledger.Refused
	if !errors.Is(err, coordinator.ErrKeyAway) || !errors.As(err, &refused) || refused.Field != "plan.key" ||
		last(t, store) != 1 { // that it was opened
		t.Errorf("%v, %d commits", err, last(t, store))
	}
}

// TestAKeyThatIsNotThereYetIsAskedForAgain: hosts that start may be about to make the tenant's.
func TestAKeyThatIsNotThereYetIsAskedForAgain(t *testing.T) {
	_, root, _ := serve(t)
	asked := map[string]int{} // by plan
	if _, err := root.Subscribe(api.KeySubject("default", "a1"), func(m *nats.Msg) {
		var q api.KeyQuery
		_ = json.Unmarshal(m.Data, &q)
		body, _ := api.EncodeAnswer(api.KeyAnswer{Key: make([]byte, seal.KeySize)}, nil)
		if asked[q.Plan]++; q.Plan == "q" {
			body, _ = api.EncodeAnswer(nil, &api.Problem{Text: "never"})
		} else if asked[q.Plan] < 3 {
			body, _ = api.EncodeAnswer(nil, &api.Problem{Text: "no other host gave it", Again: true})
		}
		_ = m.Respond(body)
	}); err != nil {
		t.Fatal(err)
	}
	c, err := coordinator.New(coordinator.Config{Conn: root, Tenant: "default", Agent: "a1",
		Contracts: []contract.Contract{{Capability: "pay.charge", Class: contract.Effectless, Sensitive: []string{"input"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	for id, want := range map[string]string{"p": "", "q": "never"} {
		p, err := c.Begin(t.Context(), coordinator.PlanSpec{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		err = p.Report(t.Context(), coordinator.Action{Capability: "pay.charge", Input: 1}, coordinator.Outcome{})
		if (err == nil) != (want == "") || want != "" && !strings.Contains(err.Error(), want) {
			t.Errorf("plan %s: %v, want %q", id, err, want)
		}
	}
}

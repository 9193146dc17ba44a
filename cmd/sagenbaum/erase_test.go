package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// cardNumber and token are what nobody but the workers may read; they are told in every
// way in which a careless program tells them.
const (
	cardNumber = "4000123412341234"
	token      = "tok-9f86d081884c7d65"
)

// paying is a server with an agent that charges cards, whose contract marks the card and
// the token of the provider sensitive, and a worker that refunds.
type paying struct {
	*scene
	shop *coordinator.Coordinator
	desk *worker.Worker

	told struct {
		sync.Mutex
		refunds []json.RawMessage
		fails   bool
		pages   []byte // that the webhook was sent
	}
}

func payContracts() []contract.Contract {
	return []contract.Contract{{
		Capability: "pay.charge", Class: contract.Compensable, OnInDoubt: contract.InDoubtCompensate,
		Sensitive: []string{"input.card", "output.token"},
		Inverse: &contract.Inverse{
			Call: "pay.refund",
			With: map[string]any{"card": "=input.card", "token": "=output.token", "amount": "=input.amount",
				"all": "=input"},
			Attempts: 1, Timeout: 5 * time.Second,
		},
	}}
}

func newPaying(t *testing.T, args ...string) *paying {
	t.Helper()
	p := new(paying)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&body)
		p.told.Lock()
		defer p.told.Unlock()
		p.told.pages = append(p.told.pages, body...)
	}))
	t.Cleanup(hook.Close)
	p.scene = newScene(t, append([]string{"--webhook", hook.URL, "--verbose"}, args...)...)
	p.join(t)
	return p
}

// join starts agent and worker, as after a restart of the server.
func (p *paying) join(t *testing.T) {
	t.Helper()
	var err error
	conn := cmdtest.Dial(t, p.URL)
	if p.desk, err = worker.New(worker.Config{Conn: conn, Tenant: "default", Name: "desk"}); err == nil {
		err = p.desk.Handle("pay.refund", p.refund)
	}
	if err == nil {
		p.shop, err = coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "shop",
			Contracts: payContracts()})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *paying) refund(_ context.Context, c api.Command) (worker.Result, error) {
	p.told.Lock()
	defer p.told.Unlock()
	p.told.refunds = append(p.told.refunds, c.Arguments)
	if p.told.fails {
		return worker.Result{}, worker.Stop(errors.New("cannot refund " + string(c.Arguments)))
	}
	return worker.Result{Output: map[string]any{"refunded": cardNumber}}, nil
}

func (p *paying) charge(t *testing.T, id string) *coordinator.Plan {
	t.Helper()
	plan, err := p.shop.Begin(t.Context(), coordinator.PlanSpec{ID: id, Owner: "travel"})
	if err != nil {
		t.Fatal(err)
	}
	input := map[string]any{"card": map[string]any{"number": cardNumber}, "amount": 120}
	output, err := plan.Do(t.Context(), coordinator.Action{Capability: "pay.charge", Input: input},
		func(_ context.Context, call coordinator.Call) (coordinator.Outcome, error) {
			if !strings.Contains(string(call.Input), cardNumber) {
				t.Errorf("the forward got %s", call.Input)
			}
			return coordinator.Outcome{Output: map[string]any{"token": token, "id": "ch_1"}}, nil
		})
	if err != nil || string(output) != `{"id":"ch_1","token":"`+token+`"}` {
		t.Fatalf("%s, %v", output, err)
	}
	if err := plan.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return plan
}

func (p *paying) leave(t *testing.T) {
	t.Helper()
	if err := errors.Join(p.shop.Close(t.Context()), p.desk.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// hides wants none of the secrets in a text.
func hides(t *testing.T, where, text string) {
	t.Helper()
	for _, secret := range []string{cardNumber, token} {
		for _, form := range []string{secret, base64Of(secret), base64Of(`{"number":"` + secret),
			base64Of(`"` + secret)} {
			if at := strings.Index(text, strings.TrimRight(form, "=")[:min(len(form), 14)]); at >= 0 {
				t.Errorf("%s shows %q: %.200s", where, secret, text[max(0, at-60):])
			}
		}
	}
}

// TestSensitiveFieldsAreReadByWorkersOnly: the worker gets them in the clear; ledger,
// answers, pages, webhook, logs and files of the server never have them, not even where a
// worker says them in its error.
func TestSensitiveFieldsAreReadByWorkersOnly(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	p.told.fails = true
	plan := p.charge(t, "p1")
	if err := plan.Fail(t.Context(), "no seats"); err != nil {
		t.Fatal(err)
	}
	if end, err := plan.Wait(t.Context()); err != nil || end.State != ledger.StateQuarantined {
		t.Fatalf("%+v, %v", end, err)
	}
	want := `{"all":{"amount":120,"card":{"number":"` + cardNumber + `"}},"amount":120,"card":{"number":"` +
		cardNumber + `"},"token":"` + token + `"}`
	if len(p.told.refunds) != 1 || string(p.told.refunds[0]) != want {
		t.Errorf("the worker got %s", p.told.refunds)
	}
	for _, line := range []string{
		"ledger tail --since 1", "ledger tail --since 1 -o json", "ledger show 3 -o json", "plan show p1",
		"plan show p1 -o json", "plan tree p1", "plan why p1", "plan why p1 1 -o json",
		"plan preview p1", "plan preview p1 -o json", "quarantine ls", "quarantine show p1 1",
		"quarantine show p1 1 -o json", "undo ls --plan p1", "undo ls --plan p1 -o json", "plan ls -o json",
		"contract ls -o json", "status -o json",
	} {
		r := p.Ask(t, "default", strings.Fields(line)...)
		hides(t, line, r.Stdout+r.Stderr)
	}
	says(t, p.run(t, cli.ExitLook, "plan show p1"), `"card":"[sealed input.card]"`, `"token":"[sealed output.token]"`,
		"cannot refund", "[sealed]")
	says(t, p.run(t, cli.ExitLook, "plan show p1 --reveal"), cardNumber, token)
	p.told.Lock()
	if hides(t, "the webhook", string(p.told.pages)); !strings.Contains(string(p.told.pages), "pay.refund") {
		t.Errorf("the webhook got %s", p.told.pages)
	}
	p.told.Unlock()
	p.leave(t)
	p.stop(t)
	hides(t, "the log", p.Stderr.String())
	files := 0
	err := filepath.Walk(p.Dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		hides(t, path, string(text))
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files: %v", files, err)
	}
}

// TestPlanEraseIsForGood: refused while something is held, done and recorded then, again
// harmless; nobody reads the values any more, and an undo after that is the owner's.
func TestPlanEraseIsForGood(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	plan := p.charge(t, "p1")
	p.run(t, cli.ExitUsage, "plan erase p1 --actor ana", "an erasure needs a reason")
	p.run(t, cli.ExitFailed, "plan erase nowhere --reason x --actor ana", "there is no plan nowhere",
		"next: sagenbaum plan ls")
	p.run(t, cli.ExitConflict, "plan erase p1 --reason 'ticket 1' --actor ana", "plan p1 is open", "or force it")
	if err := plan.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := p.run(t, cli.ExitGood, "plan erase p1 --reason 'ticket 1' --actor ana")
	says(t, first, "p1 committed, erased by ana (", "): ticket 1; its key was destroyed (")
	if again := p.run(t, cli.ExitGood, "plan erase p1 --reason 'ticket 2' --actor bob"); again.Stdout != first.Stdout {
		t.Errorf("again: %s", again.Stdout)
	}
	p.run(t, cli.ExitFailed, "plan show p1 --reveal", "cannot reveal action 1 of plan p1", "the key was destroyed")
	says(t, p.run(t, cli.ExitGood, "plan show p1"), "[sealed input.card]", "erased by ana (")
	says(t, p.run(t, cli.ExitGood, "plan why p1"), "its sealed values are to be erased by ana: ticket 1",
		"the key of its sealed values is destroyed: no one can read them any more")
	report := func(id string) error {
		open, err := p.shop.Begin(t.Context(), coordinator.PlanSpec{ID: id})
		if err != nil {
			return err
		}
		return open.Report(t.Context(),
			coordinator.Action{Capability: "pay.charge", Input: map[string]any{"card": cardNumber}},
			coordinator.Outcome{})
	}
	if err := report("p2"); err != nil {
		t.Errorf("another plan: %v", err)
	}
	if err := report("p1"); !errors.Is(err, coordinator.ErrPlanExists) {
		t.Errorf("an action of an erased plan: %v", err)
	}
	p.run(t, cli.ExitGood, "plan unwind p1 --reason late --actor ana")
	p.run(t, cli.ExitLook, "plan show p1~1")
	says(t, p.run(t, cli.ExitLook, "quarantine ls"), "p1~1", "what pay.refund takes was erased at",
		"nobody can read it any more")
	if p.run(t, cli.ExitConflict, "plan erase p1~1 --reason x --actor ana",
		"erase that one"); len(p.told.refunds) != 0 {
		t.Errorf("the worker got %s", p.told.refunds)
	}
	p.leave(t)
	p.stop(t)
}

// TestPlanEraseConvergesOverKills: whenever the server is killed behind the record, the
// next one destroys the key and says so, once.
func TestPlanEraseConvergesOverKills(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	for _, pause := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond} {
		id := "k" + strings.ReplaceAll(pause.String(), "µ", "u")
		if err := p.charge(t, id).Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		erase := cmdtest.Sagenbaum(t, "plan", "erase", id, "--reason", "x", "--actor", "ana", "--server", p.URL)
		if err := erase.Start(); err != nil {
			t.Fatal(err)
		}
		p.await(t, id)
		time.AfterFunc(pause, func() { _ = p.Command.Process.Kill() })
		_ = p.Command.Wait()
		_ = erase.Process.Kill()
		_ = erase.Wait()
		p.Served = cmdtest.ServeAs(t, p.Dir, cmdtest.ServeCommand(t, p.Dir, "--listen", strings.TrimPrefix(p.URL, "nats://")))
		p.join(t)
		says(t, p.run(t, cli.ExitGood, "plan erase "+id+" --reason y --actor ana"), "its key was destroyed (")
		if n := strings.Count(p.kept(t), `"plan":"`+id+`"`); n == 0 {
			t.Error("the ledger has nothing of it")
		}
		done := 0
		for line := range strings.Lines(p.kept(t)) {
			if strings.Contains(line, `"kind":"plan_erased"`) && strings.Contains(line, `"plan":"`+id+`"`) {
				done++
			}
		}
		if done != 2 {
			t.Errorf("%s: %d records of the erasure", id, done)
		}
	}
	p.End(t)
}

// await waits until the ledger has an erasure of a plan.
func (p *paying) await(t *testing.T, id string) {
	t.Helper()
	for range 500 {
		if p.plan(t, id).Erasure != nil {
			return
		}
	}
	t.Fatal("no erasure came")
}

// TestServeRefusesAMasterKeyThatIsNone, and one that others can read.
func TestServeRefusesAMasterKeyThatIsNone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	for _, c := range []struct {
		text string
		mode os.FileMode
		says string
	}{{"", 0, "cannot read the master key"}, {"abc", 0o600, "is not 64 hex digits"},
		{strings.Repeat("ab", 32), 0o644, "others may read"}} {
		if c.mode != 0 {
			if err := errors.Join(os.WriteFile(file, []byte(c.text), 0o600), os.Chmod(file, c.mode)); err != nil {
				t.Fatal(err)
			}
		}
		cmdtest.Run(t, "serve", "--listen", "127.0.0.1:0", "--master-key", file).Wants(t, c.says,
			cli.ExitFailed, c.says, "next: ")
	}
}

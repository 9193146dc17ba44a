package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestARetryUnderANewKeyFromTheConsole: the form offers it once an attempt was made, and says what
// it may do.
func TestARetryUnderANewKeyFromTheConsole(t *testing.T) {
	s := newStage(t, nil)
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1"})
	s.do(p, "registry.publish v2")
	s.end(p, "not this version")
	v := visit(t, s)
	csrf := v.signIn()
	if _, page := v.get("/t/default/quarantine/p1/1"); !strings.Contains(page, `name="new_key"`) ||
		!strings.Contains(page, "does it twice") {
		t.Errorf("the form does not offer a new key:\n%s", page)
	}
	before := s.plan("p1").Actions[0].Key
	form := url.Values{"csrf": {csrf}, "as": {"retry"}, "reason": {"it stands there"}, "new_key": {"1"}, "token": {token}}
	if answer, page := v.post("/t/default/quarantine/p1/1", form); answer.StatusCode != http.StatusSeeOther {
		t.Fatalf("%s\n%s", answer.Status, page)
	}
	if after := s.plan("p1").Actions[0].Key; after == before || len(after) != len(before) {
		t.Errorf("its key was %s, and is %s", before, after)
	}
}

// TestAVerdictFromTheConsole: what waits is listed, the longest first, with its input; its page says
// what a block would undo, and gives the verdict once.
func TestAVerdictFromTheConsole(t *testing.T) {
	s := newStage(t, nil)
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1", Label: "release"})
	s.do(p, "git.branch.create b")
	v := visit(t, s)
	if _, page := v.get("/t/default/verdicts"); !strings.Contains(page, "Nothing waits for a verdict") {
		t.Errorf("an empty inbox:\n%s", page)
	}
	first := s.waits(p, "git.push", "one")
	s.waiting(1)
	second := s.waits(p, "git.commit", "two")
	s.waiting(2)
	_, page := v.get("/t/default/verdicts")
	if one, two := strings.Index(page, "one"), strings.Index(page, "two"); one < 0 || two < one {
		t.Errorf("the inbox has not one before two:\n%s", page)
	}
	if _, page = v.get("/t/default/verdicts?capability=git.commit"); strings.Contains(page, "verdicts/p1/one") ||
		!strings.Contains(page, "verdicts/p1/two") {
		t.Errorf("of git.commit alone:\n%s", page)
	}
	if _, page = v.get("/t/default/plans/p1"); !strings.Contains(page, "a verdict since") {
		t.Errorf("the plan does not say what it waits for:\n%s", page)
	}
	if _, page = v.get("/t/default/verdicts/p1/2"); !strings.Contains(page, "What a block would undo") ||
		strings.Contains(page, `value="block"`) {
		t.Errorf("for who has not signed in:\n%s", page)
	}
	csrf := v.signIn()
	if _, page = v.get("/t/default/verdicts/p1/2"); !strings.Contains(page, `value="block"`) ||
		!strings.Contains(page, "git.push.delete") {
		t.Errorf("the form:\n%s", page)
	}
	give := func(action, as, reason string, want int) {
		t.Helper()
		form := url.Values{"csrf": {csrf}, "as": {as}, "reason": {reason}, "token": {token}}
		if answer, page := v.post("/t/default/verdicts/p1/"+action, form); answer.StatusCode != want {
			t.Fatalf("%s of %s: %s\n%s", as, action, answer.Status, page)
		}
	}
	give("2", "perhaps", "", http.StatusBadRequest)
	give("2", "block", "", http.StatusBadRequest) // without a reason
	give("2", "block", "not on a Friday", http.StatusSeeOther)
	var verdict *coordinator.Verdict
	if err := <-first; !errors.As(err, &verdict) || verdict.By != "ana" || verdict.Reason != "not on a Friday" {
		t.Errorf("one: %v", err)
	}
	give("2", "allow", "", http.StatusConflict) // someone was first
	give("3", "allow", "", http.StatusSeeOther)
	if err := <-second; err != nil {
		t.Errorf("two: %v", err)
	}
	if _, page = v.get("/t/default/verdicts"); !strings.Contains(page, "Nothing waits for a verdict") {
		t.Errorf("what was judged is in the inbox:\n%s", page)
	}
}

// TestAPageNamesOneAction where the agent has given each of two actions the number of the other one as
// its id: pages lead to the action that they show, and an address that may mean both is refused.
func TestAPageNamesOneAction(t *testing.T) {
	s := newStage(t, nil)
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1"})
	first := s.waits(p, "git.commit", "2")
	s.waiting(1)
	second := s.waits(p, "git.push", "1")
	s.waiting(2)
	v := visit(t, s)
	csrf := v.signIn()
	if _, page := v.get("/t/default/verdicts"); !strings.Contains(page, "verdicts/p1/id:1") ||
		!strings.Contains(page, "verdicts/p1/id:2") {
		t.Errorf("the inbox:\n%s", page)
	}
	for address, want := range map[string]string{"id:1": "git.push.delete", "number:2": "git.push.delete",
		"2": "id:2 or number:2"} {
		if _, page := v.get("/t/default/verdicts/p1/" + address); !strings.Contains(page, want) {
			t.Errorf("the page of action %s:\n%s", address, page)
		}
	}
	form := url.Values{"csrf": {csrf}, "as": {"block"}, "reason": {"not on a Friday"}, "token": {token}}
	if answer, page := v.post("/t/default/verdicts/p1/2", form); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("%s\n%s", answer.Status, page)
	}
	for address, done := range map[string]<-chan error{"id:1": second, "number:1": first} {
		if answer, page := v.post("/t/default/verdicts/p1/"+address, form); answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("%s\n%s", answer.Status, page)
		}
		var verdict *coordinator.Verdict
		if err := <-done; !errors.As(err, &verdict) {
			t.Errorf("action %s: %v", address, err)
		}
	}
}

// TestAVerdictThatTheHostMayNotWrite: it is known that nothing is stored, and the page says so.
func TestAVerdictThatTheHostMayNotWrite(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	p := s.begin(s.coder, coordinator.PlanSpec{ID: "p1"})
	done := s.waits(p, "git.push", "one")
	s.waiting(1)
	users := testenv.Users(t, access.User{Name: "coder", Role: access.Agent, Tenant: tenant})
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users.Directory})
	must(t, err)
	t.Cleanup(server.Close)
	conn := users.Connect(server.URL(), "coder", nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	s.detach()
	s.detach = s.console.Attach(s.host, conn)
	v := visit(t, s)
	form := url.Values{"csrf": {v.signIn()}, "as": {"allow"}, "token": {token}}
	answer, page := v.post("/t/default/verdicts/p1/1", form)
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(page, "nothing is stored") {
		t.Errorf("%s\n%s", answer.Status, page)
	}
	s.detach()
	s.detach = s.console.Attach(s.host, s.conn)
	if answer, page = v.post("/t/default/verdicts/p1/1", form); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("%s\n%s", answer.Status, page)
	}
	must(t, <-done)
}

// TestAVerdictIsAboutTheWholeInput: all of it is on the page of its action, and what is sealed is
// named and not shown as what it is kept as.
func TestAVerdictIsAboutTheWholeInput(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	p := s.begin(s.payer(), coordinator.PlanSpec{ID: "p1"})
	done := make(chan error, 2)
	for i, words := range []int{4000, 1} {
		go func() { // ends with the verdict
			text := strings.Repeat("text ", words) + "the last word"
			_, err := p.Do(context.Background(), coordinator.Action{Capability: "card.pay", Review: true,
				Input: map[string]any{"card": "4000-1234", "text": text}, Branch: true},
				func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
					return coordinator.Outcome{}, nil
				})
			done <- err
		}()
		s.waiting(i + 1)
	}
	v := visit(t, s)
	csrf := v.signIn()
	for _, path := range []string{"/t/default/verdicts", "/t/default/verdicts/p1/1", "/t/default/verdicts/p1/2"} {
		_, page := v.get(path)
		if !strings.Contains(page, "[sealed input.card]") || !strings.Contains(page, "the last word") ||
			strings.Contains(page, "4000-1234") {
			t.Errorf("%s does not name what is sealed, or has not the whole input", path)
		}
		if number, one := strings.CutPrefix(path, "/t/default/verdicts/p1/"); one {
			form := url.Values{"csrf": {csrf}, "as": {"block"}, "reason": {"no"}, "token": {token}}
			_, _ = v.post("/t/default/verdicts/p1/"+number, form)
			var verdict *coordinator.Verdict
			if err := <-done; !errors.As(err, &verdict) {
				t.Error(err)
			}
		}
	}
}

// payer is an agent whose calls have a sealed value, input.card.
func (s *stage) payer() *coordinator.Coordinator {
	s.t.Helper()
	pay := compensable("card.pay", "card.refund")
	pay.Sensitive = []string{"input.card"}
	payer, err := coordinator.New(
		coordinator.Config{Conn: s.conn, Tenant: tenant, Agent: "payer", Contracts: []contract.Contract{pay}},
	)
	must(s.t, err)
	s.t.Cleanup(func() { _ = payer.Close(context.Background()) })
	return payer
}

// waits begins an action that waits for a verdict.
func (s *stage) waits(p *coordinator.Plan, capability, name string) <-chan error {
	done := make(chan error, 1)
	go func() { // ends with the verdict
		_, err := p.Do(context.Background(), coordinator.Action{ID: name, Capability: capability, Review: true,
			Input: map[string]any{"name": name, "dry_run": false}, Branch: true},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				return coordinator.Outcome{Output: map[string]string{"ref": "r-" + name}}, nil
			})
		done <- err
		if err != nil {
			s.said.Store(&err)
		}
	}()
	return done
}

// waiting returns when so many actions wait for a verdict; pages, which may be repeated, say when to
// look.
func (s *stage) waiting(count int) {
	s.t.Helper()
	for {
		var page api.Page
		m, err := s.pages.NextMsg(testenv.Patience)
		if said := s.said.Load(); err != nil && said != nil {
			s.t.Fatalf("no page comes, and what was to wait for a verdict has ended: %v", *said)
		}
		must(s.t, err)
		must(s.t, json.Unmarshal(m.Data, &page))
		if page.Kind != api.PageVerdictWanted {
			continue
		}
		got, err := s.host.Ask(tenant, api.ReviewLs.Name, api.ReviewQuery{})
		answer, _ := got.(api.ReviewAnswer)
		switch {
		case err != nil || len(answer.Reviews) > count:
			s.t.Fatalf("%d actions wait for a verdict, want %d: %v", len(answer.Reviews), count, err)
		case len(answer.Reviews) == count:
			return
		}
	}
}

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

func TestServePagesTheWebhookOfItsCommandLine(t *testing.T) {
	pages := make(chan ledger.Page, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var page ledger.Page
		if err := json.NewDecoder(r.Body).Decode(&page); err != nil || r.Header.Get("Idempotency-Key") != page.ID {
			t.Errorf("%v %+v %v", r.Header, page, err)
		}
		pages <- page
	}))
	defer hook.Close()
	s := serveFor(t, dataDir(t), "--listen", "127.0.0.1:0", "--webhook", hook.URL+"/owners?key=secret", "--webhook", "payments=https://127.0.0.1:1/")
	openPlan(t, dial(t, s.url), "default", "p1")
	s.ask(t, "default", "plan", "cancel", "p1", "--reason", "sold out", "--wait").wants(t, "plan cancel --wait", exitLook)
	select {
	case page := <-pages:
		if page.Plan != "p1" || page.Owner != "operator1" || page.Kind != ledger.PageQuarantined || page.Tenant != "default" {
			t.Errorf("%+v", page)
		}
	case <-time.After(20 * time.Second):
		t.Error("nobody is paged")
	}
	s.end(t).wants(t, "serve", exitGood)
}

func TestServeRefusesAWebhookThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		given []string
		want  string
	}{
		{[]string{"http://pager.example.com/"}, "in the clear"},
		{[]string{"payments=ftp://pager.example.com/"}, "--webhook for payments cannot be used"},
		{[]string{"pager.example.com"}, "no URL"},
		{[]string{"https://pager.example.com/?a=b", "https://pager.example.com/2"}, "for default is given twice"},
		{[]string{"x=https://pager.example.com/", "x=https://pager.example.com/2"}, "for x is given twice"},
	} {
		args := []string{"serve", "--data", dataDir(t), "--listen", "127.0.0.1:0"}
		for _, webhook := range c.given {
			args = append(args, "--webhook", webhook)
		}
		finished(t, sagenbaum(t, args...)).wants(t, c.given[0], exitUsage, c.want, "next: ")
	}
}

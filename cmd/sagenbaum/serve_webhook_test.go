package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

func TestServePagesTheWebhookOfItsCommandLine(t *testing.T) {
	t.Parallel()
	pages := make(chan api.Page, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var page api.Page
		if err := json.NewDecoder(r.Body).Decode(&page); err != nil || r.Header.Get("Idempotency-Key") != page.ID {
			t.Errorf("%v %+v %v", r.Header, page, err)
		}
		pages <- page
	}))
	defer hook.Close()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--webhook", hook.URL+"/owners?key=secret", "--webhook",
		"payments=https://127.0.0.1:1/")
	cmdtest.OpenPlan(t, cmdtest.Dial(t, s.URL), "default", "p1")
	s.Ask(t, "default", "plan", "cancel", "p1", "--reason", "sold out", "--wait").Wants(t, "plan cancel --wait",
		cli.ExitLook)
	select {
	case page := <-pages:
		if page.Plan != "p1" || page.Owner != "operator1" || page.Kind != api.PageQuarantined ||
			page.Tenant != "default" {
			t.Errorf("%+v", page)
		}
	case <-time.After(testenv.Patience):
		t.Error("nobody is paged")
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

func TestServeRefusesAWebhookThatCannotBeUsed(t *testing.T) {
	t.Parallel()
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
		args := []string{"serve", "--data", cmdtest.DataDir(t), "--listen", "127.0.0.1:0"}
		for _, webhook := range c.given {
			args = append(args, "--webhook", webhook)
		}
		cmdtest.Run(t, args...).Wants(t, c.given[0], cli.ExitUsage, c.want, "next: ")
	}
}

// A webhook hangs, its server is killed, the next one calls again: under the same id,
// signed with the same secret, of which the first start has made a file.
func TestAPageOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	type call struct {
		page          api.Page
		id, signature string
		genuine       bool
	}
	calls := make(chan call, 100)
	dir := cmdtest.DataDir(t)
	hanging := make(chan struct{}) // closed: calls are answered
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		c := call{id: r.Header.Get("webhook-id"), signature: r.Header.Get("webhook-signature")}
		if err != nil || json.Unmarshal(body, &c.page) != nil {
			t.Errorf("%v: %s", err, body)
		}
		if secret, err := os.ReadFile(filepath.Join(dir, "webhook.secret")); err == nil {
			key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(string(secret)), "whsec_"))
			mac := hmac.New(sha256.New, key)
			fmt.Fprintf(mac, "%s.%s.%s", c.id, r.Header.Get("webhook-timestamp"), body)
			c.genuine = err == nil && c.signature == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
		}
		calls <- c
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
	}))
	defer hook.Close()
	args := []string{"--listen", "127.0.0.1:0", "--webhook", hook.URL, "--stuck-after", "1ms"}
	s := cmdtest.ServeFor(t, dir, args...)
	cmdtest.Trouble(t, s, "default")
	gather := func() map[string]call {
		t.Helper()
		byKind := map[string]call{}
		for len(byKind) < 2 {
			select {
			case c := <-calls:
				if !c.genuine {
					t.Errorf("%+v is not signed with the secret", c)
				}
				byKind[c.page.Kind] = c
			case <-time.After(testenv.Patience):
				t.Fatalf("only %v are called", byKind)
			}
		}
		return byKind
	}
	first := gather()
	s.Command.Process.Kill()
	s.Command.Wait()
	close(hanging)
	again := cmdtest.ServeFor(t, dir, args...)
	second := gather()
	for _, kind := range []string{api.PageQuarantined, api.PageStuckWorker} {
		if a, b := first[kind], second[kind]; a.id == "" || a.id != b.id || a.page.Plan != b.page.Plan ||
			a.page.ID != b.page.ID {
			t.Errorf("%s: %+v, and after kill -9 %+v", kind, a, b)
		}
	}
	if stuck := second[api.PageStuckWorker].page; stuck.Plan != "lonely" ||
		!strings.Contains(stuck.Reason, "no worker serves room.free") || stuck.Hook != api.PageOperators {
		t.Errorf("%+v", stuck)
	}
	cmdtest.Eventually(t, "the record", func() (string, bool) {
		r := again.Ask(t, "default", "status")
		return r.Stdout, !strings.Contains(r.Stdout, "unpaged")
	})
	again.End(t).Wants(t, "serve", cli.ExitGood)
}

func TestServeRefusesASecretThatIsNone(t *testing.T) {
	t.Parallel()
	for text, mode := range map[string]os.FileMode{
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)): 0o644,
		"whsec_c2hvcnQ=": 0o600,
		"hello":          0o600,
		"# nothing":      0o600,
	} {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		r := cmdtest.Run(t, "serve", "--data", cmdtest.DataDir(t), "--listen", "127.0.0.1:0", "--webhook",
			"https://127.0.0.1:1/", "--webhook-secret", file)
		r.Wants(t, text, cli.ExitUsage, "next: ")
		if strings.Contains(r.Stderr, "whsec_c2hv") {
			t.Errorf("the secret is in the error: %s", r.Stderr)
		}
	}
}

package page

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// What is posted can be checked by whoever has the secret, whichever of two is in use,
// and a change of one byte, of the id or of the time is seen.
func TestWhatIsPostedIsSigned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old, now := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	seen := make(chan *http.Request, 1)
	body := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		text, err := io.ReadAll(request.Body)
		if err != nil {
			t.Error(err)
		}
		seen <- request
		body <- text
	}))
	defer server.Close()
	p := pagerOn(t, r, map[string]string{api.PageDefault: server.URL})
	p.Keys = map[string][][]byte{"": {old}, api.PageDefault: {now, old}, "payments": {old}}
	page := quarantinePage(1, "default")
	p.Add([]executor.Page{page})
	waitTaken(t, p, 1)
	request, text := <-seen, <-body
	id, at, signatures := request.Header.Get("webhook-id"), request.Header.Get("webhook-timestamp"),
		strings.Fields(request.Header.Get("webhook-signature"))
	if id != "1_0-ab" || request.Header.Get("Idempotency-Key") != page.ID || len(signatures) != 2 {
		t.Fatalf("%v", request.Header)
	}
	for i, key := range [][]byte{now, old} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at + "." + string(text)))
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); signatures[i] != want {
			t.Errorf("signature %d is %s, want %s", i, signatures[i], want)
		}
	}
	checkTheDocumentedReceiver(t, now, request.Header, text)
}

// TestAWebhookIsSignedWithItsOwnSecret, and a hook without a webhook with that of who gets it.
func TestAWebhookIsSignedWithItsOwnSecret(t *testing.T) {
	t.Parallel()
	shared, payments, rest := []byte("shared"), []byte("payments"), []byte("rest")
	for _, c := range []struct {
		keys map[string][][]byte
		hook string
		want []byte
	}{
		{map[string][][]byte{"": {shared}, "payments": {payments}}, "payments", payments},
		{map[string][][]byte{"": {shared}, "payments": {payments}}, "travel", shared},
		{map[string][][]byte{"default": {rest}, "payments": {payments}}, "travel", rest},
		{map[string][][]byte{"default": {rest}, "travel": {payments}}, "travel", rest},
		{map[string][][]byte{"": {shared}, "default": {rest}}, "payments", shared},
		{map[string][][]byte{"default": {rest}}, "payments", nil},
	} {
		p := &Pager{Config: Config{Webhooks: map[string]string{"default": "a", "payments": "b"}, Keys: c.keys}}
		got := p.keys(c.hook)
		if (len(got) == 0) != (c.want == nil) || len(got) > 0 && !bytes.Equal(got[0], c.want) {
			t.Errorf("%s with %q: %q, want %q", c.hook, c.keys, got, c.want)
		}
	}
}

// checkTheDocumentedReceiver runs the program of docs/guide/pages.md.
func checkTheDocumentedReceiver(t *testing.T, key []byte, header http.Header, body []byte) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("*** SKIPPED: python3 is not installed: the receiver of docs/guide/pages.md is NOT run ***")
		return
	}
	guide, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guide", "pages.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "```python\n")
	program, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/guide/pages.md has no program in Python")
	}
	program += "\nimport sys, json\nh, b = json.loads(sys.argv[1]), sys.stdin.buffer.read()\nprint(genuine(sys.argv[2], " +
		"h, b))\n"
	headers := map[string]string{}
	for _, name := range []string{headerWebhookID, headerWebhookTimestamp, headerWebhookSignature} {
		headers[name] = header.Get(name)
	}
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	for _, c := range []struct {
		what   string
		change func(h map[string]string, b []byte) []byte
		want   string
	}{
		{"as it was posted", func(_ map[string]string, b []byte) []byte { return b }, "True"},
		{"another body", func(_ map[string]string, b []byte) []byte { return append(b, ' ') }, "False"},
		{"another id", func(h map[string]string, b []byte) []byte { h[headerWebhookID] = "2_0-ab"; return b }, "False"},
		{"an old post", func(h map[string]string, b []byte) []byte {
			h[headerWebhookTimestamp] = "1000000000"
			return b
		}, "False"},
	} {
		changed := map[string]string{}
		for k, v := range headers {
			changed[k] = v
		}
		text := c.change(changed, bytes.Clone(body))
		encoded, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), python, "-c", program, string(encoded), secret)
		command.Stdin = bytes.NewReader(text)
		if out, err := command.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != c.want {
			t.Errorf("%s: the documented receiver says %s, %v; want %s", c.what, out, err, c.want)
		}
	}
}

func hostilePage() api.Page {
	return api.Page{
		ID: "7.0-ab", Kind: api.PageQuarantined, Hook: "default", Tenant: "shops", Plan: "p", Action: "3",
		Capability: "mail.send",
		Label:      "<!channel> *book* [trip](https://evil.example)", Owner: "travel & co", Agent: "coder",
		AtNs:   1_700_000_000e9,
		Reason: "```<https://evil.example|click>```\n" + strings.Repeat("é", 5000),
	}
}

// Texts of agents stay texts: no mention, link or emphasis in a chat comes from them,
// and no message is too long for its tool.
func TestChatMessagesShowTextsAsTexts(t *testing.T) {
	t.Parallel()
	slack := string(bodyOf(formatSlack, hostilePage()))
	for _, bad := range []string{"<!channel>", "<https", "``````", "\n```<"} {
		if strings.Contains(slack, bad) {
			t.Errorf("slack has %q in %s", bad, slack)
		}
	}
	if !strings.Contains(slack, "&lt;!channel&gt;") || !strings.Contains(slack, "travel &amp; co") ||
		!strings.Contains(slack, "sagenbaum quarantine show p id:3 --tenant shops") {
		t.Errorf("slack has %s", slack)
	}
	var message struct {
		Text   string
		Blocks []struct{ Text struct{ Text string } }
	}
	if err := json.Unmarshal([]byte(slack), &message); err != nil || message.Text == "" || len(message.Blocks) != 3 {
		t.Fatalf("%v: %s", err, slack)
	}
	for _, b := range message.Blocks {
		if n := len([]rune(b.Text.Text)); n > 3000 {
			t.Errorf("a block has %d characters; Slack takes 3000", n)
		}
	}
	teams := string(bodyOf(formatTeams, hostilePage()))
	if !strings.Contains(teams, `"application/vnd.microsoft.card.adaptive"`) || strings.Contains(teams, `"TextBlock"`) ||
		len(teams) > 28<<10 {
		t.Errorf("teams has %s", teams)
	}
	titles := map[string]string{}
	for _, kind := range []string{
		api.PageQuarantined, api.PageCommitWaits, api.PageActClaimed, api.PageWindowClosing,
		api.PageCascadeCut, api.PageStuckWorker, api.PageClockGuard,
	} {
		title, facts, command := chatFacts(api.Page{Kind: kind, Tenant: "default", Plan: "p", Reason: "r"})
		if title == kind || len(facts) == 0 || !strings.HasPrefix(command, "sagenbaum ") {
			t.Errorf("%s: %q %v %q", kind, title, facts, command)
		}
		if other := titles[title]; other != "" {
			t.Errorf("%s and %s have one title", kind, other)
		}
		titles[title] = kind
	}
}

func TestAFormatStandsBeforeTheScheme(t *testing.T) {
	t.Parallel()
	for webhook, want := range map[string][2]string{
		"https://hooks.example/x":         {formatPage, "https://hooks.example/x"},
		"slack+https://hooks.example/x":   {formatSlack, "https://hooks.example/x"},
		"teams+https://hooks.example/a+b": {formatTeams, "https://hooks.example/a+b"},
	} {
		if format, url := splitWebhook(webhook); format != want[0] || url != want[1] {
			t.Errorf("%s: %q %q", webhook, format, url)
		}
		if err := CheckWebhook("x", webhook); err != nil {
			t.Error(err)
		}
	}
	if CheckWebhook("x", "slack+http://hooks.example/x") == nil ||
		CheckWebhook("x", "irc+https://hooks.example/x") == nil {
		t.Error("a webhook that cannot be used passes")
	}
}

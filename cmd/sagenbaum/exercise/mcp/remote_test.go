//go:build exercise

package mcp

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// list is an MCP server of items that is somewhere else.
type list struct {
	mu    sync.Mutex
	items []string
}

func (l *list) change(do func([]string, string) []string) sdk.ToolHandlerFor[item, listed] {
	return func(_ context.Context, _ *sdk.CallToolRequest, in item) (*sdk.CallToolResult, listed, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.items = do(l.items, in.Text)
		return nil, listed{slices.Clone(l.items)}, nil
	}
}

type item struct {
	Text string `json:"text"`
}

type listed struct {
	Items []string `json:"items"`
}

func (l *list) handler(secret string) http.Handler {
	server := sdk.NewServer(&sdk.Implementation{Name: "list-server", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "put"}, l.change(func(all []string, text string) []string {
		return append(all, text)
	}))
	sdk.AddTool(server, &sdk.Tool{Name: "drop"}, l.change(func(all []string, text string) []string {
		return slices.DeleteFunc(all, func(s string) bool { return s == text })
	}))
	sdk.AddTool(server, &sdk.Tool{Name: "show"}, l.change(func(all []string, _ string) []string { return all }))
	next := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != secret {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

const listPack = `
apiVersion: sagenbaum/v1
kind: MCPPack
server: list-server
tools:
  show: {class: effectless}
  put:
    class: compensable
    fidelity: exact
    probe: {tool: show, with: {text: ""}}
    done: '!(input.text in probe.items)'
    undo: [{tool: drop, with: {text: =input.text}}]
`

// A server at a URL, over https: gateway and host are killed, and the host that is started again
// with the client's configuration undoes what was done there. The value of the header is nowhere.
func TestAHostUndoesWhatWasDoneAtAURL(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-of-the-list"
	l, state, scratch := new(list), t.TempDir(), t.TempDir()
	at := httptest.NewTLSServer(l.handler(secret))
	t.Cleanup(func() { at.CloseClientConnections(); at.Close() })
	trusted, pack := filepath.Join(scratch, "ca.pem"), filepath.Join(scratch, "pack.yaml")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: at.Certificate().Raw})
	for path, content := range map[string][]byte{trusted: certificate, pack: []byte(listPack)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := configuration(t, `{"mcpServers": {"list": {"command": "sagenbaum", "args": ["mcp", "--state", %q,
		"--pack", %q, "--url", %q, "--header", "X-Key=LIST_KEY"], "env": {"LIST_KEY": %q}}}}`, state, pack, at.URL,
		secret)
	s := cmdtest.ServeFor(t, t.TempDir())
	gateway := cmdtest.Sagenbaum(t, "mcp", "--server", s.URL, "--state", state, "--pack", pack, "--url", at.URL,
		"--header", "X-Key=LIST_KEY", "-v")
	var said strings.Builder
	gateway.Env = append(gateway.Environ(), "LIST_KEY="+secret, "SSL_CERT_FILE="+trusted)
	gateway.Stderr = &said
	client := direct(t, gateway)
	plan, _ := mcpCall(t, client, "put", map[string]any{"text": "a"}).Meta["sagenbaum/plan"].(string)
	mcpCall(t, client, "put", map[string]any{"text": "b"})
	if got := strings.Join(l.items, " "); got != "a b" {
		t.Errorf("there is %s", got)
	}
	recorded(t, s, plan, 2)
	again := elsewhere(t, s, client, gateway, file, "SSL_CERT_FILE="+trusted)
	again.Ask(t, "default", "plan", "cancel", plan, "--reason", "the client is gone", "--wait").Wants(t,
		"plan cancel", cli.ExitGood)
	if len(l.items) > 0 {
		t.Errorf("left %v", l.items)
	}
	show := again.Ask(t, "default", "plan", "show", plan, "-o", "json")
	ended := again.End(t)
	ended.Wants(t, "serve", cli.ExitGood)
	texts := map[string]string{"the gateway": said.String(), "the host": ended.Stderr, "the plan": show.Stdout}
	for _, dir := range []string{state, again.Dir} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var content []byte
				content, err = os.ReadFile(path)
				texts[path] = string(content)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	for name, text := range texts {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret", name)
		}
	}
}

// What is wrong with a server at a URL is said by the commands, and the doctor.
func TestTheCommandsOfMCPKnowServersAtAURL(t *testing.T) {
	t.Parallel()
	l := new(list)
	at := httptest.NewServer(l.handler(""))
	t.Cleanup(func() { at.CloseClientConnections(); at.Close() })
	check := cmdtest.Run(t, "mcp", "check", "--url", at.URL, "-o", "json")
	check.Wants(t, "mcp check", cli.ExitLook) // it has no contract
	var shown struct{ Tools []struct{ Tool string } }
	if err := json.Unmarshal([]byte(check.Stdout), &shown); err != nil || len(shown.Tools) != 3 {
		t.Errorf("%v: %s", err, check.Stdout)
	}
	cmdtest.Run(t, "contract", "init", "--from-mcp", "--url", at.URL).Wants(t, "contract init", cli.ExitGood)
	cmdtest.Run(t, "mcp", "--url", "http://example.com/mcp").Wants(t, "mcp --url", cli.ExitFailed, "this machine alone")
	found := diagnosis(t, cli.ExitLook, "--state", t.TempDir(), "--config",
		configuration(t, `{"mcpServers": {"list": {"url": %q}}}`, at.URL))
	if f := found["list gateway"]; f.Next != `"command": "sagenbaum", "args": ["mcp", "--url", "`+at.URL+`"]` {
		t.Errorf("%+v", f)
	}
	if f := found["list pack"]; f.Next != "sagenbaum contract init --from-mcp --url "+at.URL+", then --pack FILE" {
		t.Errorf("%+v", f)
	}
}

// A pack for a server that calls itself otherwise is not used: that is said, with both names, by the
// check and by the doctor.
func TestAPackForAnotherServerIsNamed(t *testing.T) {
	t.Parallel()
	l := new(list)
	at := httptest.NewServer(l.handler(""))
	t.Cleanup(func() { at.CloseClientConnections(); at.Close() })
	pack := filepath.Join(t.TempDir(), "pack.yaml")
	if err := os.WriteFile(pack, []byte("apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: other-server\ntools:\n"+
		"  look: {class: effectless}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const says = `there is a pack for server "other-server", which is not used: what is here calls itself "list-server"`
	check := cmdtest.Run(t, "mcp", "check", "--url", at.URL, "--pack", pack)
	check.Wants(t, "mcp check", cli.ExitLook)
	if !strings.Contains(check.Stdout, "warning: "+says) {
		t.Errorf("mcp check says %s", check.Stdout)
	}
	found := diagnosis(t, cli.ExitLook, "--state", t.TempDir(), "--url", at.URL, "--pack", pack)
	named := ""
	for name, f := range found {
		if strings.HasSuffix(name, " pack") {
			named += f.Text
		}
	}
	if !strings.Contains(named, says) {
		t.Errorf("the doctor says %+v", found)
	}
}

//go:build exercise

package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// asPost is the first argument that makes the test binary an MCP server: it sends letters, one a
// line of the file that follows, and the same letter twice if it is told to.
const asPost = "serve-post"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == asPost {
		if err := servePost(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	os.Exit(m.Run())
}

func servePost(file string) error {
	type letter struct {
		To string `json:"to"`
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "post", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "send_letter"}, func(_ context.Context, _ *sdk.CallToolRequest, l letter) (
		*sdk.CallToolResult, any, error) {
		out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, err
		}
		defer out.Close()
		_, err = fmt.Fprintln(out, l.To)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "sent"}}}, nil, err
	})
	type sent struct {
		To []string `json:"to"`
	}
	sdk.AddTool(s, &sdk.Tool{Name: "list_sent"}, func(context.Context, *sdk.CallToolRequest, struct{}) (
		*sdk.CallToolResult, sent, error) {
		return nil, sent{strings.Fields(lettersIn(file))}, nil
	})
	return s.Run(context.Background(), &sdk.StdioTransport{})
}

func lettersIn(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return "" // none was sent
	}
	return string(content)
}

// The gateway is killed at any moment after the model has its plan committed, in which a letter is
// staged. Each letter of a plan that was committed is sent, by a later gateway or the host, and once;
// none of the others is.
func TestWhatIsStagedIsSentOnceThoughItsGatewayIsKilled(t *testing.T) {
	t.Parallel()
	state, sent := t.TempDir(), filepath.Join(t.TempDir(), "sent")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pack := filepath.Join(t.TempDir(), "pack.yaml")
	if err := os.WriteFile(pack, []byte(`
apiVersion: sagenbaum/v1
kind: MCPPack
server: post
tools:
  list_sent: {class: effectless}
  send_letter: {class: irreversible, stage: commit, timeout: 3s, probe: {tool: list_sent}, done: input.to in probe.to}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := configuration(t, `{"mcpServers": {"post": {"command": "sagenbaum", "args": ["mcp", "--state", %q, "--pack", %q,
		"--server-name", "post", "--", %q, %q, %q]}}}`, state, pack, self, asPost, sent)
	s := cmdtest.ServeFor(t, t.TempDir())
	random := rand.New(rand.NewPCG(7, 7))
	plans := map[string]string{} // by letter
	const rounds = 8
	for i := range rounds {
		client, gateway := mcpClient(t, s, state, "--pack", pack, "--server-name", "post", "--", self, asPost, sent)
		to := fmt.Sprint("letter-", i)
		result := mcpCall(t, client, "send_letter", map[string]any{"to": to})
		plans[to], _ = result.Meta["sagenbaum/plan"].(string)
		if text := result.Content[0].(*sdk.TextContent).Text; !strings.Contains(text, "NOT made") || plans[to] == "" {
			t.Fatalf("the model is told %q under plan %q", text, plans[to])
		}
		called := make(chan struct{})
		go func() { // ends with the connection
			defer close(called)
			_, _ = client.CallTool(context.Background(), &sdk.CallToolParams{Name: "plan_commit"})
		}()
		<-time.After(time.Duration(random.IntN(30_000)) * time.Microsecond)
		if i == rounds-1 {
			elsewhereIs(t, s, client, gateway.Process, file, plans, sent)
		} else if err := gateway.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
		<-called
	}
}

// elsewhereIs kills the last gateway and the host, starts the host again with the configuration of
// the client, and holds what was sent against what was committed.
func elsewhereIs(t *testing.T, s *cmdtest.Served, client *sdk.ClientSession, gateway *os.Process, file string,
	plans map[string]string, sent string) {
	t.Helper()
	if err := gateway.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	s.Kill9(t)
	again := s.Again(t, "--mcp", file)
	committed := 0
	for to, plan := range plans {
		state := stateOf(t, again, plan)
		if state != "committed" {
			again.Ask(t, "default", "plan", "cancel", plan, "--reason", "its gateway was killed", "--wait").Wants(t,
				"plan cancel", cli.ExitGood)
			if n := strings.Count(lettersIn(sent), to+"\n"); n != 0 {
				t.Errorf("%s was %s, and %s was sent %d times", plan, state, to, n)
			}
			continue
		}
		committed++
		cmdtest.Eventually(t, "the letter is delivered", func() (string, bool) {
			now := stateOf(t, again, plan+"~0")
			return now, now == "delivered"
		})
		if n := strings.Count(lettersIn(sent), to+"\n"); n != 1 {
			t.Errorf("%s was committed, and %s was sent %d times", plan, to, n)
		}
	}
	t.Logf("%d of %d plans were committed before their gateway was killed", committed, len(plans))
	if committed == 0 {
		t.Error("none was committed: the kills prove nothing")
	}
}

func stateOf(t *testing.T, s *cmdtest.Served, plan string) string {
	t.Helper()
	r := s.Ask(t, "default", "plan", "show", plan, "-o", "json")
	var shown api.Plan
	if err := json.Unmarshal([]byte(r.Stdout), &shown); err != nil || shown.Plan != plan {
		t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	return shown.State
}

// Before anything is called a person sees which calls are staged, of which a lost answer goes to the
// owner, and what is missing; a worker says what it makes.
func TestCheckDoctorAndDraftTellOfStagedCalls(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	state, sent := t.TempDir(), filepath.Join(t.TempDir(), "sent")
	pack := filepath.Join(t.TempDir(), "pack.yaml")
	if err := os.WriteFile(pack, []byte(`
apiVersion: sagenbaum/v1
kind: MCPPack
server: post
tools:
  list_sent: {class: effectless}
  send_letter: {class: irreversible, stage: commit}
  send_parcel: {class: irreversible, stage: commit}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	command := []string{"--state", state, "--pack", pack, "--", self, asPost, sent}
	check := cmdtest.Run(t, append([]string{"mcp", "check"}, command...)...)
	check.Wants(t, "mcp check", cli.ExitGood)
	if !strings.Contains(check.Stdout, "irreversible, staged") {
		t.Errorf("mcp check says %s", check.Stdout)
	}
	s := cmdtest.ServeFor(t, t.TempDir())
	look := cmdtest.Run(t, append([]string{"mcp", "doctor", "--server", s.URL}, command...)...)
	look.Wants(t, "mcp doctor", cli.ExitLook)
	for _, part := range []string{"calls of send_letter are staged", "after a call of send_letter that has no answer",
		"calls are staged of tools that the server does not have: send_parcel", "nothing that is staged is made"} {
		if !strings.Contains(look.Stdout, part) {
			t.Errorf("mcp doctor does not say %q: %s", part, look.Stdout)
		}
	}
	draft := cmdtest.Run(t, "contract", "init", "--from-mcp", "--", self, asPost, sent)
	draft.Wants(t, "contract init", cli.ExitGood)
	if !strings.Contains(draft.Stdout, "stage: commit") || !strings.Contains(draft.Stdout, "draft: true") {
		t.Errorf("the draft is %s", draft.Stdout)
	}
}

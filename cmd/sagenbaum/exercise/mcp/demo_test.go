//go:build exercise

package mcp

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

func TestTheDemoOfMCPHolds(t *testing.T) {
	t.Parallel()
	command := filesServer(t, "")
	holds(t, cmdtest.Run(t, "demo", "mcp", "--with", strings.Join(command[:2], " ")), command[1])
}

// holds wants that the demo has played with a server, and that all that it has checked holds.
func holds(t *testing.T, r cmdtest.Result, server string) {
	t.Helper()
	r.Wants(t, "demo mcp", cli.ExitGood)
	for _, want := range []string{server + " DIR\n", "the last call is undone", "byte-identical",
		"all checks hold"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("the demo does not say %q:\n%s", want, r.Stdout)
		}
	}
}

// Without npx, and where it cannot fetch the server, the demo says so in a line and plays all the
// same; a server that its user has named is not replaced.
func TestTheDemoOfMCPNeedsNoNode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, npx, said string
	}{
		{"no npx", "", "(there is no npx)"},
		{"no network", "#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n", "(npm error code ENOTFOUND)"},
		{"no words", "#!/bin/sh\nexit 1\n", "(connection closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			programs := t.TempDir()
			if test.npx != "" {
				if err := os.WriteFile(filepath.Join(programs, "npx"), []byte(test.npx), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			demo := cmdtest.Sagenbaum(t, "demo", "mcp")
			demo.Env = append(demo.Env, "PATH="+programs)
			r := cmdtest.Finished(t, demo)
			holds(t, r, "demo-files")
			if first, _, _ := strings.Cut(r.Stdout, "\n"); !strings.Contains(first, test.said) {
				t.Errorf("it says %q first, want %q in it", first, test.said)
			}
		})
	}
	cmdtest.Run(t, "demo", "mcp", "--with", "/no/such/program").Wants(t, "demo mcp --with", cli.ExitFailed,
		"there is no /no/such/program")
}

// The demo's own server is one of the tools of npm's: each with the same schema, and the same
// calls leave the same files, so that the same contracts hold.
func TestTheServerOfTheDemoIsLikeTheOneOfNPM(t *testing.T) {
	t.Parallel()
	own, real := t.TempDir(), t.TempDir()
	ownClient := direct(t, cmdtest.Sagenbaum(t, "demo-files", own))
	realServer := filesServer(t, real)
	realClient := direct(t, exec.Command(realServer[0], realServer[1:]...))
	if a, b := ownClient.InitializeResult().ServerInfo.Name, realClient.InitializeResult().ServerInfo.Name; a != b {
		t.Errorf("it is called %s, want %s", a, b)
	}
	schemas := schemasOf(t, realClient)
	for name, schema := range schemasOf(t, ownClient) {
		if schema != schemas[name] {
			t.Errorf("%s has\n%s\nwant\n%s", name, schema, schemas[name])
		}
	}
	for _, c := range []struct {
		tool string
		with map[string]any
	}{
		{"write_file", map[string]any{"path": "@/a", "content": "one\ntwo\n"}},
		{"write_file", map[string]any{"path": "@/a", "content": "one\ntwo\nthree\n"}},
		{"edit_file", map[string]any{"path": "@/a", "edits": []map[string]any{{"oldText": "two", "newText": "2"},
			{"oldText": "one", "newText": "1"}}}},
		{"edit_file", map[string]any{"path": "@/a", "dryRun": true, "edits": []map[string]any{
			{"oldText": "2", "newText": "two"}}}},
		{"edit_file", map[string]any{"path": "@/a", "edits": []map[string]any{{"oldText": "none", "newText": "2"}}}},
		{"edit_file", map[string]any{"path": "@/a"}},
		{"create_directory", map[string]any{"path": "@/b/c/d"}},
		{"create_directory", map[string]any{"path": "@/b/c"}},
		{"move_file", map[string]any{"source": "@/a", "destination": "@/b/a"}},
		{"write_file", map[string]any{"path": "@/a", "content": "again"}},
		{"move_file", map[string]any{"source": "@/a", "destination": "@/b/a"}},
		{"write_file", map[string]any{"path": "@/../outside", "content": "x"}},
		{"write_file", map[string]any{"path": "@/none/x", "content": "x"}},
		{"read_text_file", map[string]any{"path": "@/b/a"}},
		{"list_allowed_directories", map[string]any{}},
	} {
		a, failed := in(t, ownClient, own, c.tool, c.with)
		b, wanted := in(t, realClient, real, c.tool, c.with)
		if failed != wanted {
			t.Errorf("%s %v fails: %v (%s), want %v (%s)", c.tool, c.with, failed, a, wanted, b)
		}
		if !failed && c.tool != "edit_file" && a != b {
			t.Errorf("%s %v says %q, want %q", c.tool, c.with, a, b)
		}
		if a, b := untimed(t, own), untimed(t, real); a != b {
			t.Errorf("after %s %v there is\n%s\nwant\n%s", c.tool, c.with, a, b)
		}
	}
}

func direct(t *testing.T, command *exec.Cmd) *sdk.ClientSession {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// schemasOf are the schemas of the tools of a server, and what they say of reading.
func schemasOf(t *testing.T, c *sdk.ClientSession) map[string]string {
	t.Helper()
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]string{}
	for _, tool := range list.Tools {
		input, output := tool.InputSchema.(map[string]any), tool.OutputSchema.(map[string]any)
		delete(input, "$schema")
		delete(output, "$schema")
		text, err := json.Marshal([]any{input, output, tool.Annotations.ReadOnlyHint})
		if err != nil {
			t.Fatal(err)
		}
		schemas[tool.Name] = string(text)
	}
	return schemas
}

// in calls a tool of a server on a folder, which is @ in the arguments and the answer.
func in(t *testing.T, c *sdk.ClientSession, dir, tool string, with map[string]any) (said string, failed bool) {
	t.Helper()
	text, err := json.Marshal(with)
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool,
		Arguments: json.RawMessage(strings.ReplaceAll(string(text), "@", dir))})
	if err != nil {
		return err.Error(), true
	}
	said = result.Content[0].(*sdk.TextContent).Text
	return strings.ReplaceAll(said, dir, "@"), result.IsError
}

// untimed is every file of a folder, with its bytes and mode.
func untimed(t *testing.T, dir string) (tree string) {
	t.Helper()
	for _, line := range strings.SplitAfter(treeOf(t, dir), "\n") {
		words := strings.Split(line, " ")
		if last := len(words) - 1; last > 0 && strings.HasSuffix(line, "Z\n") {
			words[last] = "\n"
		}
		tree += strings.ReplaceAll(strings.Join(words, " "), dir, "@")
	}
	return tree
}

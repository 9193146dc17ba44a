package mcp_test

//lint:file-ignore SA1019 the protocol has deprecated roots, logs and sampling; who has them keeps them

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// asServer makes the test binary an MCP server on the file that it names: notes, one per line. Its
// tools fail in every way that a server can.
const asServer = "SAGENBAUM_TEST_AS_MCP_SERVER"

func TestMain(m *testing.M) {
	if file := os.Getenv(asServer); file != "" {
		if there(file + brokenSuffix) {
			fmt.Fprintln(os.Stderr, "notes are broken")
			os.Exit(4)
		}
		fmt.Fprintln(os.Stderr, "notes begin")
		if err := serveNotes(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Fprintln(os.Stderr, "notes end")
		return
	}
	if file := os.Getenv(asHTTPServer); file != "" {
		if err := serveNotesAt(file, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(6)
		}
		return
	}
	if file := os.Getenv(asRawServer); file != "" {
		if err := serveRaw(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	if as := os.Getenv(asClient); as != "" {
		if err := beClient(as, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Parallel(6) // they wait until calls in doubt are settled, each with servers of its own
	os.Exit(m.Run())
}

// With a file of these names beside its notes a server does not start, ends under one peek, or speaks
// no version with sessions, or no other.
const (
	brokenSuffix      = ".broken"
	onceSuffix        = ".once"
	sessionlessSuffix = ".sessionless"
	sessionsSuffix    = ".sessions"
)

// tooLarge is the size of an answer of shout, and of peek with "large".
const tooLarge = 17 << 20

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// notesPack has a contract for some of the tools.
const notesPack = `
apiVersion: sagenbaum/v1
kind: MCPPack
server: notes-server
tools:
  peek: {class: effectless}
`

func notes(t testing.TB) mcp.Pack {
	t.Helper()
	tool := `
    class: compensable
    fidelity: exact
    timeout: 2s
    probe: {tool: peek}
    done: '!(input.text in probe.notes)'
    undo: [{tool: remove, with: {text: =input.text}}]
`
	text := notesPack
	for _, name := range []string{"hang", "die", "fail", "shy", "slow", "ask"} {
		text += "  " + name + ":" + tool
	}
	text += "  lazy:\n    class: compensable\n    fidelity: exact\n    timeout: 2s\n" +
		"    undo: [{tool: remove, with: {text: =output.result.id}}]\n"
	text += "  long:\n    class: compensable\n    fidelity: exact\n" +
		"    undo: [{tool: remove, with: {text: =output.result.id}}]\n"
	text += "  shout:" + strings.ReplaceAll(tool, "2s", "2m") +
		"    refuse: [{when: 'input.text == \"quiet\"', message: be quiet}, {when: 'input.text == \"\"'}]\n"
	text += "  add:" + tool + "    key: key\n    effectless_when: input.dry == true\n" +
		"    not_taken: 'result == \"no\"'\n    stop: [{when: 'input.text in probe.locked', message: it is locked}]\n"
	pack, err := mcp.ParsePack("notes.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return pack
}

func (w *world) notes(t testing.TB) (config mcp.ServerConfig, file string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "notes")
	return mcp.ServerConfig{Name: "notes", Command: self, State: t.TempDir(), Packs: []mcp.Pack{notes(t)},
		Env: map[string]string{asServer: file}}, file
}

type note struct {
	Text string `json:"text"`
	Key  string `json:"key,omitempty"`
	Dry  bool   `json:"dry,omitempty"`
}

func lines(file string) []string {
	content, err := os.ReadFile(file)
	if err != nil || len(content) == 0 {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
}

func appendNote(file string, n note) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(out, n.Text)
	}
	return errors.Join(err, out.Close())
}

func removeNote(file, text string) error {
	var left string
	for _, line := range lines(file) {
		if line != text {
			left += line + "\n"
		}
	}
	return os.WriteFile(file, []byte(left), 0o644)
}

// notesServer is the server of one process.
type notesServer struct {
	*sdk.Server
	file string
}

// does is what a tool of it does.
type does func(context.Context, *sdk.CallToolRequest, note) (*sdk.CallToolResult, error)

const notesSchema = `{"type":"object","properties":{"text":{"type":"string"}},"x-kept":{"a":10.10}}`

func text(said string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: said}}}
}

func failed(said string) *sdk.CallToolResult {
	result := text(said)
	result.IsError = true
	return result
}

func (s *notesServer) tool(name string, hint bool, do does) {
	tool := &sdk.Tool{Name: name, InputSchema: json.RawMessage(notesSchema), Description: "the tool " + name,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: hint}}
	if name == "send" {
		tool.OutputSchema = json.RawMessage(`{"type":"object","required":["id"]}`)
	}
	s.AddTool(tool,
		func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var n note
			if len(req.Params.Arguments) > 0 {
				if err := json.Unmarshal(req.Params.Arguments, &n); err != nil {
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
				}
			}
			return do(ctx, req, n)
		})
}

func serveNotes(file string) error {
	return newNotes(file).Run(context.Background(), &sdk.StdioTransport{})
}

func newNotes(file string) *sdk.Server {
	options := &sdk.ServerOptions{Instructions: "take notes"}
	switch {
	case there(file + sessionlessSuffix):
		options.SupportedProtocolVersions = []string{"2026-07-28"}
	case there(file + sessionsSuffix):
		options.SupportedProtocolVersions = []string{"2025-11-25"}
	}
	var wanted atomic.Int32
	options.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error {
		wanted.Add(1)
		return nil
	}
	options.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error {
		wanted.Store(0)
		return nil
	}
	s := &notesServer{sdk.NewServer(&sdk.Implementation{Name: "notes-server", Version: "1"}, options), file}
	s.good()
	s.bad()
	s.talkative()
	s.AddResource(&sdk.Resource{URI: "note://all", Name: "all"},
		func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "note://all", Text: "all notes"}}}, nil
		})
	s.tool("touch", true, func(ctx context.Context, _ *sdk.CallToolRequest, _ note) (*sdk.CallToolResult, error) {
		if wanted.Load() == 0 {
			return text("no one wants to know"), nil
		}
		return text("touched"), s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: "note://all"})
	})
	s.AddPrompt(&sdk.Prompt{Name: "summarise"},
		func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Description: "a summary"}, nil
		})
	return s.Server
}

func (s *notesServer) good() {
	s.tool("add", false, func(_ context.Context, req *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		switch {
		case n.Text == "refused":
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "not that"}
		case n.Text == "no":
			return failed("no"), nil
		case n.Dry:
			return text("would add"), nil
		}
		result := text("added " + string(req.Params.Arguments))
		result.StructuredContent = json.RawMessage(
			`{"amount":10.10,"big":123456789012345678901234567890,"key":"` + n.Key + `"}`)
		return result, appendNote(s.file, n)
	})
	s.tool("mint", false, func(_ context.Context, req *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		var said struct {
			Answer         json.RawMessage
			Written, Spoke string // an answer as it is written, in a text for those that refuse it
		}
		if err := json.Unmarshal(req.Params.Arguments, &said); err != nil {
			return nil, err
		}
		switch {
		case said.Spoke != "":
			return text(said.Spoke), appendNote(s.file, n)
		case said.Written != "":
			said.Answer = json.RawMessage(said.Written)
		}
		return &sdk.CallToolResult{StructuredContent: said.Answer}, appendNote(s.file, n)
	})
	s.tool("shout", false, func(_ context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		return text(strings.Repeat("x", tooLarge)), appendNote(s.file, n)
	})
	s.tool("remove", false, func(_ context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		return text("removed"), removeNote(s.file, n.Text)
	})
	s.tool("peek", true, func(_ context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		if n.Text == "wrong" {
			return nil, &jsonrpc.Error{Code: -32050, Message: "it is wrong", Data: json.RawMessage(`{"amount":10.10}`)}
		}
		if n.Text == "large" {
			return text(strings.Repeat("x", tooLarge)), nil
		}
		if os.Remove(s.file+onceSuffix) == nil {
			os.Exit(5)
		}
		raw, err := json.Marshal(map[string]any{"notes": lines(s.file), "locked": []string{"locked"}})
		result := text(string(raw))
		result.StructuredContent = json.RawMessage(raw)
		return result, err
	})
	s.tool("tell", true, func(context.Context, *sdk.CallToolRequest, note) (*sdk.CallToolResult, error) {
		told := []note{}
		for _, line := range lines(s.file) {
			told = append(told, note{Text: line})
		}
		raw, err := json.Marshal(map[string]any{"notes": told, "at": rand.Text()})
		return text(string(raw)), err
	})
	s.tool("look", true, func(context.Context, *sdk.CallToolRequest, note) (*sdk.CallToolResult, error) {
		return text("looked"), nil
	})
	s.tool("send", false, func(_ context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		return text("sent"), appendNote(s.file, n)
	})
}

func (s *notesServer) bad() {
	s.tool("hang", false, func(ctx context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		err := appendNote(s.file, n)
		<-ctx.Done()
		return nil, errors.Join(err, ctx.Err())
	})
	s.tool("lazy", false, func(ctx context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		err := appendNote(s.file, n)
		for n.Text == "soon" && !slices.Contains(lines(s.file), "go") && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		if n.Text != "soon" {
			<-ctx.Done() // it is told that no one waits, and has done it all the same
		}
		result := text("added")
		result.IsError = n.Text == "error"
		result.StructuredContent = map[string]any{"id": n.Text}
		return result, err
	})
	// It answers with something long, and without what its undo reads where it is told to.
	s.tool("long", false, func(_ context.Context, req *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		var with struct{ Bytes int }
		err := errors.Join(json.Unmarshal(req.Params.Arguments, &with), appendNote(s.file, n))
		answer := map[string]any{"pad": strings.Repeat("y", with.Bytes)}
		if n.Text != "none" {
			answer["id"] = n.Text
		}
		if n.Text == "itself" {
			answer["id"] = n.Text + strings.Repeat("y", with.Bytes)
		}
		result := text("added")
		result.StructuredContent = answer
		return result, err
	})
	s.tool("die", false, func(_ context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		_ = appendNote(s.file, n)
		os.Exit(3)
		return nil, nil
	})
	s.tool("fail", false, func(_ context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		n.Text = strings.TrimSpace(n.Text + " " + n.Key)
		return failed("failed half way"), appendNote(s.file, n)
	})
}

func (s *notesServer) talkative() {
	s.tool("slow", false, func(ctx context.Context, req *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		for i := range map[bool]int{false: 3, true: 100}[n.Text == "many"] {
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: float64(i), Message: n.Text})
		}
		return text("done"), appendNote(s.file, n)
	})
	for name, does := range map[string]func(place string) error{
		"place":   func(place string) error { return appendNote(s.file, note{Text: place}) },
		"unplace": func(place string) error { return removeNote(s.file, place) },
	} {
		s.tool(name, false, func(_ context.Context, req *sdk.CallToolRequest, _ note) (*sdk.CallToolResult, error) {
			answer, ok := req.Params.InputResponses["where"].(*sdk.ListRootsResult)
			if !ok {
				return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"where": &sdk.ListRootsParams{}}}, nil
			}
			if len(answer.Roots) != 1 {
				return failed(fmt.Sprintf("there are %d roots", len(answer.Roots))), nil
			}
			return text("done"), does(answer.Roots[0].URI)
		})
	}
	s.tool("ask", false, func(_ context.Context, req *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		answer, ok := req.Params.InputResponses["sure"].(*sdk.ElicitResult)
		if !ok {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"sure": &sdk.ElicitParams{
				Message: "sure about " + n.Text + "?", RequestedSchema: map[string]any{"type": "object",
					"properties": map[string]any{}}}}}, nil
		}
		return text(answer.Action), appendNote(s.file, n)
	})
	s.tool("mutter", true, func(ctx context.Context, req *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		return text("said"), req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "error", Data: n.Text})
	})
	s.tool("linger", true, func(ctx context.Context, req *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		time.AfterFunc(50*time.Millisecond, func() {
			_ = req.Session.Log(context.WithoutCancel(ctx), &sdk.LoggingMessageParams{Level: "error", Data: n.Text})
		})
		return text("said"), nil
	})
	// It asks and says something in the middle of a call, as a server can in a session.
	s.tool("interrupt", true, func(ctx context.Context, req *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
		err := req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "error", Data: n.Text})
		if err != nil {
			return nil, err
		}
		answer, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "sure about " + n.Text + "?",
			RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}})
		if err != nil {
			return nil, err
		}
		return text(answer.Action), nil
	})
	s.tool("think", true, func(ctx context.Context, req *sdk.CallToolRequest, _ note) (*sdk.CallToolResult, error) {
		answer, err := req.Session.CreateMessage(ctx, &sdk.CreateMessageParams{MaxTokens: 1})
		if err != nil {
			return failed(err.Error()), nil
		}
		return text(answer.Model), nil
	})
	s.tool("grow", true, func(context.Context, *sdk.CallToolRequest, note) (*sdk.CallToolResult, error) {
		s.tool("shy", false, func(_ context.Context, _ *sdk.CallToolRequest, n note) (*sdk.CallToolResult, error) {
			return text("grown"), appendNote(s.file, n)
		})
		return text("grew"), nil
	})
}

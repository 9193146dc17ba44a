package mcp_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/ledger/testenv/served"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The servers from npm that the packs are tested against, in these versions.
const (
	filesystemPackage = "@modelcontextprotocol/server-filesystem"
	memoryPackage     = "@modelcontextprotocol/server-memory"
	thinkingPackage   = "@modelcontextprotocol/server-sequential-thinking"
	everythingPackage = "@modelcontextprotocol/server-everything"
	packageVersion    = "2026.8.31"
)

// script is the program of a server from npm.
func script(t testing.TB, name string) string {
	t.Helper()
	packages := []string{filesystemPackage + "@" + packageVersion, memoryPackage + "@" + packageVersion}
	if !slices.Contains(packages, name+"@"+packageVersion) { // the others have many dependencies
		packages = []string{name + "@" + packageVersion}
	}
	dir := testenv.NPM(t, packages...)
	return filepath.Join(dir, "node_modules", name, "dist", "index.js")
}

// world is a server with an executor.
type world struct {
	t    testing.TB
	conn *nats.Conn
	url  string

	durable string // id of the server
}

func newWorld(t testing.TB) *world {
	t.Helper()
	server, conn := served.NATS(t)
	h, err := host.New(host.Config{Conn: conn, Tenants: []string{"default"}, Dir: t.TempDir(),
		DurableServer: server.DurableID()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	h.Await(ctx) // until then no holder says what it knows, and newer pairs are refused
	return &world{t, conn, server.URL(), server.DurableID()}
}

// state waits until a plan has a state, and returns the last one that it had.
func (w *world) state(plan, want string) (state string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Patience)
	defer cancel()
	for ctx.Err() == nil && state != want {
		body, err := json.Marshal(api.OutcomeQuery{Plan: plan, WaitMs: 100})
		if err != nil {
			w.t.Fatal(err)
		}
		reply, err := w.conn.RequestWithContext(ctx, api.QuerySubject("default", "plan.outcome"), body)
		if err != nil {
			w.t.Fatal(err)
		}
		var answer api.OutcomeAnswer
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			w.t.Fatal(err)
		}
		state = answer.State
	}
	return state
}

// operates appends a record of operator ann.
func (w *world) operates(record *pb.Record) {
	w.t.Helper()
	w.appends(ledger.Source{Tenant: "default", Class: ledger.ClassOperator, Name: "ann"}, record)
}

func (w *world) appends(source ledger.Source, record *pb.Record) {
	w.t.Helper()
	store, err := jetstream.Open(w.t.Context(), jetstream.Config{Conn: w.conn, Tenant: "default",
		DurableServer: w.durable})
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := ledger.EncodeCommit([]*pb.Record{record})
	if err == nil {
		_, err = store.Append(w.t.Context(), ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(),
			Data: data})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// undoes has an operator undo an action and what came after it, or all of a plan, and waits until
// that is done.
func (w *world) undoes(plan, action string) {
	w.t.Helper()
	w.operates(&pb.Record{Plan: plan, Kind: &pb.Record_CompensationRequested{
		CompensationRequested: &pb.CompensationRequested{Reason: "wrong", Actor: "ann", FromAction: action}}})
	if action == "" {
		if state := w.state(plan, "compensated"); state != "compensated" {
			w.t.Fatal(state)
		}
		return
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Patience)
	defer cancel()
	for answer := (api.OutcomeAnswer{}); len(answer.Undone) == 0; {
		body, err := json.Marshal(api.OutcomeQuery{Plan: plan, WaitMs: 100})
		if err != nil {
			w.t.Fatal(err)
		}
		reply, err := w.conn.RequestWithContext(ctx, api.QuerySubject("default", "plan.outcome"), body)
		if err == nil {
			err = json.Unmarshal(reply.Data, &answer)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// client is an MCP client that talks to a gateway.
type client struct {
	t       testing.TB
	gateway *mcp.Gateway
	session *sdk.ClientSession
	leave   func() // ends the connection; the gateway ends with the test
	end     error  // of Serve, once the client has left
}

// files is the configuration of the filesystem server on a folder.
func (w *world) files(dir string) mcp.ServerConfig {
	return mcp.ServerConfig{Name: "filesystem", Command: "node",
		Args: []string{script(w.t, filesystemPackage), dir}, State: w.t.TempDir()}
}

// memory is the configuration of the memory server on a file.
func (w *world) memory(file string) mcp.ServerConfig {
	return mcp.ServerConfig{Name: "memory", Command: "node",
		Args: []string{script(w.t, memoryPackage)}, State: w.t.TempDir(),
		Env: map[string]string{"MEMORY_FILE_PATH": file}}
}

func (w *world) server(config mcp.ServerConfig) *mcp.Server {
	w.t.Helper()
	config.Errors, config.Settle = w.t.Output(), 2*time.Second
	s, err := mcp.NewServer(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// gateway starts a gateway and connects a client.
func (w *world) gateway(config mcp.Config, options *sdk.ClientOptions, servers ...mcp.ServerConfig) *client {
	w.t.Helper()
	config.Conn, config.Tenant, config.Agent = w.conn, "default", cmp.Or(config.Agent, "mcp")
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(w.t.Output(), nil))
	}
	for _, s := range servers {
		config.Servers = append(config.Servers, w.server(s))
	}
	g, err := mcp.New(w.t.Context(), config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := g.Close(); err != nil {
			w.t.Log("closed:", err)
		}
	})
	here, there := sdk.NewInMemoryTransports()
	served := make(chan error, 1)
	go func() { served <- g.Serve(context.Background(), there) }()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(
		w.t.Context(), here, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{t: w.t, gateway: g, session: session}
	c.leave = sync.OnceFunc(func() {
		_ = session.Close()
		if c.end = <-served; c.end != nil {
			w.t.Log("served:", c.end)
		}
	})
	w.t.Cleanup(c.leave)
	return c
}

// call calls a tool, with metadata.
func (c *client) call(tool string, arguments map[string]any, meta ...any) *sdk.CallToolResult {
	c.t.Helper()
	params := &sdk.CallToolParams{Name: tool, Arguments: arguments, Meta: sdk.Meta{}}
	for i := 0; i+1 < len(meta); i += 2 {
		params.Meta[meta[i].(string)] = meta[i+1]
	}
	result, err := c.session.CallTool(c.t.Context(), params)
	if err != nil {
		c.t.Fatalf("%s %v: %v", tool, arguments, err)
	}
	return result
}

// does is call for a tool that must not fail.
func (c *client) does(tool string, arguments map[string]any) string {
	c.t.Helper()
	result := c.call(tool, arguments)
	if result.IsError {
		c.t.Fatalf("%s %v: %s", tool, arguments, said(result))
	}
	return said(result)
}

func said(result *sdk.CallToolResult) string {
	var texts []string
	for _, content := range result.Content {
		if t, ok := content.(*sdk.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// report is what the tools of the gateway answer.
type report struct {
	Plan, State, Message string
	Undone               []struct{ Action, Tool, State, How string }
	Stands               []struct{ Action, Tool, How string }
	Can                  []struct{ Action, Tool, How string } `json:"can_be_undone"`
}

func (c *client) reports(tool string, arguments map[string]any) report {
	c.t.Helper()
	var r report
	if err := json.Unmarshal([]byte(c.does(tool, arguments)), &r); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// picture is every file and folder of a tree: bytes, mode and time.
func picture(t testing.TB, root string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		line := fmt.Sprintf("%s %s", info.Mode(), info.ModTime().UTC().Format(time.RFC3339Nano))
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d bytes %q", len(content), content[:min(len(content), 40)])
			line += fmt.Sprintf(" %x", sum(content))
		}
		tree[name] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// differ says in what two pictures differ.
func differ(before, after map[string]string) string {
	var out bytes.Buffer
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before[name] != after[name] {
			fmt.Fprintf(&out, "%s\n  before %s\n  after  %s\n", name, before[name], after[name])
		}
	}
	return out.String()
}

// planOf is the plan that a call belongs to, as its result says.
func planOf(r *sdk.CallToolResult) string {
	plan, _ := r.Meta["sagenbaum/plan"].(string)
	return plan
}

// graph is what the memory server has, each list sorted: an undo of a deletion appends.
type graph struct {
	Entities []struct {
		Name, EntityType string
		Observations     []string
	}
	Relations []struct{ From, To, RelationType string }
}

func (c *client) graph() string {
	c.t.Helper()
	var g graph
	if err := json.Unmarshal([]byte(c.does("read_graph", map[string]any{})), &g); err != nil {
		c.t.Fatal(err)
	}
	var lines []string
	for _, e := range g.Entities {
		slices.Sort(e.Observations)
		lines = append(lines, fmt.Sprintf("entity %q %q %q", e.Name, e.EntityType, e.Observations))
	}
	for _, r := range g.Relations {
		lines = append(lines, fmt.Sprintf("relation %q", r))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func read(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// filesOnly leaves the times of folders out.
func filesOnly(tree map[string]string) map[string]string {
	for name, line := range tree {
		if strings.HasPrefix(line, "d") {
			tree[name] = strings.Fields(line)[0]
		}
	}
	return tree
}

// serves serves HTTP until the test ends.
func serves(t testing.TB, handler http.Handler) *httptest.Server {
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections() // a client that is still there listens
		server.Close()
	})
	return server
}

// connects is a client over HTTP until the test ends.
func connects(t testing.TB, address string, options *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	return connectsBy(t, options, &sdk.StreamableClientTransport{Endpoint: address}, nil)
}

func connectsBy(t testing.TB, options *sdk.ClientOptions, transport *sdk.StreamableClientTransport,
	as *sdk.ClientSessionOptions) *sdk.ClientSession {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(),
		transport, as)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

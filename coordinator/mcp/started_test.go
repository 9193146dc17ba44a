package mcp_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// A server is waited for as long as it may take to start, and to list its tools. It is asked for a
// session first, and without one where it refuses: then it is started once more, for it may be done
// with this one.
func TestAServerIsWaitedForAsLongAsItMayTake(t *testing.T) {
	const discover, list, initialize = "server/discover", "tools/list", "initialize"
	unknown, refuses := step{fails: jsonrpc.CodeMethodNotFound}, step{fails: jsonrpc.CodeInvalidRequest}
	for _, c := range []patient{
		{"it knows no other way", map[string]step{}, 0, 0, "", ""},
		{"slow to answer", map[string]step{initialize: {after: 4 * time.Minute, with: oldHello}}, 0, 4 * time.Minute,
			"", ""},
		{"slow to start", map[string]step{discover: unknown}, 4 * time.Minute, 4 * time.Minute, "", ""},
		{"of both versions", map[string]step{discover: latest}, 0, 0, "", ""},
		{"of the latest version", map[string]step{initialize: unknown, discover: latest}, time.Second, 2 * time.Second,
			"refuses a session", ""},
		{"in another version", map[string]step{initialize: {fails: sdk.CodeUnsupportedProtocolVersion,
			with: `{"supported":["2026-07-28"]}`}, discover: latest}, 0, 0, "refuses a session", ""},
		{"it refuses all", map[string]step{initialize: refuses, discover: unknown}, 0, 0, "refuses a session",
			`"initialize": no`},
		{"it says nothing at all", map[string]step{initialize: {never: true}}, 0, 5 * time.Minute, "",
			"it has not said who it is within 5m0s"},
		{"it never lists its tools", map[string]step{list: {never: true}}, 0, 5 * time.Minute, "",
			"cannot list the tools of s: no answer within 5m0s"},
	} {
		t.Run(c.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { c.play(t, false) }) })
	}
}

// For clients without a session a server is asked without one first. One that ignores what it does
// not know is asked as one of an earlier version of MCP after a while; what it may say later is an
// answer that no one waits for. One that answers, however late in that while, is not hurried, and one
// that refuses to be asked like that is started once more.
func TestAServerIsAskedWithoutASessionFirst(t *testing.T) {
	const discover, initialize = "server/discover", "initialize"
	unknown := step{fails: jsonrpc.CodeMethodNotFound}
	other := step{fails: sdk.CodeUnsupportedProtocolVersion, with: `{"supported":["2026-07-28"]}`}
	after := func(s step, d time.Duration) step { s.after = d; return s }
	for _, c := range []patient{
		{"it never answers", map[string]step{}, 0, 10 * time.Second, "earlier version", ""},
		{"in time", map[string]step{discover: after(unknown, 9*time.Second)}, 0, 9 * time.Second, "", ""},
		{"too late", map[string]step{discover: after(unknown, 12*time.Second)}, 0, 10 * time.Second, "earlier version",
			""},
		{"another version, and then nothing", map[string]step{discover: after(other.once(), 9*time.Second)}, 0,
			19 * time.Second, "earlier version", ""},
		{"slow to start", map[string]step{discover: unknown, initialize: {fails: jsonrpc.CodeInvalidRequest}},
			13 * time.Second, 26 * time.Second, "started once more", ""},
		{"it says nothing at all", map[string]step{initialize: {never: true}}, 0, 5 * time.Minute, "earlier version",
			"it has not said who it is within 5m0s"},
		{"of the latest version", map[string]step{discover: after(latest, 9*time.Second)}, 0, 9 * time.Second, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { c.play(t, true) }) })
	}
}

const oldHello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`

var latest = step{with: `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` +
	`{"tools":{"listChanged":true}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`}

// patient is a server that is waited for: what it knows beside an old one, and what comes of it.
type patient struct {
	name   string
	knows  map[string]step
	starts time.Duration // that it takes to begin
	took   time.Duration
	warned string
	fails  string
}

func (c patient) play(t *testing.T, stateless bool) {
	old := map[string]step{"initialize": {with: oldHello},
		"tools/list": {with: `{"tools":[{"name":"peek","inputSchema":{"type":"object"}}]}`}}
	var log bytes.Buffer
	s, err := mcp.NewServer(mcp.ServerConfig{Name: "s", Command: "s", State: t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begun := 0
	var all []*scripted
	s.Starts(stateless, func() mcp.Program {
		p := &scripted{of: t, starts: c.starts, knows: maps.Clone(old)}
		if maps.Copy(p.knows, c.knows); begun > 0 && stateless { // it is asked what it knows
			p.knows["initialize"] = old["initialize"]
		}
		begun++
		all = append(all, p)
		return p
	})
	began := time.Now()
	err = s.Start(t.Context())
	if err == nil && c.fails != "" {
		_, err = s.Tools(t.Context())
	}
	if took := time.Since(began); took != c.took {
		t.Errorf("it took %s, want %s", took, c.took)
	}
	if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
		t.Errorf("it fails with %v", err)
	}
	<-time.After(time.Minute) // of the bubble: no one waits
	for _, p := range all[:len(all)-1] {
		if !p.ended.Load() {
			t.Error("one that was started before still runs")
		}
	}
	if got := log.String(); strings.Contains(got, "level=") != (c.warned != "") || !strings.Contains(got, c.warned) {
		t.Errorf("the log says %q", got)
	}
	if c.fails != "" {
		return
	}
	if tools, err := s.Tools(t.Context()); err != nil || len(tools) != 1 {
		t.Errorf("its tools are %v, %v", tools, err)
	}
}

// step is what a scripted server says to a request.
type step struct {
	after time.Duration
	with  string // the result, or the data of the error
	fails int64  // the code of an error; 0: it succeeds
	never bool
	first bool // it says so once, and then nothing
}

func (s step) once() step { s.first = true; return s }

// scripted is a server in this process that answers what it knows, and nothing else. What it is told
// it gets when it has started.
type scripted struct {
	of     *testing.T
	starts time.Duration
	knows  map[string]step
	prints string // before each answer

	end   sync.Once
	ended atomic.Bool
	in    *io.PipeReader
	out   *io.PipeWriter
}

func (p *scripted) Start() (io.WriteCloser, io.ReadCloser, error) {
	in, to := io.Pipe()
	from, out := io.Pipe()
	p.in, p.out = in, out
	told := make(chan string, 16) // as in a pipe of the system, what it is told waits for it
	go func() {
		defer close(told)
		for decoder := json.NewDecoder(in); ; {
			var message json.RawMessage
			if decoder.Decode(&message) != nil {
				return
			}
			told <- string(message)
		}
	}()
	go func() {
		defer p.End()
		<-time.After(p.starts)
		for message := range told {
			p.answer(message)
		}
	}()
	return to, from, nil
}

func (p *scripted) answer(message string) {
	var r struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.Unmarshal([]byte(message), &r); err != nil {
		p.of.Error(err)
	}
	s, known := p.knows[r.Method]
	if !known || r.ID == nil || s.never {
		return
	}
	if s.first {
		delete(p.knows, r.Method)
	}
	text := `"result":` + s.with
	if s.fails != 0 {
		data := ""
		if s.with != "" {
			data = `,"data":` + s.with
		}
		code, _ := json.Marshal(s.fails) // of a number, it has no error
		text = `"error":{"code":` + string(code) + `,"message":"no"` + data + `}`
	}
	say := func() { // it may be read no more
		_, _ = io.WriteString(p.out, p.prints+`{"jsonrpc":"2.0","id":`+string(r.ID)+`,`+text+"}\n")
	}
	if s.after == 0 {
		say()
		return
	}
	time.AfterFunc(s.after, say)
}

// End ends it at once.
func (p *scripted) End() {
	p.end.Do(func() {
		p.ended.Store(true)
		_ = p.out.Close() // of a pipe in this process, it has no error
		_ = p.in.Close()
	})
}

// What a server prints beside its messages, as a greeting, or a line for people in the middle of a call,
// is said as far as there is room, and its answers count.
func TestWhatAServerPrintsBesideItsMessagesIsLeftOut(t *testing.T) {
	for _, prints := range []string{"Notes server v1 starting...\n", "[INFO] ready\r\n", `{"level":"info","msg":"ready"}` + "\n",
		"[1]\n\n", "[]\n", "\"ready\"\n", "7\n{\n", `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"ready"}}` + "\n"} {
		t.Run(prints, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s, err := mcp.NewServer(mcp.ServerConfig{Name: "s", Command: "s", State: t.TempDir(),
					Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				s.Starts(false, func() mcp.Program {
					return &scripted{of: t, prints: prints, knows: map[string]step{"initialize": {with: oldHello},
						"tools/list": {with: `{"tools":[{"name":"peek","inputSchema":{"type":"object"}}]}`}}}
				})
				if err := s.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range 20 {
					if tools, err := s.Tools(t.Context()); err != nil || len(tools) != 1 {
						t.Fatalf("its tools are %v, %v", tools, err)
					}
				}
				s.Close()
				synctest.Wait()
				if got := log.String(); !strings.Contains(got, "no message of MCP") || !strings.Contains(got, "server=s") ||
					strings.Count(got, "level=WARN") != 11 {
					t.Errorf("the log says %s", got)
				}
			})
		})
	}
}

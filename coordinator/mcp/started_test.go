package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
)

// TestAServerThatIgnoresWhatItDoesNotKnowIsStarted as one of an earlier version of MCP, after a
// while; what it may say later is an answer that no one waits for. One that answers, however late
// in that while, is not hurried.
func TestAServerThatIgnoresWhatItDoesNotKnowIsStarted(t *testing.T) {
	for _, c := range []struct {
		name     string
		discover time.Duration // after which it says that it knows no such method; 0: never
		took     time.Duration
		warned   bool
	}{
		{"never", 0, 10 * time.Second, true},
		{"in time", 9 * time.Second, 9 * time.Second, false},
		{"too late", 12 * time.Second, 10 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := sdk.NewInMemoryTransports()
				server, err := there.Connect(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				go serveQuietly(t.Context(), server, c.discover)
				var log bytes.Buffer
				began := time.Now()
				session, err := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(),
					mcp.Discovering{Transport: here, Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %s, want %s", took, c.took)
				}
				if warned := strings.Contains(log.String(), "earlier version of MCP"); warned != c.warned {
					t.Errorf("the log says %q", log.String())
				}
				<-time.After(time.Minute) // of the bubble: no one waits
				if tools, err := session.ListTools(t.Context(), nil); err != nil || len(tools.Tools) != 1 {
					t.Errorf("its tools are %v, %v", tools, err)
				}
				if err := session.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// serveQuietly answers nothing but what it knows, and what a server of today is asked first after a
// while, if that is not 0.
func serveQuietly(ctx context.Context, conn sdk.Connection, discover time.Duration) {
	for {
		message, err := conn.Read(ctx)
		if err != nil {
			_ = conn.Close() // its client has gone
			return
		}
		r, ok := message.(*jsonrpc.Request)
		if !ok {
			continue
		}
		switch results := map[string]string{
			"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`,
			"tools/list": `{"tools":[{"name":"peek","inputSchema":{"type":"object"}}]}`,
		}; {
		case results[r.Method] != "":
			_ = conn.Write(ctx, &jsonrpc.Response{ID: r.ID, Result: json.RawMessage(results[r.Method])})
		case r.Method == "server/discover" && discover != 0:
			time.AfterFunc(discover, func() {
				_ = conn.Write(ctx, &jsonrpc.Response{ID: r.ID,
					Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no"}})
			})
		}
	}
}

// TestAServerThatIsSlowToStartIsWaitedFor: it knows what it is asked, and is asked as one that does not
// meanwhile, which it refuses. It is started once more.
func TestAServerThatIsSlowToStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	if err := os.WriteFile(file+slowSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, err := mcp.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.HasPatience(100 * time.Millisecond)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tools, err := s.Tools(t.Context()); err != nil || len(tools) == 0 {
		t.Errorf("its tools are %v, %v", tools, err)
	}
	if !strings.Contains(log.String(), "started once more") {
		t.Errorf("the log says %q", log.String())
	}
}

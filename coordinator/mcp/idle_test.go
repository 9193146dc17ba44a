package mcp_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// heard is what servers say on stderr, and tells when they do.
type heard struct {
	mu   sync.Mutex
	text string
	more chan struct{} // closed, and another, at each write
}

func (h *heard) Write(text []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text += string(text)
	close(h.more)
	h.more = make(chan struct{})
	return len(text), nil
}

// count is how often a text was said, and more is closed when more is said.
func (h *heard) count(text string) (n int, more chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.text, text), h.more
}

// waits waits until a text was said so many times.
func (h *heard) waits(t testing.TB, text string, times int) {
	t.Helper()
	for late := time.After(testenv.Patience); ; {
		n, more := h.count(text)
		if n >= times {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Errorf("%q is said %d times, want %d", text, n, times)
			return
		}
	}
}

// idle serves the undos of the notes with a server that ends as soon as it is idle, and returns
// what its processes say.
func (w *world) idle(config mcp.ServerConfig) *heard {
	w.t.Helper()
	said := &heard{more: make(chan struct{})}
	config.Errors, config.Settle = said, 2*time.Second
	server, err := mcp.NewServer(config)
	if err != nil {
		w.t.Fatal(err)
	}
	served, err := mcp.NewWorker(w.t.Context(), mcp.WorkerConfig{Conn: w.conn, Tenant: "default", Name: "idle",
		Servers: []*mcp.Server{server}, Idle: ledger.DurationMin})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := served.Close(w.t.Context()); err != nil {
			w.t.Log("closed:", err)
		}
	})
	return said
}

// A worker that may be idle starts a server for an undo, and ends it after that.
func TestAnIdleWorkerStartsItsServerWhenAnUndoNeedsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	said := w.idle(config)
	for i, text := range []string{"a", "b"} {
		plan := planOf(w.gateway(mcp.Config{}, nil, config).call("add", map[string]any{"text": text}))
		if n, _ := said.count("notes begin"); n != i {
			t.Errorf("it has started its server %d times before undo %d", n, i+1)
		}
		w.undoes(plan, "")
		if got := lines(file); len(got) != 0 {
			t.Errorf("the notes are %v", got)
		}
		said.waits(t, "notes end", i+1)
	}
}

// An undo waits for a week until something serves it: who undoes may come with the next session.
func TestAnUndoThatNothingServesWaitsForAWeek(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	plan := planOf(w.gateway(mcp.Config{}, nil, config).call("add", map[string]any{"text": "a"}))
	found := false
	for _, r := range w.records(plan) {
		if undo := r.GetCompensationRegistered(); undo != nil {
			found = true
			if after := time.Duration(undo.UnservedAfterNs); after != 7*24*time.Hour {
				t.Errorf("it waits for %s", after)
			}
		}
	}
	if !found {
		t.Error("no undo is registered")
	}
}

// Where the server does not start, an undo waits for it: it is not the owner's at once.
func TestAnUndoWaitsForAServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	c := w.gateway(mcp.Config{}, nil, config)
	plan := planOf(c.call("add", map[string]any{"text": "a"}))
	if err := os.WriteFile(file+brokenSuffix, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	said := w.idle(config)
	undone := make(chan struct{})
	go func() {
		defer close(undone)
		said.waits(t, "notes are broken", 3)
		if err := os.Remove(file + brokenSuffix); err != nil {
			t.Error(err)
		}
	}()
	w.undoes(plan, "")
	<-undone
	if got, n := lines(file), w.attempts(plan); len(got) != 0 || n != 1 {
		t.Errorf("the notes are %v after %d attempts", got, n)
	}
}

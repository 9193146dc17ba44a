package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Program is a server that can be started.
type Program interface{ program }

// Starts has the server started by a function in place of its command, and listened to as for a gateway,
// which may have clients without a session.
func (s *Server) Starts(stateless bool, start func() Program) {
	s.front = &Gateway{config: Config{Stateless: stateless}}
	s.instead = func() program { return start() }
}

// Watched is a transport to a client that may go.
func Watched(t sdk.Transport, logger *slog.Logger, gone func()) sdk.Transport {
	return watched{t, logger, gone}
}

// Environment is that of a child of a gateway with the variables given.
func (c ServerConfig) Environment(given []string) []string { return c.environment(given) }

// Undoes carries out one attempt of an undo.
func (s *Server) Undoes(ctx context.Context, c api.Command) error {
	_, err := s.undo(ctx, c)
	return err
}

// Delivers carries out one attempt of a call that was staged.
func (s *Server) Delivers(ctx context.Context, c api.Command) error {
	_, err := s.deliver(ctx, c)
	return err
}

// Kept is what a question keeps of an answer.
func Kept(a Ask, input, answer string) (string, error) {
	kept, err := newExpressions().keep(a.Keep, json.RawMessage(answer),
		triggers.BindingVars{Input: json.RawMessage(input)})
	return string(kept), err
}

// PruneKeys removes what is kept of keys for longer than it counts.
func (s *Server) PruneKeys() error { return s.pruneKeys() }

// KeepKey keeps in a file under which plan a call with a key was made.
func KeepKey(path, plan string) error { return (&once{path: path}).under(plan) }

// Folder resolves an argument that is a folder.
func Folder(argument string) (string, bool) { return folder(argument) }

// FailMark asks for the savepoint after a call in vain, and reports whether it is missing then.
func (g *Gateway) FailMark(plan string) (missing bool) {
	t := g.plans.known(nil, plan)
	release, _ := t.take(g.life)
	defer release()
	ended, end := context.WithCancel(g.life)
	end()
	t.markLater(ended)
	t.mu.Lock()
	marking := t.marking
	t.mu.Unlock()
	<-marking
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mark == ""
}

// MarksLater asks for a savepoint as after a call, and reports whether it has heard of a part that
// was undone.
func (g *Gateway) MarksLater(plan string) (heard bool) {
	t := g.plans.known(nil, plan)
	t.markLater(g.life)
	if t.awaitMark(g.life) != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.parts) > 0
}

// Spent is how many undos of parts count for connected clients.
func (g *Gateway) Spent() (undos int) {
	g.plans.mu.Lock()
	defer g.plans.mu.Unlock()
	for _, b := range g.plans.budgets {
		undos += len(b.undos)
	}
	return undos
}

// Stood reports whether a plan has stood when its client had gone.
func (g *Gateway) Stood(plan string) bool {
	g.plans.mu.Lock()
	defer g.plans.mu.Unlock()
	return slices.ContainsFunc(g.plans.stood, func(t *tracked) bool { return t.plan.ID() == plan })
}

// WaitsForUndos has the tools that undo wait for no longer than this.
func (g *Gateway) WaitsForUndos(d time.Duration) { g.patience = d }

// Gone waits until no client is there, and the plans of all are seen to.
func (g *Gateway) Gone() { <-g.plans.empty() }

// Plans is how many plans are remembered.
func (g *Gateway) Plans() int {
	g.plans.mu.Lock()
	defer g.plans.mu.Unlock()
	return len(g.plans.byID)
}

// Spend spends undos of the one connection at a time, and says how long the last of them has to wait.
func (g *Gateway) Spend(undos int, now time.Time) (wait time.Duration) {
	g.plans.mu.Lock()
	var sessions []*sdk.ServerSession
	for session := range g.plans.budgets {
		sessions = append(sessions, session)
	}
	g.plans.mu.Unlock()
	for range undos {
		wait = g.plans.spend(sessions[0], nil, now)
	}
	return wait
}

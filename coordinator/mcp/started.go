package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/child"
)

// withSessions is the last version of MCP with sessions.
const withSessions = "2025-11-25"

// connect starts the server, or reaches it, in a version that its clients speak. One that refuses
// "initialize" has no version with sessions, and one that was only slow, and was taken for one of
// an earlier version, may not be asked as that: it is started once more.
func (s *Server) connect(ctx context.Context) (*sdk.ClientSession, *sdk.Client, program, error) {
	may, patience := startTime, discoverTime
	if s.remote() {
		may = connectTime
	}
	// A call may start it, and what the server says later is not of that call.
	starting, cancel := context.WithTimeout(ofNoCall{ctx}, may)
	defer cancel()
	in := sdk.ClientSessionOptions{ProtocolVersion: withSessions}
	// What a server asks a client without a session is an answer to the call, as it is in a version
	// without sessions, which is preferred then.
	if s.front != nil && s.front.config.Stateless {
		in.ProtocolVersion = ""
	}
	for {
		guessed := new(atomic.Bool)
		transport, process := s.transport(patience, guessed)
		client := s.newClient()
		session, err := client.Connect(starting, transport, &in)
		if err == nil {
			err = s.arrived(starting, session, s.roots.Load())
		}
		if err == nil {
			if s.front != nil {
				s.front.relevel(starting, session)
			}
			return session, client, process, nil
		}
		process.End()
		refused := session == nil && in.ProtocolVersion != "" && s.refuses(err)
		if session != nil {
			_ = session.Close() // it has ended
		}
		switch {
		case ctx.Err() == nil && starting.Err() != nil:
			return nil, nil, nil, fmt.Errorf("it has not said who it is within %s", may)
		case starting.Err() != nil || !refused && !guessed.Load():
			return nil, nil, nil, err
		case refused:
			s.logger.Info("the server refuses a session, and is asked without one", "server",
				s.config.Name, "error", err)
			in.ProtocolVersion = ""
		default:
			s.logger.Warn("the server was slow to start, and is started once more", "server",
				s.config.Name, "error", err)
			patience = startTime
		}
	}
}

// refuses reports whether an error is what the server has answered: an error of JSON-RPC, or at a
// URL another status than those that speak of credentials or of another time.
func (s *Server) refuses(err error) bool {
	var answer *jsonrpc.Error
	return !isRejected(err) && (errors.As(err, &answer) || s.remote())
}

// transport is a way to the server, and the child that it starts, if any.
func (s *Server) transport(patience time.Duration, guessed *atomic.Bool) (sdk.Transport,
	program) {
	way := exact{calls: s.calls}
	if s.front != nil {
		way.said = s.said.comes
		way.level = s.front.level.Load
	}
	if s.remote() {
		return newFaraway(s.config, way), (*child.Process)(nil)
	}
	command := exec.Command(s.config.Command, s.config.Args...)
	command.Env = s.config.environment(os.Environ())
	if command.Stderr = s.config.Errors; s.last != nil {
		command.Stderr = s.last
	}
	process := program(child.New(command, closeTime))
	if s.instead != nil {
		process = s.instead()
	}
	way.Transport = started{process, s.config.Name, s.logger, patience, guessed}
	return way, process
}

// started is the transport to a server that is started.
type started struct {
	process  program
	name     string
	logger   *slog.Logger
	patience time.Duration // that the server may take to answer what it may not know
	guessed  *atomic.Bool  // set once it is taken for one that does not know it
}

// program is a server that can be started: a child.Process.
type program interface {
	Start() (in io.WriteCloser, out io.ReadCloser, err error)
	End()
}

// Connect starts the server.
func (t started) Connect(ctx context.Context) (sdk.Connection, error) {
	in, out, err := t.process.Start()
	if err != nil {
		return nil, err
	}
	conn, err := lines(out, in, t.strays()).Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &discovering{Connection: conn, of: t, late: time.NewTimer(t.patience)}
	c.late.Stop() // nothing is asked yet
	return c, nil
}

// strayMax is how many lines of a server that are no messages are logged, and straySize how much of
// each.
const (
	strayMax  = 10
	straySize = 200
)

// strays finds what a server prints to its standard output beside its messages, as a line for
// people by a library of it: that is said, and the connection goes on, as with the clients of MCP.
func (t started) strays() (skip func(line []byte) bool) {
	found := 0
	return func(line []byte) bool {
		text := bytes.TrimSpace(line)
		if len(text) == 0 || isMessage(text) {
			return false
		}
		if found++; found <= strayMax {
			t.logger.Warn("the server prints to its standard output what is no message of MCP: it is "+
				"left out, and belongs on standard error", "server", t.name, "line",
				string(text[:min(len(text), straySize)]))
		}
		if found == strayMax {
			t.logger.Warn("what else it prints there is left out without a word", "server", t.name)
		}
		return true
	}
}

// isMessage reports whether a line is a message of JSON-RPC, or a list of them.
func isMessage(line []byte) bool {
	var all []json.RawMessage
	if line[0] != '[' {
		all = []json.RawMessage{line}
	} else if json.Unmarshal(line, &all) != nil {
		return false
	}
	return len(all) > 0 && !slices.ContainsFunc(all, func(one json.RawMessage) bool {
		_, err := jsonrpc.DecodeMessage(one)
		return err != nil
	})
}

// discoverMethod is what a client asks first since MCP 2026-07-28. A server of an earlier version
// answers that it knows no such method; the SDK goes on with "initialize" then.
const discoverMethod = "server/discover"

// discovering answers for a server that does not answer what it does not know: it would be waited
// for without end. What such a server says of it later is an answer that no one waits for.
type discovering struct {
	sdk.Connection
	of   started
	late *time.Timer // runs while it has not answered what was asked last

	mu    sync.Mutex
	asked jsonrpc.ID // what was asked last; the zero ID: nothing, or it was answered

	// Of Read:
	next  chan incoming // what is read while it may be late; nil: nothing is
	known bool          // it has answered something else: it is not asked again
}

// incoming is what a read came to.
type incoming struct {
	message jsonrpc.Message
	err     error
}

// Write sends a message.
func (c *discovering) Write(ctx context.Context, message jsonrpc.Message) error {
	if r, ok := message.(*jsonrpc.Request); ok && r.Method == discoverMethod {
		c.mu.Lock()
		c.asked = r.ID
		c.late.Reset(c.of.patience)
		c.mu.Unlock()
	}
	return c.Connection.Write(ctx, message)
}

// Read returns the next message.
func (c *discovering) Read(ctx context.Context) (jsonrpc.Message, error) {
	if c.known && c.next == nil {
		return c.Connection.Read(ctx)
	}
	if c.next == nil {
		next := make(chan incoming, 1)
		go func() { // ends with the read
			message, err := c.Connection.Read(ctx)
			next <- incoming{message, err}
		}()
		c.next = next
	}
	select {
	case in := <-c.next:
		c.next = nil
		if r, ok := in.message.(*jsonrpc.Response); ok && !c.answered(r.ID) {
			c.known = true
		}
		return in.message, in.err
	case <-c.late.C:
		c.mu.Lock()
		id := c.asked
		c.mu.Unlock()
		c.of.guessed.Store(true)
		c.of.logger.Warn("the server does not answer "+discoverMethod+", and is asked as one of an "+
			"earlier version of MCP", "server", c.of.name, "waited", c.of.patience)
		return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
			Message: fmt.Sprintf("no answer to %s within %s", discoverMethod, c.of.patience)}}, nil
	}
}

// answered reports whether an answer is the one that is waited for, which is so no more then.
func (c *discovering) answered(id jsonrpc.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !id.IsValid() || id != c.asked {
		return false
	}
	c.asked = jsonrpc.ID{}
	c.late.Stop()
	return true
}

// connected is a session with a server, and what is closed when it has ended.
type connected struct {
	session *sdk.ClientSession
	ended   chan struct{}
}

// running is the session of a server that runs; nil: it does not, or is being started.
func (s *Server) running() *sdk.ClientSession {
	now := s.now.Load()
	if now == nil {
		return nil
	}
	select {
	case <-now.ended:
		return nil
	default:
		return now.session
	}
}

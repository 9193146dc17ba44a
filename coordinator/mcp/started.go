package mcp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/child"
)

// connect starts the server, or reaches it. One that was only slow, and was taken for one of an
// earlier version of MCP, may not be asked as that: it is started once more, and waited for.
func (s *Server) connect(ctx context.Context) (*sdk.ClientSession, *sdk.Client, *child.Process,
	error) {
	may, patience := startTime, cmp.Or(s.patience, discoverTime)
	if s.remote() {
		may = connectTime
	}
	within, cancel := context.WithTimeout(ctx, may)
	defer cancel()
	for {
		guessed := new(atomic.Bool)
		transport, process := s.transport(patience, guessed)
		client := s.newClient()
		session, err := client.Connect(within, transport, nil)
		if err == nil {
			err = s.arrived(within, session, s.roots.Load())
		}
		if err == nil {
			return session, client, process, nil
		}
		process.End()
		if session != nil {
			_ = session.Close() // it has ended
		}
		switch {
		case ctx.Err() == nil && within.Err() != nil:
			return nil, nil, nil, fmt.Errorf("it has not said who it is within %s", may)
		case within.Err() != nil || !guessed.Load():
			return nil, nil, nil, err
		}
		s.logger.Warn("the server was slow to start, and is started once more", "server",
			s.config.Name, "error", err)
		patience = startTime
	}
}

// started is the transport to a server that is started.
type started struct {
	process  *child.Process
	name     string
	logger   *slog.Logger
	patience time.Duration // that the server may take to answer what it may not know
	guessed  *atomic.Bool  // set once it is taken for one that does not know it
}

// Connect starts the server.
func (t started) Connect(ctx context.Context) (sdk.Connection, error) {
	in, out, err := t.process.Start()
	if err != nil {
		return nil, err
	}
	conn, err := Lines(out, in).Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newDiscovering(conn, t), nil
}

// discoverMethod is what a client asks first since MCP 2026-07-28. A server of an earlier version
// answers that it knows no such method; the SDK goes on with "initialize" then.
const discoverMethod = "server/discover"

// discovering answers for a server that does not answer what it does not know: it would be waited
// for without end. What such a server says of it later is an answer that no one waits for.
type discovering struct {
	sdk.Connection
	of   started
	late chan jsonrpc.ID // buffered 1: it has not answered what was asked with this id

	// Of Read:
	next chan incoming // what is read while it may be late; nil: nothing is
	done bool          // it has answered, or was answered for
}

func newDiscovering(conn sdk.Connection, of started) *discovering {
	return &discovering{Connection: conn, of: of, late: make(chan jsonrpc.ID, 1)}
}

// incoming is what a read came to.
type incoming struct {
	message jsonrpc.Message
	err     error
}

// Write sends a message.
func (c *discovering) Write(ctx context.Context, message jsonrpc.Message) error {
	err := c.Connection.Write(ctx, message)
	if r, ok := message.(*jsonrpc.Request); ok && err == nil && r.Method == discoverMethod {
		time.AfterFunc(c.of.patience, func() {
			select {
			case c.late <- r.ID:
			default: // it was asked for another version, and has answered then
			}
		})
	}
	return err
}

// Read returns the next message.
func (c *discovering) Read(ctx context.Context) (jsonrpc.Message, error) {
	if c.done && c.next == nil {
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
	late := c.late
	if c.done {
		late = nil
	}
	select {
	case in := <-c.next:
		c.next = nil
		if _, ok := in.message.(*jsonrpc.Response); ok {
			c.done = true
		}
		return in.message, in.err
	case id := <-late:
		c.done = true
		c.of.guessed.Store(true)
		c.of.logger.Warn("the server does not answer "+discoverMethod+", and is asked as one of an "+
			"earlier version of MCP", "server", c.of.name, "waited", c.of.patience)
		return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
			Message: fmt.Sprintf("no answer to %s within %s", discoverMethod, c.of.patience)}}, nil
	}
}

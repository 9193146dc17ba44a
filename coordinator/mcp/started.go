package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/child"
)

// started is the transport to a server that is started.
type started struct {
	process *child.Process
	name    string
	logger  *slog.Logger
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
	return newDiscovering(conn, t.name, t.logger), nil
}

// discoverMethod is what a client asks first since MCP 2026-07-28. A server of an earlier version
// answers that it knows no such method; the SDK goes on with "initialize" then.
const discoverMethod = "server/discover"

// discovering answers for a server that does not answer what it does not know: it would be waited
// for without end. What such a server says of it later is an answer that no one waits for.
type discovering struct {
	sdk.Connection
	name   string // of the server
	logger *slog.Logger
	late   chan jsonrpc.ID // buffered 1: it has not answered what was asked with this id

	// Of Read:
	next chan incoming // what is read while it may be late; nil: nothing is
	done bool          // it has answered, or was answered for
}

func newDiscovering(conn sdk.Connection, name string, logger *slog.Logger) *discovering {
	return &discovering{Connection: conn, name: name, logger: logger, late: make(chan jsonrpc.ID, 1)}
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
		time.AfterFunc(discoverTime, func() {
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
		c.logger.Warn("the server does not answer "+discoverMethod+", and is asked as one of an "+
			"earlier version of MCP", "server", c.name, "waited", discoverTime)
		return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
			Message: fmt.Sprintf("no answer to %s within %s", discoverMethod, discoverTime)}}, nil
	}
}

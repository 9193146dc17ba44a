package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// hosted is a server of a client's configuration whose undos a host serves in its own process, as
// `sagenbaum mcp worker` does in one of its own, and the tenant that its gateway records in.
type hosted struct {
	entry  entry
	tenant string
}

// Host reads the configurations of clients, and returns what serves the undos of their servers
// until its context ends, and then finishes those under way. The tenant is that of gateways which
// name none. A server at a URL has no gateway, and is left out. Errors: *cli.Failure of what cannot
// be read.
func Host(files []string, tenant string) (serve.UndosRun, error) {
	var workers []hosted
	for _, file := range files {
		o := &options{file: file}
		entries, err := o.read(nil)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.url != "" && e.gateway == nil {
				continue
			}
			if e.problem != nil {
				return nil, e.problem
			}
			if err := o.complete(&e); err != nil {
				return nil, err
			}
			w := hosted{entry: e, tenant: e.tenant(tenant)}
			if !ledger.ValidToken(w.tenant) {
				return nil, cli.Fail(cli.ExitUsage, "a tenant of "+ledger.TokenWanted,
					"%s: mcpServers.%s: %.80q is no tenant", file, e.name, w.tenant)
			}
			workers = append(workers, w)
		}
	}
	if len(workers) > mcp.ServersMax {
		return nil, cli.Fail(cli.ExitUsage, "sagenbaum mcp worker --config FILE beside it",
			"--mcp names %d servers, at most %d are served", len(workers), mcp.ServersMax)
	}
	return func(ctx context.Context, connect func(tenant string) (*nats.Conn, error),
		log *slog.Logger) {
		host(ctx, workers, connect, log)
	}, nil
}

// tenant is the one that the gateway of a configuration records in: by its flags, else by the
// environment that its client gives it.
func (e *entry) tenant(otherwise string) string {
	if e.globals != nil {
		if f := e.globals.Lookup("tenant"); f != nil && f.Changed {
			return f.Value.String()
		}
	}
	if given := e.env["SAGENBAUM_TENANT"]; given != "" && e.gateway != nil {
		return given
	}
	return otherwise
}

// host serves the undos of servers until ctx ends. One that does not start is no reason for a host
// to end: it is logged and tried again.
func host(ctx context.Context, workers []hosted,
	connect func(tenant string) (*nats.Conn, error), log *slog.Logger) {
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(func() { // ends with ctx
			for wait := hostedPause; ; wait = min(2*wait, hostedPauseMax) {
				served, err := w.serve(ctx, connect, log)
				if ctx.Err() != nil {
					return
				}
				if served {
					wait = hostedPause
				}
				log.Error("the undos of an MCP server are not served; trying again", "server",
					w.entry.name, "tenant", w.tenant, "cause", err, "in", wait)
				if !cli.Pause(ctx, wait) {
					return
				}
			}
		})
	}
	all.Wait()
}

// How long a server that did not start is left alone, or a connection that was closed for good.
const (
	hostedPause    = time.Second
	hostedPauseMax = time.Minute
	hostedEnd      = 10 * time.Second // for what is under way at the end
)

// serve serves the undos of one server until ctx ends or its connection is lost, and reports
// whether it has begun to.
func (h hosted) serve(ctx context.Context, connect func(tenant string) (*nats.Conn, error),
	log *slog.Logger) (served bool, err error) {
	conn, err := connect(h.tenant)
	if err != nil {
		return false, fmt.Errorf("cannot connect: %w", err)
	}
	defer conn.Close()
	config := h.entry.config
	config.Logger, config.Errors = log, &said{log: log.With("server", config.Name)}
	server, err := mcp.NewServer(config)
	if err != nil {
		return false, err
	}
	defer server.Close()
	w, err := mcp.NewWorker(ctx, mcp.WorkerConfig{Conn: conn, Tenant: h.tenant, Name: "mcp-host",
		Servers: []*mcp.Server{server}, Logger: log})
	if err != nil {
		return false, err
	}
	log.Info("serving the undos of an MCP server", "server", server.Name(), "tenant", h.tenant,
		"capability", server.Undo())
	select {
	case <-ctx.Done():
	case <-w.Lost():
		err = w.Err()
	}
	// What is not finished by then is asked for again, under the same key.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), hostedEnd)
	defer cancel()
	return true, errors.Join(err, w.Close(end))
}

// said puts what a server writes to stderr in the log, by lines.
type said struct {
	log  *slog.Logger
	line []byte
}

// saidMax is how much of a line is kept.
const saidMax = 4 << 10

// Write takes a part of it. It is called by one goroutine.
func (s *said) Write(text []byte) (int, error) {
	for _, b := range text {
		switch {
		case b != '\n' && len(s.line) < saidMax:
			s.line = append(s.line, b)
		case b == '\n':
			s.log.Info("an MCP server says", "text", string(s.line))
			s.line = s.line[:0]
		}
	}
	return len(text), nil
}

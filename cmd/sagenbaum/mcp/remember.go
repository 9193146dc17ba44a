package mcp

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// started is how a server was started, for whoever has to start a worker for it.
func (o *options) started(server *mcp.Server, args []string) started.Gateway {
	folder, err := os.Getwd()
	if err != nil {
		folder = "."
	}
	return started.Gateway{Undo: server.Undo(), Folder: folder, Worker: o.workerLine(args),
		Files: server.Pack().GoesByPaths()}
}

// workerLine is the command line of the worker that undoes what this gateway does.
func (o *options) workerLine(args []string) []string {
	line := []string{"sagenbaum", "mcp", "worker"}
	give := func(flag string, values ...string) {
		for _, value := range values {
			if value != "" {
				line = append(line, flag, value)
			}
		}
	}
	give("--config", absolute(o.file))
	give("--url", o.url)
	give("--header", o.headers...) // with the names of variables
	give("--server-name", o.server)
	give("--instance", o.instance)
	for _, root := range o.roots {
		give("--root", absolute(root))
	}
	for _, pack := range o.packs {
		give("--pack", absolute(pack))
	}
	give("--state", absolute(o.state))
	if o.settle != 0 {
		give("--settle", o.settle.String())
	}
	if len(args) > 0 {
		line = append(append(line, "--"), args...)
	}
	return line
}

// sayLeft names the worker that makes the undos of a gateway which makes none.
func (o *options) sayLeft(config *mcp.Config, args []string) {
	if config.ServeUndos {
		return
	}
	line := o.workerLine(args)
	config.Worker = cli.CommandLine(line[0], line[1:]...)
	config.Logger.Warn("this gateway undoes nothing itself: undos, and calls that are staged, wait "+
		"for a worker", "agent", config.Agent, "next", config.Worker)
}

// absolute is a path from anywhere; empty: none is given.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil && path != "" {
		return full
	}
	return path
}

// remember keeps how this gateway was started, for those who find that its undos are not served,
// and for the server that this user's gateways have started. Where this gateway undoes by itself,
// hosts leave that to it until free is called.
func (o *options) remember(config mcp.Config, args []string) (free func()) {
	var all []func()
	for _, server := range config.Servers {
		if len(server.Pack().Tools) == 0 {
			continue // nothing undoes what it does
		}
		g := o.started(server, args)
		g.Tenant = config.Tenant
		err := started.Remember(server.State(), g, mcp.KeptFor, time.Now())
		if err == nil && config.ServeUndos {
			var leave func()
			if leave, err = started.Serve(server.State(), g.Undo, config.Tenant); err == nil {
				all = append(all, leave)
			}
		}
		if err != nil {
			config.Logger.Warn("how this gateway was started is not kept", "server", server.Name(),
				"error", err)
		}
		if folder := o.userFolder(server.State()); folder != "" {
			g.State = server.State()
			err := errors.Join(os.MkdirAll(folder, 0o700),
				started.Remember(folder, g, mcp.KeptFor, time.Now()))
			if err != nil {
				config.Logger.Warn("the server that gateways start does not undo what this one does once "+
					"it is gone", "server", server.Name(), "error", err)
			}
		}
	}
	return func() {
		for _, leave := range all {
			leave()
		}
	}
}

// userFolder is where the server that this user's gateways start looks for them, if that is not the
// folder of this one's images; empty: it is, or this one records at a server that was named.
func (o *options) userFolder(state string) string {
	folder, err := started.Dir("")
	if err != nil || o.named || folder == state {
		return ""
	}
	return folder
}

// sayUnserved warns of undos that wait because a gateway of this user has ended, maybe of another
// server than this one's. Who may not ask, or gets no answer, says nothing.
func sayUnserved(ctx context.Context, s *cli.Settings, servers []*mcp.Server, log *slog.Logger) {
	var answer api.WorkersAnswer
	err := s.With(func(c *cli.Client) (err error) {
		answer, err = c.Workers(ctx)
		return err
	})
	if err != nil {
		log.Debug("cannot ask which undos wait", "error", err)
		return
	}
	lines := map[string]string{}
	for _, server := range servers {
		for _, g := range started.List(server.State()) {
			lines[g.Undo] = g.Line()
		}
	}
	for _, w := range answer.Workers {
		if line := lines[started.Of(w.Capability)]; line != "" && w.Due > 0 && w.Served == api.ServedNo {
			log.Warn("undos, or calls that are staged, wait, and nothing serves them",
				"capability", w.Capability, "undos", w.Due, "plan", w.Plan, "next", line)
		}
	}
}

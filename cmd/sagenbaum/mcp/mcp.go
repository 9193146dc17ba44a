// Package mcp is `sagenbaum mcp`: a gateway between MCP clients and servers whose calls can be
// undone.
package mcp

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Command is `sagenbaum mcp` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	o := new(options)
	cmd := &cobra.Command{
		Use:   "mcp -- COMMAND [ARGUMENT...]",
		Short: "Stand between an MCP client and an MCP server, so that its calls can be undone",
		Long: `Stand between an MCP client and an MCP server, so that its calls can be undone.
Put it before the server's command in the client's configuration; the rest stays as it is.

A call that has an effect is an action of a plan: the first one begins the plan, and the
tools plan_commit, plan_fail, undo_last and what_can_be_undone come with it. What undoes a
call is in the contract of its tool; the servers of files and memory have one, and --pack
names others. Tools without a contract are hidden, unless --unknown says otherwise.

While it runs it undoes by itself. Where no server was named and none runs, it starts one for this
user, which stays when the client is gone, and undoes then what was done to files: its data is in
~/.local/state/sagenbaum, and every command finds it. For other MCP servers, and with a server of
your own, run 'sagenbaum serve --mcp FILE' with the client's configuration, or 'sagenbaum mcp
worker' with the same command: otherwise nothing undoes what a plan whose client has vanished has
done.

Standard output carries MCP and nothing else; it ends when standard input does. With --listen
it serves any number of clients over streamable HTTP instead; who comes must bring the token in
SAGENBAUM_MCP_TOKEN, if there is one. All who bring it are one and the same agent: they see and
undo each other's plans, and a key of one gets another the result of its call. Users who must not
have a gateway each, with credentials and a token of its own.`,
		Example: `  sagenbaum mcp -- npx -y @modelcontextprotocol/server-filesystem /srv/files
  sagenbaum mcp --on-disconnect fail -- npx -y @modelcontextprotocol/server-memory
  sagenbaum mcp --config mcp.json --listen 127.0.0.1:4271`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromDash(cmd, args); err != nil {
				return err
			}
			return cli.Failed("run the gateway", o.gateway(cmd, s, args))
		},
	}
	o.gatewayFlags(cmd.Flags())
	cmd.AddCommand(newWorker(s), newCheck(s), newDoctor(s))
	return cmd
}

// fromDash wants a command to come after "--", so that its flags are its own.
func fromDash(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return cli.Fail(cli.ExitUsage, cmd.CommandPath()+" -- "+args[0]+" ...",
			"the command of the server comes after --")
	}
	return nil
}

// gateway serves one client over standard input and output.
func (o *options) gateway(cmd *cobra.Command, s *cli.Settings, args []string) (err error) {
	config, err := o.config()
	if err != nil {
		return err
	}
	logger := o.logger(cmd)
	if config.Servers, err = o.servers(cmd, args, logger); err != nil {
		return err
	}
	conn, err := o.reach(cmd, s, logger)
	if err != nil {
		return err
	}
	defer conn.Close()
	config.Conn, config.Tenant, config.Logger = conn, s.Tenant, logger
	config.Agent = o.agentName(s)
	if s.Self != nil && s.Self.Role == access.Agent {
		config.ServeUndos = false // an agent's user may not
	}
	o.sayLeft(&config, args)
	ctx := cmd.Context()
	starting, in := ctx, (*input)(nil)
	if o.listen == "" {
		in, starting = hearWhile(ctx, cmd.InOrStdin())
	}
	gateway, err := mcp.New(starting, config)
	switch {
	case err != nil && ctx.Err() == nil && starting.Err() != nil:
		return cli.Fail(cli.ExitFailed, "see what it writes to standard error, or run it by itself",
			"the client has gone, and a server has not started within %s since: %v", leftTime, err)
	case err != nil:
		return err
	}
	if err := allowed(conn, s, "be agent "+config.Agent+" of tenant "+s.Tenant,
		asAgent(s.Tenant, config.Agent)); err != nil {
		return errors.Join(err, gateway.Close())
	}
	free := o.remember(config, args)
	defer func() { err = errors.Join(err, gateway.Close()); free() }()
	beside, stop := context.WithCancel(ctx)
	var both sync.WaitGroup // end with the gateway
	both.Go(func() { sayUnserved(beside, s, config.Servers, logger) })
	both.Go(func() { o.keep(beside, s, conn, logger) })
	defer func() { stop(); both.Wait() }()
	if in == nil {
		return o.serve(cmd, gateway, config.Agent)
	}
	return gateway.Serve(ctx, mcp.Lines(in, writer{cmd.OutOrStdout()}))
}

// connect reaches the server for as long as the process runs.
func (o *options) connect(s *cli.Settings) (*nats.Conn, error) {
	more, err := s.Credentials(s.Tenant)
	if err != nil {
		return nil, err
	}
	conn, err := s.Dial(append([]nats.Option{nats.Name("sagenbaum mcp"), nats.Timeout(s.Timeout),
		nats.MaxReconnects(-1)}, more...)...)
	if err == nil {
		return conn, nil
	}
	client, again := s.Connect() // which says what to do about it
	if again != nil {
		return nil, again
	}
	client.Close()
	return nil, err
}

func (o *options) logger(cmd *cobra.Command) *slog.Logger {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
}

// agentName is the name of the gateway in the ledger.
func (o *options) agentName(s *cli.Settings) string {
	if o.agent == "" && s.Self != nil && s.Self.Role == access.Agent {
		return s.Self.Name
	}
	if o.agent == "" {
		return "mcp"
	}
	return o.agent
}

func newWorker(s *cli.Settings) *cobra.Command {
	o := new(options)
	cmd := &cobra.Command{
		Use:   "worker -- COMMAND [ARGUMENT...]",
		Short: "Undo what gateways of the same server have done, also when they are gone",
		Long: `Undo what gateways of the same server have done, also when they are gone. It starts the
server itself when it is asked to undo something, on this machine: give it the same command
as the gateway, or the client's configuration with --config, where commands of sagenbaum
mcp count as the servers that they start.`,
		Example: `  sagenbaum mcp worker -- npx -y @modelcontextprotocol/server-filesystem /srv/files
  sagenbaum mcp worker --config ~/project/.mcp.json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromDash(cmd, args); err != nil {
				return err
			}
			return cli.Failed("run the worker", o.worker(cmd, s, args))
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().StringVar(&o.agent, "name", "mcp-worker", "`NAME` of the worker in its reports")
	return cmd
}

// worker serves the undos of servers until it is interrupted.
func (o *options) worker(cmd *cobra.Command, s *cli.Settings, args []string) error {
	logger := o.logger(cmd)
	servers, err := o.servers(cmd, args, logger)
	if err != nil {
		return err
	}
	conn, err := o.connect(s)
	if err != nil {
		return err
	}
	defer conn.Close()
	name := o.agent
	if s.Self != nil && s.Self.Role == access.Worker {
		name = s.Self.Name
	}
	w, err := mcp.NewWorker(cmd.Context(), mcp.WorkerConfig{Conn: conn, Tenant: s.Tenant, Name: name,
		Servers: servers, Logger: logger})
	if err != nil {
		return err
	}
	if err := allowed(conn, s, "serve these undos in tenant "+s.Tenant,
		asWorker(s.Tenant, servers)); err != nil {
		return errors.Join(err, w.Close(context.WithoutCancel(cmd.Context())))
	}
	for _, server := range servers {
		cmd.Printf("serving the undos of %s as %s\n", server.Name(), server.Undo())
		for _, capability := range server.Deliveries() {
			cmd.Printf("making the calls of %s that are staged as %s\n", server.Name(), capability)
		}
	}
	select {
	case <-cmd.Context().Done():
	case <-w.Lost():
		return errors.Join(w.Err(), w.Close(context.WithoutCancel(cmd.Context())))
	}
	return w.Close(context.WithoutCancel(cmd.Context()))
}

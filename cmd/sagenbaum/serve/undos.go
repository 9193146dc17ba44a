package serve

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Undos returns what serves the undos of the servers in files of MCP clients.
type Undos func(files []string) UndosRun

// UndosRun serves them until ctx ends.
type UndosRun = func(ctx context.Context, connect func(tenant string) (*nats.Conn, error),
	log *slog.Logger)

// takeUndos takes the files of --mcp.
func (v *serving) takeUndos(undos Undos) error {
	if len(v.mcp) == 0 {
		return nil
	}
	if v.external != "" {
		return cli.Fail(cli.ExitUsage, "sagenbaum mcp worker --config FILE, as a user of role worker",
			"--mcp is for the embedded server: the credentials of a host serve no undos")
	}
	v.undos = undos(v.mcp)
	return nil
}

// asWorker connects to a tenant as the user who runs the server, whose workers run here.
func (v *serving) asWorker(server *embedded.Server, tenant string) (*nats.Conn, error) {
	options := []nats.Option{nats.Name("sagenbaum mcp host"), nats.MaxReconnects(-1)}
	if v.directory == nil {
		return server.Connect(options...)
	}
	user := v.local
	user.CA = "" // the connection goes through memory, which has no certificate
	own, err := connect.Options(user, tenant)
	if err != nil {
		return nil, err
	}
	// The name of the tenant takes the place of that of the host, which is in none.
	return nats.Connect("", slices.Concat([]nats.Option{server.InProcess()}, own, options)...)
}

// serveUndos serves the undos of --mcp once every tenant answers, until ctx ends; then it closes
// what it returns.
func (v *serving) serveUndos(ctx context.Context, h *host.Host,
	connect func(tenant string) (*nats.Conn, error), log *slog.Logger) <-chan struct{} {
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		if connect == nil || v.undos == nil || !h.Await(ctx) {
			return
		}
		v.undos(ctx, func(tenant string) (*nats.Conn, error) {
			if !slices.Contains(h.Tenants(), tenant) {
				return nil, fmt.Errorf("this host has no tenant %s: serve --tenant %s, or sagenbaum "+
					"tenant add %s", tenant, tenant, tenant)
			}
			return connect(tenant)
		}, log)
	}()
	return ended
}

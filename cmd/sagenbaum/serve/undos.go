package serve

import (
	"context"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Undos reads the files of MCP clients, whose gateways record in the tenant unless they name one.
type Undos func(files []string, tenant string) (UndosRun, error)

// UndosRun serves the undos of their servers until ctx ends.
type UndosRun = func(ctx context.Context, connect func(tenant string) (*nats.Conn, error),
	log *slog.Logger)

// readUndos reads the files of --mcp, before anything is started.
func (v *serving) readUndos(undos Undos) (err error) {
	if len(v.mcp) == 0 {
		return nil
	}
	if v.external != "" {
		return cli.Fail(cli.ExitUsage, "sagenbaum mcp worker --config FILE, as a user of role worker",
			"--mcp is for the embedded server: the credentials of a host serve no undos")
	}
	v.undos, err = undos(v.mcp, v.tenants[0])
	return err
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
		if connect != nil && len(v.mcp) > 0 && h.Await(ctx) {
			v.undos(ctx, connect, log)
		}
	}()
	return ended
}

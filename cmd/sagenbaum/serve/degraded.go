package serve

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// While a disk cannot be written `serve` stays: whoever asks for the status of a tenant
// learns what is wrong, and the work goes on by itself when the disk can be written.

// openHost opens the host. While the disk of its state cannot be written it answers in
// its place and tries on; nil and no error: ctx has ended. A folder that this user may not write
// is a mistake of the command line.
func (v *serving) openHost(ctx context.Context, setup hostSetup, log *slog.Logger,
	cfg host.Config) (*host.Host, error) {
	var leave func()
	said := ""
	for {
		h, err := host.New(cfg)
		if err == nil || !store.Unwritable(err) || errors.Is(err, fs.ErrPermission) {
			if leave != nil {
				leave()
			}
			return h, explainKeys(err)
		}
		if err.Error() != said {
			if leave != nil {
				leave()
			}
			said, leave = err.Error(), v.standIn(cfg.Conn, setup.disks(v), setup.external, log, err)
		}
		select {
		case <-ctx.Done():
			leave()
			if cause := context.Cause(ctx); errors.Is(cause, host.ErrMute) {
				return nil, cause
			}
			return nil, nil
		case <-time.After(restartPause):
		}
	}
}

// standIn says in the host's place what is wrong, until leave is called.
func (v *serving) standIn(conn *nats.Conn, disks []observe.Disk, external bool, log *slog.Logger,
	cause error) (leave func()) {
	log.Error("degraded: nothing is folded or dispatched until the disk can be written", "cause",
		cause)
	tenants := make([]host.TenantHealth, 0, len(v.names()))
	for _, tenant := range v.names() {
		tenants = append(tenants,
			host.TenantHealth{Tenant: tenant, Mode: api.ModeDegraded, Problem: cause.Error()})
	}
	v.watch.degraded.Store(&tenants)
	s, err := host.NewStandIn(host.StandInConfig{
		Conn: conn, Tenants: v.names(), Holder: v.holder, Problem: cause.Error(),
		Elsewhere: external, Disks: disks, Metrics: v.watch.metrics,
	})
	if err != nil {
		log.Warn("no one can be told over NATS what is wrong", "error", err)
	}
	return func() {
		v.watch.degraded.Store(nil)
		if s != nil {
			s.Close()
		}
	}
}

// standInAlone starts a server without streams in place of one whose folder cannot be
// written, and returns when that has changed, or ctx has ended. An append finds no stream
// there, which is busy: its caller tries on. It returns the port to go on with.
func (v *serving) standInAlone(ctx context.Context, config embedded.Config, log *slog.Logger,
	cause error) (port int) {
	config.NoStreams = true
	server, err := embedded.Start(config)
	if err != nil {
		log.Error("the ledger's folder cannot be written, and no server can answer in its place", "dir",
			config.Dir, "cause", cause, "error", err)
		return config.Port
	}
	defer server.Close()
	port = portOf(server.URL(), config.Port)
	conn, err := server.Connect(nats.Name("sagenbaum stand-in"))
	if err != nil {
		log.Error("the ledger's folder cannot be written, and no one can be told over NATS", "dir",
			config.Dir, "cause", cause, "error", err)
		return port
	}
	defer conn.Close()
	defer v.standIn(conn, hostSetup{store: config.Dir}.disks(v), false, log, cause)()
	for embedded.CheckFolder(config.Dir) != nil {
		select {
		case <-ctx.Done():
			return port
		case <-time.After(restartPause):
		}
	}
	log.Info("the ledger's folder can be written again", "dir", config.Dir)
	return port
}

// disks are those that a host uses.
func (s hostSetup) disks(v *serving) []observe.Disk {
	tiles := v.tiles
	if tiles == "" {
		tiles = filepath.Join(v.data, "executor", "tiles")
	}
	all := []observe.Disk{{Store: "state", Dir: host.StateDir(v.data)},
		{Store: "tiles", Dir: tiles}}
	if s.store != "" {
		all = append(all, observe.Disk{Store: "ledger", Dir: s.store})
	}
	return all
}

package mcp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// KeptFor is how long images and trash are kept: the undo window of the packs, and a day.
const KeptFor = 31 * 24 * time.Hour

// WorkerConfig is what NewWorker needs.
type WorkerConfig struct {
	Conn    *nats.Conn // required; the caller keeps it and closes it after Close
	Tenant  string     // required
	Name    string     // required
	Servers []*Server  // required; NewWorker starts them, Close ends them
	Logger  *slog.Logger

	// Idle has each server started when an undo needs it, and ended once none has for this time.
	// Up to IdleMax; 0: they run until Close.
	Idle time.Duration
}

// Worker undoes what gateways of its servers have done. It is safe for concurrent use. Close it.
type Worker struct {
	work    *worker.Worker
	servers []*Server
}

// NewWorker starts the servers, unless they are idle, which finds their packs, and serves their
// undos. Images and trash that are older than every undo window are removed when a server starts.
// Errors: *ledger.Refused, those of a server that does not start, and as of worker.New.
func NewWorker(ctx context.Context, config WorkerConfig) (*Worker, error) {
	if len(config.Servers) == 0 || len(config.Servers) > ServersMax {
		return nil, ledger.Refuse("config.servers", fmt.Sprint(len(config.Servers)),
			fmt.Sprintf("1 to %d servers", ServersMax))
	}
	if err := ledger.CheckSpan("config.idle", config.Idle, IdleMax); err != nil {
		return nil, err
	}
	logger := cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	work, err := worker.New(worker.Config{Conn: config.Conn, Tenant: config.Tenant, Name: config.Name,
		Logger: logger})
	if err != nil {
		return nil, err
	}
	w := &Worker{work: work, servers: config.Servers}
	for _, s := range config.Servers {
		if s.rest.after = config.Idle; config.Idle > 0 && s.config.Errors != nil {
			s.last = &lastLine{to: s.config.Errors}
		}
		if config.Idle == 0 {
			if err = s.Start(ctx); err == nil {
				s.prune()
			}
		}
		if err == nil {
			err = s.Serve(work)
		}
		if err != nil {
			_ = w.Close(ctx) // what began ends; the error before says why
			return nil, fmt.Errorf("cannot serve the undos of %s: %w", s.Name(), err)
		}
	}
	return w, nil
}

// Lost and Err are as of worker.Worker: whether the connection is closed for good.
func (w *Worker) Lost() <-chan struct{} { return w.work.Lost() }

// Err is as of worker.Worker.
func (w *Worker) Err() error { return w.work.Err() }

// Close takes no further undo, finishes those under way, and ends the servers. Errors as of
// worker.Close.
func (w *Worker) Close(ctx context.Context) error {
	err := w.work.Close(ctx)
	for _, s := range w.servers {
		s.Close()
	}
	return err
}

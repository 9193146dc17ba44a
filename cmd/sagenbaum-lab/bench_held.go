package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// measureServe starts `serve` on a folder with held registrations, once with
// its folded state and once without, and prints how long it took to hold the
// tenant and how much memory it then has.
func measureServe(ctx context.Context, out io.Writer, b *benching, dir string) error {
	self, err := serverBinary(ctx, b.server, dir)
	if err != nil {
		return err
	}
	for _, cold := range []bool{false, true} {
		name := "start, state folded before"
		if cold {
			name = "start, state folded again"
			if err := os.RemoveAll(filepath.Join(dir, "executor", "state")); err != nil {
				return err
			}
		}
		start := time.Now()
		p, err := process.Start(self, dir, "serve", "serve", "--stop-on-eof", "--data", dir,
			"--listen", "127.0.0.1:0", "--tenant", benchTenant, "--no-sync", "--console",
			serve.ConsoleOff, "-o", "json")
		if err != nil {
			return err
		}
		status, err := holding(ctx, p)
		took := time.Since(start)
		memory := residentKB(p.Command.Process.Pid)
		p.Stop()
		if err != nil {
			return err
		}
		fmt.Fprintf(out,
			"  %-34s %9s, %d held registrations with deadlines, %.0f MiB resident, %.2f KiB each\n",
			name, short(took), status.Held, float64(memory)/1024, float64(memory)/float64(b.held))
	}
	return nil
}

// holding waits until a server that was started holds its tenant and has folded
// everything.
func holding(ctx context.Context, p *process.Process) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := connectTo(ctx, p)
	if err != nil {
		return api.Status{}, err
	}
	defer conn.Close()
	return folded(ctx, conn)
}

// connectTo connects to a server that was started, once it takes connections.
func connectTo(ctx context.Context, p *process.Process) (*nats.Conn, error) {
	line, err := p.Line(ctx)
	if err != nil {
		return nil, err
	}
	var r serve.Ready
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return nil, fmt.Errorf("serve said %q: %w", line, err)
	}
	options, _, err := connect.File(r.Creds, benchTenant)
	if err != nil {
		return nil, err
	}
	return nats.Connect(r.URL, options...)
}

// folded waits until the executor on conn holds the tenant and has folded all.
func folded(ctx context.Context, conn *nats.Conn) (api.Status, error) {
	return foldedTenant(ctx, conn, benchTenant)
}

func foldedTenant(ctx context.Context, conn *nats.Conn, tenant string) (api.Status,
	error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		m, err := conn.RequestWithContext(ctx, api.TenantStatus.Subject(tenant), []byte("{}"))
		if err != nil {
			return api.Status{}, err
		}
		var answer struct {
			Status api.Status `json:"status"`
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return api.Status{}, err
		}
		if answer.Status.Mode == "holding" && answer.Status.Applied == answer.Status.Last {
			return answer.Status, nil
		}
		if !cli.Pause(ctx, 5*time.Millisecond) {
			return api.Status{}, ctx.Err()
		}
	}
}

// folded waits for the rig's own executor and returns how many records it folded.
func (b *bench) folded(ctx context.Context) (uint64, error) {
	status, err := folded(ctx, b.client)
	return status.Records, err
}

// commits returns how many commits the ledger holds.
func (b *bench) commits() (uint64, error) {
	js, err := b.client.JetStream()
	if err != nil {
		return 0, err
	}
	info, err := js.StreamInfo(jetstream.StreamName(benchTenant))
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// readAll reads the whole stream without folding it.
func (b *bench) readAll(ctx context.Context) (messages uint64, took time.Duration, err error) {
	store, err := jetstream.Open(ctx,
		jetstream.Config{Conn: b.conn, Tenant: benchTenant, AcceptLossyBroker: true})
	if err != nil {
		return 0, 0, err
	}
	head, err := store.Head(ctx)
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	for m, err := range store.Read(ctx, 1) {
		if err != nil {
			return 0, 0, err
		}
		if messages++; m.Sequence == head.Last {
			break
		}
	}
	return messages, time.Since(start), nil
}

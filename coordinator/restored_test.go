package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// site is a server with its host, which is stopped and started on one address.
type site struct {
	t    *testing.T
	port int
	dir  string // of the server's data; the state of the host is a cache
	away atomic.Bool
	stop func()
}

func (s *site) start() {
	s.t.Helper()
	server, err := embedded.Start(embedded.Config{Dir: s.dir, Port: s.port})
	if err != nil {
		s.t.Fatal(err)
	}
	root, err := server.Connect()
	if err != nil {
		s.t.Fatal(err)
	}
	h, err := host.New(host.Config{Conn: root, Tenants: []string{"default"}, Dir: s.t.TempDir(),
		DurableServer: server.DurableID()})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	h.Await(ctx)
	s.stop = func() {
		cancel()
		<-ended
		_ = h.Close()
		root.Close()
		server.Close()
	}
}

// Dial is a nats.CustomDialer that finds no one while the site is away.
func (s *site) Dial(network, address string) (net.Conn, error) {
	if s.away.Load() {
		return nil, errors.New("away")
	}
	return net.Dial(network, address)
}

func (s *site) agent(name string) *coordinator.Coordinator {
	s.t.Helper()
	conn, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", s.port), nats.SetCustomDialer(s),
		nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Close)
	c, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: name,
		Contracts: []contract.Contract{{Capability: "mail.send", Class: contract.Irreversible}}})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// TestALedgerThatLacksWhatItAcknowledgedIsFound: a backup was restored beside an agent that went on.
// It is told so, and not that a plan has ended of which the ledger does not know all.
func TestALedgerThatLacksWhatItAcknowledgedIsFound(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]int{"by the next append": 0, "by an executor": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port, unused := unserved(t)
			unused.Close()
			s := &site{t: t, port: port, dir: t.TempDir()}
			s.start()
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
			defer cancel()
			c := s.agent("a1")
			plan, err := c.Begin(ctx, coordinator.PlanSpec{ID: "p", Owner: "ana"})
			if err != nil {
				t.Fatal(err)
			}
			ran := 0
			act := func(id string) error {
				_, err := plan.Do(ctx, coordinator.Action{ID: id, Capability: "mail.send"},
					func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
						ran++
						return coordinator.Outcome{}, nil
					})
				return errors.Join(err, plan.Flush(ctx))
			}
			if err := act("a"); err != nil {
				t.Fatal(err)
			}
			s.stop()
			backup := filepath.Join(t.TempDir(), "backup")
			if err := os.CopyFS(backup, os.DirFS(s.dir)); err != nil {
				t.Fatal(err)
			}
			s.start() // with the same data: the agent goes on
			if err := errors.Join(act("b"), act("c"), c.Err()); err != nil {
				t.Fatal(err)
			}
			s.away.Store(meanwhile > 0)
			s.stop()
			s.dir = backup
			s.start()
			defer func() { s.stop() }()
			if meanwhile > 0 {
				s.others(ctx, meanwhile)
				s.away.Store(false)
			} else if err := act("d"); !errors.Is(err, coordinator.ErrLedgerReplaced) || ran != 3 {
				t.Fatalf("%v, and %d forwards ran", err, ran)
			}
			select {
			case <-c.Lost():
			case <-ctx.Done():
				t.Fatal("it goes on beside another ledger")
			}
			if _, err := plan.Wait(ctx); !errors.Is(err, coordinator.ErrLedgerReplaced) ||
				!errors.Is(c.Err(), coordinator.ErrLedgerReplaced) {
				t.Errorf("%v, and the agent is lost by %v", err, c.Err())
			}
		})
	}
}

// others has another agent append to the ledger, whose connection is not held up.
func (s *site) others(ctx context.Context, appends int) {
	s.t.Helper()
	other := &site{t: s.t, port: s.port}
	c := other.agent("a2")
	for range appends {
		plan, err := c.Begin(ctx, coordinator.PlanSpec{Owner: "ana"})
		if err == nil {
			err = plan.Flush(ctx)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := c.Close(ctx); err != nil {
		s.t.Error(err)
	}
}

// Package peer is Sagenbaum as one system of several that do the same work. [Peer] is a server
// process with its defaults, and an agent and a worker in this process, each on a TCP connection of
// its own. [Inside] has all three in this process. A harness that knows nothing of Sagenbaum drives
// them (sagenbaum-lab bench --peers).
package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	tenant    = "default"
	handlers  = 128 // of the worker, at once
	startTime = 90 * time.Second
	stopTime  = 10 * time.Second
	retry     = 20 * time.Millisecond // between the client's tries to connect again
)

// Recorder is the harness's view of the outside world: the steps and the undos of a plan.
type Recorder interface {
	Step(plan string, n int) (output string, err error) // n is 1 or more; the last one fails
	Undo(plan string, n int) (output string)
	Fired(id string, dueMs int64) // a timer
}

// program is an agent and a worker.
type program struct {
	world  Recorder
	agent  *nats.Conn
	work   *nats.Conn
	plans  *coordinator.Coordinator
	worker *worker.Worker
}

// Peer runs one server and one agent. Its methods are those that the harness asks for.
type Peer struct {
	program
	binary, version string

	dir     string
	address string
	server  *exec.Cmd
	exited  chan struct{} // closed when the server has ended
}

// New is a peer that starts this server binary, of a version that is only named.
func New(binary, version string, world Recorder) *Peer {
	return &Peer{binary: binary, version: version, program: program{world: world}}
}

// Info names the system and what its acknowledgements promise.
func (p *Peer) Info() (peer, version, variant, durability string) {
	return "sagenbaum", p.version, "serve,defaults",
		"JetStream file stream, sync-always (an fsync before each acknowledgement)"
}

// Start starts server, agent and worker on a folder.
func (p *Peer) Start(ctx context.Context, dir string) error {
	p.dir = dir
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}
	if err := p.Restart(ctx); err != nil {
		return err
	}
	return p.begin(p.connect)
}

// begin begins agent and worker.
func (p *program) begin(connect func(name string) (*nats.Conn, error)) (err error) {
	if p.agent, err = connect("agent"); err != nil {
		return err
	}
	if p.work, err = connect("worker"); err != nil {
		return err
	}
	p.worker, err = worker.New(worker.Config{Conn: p.work, Tenant: tenant, Name: "bench",
		Concurrency: handlers})
	if err != nil {
		return err
	}
	if err := p.worker.Handle("step.undo", p.undo); err != nil {
		return err
	}
	if err := p.worker.Handle("timer.fire", p.fire); err != nil {
		return err
	}
	p.plans, err = coordinator.New(coordinator.Config{Conn: p.agent, Tenant: tenant, Agent: "bench",
		Contracts: contracts()})
	return err
}

func (p *Peer) connect(name string) (*nats.Conn, error) {
	creds := filepath.Join(p.dir, "data", "auth", "local.creds")
	options, _, err := connect.File(creds, tenant)
	if err != nil {
		return nil, err
	}
	return nats.Connect(p.URL(), append(options, nats.Name(name), nats.MaxReconnects(-1),
		nats.ReconnectWait(retry), nats.ReconnectJitter(0, 0))...)
}

func contracts() []contract.Contract {
	return []contract.Contract{
		{Capability: "step.do", Class: contract.Compensable, Inverse: &contract.Inverse{
			Call: "step.undo", With: map[string]any{"saga": "=output.saga", "step": "=output.step"}}},
		{Capability: "timer.arm", Class: contract.Compensable, Inverse: &contract.Inverse{
			Call: "timer.fire", With: map[string]any{"id": "=input.id", "due": "=input.due"}}},
	}
}

type step struct {
	Saga string `json:"saga,omitempty"`
	Step int    `json:"step"`
}

type timer struct {
	ID  string `json:"id"`
	Due int64  `json:"due"` // unix ms
}

func (p *program) undo(_ context.Context, c api.Command) (worker.Result, error) {
	var in step
	if err := json.Unmarshal(c.Arguments, &in); err != nil {
		return worker.Result{}, err
	}
	return worker.Result{Output: json.RawMessage(p.world.Undo(in.Saga, in.Step))}, nil
}

func (p *program) fire(_ context.Context, c api.Command) (worker.Result, error) {
	var in timer
	if err := json.Unmarshal(c.Arguments, &in); err != nil {
		return worker.Result{}, err
	}
	p.world.Fired(in.ID, in.Due)
	return worker.Result{}, nil
}

// Plan takes the steps of one plan until one fails, and waits until the others are undone.
func (p *program) Plan(ctx context.Context, id string) error {
	plan, err := p.plans.Begin(ctx, coordinator.PlanSpec{ID: id})
	if err != nil {
		return err
	}
	var refused error
	for n := 1; refused == nil; n++ {
		_, err := plan.Do(ctx, coordinator.Action{Capability: "step.do", Input: step{Step: n}},
			func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
				output, err := p.world.Step(id, n)
				if err != nil {
					refused = err
					return coordinator.Outcome{}, coordinator.NotTaken(err)
				}
				return coordinator.Outcome{Output: json.RawMessage(output)}, nil
			})
		if err != nil && !errors.Is(err, refused) {
			return err
		}
	}
	if err := plan.Fail(ctx, refused.Error()); err != nil {
		return err
	}
	end, err := plan.Wait(ctx)
	if err == nil && end.State != ledger.StateCompensated {
		err = fmt.Errorf("plan %s ended %s", id, end.State)
	}
	return err
}

// Timer is a plan with a deadline that holds one action: its undo is the timer's call.
func (p *program) Timer(ctx context.Context, id string, due time.Time) error {
	plan, err := p.plans.Begin(ctx, coordinator.PlanSpec{ID: id, DeadlineAt: due})
	if err != nil {
		return err
	}
	_, err = plan.Do(ctx,
		coordinator.Action{Capability: "timer.arm", Input: timer{id, due.UnixMilli()}},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, nil
		})
	return err
}

// TimerNote says what a timer is here.
func (p *program) TimerNote() string {
	return "a plan with a deadline that holds one action; fired is the call of its undo in the " +
		"worker (deadline fired, unwind started and dispatch recorded durably before it)"
}

// URL is where the server listens.
func (p *Peer) URL() string { return "nats://" + p.address }

// Roots are the process ids of the servers.
func (p *Peer) Roots() []int {
	if p.server == nil {
		return nil
	}
	return []int{p.server.Process.Pid}
}

// Disk splits the bytes of the server's folder by store.
func (p *Peer) Disk() map[string]int64 { return sizes(filepath.Join(p.dir, "data")) }

// sizes splits the bytes of a folder of all data by store.
func sizes(root string) map[string]int64 {
	sizes := map[string]int64{}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // gone since
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		relative, _ := filepath.Rel(root, path)
		parts := strings.Split(relative, string(filepath.Separator))
		name := parts[0]
		if len(parts) > 2 && name == "executor" {
			name = parts[1]
		}
		sizes[name] += info.Size()
		return nil
	})
	return sizes
}

// Kill9 kills the server.
func (p *Peer) Kill9() {
	_ = p.server.Process.Kill()
	<-p.exited
}

// Restart starts the server on the folder, and returns when it is ready.
func (p *Peer) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	server := exec.Command(p.binary, "serve", "--data", filepath.Join(p.dir, "data"), "--listen",
		p.address, "--console", "127.0.0.1:0", "-o", "json")
	log, err := os.Create(filepath.Join(p.dir, "server.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	server.Stderr = log
	said, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	ready, exited := make(chan struct{}), make(chan struct{})
	go func() { // ends with the server
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if ready != nil && strings.Contains(lines.Text(), `"ready_ms"`) {
				close(ready)
				ready = nil
			}
		}
		_ = server.Wait()
		close(exited)
	}()
	p.server, p.exited = server, exited
	select {
	case <-ready:
		return nil
	case <-exited:
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("the server ended: %s", text)
	case <-ctx.Done():
		return fmt.Errorf("the server is not ready: %w", ctx.Err())
	}
}

// Stop ends agent, worker and server.
func (p *Peer) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	p.end(ctx)
	if p.server == nil {
		return
	}
	_ = p.server.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.Kill9()
	}
}

// end ends agent and worker.
func (p *program) end(ctx context.Context) {
	if p.plans != nil {
		_ = p.plans.Close(ctx)
	}
	if p.worker != nil {
		_ = p.worker.Close(ctx)
	}
	for _, c := range []*nats.Conn{p.agent, p.work} {
		if c != nil {
			c.Close()
		}
	}
}

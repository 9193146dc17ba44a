package peer

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host"
)

// Inside is server, agent and worker in this process, as a library: host.Start with its defaults.
type Inside struct {
	program
	version string
	dir     string
	local   *host.Local
}

// NewInside is one of a version that is only named.
func NewInside(version string, world Recorder) *Inside {
	return &Inside{version: version, program: program{world: world}}
}

// Embedded says that there is no other process.
func (p *Inside) Embedded() bool { return true }

// Info names the system and what its acknowledgements promise.
func (p *Inside) Info() (peer, version, variant, durability string) {
	return "sagenbaum", p.version, "in process,defaults",
		"JetStream file stream, sync-always (an fsync before each acknowledgement)"
}

// Start starts all on a folder.
func (p *Inside) Start(ctx context.Context, dir string) (err error) {
	p.dir = filepath.Join(dir, "data")
	if p.local, err = host.Start(ctx, host.LocalConfig{Dir: p.dir}); err != nil {
		return err
	}
	return p.begin(func(name string) (*nats.Conn, error) { return p.local.Connect(nats.Name(name)) })
}

// Roots are the process ids of servers: there are none.
func (p *Inside) Roots() []int { return nil }

// Disk splits the bytes of the folder by store.
func (p *Inside) Disk() map[string]int64 { return sizes(p.dir) }

// Kill9 is not for a system in this process: the harness kills a copy of itself.
func (p *Inside) Kill9() {}

// Restart is not for a system in this process, either.
func (p *Inside) Restart(context.Context) error {
	return errors.New("a system in this process is started again with it")
}

// Stop ends all.
func (p *Inside) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	p.end(ctx)
	if p.local != nil {
		_ = p.local.Close()
	}
}

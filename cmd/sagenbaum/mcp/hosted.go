package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// hosted is a server of a client's configuration whose undos a host serves in its own process, as
// `sagenbaum mcp worker` does in one of its own.
type hosted struct {
	entry   entry
	file    string
	gateway *cli.Settings // how its gateway reaches the ledger
	undo    string        // capability

	// remembered is true for one of a folder of states: its undos are left to a gateway that runs,
	// whose server is started already. The lock of the server has them come one after the other.
	remembered bool
}

// Host returns what serves the undos of the servers in files of clients, and of those whose
// gateways a folder of states remembers, each in the tenant that its gateway records in, until its
// context ends; then it finishes those under way. What cannot be served is in the log, and keeps
// neither the host nor the others from working. A file that changes is read again; what one that
// cannot be read said before still holds.
func Host(files []string) serve.UndosRun {
	return func(ctx context.Context, conn func(tenant string) (*nats.Conn, error), log *slog.Logger) {
		r := &reading{conn: conn, log: log}
		for _, file := range files {
			if at, err := filepath.EvalSymlinks(file); err == nil && isFolder(at) {
				file = at
			}
			if !slices.Contains(r.files, file) {
				r.files = append(r.files, file)
			}
		}
		defer r.end()
		for r.look(ctx); cli.Pause(ctx, hostedLook); r.look(ctx) {
		}
	}
}

// reading is what a host knows of its files.
type reading struct {
	files []string
	conn  func(tenant string) (*nats.Conn, error)
	log   *slog.Logger

	stamps  map[string]string // of what was read, from before that; nil: nothing was
	running []*runs
	refused map[string]bool // what was said of those that are not served
	again   time.Time       // when those are tried again; zero: there are none
}

// runs is a server whose undos are served.
type runs struct {
	hosted
	stop  context.CancelFunc
	ended chan struct{}
}

// end returns once the undos under way are finished.
func (r *runs) end() {
	r.stop()
	<-r.ended
}

// end returns once the undos of all servers that are under way are finished.
func (r *reading) end() {
	for _, now := range r.running {
		now.stop()
	}
	for _, now := range r.running {
		now.end()
	}
}

// look reads the files where one of them has changed, or a pack that they name.
func (r *reading) look(ctx context.Context) {
	before := map[string]string{}
	for _, file := range r.files {
		before[file] = stampOf(file)
	}
	for file := range r.stamps {
		if _, ok := before[file]; !ok {
			before[file] = stampOf(file)
		}
	}
	if maps.Equal(before, r.stamps) && (r.again.IsZero() || time.Now().Before(r.again)) {
		return
	}
	list, looked, unread := r.read()
	r.stamps = map[string]string{}
	for _, file := range looked {
		stamp, ok := before[file]
		if !ok {
			stamp = stampOf(file)
		}
		r.stamps[file] = stamp
	}
	var kept []*runs
	for _, now := range r.running {
		i := slices.IndexFunc(list, func(h hosted) bool { return h.is(now.hosted) })
		switch {
		case i >= 0:
			list = slices.Delete(list, i, i+1)
			kept = append(kept, now)
		case unread[now.file] && !slices.ContainsFunc(list, now.undoesAs):
			kept = append(kept, now)
		default:
			r.log.Info("the undos of an MCP server are not served any more: its configuration has "+
				"changed", "file", now.file, "server", now.entry.name)
			now.end()
		}
	}
	for _, h := range list {
		within, stop := context.WithCancel(ctx)
		now := &runs{hosted: h, stop: stop, ended: make(chan struct{})}
		go func() { // ends with within
			defer close(now.ended)
			h.run(within, r.conn, r.log)
		}()
		kept = append(kept, now)
	}
	r.running = kept
}

// undoesAs reports whether the undos of two servers have one name, in one tenant.
func (h hosted) undoesAs(other hosted) bool {
	return h.undo == other.undo && h.gateway.Tenant == other.gateway.Tenant
}

// is reports whether two servers are the same, and their gateways record in the same place.
func (h hosted) is(other hosted) bool {
	a, b := h.gateway, other.gateway
	return h.file == other.file && h.undoesAs(other) &&
		a.Server == b.Server && a.Creds == b.Creds &&
		reflect.DeepEqual(h.entry.config, other.entry.config)
}

func isFolder(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.IsDir()
}

// stampOf changes where a file does.
func stampOf(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return err.Error()
	}
	if info.IsDir() { // other files in it change all the time
		stamp := ""
		for _, kept := range started.Files(file) {
			stamp += kept + " " + stampOf(kept) + "\n"
		}
		return stamp
	}
	return fmt.Sprint(info.Mode(), info.Size(), info.ModTime().UnixNano())
}

// read reads the files. looked are those that say what there is, and unread those that cannot be
// read. What is not served is said once, and read again after a while: what it lacks may come.
func (r *reading) read() (list []hosted, looked []string, unread map[string]bool) {
	said := r.refused
	r.refused, r.again = map[string]bool{}, time.Time{}
	bad := func(file, server string, err error) {
		key := fmt.Sprint(file, " ", server, " ", err)
		r.refused[key], r.again = true, time.Now().Add(hostedAgain)
		if said[key] {
			return
		}
		var f *cli.Failure
		next := ""
		if errors.As(err, &f) {
			next = f.Hint
		}
		r.log.Error("the undos of an MCP server are not served", "file", file, "server", server,
			"cause", err, "next", next)
	}
	unread = map[string]bool{}
	var some []hosted // remembered
	for _, file := range r.files {
		looked = append(looked, file)
		if isFolder(file) {
			kept, files := rememberedIn(file, bad)
			some, looked = append(some, kept...), append(looked, files...)
			continue
		}
		o := &options{file: file, flag: "--mcp"}
		entries, err := o.read(nil)
		if err != nil {
			unread[file] = true
			bad(file, "", err)
			continue
		}
		for _, e := range entries {
			looked = append(looked, e.files()...)
			h := hosted{entry: e, file: file}
			if err := h.plan(o); err != nil {
				bad(file, e.name, err)
			} else {
				list = append(list, h)
			}
		}
	}
	list = distinct(list, bad)
	if over := list[min(len(list), mcp.ServersMax):]; len(over) > 0 {
		for _, h := range over {
			bad(h.file, h.entry.name, cli.Fail(cli.ExitUsage,
				"sagenbaum mcp worker --config FILE beside it", "--mcp serves %d servers at most",
				mcp.ServersMax))
		}
		list = list[:mcp.ServersMax]
	}
	for _, h := range some {
		same := func(other hosted) bool { return other.undoesAs(h) && !other.named() }
		i := slices.IndexFunc(list, same)
		if i < 0 {
			list = append(list, h)
		} else if own, other := h.entry.config.State, list[i].entry.config.State; own != other {
			bad(h.file, h.undo, cli.Fail(cli.ExitUsage,
				"--instance NAME, another one for each, at its gateway", "its images are in %s, and those of "+
					"another gateway whose undos have its name in %s: an undo could look in the wrong one",
				own, other))
		}
	}
	return list, looked, unread
}

// plan finds out what a host needs to know of a server, without starting it.
func (h *hosted) plan(o *options) error {
	if err := h.fits(o); err != nil {
		return err
	}
	server, err := mcp.NewServer(h.entry.config)
	if err != nil {
		return err
	}
	h.undo = server.Undo()
	server.Close()
	return nil
}

// fits says why a host does not serve the undos of a server, and leaves nothing.
func (h *hosted) fits(o *options) (err error) {
	if err := h.entry.hostable(); err != nil {
		return err
	}
	if err := o.complete(&h.entry); err != nil {
		return err
	}
	if err := h.entry.keeps(); err != nil {
		return err
	}
	if h.gateway == nil {
		if h.gateway, err = h.entry.settings(new(pflag.FlagSet)); err != nil {
			return err
		}
	}
	if !ledger.ValidToken(h.gateway.Tenant) {
		return cli.Fail(cli.ExitUsage, "a tenant of "+ledger.TokenWanted,
			"mcpServers.%s: %.80q is no tenant", h.entry.name, h.gateway.Tenant)
	}
	return h.entry.config.Check()
}

// distinct leaves out what is there twice. Of servers that are not the same and whose undos have
// one name it leaves out all: an undo could reach the wrong one.
func distinct(list []hosted, bad func(file, server string, err error)) (kept []hosted) {
	for i, h := range list {
		twice := false
		var other *hosted
		for j := range list {
			switch {
			case i == j || !h.undoesAs(list[j]):
			case !reflect.DeepEqual(list[j].entry.config, h.entry.config):
				other = &list[j]
			case j < i:
				twice = true
			}
		}
		switch {
		case other != nil:
			bad(h.file, h.entry.name, cli.Fail(cli.ExitUsage,
				"--instance NAME, another one for each, at its gateway",
				"mcpServers.%s: what undoes its effects is %s, as for mcpServers.%s of %s, which is "+
					"another server: an undo could reach the wrong one", h.entry.name, h.undo,
				other.entry.name, other.file))
		case !twice:
			kept = append(kept, h)
		}
	}
	return kept
}

// run serves the undos of one server until ctx ends. One that cannot be served now is tried again.
func (h hosted) run(ctx context.Context, conn func(tenant string) (*nats.Conn, error),
	log *slog.Logger) {
	said := ""
	for wait := hostedPause; ; wait = min(2*wait, hostedPauseMax) {
		for h.leaves() && cli.Pause(ctx, hostedFree) {
		}
		if ctx.Err() != nil {
			return
		}
		served, err := h.serve(ctx, conn, log)
		if ctx.Err() != nil {
			return
		}
		if err == nil { // a gateway serves them again
			wait, said = hostedPause/2, "" // doubled by the next round
			continue
		}
		if served {
			wait, said = hostedPause, ""
		}
		if why := fmt.Sprint(err); why != said {
			said = why
			log.Error("the undos of an MCP server are not served; trying again", "file", h.file,
				"server", h.entry.name, "tenant", h.gateway.Tenant, "cause", err)
		}
		if !cli.Pause(ctx, wait) {
			return
		}
	}
}

// How long what could not be served is left alone, and a server goes on that no undo needs.
const (
	hostedPause    = time.Second
	hostedPauseMax = time.Minute
	hostedIdle     = time.Minute
	hostedFree     = time.Second / 4  // between looks whether a gateway has gone
	hostedAgain    = time.Minute      // until what is not served is read again
	hostedLook     = 2 * time.Second  // between looks whether a file has changed
	hostedEnd      = 10 * time.Second // for what is under way at the end
)

// leaves reports whether a gateway serves the undos of a server that is remembered.
func (h hosted) leaves() bool {
	return h.remembered && started.Served(h.entry.config.State, h.undo, h.gateway.Tenant)
}

// left is closed once a gateway serves the undos of a server that is remembered, or ctx ends.
func (h hosted) left(ctx context.Context) <-chan struct{} {
	if !h.remembered {
		return nil
	}
	left := make(chan struct{})
	go func() { // ends with ctx
		defer close(left)
		// Another host that asks as well looks like a gateway for a moment.
		for seen := 0; seen < 2 && cli.Pause(ctx, hostedFree); seen++ {
			if !h.leaves() {
				seen = -1
			}
		}
	}()
	return left
}

// serve serves the undos of one server until ctx ends, a gateway does, or its connection is lost,
// and reports whether it has begun to.
func (h hosted) serve(ctx context.Context, connect func(tenant string) (*nats.Conn, error),
	log *slog.Logger) (served bool, err error) {
	tenant := h.gateway.Tenant
	conn, err := connect(tenant)
	if err != nil {
		return false, fmt.Errorf("cannot connect: %w", err)
	}
	defer conn.Close()
	if err := h.isHere(conn); err != nil {
		return false, err
	}
	config := h.entry.config
	config.Logger, config.Errors = log, &said{log: log.With("server", config.Name)}
	server, err := mcp.NewServer(config)
	if err != nil {
		return false, err
	}
	defer server.Close()
	w, err := mcp.NewWorker(ctx, mcp.WorkerConfig{Conn: conn, Tenant: tenant, Name: "mcp-host",
		Servers: []*mcp.Server{server}, Logger: log, Idle: hostedIdle})
	if err != nil {
		return false, err
	}
	log.Info("serving the undos of an MCP server", "server", server.Name(), "tenant", tenant,
		"capability", server.Undo())
	looking, stop := context.WithCancel(ctx)
	defer stop()
	select {
	case <-ctx.Done():
	case <-w.Lost():
		err = w.Err()
	case <-h.left(looking):
		log.Info("the undos of an MCP server are left to its gateway, which runs", "server",
			server.Name(), "tenant", tenant)
	}
	// What is not finished by then is asked for again, under the same key.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), hostedEnd)
	defer cancel()
	return true, errors.Join(err, w.Close(end))
}

// said puts what a server writes to stderr in the log, by lines.
type said struct {
	log  *slog.Logger
	line []byte
}

// saidMax is how much of a line is kept.
const saidMax = 4 << 10

// Write takes a part of it. It is called by one goroutine.
func (s *said) Write(text []byte) (int, error) {
	for _, b := range text {
		switch {
		case b != '\n' && len(s.line) < saidMax:
			s.line = append(s.line, b)
		case b == '\n':
			s.log.Info("an MCP server says", "text", string(s.line))
			s.line = s.line[:0]
		}
	}
	return len(text), nil
}

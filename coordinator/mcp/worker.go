package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
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

// placeFile is where a folder of states has its name.
const placeFile = "place"

// place is the name of a folder of states, made at random with it: hosts and users have folders of
// their own, and data of their own, whatever they and their commands are called.
func place(state string) (string, error) {
	path := filepath.Join(state, placeFile)
	name, err := os.ReadFile(path)
	if err == nil || !os.IsNotExist(err) {
		return string(name), err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the folder of a server: %w", err)
	}
	draft, err := os.CreateTemp(state, "place-")
	if err != nil {
		return "", fmt.Errorf("cannot name the folder of a server: %w", err)
	}
	defer os.Remove(draft.Name())
	_, err = draft.WriteString(rand.Text())
	if err = errors.Join(err, draft.Sync(), draft.Close()); err == nil {
		err = os.Link(draft.Name(), path)
	}
	if err != nil && !os.IsExist(err) { // another process was first
		return "", fmt.Errorf("cannot name the folder of a server: %w", err)
	}
	name, err = os.ReadFile(path)
	return string(name), err
}

// unnamed is the place of a folder that no gateway or worker has used.
const unnamed = "unnamed"

// SamePlace gives the folder to, which is empty, the name that the folder from has, so that servers
// with it have the same Undo; it need not have one. Errors: those of the file system.
func SamePlace(to, from string) error {
	name, err := os.ReadFile(filepath.Join(from, placeFile))
	if err != nil {
		name = []byte(unnamed)
	}
	if err := os.WriteFile(filepath.Join(to, placeFile), name, 0o600); err != nil {
		return fmt.Errorf("cannot name a folder: %w", err)
	}
	return nil
}

// instance names a server by the place of its states, its command line, and the variables and
// folders that say which data it works on. lock is the name without the folders, which say where
// its undos work: what else it works on may be one thing.
func (c ServerConfig) instance(place string, packs []Pack) (name, lock string) {
	parts := append([]string{place, cmp.Or(c.Command, c.URL)}, c.Args...)
	for i, part := range parts {
		if i > 1 {
			parts[i] = resolved(part)
		}
	}
	for _, name := range sortedKeys(c.Env) {
		parts = append(parts, name+"="+c.Env[name])
	}
	environment := map[string]string{}
	if c.URL == "" { // else it has one of its own
		environment = environmentOf(packs, c.environment(os.Environ()))
	}
	for _, name := range sortedKeys(environment) {
		if _, given := c.Env[name]; !given {
			parts = append(parts, name+"="+environment[name])
		}
	}
	lock = c.named(parts)
	var roots []string
	for _, root := range c.Roots {
		roots = append(roots, "--root="+resolved(root))
	}
	slices.Sort(roots)
	return c.named(append(parts, slices.Compact(roots)...)), lock
}

func (c ServerConfig) named(parts []string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return c.Name[:min(len(c.Name), 40)] + "-" + hex.EncodeToString(sum[:4])
}

// resolved is an argument, with the folder that it names resolved.
func resolved(argument string) string {
	if at, ok := folder(argument); ok {
		return at
	}
	return argument
}

// folder resolves an argument that is a folder; a server reads ~ itself, since no shell does.
func folder(argument string) (string, bool) {
	argument = files.Home(argument)
	if info, err := os.Stat(argument); err != nil || !info.IsDir() {
		return "", false
	}
	absolute, err := filepath.Abs(argument)
	if err == nil {
		absolute, err = filepath.EvalSymlinks(absolute)
	}
	return absolute, err == nil
}

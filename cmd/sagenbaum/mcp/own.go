package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/webclient"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// A gateway needs a server, and whoever puts one line into a client's configuration has started
// none. So where none was named and none runs, the gateway starts `sagenbaum serve` as this user,
// where every command looks for it. It is a process of its own: other gateways share it, and what
// was done can be undone when all of them are gone.

const startOff = "off" // of --start: none is started

// startDefault is where every command looks for a server.
var startDefault = strings.TrimPrefix(connect.ServerDefault, "nats://")

const (
	ownWait  = 30 * time.Second // that a server may take until it lets its user in
	lostWait = 5 * time.Second  // for the one of another gateway, where ours has ended
	ownPause = 100 * time.Millisecond

	keepWait    = time.Second // that a server may be away before it is started again
	keepWaitMax = time.Minute // likewise, where it has not helped
)

// checkStart refuses what --start cannot be.
func (o *options) checkStart() error {
	if o.start == startOff {
		return nil
	}
	host, port, err := net.SplitHostPort(o.start)
	if err != nil || port == "0" || !webclient.OnThisMachine(host) {
		return cli.Fail(cli.ExitUsage, "--start "+startDefault+", or --start "+startOff,
			"--start cannot be %.80q", o.start)
	}
	return nil
}

// reach connects to the server that was named, else to that of this user, which it starts where
// none runs.
func (o *options) reach(cmd *cobra.Command, s *cli.Settings, log *slog.Logger) (*nats.Conn, error) {
	if o.named = s.Told(); o.named || o.start == startOff {
		return o.connect(s)
	}
	s.Server = "nats://" + o.start
	again := func() (*nats.Conn, error) {
		s.Creds = "" // of an earlier server at this address, perhaps
		if err := s.Recall(cmd); err != nil {
			return nil, err
		}
		return o.connect(s)
	}
	conn, err := again()
	late := time.Now().Add(lostWait)
	var failure *cli.Failure
	for errors.As(err, &failure) && failure.Code == cli.ExitNotAllowed && o.ownRuns() &&
		time.Now().Before(late) { // another gateway has just started it
		if !pause.For(cmd.Context(), ownPause) {
			return nil, cmd.Context().Err()
		}
		conn, err = again()
	}
	if !errors.As(err, &failure) || failure.Code != cli.ExitNoServer {
		return conn, err
	}
	own, err := o.startOwn(s)
	if err != nil {
		return nil, err
	}
	log.Warn("no server was named and none ran, so one was started, which stays", "server", s.Server,
		"data", own.data, "log", own.log, "pid", own.pid)
	return own.reached(cmd.Context(), again)
}

// ownMark is a file that names the process of a server at an address which a gateway of this user
// has started. Each has one of its own: of two gateways that start one at the same time, the server
// of one ends at once, and must not hide that of the other.
func ownMark(state, address, pid string) string {
	return filepath.Join(state, "serve-"+token(address)+"."+pid+".pid")
}

// marked starts a server with a mark. Until that is there this process has one: the server may
// serve before whoever started it runs again, and must not be taken for someone else's.
func marked(state, address string, start func() (*os.Process, error)) (int, error) {
	starting := ownMark(state, address, strconv.Itoa(os.Getpid()))
	err := os.WriteFile(starting, nil, 0o600)
	if err != nil {
		return 0, err
	}
	defer os.Remove(starting)
	server, err := start()
	if err != nil {
		return 0, err
	}
	err = os.WriteFile(ownMark(state, address, strconv.Itoa(server.Pid)), nil, 0o600)
	if err != nil {
		_ = server.Kill() // no gateway would know that it may start it again
	}
	return server.Pid, err
}

// ownRuns reports whether the server at the address of --start is one that gateways have started.
func (o *options) ownRuns() bool {
	state, err := started.Dir("")
	if err != nil {
		return false
	}
	marks, err := filepath.Glob(ownMark(filepath.Dir(state), o.start, "*"))
	return err == nil && slices.ContainsFunc(marks, markedRuns)
}

// markedRuns reports whether the process of a mark runs. The mark of one that has ended is removed.
func markedRuns(mark string) bool {
	name := strings.TrimSuffix(mark, ".pid")
	pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(name), "."))
	if err != nil {
		return false // no gateway has written it
	}
	process, err := os.FindProcess(pid)
	if err == nil && process.Signal(syscall.Signal(0)) == nil {
		return true
	}
	_ = os.Remove(mark) // that it stays does no harm
	return false
}

// keep starts the server again where it ends while this gateway runs, as after kill -9: its calls
// and its undos need one. A server that someone else has started is theirs to start again. It ends
// with ctx.
func (o *options) keep(ctx context.Context, s *cli.Settings, conn *nats.Conn, log *slog.Logger) {
	if o.named || o.start == startOff {
		return
	}
	changes := conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
	own, wait := false, keepWait
	for !conn.IsClosed() {
		if conn.IsConnected() {
			own, wait = o.ownRuns(), keepWait
		}
		if conn.IsConnected() || !own {
			select {
			case <-changes:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !pause.For(ctx, wait) {
			return
		}
		if conn.IsConnected() || listens(o.start) {
			continue
		}
		wait = min(2*wait, keepWaitMax)
		next, err := o.startOwn(s)
		if err != nil {
			log.Error("the server has ended, and cannot be started again", "server", s.Server, "error", err)
			continue
		}
		log.Warn("the server has ended, and was started again", "server", s.Server, "data", next.data,
			"log", next.log, "pid", next.pid)
	}
}

// listens reports whether something does at an address.
func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, keepWait)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was said
	return true
}

// ownServer is a server that was started.
type ownServer struct {
	data, log string
	pid       int
	ended     chan struct{} // closed when it has
}

// startOwn starts a server that outlives this process, in its own session and without the
// environment of the client, which may have secrets of other servers. It undoes what gateways of
// this user have done.
func (o *options) startOwn(s *cli.Settings) (own *ownServer, err error) {
	fail := func(err error) error {
		return cli.Fail(cli.ExitNoServer, "sagenbaum serve, or --server URL of one that runs",
			"no server at %s, and none can be started: %v", cli.Shown(s.Server), err)
	}
	gateways, err := started.Dir("")
	if err != nil {
		return nil, fail(err)
	}
	state := filepath.Dir(gateways)
	own = &ownServer{data: ownData(s.Server, state), log: filepath.Join(state, "serve.log"),
		ended: make(chan struct{})}
	if err := os.MkdirAll(gateways, 0o700); err != nil {
		return nil, fail(err)
	}
	log, err := os.OpenFile(own.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fail(err)
	}
	defer log.Close() // the server has its own
	program, err := os.Executable()
	if err != nil {
		return nil, fail(err)
	}
	child := exec.Command(program, "serve", "--data", own.data, "--listen", o.start,
		"--tenant", s.Tenant, "--mcp", gateways)
	child.Dir, child.Stdout, child.Stderr, child.Env = state, log, log, ownEnvironment()
	detach(child)
	own.pid, err = marked(state, o.start, func() (*os.Process, error) {
		err := child.Start()
		return child.Process, err
	})
	if err != nil {
		return nil, fail(err)
	}
	go func() { // ends with the server, or with this process
		_ = child.Wait() // its log says why
		close(own.ended)
	}()
	return own, nil
}

// ownData is the folder of a server of this user at this address, else a new one.
func ownData(server, state string) string {
	if data, ok := connect.DataOf(server); ok {
		return data
	}
	return filepath.Join(state, "data")
}

// ownEnvironment is what a server needs of the environment.
func ownEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		for _, prefix := range []string{"XDG_", "LC_", "SAGENBAUM_"} {
			if strings.HasPrefix(name, prefix) {
				return false
			}
		}
		return !slices.Contains([]string{"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG",
			"SystemRoot", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP"}, name)
	})
}

// reached connects once the server lets its user in: ours, or that of a gateway that was faster.
func (own *ownServer) reached(ctx context.Context,
	connect func() (*nats.Conn, error)) (*nats.Conn, error) {
	late, ended := time.Now().Add(ownWait), own.ended
	for {
		conn, err := connect()
		if err == nil {
			return conn, nil
		}
		select {
		case <-ended:
			late, ended = time.Now().Add(lostWait), nil
		default:
		}
		if !pause.For(ctx, ownPause) {
			return nil, ctx.Err()
		}
		if time.Now().After(late) {
			return nil, cli.Fail(cli.ExitNoServer, "sagenbaum serve --data "+own.data+" by hand, or "+
				"--server URL of one that runs", "the server that was started does not serve: %v; its log "+
				"ends with: %s", err, own.lastWords())
		}
	}
}

// lastWordsMax bounds what is shown of a log, in bytes.
const lastWordsMax = 400

// lastWords is the end of the server's log.
func (own *ownServer) lastWords() string {
	file, err := os.Open(own.log)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		_, err = file.Seek(max(size-lastWordsMax, 0), io.SeekStart)
		if err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	return cli.Printable(string(bytes.TrimSpace(text)))
}

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/executor/host/inprocess"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// logText is the format of the log for people.
const logText = "text"

func newLog(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == cli.OutputJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Watching is what `serve` tells those who watch it: numbers, health, traces. It
// outlives the embedded server, which may be started again.
type Watching struct {
	address string   // of --metrics; empty: nothing listens
	names   []string // of --metrics-name

	metrics *observe.Metrics
	traces  *traces
	running atomic.Pointer[host.Host] // nil: none runs now
	// degraded are the tenants while none can run; nil: it is only about to.
	degraded atomic.Pointer[[]host.TenantHealth]
	bound    string // address that is listened on
}

func (w *Watching) flags(cmd *cobra.Command) {
	const name = "another host `NAME` that --metrics answers to, besides addresses, localhost and " +
		"the name of this machine; may be given more than once"
	cmd.Flags().StringArrayVar(&w.names, "metrics-name", nil, name)
	cmd.Flags().StringVar(&w.address, "metrics", "",
		"`HOST:PORT` for /metrics (Prometheus), /healthz and /readyz; port 0 takes a free one; "+
			"default none")
}

func (w *Watching) check() error {
	if w.address == "" && len(w.names) > 0 {
		return cli.Fail(cli.ExitUsage, "--metrics HOST:PORT, too",
			"--metrics-name is for --metrics")
	}
	if w.address == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(w.address); err != nil || port == "" {
		return cli.Fail(cli.ExitUsage, "--metrics 127.0.0.1:9464", "%q is no address for --metrics",
			w.address)
	}
	return nil
}

// answersTo reports whether a request may name this host. Addresses are no names: a page
// whose name is made to point here (DNS rebinding) names itself.
func (w *Watching) answersTo(host string) bool {
	if only, _, err := net.SplitHostPort(host); err == nil {
		host = only
	}
	host = strings.TrimSuffix(host, ".")
	if net.ParseIP(strings.Trim(host, "[]")) != nil || host == "localhost" {
		return true
	}
	listened, _, _ := net.SplitHostPort(w.address)
	own, _ := os.Hostname()
	short, _, _ := strings.Cut(own, ".")
	for _, name := range append([]string{listened, own, short}, w.names...) {
		if name != "" && strings.EqualFold(name, host) {
			return true
		}
	}
	return false
}

// named lets requests through that name this host.
func (w *Watching) named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if !w.answersTo(r.Host) {
			const text = "it does not answer to that name; serve --metrics-name NAME makes it"
			http.Error(out, text, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(out, r)
	})
}

const (
	readHeaderMax = 5 * time.Second
	writeMax      = 30 * time.Second
	closeMax      = 2 * time.Second
)

// start listens for as long as `serve` runs; stop ends it.
func (w *Watching) start(v *serving, log *slog.Logger) (stop func(), err error) {
	if w.traces, err = tracesFromEnvironment(log); err != nil {
		return nil, err
	}
	if w.address == "" {
		return w.traces.stop, nil
	}
	disks := []observe.Disk{{Store: "state", Dir: inprocess.StateDir(v.data)}}
	if v.tiles != "" {
		disks = append(disks, observe.Disk{Store: "tiles", Dir: v.tiles})
	}
	if v.external == "" {
		disks = append(disks, observe.Disk{Store: "ledger", Dir: inprocess.ServerDir(v.data)})
	}
	w.metrics = observe.NewMetrics(disks...)
	listener, err := net.Listen("tcp", w.address)
	if err != nil {
		w.traces.stop()
		return nil, cli.Fail(cli.ExitFailed, "--metrics 127.0.0.1:0 takes a free port",
			"cannot listen for --metrics: %v", err)
	}
	w.bound = listener.Addr().String()
	if ip := listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		log.Warn("--metrics is not on loopback: whoever reaches it reads the names of tenants "+
			"and how much they do", "address", w.bound)
	}
	server := &http.Server{Handler: w.handler(), ReadHeaderTimeout: readHeaderMax,
		WriteTimeout: writeMax, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() { // ends with stop
		if err := server.Serve(listener); err != http.ErrServerClosed {
			log.Error("--metrics is no longer served", "cause", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeMax)
		defer cancel()
		_ = server.Shutdown(ctx) // scrapes that take longer are cut off
		_ = server.Close()
		w.traces.stop()
	}, nil
}

func (w *Watching) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", w.metrics.Handler())
	mux.HandleFunc("GET /healthz",
		func(out http.ResponseWriter, _ *http.Request) { WriteHealth(out, health{OK: true}) })
	mux.HandleFunc("GET /readyz",
		func(out http.ResponseWriter, _ *http.Request) { WriteHealth(out, w.Health()) })
	return w.named(mux)
}

// health is the answer of /readyz: OK when all tenants are known, and each is held, here or
// elsewhere, and its decisions are not held back by a guard. /healthz answers while the process
// does, and says nothing of tenants: starting it again would help none of them.
type health struct {
	OK      bool                `json:"ok"`
	Tenants []host.TenantHealth `json:"tenants,omitempty"`
}

// Health is what /readyz answers.
func (w *Watching) Health() health {
	h := w.running.Load()
	if degraded := w.degraded.Load(); h == nil && degraded != nil {
		return health{Tenants: *degraded}
	}
	if h == nil {
		return health{}
	}
	var answer health
	select {
	case <-h.Ready():
		answer.OK = true
	default: // there may be tenants that it does not know yet
	}
	answer.Tenants = h.Health() // after that, so that none is missing
	for _, t := range answer.Tenants {
		answer.OK = answer.OK && t.Held
	}
	return answer
}

// WriteHealth answers with the health as JSON; status 503 where it is not good.
func WriteHealth(out http.ResponseWriter, h health) {
	out.Header().Set("Content-Type", "application/json")
	if !h.OK {
		out.WriteHeader(http.StatusServiceUnavailable)
	}
	body, err := json.Marshal(h)
	if err != nil {
		panic("sagenbaum: cannot encode health: " + err.Error())
	}
	fmt.Fprintf(out, "%s\n", body)
}

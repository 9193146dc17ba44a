package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host"
)

// logText is the format of the log for people.
const logText = "text"

func newLog(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == outputJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// watching is what `serve` tells those who watch it: numbers, health, traces. It
// outlives the embedded server, which may be started again.
type watching struct {
	address string // of --metrics; empty: nothing listens

	metrics *host.Metrics
	traces  *traces
	running atomic.Pointer[host.Host] // nil: none runs now
	bound   string                    // address that is listened on
}

func (w *watching) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.address, "metrics", "", "`HOST:PORT` for /metrics (Prometheus), /healthz and /readyz; port 0 takes a free one; default none")
}

func (w *watching) check() error {
	if w.address == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(w.address); err != nil || port == "" {
		return fail(exitUsage, "--metrics 127.0.0.1:9464", "%q is no address for --metrics", w.address)
	}
	return nil
}

const (
	readHeaderMax = 5 * time.Second
	writeMax      = 30 * time.Second
	closeMax      = 2 * time.Second
)

// start listens for as long as `serve` runs; stop ends it.
func (w *watching) start(v *serving, log *slog.Logger) (stop func(), err error) {
	if w.traces, err = tracesFromEnvironment(log); err != nil {
		return nil, err
	}
	if w.address == "" {
		return w.traces.stop, nil
	}
	disks := []host.Disk{{Store: "state", Dir: filepath.Join(v.data, "executor")}}
	if v.tiles != "" {
		disks = append(disks, host.Disk{Store: "tiles", Dir: v.tiles})
	}
	if v.external == "" {
		disks = append(disks, host.Disk{Store: "ledger", Dir: filepath.Join(v.data, "nats")})
	}
	w.metrics = host.NewMetrics(disks...)
	listener, err := net.Listen("tcp", w.address)
	if err != nil {
		w.traces.stop()
		return nil, fail(exitFailed, "--metrics 127.0.0.1:0 takes a free port", "cannot listen for --metrics: %v", err)
	}
	w.bound = listener.Addr().String()
	if ip := listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		log.Warn("--metrics is not on loopback: whoever reaches it reads the names of tenants and how much they do", "address", w.bound)
	}
	server := &http.Server{Handler: w.handler(), ReadHeaderTimeout: readHeaderMax, WriteTimeout: writeMax, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() { // ends with stop
		if err := server.Serve(listener); err != http.ErrServerClosed {
			log.Error("nobody serves --metrics any more", "cause", err)
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

func (w *watching) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", w.metrics.Handler())
	mux.HandleFunc("GET /healthz", func(out http.ResponseWriter, _ *http.Request) { writeHealth(out, health{OK: true}) })
	mux.HandleFunc("GET /readyz", func(out http.ResponseWriter, _ *http.Request) { writeHealth(out, w.health()) })
	return mux
}

// health is the answer of /readyz: OK when every tenant is held, here or elsewhere,
// and its decisions are not held back by a guard. /healthz answers while the process
// does, and says nothing of tenants: starting it again would help none of them.
type health struct {
	OK      bool                `json:"ok"`
	Tenants []host.TenantHealth `json:"tenants,omitempty"`
}

func (w *watching) health() health {
	h := w.running.Load()
	if h == nil {
		return health{}
	}
	answer := health{OK: true, Tenants: h.Health()}
	for _, t := range answer.Tenants {
		answer.OK = answer.OK && (t.Mode == executor.ModeHolding || t.Mode == executor.ModeStandby && t.Problem != "")
	}
	return answer
}

func writeHealth(out http.ResponseWriter, h health) {
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

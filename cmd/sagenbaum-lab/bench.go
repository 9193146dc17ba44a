package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// benching is what the bench command is given.
type benching struct {
	dir         string
	each        time.Duration
	concurrency []int
	held        int
	within      time.Duration // in which the deadlines of the wakes figure fall due
	leases      []int
	rows        int
	plans       int
	only        string
	profile     string
	peers       string // folder of a harness of other systems
	rounds      int
	blobs       int
	server      string // a binary of sagenbaum; empty: found or built by serverBinary
}

func newBench() *cobra.Command {
	b := new(benching)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine: pairs, undos, fold and memory, beside its limits",
		Long: `Measures the embedded server, the executor, an agent and a worker in one
process, with sync-always and without, beside the limits of the machine in the
same run: fsyncs of the disk and raw JetStream publishes of the same bytes.
Figures vary with the machine; read them as ratios.

  pairs   registered pairs/s, and how long an agent waits for one
  undo5   a plan of 5 actions whose fifth fails: 4 compensations by a worker
  fold    folding a ledger from nothing, beside merely reading it
  held    memory and start time with many held registrations and deadlines
  leases  facts, memory and disk with many held conditions
  timescales  triggers over the traces of the Timescales benchmark, beside an oracle
  wakes   lateness of 10,000 deadlines --within a time, and what idle leases cost
  neighbours  what a quiet tenant feels of tenants with costly conditions
  limits  what a steady tenant feels of one whose clients are at its limits
  console  the first byte of its pages with many plans, and what an open page costs
  blobs   files of 1 MiB captured and restored, and the memory of server, agent and worker

With --peers, undo5 alone is measured, beside other systems: in turns, by a harness that runs
them all on the same workload. The table says the ratio to the best of them.`,
		Example: `  sagenbaum-lab bench
  sagenbaum-lab bench --only undo5 --each 5s --concurrency 1,16,128
  sagenbaum-lab bench --peers ../shared/peers --rounds 5 --each 4s`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command,
			_ []string) error {
			return runBench(cmd.Context(), cmd.OutOrStdout(), b)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&b.dir, "dir", "", "`FOLDER` on the disk to measure (default a temporary one)")
	flags.DurationVar(&b.each, "each", 3*time.Second, "how long each figure is measured")
	flags.IntSliceVar(&b.concurrency, "concurrency", []int{1, 16, 128}, "agents' calls at once")
	flags.IntVar(&b.held, "held", 100_000,
		"registrations for the held figure, held leases beside the wakes")
	flags.DurationVar(&b.within, "within", time.Second,
		"in which the 10,000 deadlines of the wakes figure fall due")
	flags.IntSliceVar(&b.leases, "leases", []int{10_000, 100_000, 1_000_000},
		"held conditions for the leases figures")
	flags.IntVar(&b.rows, "rows", 1_000_000, "rows of each trace for the timescales figure")
	flags.IntVar(&b.plans, "plans", 1_000_000, "plans of the ledger for the console figures")
	flags.IntVar(&b.blobs, "blobs", 1000, "files of the blobs figure")
	flags.StringVar(&b.profile, "cpuprofile", "", "write a CPU profile to `FILE`")
	flags.StringVar(&b.server, "sagenbaum", "",
		"`FILE` of the server binary that held and blobs start (default beside this one, else built)")
	flags.StringVar(&b.peers, "peers", "",
		"`FOLDER` of a harness of other systems, to measure undo5 beside them")
	flags.IntVar(&b.rounds, "rounds", 5,
		"rounds of all systems with --peers, and of the limits figure")
	flags.StringVar(&b.only, "only", "", strings.Join(benchParts(), ", ")+" (default all)")
	return cmd
}

// benchParts lists what can be measured by itself.
func benchParts() []string {
	return []string{"pairs", "undo5", "fold", "held", "leases", "timescales", "wakes", "neighbours",
		"limits", "console", "blobs"}
}

func (b *benching) wants(name string) bool { return b.only == "" || b.only == name }

func runBench(ctx context.Context, out io.Writer, b *benching) error {
	switch {
	case b.only != "" && !slices.Contains(benchParts(), b.only):
		return cli.Fail(cli.ExitUsage, "--only "+strings.Join(benchParts(), ", "),
			"unknown figure %q", b.only)
	case b.each <= 0 || b.within <= 0 || b.held < 1 || b.rows < 1 || b.plans < 1000 || b.rounds < 1 ||
		b.blobs < blobPlans || len(b.concurrency) == 0 ||
		slices.Min(b.concurrency) < 1 || len(b.leases) == 0 || slices.Min(b.leases) < 1000:
		return cli.Fail(cli.ExitUsage, "sagenbaum-lab bench --help",
			"durations, counts and concurrency must be positive")
	}
	dir, err := os.MkdirTemp(b.dir, "sagenbaum-bench-")
	if err != nil {
		return cli.Fail(cli.ExitFailed, "--dir FOLDER", "cannot make a folder to measure in: %v",
			err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if b.profile != "" {
		f, err := os.Create(b.profile)
		if err != nil {
			return cli.Fail(cli.ExitFailed, "--cpuprofile FILE", "cannot write the profile: %v",
				err)
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Fprintf(out, "%s/%s, %d processors, %s, in %s\n", runtime.GOOS, runtime.GOARCH,
		runtime.GOMAXPROCS(0), runtime.Version(), dir)
	if b.peers != "" {
		return benchPeers(ctx, out, b, dir)
	}
	for _, durable := range []bool{true, false} {
		if !b.wants("pairs") && !b.wants("undo5") && !b.wants("fold") {
			break // what is left needs no server, or makes its own
		}
		if err := benchMode(ctx, out, b, dir, durable); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name string
		run  func(ctx context.Context, out io.Writer, b *benching, dir string) error
	}{
		{"held", benchHeld}, {"leases", benchLeases}, {"timescales", benchTimescales},
		{"wakes", benchWakes}, {"neighbours", benchNeighbours}, {"limits", benchLimits},
		{"console", benchConsole}, {"blobs", benchBlobs},
	} {
		if !b.wants(part.name) {
			continue
		}
		if err := part.run(ctx, out, b, filepath.Join(dir, part.name)); err != nil {
			return err
		}
	}
	return nil
}

func benchMode(ctx context.Context, out io.Writer, b *benching, dir string, durable bool) error {
	name := "sync-always"
	if !durable {
		name = "no-sync"
	}
	fmt.Fprintf(out, "\n%s\n", name)
	if b.wants("pairs") {
		if err := benchPairs(ctx, out, b, filepath.Join(dir, name+"-pairs"), durable); err != nil {
			return err
		}
	}
	if b.wants("undo5") {
		if err := benchUndo(ctx, out, b, filepath.Join(dir, name+"-undo"), durable); err != nil {
			return err
		}
	}
	if b.wants("fold") && !durable {
		return benchFold(ctx, out, b, filepath.Join(dir, name+"-fold"))
	}
	return nil
}

// bench is one server with an executor, as serve runs it, and connections to it.
type bench struct {
	dir     string
	tenants []string
	follow  bool // the executor follows the control stream
	server  *embedded.Server
	conn    *nats.Conn // of the executor, in process
	client  *nats.Conn // of agents and workers, over loopback
	host    *host.Host
	stop    context.CancelFunc
	done    chan error
}

const benchTenant = "bench"

// startBench starts a server and an executor for tenants, by default benchTenant.
func startBench(ctx context.Context, dir string, durable bool, tenants ...string) (*bench, error) {
	if len(tenants) == 0 {
		tenants = []string{benchTenant}
	}
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Port: -1,
		NoSync: !durable})
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, tenants: tenants, server: server}
	if b.conn, err = server.Connect(); err != nil {
		server.Close()
		return nil, err
	}
	if b.client, err = nats.Connect(server.URL()); err != nil {
		b.close()
		return nil, err
	}
	if err := b.startHost(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// startHost runs an executor until stopHost.
func (b *bench) startHost(ctx context.Context) error {
	h, err := host.New(host.Config{
		Conn: b.conn, Tenants: b.tenants, Follow: b.follow, Dir: filepath.Join(b.dir, "executor"),
		DurableServer: b.server.DurableID(), AcceptLossyBroker: b.server.DurableID() == "",
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	b.host, b.stop, b.done = h, cancel, make(chan error, 1)
	go func() { b.done <- h.Run(ctx) }()
	select {
	case <-h.Ready():
		return nil
	case err := <-b.done:
		b.done <- err
		return fmt.Errorf("the executor ended at once: %w", err)
	}
}

func (b *bench) stopHost() error {
	if b.host == nil {
		return nil
	}
	b.stop()
	err := <-b.done
	if err2 := b.host.Close(); err == nil {
		err = err2
	}
	b.host = nil
	return err
}

func (b *bench) close() {
	_ = b.stopHost()
	if b.client != nil {
		b.client.Close()
	}
	b.conn.Close()
	b.server.Close()
}

// rate is how often something was done, and how long each took.
type rate struct {
	took  []time.Duration
	total time.Duration
}

func (r rate) perSecond() float64 { return float64(len(r.took)) / r.total.Seconds() }

// quantile returns the q-quantile of the times; r.took is sorted by measure.
func (r rate) quantile(q float64) time.Duration {
	if len(r.took) == 0 {
		return 0
	}
	return r.took[min(int(q*float64(len(r.took))), len(r.took)-1)]
}

// measure runs work on n goroutines for about `each`, after a short warm-up, and
// collects how long each call took.
func measure(n int, each time.Duration, work func(worker int) error) (rate, error) {
	var (
		mu      sync.Mutex
		all     []time.Duration
		first   error
		running sync.WaitGroup
	)
	warm := time.Now().Add(each / 5)
	end := warm.Add(each)
	for i := range n {
		running.Go(func() {
			var took []time.Duration
			for {
				start := time.Now()
				if start.After(end) {
					break
				}
				if err := work(i); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					return
				}
				if start.After(warm) {
					took = append(took, time.Since(start))
				}
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	running.Wait()
	slices.Sort(all)
	return rate{all, time.Since(warm)}, first
}

// fsyncRate measures the disk: one small write and an fsync, over and over.
func fsyncRate(dir string, each time.Duration) (rate, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return rate{}, err
	}
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return rate{}, err
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 512)
	return measure(1, each, func(int) error {
		if _, err := f.Write(block); err != nil {
			return err
		}
		return f.Sync()
	})
}

func printRow(out io.Writer, name string, r rate, unit string, ratios ...string) {
	fmt.Fprintf(out, "  %-34s %9.0f %-9s p50 %8s  p99 %8s  %s\n", name, r.perSecond(), unit,
		short(r.quantile(0.5)), short(r.quantile(0.99)), strings.Join(ratios, ", "))
}

func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2fms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%.0fus", float64(d)/1e3)
	}
}

func ratio(r, of rate, what string) string {
	if of.perSecond() == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f of %s", r.perSecond()/of.perSecond(), what)
}

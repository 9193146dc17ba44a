package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/executor/host/console"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// The load of the console figures.
const (
	// plans of five actions, the fifth of which fails, that begin in a second
	consoleUndos = 200
	// under way at once: a machine that is too slow begins fewer
	consoleUndosMax = 64
	consoleBrowsers = 4                      // that ask for one page after the other
	consolePause    = 200 * time.Millisecond // between two pages of one
	// of the throughput, each with and without an open page
	consoleRounds = 24
	consoleAtOnce = 16 // plans under way in them
)

// benchConsole measures how soon a page of the console begins to come, with many
// plans while others unwind, and what an open page costs the executor.
func benchConsole(ctx context.Context, out io.Writer, b *benching, dir string) error {
	fmt.Fprintln(out, "\nconsole, no-sync")
	rig, err := startBench(ctx, dir, false)
	if err != nil {
		return err
	}
	defer rig.close()
	if err := fillPlans(ctx, rig, b.plans); err != nil {
		return err
	}
	if err := rig.caughtUp(ctx); err != nil {
		return err
	}
	server, err := console.Start(console.Config{Listen: "127.0.0.1:0",
		Users: filepath.Join(dir, "operators"), OpenRead: true})
	if err != nil {
		return err
	}
	defer server.Close()
	defer server.Attach(rig.host, rig.conn)()
	u, stop, err := startUndoing(rig)
	if err != nil {
		return err
	}
	defer stop()
	c, err := coordinator.New(coordinator.Config{Conn: rig.client, Tenant: benchTenant,
		Agent: "bench", Contracts: benchContracts()})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	// plans whose end was not heard of in time, as on a machine that has too much to do
	var late atomic.Int64
	run := func() error {
		if _, err := u.run(ctx, c); err != nil {
			if !strings.HasSuffix(err.Error(), "does not end") {
				return err
			}
			late.Add(1)
		}
		return nil
	}
	base := server.URL()
	if err := consolePages(ctx, out, b, base, run); err != nil {
		return err
	}
	if err := consoleCost(ctx, out, b, base, run); err != nil {
		return err
	}
	if n := late.Load(); n > 0 {
		fmt.Fprintf(out, "  %d plans did not end within 30 s: the machine has too much to do\n", n)
	}
	return nil
}

// caughtUp waits until the executor has folded all that the stream has, and has no more
// to say about it: that the held sets of committed plans are retired.
func (b *bench) caughtUp(ctx context.Context) error {
	for was := uint64(0); ; {
		last, err := b.commits()
		if err != nil {
			return err
		}
		pulse, err := b.host.Pulse(benchTenant)
		if err != nil || pulse.Applied >= last && last == was {
			return err
		}
		was = last
		if !cli.Pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// startUndoing serves the inverse of the benchmark and hears of the ends of plans.
func startUndoing(rig *bench) (*undoing, func(), error) {
	u := &undoing{plans: map[string]*undoPlan{}}
	w, err := worker.New(worker.Config{Conn: rig.client, Tenant: benchTenant, Name: "bench",
		Concurrency: 64})
	if err != nil {
		return nil, nil, err
	}
	if err = w.Handle("bench.undo", u.undo); err == nil {
		_, err = rig.client.Subscribe(api.NoticeSubject(benchTenant, "bench", "*"), u.notice)
	}
	return u, func() { _ = w.Close(context.Background()) }, err
}

// fillPlans appends plans of one action each: of ten agents, with twenty
// capabilities and a hundred labels; one in fifty stays open, the others are committed.
func fillPlans(ctx context.Context, rig *bench, plans int) error {
	appender, err := jetstream.Attach(rig.client, benchTenant)
	if err != nil {
		return err
	}
	var sending sync.WaitGroup
	errs := make(chan error, 8)
	work := make(chan int, 8)
	for range cap(work) {
		sending.Go(func() {
			for from := range work {
				if err := appendPlans(ctx, appender, from,
					min(from+fillCommit, plans)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	for from := 0; from < plans; from += fillCommit {
		select {
		case work <- from:
		case err := <-errs:
			return err
		}
	}
	close(work)
	sending.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// fillCommit is how many plans one commit opens.
const fillCommit = 50

func appendPlans(ctx context.Context, appender *jetstream.Appender, from, until int) error {
	var records []*pb.Record
	for i := from; i < until; i++ {
		plan := fmt.Sprintf("filled-%07d", i)
		of := []*pb.Record{
			{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Label: fmt.Sprintf("job %d",
				i%100), Labels: []*pb.Label{{Key: "env", Value: []string{"test", "prod"}[i%2]}}}}},
			{Action: "a",
				Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: fmt.Sprintf("bench.do%d", i%20), Class: pb.Class_CLASS_COMPENSABLE}}},
			{Action: "a",
				Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{Capability: "bench.undo"}}},
			{Action: "a", Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}},
		}
		if i%50 != 0 {
			of = append(of,
				&pb.Record{Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})
		}
		for _, r := range of {
			r.Plan = plan
		}
		records = append(records, of...)
	}
	source := ledger.Source{Tenant: benchTenant, Class: ledger.ClassAgent,
		Name: fmt.Sprintf("agent%d", from/fillCommit%10), Plan: "_"}
	commit, err := jetstream.NewAppend(source, records...)
	if err != nil {
		return err
	}
	for {
		_, err := appender.Append(ctx, commit)
		if !errors.Is(err, ledger.ErrBusy) && !errors.Is(err, ledger.ErrInDoubt) ||
			ctx.Err() != nil {
			return err
		}
	}
}

// consoleControl is a file of a few lines that is served from memory: what it takes is the
// machine's part of every figure beside it.
const consoleControl = "static/now/icon.svg"

// consolePaths are the pages that the browsers ask for.
var consolePaths = []string{
	consoleControl, "", "plans", "plans?state=open", "plans?state=committed&agent=agent3",
	"plans?capability=bench.do7", "plans?capability=bench.do7&agent=agent2&state=open",
	"plans?label=env%3Dprod&state=open&age=1h",
	"plans?q=filled-05", "plans?q=job+7", "plans?state=compensated", "plans/filled-0000050",
	"plans/filled-0000050/preview", "quarantine", "leases", "memory", "capabilities", "ledger",
	"ledger/1000", "health",
}

// consolePages measures the first byte of each page while plans unwind.
func consolePages(ctx context.Context, out io.Writer, b *benching, base string,
	run func() error) error {
	stop := make(chan struct{})
	var load sync.WaitGroup
	undone := make(chan error, 1<<16)
	load.Go(func() {
		tick := time.NewTicker(time.Second / consoleUndos)
		defer tick.Stop()
		places := make(chan struct{}, consoleUndosMax)
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			select {
			case places <- struct{}{}:
				load.Go(func() { undone <- run(); <-places })
			default:
			}
		}
	})
	began := time.Now()
	var mu sync.Mutex
	took := map[string][]time.Duration{}
	var next [consoleBrowsers]int
	_, err := measure(consoleBrowsers, 10*b.each, func(browser int) error {
		path := consolePaths[(next[browser]+browser*5)%len(consolePaths)]
		next[browser]++
		first, err := firstByte(ctx, pageURL(base, path))
		if err != nil || !cli.Pause(ctx, consolePause) {
			return err
		}
		mu.Lock()
		took[path] = append(took[path], first)
		mu.Unlock()
		return nil
	})
	rate := float64(len(undone)) / time.Since(began).Seconds()
	close(stop)
	load.Wait()
	close(undone)
	for failed := range undone {
		err = cmp.Or(err, failed) // the first is enough
	}
	if err != nil {
		return err
	}
	var all []time.Duration
	for _, path := range consolePaths {
		slices.Sort(took[path])
		if path != consoleControl {
			all = append(all, took[path]...)
		}
		l := rateOf(took[path])
		fmt.Fprintf(out, "  /%-46s %6d times  p50 %8s  p99 %8s  max %8s\n", path, len(l.took),
			short(l.quantile(0.5)), short(l.quantile(0.99)), short(l.quantile(1)))
	}
	slices.Sort(all)
	l := rateOf(all)
	fmt.Fprintf(out,
		"  first byte of a page, %d plans, %.0f unwinding/s, %d browsers: %d pages, p50 %s, p99 "+
			"%s, max %s\n",
		b.plans, rate, consoleBrowsers, len(all), short(l.quantile(0.5)), short(l.quantile(0.99)),
		short(l.quantile(1)))
	return nil
}

// pageURL is the address of a page of the benchmark's tenant, or of the control.
func pageURL(base, path string) string {
	if path == consoleControl {
		return base + path
	}
	return base + "t/" + benchTenant + "/" + path
}

func rateOf(took []time.Duration) rate { return rate{took: took} }

// consoleClient reaches the console by its name, as browsers do.
var consoleClient = &http.Client{Transport: &http.Transport{DialContext: console.DialContext}}

// firstByte asks for a page and returns how long its first byte took.
func firstByte(ctx context.Context, url string) (took time.Duration, err error) {
	began := time.Now()
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotFirstResponseByte: func() { took = time.Since(began) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := consoleClient.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil &&
		answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return took, err
}

// consoleCost measures the executor with and without an open overview, in short turns:
// plans a second, and processor time per plan, the browser's own part included.
func consoleCost(ctx context.Context, out io.Writer, b *benching, base string,
	run func() error) error {
	var (
		plans [2]atomic.Int64
		wall  [2]time.Duration
		busy  [2]time.Duration
	)
	for i := range 2 * consoleRounds {
		open := (i + 1) / 2 % 2 // 0 1 1 0: what drifts is shared
		watching, stop := context.WithCancel(ctx)
		var page sync.WaitGroup
		if open == 1 {
			page.Go(func() { browsePage(watching, base) })
		}
		began, cpu := time.Now(), processorTime()
		_, err := measure(consoleAtOnce, b.each, func(int) error {
			plans[open].Add(1)
			return run()
		})
		wall[open] += time.Since(began)
		busy[open] += processorTime() - cpu
		stop()
		page.Wait()
		if err != nil {
			return err
		}
	}
	var rates, costs [2]float64
	for i := range plans {
		rates[i] = float64(plans[i].Load()) / wall[i].Seconds()
		costs[i] = float64(busy[i].Microseconds()) / float64(plans[i].Load())
	}
	fmt.Fprintf(out,
		"  undo5, %d at once, %d turns each: without the console %.0f plans/s and %.0f us of "+
			"processor time per plan; with an open overview %.0f and %.0f; ratios %.3f and %.3f\n",
		consoleAtOnce, consoleRounds, rates[0], costs[0], rates[1], costs[1], rates[1]/rates[0],
		costs[1]/costs[0])
	return nil
}

// browsePage does what a browser does with an open overview: it follows the fold and
// asks for the page again, once a second at most.
func browsePage(ctx context.Context, base string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, pageURL(base, "events?seen=0"), nil)
	if err != nil {
		return
	}
	answer, err := consoleClient.Do(r)
	if err != nil {
		return
	}
	defer func() { _ = answer.Body.Close() }()
	last := time.Time{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "event:") && time.Since(last) > time.Second {
			last = time.Now()
			_, _ = firstByte(ctx, pageURL(base, ""))
		}
	}
}

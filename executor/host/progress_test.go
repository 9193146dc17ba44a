package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *lockedLog) lines(containing string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.out.String()) {
		if strings.Contains(line, containing) {
			found = append(found, line)
		}
	}
	return found
}

func (l *lockedLog) says(what string) bool { return len(l.lines(what)) > 0 }

// folding runs host h1, which says after each turn how far it is, until end.
func (r *rig) folding() (log *lockedLog, end func()) {
	r.t.Helper()
	log = new(lockedLog)
	h, err := New(Config{
		Conn: r.conn, Tenants: []string{"t"}, Dir: filepath.Join(r.dir, "h1"), LeaseTTL: time.Second,
		DurableServer: r.srv.DurableID(),
		Logger:        slog.New(testenv.KeysOnce(r.t, slog.NewTextHandler(log, nil))),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, a := range h.roster.all() {
		a.progress.every = 0
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }() // ends with cancel
	<-h.Ready()
	return log, func() {
		cancel()
		if err := errors.Join(<-done, h.Close()); err != nil {
			r.t.Error(err)
		}
	}
}

// A host that folds its ledger from nothing says how far it is, again and again, and that it
// is done; a second time with tiles that are gone.
func TestALongFoldSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, stop := r.host("h0") // makes the ledger
	const plans, commits = 40, 400
	for c := range commits { // more than a turn takes
		var records []*pb.Record
		for i := range plans {
			id := fmt.Sprintf("p%d-%d", c, i)
			records = append(records,
				&pb.Record{Plan: id, Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Label: strings.Repeat("x", 500)}}},
				&pb.Record{Plan: id, Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})
		}
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "agent", Plan: ledger.ManyPlans}, records...)
	}
	r.caughtUp()
	stop()
	log, end := r.folding()
	r.caughtUp()
	if status := r.status(); status.Folding != nil || status.Records < 2*plans*commits {
		t.Errorf("after the fold: %+v", status)
	}
	end()
	lines, done := log.lines(`msg="folding the ledger"`), log.lines(`msg="done folding the ledger"`)
	if len(lines) < 3 || len(done) != 1 {
		t.Fatalf("%d lines of progress, and %d of its end:\n%s", len(lines), len(done), log.out.String())
	}
	last, all := 0, 0
	for _, line := range lines[1:] {
		var at, of, percent int
		if _, err := fmt.Sscanf(line[strings.Index(line, "at="):], "at=%d of=%d percent=%d", &at, &of, &percent); err != nil || at <= last || of <= commits || percent != 100*at/of {
			t.Errorf("a line of progress: %s%v", line, err)
		}
		all = of
		if last = at; !strings.Contains(line, "records_per_second=") || !strings.Contains(line, " left=") ||
			strings.Contains(line, "records=0 ") {
			t.Errorf("a line of progress: %s", line)
		}
	}
	var folded, records int
	if _, err := fmt.Sscanf(done[0][strings.Index(done[0], "commits="):], "commits=%d records=%d", &folded, &records); err != nil || folded != all || records < 2*plans*commits {
		t.Errorf("the end: %swant %d commits, %v", done[0], all, err)
	}

	if err := os.RemoveAll(filepath.Join(r.dir, "h1", "tiles")); err != nil {
		t.Fatal(err)
	}
	log, end = r.folding()
	r.caughtUp()
	end()
	if lines, done := log.lines(`msg="filling the tiles in from the stream"`), log.lines(`msg="done filling the tiles`); len(lines) < 3 || len(done) != 1 {
		t.Errorf("%d lines of progress of the tiles, and %d of its end:\n%s", len(lines), len(done), log.out.String())
	}
}

// What status shows of a fold that is under way.
func TestProgressKnowsItsRateAndWhatIsLeft(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	p := progress{what: foldingLedger, began: began, from: 100, to: 1100, records: 50}
	if v := p.view(began.Add(time.Second), 100, 50); v.LeftNs != 0 || v.RecordsPer != 0 || v.Records != 0 {
		t.Errorf("at the beginning: %+v", v)
	}
	want := api.Folding{
		What: foldingLedger, From: 100, At: 350, To: 1100, Records: 500, RecordsPer: 50, BeganNs: began.UnixNano(),
		LeftNs: int64(30 * time.Second),
	}
	if v := p.view(began.Add(10*time.Second), 350, 550); v != want {
		t.Errorf("%+v, want %+v", v, want)
	}
	a := &actor{progress: progress{log: slog.New(slog.DiscardHandler), every: progressEvery}}
	a.progress.Begin(foldingLedger, 5, 9, 1)
	a.progress.At(7, 3)
	if a.progress.folding() == nil || a.progress.folding().At != 7 || a.progress.folding().Records != 2 {
		t.Errorf("under way: %+v", a.progress.folding())
	}
	if a.progress.At(9, 5); a.progress.folding() != nil {
		t.Errorf("at its end: %+v", a.progress.folding())
	}
	if a.progress.At(10, 6); a.progress.folding() != nil {
		t.Errorf("afterwards: %+v", a.progress.folding())
	}
}

// However long the loop takes for one message, what the reader knows of counts as not folded, and so
// does what comes after it.
func TestWhatABusyLoopHasNotFoldedIsKnown(t *testing.T) {
	t.Parallel()
	metrics := observe.NewMetrics()
	h, err := New(Config{Conn: new(nats.Conn), Tenants: []string{"t"}, Dir: t.TempDir(), Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	a := h.roster.order[0]
	var reading sync.WaitGroup
	t.Cleanup(func() {
		stop()
		reading.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	fact, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{
		Key: "k", Value: []byte("1")}}}})
	if err != nil {
		t.Fatal(err)
	}
	store := ledger.NewMemory("t", func() int64 { return 1 })
	for range 3 {
		one := ledger.Append{Subject: "saga.t.fact.s", ID: jetstream.NewID(), Data: fact}
		if _, err := store.Append(ctx, one); err != nil {
			t.Fatal(err)
		}
	}
	a.store = store
	a.board.Attached(0, 0)
	messages := make(chan decoded) // the loop is busy
	reading.Go(func() { a.read(ctx, 1, messages, make(chan error, 1)) })
	lag := func(n int) func() bool {
		return func() bool {
			return strings.Contains(testenv.Scrape(t, metrics.Handler()),
				fmt.Sprintf("\nsagenbaum_fold_lag_commits{tenant=\"t\"} %d\n", n))
		}
	}
	until := func(n int) {
		t.Helper()
		for late := time.After(testenv.Patience); a.board.Last() != uint64(n) || !lag(n)(); {
			select {
			case <-late:
				t.Fatalf("%d are known, want %d", a.board.Last(), n)
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	until(1)
	a.board.Opened(store, nil)
	until(3)
	a.board.Folded(2)
	if !lag(1)() {
		t.Error("what is folded counts as not folded")
	}
	a.board.Unmeter()
	if !lag(0)() {
		t.Error("a tenant that is not run counts")
	}
}

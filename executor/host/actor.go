package host

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/blob"
	"github.com/sagenbaum/sagenbaum/executor/host/observe"
	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/host/repair"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// actor runs one tenant: its goroutine drives a session of package turn. All fields belong to that
// goroutine, except where they say otherwise.
type actor struct {
	host   *Host
	tenant string
	log    *slog.Logger
	kv     *store.KV // the folded state on disk
	fresh  bool      // the next session folds from the beginning, from no snapshot
	use    *processorUse
	opened sync.Once // the first attachment, or that there is none

	// Of a session: from the attachment to the ledger to its end.
	life     context.Context // ends with the session
	store    ledger.Store
	stream   *jetstream.Store // below store
	claim    *turn.Append     // that waits for the tiles; nil: none does
	created  int64            // when the stream was made, unix ns
	tiles    *tiles.Writer
	state    *executor.State
	session  *turn.Session
	acks     chan ack // buffered 1: at most one append is in flight
	wake     *time.Timer
	termRead atomic.Uint64 // latest term that the reader has seen; for any goroutine
	torn     bool          // what was folded and not written must not be: it is no whole message
	progress progress

	out   *outbound      // of a term; nil in between
	sends sync.WaitGroup // its goroutines, of all terms of the session

	// Machines of their own, for as long as the host runs.
	governed chan struct{} // buffered 1: the control stream has said something of the tenant
	bound    *bound
	erasing  chan struct{} // buffered 1: another host erases the tenant
	erasure  *erasure      // of the tenant; nil: it is not erased

	lead     *leadership
	keys     *vault.Keyring
	blobs    *blob.Store
	proof    *proof.Signer
	scrubber *repair.Scrubber
	observer *observe.Observer
	workers  *ask.Workers
	board    *ask.Board // what others see of the tenant
	desk     *ask.Desk  // answers about the tenant, beside this goroutine
}

func newActor(h *Host, tenant string) *actor {
	a := &actor{
		host: h, tenant: tenant, log: h.log.With("tenant", tenant),
		kv: store.NewKV(h.db, tenant), use: newProcessorUse(h.share), acks: make(chan ack, 1),
		erasing: make(chan struct{}, 1), governed: make(chan struct{}, 1), bound: newBound(),
		wake: time.NewTimer(time.Hour), keys: h.newKeyring(tenant),
		observer: observe.NewObserver(tenant, h.cfg.Metrics, h.cfg.Tracer, h.clock.now),
	}
	a.progress.log, a.progress.every = a.log, progressEvery
	a.scrubber = repair.NewScrubber(a.log)
	a.proof = proof.New(proof.Config{Tenant: tenant, KeysDir: h.keysRoot(), Witness: h.cfg.Witness,
		Client: h.hooks, Times: h.cfg.signs(), Log: a.log})
	a.blobs = h.newBlobs(a)
	meter := a.observer.Meter
	a.board, a.workers = ask.NewBoard(meter), ask.NewWorkers(meter, h.clock.now, a.log)
	a.lead = newLeadership(h.cfg.Conn, tenant, h.cfg.Holder, h.process, a.board, a.log)
	a.lead.holders = h.holders
	a.desk = ask.New(ask.Config{
		Tenant: tenant, Holder: h.cfg.Holder, Process: h.process, Conn: h.cfg.Conn,
		DB: h.db, Dir: h.cfg.Dir, Log: a.log,
		Now: h.clock.now, Board: a.board, Workers: a.workers, Keys: a.keys, Blobs: a.blobs,
		Proof: a.proof, Scrubber: a.scrubber, Meter: meter, Shared: &h.asked, Released: a.lead.takeSoon,
		Erased:  a.eraseSoon,
		Folding: a.progress.folding, Disks: func() []api.Disk { return observe.Disks(h.disks()) },
		Cascade:     api.Cascade(h.cfg.Cascade.OrDefault()),
		MemoryBytes: h.cfg.MemoryBytes, Lossy: h.cfg.AcceptLossyBroker, Room: a.bound.room,
		Durable: h.cfg.DurableServer,
		Entry:   func() (*api.TenantEntry, *api.TenantLimits) { return h.roster.shown(tenant) },
	})
	return a
}

// loop is the actor: it waits for whatever comes first and takes a turn.
func (a *actor) loop(ctx context.Context, messages <-chan decoded, broke <-chan error,
	lease <-chan holderEvent) error {
	for {
		var answered, paged, destroyed <-chan struct{}
		if a.out != nil {
			answered, paged, destroyed = a.out.dispatch.wake, a.out.pages.Wake(), a.out.eraser.Wake()
		}
		var first *decoded
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-broke:
			return err
		case m := <-messages:
			first = &m
		case k := <-a.acks:
			if err := a.acknowledged(k); err != nil {
				return err
			}
		case e := <-lease:
			a.leaseEvent(e)
		case <-a.board.Wanted():
			a.board.AnswerOutcomes(nil, a.reader)
		case r := <-a.desk.Requests():
			if err := a.requested(r); err != nil {
				return err
			}
		case halted := <-a.scrubber.Alarms():
			return halted
		case <-a.governed:
			a.govern()
		case <-a.erasing:
			return errErasing // the next session finds out
		case <-answered:
			a.takeAnswers()
		case <-paged:
		case <-a.proof.Wake():
			if err := a.proof.Take(); err != nil {
				return err
			}
		case <-destroyed:
		case <-a.wake.C:
		}
		if err := a.turn(first, messages); err != nil {
			return err
		}
	}
}

// takeAnswers takes what workers have said, and lets those that are about to
// answer do so first: answers that share a commit share its fsync. It gives up
// the processor, never waits, and stops when nothing more has come.
func (a *actor) takeAnswers() {
	for more := a.out.dispatch.take(); len(more) > 0; more = a.out.dispatch.take() {
		a.noteStale(more)
		a.session.Answer(more...)
		runtime.Gosched()
	}
}

// turn folds what is there, sends what became valid, decides and appends.
func (a *actor) turn(first *decoded, messages <-chan decoded) error {
	a.use.begin(a.life.Done())
	defer a.use.end()
	if first != nil {
		if err := a.foldBatch(*first, messages); err != nil {
			return err
		}
	}
	if err := a.session.Turn(shell{a}); err != nil {
		return err
	}
	if err := a.write(a.board.WantsWrite()); err != nil {
		return err
	}
	if err := a.claims(); err != nil {
		return err
	}
	if err := a.proof.Sign(a.holding(), func() error { return a.write(true) }); err != nil {
		return err
	}
	a.bound.hold(a.holding())
	a.measure()
	return nil
}

// write makes what was folded durable, if it is time.
func (a *actor) write(now bool) error {
	written, err := a.session.Write(a.host.clock.instant().MonoNs, now, a.tiles, a.kv)
	if err != nil {
		a.torn = true
		return fmt.Errorf("cannot write the tiles: %w", err)
	}
	if written {
		a.board.Written()
	}
	return nil
}

// reader shows the state as it is folded, to the loop itself.
func (a *actor) reader() *view.Reader { return view.Live(a.state, a.kv, a.tenant) }

// measure shows the numbers that the turn has changed.
func (a *actor) measure() {
	if a.observer.Meter == nil {
		return
	}
	m := a.state.Meta()
	is := observe.Levels{
		Held: m.Held, Open: m.Open, Unwinding: m.Unwinding, Quarantined: m.Quarantined, Cuts: m.Cut,
		Faulty: m.Faulty,
	}
	is.Used = observe.LimitLevels{OpenPlans: m.Open, Facts: m.Facts + m.Evicted,
		HeldConditions: m.Conditions}
	limits := m.Tenant.GetLimits()
	is.Limits = observe.LimitLevels{OpenPlans: limits.GetOpenPlans(), Facts: limits.GetFacts(),
		HeldConditions: limits.GetHeldConditions()}
	is.Used.Bytes, is.Limits.Bytes, _ = a.bound.room()
	if a.holding() {
		is.NextDueNs, _ = a.state.NextWake()
	}
	if a.out != nil {
		a.out.pages.ShowOldest()
	}
	a.observer.Show(is)
}

func (a *actor) cursor() uint64 { return a.state.Meta().GetApplied().GetSequence() }

// foldBatch folds a bounded run of messages.
func (a *actor) foldBatch(m decoded, messages <-chan decoded) error {
	for start := time.Now(); ; {
		a.use.step()
		if err := a.fold(m); err != nil {
			return err
		}
		if a.session.Full() || time.Since(start) > turnTimeMax {
			return nil
		}
		select {
		case m = <-messages:
			continue
		default:
		}
		return nil
	}
}

// fold folds one message.
func (a *actor) fold(m decoded) error {
	if err := a.session.Begin(m.Sequence, len(m.Data)); err != nil {
		return err
	}
	if m.err != nil {
		return m.err
	}
	a.torn = true
	a.host.folded.Add(uint64(len(m.entries)))
	for _, e := range m.entries {
		if err := a.tiles.Keep(m.Message, e); err != nil {
			return err
		}
		result := a.session.Fold(e)
		a.proof.Folded(e, result.Verdict == executor.Effective, result.Reason)
		if m.Sequence > a.session.Attached() {
			a.observer.Folded(e, result.Verdict, a.holding())
			if result.Verdict == executor.Effective {
				a.workers.Read(e)
			}
		}
		a.board.Feed.Touch(e.Record)
		if result.Verdict == executor.Effective {
			a.announce(e)
		}
		if result.Verdict != executor.Effective && result.Verdict != executor.Repeated {
			a.log.Debug("record not effective", "address", ledger.FormatAddress(e.Address), "subject",
				m.Subject, "reason", result.Reason)
		}
	}
	a.torn = false
	return nil
}

// announce shows people what a record says of the tenant itself.
func (a *actor) announce(e ledger.Entry) {
	switch k := e.Record.Kind.(type) {
	case *pb.Record_TermStarted:
		a.board.TermBegan(e.StampNs)
	case *pb.Record_ClockConfirmed:
		if e.Address.Sequence > a.session.Attached() {
			a.log.Warn("operator confirmed the clock", "actor", k.ClockConfirmed.Actor, "reason",
				k.ClockConfirmed.Reason)
		}
	}
}

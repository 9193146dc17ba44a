package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// actor runs one tenant. All fields belong to its goroutine, except those
// behind mu.
type actor struct {
	host   *Host
	tenant string
	log    *slog.Logger

	tiles    *tiles.Writer   // of the session
	created  int64           // when the stream was made, unix ns
	fresh    bool            // the next session folds from the beginning, from no snapshot
	session  context.Context // ends with the attachment to the ledger
	store    ledger.Store
	kv       *store.KV
	state    *executor.State
	stint    *stint
	dispatch *dispatcher
	actuator *actuators.NATS // of the term
	pages    *pager
	eraser   *eraser
	keys     *keyring
	paging   sync.WaitGroup // its goroutines

	machine  *turn.Machine // of the session
	acks     chan ack      // buffered 1: at most one append is in flight
	wake     *time.Timer
	opened   sync.Once
	doubt    chan struct{} // buffered 1: another term has begun, is the lease still this host's?
	released chan struct{} // buffered 1: the holder has given the lease back

	asking   asking
	feed     feed
	requests chan request        // of operators, for the actor to carry out
	alarms   chan *ledger.Halted // buffered 1: what a scrub has found
	scrubs   scrubs

	progress  progress
	signing   signing
	witnesses *witnessing      // nil: none
	digested  chan stateDigest // buffered 1: of the last snapshot
	heard     heard
	refusals  refusals
	meter     *meter // nil: none
	levels    levels // as the meter shows them
	traces    *tracing
	sent      map[turn.About]int64 // undos under way: when they were first dispatched, unix ns
	readAhead atomic.Uint64        // last sequence that the reader has seen

	mu        sync.Mutex
	mode      string
	problem   string
	halt      *view.Halt   // in ModeHalted
	sinceNs   int64        // stamp of the term in the ledger; 0: none yet
	elsewhere bool         // halted here, and another host holds the tenant
	refusal   string       // why the stream refuses appends now
	seen      ledger.Store // store, for queries
	copies    *tiles.Files // tiles, for queries
	last      uint64       // last sequence known to be in the stream
	applied   uint64
	waiters   []*waiter
	shown     *dispatcher // dispatch, for queries
}

func newActor(h *Host, tenant string) *actor {
	a := &actor{
		host: h, tenant: tenant, log: h.log.With("tenant", tenant),
		kv: store.NewKV(h.db, tenant), stint: newStint(h.share), acks: make(chan ack, 1),
		mode: view.ModeStarting,
		wake: time.NewTimer(time.Hour), doubt: make(chan struct{}, 1), released: make(chan struct{}, 1),
		asking:   asking{gone: make(chan struct{})},
		requests: make(chan request), alarms: make(chan *ledger.Halted, 1),
		digested: make(chan stateDigest, 1), keys: h.newKeyring(tenant),
		meter: h.cfg.Metrics.tenant(tenant), traces: newTracing(h.cfg.Tracer, tenant),
		sent: map[turn.About]int64{},
	}
	a.progress.log, a.progress.every = a.log, progressEvery
	a.signing.timer = time.NewTimer(time.Hour)
	a.witnesses = newWitnessing(h.cfg.Witness, h.hooks, tenant, &a.signing, a.log)
	a.meter.mode("", a.mode)
	return a
}

// run runs the tenant until ctx ends. It returns an error only for what the
// whole process must act on.
func (a *actor) run(ctx context.Context) error {
	defer a.opened.Do(a.host.attaching.Done)
	delay := retryDelayMin
	for ctx.Err() == nil {
		err := a.attend(ctx)
		var halted *ledger.Halted
		var refused *ledger.Refused
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrMute), errors.Is(err, ErrState):
			return err
		case store.Failing(err): // of the tiles, and for this process it stays so
			return fmt.Errorf("%w: %w", ErrState, err)
		case store.Unwritable(err): // of the tiles; without them nothing may be folded
			a.degraded(ctx, err)
			if !pause.For(ctx, retryDelayMax) {
				return nil
			}
			delay = retryDelayMin
			continue
		case errors.As(err, &halted):
			a.setHalted(halted)
			a.opened.Do(a.host.attaching.Done)
			a.log.Error("tenant halted: nothing is dispatched until the ledger is repaired", "guard",
				halted.Guard, "sequence", halted.Sequence, "problem", halted.Problem)
			a.keepHalt(halted)
			watching, stop := context.WithCancel(ctx)
			var watch sync.WaitGroup
			watch.Go(func() { a.watchHolder(watching) })
			again := a.stayHalted(ctx, halted)
			stop()
			watch.Wait()
			if !again {
				return nil
			}
			delay = retryDelayMin
			continue
		case errors.Is(err, errRefold):
			delay = retryDelayMin
			continue
		case errors.As(err, &refused):
			return fmt.Errorf("cannot run tenant %s: %w", a.tenant, err)
		}
		a.setMode(view.ModeStarting, err.Error())
		a.log.Warn("tenant interrupted; it starts again", "error", err, "in", delay)
		if !pause.For(ctx, delay) {
			return nil
		}
		delay = min(delay*2, retryDelayMax)
	}
	return nil
}

// attend attaches to the ledger and runs turns until something breaks. State
// that contradicts itself is thrown away and folded again.
func (a *actor) attend(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	a.session = ctx
	var readers sync.WaitGroup
	defer func() {
		cancel()
		readers.Wait()
		a.endSession()
		if r := recover(); r != nil {
			if _, over := r.(interrupted); over {
				err = context.Cause(ctx)
				return
			}
			broken, ok := r.(*rows.StoreError)
			if !ok {
				// A broken rule of ours stops this tenant, not the others.
				a.log.Error("the fold or a decision is impossible", "panic", r, "stack", string(debug.Stack()))
				err = &ledger.Halted{Guard: "core", Sequence: a.state.Meta().GetApplied().GetSequence(),
					Problem: fmt.Sprint(r)}
				return
			}
			if errors.Is(broken, executor.ErrArchive) {
				err = broken // the state is as good as before; the ledger was not there
				return
			}
			if errors.Is(broken, ErrState) {
				a.host.failed.Store(true)
				err = broken
				return
			}
			a.log.Error("state store is broken; folding the ledger again", "error", broken)
			if wipe := a.kv.Wipe(); wipe != nil {
				err = fmt.Errorf("cannot wipe the state: %w", wipe)
				return
			}
			err = broken
		}
	}()
	if err := a.attach(ctx); err != nil {
		return err
	}
	messages := make(chan ledger.Message, readAheadMax)
	broke := make(chan error, 1)
	from := a.state.Meta().GetApplied().GetSequence() + 1
	readers.Go(func() { a.read(ctx, from, messages, broke) })
	turns := make(chan holderEvent, 1)
	readers.Go(func() { a.keepLease(ctx, turns) })
	readers.Go(func() { a.scrubDaily(ctx) })
	if a.witnesses != nil {
		readers.Go(func() { a.witnesses.run(ctx, a.host.witnessRetry) })
	}
	return a.loop(ctx, messages, broke, turns)
}

func (a *actor) read(ctx context.Context, from uint64, messages chan<- ledger.Message,
	broke chan<- error) {
	for m, err := range a.store.Read(ctx, from) {
		if err != nil {
			broke <- err
			return
		}
		a.readAhead.Store(m.Sequence)
		select {
		case messages <- m:
		case <-ctx.Done():
			return
		}
	}
	broke <- errors.New("the stream ended")
}

// endSession forgets what must not outlive a session: the claim and what was
// on its way. The ledger has the rest.
func (a *actor) endSession() {
	a.stepDown()
	a.paging.Wait()
	a.endSigning()
	a.progress.end()
	clear(a.sent)
	a.acks = make(chan ack, 1)
	a.kv.Abandon()
	if a.tiles != nil {
		if err := a.tiles.Close(); err != nil {
			a.log.Warn("tiles not closed as they should be; they are looked through at the next start",
				"error", err)
		}
		a.tiles = nil
	}
}

// attach opens the stream and the state, and holds the one against the other
// (guards G1 and G2).
func (a *actor) attach(ctx context.Context) error {
	select {
	case <-a.alarms: // of a session that is over
	default:
	}
	var err error
	if a.tiles, err = tiles.Open(a.host.tilesRoot(), a.tenant, a.log, a.session.Done()); err != nil {
		return err
	}
	store, head, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	a.state = executor.Open(a.kv, a.tenant, newArchive(a.tenant, store))
	if v := a.state.Meta().FoldVersion; v != executor.FoldVersion {
		a.log.Info("state was folded by other rules; folding the ledger again", "was", v, "is",
			executor.FoldVersion)
		if err := a.kv.Wipe(); err != nil {
			return err
		}
		a.state = executor.Open(a.kv, a.tenant, newArchive(a.tenant, store))
	}
	if a.state.Meta().Applied == nil && !a.fresh && a.host.copies.Restore(a.kv, a.tenant, a.tiles) {
		a.state = executor.Open(a.kv, a.tenant, newArchive(a.tenant, store))
	}
	a.fresh = false
	a.state.Between(a.stint.between)
	if err := a.guards().Check(ctx, head, a.state.Meta()); err != nil {
		return err
	}
	if err := a.noteTerm(ctx); err != nil {
		return err
	}
	a.openSigning()
	a.machine = turn.New(turn.Config{
		Tenant: a.tenant, Holder: a.host.cfg.Holder, Cascade: a.host.cfg.Cascade,
		MemoryMax: a.host.cfg.MemoryBytes, NewID: jetstream.NewID,
	}, a.state, head.Last)
	a.mu.Lock()
	a.last, a.applied = head.Last, a.state.Meta().GetApplied().GetSequence()
	a.mu.Unlock()
	a.progress.Begin(foldingLedger, a.applied, head.Last, a.state.Meta().Records)
	a.setMode(view.ModeStandby, "")
	a.opened.Do(a.host.attaching.Done)
	a.log.Info("attached", "applied", a.applied, "last", head.Last)
	return nil
}

// openLedger opens the stream, with the tiles in front of it where it was repaired.
// A repair that was cut off goes on first.
func (a *actor) openLedger(ctx context.Context) (ledger.Store, ledger.Head, error) {
	if err := a.resumeRepair(ctx); err != nil {
		return nil, ledger.Head{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	stream, err := jetstream.Open(ctx, a.host.ledgerConfig(a.tenant))
	if err != nil {
		return nil, ledger.Head{}, err
	}
	head, err := stream.Head(ctx)
	if err != nil {
		return nil, head, err
	}
	a.store, a.created = tiles.Span(stream, head, a.tiles.Files), head.CreatedNs
	a.mu.Lock()
	a.seen, a.copies = a.store, a.tiles.Files
	a.mu.Unlock()
	return a.store, head, nil
}

// guards hold the stream, the tiles and the state of the session against each other.
func (a *actor) guards() *tiles.Guard {
	return tiles.NewGuard(a.tenant, a.store, a.tiles, a.log, &a.progress)
}

// keepHalt keeps a halt for the next session. It is only a note: where it cannot be
// written, a scrub finds the reason again.
func (a *actor) keepHalt(halted *ledger.Halted) {
	if err := tiles.KeepHalt(a.host.tilesRoot(), a.tenant, halted, a.created); err != nil {
		a.log.Warn("cannot keep the halt for the next start", "error", err)
	}
}

// loop is the actor: it waits for whatever comes first and takes a turn.
func (a *actor) loop(ctx context.Context, messages <-chan ledger.Message, broke <-chan error,
	lease <-chan holderEvent) error {
	for {
		var answered, paged, destroyed <-chan struct{}
		if a.dispatch != nil {
			answered, paged, destroyed = a.dispatch.wake, a.pages.wake, a.eraser.wake
		}
		var first *ledger.Message
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
		case r := <-a.requests:
			if err := a.requested(r); err != nil {
				return err
			}
		case halted := <-a.alarms:
			return halted
		case <-answered:
			a.takeAnswers()
		case <-paged:
			if a.pages.hasRoom() {
				a.pages.add(a.state.Unpaged())
			}
		case r := <-a.signing.results:
			a.signedNow(r)
		case d := <-a.digested:
			a.signing.digest = &d
		case <-a.signing.timer.C:
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
	for more := a.dispatch.take(); len(more) > 0; more = a.dispatch.take() {
		a.noteStale(more)
		a.machine.Answer(more...)
		runtime.Gosched()
	}
}

// turn folds what is there, sends what became valid, decides and appends.
func (a *actor) turn(first *ledger.Message, messages <-chan ledger.Message) error {
	a.stint.begin(a.session.Done())
	defer a.stint.end()
	if first != nil {
		if err := a.foldBatch(*first, messages); err != nil {
			return err
		}
	}
	for more := true; more; {
		now, in := a.inputs()
		ready := a.machine.Step(now, in)
		if err := a.carryOut(ready, in); err != nil {
			return err
		}
		more = ready.More
	}
	a.sign()
	a.measure()
	return nil
}

func (a *actor) cursor() uint64 { return a.state.Meta().GetApplied().GetSequence() }

// foldBatch folds a bounded run of messages as one Pebble batch.
func (a *actor) foldBatch(m ledger.Message, messages <-chan ledger.Message) error {
	for start := time.Now(); ; {
		a.stint.step()
		if err := a.fold(m); err != nil {
			return err
		}
		if a.machine.Full() || time.Since(start) > turnTimeMax {
			break
		}
		select {
		case m = <-messages:
			continue
		default:
		}
		break
	}
	if err := a.machine.Flush(a.tiles, a.kv); err != nil {
		return fmt.Errorf("cannot write the tiles: %w", err)
	}
	return nil
}

// fold folds one message.
func (a *actor) fold(m ledger.Message) error {
	if err := a.machine.Begin(m.Sequence, len(m.Data)); err != nil {
		return err
	}
	entries, err := ledger.Decode(a.tenant, m)
	if err != nil {
		return err
	}
	a.host.folded.Add(uint64(len(entries)))
	for _, e := range entries {
		if err := a.tiles.Keep(m, e); err != nil {
			return err
		}
		result := a.machine.Fold(e)
		a.noteSigned(e, result)
		a.observe(e, result.Verdict)
		a.feed.touch(e.Record)
		if result.Verdict == executor.Effective {
			a.seenTo(e)
		}
		if result.Verdict != executor.Effective && result.Verdict != executor.Repeated {
			a.log.Debug("record not effective", "address", ledger.FormatAddress(e.Address), "subject",
				m.Subject, "reason", result.Reason)
		}
	}
	return nil
}

// seenTo shows people what a record says of the tenant itself.
func (a *actor) seenTo(e ledger.Entry) {
	switch k := e.Record.Kind.(type) {
	case *pb.Record_TermStarted:
		a.termBegan(e.StampNs)
	case *pb.Record_ClockConfirmed:
		if e.Address.Sequence > a.machine.Attached() {
			a.log.Warn("operator confirmed the clock", "actor", k.ClockConfirmed.Actor, "reason",
				k.ClockConfirmed.Reason)
		}
	}
}

// purposeOf is the purpose of the command that asks a question.
func purposeOf(q pb.Question) string {
	if q == pb.Question_QUESTION_VERIFY {
		return api.PurposeVerify
	}
	return api.PurposeProbe
}

// inputs are the clocks, and what waits for a decision if the next step takes one.
func (a *actor) inputs() (turn.Instant, turn.Inputs) {
	now, ahead := a.host.clock.read()
	if !a.machine.Decides() {
		return now, turn.Inputs{}
	}
	a.guarded(ahead, now.Held)
	return now, turn.Inputs{Paged: a.pages.taken(), Destroyed: a.eraser.destroyed(),
		Proof: a.proofRecords()}
}

// carryOut does what a step of the machine asks for, in the order of turn.Ready.
func (a *actor) carryOut(r turn.Ready, in turn.Inputs) error {
	if r.Down != nil {
		a.down(*r.Down)
	}
	if r.Up {
		if err := a.takeUp(); err != nil {
			return err
		}
	}
	if r.Confirmed {
		a.host.clock.confirm()
	}
	for _, e := range r.Erased {
		a.keys.forget(e.Plan)
	}
	if a.dispatch != nil {
		a.send(r)
	}
	if r.Folded {
		a.tell(r)
	}
	if r.Settled { // what was taken and destroyed is about what is settled by now
		a.pages.forgetTaken(in.Paged)
		for _, plan := range in.Destroyed {
			a.eraser.recorded(plan)
		}
	}
	if r.Append != nil {
		a.publish(*r.Append)
	}
	if r.Wakes {
		a.wake.Reset(time.Duration(r.WakeInNs))
	}
	return nil
}

// send has commands, pages and the destruction of keys go on their way, while this host
// holds the tenant.
func (a *actor) send(r turn.Ready) {
	a.dispatch.prune(r.Looked, a.state.Outstanding)
	for _, e := range r.Erased {
		if e.Destroyed {
			a.eraser.recorded(e.Plan)
		}
	}
	for _, s := range r.Send {
		s.Command = a.traces.send(s.Command)
		a.dispatch.send(s)
	}
	for _, t := range r.Taken { // before what was asked for since, which has a row
		a.pages.recorded(turn.PageKey{About: t.About, Kind: t.Kind})
	}
	for _, c := range r.Closed {
		a.pages.recorded(turn.KeyOf(c.Page))
	}
	a.pages.add(r.Pages)
	a.eraser.add(r.Erase)
}

// tell lets agents, and whoever asks this host, know what was folded.
func (a *actor) tell(r turn.Ready) {
	if r.Tells {
		a.notify(r.Notices)
	}
	a.advanced(r.Notices)
	a.progress.At(a.cursor(), a.state.Meta().Records)
	a.feed.publish(a.state)
}

// notify tells agents, best effort.
func (a *actor) notify(notices []executor.Notice) {
	for _, n := range notices {
		if n.Action == "" && n.State != ledger.StateUnwinding && n.State != ledger.StateCommitting {
			a.traces.ended(n.Plan, n.State)
		}
		body, err := json.Marshal(api.Notice{
			Plan: n.Plan, State: n.State, Reason: n.Reason, Savepoint: n.Savepoint, Writer: n.Writer,
			Action: n.Action, Verdict: n.Verdict, By: n.By,
		})
		if err != nil {
			panic("host: cannot encode a notice: " + err.Error())
		}
		if err := a.host.cfg.Conn.Publish(api.NoticeSubject(a.tenant, n.Agent, n.Plan), body); err != nil {
			a.log.Debug("notice not sent", "plan", n.Plan, "error", err)
		}
	}
}

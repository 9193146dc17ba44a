package host

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/repair"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/memory"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

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
		case a.host.endsBy(err):
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
			a.board.Halt(halted)
			a.opened.Do(a.host.attaching.Done)
			a.log.Error("tenant halted: nothing is dispatched until the ledger is repaired", "guard",
				halted.Guard, "sequence", halted.Sequence, "problem", halted.Problem)
			a.keepHalt(halted)
			watching, stop := context.WithCancel(ctx)
			var watch sync.WaitGroup
			watch.Go(func() { a.lead.watch(watching, a.board.Elsewhere) })
			again := a.stayHalted(ctx, halted)
			stop()
			watch.Wait()
			if !again {
				return nil
			}
			delay = retryDelayMin
			continue
		case errors.Is(err, errRefold), errors.Is(err, errErasing):
			delay = retryDelayMin
			continue
		case errors.Is(err, errErased):
			a.erase(ctx)
			return nil
		case errors.As(err, &refused):
			return fmt.Errorf("cannot run tenant %s: %w", a.tenant, err)
		}
		a.board.Enter(api.ModeStarting, err.Error())
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
	a.life = ctx
	a.termRead.Store(0)
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
				err = a.impossible(r, a.cursor())
				return
			}
			if errors.Is(broken, memory.ErrArchive) {
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
	messages := make(chan decoded, readAheadMax)
	broke := make(chan error, 1)
	from := a.state.Meta().GetApplied().GetSequence() + 1
	readers.Go(func() { a.read(ctx, from, messages, broke) })
	turns := make(chan holderEvent, 1)
	readers.Go(func() { a.lead.keep(ctx, turns) })
	readers.Go(func() { a.scrubber.Daily(ctx, a.store, a.tiles.Files) })
	readers.Go(func() { a.proof.Run(ctx) })
	readers.Go(func() { a.keys.Migrate(ctx) })
	readers.Go(func() { a.blobs.Collect(ctx, a.holdsNow) })
	err = a.loop(ctx, messages, broke, turns)
	if !a.torn { // the next session begins where this one ends, also if the stream does not
		if problem := a.write(true); problem != nil {
			err = errors.Join(err, problem)
		}
	}
	return err
}

// decoded is a message with its entries, or with why the tenant must halt at it. Messages are
// decoded, and their leaves hashed, by their reader: beside the fold, and ahead of it.
type decoded struct {
	ledger.Message
	entries []ledger.Entry
	err     error
}

func (a *actor) decode(m ledger.Message) (d decoded) {
	defer func() {
		if r := recover(); r != nil {
			d.err = a.impossible(r, m.Sequence)
		}
	}()
	d.Message = m
	d.entries, d.err = ledger.Decode(a.tenant, m)
	return d
}

// impossible is the halt for a panic of the core: a broken rule of ours stops this tenant,
// not the others.
func (a *actor) impossible(r any, sequence uint64) *ledger.Halted {
	a.log.Error("the fold or a decision is impossible", "panic", r, "stack", string(debug.Stack()))
	return &ledger.Halted{Guard: "core", Sequence: sequence, Problem: fmt.Sprint(r)}
}

func (a *actor) read(ctx context.Context, from uint64, messages chan<- decoded,
	broke chan<- error) {
	var looked time.Time
	for m, err := range a.store.Read(ctx, from) {
		if err != nil {
			broke <- err
			return
		}
		a.board.Stored(m.Sequence)
		d := a.decode(m)
		for _, e := range d.entries {
			if e.Source.Term && e.Record.GetTermStarted() != nil {
				a.termRead.Store(max(a.termRead.Load(), e.Record.Term))
			}
		}
		if !a.handOver(ctx, d, messages, &looked) {
			return
		}
	}
	broke <- errors.New("the stream ended")
}

// handOver hands a message to the loop; false: ctx has ended. While the loop takes none the
// reader looks how much comes after it, so that others see how much there is to fold.
func (a *actor) handOver(ctx context.Context, d decoded, messages chan<- decoded,
	looked *time.Time) bool {
	select {
	case messages <- d:
		return true
	default:
	}
	for {
		select {
		case messages <- d:
			return true
		case <-time.After(lookEvery - time.Since(*looked)):
			a.board.Look(ask.LookMax)
			*looked = time.Now()
		case <-ctx.Done():
			return false
		}
	}
}

// endSession forgets what must not outlive a session: the claim and what was
// on its way. The ledger has the rest.
func (a *actor) endSession() {
	a.stepDown()
	a.sends.Wait()
	a.proof.Close()
	a.progress.end()
	a.observer.EndSession()
	a.acks, a.claim = make(chan ack, 1), nil
	a.kv.Forget()
	a.torn = false
	a.board.Detached()
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
	case <-a.scrubber.Alarms(): // of a session that is over
	default:
	}
	if err := a.findErasure(ctx); err != nil {
		return err
	}
	var err error
	if a.tiles, err = tiles.Open(a.host.tilesRoot(), a.tenant, a.log, a.life.Done()); err != nil {
		return err
	}
	a.tiles.OnFull(a.lead.waits)
	if err := a.tiles.CheckOwn(); err != nil { // before a repair beside them goes on
		return err
	}
	records, head, err := a.openLedger(ctx)
	if err != nil {
		return err
	}
	// Another host may have begun meanwhile, and this one made the stream again.
	if err := a.findErasure(ctx); err != nil {
		return err
	}
	a.state = executor.Open(a.kv, a.tenant, store.NewArchive(a.tenant, records))
	if v := a.state.Meta().FoldVersion; v != executor.FoldVersion {
		a.log.Info("state was folded by other rules; folding the ledger again", "was", v, "is",
			executor.FoldVersion)
		if err := a.kv.Wipe(); err != nil {
			return err
		}
		a.state = executor.Open(a.kv, a.tenant, store.NewArchive(a.tenant, records))
	}
	if a.state.Meta().Applied == nil && !a.fresh && a.host.copies.Restore(a.kv, a.tenant, a.tiles) {
		a.state = executor.Open(a.kv, a.tenant, store.NewArchive(a.tenant, records))
	}
	a.fresh = false
	a.state.Between(a.use.between)
	if err := a.guards().Check(ctx, head, a.state.Meta()); err != nil {
		return err
	}
	if err := a.noteTerm(ctx); err != nil {
		return err
	}
	a.proof.Open(ctx, a.state, a.tiles, a.stream)
	a.session = turn.NewSession(turn.Config{
		Tenant: a.tenant, Holder: a.host.cfg.Holder, Cascade: a.host.cfg.Cascade,
		MemoryMax: a.host.cfg.MemoryBytes, NewID: jetstream.NewID, Ahead: turn.RunMax,
		Secret: a.host.secret,
	}, a.state, head.Last)
	a.govern()
	a.board.Attached(a.cursor(), head.Last)
	a.progress.Begin(foldingLedger, a.cursor(), head.Last, a.state.Meta().Records)
	a.board.Enter(api.ModeStandby, "")
	a.opened.Do(a.host.attaching.Done)
	a.log.Info("attached", "applied", a.cursor(), "last", head.Last)
	return nil
}

// openLedger opens the stream, with the tiles in front of it where it was repaired.
// A repair that was cut off goes on first.
func (a *actor) openLedger(ctx context.Context) (ledger.Store, ledger.Head, error) {
	if err := repair.New(a.repairs(), a.tiles).Resume(ctx); err != nil {
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
	a.stream = stream
	a.store, a.created = tiles.Span(stream, head, a.tiles.Files), head.CreatedNs
	a.board.Opened(a.store, a.tiles.Files)
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

// repairs is how this host repairs the tenant's ledger.
func (a *actor) repairs() repair.Config {
	return repair.Config{
		Ledger: a.host.ledgerConfig(a.tenant), Holders: a.host.holders, Holder: a.host.cfg.Holder,
		TilesDir: a.host.tilesRoot(), StoreDir: a.host.cfg.StoreDir, KV: a.kv,
		Dropped: func() { a.fresh = true }, Destroy: a.keys.Destroy, Log: a.log,
	}
}

package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// pending is an append that has not been folded back yet.
type pending struct {
	append ledger.Append
	claim  bool   // it is a TermStarted
	stored uint64 // its sequence, once acknowledged
	delay  time.Duration
}

type ack struct {
	sequence uint64
	err      error
}

// append sends one commit, fenced on the term, without waiting for it.
func (a *actor) append(source ledger.Source, records []*pb.Record, claim bool) {
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		panic("host: decisions that cannot be encoded: " + err.Error())
	}
	fence := a.fence
	if claim {
		fence = a.state.Meta().Fence
	}
	a.pending = &pending{claim: claim, delay: retryDelayMin, append: ledger.Append{
		Subject: source.Subject(), ID: jetstream.NewID(), Data: data,
		FenceSubject: ledger.Source{Tenant: a.tenant, Class: ledger.ClassExecutor, Term: true}.Subject(), Fence: fence,
	}}
	a.publish(a.pending.append, 0)
}

// publish appends on a goroutine of its own, which ends with the reply or after
// appendTimeout; its result comes back on acks.
func (a *actor) publish(p ledger.Append, delay time.Duration) {
	acks, store, session := a.acks, a.store, a.session
	go func() {
		if delay > 0 && !sleep(session, delay) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
		defer cancel()
		began := time.Now()
		sequence, err := store.Append(ctx, p)
		a.meter.stored(began, err)
		acks <- ack{sequence, err}
	}()
}

// acknowledged handles the result of the append in flight: stored, lost to
// another term, or in doubt (then the same commit goes out again, same id).
func (a *actor) acknowledged(k ack) error {
	p := a.pending
	if p == nil {
		return nil
	}
	switch {
	case k.err == nil:
		a.misses = 0
		p.stored = k.sequence
		a.mu.Lock()
		a.refusal = ""
		a.last = max(a.last, k.sequence)
		a.mu.Unlock()
	case errors.Is(k.err, ledger.ErrConflict):
		a.log.Warn("another holder has begun a term", "term", a.term)
		if p.claim {
			if err := a.guardFence(a.session, p.append.Fence); err != nil {
				return err
			}
		}
		a.pending, a.lost, a.lostFence = nil, time.Now(), p.append.Fence
		a.fenced("another holder has begun a term")
	case !errors.Is(k.err, ledger.ErrFull) && errors.Is(k.err, ledger.ErrBusy), errors.Is(k.err, ledger.ErrInDoubt):
		if errors.Is(k.err, ledger.ErrInDoubt) && a.host.cfg.Conn.IsConnected() {
			if a.misses++; a.misses >= missesMax {
				return fmt.Errorf("%w: %d appends in a row, the last: %w", ErrMute, a.misses, k.err)
			}
		}
		a.log.Warn("append in doubt; the same commit goes out again", "error", k.err, "in", p.delay)
		a.publish(p.append, p.delay)
		p.delay = min(p.delay*2, retryDelayMax)
	default:
		// Not taken by the stream, such as no room: nothing is stored, and nothing
		// else would be. The same commit goes out until there is room.
		a.log.Error("append refused; it is tried again", "error", k.err)
		a.mu.Lock()
		a.refusal = k.err.Error()
		a.mu.Unlock()
		a.publish(p.append, retryDelayMax)
	}
	return nil
}

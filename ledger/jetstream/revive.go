package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The bucket of leases is in the memory of its servers, since each lease is written every few
// seconds and holds no truth. Servers that were restarted have lost it, and nats-server (2.15.2)
// elects no leader of such a stream by servers that have nothing: where two of three have restarted
// and the third is gone, it has none until that one is back, though every ledger has its quorum.
// So a bucket that has no leader for some time is deleted, and made again as one that was lost: on
// one server, where there are too few for its replicas. It gets its replicas when they are back.

// Times of a bucket without a leader.
const (
	reviveLeases = 3                // lifetimes of a lease without an answer, and at least reviveMin
	reviveMin    = 15 * time.Second // as an election may take as long
	reviveTime   = 10 * time.Second // for what is asked
	growEvery    = time.Minute      // between two looks at its replicas
)

// Codes of nats-server, which its client does not name.
const (
	codeNoPeers  = 10005 // too few servers are there for the replicas of a stream
	codeNoLeader = 10008 // too few servers are there to lead JetStream, or a stream
	codeOffline  = 10118 // none of the servers of a stream is there
)

// NoLeader reports whether an error of JetStream, by its code, is that no server leads it, or the
// stream that was asked about.
func NoLeader(code int) bool { return code == codeNoLeader || code == codeOffline }

// revive is what is known of a bucket that does not answer.
type revive struct {
	after time.Duration // without an answer it is looked at
	every time.Duration // growEvery

	mu      sync.Mutex
	silent  time.Time // since when it has not answered; zero: it has
	doubted time.Time // when it was looked at whether it has a leader
	looked  time.Time // when its replicas were
	busy    bool
}

// heard follows what the bucket answers, and acts beside its caller.
func (r *revive) heard(h *Holders, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil || errors.Is(err, ErrLeaseLost):
		r.silent = time.Time{}
		if h.replicas > 1 && now.Sub(r.looked) >= r.every && !r.busy {
			r.looked = now
			r.begin(h.grow)
		}
		return
	case r.silent.IsZero():
		r.silent = now
	}
	r.doubt(h, r.silent, now)
}

// Stalled notes that a lease is still there whose holder has not renewed it since an instant, and
// that should have run out: a server that was not restarted answers what it has, and removes
// nothing while none leads. That is no error, and as long a silence as one.
func (h *Holders) Stalled(since time.Time) {
	h.revive.mu.Lock()
	defer h.revive.mu.Unlock()
	h.revive.doubt(h, since, time.Now())
}

// doubt has the bucket looked at that has said nothing new since an instant, for long enough, and
// long enough after the last look. Whoever calls it has the lock.
func (r *revive) doubt(h *Holders, since, now time.Time) {
	if !r.busy && now.Sub(since) >= r.after && now.Sub(r.doubted) >= r.after {
		r.doubted = now
		r.begin(h.deleteLeaderless)
	}
}

// begin does something about the bucket, one thing at a time.
func (r *revive) begin(do func(context.Context)) {
	r.busy = true
	go func() { // ends after reviveTime
		ctx, cancel := context.WithTimeout(context.Background(), reviveTime)
		defer cancel()
		do(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy = false
	}()
}

// grow gives the bucket its replicas where it was made on fewer servers. What fails is tried again:
// too few of them are there still.
func (h *Holders) grow(ctx context.Context) {
	stream, err := h.js.Stream(ctx, holdersStream)
	if err != nil {
		return
	}
	config := stream.CachedInfo().Config
	if config.Replicas < h.replicas {
		config.Replicas = h.replicas
		_, _ = h.js.UpdateStream(ctx, config)
	}
}

// deleteLeaderless deletes the bucket where its servers say that it has no leader: every lease in
// it has run out. What fails is tried again.
func (h *Holders) deleteLeaderless(ctx context.Context) {
	stream, err := h.js.Stream(ctx, holdersStream)
	gone := hasCode(err, codeOffline)
	if err == nil {
		c := stream.CachedInfo().Cluster
		gone = c != nil && c.Leader == ""
	}
	if gone {
		_ = h.js.DeleteStream(ctx, holdersStream) // its leader would answer
	}
}

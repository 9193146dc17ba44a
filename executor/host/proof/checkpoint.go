// Package proof signs a tenant's checkpoints, has a witness cosign them, and keeps the keys
// that sign. [Signer] is the part of a tenant's loop that does so; nothing waits for it.
package proof

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Times say when checkpoints are signed; a zero field is the default.
type Times struct {
	Records      uint64        // after the last checkpoint, then the next one is signed; 0: 1000
	Gap          time.Duration // but not sooner after the last one began; 0: 1 s
	After        time.Duration // or so long after the first record that none covers; 0: 10 s
	Retry        time.Duration // after a tree that could not be signed; 0: 10 s
	WitnessRetry time.Duration // after a checkpoint that was not cosigned; 0: 1 minute
}

// Defaults of Times.
const (
	recordsDefault      = 1000
	gapDefault          = time.Second
	afterDefault        = 10 * time.Second
	retryDefault        = 10 * time.Second
	witnessRetryDefault = time.Minute
)

func (t Times) orDefault() Times {
	return Times{cmp.Or(t.Records, recordsDefault), cmp.Or(t.Gap, gapDefault),
		cmp.Or(t.After, afterDefault), cmp.Or(t.Retry, retryDefault),
		cmp.Or(t.WitnessRetry, witnessRetryDefault)}
}

// Config says what a Signer signs, and how. Tenant, KeysDir and Log are required.
type Config struct {
	Tenant  string
	KeysDir string       // folder of all tenants' keys
	Witness Witness      // zero: none
	Client  *http.Client // asks the witness
	Times   Times
	Log     *slog.Logger
}

// State is what the fold of a session says of checkpoints and keys: *executor.State.
type State interface {
	Signed() *rowspb.CheckpointRow // the largest checkpoint in the ledger; nil: none
	Key() string                   // verifier key in force; empty: no rotation names one
	Meta() *rowspb.Meta
}

// Signer signs a tenant's checkpoints, while its host holds the tenant: each tree that is
// to be signed is taken at the end of a turn, and checked, signed and written on a
// goroutine of its own, one at a time. Nothing waits for it. Then a record is appended
// about it; a checkpoint's own record asks for no other.
//
// A tree is signed only if it is an extension of every checkpoint that is known to
// have been signed: the largest in the ledger, and the one in the file, which may be
// ahead of it where this host died in between. Then the record is appended late.
//
// Its methods are for the goroutine of the tenant's loop, except Digest, KeyProblem, Run
// and View.
type Signer struct {
	cfg     Config
	witness *witnessing      // nil: none
	wake    chan struct{}    // buffered 1: there is something to take, or a checkpoint is due
	digests chan stateDigest // buffered 1: of the last snapshot
	timer   *time.Timer      // the next checkpoint

	state State         // of the session
	tiles *tiles.Writer // of the session

	since   time.Time // when the first record came that no checkpoint covers; zero: none
	size    uint64    // of the last checkpoint
	began   time.Time // when the last tree was taken to be signed
	retry   time.Time // nothing is signed before
	busy    bool
	covered time.Time   // since, of the tree that is being signed
	tree    uint64      // its size
	results chan signed // buffered 1
	running sync.WaitGroup

	ready  *signed        // to be appended
	said   uint64         // size of the one whose record is on its way; 0: none is
	digest *stateDigest   // of a snapshot, to be signed
	floor  uint64         // records up to the last rotation: what is smaller the old key has signed
	check  checking       // what other hosts have signed
	rotate *rotationAsked // under way

	file sync.Mutex // of the checkpoint; whoever has it may wait for the disk, so the loop never does

	mu     sync.Mutex // guards all below
	shown  api.Checkpoint
	forked string // Forked
}

// stateDigest is the digest of the state that was folded from the first records.
type stateDigest struct {
	records uint64
	digest  []byte
}

// New makes the signer of a tenant, before its first session.
func New(cfg Config) *Signer {
	cfg.Times = cfg.Times.orDefault()
	s := &Signer{cfg: cfg, wake: make(chan struct{}, 1), digests: make(chan stateDigest, 1)}
	s.timer = time.AfterFunc(time.Hour, s.signal)
	s.timer.Stop()
	s.witness = newWitnessing(cfg, s)
	return s
}

func (s *Signer) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Wake has a value when there is something to Take, or a turn is to end with Sign.
func (s *Signer) Wake() <-chan struct{} { return s.wake }

// Open begins a session, which ctx ends: it finds out what no checkpoint covers. What others have
// signed is held against the tiles, and these against the leader of the stream.
func (s *Signer) Open(ctx context.Context, state State, t *tiles.Writer, leader Leader) {
	s.state, s.tiles = state, t
	s.check = newChecking(ctx, leader, state.Signed())
	s.since, s.retry, s.busy, s.ready, s.said, s.digest, s.rotate = time.Time{}, time.Time{}, false,
		nil, 0, nil, nil
	s.results = make(chan signed, 1)
	s.size = state.Signed().GetSigned().GetSize()
	for leaf, err := range t.Records(s.size) {
		record := new(pb.Record)
		if err != nil || leaf.Type != "" || record.UnmarshalVT(leaf.Body) != nil ||
			record.GetCheckpointSigned() == nil {
			s.since = time.Now()
			break
		}
	}
}

// Run asks the witness, if there is one, until ctx ends with the session.
func (s *Signer) Run(ctx context.Context) {
	if s.witness != nil {
		s.witness.run(ctx)
	}
}

// Close waits for the goroutines of the session, whose context has ended. Without a
// session it does nothing.
func (s *Signer) Close() {
	s.running.Wait()
	s.timer.Stop()
	if s.rotate != nil {
		const problem = "the host let the tenant go before the rotation was folded; " +
			"look at sagenbaum status"
		s.rotate.answer(api.RotationAnswer{}, errors.New(problem))
		s.rotate = nil
	}
}

// Fenced forgets what was on its way at the end of a term. A checkpoint that did not reach
// the ledger is in the file, and a rotation is sent again in the next term.
func (s *Signer) Fenced() {
	s.said = 0
	if s.rotate != nil {
		s.rotate.sent = false
	}
}

// Folded follows what the ledger says of checkpoints and keys: a record that was folded,
// whether it is effective, and why not.
func (s *Signer) Folded(e ledger.Entry, effective bool, reason string) {
	if k := e.Record.GetCheckpointSigned(); k != nil {
		if own := k.Size == s.said; own {
			s.said = 0
		} else if effective {
			s.check.wants(k, e.Address.Sequence)
		}
		if effective {
			s.size = max(s.size, k.Size)
			if k.Size+1 == s.state.Meta().Records { // nothing in between
				s.since = time.Time{}
			}
		}
		return
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if effective && e.Record.GetTermStarted() != nil {
		s.blame("")
	}
	if k := e.Record.GetKeyRotated(); k != nil {
		if effective {
			s.floor = s.state.Meta().Records
			s.cfg.Log.Warn("checkpoints are signed by another key from here on", "old", k.OldKey, "new",
				k.NewKey, "actor", k.Actor, "reason", k.Reason)
		}
		s.rotated(k, effective, reason)
	}
}

// Sign begins to sign, or sets the timer to when that is due; without holding, nothing is
// signed. It comes at the end of a turn. write writes all that was folded to the tiles, before
// a tree is taken; the error is its.
func (s *Signer) Sign(holding bool, write func() error) error {
	s.holdAgainst()
	if !holding || s.busy || s.ready != nil || s.said != 0 {
		return nil
	}
	now := time.Now()
	if d := s.digest; d != nil && now.After(s.retry) {
		s.digest = nil
		if d.records >= s.floor && d.records > 0 && d.records <= s.tiles.Edge.Size() {
			return s.start(d, write)
		}
	}
	if s.since.IsZero() {
		return nil
	}
	due := s.since.Add(s.cfg.Times.After)
	if gap := s.began.Add(s.cfg.Times.Gap); gap.Before(due) &&
		s.tiles.Edge.Size() >= s.size+s.cfg.Times.Records {
		due = gap
	}
	if s.retry.After(due) {
		due = s.retry
	}
	if due.After(now) {
		s.timer.Reset(due.Sub(now))
		return nil
	}
	return s.start(nil, write)
}

// Soon lets the next checkpoint be signed at the end of this turn, for an operator about
// to export the ledger, and says how many records it will cover.
func (s *Signer) Soon(holding bool) api.SignAnswer {
	if !holding || s.since.IsZero() { // what there is, is signed or on its way
		return api.SignAnswer{Size: max(s.size, s.tree), Later: !holding}
	}
	s.since = s.since.Add(-s.cfg.Times.After)
	return api.SignAnswer{Size: s.tiles.Edge.Size()}
}

// start signs the tree as it is, or that of a digest, on a goroutine that ends with the
// result.
func (s *Signer) start(d *stateDigest, write func() error) error {
	if err := write(); err != nil {
		return err
	}
	s.busy, s.covered, s.began = true, s.since, time.Now()
	if s.tree = s.tiles.Edge.Size(); d == nil {
		s.since = time.Time{}
	}
	j := signJob{
		tenant: s.cfg.Tenant, keys: s.cfg.KeysDir, named: s.state.Key(),
		last: s.state.Signed().GetSigned(),
		tree: tiles.NewTree(s.tiles.Files, s.tiles.Edge.Clone()), digest: d, file: &s.file,
		log: s.cfg.Log,
	}
	results := s.results
	s.running.Go(func() {
		r, err := j.sign()
		r.err = err
		results <- r
		s.signal()
	})
	return nil
}

// Take takes what other goroutines have left: a tree that was signed, a digest to be signed. The
// error halts the tenant: another host has signed something else than what was folded here.
func (s *Signer) Take() error {
	select {
	case err := <-s.check.results:
		if err := s.checked(err); err != nil {
			return err
		}
	default:
	}
	select {
	case r := <-s.results:
		s.take(r)
	default:
	}
	select {
	case d := <-s.digests:
		s.digest = &d
	default:
	}
	return nil
}

// take takes a result. What could not be signed is tried again later.
func (s *Signer) take(r signed) {
	s.busy = false
	s.mu.Lock()
	was := s.shown.Problem
	s.shown.Problem, s.shown.Alarm, s.shown.NoKey = "", false, r.noKey
	if r.err != nil {
		s.shown.Problem, s.shown.Alarm = r.err.Error(), errors.Is(r.err, errForked)
	} else {
		s.shown.Key = r.key
	}
	problem := s.shown.Problem
	s.mu.Unlock()
	if r.err == nil {
		s.size, s.ready = max(s.size, r.checkpoint.Size), &r
		if was != "" {
			s.cfg.Log.Info("checkpoints are signed again", "size", r.checkpoint.Size)
		}
		if r.digest != nil {
			return
		}
		if r.checkpoint.Size < s.tree { // one that was signed before: the rest is still to be
			s.since = s.covered
		}
		s.witness.ask(r)
		return
	}
	if !s.covered.IsZero() {
		s.since = s.covered
	}
	s.retry = time.Now().Add(s.cfg.Times.Retry)
	if problem != was {
		s.cfg.Log.Error("no checkpoint: the ledger goes on without", "error", r.err, "forked",
			errors.Is(r.err, errForked))
	}
}

// Digest leaves the digest of the state that was folded from the first records to be
// signed; a later one takes its place. One goroutine may call it, beside the loop's.
func (s *Signer) Digest(records uint64, digest []byte) {
	select {
	case <-s.digests:
	default:
	}
	select {
	case s.digests <- stateDigest{records, digest}:
		s.signal()
	default:
	}
}

// Records are the records about the tree that are to be appended, in a term and at an
// instant, unix ns.
func (s *Signer) Records(term uint64, epochNs int64) (records []*pb.Record) {
	if r := s.ready; r != nil {
		s.ready, s.said = nil, r.checkpoint.Size
		records = append(records, &pb.Record{Term: term, EpochNs: epochNs,
			Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{
				Size: r.checkpoint.Size, Root: r.checkpoint.Root[:], StateDigest: r.digest,
				Note: string(r.note),
			}}})
	}
	if r := s.rotate; r != nil && !r.sent {
		r.sent = true
		records = append(records, &pb.Record{Term: term, EpochNs: epochNs,
			Kind: &pb.Record_KeyRotated{KeyRotated: r.record}})
	}
	return records
}

// View adds to what the ledger says of checkpoints what this host knows. Any goroutine may
// call it.
func (s *Signer) View(v api.Checkpoint) api.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Key, v.Problem, v.Alarm, v.NoKey = s.shown.Key, s.shown.Problem, s.shown.Alarm, s.shown.NoKey
	v.Witness, v.Cosigned, v.Away, v.WitnessAlarm = s.shown.Witness, s.shown.Cosigned, s.shown.Away,
		s.shown.WitnessAlarm
	return v
}

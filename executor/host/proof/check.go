package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// leaderTimeout is for one answer of the leader.
const leaderTimeout = 5 * time.Second

// Leader is the leader of a tenant's stream: *jetstream.Store.
type Leader interface {
	Head(ctx context.Context) (ledger.Head, error)
	Get(ctx context.Context, sequence uint64) (ledger.Message, error)
}

// checking holds what other hosts have signed against the tiles of this one. A server that was
// started with an older or foreign store answers reads from a history that is not the leader's,
// and no guard sees it in a host that has read from there and goes on where the two agree again.
type checking struct {
	ctx    context.Context // of the session
	leader Leader
	said   *pb.CheckpointSigned // the largest that was not held against the tiles; nil: none
	at     uint64               // sequence of its record

	busy    bool
	held    uint64     // sequence of the one that is being held
	results chan error // buffered 1
}

func newChecking(ctx context.Context, leader Leader, last *rowspb.CheckpointRow) checking {
	c := checking{ctx: ctx, leader: leader, results: make(chan error, 1)}
	c.wants(last.GetSigned(), last.GetAt().GetSequence())
	return c
}

// wants has a checkpoint held against the tiles. The largest is enough: its tree has all others.
func (c *checking) wants(k *pb.CheckpointSigned, sequence uint64) {
	if k.GetSize() > c.said.GetSize() {
		c.said, c.at = k, sequence
	}
}

// holdAgainst begins to hold what others have signed against the tiles, once these are written.
func (s *Signer) holdAgainst() {
	c := &s.check
	if c.said == nil || c.busy || s.tiles.Size() != s.tiles.Edge.Size() {
		return
	}
	j := checkJob{said: c.said, at: c.at, leader: c.leader, log: s.cfg.Log,
		tree: tiles.NewTree(s.tiles.Files, s.tiles.Edge.Clone())}
	ctx, results := c.ctx, c.results
	c.said, c.busy, c.held = nil, true, c.at
	s.running.Go(func() {
		results <- j.run(ctx, s.cfg.Times)
		s.signal()
	})
}

// checked takes a result. What could not be compared, the next checkpoint covers, too.
func (s *Signer) checked(err error) error {
	s.check.busy = false
	var halted *ledger.Halted
	switch {
	case errors.As(err, &halted):
		return err
	case errors.Is(err, errForked):
		s.cfg.Log.Error("the ledger has a checkpoint that is not of its records", "error", err)
		if s.check.held > s.state.Meta().TermSequence { // else its host holds the tenant no more
			s.blame(err.Error())
		}
	case err == nil:
		s.blame("")
	case s.check.ctx.Err() == nil:
		s.cfg.Log.Warn("a signed checkpoint was not held against the tiles", "error", err)
	}
	return nil
}

// blame notes what this host has proved of the one that holds the tenant.
func (s *Signer) blame(problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forked = problem
}

// Forked is why the holder of the tenant is known to have folded another history than the leader of
// the stream has, by a checkpoint that it has signed; empty: it is not.
func (s *Signer) Forked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forked
}

// Claims returns what is done before this host claims the tenant, on any goroutine, once all that
// was folded is in the tiles: it holds what no checkpoint has against the leader of the stream. A
// replica may have answered reads from a history that is not the leader's, and no one else may hold
// the tenant and sign. Its errors: *ledger.Halted, or what is to be tried again.
func (s *Signer) Claims() func(ctx context.Context) error {
	row := s.state.Signed()
	j := checkJob{said: row.GetSigned(), at: row.GetAt().GetSequence(), leader: s.check.leader,
		log: s.cfg.Log, tree: tiles.NewTree(s.tiles.Files, s.tiles.Edge.Clone())}
	return j.claim
}

// checkJob is one checkpoint that is held against a tree.
type checkJob struct {
	said   *pb.CheckpointSigned
	at     uint64
	tree   *tiles.Tree
	leader Leader
	log    *slog.Logger
}

// run holds the checkpoint against the tree until the leader has said who is wrong where the two
// differ. Errors: as of held, ctx's.
func (j checkJob) run(ctx context.Context, times Times) error {
	for {
		_, err := j.held(ctx)
		var halted *ledger.Halted
		if err == nil || errors.As(err, &halted) || errors.Is(err, errForked) ||
			!errors.Is(err, errUnled) || !pause.For(ctx, times.Retry) {
			return err
		}
	}
}

// held holds the checkpoint against the tree, and says up to which sequence the tiles have what
// the leader of the stream has. Errors: *ledger.Halted (the leader has something else), errForked
// (it has the same, and the checkpoint is wrong: a host that had folded something else has signed
// it), errUnled, a tile's.
func (j checkJob) held(ctx context.Context) (through uint64, err error) {
	root, err := j.tree.Prover().Root(j.said.Size)
	if err != nil {
		return 0, err
	}
	if bytes.Equal(root[:], j.said.Root) {
		for leaf, err := range j.tree.Files.Records(j.said.Size - 1) {
			return leaf.Sequence - 1, err // of its message there may be more
		}
	}
	j.log.Warn("a signed checkpoint has another root than what was folded here: it is held against "+
		"the leader of the stream", "size", j.said.Size, "sequence", j.at)
	if err := j.same(ctx, 1, j.at-1); err != nil {
		return 0, err
	}
	return j.at - 1, fmt.Errorf("%w: the one of %d records at %d; the leader of the stream has what "+
		"was folded here", errForked, j.said.Size, j.at)
}

// ledMax is how many messages are held against the leader before a claim, where no checkpoint has
// them: the latest.
const ledMax = 5000

// claim holds what no checkpoint has against the leader of the stream, before its host may claim
// the tenant. Errors: as of held, but for errForked.
func (j checkJob) claim(ctx context.Context) (err error) {
	through := uint64(0)
	if j.said.GetSize() > 0 {
		if through, err = j.held(ctx); err != nil && !errors.Is(err, errForked) {
			return err
		}
	}
	last := j.tree.Files.Last()
	if last-through > ledMax {
		through = last - ledMax
	}
	return j.same(ctx, through+1, last)
}

// lagMax is how long a leader that has just been elected may lack what was read before.
const lagMax = 2 * time.Second

// errUnled says that the leader of the stream has not answered.
var errUnled = errors.New("the leader of the stream does not answer")

// same wants the leader to have what the tiles have, from a sequence to another one. Errors:
// *ledger.Halted, errUnled, a tile's.
func (j checkJob) same(ctx context.Context, from, to uint64) error {
	head, err := within(ctx, j.leader.Head)
	if err != nil {
		return err
	}
	for mine, err := range j.tree.Files.Messages(max(head.First, from)) {
		if err != nil || mine.Sequence > to {
			return err
		}
		get := func(ctx context.Context) (ledger.Message, error) {
			return j.leader.Get(ctx, mine.Sequence)
		}
		m, err := within(ctx, get)
		var ends *ledger.Refused
		if errors.As(err, &ends) && pause.For(ctx, lagMax) {
			m, err = within(ctx, get)
		}
		if err != nil && !errors.As(err, &ends) {
			return err
		}
		if err != nil || !tiles.SameMessage(mine, m) {
			return &ledger.Halted{Guard: "G5", Sequence: mine.Sequence,
				Problem: "the leader of the stream does not have the record that was folded here: it was " +
					"read from a server that has another history"}
		}
	}
	return nil
}

// within asks the leader once. Errors: what it says (*ledger.Halted, *ledger.Refused), errUnled.
func within[T any](ctx context.Context, ask func(context.Context) (T, error)) (answer T,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	answer, err = ask(ctx)
	var halted *ledger.Halted
	var refused *ledger.Refused
	if err != nil && !errors.As(err, &halted) && !errors.As(err, &refused) {
		err = fmt.Errorf("%w: %w", errUnled, err)
	}
	return answer, err
}

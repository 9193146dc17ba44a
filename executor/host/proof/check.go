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
	GetFromLeader(ctx context.Context, sequence uint64) (ledger.Message, error)
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
	c.said, c.busy = nil, true
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
	case err != nil && s.check.ctx.Err() == nil:
		s.cfg.Log.Warn("a signed checkpoint was not held against the tiles", "error", err)
	}
	return nil
}

// checkJob is one checkpoint that is held against a tree.
type checkJob struct {
	said   *pb.CheckpointSigned
	at     uint64
	tree   *tiles.Tree
	leader Leader
	log    *slog.Logger
}

// run returns a *ledger.Halted where the tree is not what was signed, and the leader of the stream
// has something else than the tiles. Where it has the same, the checkpoint is wrong, which is said:
// a host that had folded something else has signed it.
func (j checkJob) run(ctx context.Context, times Times) error {
	root, err := j.tree.Prover().Root(j.said.Size)
	if err != nil {
		return err
	}
	if bytes.Equal(root[:], j.said.Root) {
		return nil
	}
	j.log.Warn("a signed checkpoint has another root than what was folded here: it is held against "+
		"the leader of the stream", "size", j.said.Size, "sequence", j.at)
	for {
		differs, err := j.differs(ctx)
		var halted *ledger.Halted
		switch {
		case errors.As(err, &halted):
			return err
		case differs != 0:
			return &ledger.Halted{Guard: "G5", Sequence: differs, Problem: fmt.Sprintf(
				"the leader of the stream has another record here than the tiles, and the checkpoint of %d "+
					"records that is signed at %d is not theirs: they were read from a server that has "+
					"another history", j.said.Size, j.at)}
		case err == nil:
			return fmt.Errorf("%w: the one of %d records at %d; the leader of the stream has what was "+
				"folded here", errForked, j.said.Size, j.at)
		}
		if !pause.For(ctx, times.Retry) {
			return ctx.Err()
		}
	}
}

// differs returns the first sequence before the record of the checkpoint at which the leader has
// something else than the tiles; 0: there is none.
func (j checkJob) differs(ctx context.Context) (uint64, error) {
	head, err := within(ctx, j.leader.Head)
	if err != nil {
		return 0, err
	}
	for mine, err := range j.tree.Files.Messages(max(head.First, 1)) {
		if err != nil || mine.Sequence >= j.at {
			return 0, err
		}
		m, err := within(ctx, func(ctx context.Context) (ledger.Message, error) {
			return j.leader.GetFromLeader(ctx, mine.Sequence)
		})
		if err != nil {
			return 0, err
		}
		if !tiles.SameMessage(mine, m) {
			return mine.Sequence, nil
		}
	}
	return 0, nil
}

// within asks the leader once, which answers nothing while there is none.
func within[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	return ask(ctx)
}

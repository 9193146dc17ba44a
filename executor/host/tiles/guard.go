package tiles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// fenceTimeout is for one look at the record that a claim is fenced on.
const fenceTimeout = 5 * time.Second

// HaltedName keeps a halt over a restart, beside the tiles.
const HaltedName = "halted.json"

// fillingTiles is what is under way while the tiles are filled in.
const fillingTiles = "filling the tiles in from the stream"

// Follower follows work that may take long.
type Follower interface {
	Begin(what string, from, to, records uint64)
	At(sequence, records uint64)
}

// Guard holds a stream, the tiles and the state against each other.
type Guard struct {
	tenant string
	ledger ledger.Store
	tiles  *Writer
	log    *slog.Logger
	follow Follower
}

// NewGuard holds a ledger against the tiles of its tenant; f follows what takes long.
func NewGuard(tenant string, l ledger.Store, t *Writer, log *slog.Logger, f Follower) *Guard {
	return &Guard{tenant: tenant, ledger: l, tiles: t, log: log, follow: f}
}

// Check holds all against each other before anything is folded or dispatched: G1, G2 and G3, and
// what an earlier session has found. It fills in what the tiles lack.
func (g *Guard) Check(ctx context.Context, head ledger.Head, meta *rowspb.Meta) error {
	if err := g.anchor(ctx, head, meta); err != nil {
		return err
	}
	if err := g.Stream(ctx, head); err != nil {
		return err
	}
	if err := g.sameHalt(ctx, head); err != nil {
		return err
	}
	return g.State(ctx, meta)
}

// Stream holds the stream against the tiles: it must go on where they end, or
// have their last record where they have it.
func (g *Guard) Stream(ctx context.Context, head ledger.Head) error {
	last := g.tiles.Last()
	switch {
	case head.First > 1 && last+1 < head.First:
		return &ledger.Halted{Guard: "G1", Sequence: last,
			Problem: fmt.Sprintf("the stream starts at %d, and the tiles of this host end here: copy the "+
				"tiles of the host that repaired it", head.First)}
	case last > head.Last:
		return &ledger.Halted{Guard: "G3", Sequence: last,
			Problem: fmt.Sprintf("the stream ends at %d, and the tiles here: it has lost its tail",
				head.Last)}
	case head.First > 1 && head.Last >= head.First:
		if err := g.first(ctx, head.First); err != nil {
			return err
		}
	case head.First > 1:
		return &ledger.Halted{Guard: "G1", Sequence: last, Problem: "the stream is empty"}
	}
	if last == 0 || last < head.First {
		return nil
	}
	m, err := g.ledger.Get(ctx, last)
	if err != nil {
		return err
	}
	return g.same(m)
}

// first wants a stream that begins late to begin with the record of its repair: a
// stream that has lost its first records begins late too.
func (g *Guard) first(ctx context.Context, first uint64) error {
	m, err := g.ledger.Get(ctx, first)
	if err != nil {
		return err
	}
	entries, err := ledger.Decode(g.tenant, m)
	if err != nil {
		return err
	}
	if e := entries[0]; e.Err != nil || e.Source.Class != ledger.ClassExecutor ||
		e.Record.GetLedgerRepaired().GetThrough() != first-1 {
		return &ledger.Halted{Guard: "G1", Sequence: first,
			Problem: fmt.Sprintf("the stream starts at %d, and not with a repair", first)}
	}
	return nil
}

// Fence finds out why a claim was refused by its fence: another claim was
// faster, or the stream has lost the term record that this one is fenced on, or it has a later
// one where this host has folded something else, which no claim would ever get past.
func (g *Guard) Fence(ctx context.Context, fence uint64, refused error) error {
	if at := new(ledger.Fenced); errors.As(refused, &at) && at.Last > fence &&
		at.Last <= g.tiles.Last() {
		return g.term(at.Last)
	}
	if fence == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	m, err := g.ledger.Get(ctx, fence)
	var halted *ledger.Halted
	if errors.As(err, &halted) {
		return halted
	}
	if err != nil || fence > g.tiles.Last() {
		return nil // it may pass
	}
	return g.same(m)
}

// term wants the tiles to have a term at a sequence, as the leader of the stream says there is:
// servers of one stream that were started with stores of different moments answer reads from
// different histories.
func (g *Guard) term(sequence uint64) error {
	mine, err := g.tiles.Files.message(sequence)
	if err != nil {
		return haltOnTiles(err, sequence)
	}
	source, _ := ledger.ParseSubject(mine.Subject)
	if source.Term && mine.Sequence == sequence {
		return nil
	}
	return &ledger.Halted{Guard: "G5", Sequence: sequence,
		Problem: "the leader of the stream has a term here, and the tiles another record, which was " +
			"folded: it was read from a server that has another history"}
}

// same holds a message of the stream against the tiles, which have it.
func (g *Guard) same(m ledger.Message) error {
	same, err := InTiles(g.tiles.Files, m)
	switch {
	case err != nil:
		return haltOnTiles(err, m.Sequence)
	case !same:
		return &ledger.Halted{Guard: "G3", Sequence: m.Sequence,
			Problem: "the stream has another record here than the tiles, which were written when it was " +
				"folded"}
	}
	return nil
}

// InTiles reports whether a message is the one that the tiles have.
func InTiles(t *Files, m ledger.Message) (bool, error) {
	mine, err := t.message(m.Sequence)
	if err != nil {
		return false, err
	}
	return SameMessage(mine, m), nil
}

// SameMessage reports whether two messages are the same in all that an address is made of.
func SameMessage(a, b ledger.Message) bool {
	return a.Sequence == b.Sequence && a.StampNs == b.StampNs && a.Subject == b.Subject &&
		a.ContentType == b.ContentType && bytes.Equal(a.Data, b.Data)
}

// State holds the tiles against the state that was folded beside them. Tiles
// that end before it (another disk, a power cut) are filled in from the stream.
func (g *Guard) State(ctx context.Context, meta *rowspb.Meta) error {
	if meta.Records > g.tiles.Size() {
		if err := g.refill(ctx, meta.Applied.GetSequence()); err != nil {
			return err
		}
	}
	g.tiles.From(meta.Records)
	if meta.Records == 0 {
		return nil
	}
	leaf, err := g.tiles.Leaf(meta.Records - 1)
	if err != nil {
		return haltOnTiles(err, meta.Applied.GetSequence())
	}
	if !bytes.Equal(leaf[:], meta.Applied.Leaf) {
		return &ledger.Halted{Guard: "G3", Sequence: meta.Applied.Sequence, Problem: fmt.Sprintf(
			"the tiles do not have %s, which was folded: state and tiles are of two histories",
			ledger.FormatFullAddress(meta.Applied))}
	}
	return nil
}

// refill writes into the tiles what the stream has up to a sequence.
func (g *Guard) refill(ctx context.Context, upTo uint64) error {
	t, from := g.tiles, g.tiles.Last()+1
	g.log.Info(fillingTiles, "from", from, "to", upTo)
	g.follow.Begin(fillingTiles, from-1, upTo, t.Size())
	if err := t.FromMessage(from); err != nil {
		return haltOnTiles(err, from)
	}
	bytes := 0
	for m, err := range g.ledger.Read(ctx, from) {
		if err != nil {
			return err
		}
		entries, err := ledger.Decode(g.tenant, m)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := g.tiles.Keep(m, e); err != nil {
				return err
			}
		}
		if bytes += len(m.Data); bytes > turn.BytesMax || m.Sequence == upTo {
			if err := t.Flush(); err != nil {
				return err
			}
			g.follow.At(m.Sequence, t.Size())
			bytes = 0
		}
		if m.Sequence == upTo {
			return nil
		}
	}
	return ctx.Err()
}

// FromMessage says that the next record to be added is the first of a message; the
// tiles end before it, or within it.
func (t *Writer) FromMessage(sequence uint64) error {
	index := t.Size()
	for index > 0 {
		leaves, err := t.tile((index - 1) / ledger.TileWidth)
		if err != nil {
			return err
		}
		for at := int((index - 1) % ledger.TileWidth); at >= 0; at-- {
			if leaves[at].Sequence < sequence {
				t.From(index)
				return nil
			}
			index--
		}
	}
	t.From(0)
	return nil
}

// Keep puts a record into the tiles, or holds it against them where they have it.
func (t *Writer) Keep(m ledger.Message, e ledger.Entry) error {
	err := t.Add(m, e)
	var damaged *ReadError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOtherRecord):
		return t.otherRecord(m, e)
	case errors.As(err, &damaged):
		return haltOnTiles(err, m.Sequence)
	}
	return fmt.Errorf("cannot write the tiles: %w", err)
}

// otherRecord says who is wrong when stream and tiles differ. A tile that
// contradicts its own entries is no witness.
func (t *Writer) otherRecord(m ledger.Message, e ledger.Entry) error {
	problem := "the stream has another record here than the tiles, which were written when it was " +
		"folded"
	if _, err := t.message(m.Sequence); err != nil {
		problem = "the tiles differ from the stream here, and from themselves: " + err.Error()
	}
	return &ledger.Halted{Guard: "G3", Sequence: m.Sequence, Problem: problem + "; the stream has " +
		ledger.FormatFullAddress(e.Address)}
}

// sameHalt halts the tenant again for what an earlier session found in this very
// stream, unless it is not so any more: see turn.Halt.
func (g *Guard) sameHalt(ctx context.Context, head ledger.Head) error {
	name := g.tiles.Path(HaltedName)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var was turn.Halt
	if err != nil || json.Unmarshal(data, &was) != nil {
		return os.Remove(name) // nothing to go by; the guards look for themselves
	}
	again, err := was.Again(head, g.tiles.Last(), func(sequence uint64) (bool, error) {
		m, err := g.ledger.Get(ctx, sequence)
		var halted *ledger.Halted
		if errors.As(err, &halted) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		same, err := InTiles(g.tiles.Files, m)
		return same && err == nil, nil
	})
	switch {
	case err != nil:
		return err
	case again != nil:
		return again
	}
	g.log.Info("what had halted the tenant is not so any more", "sequence", was.Sequence, "problem",
		was.Problem)
	return os.Remove(name)
}

// KeepHalt keeps a halt beside the tiles for the next session, where its guard would not
// find it again.
func KeepHalt(root, tenant string, halted *ledger.Halted, createdNs int64) error {
	kept, keep := turn.KeepHalt(halted, createdNs)
	if !keep {
		return nil
	}
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return store.WriteSynced(filepath.Join(root, tenant, HaltedName), data)
}

// anchor is turn.CheckAnchor over the ledger.
func (g *Guard) anchor(ctx context.Context, head ledger.Head, meta *rowspb.Meta) error {
	return turn.CheckAnchor(head, meta, func(sequence uint64) ([]ledger.Entry, error) {
		m, err := g.ledger.Get(ctx, sequence)
		if err != nil {
			return nil, err
		}
		return ledger.Decode(g.tenant, m)
	})
}

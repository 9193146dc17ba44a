package host

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

// haltedName keeps a halt over a restart, beside the tiles.
const haltedName = "halted.json"

// follower follows work that may take long.
type follower interface {
	begin(what string, from, to, records uint64)
	at(sequence, records uint64)
}

// guard holds a stream, the tiles and the state against each other.
type guard struct {
	tenant string
	ledger ledger.Store
	tiles  *tiles
	log    *slog.Logger
	follow follower
}

// check holds all against each other before anything is folded or dispatched: G1, G2 and G3, and what an earlier session has found. It fills in
// what the tiles lack.
func (g *guard) check(ctx context.Context, head ledger.Head, meta *rowspb.Meta) error {
	if err := g.anchor(ctx, head, meta); err != nil {
		return err
	}
	if err := g.stream(ctx, head); err != nil {
		return err
	}
	if err := g.sameHalt(ctx, head); err != nil {
		return err
	}
	return g.state(ctx, meta)
}

// stream holds the stream against the tiles: it must go on where they end, or
// have their last record where they have it.
func (g *guard) stream(ctx context.Context, head ledger.Head) error {
	last := g.tiles.last()
	switch {
	case head.First > 1 && last+1 < head.First:
		return &ledger.Halted{Guard: "G1", Sequence: last, Problem: fmt.Sprintf("the stream starts at %d, and the tiles of this host end here: copy the tiles of the host that repaired it", head.First)}
	case last > head.Last:
		return &ledger.Halted{Guard: "G3", Sequence: last, Problem: fmt.Sprintf("the stream ends at %d, and the tiles here: it has lost its tail", head.Last)}
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
func (g *guard) first(ctx context.Context, first uint64) error {
	m, err := g.ledger.Get(ctx, first)
	if err != nil {
		return err
	}
	entries, err := ledger.Decode(g.tenant, m)
	if err != nil {
		return err
	}
	if e := entries[0]; e.Err != nil || e.Source.Class != ledger.ClassExecutor || e.Record.GetLedgerRepaired().GetThrough() != first-1 {
		return &ledger.Halted{Guard: "G1", Sequence: first, Problem: fmt.Sprintf("the stream starts at %d, and not with a repair", first)}
	}
	return nil
}

// fence finds out why a claim was refused by its fence: another claim was
// faster, or the stream has lost the term record that this one is fenced on.
func (g *guard) fence(ctx context.Context, fence uint64) error {
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
	if err != nil || fence > g.tiles.last() {
		return nil // it may pass
	}
	return g.same(m)
}

// same holds a message of the stream against the tiles, which have it.
func (g *guard) same(m ledger.Message) error {
	same, err := inTiles(g.tiles.tileFiles, m)
	switch {
	case err != nil:
		return haltOnTiles(err, m.Sequence)
	case !same:
		return &ledger.Halted{Guard: "G3", Sequence: m.Sequence, Problem: "the stream has another record here than the tiles, which were written when it was folded"}
	}
	return nil
}

// inTiles reports whether a message is the one that the tiles have.
func inTiles(t *tileFiles, m ledger.Message) (bool, error) {
	mine, err := t.message(m.Sequence)
	if err != nil {
		return false, err
	}
	return sameMessage(mine, m), nil
}

func sameMessage(a, b ledger.Message) bool {
	return a.Sequence == b.Sequence && a.StampNs == b.StampNs && a.Subject == b.Subject && a.ContentType == b.ContentType && bytes.Equal(a.Data, b.Data)
}

// state holds the tiles against the state that was folded beside them. Tiles
// that end before it (another disk, a power cut) are filled in from the stream.
func (g *guard) state(ctx context.Context, meta *rowspb.Meta) error {
	if meta.Records > g.tiles.Size() {
		if err := g.refill(ctx, meta.Applied.GetSequence()); err != nil {
			return err
		}
	}
	g.tiles.from(meta.Records)
	if meta.Records == 0 {
		return nil
	}
	leaf, err := g.tiles.Leaf(meta.Records - 1)
	if err != nil {
		return haltOnTiles(err, meta.Applied.GetSequence())
	}
	if !bytes.Equal(leaf[:], meta.Applied.Leaf) {
		return &ledger.Halted{Guard: "G3", Sequence: meta.Applied.Sequence, Problem: fmt.Sprintf(
			"the tiles do not have %s, which was folded: state and tiles are of two histories", ledger.FormatFullAddress(meta.Applied))}
	}
	return nil
}

// refill writes into the tiles what the stream has up to a sequence.
func (g *guard) refill(ctx context.Context, upTo uint64) error {
	t, from := g.tiles, g.tiles.last()+1
	g.log.Info(fillingTiles, "from", from, "to", upTo)
	g.follow.begin(fillingTiles, from-1, upTo, t.Size())
	if err := t.fromMessage(from); err != nil {
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
			if err := g.tiles.keep(m, e); err != nil {
				return err
			}
		}
		if bytes += len(m.Data); bytes > turn.BytesMax || m.Sequence == upTo {
			if err := t.Flush(); err != nil {
				return err
			}
			g.follow.at(m.Sequence, t.Size())
			bytes = 0
		}
		if m.Sequence == upTo {
			return nil
		}
	}
	return ctx.Err()
}

// fromMessage says that the next record to be added is the first of a message; the
// tiles end before it, or within it.
func (t *tiles) fromMessage(sequence uint64) error {
	index := t.Size()
	for index > 0 {
		leaves, err := t.tile((index - 1) / ledger.TileWidth)
		if err != nil {
			return err
		}
		for at := int((index - 1) % ledger.TileWidth); at >= 0; at-- {
			if leaves[at].Sequence < sequence {
				t.from(index)
				return nil
			}
			index--
		}
	}
	t.from(0)
	return nil
}

// keep puts a record into the tiles, or holds it against them where they have it.
func (t *tiles) keep(m ledger.Message, e ledger.Entry) error {
	err := t.add(m, e)
	var damaged *tileReadErr
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
func (t *tiles) otherRecord(m ledger.Message, e ledger.Entry) error {
	problem := "the stream has another record here than the tiles, which were written when it was folded"
	if _, err := t.message(m.Sequence); err != nil {
		problem = "the tiles differ from the stream here, and from themselves: " + err.Error()
	}
	return &ledger.Halted{Guard: "G3", Sequence: m.Sequence, Problem: problem + "; the stream has " + ledger.FormatFullAddress(e.Address)}
}

// sameHalt halts the tenant again for what an earlier session found in this very
// stream, unless it is not so any more: see turn.Halt.
func (g *guard) sameHalt(ctx context.Context, head ledger.Head) error {
	name := g.tiles.path(haltedName)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var was turn.Halt
	if err != nil || json.Unmarshal(data, &was) != nil {
		return os.Remove(name) // nothing to go by; the guards look for themselves
	}
	again, err := was.Again(head, g.tiles.last(), func(sequence uint64) (bool, error) {
		m, err := g.ledger.Get(ctx, sequence)
		var halted *ledger.Halted
		if errors.As(err, &halted) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		same, err := inTiles(g.tiles.tileFiles, m)
		return same && err == nil, nil
	})
	switch {
	case err != nil:
		return err
	case again != nil:
		return again
	}
	g.log.Info("what had halted the tenant is not so any more", "sequence", was.Sequence, "problem", was.Problem)
	return os.Remove(name)
}

// keepHalt keeps a halt beside the tiles for the next session, where its guard would not
// find it again.
func keepHalt(root, tenant string, halted *ledger.Halted, createdNs int64) error {
	kept, keep := turn.KeepHalt(halted, createdNs)
	if !keep {
		return nil
	}
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return store.WriteSynced(filepath.Join(root, tenant, haltedName), data)
}

// anchor is turn.CheckAnchor over the ledger.
func (g *guard) anchor(ctx context.Context, head ledger.Head, meta *rowspb.Meta) error {
	return turn.CheckAnchor(head, meta, func(sequence uint64) ([]ledger.Entry, error) {
		m, err := g.ledger.Get(ctx, sequence)
		if err != nil {
			return nil, err
		}
		return ledger.Decode(g.tenant, m)
	})
}

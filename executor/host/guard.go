package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// haltedName keeps a halt over a restart, beside the tiles.
const haltedName = "halted.json"

// haltFile is the content of haltedName: what a guard found in which stream.
type haltFile struct {
	Guard     string `json:"guard"`
	Sequence  uint64 `json:"sequence"`
	Problem   string `json:"problem"`
	CreatedNs int64  `json:"created_ns"` // of the stream
}

// tilesRoot is the folder of all tenants' tiles.
func (h *Host) tilesRoot() string {
	if h.cfg.TilesDir != "" {
		return h.cfg.TilesDir
	}
	return filepath.Join(h.cfg.Dir, "tiles")
}

// guard holds stream, tiles and state against each other before anything is folded
// or dispatched: G1, G2 and G3, and what an earlier session has found. It fills in
// what the tiles lack.
func (a *actor) guard(ctx context.Context, head ledger.Head) error {
	if err := checkAnchor(ctx, a.tenant, a.store, head, a.state.Meta()); err != nil {
		return err
	}
	if err := a.guardStream(ctx, head); err != nil {
		return err
	}
	if err := a.sameHalt(ctx, head); err != nil {
		return err
	}
	return a.guardState(ctx)
}

// guardStream holds the stream against the tiles: it must go on where they end, or
// have their last record where they have it.
func (a *actor) guardStream(ctx context.Context, head ledger.Head) error {
	last := a.tiles.last()
	switch {
	case head.First > 1 && last+1 < head.First:
		return &ledger.Halted{Guard: "G1", Sequence: last, Problem: fmt.Sprintf("the stream starts at %d, and the tiles of this host end here: copy the tiles of the host that repaired it", head.First)}
	case last > head.Last:
		return &ledger.Halted{Guard: "G3", Sequence: last, Problem: fmt.Sprintf("the stream ends at %d, and the tiles here: it has lost its tail", head.Last)}
	case head.First > 1 && head.Last >= head.First:
		if err := a.guardFirst(ctx, head.First); err != nil {
			return err
		}
	case head.First > 1:
		return &ledger.Halted{Guard: "G1", Sequence: last, Problem: "the stream is empty"}
	}
	if last == 0 || last < head.First {
		return nil
	}
	m, err := a.store.Get(ctx, last)
	if err != nil {
		return err
	}
	return a.sameInTiles(m)
}

// guardFirst wants a stream that begins late to begin with the record of its repair: a
// stream that has lost its first records begins late too.
func (a *actor) guardFirst(ctx context.Context, first uint64) error {
	m, err := a.store.Get(ctx, first)
	if err != nil {
		return err
	}
	entries, err := ledger.Decode(a.tenant, m)
	if err != nil {
		return err
	}
	if e := entries[0]; e.Err != nil || e.Source.Class != ledger.ClassExecutor || e.Record.GetLedgerRepaired().GetThrough() != first-1 {
		return &ledger.Halted{Guard: "G1", Sequence: first, Problem: fmt.Sprintf("the stream starts at %d, and not with a repair", first)}
	}
	return nil
}

// guardFence finds out why a claim was refused by its fence: another claim was
// faster, or the stream has lost the term record that this one is fenced on.
func (a *actor) guardFence(ctx context.Context, fence uint64) error {
	if fence == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	m, err := a.store.Get(ctx, fence)
	var halted *ledger.Halted
	if errors.As(err, &halted) {
		return halted
	}
	if err != nil || fence > a.tiles.last() {
		return nil // it may pass
	}
	return a.sameInTiles(m)
}

// sameInTiles holds a message of the stream against the tiles, which have it.
func (a *actor) sameInTiles(m ledger.Message) error {
	same, err := inTiles(a.tiles.tileFiles, m)
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

// guardState holds the tiles against the state that was folded beside them. Tiles
// that end before it (another disk, a power cut) are filled in from the stream.
func (a *actor) guardState(ctx context.Context) error {
	meta := a.state.Meta()
	if meta.Records > a.tiles.Size() {
		if err := a.refill(ctx, meta.Applied.GetSequence()); err != nil {
			return err
		}
	}
	a.tiles.from(meta.Records)
	if meta.Records == 0 {
		return nil
	}
	leaf, err := a.tiles.Leaf(meta.Records - 1)
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
func (a *actor) refill(ctx context.Context, upTo uint64) error {
	t, from := a.tiles, a.tiles.last()+1
	a.log.Info(fillingTiles, "from", from, "to", upTo)
	a.underWay(fillingTiles, from-1, upTo, t.Size())
	if err := t.fromMessage(from); err != nil {
		return haltOnTiles(err, from)
	}
	bytes := 0
	for m, err := range a.store.Read(ctx, from) {
		if err != nil {
			return err
		}
		entries, err := ledger.Decode(a.tenant, m)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := a.keep(m, e); err != nil {
				return err
			}
		}
		if bytes += len(m.Data); bytes > turnBytesMax || m.Sequence == upTo {
			if err := t.Flush(); err != nil {
				return err
			}
			a.progressed(m.Sequence, t.Size())
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
func (a *actor) keep(m ledger.Message, e ledger.Entry) error {
	err := a.tiles.add(m, e)
	var damaged *tileReadErr
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOtherRecord):
		return a.otherRecord(m, e)
	case errors.As(err, &damaged):
		return haltOnTiles(err, m.Sequence)
	}
	return fmt.Errorf("cannot write the tiles: %w", err)
}

// otherRecord says who is wrong when stream and tiles differ. A tile that
// contradicts its own entries is no witness.
func (a *actor) otherRecord(m ledger.Message, e ledger.Entry) error {
	problem := "the stream has another record here than the tiles, which were written when it was folded"
	if _, err := a.tiles.message(m.Sequence); err != nil {
		problem = "the tiles differ from the stream here, and from themselves: " + err.Error()
	}
	return &ledger.Halted{Guard: "G3", Sequence: m.Sequence, Problem: problem + "; the stream has " + ledger.FormatFullAddress(e.Address)}
}

// sameHalt halts the tenant again for what an earlier session found in this very
// stream, unless it is not so any more.
func (a *actor) sameHalt(ctx context.Context, head ledger.Head) error {
	data, err := os.ReadFile(a.tiles.path(haltedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var was haltFile
	if err != nil || json.Unmarshal(data, &was) != nil {
		return os.Remove(a.tiles.path(haltedName)) // nothing to go by; the guards look for themselves
	}
	if was.CreatedNs == head.CreatedNs && was.Sequence != 0 && was.Sequence <= a.tiles.last() {
		again := &ledger.Halted{Guard: was.Guard, Sequence: was.Sequence, Problem: was.Problem}
		m, err := a.store.Get(ctx, was.Sequence)
		var halted *ledger.Halted
		if errors.As(err, &halted) {
			return again
		}
		if err != nil {
			return err
		}
		if same, err := inTiles(a.tiles.tileFiles, m); err != nil || !same {
			return again
		}
		a.log.Info("what had halted the tenant is not so any more", "sequence", was.Sequence, "problem", was.Problem)
	}
	return os.Remove(a.tiles.path(haltedName))
}

// noteHalt keeps a halt for the next session. It is only a note: a guard that would
// find the same again needs none.
func (a *actor) noteHalt(halted *ledger.Halted) {
	if halted.Guard != "G1" && halted.Guard != "G3" && halted.Guard != "G4" {
		return
	}
	data, err := json.Marshal(haltFile{halted.Guard, halted.Sequence, halted.Problem, a.created})
	if err == nil {
		err = store.WriteSynced(filepath.Join(a.host.tilesRoot(), a.tenant, haltedName), data)
	}
	if err != nil {
		a.log.Warn("cannot keep the halt for the next start", "error", err)
	}
}

// checkAnchor is turn.CheckAnchor over a store.
func checkAnchor(ctx context.Context, tenant string, store ledger.Store, head ledger.Head, meta *rowspb.Meta) error {
	return turn.CheckAnchor(head, meta, func(sequence uint64) ([]ledger.Entry, error) {
		m, err := store.Get(ctx, sequence)
		if err != nil {
			return nil, err
		}
		return ledger.Decode(tenant, m)
	})
}

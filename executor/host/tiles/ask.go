package tiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Export reads entries, and the tree before them if that is asked for, within the bounds of\none
// answer.
func (t *Files) Export(q api.ExportQuery) (answer api.ExportAnswer, err error) {
	answer.Size, answer.Last = t.Size(), t.Last()
	answer.Index = q.Index
	if q.Sequence > 0 {
		if q.Sequence > answer.Last {
			return answer, fmt.Errorf("sequence %d is not there, the last is %d", q.Sequence, answer.Last)
		}
		if answer.Index, err = t.find(q.Sequence); err != nil {
			return answer, err
		}
	}
	if answer.Index > answer.Size {
		return answer, fmt.Errorf("there are %d records, not %d", answer.Size, answer.Index)
	}
	if q.Tree {
		if answer.Nodes, err = t.nodes(answer.Index); err != nil {
			return answer, err
		}
		note, err := os.ReadFile(t.Path("checkpoint"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return answer, err
		}
		answer.Checkpoint = string(note)
	}
	answer.Entries, err = t.entriesFrom(answer.Index, answer.Size, min(max(q.BytesMax, 0), exportMax))
	return answer, err
}

// entriesFrom are the entries from an index on: as many as there is room for, and one at
// least where there is room at all.
func (t *Files) entriesFrom(index, size uint64, room int) (entries []byte, err error) {
	for room > 0 && index < size {
		n := index / ledger.TileWidth
		tile, err := t.entriesOf(n)
		if err != nil {
			return nil, err
		}
		leaf, err := ledger.ParseLeaf(tile[0]) // all are of one tenant
		if err == nil {
			err = t.ownRecord(index, leaf)
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range tile[min(index%ledger.TileWidth, uint64(len(tile))):] {
			if len(entries) > 0 && len(entries)+4+len(entry) > room {
				return entries, nil
			}
			entries = ledger.AppendEntry(entries, entry)
			index++
		}
		if index%ledger.TileWidth != 0 {
			break // it grew meanwhile, or is the last
		}
	}
	return entries, nil
}

// nodes are the perfect subtrees that the first records make, from the left.
func (t *Files) nodes(size uint64) (nodes []api.ExportNode, err error) {
	edge, err := t.openEdge(size)
	if err != nil {
		return nil, err
	}
	top := 0
	for size>>(8*(top+1)) > 0 {
		top++
	}
	var tree bundle.Tree
	for level := top; level >= 0; level-- {
		for _, h := range edge.Partial(level) {
			if err := tree.AppendNode(bundle.Node{Level: uint8(8 * level), Hash: h}); err != nil {
				return nil, err
			}
		}
	}
	for _, n := range tree.Nodes() {
		nodes = append(nodes, api.ExportNode{Level: n.Level, Hash: n.Hash[:]})
	}
	return nodes, nil
}

// StoredFrom are the messages from a sequence on, within the bounds of the question.
func (t *Files) StoredFrom(q api.ReadQuery) (api.ReadAnswer, error) {
	answer := api.ReadAnswer{Last: t.Last(), Messages: []api.StoredMessage{}}
	if q.From == 0 {
		return answer, nil
	}
	limit, room := q.Limit, q.BytesMax
	if limit == 0 {
		limit = ReadLimitDefault
	}
	if room == 0 {
		room = ReadBytesMax
	}
	for m, err := range t.Messages(q.From) {
		if err != nil {
			return answer, err
		}
		room -= len(m.Data) + len(m.Subject) + len(m.ContentType) + readOverhead
		if len(answer.Messages) > 0 && room < 0 {
			break
		}
		answer.Messages = append(answer.Messages, api.StoredMessage{
			Sequence: m.Sequence, StampNs: m.StampNs, Subject: m.Subject,
			ContentType: m.ContentType, Data: m.Data,
		})
		if len(answer.Messages) == limit || room <= 0 {
			break
		}
	}
	return answer, nil
}

// Copy is what a host's second copy of a ledger, its tiles, has of one message.
type Copy struct {
	Index  uint64        // of its first record in the tree
	Leaves []ledger.Hash // of its records
	Size   uint64        // records in the tree
	Root   ledger.Hash   // of the tree, RFC 6962
}

// Copied looks up a message of so many records. The error says that the tiles do not have
// it, or cannot be read.
func (t *Files) Copied(sequence uint64, records int) (Copy, error) {
	if t == nil || sequence == 0 || sequence > t.Last() {
		return Copy{}, fmt.Errorf("cannot find sequence %d in the second copy: it is not there yet",
			sequence)
	}
	c := Copy{Size: t.Size()}
	var err error
	if c.Index, err = t.find(sequence); err != nil {
		return c, err
	}
	for end := c.Index + uint64(records); c.Index+uint64(len(c.Leaves)) < end; {
		at := c.Index + uint64(len(c.Leaves))
		hashes, err := t.readHashes(0, at/ledger.TileWidth)
		if from := int(at % ledger.TileWidth); err == nil && from < len(hashes) {
			c.Leaves = append(c.Leaves, hashes[from:min(len(hashes), from+int(end-at))]...)
			continue
		}
		return c, &ReadError{at, fmt.Sprint("no hash: ", err)}
	}
	edge, err := t.openEdge(c.Size)
	if err != nil {
		return c, err
	}
	c.Root = edge.Root()
	return c, nil
}

// CompareRange holds the messages of from..to against the tiles. Where the stream begins later, the
// tiles are held against their hashes. Errors: as of ReadHeld.
func CompareRange(ctx context.Context, store ledger.Store, tiles *Files, from,
	to uint64) error {
	if behind, ok := store.(*spanned); ok && from < behind.first {
		for m, err := range tiles.Messages(from) {
			if err != nil {
				return err
			}
			if from = m.Sequence + 1; from == behind.first || m.Sequence == to {
				break
			}
		}
		if from > to {
			return nil
		}
	}
	for m, err := range ReadHeld(ctx, store, tiles, from) {
		if err != nil || m.Sequence == to {
			return err
		}
	}
	return fmt.Errorf("the stream was not read up to %d: %w", to, ctx.Err())
}

// OtherRecord is that the leader of a stream has another record than the tiles, or none.
type OtherRecord struct {
	Sequence uint64
	Missing  bool
}

func (e *OtherRecord) Error() string {
	if e.Missing {
		return fmt.Sprintf("the stream has no record at %d, which the tiles have", e.Sequence)
	}
	return fmt.Sprintf("the stream has another record at %d than the tiles", e.Sequence)
}

// ReadHeld is readSpoken, and holds each message against the tiles before it is given out: any
// server of the stream may be the one that reads it. Errors: *OtherRecord; what was read.
func ReadHeld(ctx context.Context, store ledger.Store, tiles *Files,
	from uint64) iter.Seq2[ledger.Message, error] {
	return func(yield func(ledger.Message, error) bool) {
		mine, stop := iter.Pull2(tiles.Messages(from))
		defer stop()
		for m, err := range readSpoken(ctx, store, from) {
			if err == nil {
				copied, problem, ok := mine()
				switch {
				case problem != nil || !ok:
					err = errors.Join(problem, fmt.Errorf("no tile was read at sequence %d", m.Sequence))
				case !SameMessage(copied, m):
					err = leaderDiffers(ctx, store, copied)
				}
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// leaderDiffers is about a message that was read otherwise than the tiles have it: *OtherRecord,
// unless the leader of the stream has it as they do, and a server answers with another history.
func leaderDiffers(ctx context.Context, store ledger.Store, copied ledger.Message) error {
	led, err := store.Get(ctx, copied.Sequence)
	var halted *ledger.Halted
	switch {
	case errors.As(err, &halted):
		return &OtherRecord{copied.Sequence, true}
	case err != nil:
		return err
	case SameMessage(copied, led):
		return fmt.Errorf("a server of the stream has another record at %d than its leader, which "+
			"has what the tiles have: its store is of another history", copied.Sequence)
	}
	return &OtherRecord{copied.Sequence, false}
}

// Bounds of one answer to ledger.read.
const (
	ReadLimitDefault = 100
	ReadLimitMax     = 1000
	ReadBytesMax     = 512 << 10
	readOverhead     = 128 // bytes that one message takes in JSON beside its own
)

// exportMax bounds what one answer carries, in bytes of entries.
const exportMax = 512 << 10

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
)

// exportMax bounds what one answer carries, in bytes of entries.
const exportMax = 512 << 10

// askExport reads the tiles for who writes a bundle of them. It needs no session, and
// changes nothing: whoever asks goes on from where the last answer ended.
func (a *actor) askExport(q executor.ExportQuery) any {
	tiles := a.copiesSeen()
	if tiles == nil {
		return executor.ErrorAnswer{Error: "cannot export: the ledger is not open yet"}
	}
	answer, err := tiles.export(q)
	if err != nil {
		return executor.ErrorAnswer{Error: "cannot export: " + err.Error()}
	}
	return answer
}

func (t *tileFiles) export(q executor.ExportQuery) (answer executor.ExportAnswer, err error) {
	answer.Size, answer.Last = t.Size(), t.last()
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
		note, err := os.ReadFile(t.path("checkpoint"))
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
func (t *tileFiles) entriesFrom(index, size uint64, room int) (entries []byte, err error) {
	for room > 0 && index < size {
		n := index / ledger.TileWidth
		tile, err := t.readEntries(n)
		if err != nil {
			return nil, &tileReadErr{index, err.Error()}
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
func (t *tileFiles) nodes(size uint64) (nodes []executor.ExportNode, err error) {
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
		nodes = append(nodes, executor.ExportNode{Level: n.Level, Hash: n.Hash[:]})
	}
	return nodes, nil
}

package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/verify"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// exportTiles writes the ledger into a folder of tlog-tiles, up to the last checkpoint. Full
// tiles that are there already stay, and the checkpoint comes last, when the tree is its.
func (e *exporter) exportTiles(ctx context.Context) (v exported, err error) {
	d := &download{exporter: e, size: exportBytes}
	if e.from != "" {
		if d.files, err = tiles.Read(e.from); err != nil {
			return v, err
		}
	} else {
		d.size = min(d.size, int(e.client.Conn.MaxPayload()/2))
	}
	first, err := d.begin(ctx, 0)
	if err != nil {
		return v, err
	}
	head, ok := verify.Claimed(first.Checkpoint)
	if !ok {
		if problem := d.unsigned(ctx); problem != "" {
			return v, cli.Fail(cli.ExitFailed, "sagenbaum doctor says what to do", "there is no "+
				"checkpoint, and a folder of tiles ends at one: %s", problem)
		}
		return v, cli.Fail(cli.ExitFailed, "the same when the holder has signed a checkpoint; "+
			"sagenbaum status says what prevents it, or that it comes",
			"there is no checkpoint yet, and a folder of tiles ends at one")
	}
	f, err := openTiles(e.tiles, head.Size)
	if err != nil {
		return v, err
	}
	v.File, v.Holds, v.Size = e.tiles, "tiles", head.Size
	v.Added = head.Size - f.edge.Size()
	for f.edge.Size() < head.Size {
		answer, err := d.ask(ctx, api.ExportQuery{Index: f.edge.Size(), BytesMax: d.size})
		if err != nil {
			return v, err
		}
		before := f.edge.Size()
		for rest := answer.Entries; len(rest) > 0 && f.edge.Size() < head.Size; {
			entry, behind, ok := ledger.NextEntry(rest)
			if !ok {
				return v, errors.New("the host answers with entries that are none")
			}
			if rest, err = behind, f.add(entry); err != nil {
				return v, err
			}
		}
		if f.edge.Size() == before {
			return v, fmt.Errorf("the tiles end after %d records, and should have %d", before, head.Size)
		}
	}
	if f.edge.Root() != head.Root {
		return v, cli.Fail(cli.ExitFailed,
			"another folder; if that is so there too, sagenbaum ledger scrub",
			"the checkpoint of %d records is not of those in %s", head.Size, e.tiles)
	}
	if err := f.partials(); err != nil {
		return v, err
	}
	return v, f.put("checkpoint", []byte(first.Checkpoint))
}

// unsigned says what keeps the holder from signing, as far as it is known.
func (d *download) unsigned(ctx context.Context) string {
	if d.files != nil {
		return ""
	}
	status, err := d.client.Status(ctx)
	if err != nil || status.Checkpoint == nil {
		return ""
	}
	return status.Checkpoint.Problem
}

// tileFolder is a folder of C2SP tlog-tiles that is being written.
type tileFolder struct {
	dir     string
	edge    *ledger.Edge
	entries []byte // of the tile that is not full
}

// openTiles goes on after the full tiles of a folder that are within a size.
func openTiles(dir string, size uint64) (*tileFolder, error) {
	f := &tileFolder{dir: dir}
	full := uint64(0)
	for ; (full+1)*ledger.TileWidth <= size; full++ {
		_, err := os.Stat(f.path(ledger.BundlePath(full, ledger.TileWidth)))
		_, err2 := os.Stat(f.path(ledger.TilePath(0, full, ledger.TileWidth)))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err2, fs.ErrNotExist) {
			break
		}
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
	}
	var err error
	f.edge, err = ledger.OpenEdge(full*ledger.TileWidth,
		func(level int, n uint64, width int) ([]ledger.Hash, error) {
			hashes := make([]ledger.Hash, width)
			for i := range hashes {
				below := n*ledger.TileWidth + uint64(i)
				data, err := os.ReadFile(f.path(ledger.TilePath(level-1, below, ledger.TileWidth)))
				if err != nil || len(data) != ledger.TileWidth*ledger.LeafSize {
					return nil, fmt.Errorf("cannot continue %s: tile %d of level %d has %d bytes: %w", dir, below,
						level-1, len(data), err)
				}
				tile := make([]ledger.Hash, ledger.TileWidth)
				for k := range tile {
					copy(tile[k][:], data[k*ledger.LeafSize:])
				}
				hashes[i] = ledger.TileHash(tile)
			}
			return hashes, nil
		})
	return f, err
}

func (f *tileFolder) path(name string) string {
	return filepath.Join(f.dir, filepath.FromSlash(name))
}

// add adds a record, and writes the tiles that it fills.
func (f *tileFolder) add(entry []byte) error {
	f.entries = ledger.AppendEntry(f.entries, entry)
	for _, tile := range f.edge.Append(ledger.LeafHash(entry)) {
		if tile.Level == 0 {
			path := ledger.BundlePath(tile.N, ledger.TileWidth)
			if err := f.put(path, f.entries); err != nil {
				return err
			}
			if err := os.RemoveAll(f.path(path) + ".p"); err != nil {
				return err
			}
			f.entries = f.entries[:0]
		}
		path := ledger.TilePath(tile.Level, tile.N, ledger.TileWidth)
		if err := f.put(path, flat(tile.Hashes)); err != nil {
			return err
		}
		if err := os.RemoveAll(f.path(path) + ".p"); err != nil {
			return err
		}
	}
	return nil
}

// partials writes the tiles that are not full.
func (f *tileFolder) partials() error {
	size := f.edge.Size()
	for level := 0; size>>(8*level) > 0; level++ {
		n, width := size>>(8*(level+1)), int(size>>(8*level)%ledger.TileWidth)
		if width == 0 {
			continue
		}
		if level == 0 {
			if err := f.put(ledger.BundlePath(n, width), f.entries); err != nil {
				return err
			}
		}
		if err := f.put(ledger.TilePath(level, n, width), flat(f.edge.Partial(level))); err != nil {
			return err
		}
	}
	return nil
}

func flat(hashes []ledger.Hash) (data []byte) {
	for _, h := range hashes {
		data = append(data, h[:]...)
	}
	return data
}

// put writes a file, whole or not at all.
func (f *tileFolder) put(name string, data []byte) error {
	path := f.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(f.path("new"), data, 0o600); err != nil {
		return err
	}
	return os.Rename(f.path("new"), path)
}

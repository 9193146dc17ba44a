package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// folderOfTiles gives tlog the files of a folder; tiles of level 0 come with their entries.
type folderOfTiles struct {
	t   *testing.T
	dir string
}

func (f folderOfTiles) Height() int { return 8 }

func (f folderOfTiles) ReadTiles(tiles []tlog.Tile) (all [][]byte, err error) {
	for _, tile := range tiles {
		data, err := os.ReadFile(filepath.Join(f.dir, ledger.TilePath(tile.L, uint64(tile.N), tile.W)))
		if err != nil {
			return nil, err
		}
		if tile.L == 0 {
			entries, err := os.ReadFile(filepath.Join(f.dir, ledger.BundlePath(uint64(tile.N), tile.W)))
			if err != nil {
				return nil, err
			}
			for i := range tile.W {
				entry, rest, ok := ledger.NextEntry(entries)
				if h := ledger.LeafHash(entry); !ok || !bytes.Equal(h[:], data[i*ledger.LeafSize:(i+1)*ledger.LeafSize]) {
					f.t.Errorf("entry %d of tile %d is not its leaf", i, tile.N)
				}
				entries = rest
			}
			if len(entries) > 0 {
				f.t.Errorf("tile %d has %d bytes of entries too many", tile.N, len(entries))
			}
		}
		all = append(all, data)
	}
	return all, nil
}

func (f folderOfTiles) SaveTiles([]tlog.Tile, [][]byte) {}

// grow adds messages of one record to a host's tiles, and puts a checkpoint of all beside them.
func grow(t *testing.T, root string, upTo uint64) ledger.Checkpoint {
	t.Helper()
	tl, err := tiles.Open(root, "t", slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	tl.From(tl.Size())
	for n := tl.Last() + 1; n <= upTo; n++ {
		data, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{
			FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", n), Value: []byte("1")}}}})
		if err != nil {
			t.Fatal(err)
		}
		m := ledger.Message{Sequence: n, Subject: "saga.t.fact.src", Data: data}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := tl.Keep(m, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = tl.Flush()
	c := ledger.Checkpoint{Origin: ledger.Origin("t"), Size: tl.Size(), Root: tl.Edge.Root()}
	if err := errors.Join(err, os.WriteFile(tl.Path(tiles.CheckpointName), []byte(c.Text()+"\n"), 0o600),
		tl.Close()); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAFolderOfTilesIsReadByOthers: any client of tlog-tiles proves records and growth from an
// export, and one that is continued is the one that is made at once.
func TestAFolderOfTilesIsReadByOthers(t *testing.T) {
	t.Parallel()
	root, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	e := exporter{tiles: out, from: filepath.Join(root, "t")}
	var older ledger.Checkpoint
	for _, size := range []uint64{200, 256, 700, 70_000} {
		c := grow(t, root, size)
		v, err := e.run(t.Context())
		if err != nil || v.Size != size {
			t.Fatalf("%+v, %v", v, err)
		}
		if text, err := os.ReadFile(filepath.Join(out, "checkpoint")); err != nil || string(text) != c.Text()+"\n" {
			t.Fatalf("%s, %v", text, err)
		}
		tree := tlog.Tree{N: int64(size), Hash: tlog.Hash(c.Root)}
		reader := tlog.TileHashReader(tree, folderOfTiles{t, out})
		if older.Size > 0 {
			proof, err := tlog.ProveTree(tree.N, int64(older.Size), reader)
			if err != nil || tlog.CheckTree(proof, tree.N, tree.Hash, int64(older.Size), tlog.Hash(older.Root)) != nil {
				t.Fatalf("%d of %d: %v", older.Size, size, err)
			}
		}
		for _, at := range []int64{0, 199, tree.N / 2, tree.N - 1} {
			if proof, err := tlog.ProveRecord(tree.N, at, reader); err != nil || len(proof) == 0 {
				t.Fatalf("record %d: %v", at, err)
			}
		}
		older = c
	}
	for _, path := range []string{"tile/0/000.p", "tile/entries/000.p"} {
		if _, err := os.Stat(filepath.Join(out, path)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	again := exporter{tiles: filepath.Join(t.TempDir(), "again"), from: e.from}
	if _, err := again.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{ledger.BundlePath(273, 112), ledger.TilePath(0, 1, 256), ledger.TilePath(1, 1, 17)} {
		one, err := os.ReadFile(filepath.Join(out, path))
		other, err2 := os.ReadFile(filepath.Join(again.tiles, path))
		if err != nil || err2 != nil || !bytes.Equal(one, other) {
			t.Errorf("%s: %v, %v", path, err, err2)
		}
	}
}

// TestAFolderOfAnotherLedgerIsNotContinued: its full tiles do not give the checkpoint's root, and
// the checkpoint stays the one that was there.
func TestAFolderOfAnotherLedgerIsNotContinued(t *testing.T) {
	t.Parallel()
	root, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	before := grow(t, root, 300)
	e := exporter{tiles: out, from: filepath.Join(root, "t")}
	if _, err := e.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(out, ledger.TilePath(0, 0, ledger.TileWidth))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[7] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	grow(t, root, 400)
	if _, err := e.run(t.Context()); err == nil || !strings.Contains(err.Error(), "is not of those in") {
		t.Errorf("%v", err)
	}
	text, err := os.ReadFile(filepath.Join(out, "checkpoint"))
	if err != nil || string(text) != before.Text()+"\n" {
		t.Errorf("%s, %v", text, err)
	}
	e.from = out
	if _, err := e.run(t.Context()); err == nil || !strings.Contains(err.Error(), "is no folder of tiles") {
		t.Errorf("%v", err)
	}
}

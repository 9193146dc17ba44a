package ledger_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// leafDataOf writes the leaf data of a message's records, as an archive does.
func leafDataOf(t *testing.T, m ledger.Message) (all [][]byte) {
	t.Helper()
	entries, err := ledger.Decode("t", m)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data := ledger.AppendLeaf(nil, "t", m, e.Address.Index, e.Count, e.Reader, e.Body)
		if h := ledger.LeafHash(data); !bytes.Equal(h[:], e.Address.Leaf) {
			t.Fatalf("record %d: leaf data hashes to %x, the address says %x", e.Address.Index, h, e.Address.Leaf)
		}
		all = append(all, data)
	}
	return all
}

func TestAMessageComesBackByteForByteFromItsLeaves(t *testing.T) {
	commit, err := ledger.EncodeCommit([]*pb.Record{
		{Plan: "p", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Label: "x"}}},
		{Plan: "p", Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "y"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]ledger.Message{
		"protobuf": {Subject: "saga.t.agent.a.p", Data: commit},
		"JSON": {Subject: "saga.t.agent.a.p", ContentType: ledger.ContentTypeJSON,
			Data: []byte(` {"records":[{"plan":"p","planOpened":{}}, {"plan":"p","planCommitted":{}}]}`)},
		"JSON with version": {Subject: "saga.t.agent.a.p", ContentType: ledger.ContentTypeJSON,
			Data: []byte(`{"minReader":1,"records":[{}]}`)},
		"broken JSON":        {Subject: "saga.t.agent.a.p", ContentType: ledger.ContentTypeJSON, Data: []byte(`{"rec`)},
		"no record":          {Subject: "saga.t.agent.a.p", Data: []byte{8, 1, 18, 1, 0xff}},
		"not canonical":      {Subject: "saga.t.agent.a.p", Data: []byte{8, 0x81, 0, 18, 0}},
		"empty":              {Subject: "saga.t.agent.a.p"},
		"newer, of an agent": {Subject: "saga.t.agent.a.p", Data: []byte{8, 99, 1, 2, 3}},
		"foreign subject":    {Subject: "saga.t.nonsense", Data: commit},
		"foreign type":       {Subject: "saga.t.agent.a.p", ContentType: "text/plain", Data: commit},
		"too large":          {Subject: "saga.t.fact.f", Data: bytes.Repeat([]byte{8}, ledger.CommitSizeMax+900)},
	} {
		m.Sequence, m.StampNs = 7, -5
		var records []ledger.Leafed
		for _, data := range leafDataOf(t, m) {
			r, err := ledger.ParseLeaf(data)
			if err != nil || r.Tenant != "t" {
				t.Fatalf("%s: %+v, %v", name, r, err)
			}
			records = append(records, r)
		}
		got, err := ledger.Assemble(records)
		if err != nil || got.Sequence != m.Sequence || got.StampNs != m.StampNs || got.Subject != m.Subject ||
			got.ContentType != m.ContentType || !bytes.Equal(got.Data, m.Data) {
			t.Errorf("%s: %v\n%+v\nwant\n%+v", name, err, got, m)
		}
		if !records[len(records)-1].Last() {
			t.Errorf("%s: the last record says that another follows", name)
		}
		if len(records) > 1 {
			if _, err := ledger.Assemble(records[:1]); err == nil {
				t.Errorf("%s: half a message is taken for one", name)
			}
		}
	}
}

func FuzzLeafDataIsParsedOrRefusedAndNeverPanics(f *testing.F) {
	f.Add(ledger.AppendLeaf(nil, "t", ledger.Message{Sequence: 1, Subject: "s"}, 0, 1, 1, []byte("body")))
	f.Add([]byte("sagenbaum/leaf/v1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := ledger.ParseLeaf(data)
		if err != nil {
			return
		}
		m := ledger.Message{Sequence: l.Sequence, StampNs: l.StampNs, Subject: l.Subject, ContentType: l.Type}
		if again := ledger.AppendLeaf(nil, l.Tenant, m, l.Index, l.Count, l.Reader, l.Body); !bytes.Equal(again, data) {
			t.Fatalf("parsed %x, written anew %x", data, again)
		}
		_, _ = ledger.Assemble([]ledger.Leafed{l})
	})
}

// The tree is held against golang.org/x/mod/sumdb/tlog, and the tiles are read by
// its reader, which checks each against the root.
func TestTheEdgeGivesTheRootsAndTilesOfTlog(t *testing.T) {
	const size = 70_000 // a full tile at level 1
	var edge ledger.Edge
	tiles := map[string][]byte{}
	keep := func(level int, n uint64, hashes []ledger.Hash) {
		var data []byte
		for _, h := range hashes {
			data = append(data, h[:]...)
		}
		tiles[ledger.TilePath(level, n, len(hashes))] = data
	}
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, at := range indexes {
			out[i] = stored[at]
		}
		return out, nil
	})
	for i := range int64(size) {
		data := fmt.Appendf(nil, "record %d", i)
		hashes, err := tlog.StoredHashes(i, data, read)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
		for _, tile := range edge.Append(ledger.LeafHash(data)) {
			keep(tile.Level, tile.N, tile.Hashes)
		}
		if i < 600 || i%997 == 0 || i > size-3 {
			want, err := tlog.TreeHash(i+1, read)
			if err != nil {
				t.Fatal(err)
			}
			if got := edge.Root(); got != ledger.Hash(want) || edge.Size() != uint64(i+1) {
				t.Fatalf("root at %d is %x, tlog says %x", i+1, got, want)
			}
		}
	}
	for level := 0; size>>(8*level) > 0; level++ {
		keep(level, size>>(8*(level+1)), edge.Partial(level))
	}
	again, err := ledger.OpenEdge(size, func(level int, n uint64, width int) ([]ledger.Hash, error) {
		return hashesOf(tiles[ledger.TilePath(level, n, width)]), nil
	})
	if err != nil || again.Root() != edge.Root() {
		t.Fatalf("an edge that was read has root %x, want %x: %v", again.Root(), edge.Root(), err)
	}
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: tlog.Hash(edge.Root())}, tileReader{t, tiles})
	if proof, err := tlog.ProveRecord(size, 12_345, reader); err != nil || len(proof) == 0 {
		t.Fatalf("no proof from the tiles: %v", err)
	}
}

func hashesOf(data []byte) (hashes []ledger.Hash) {
	for len(data) > 0 {
		hashes = append(hashes, ledger.Hash(data[:ledger.LeafSize]))
		data = data[ledger.LeafSize:]
	}
	return hashes
}

// tileReader gives tlog the tiles by the paths of the standard, which tlog writes
// with the height in front.
type tileReader struct {
	t     *testing.T
	tiles map[string][]byte
}

func (r tileReader) Height() int { return 8 }

func (r tileReader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var out [][]byte
	for _, tile := range tiles {
		path := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
		if want := ledger.TilePath(tile.L, uint64(tile.N), tile.W); want != path {
			r.t.Errorf("path %s, tlog says %s", want, path)
		}
		data, ok := r.tiles[path]
		if !ok {
			return nil, fmt.Errorf("no tile %s", path)
		}
		out = append(out, data)
	}
	return out, nil
}

func (r tileReader) SaveTiles([]tlog.Tile, [][]byte) {}

func TestTilesHaveThePathsOfTheStandard(t *testing.T) {
	for want, got := range map[string]string{
		"tile/0/000":                     ledger.TilePath(0, 0, 256),
		"tile/0/x001/x234/067":           ledger.TilePath(0, 1234067, 256),
		"tile/2/005.p/17":                ledger.TilePath(2, 5, 17),
		"tile/entries/x001/000":          ledger.BundlePath(1000, 256),
		"tile/entries/x123/x456/789.p/1": ledger.BundlePath(123456789, 1),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

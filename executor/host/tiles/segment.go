package tiles

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"

	"github.com/klauspost/compress/s2"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Names and sizes of segments and of the hashes beside them.
const (
	HashesName    = "hashes"
	entriesFolder = "entries"
	packedSuffix  = ".s2"
	packingFile   = entriesFolder + "/new" // a segment that is being packed, or unpacked

	segmentTiles   = 64
	segmentRecords = segmentTiles * ledger.TileWidth
	entryMax       = 1 << 20 // bytes of one entry

	placeSize = 8 // of where a tile's entries begin
	tileSize  = placeSize + ledger.TileWidth*ledger.LeafSize
)

// A packed segment is each of its tiles packed by itself as an S2 block, one after the
// other, so that a reader unpacks no more than one; then for each the length of its block
// and the length of what it unpacks to, u32 big endian each; then packedMagic.
const (
	packedMagic = "sagent01"
	footerSize  = segmentTiles*8 + len(packedMagic)
)

// segmentName is the file of the entries of records k*segmentRecords on.
func segmentName(k uint64) string { return entriesFolder + "/" + strconv.FormatUint(k, 10) }

// hashPlace is where the hash of a record is in its file; of the first one of a tile where
// the tile is.
func hashPlace(index uint64) int64 {
	at := int64(index/ledger.TileWidth) * tileSize
	if within := index % ledger.TileWidth; within > 0 {
		at += placeSize + int64(within)*ledger.LeafSize
	}
	return at
}

// hashedIn is how many records so many bytes of hashes are of.
func hashedIn(bytes int64) uint64 {
	within := max(bytes%tileSize-placeSize, 0) / ledger.LeafSize
	return uint64(bytes/tileSize)*ledger.TileWidth + uint64(within)
}

// readBundle reads the entries of tile n, from its segment or from the packed one: one of
// them is there, though not always the one that a look a moment ago has found.
func (t *Files) readBundle(e extent, n uint64) (data []byte, err error) {
	for _, read := range [...]func(extent, uint64) ([]byte, error){t.readRaw, t.readPacked,
		t.readRaw} {
		if data, err = read(e, n); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return data, err
}

// readRaw reads the entries of a tile from a segment that is not packed.
func (t *Files) readRaw(e extent, n uint64) ([]byte, error) {
	f, err := os.Open(t.Path(segmentName(n / segmentTiles)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from, err := t.place(n)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	to := info.Size()
	switch {
	case (e.size-1)/ledger.TileWidth == n:
		to = min(to, e.end)
	case (n+1)%segmentTiles != 0:
		if to, err = t.place(n + 1); err != nil {
			return nil, err
		}
	}
	if from < 0 || from > to || to > info.Size() {
		return nil, fmt.Errorf("tile %d is said to be at %d to %d of %s, which has %d bytes", n, from, to,
			f.Name(), info.Size())
	}
	data := make([]byte, to-from)
	_, err = f.ReadAt(data, from)
	return data, err
}

// place is where the entries of tile n begin in their segment. The error is never
// fs.ErrNotExist.
func (t *Files) place(n uint64) (int64, error) {
	data := make([]byte, placeSize)
	if err := t.readHashFile(data, int64(n)*tileSize); err != nil {
		return 0, fmt.Errorf("tile %d has no place: %v", n, err)
	}
	return int64(binary.BigEndian.Uint64(data)), nil
}

// readHashFile reads at a place of the file of hashes.
func (t *Files) readHashFile(data []byte, at int64) error {
	f, err := os.Open(t.Path(HashesName))
	if err != nil {
		return err
	}
	_, err = f.ReadAt(data, at)
	return errors.Join(err, f.Close())
}

// readPacked reads the entries of a tile from a packed segment.
func (t *Files) readPacked(_ extent, n uint64) (entries []byte, err error) {
	f, err := os.Open(t.Path(segmentName(n/segmentTiles) + packedSuffix))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	blocks, footer, err := readFooter(f)
	if err != nil {
		return nil, err
	}
	at, _ := footer.before(n)
	size, want := footer.of(n)
	if at+size > blocks {
		return nil, fmt.Errorf("%s has no room for tile %d", f.Name(), n)
	}
	block := make([]byte, size)
	if _, err := f.ReadAt(block, at); err != nil {
		return nil, err
	}
	if unpacked, err := s2.DecodedLen(block); err != nil || int64(unpacked) != want {
		return nil, fmt.Errorf("tile %d unpacks to %d bytes and not %d: %v", n, unpacked, want, err)
	}
	return s2.Decode(nil, block)
}

// packedFooter is what the end of a packed segment says of its tiles.
type packedFooter []byte

// of are the bytes of a tile, packed and not.
func (p packedFooter) of(n uint64) (packed, raw int64) {
	sizes := p[8*(n%segmentTiles):]
	return int64(binary.BigEndian.Uint32(sizes)), int64(binary.BigEndian.Uint32(sizes[4:]))
}

// before are the bytes of the tiles before one, packed and not.
func (p packedFooter) before(n uint64) (packed, raw int64) {
	for i := range n % segmentTiles {
		one, other := p.of(i)
		packed, raw = packed+one, raw+other
	}
	return packed, raw
}

// readFooter returns the footer of a packed segment, and the bytes before it.
func readFooter(f *os.File) (blocks int64, footer packedFooter, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, nil, err
	}
	if blocks = info.Size() - int64(footerSize); blocks < 0 {
		return 0, nil, fmt.Errorf("%s has %d bytes", f.Name(), info.Size())
	}
	footer = make(packedFooter, footerSize)
	if _, err := f.ReadAt(footer, blocks); err != nil {
		return 0, nil, err
	}
	if string(footer[segmentTiles*8:]) != packedMagic {
		return 0, nil, fmt.Errorf("%s does not end with %s", f.Name(), packedMagic)
	}
	return blocks, footer, nil
}

// begins is where the entries of tile n begin in their segment, or did before it was packed.
func (t *Files) begins(n uint64) (int64, error) {
	f, err := os.Open(t.Path(segmentName(n/segmentTiles) + packedSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return t.place(n)
	}
	if err != nil {
		return 0, err
	}
	_, footer, err := readFooter(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	_, at := footer.before(n)
	return at, nil
}

// scan reads the entries of tile n, which must begin there in its segment: as many as are
// whole.
func (t *Files) scan(n uint64, at int64) (entries [][]byte, err error) {
	f, err := os.Open(t.Path(segmentName(n / segmentTiles)))
	if errors.Is(err, fs.ErrNotExist) {
		data, err := t.readPacked(extent{}, n)
		for ok := err == nil; ok && len(entries) < ledger.TileWidth; {
			var entry []byte
			if entry, data, ok = ledger.NextEntry(data); ok {
				entries = append(entries, entry)
			}
		}
		return entries, err
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return scanEntries(bufio.NewReaderSize(io.NewSectionReader(f, at, math.MaxInt64-at), 64<<10))
}

// scanEntries reads the entries of one tile: as many as are whole.
func scanEntries(r io.Reader) (entries [][]byte, err error) {
	head := make([]byte, 4)
	for len(entries) < ledger.TileWidth {
		if _, err := io.ReadFull(r, head); err != nil {
			return entries, err
		}
		size := binary.BigEndian.Uint32(head)
		if size > entryMax {
			return entries, fmt.Errorf("an entry of %d bytes", size)
		}
		entry := make([]byte, size)
		if _, err := io.ReadFull(r, entry); err != nil {
			return entries, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// pack packs a full segment that is on disk, and removes what was packed.
func (t *Files) pack(k uint64) error {
	raw, err := os.Open(t.Path(segmentName(k)))
	if err != nil {
		return err
	}
	err = t.putSegment(segmentName(k)+packedSuffix, func(w io.Writer) error {
		return packAll(w, bufio.NewReaderSize(raw, 256<<10))
	})
	if err := errors.Join(err, raw.Close()); err != nil {
		return fmt.Errorf("cannot pack %s: %w", raw.Name(), err)
	}
	return os.Remove(raw.Name())
}

// packAll writes a packed segment, if every entry of it can be read and nothing is left over.
func packAll(w io.Writer, r *bufio.Reader) error {
	var footer, bundle, block []byte
	for n := range segmentTiles {
		entries, err := scanEntries(r)
		if err != nil {
			return fmt.Errorf("entry %d of tile %d cannot be read: %w", len(entries), n, err)
		}
		bundle = bundle[:0]
		for _, entry := range entries {
			bundle = ledger.AppendEntry(bundle, entry)
		}
		block = s2.Encode(block[:cap(block)], bundle)
		if _, err := w.Write(block); err != nil {
			return err
		}
		footer = binary.BigEndian.AppendUint32(footer, uint32(len(block)))
		footer = binary.BigEndian.AppendUint32(footer, uint32(len(bundle)))
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return errors.Join(errors.New("it does not end where it should"), err)
	}
	_, err := w.Write(append(footer, packedMagic...))
	return err
}

// unpack makes a packed segment one that grows again, of its first bytes.
func (t *Files) unpack(k uint64, bytes int64) error {
	err := t.putSegment(segmentName(k), func(w io.Writer) error {
		left := bytes
		for n := k * segmentTiles; left > 0 && n < (k+1)*segmentTiles; n++ {
			data, err := t.readPacked(extent{}, n)
			if err != nil {
				return err
			}
			data = data[:min(left, int64(len(data)))]
			if _, err := w.Write(data); err != nil {
				return err
			}
			left -= int64(len(data))
		}
		if left > 0 {
			return fmt.Errorf("it ends %d bytes too early", left)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot unpack segment %d: %w", k, err)
	}
	// The packed one must not come back by a power cut when the segment has grown again.
	return errors.Join(os.Remove(t.Path(segmentName(k)+packedSuffix)),
		store.SyncFile(t.Path(entriesFolder)))
}

// putSegment writes a segment under a name of its own, and has it on disk with its name
// before it returns.
func (t *Files) putSegment(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(t.Path(packingFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 256<<10)
	if err = write(w); err == nil {
		err = errors.Join(w.Flush(), f.Sync())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(t.Path(packingFile), t.Path(name)); err != nil {
		return err
	}
	return store.SyncFile(t.Path(entriesFolder))
}

package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// A ledger is kept a second time as the tiles of a Merkle tree. Each record is one leaf, in
// the order of the fold: the tree's size is the number of records, not of messages. C2SP
// tlog-tiles has these files:
//
//	tile/<L>/<N>          the N-th 256 hashes of level L: of leaves at level 0, above it of
//	                      whole tiles of the level below
//	tile/entries/<N>      the leaf data of the N-th 256 records
//	....p/<W>             the same of a tile that has only W yet
//
// The host has full tiles of level 1 and above as such files, and the rest in few that grow
// (ADR 0032). An entry is the leaf data of Leaf after its length, u32 big endian: the standard's
// u16 cannot say 64 KiB, which one record may have (ADR 0015).
const (
	TileWidth  = 256 // hashes, or entries, of one full tile
	tileHeight = 8   // levels of the tree that one tile spans
	entryMax   = 1 << 20
)

// Hash is a node of the tree: RFC 6962 SHA-256.
type Hash = [LeafSize]byte

// LeafHash is the hash of leaf data: what Leaf returns of the same record.
func LeafHash(data []byte) Hash {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(data)
	return Hash(h.Sum(nil))
}

// NodeHash is the hash of a node over its two children.
func NodeHash(left, right Hash) Hash {
	var buf [1 + 2*LeafSize]byte
	buf[0] = 1
	copy(buf[1:], left[:])
	copy(buf[1+LeafSize:], right[:])
	return sha256.Sum256(buf[:])
}

// perfect is the hash over a power of two of sibling nodes.
func perfect(nodes []Hash) Hash {
	if len(nodes) == 1 {
		return nodes[0]
	}
	return NodeHash(perfect(nodes[:len(nodes)/2]), perfect(nodes[len(nodes)/2:]))
}

// PerfectHash is the hash over a power of two of sibling nodes, from left to right.
func PerfectHash(nodes []Hash) Hash { return perfect(nodes) }

// TileHash is the hash over the TileWidth hashes of a full tile: its place in the
// tile above.
func TileHash(full []Hash) Hash { return perfect(full[:TileWidth]) }

// TilePath is the place of a tile of hashes, width of them.
func TilePath(level int, n uint64, width int) string {
	return "tile/" + strconv.Itoa(level) + "/" + tileNumber(n, width)
}

// BundlePath is the place of the entries of a tile of level 0.
func BundlePath(n uint64, width int) string { return "tile/entries/" + tileNumber(n, width) }

// tileNumber writes 1234067 as x001/x234/067.
func tileNumber(n uint64, width int) string {
	text := fmt.Sprintf("%03d", n%1000)
	for n /= 1000; n > 0; n /= 1000 {
		text = fmt.Sprintf("x%03d/", n%1000) + text
	}
	if width < TileWidth {
		text += ".p/" + strconv.Itoa(width)
	}
	return text
}

// AppendEntry appends one entry to a bundle.
func AppendEntry(bundle, leafData []byte) []byte {
	return append(binary.BigEndian.AppendUint32(bundle, uint32(len(leafData))), leafData...)
}

// NextEntry takes the first entry from a bundle; ok is false when it does not hold
// a whole one.
func NextEntry(bundle []byte) (leafData, rest []byte, ok bool) {
	if len(bundle) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(bundle)
	if n > entryMax || len(bundle)-4 < int(n) {
		return nil, nil, false
	}
	return bundle[4 : 4+n], bundle[4+n:], true
}

// Leafed is one record as its leaf data has it. Index, Count and MinReader are as in
// Leaf; Body and the strings share no memory with the data.
type Leafed struct {
	Tenant   string
	Sequence uint64
	StampNs  int64
	Subject  string
	Type     string // content type
	Index    uint32
	Count    uint32 // records in the message; 0: it is no commit, and this is all of it
	Reader   uint32 // min_reader
	Body     []byte
}

// Last reports whether no record of the same message follows.
func (l Leafed) Last() bool { return l.Index+1 >= l.Count }

// ParseLeaf reads leaf data. The error is a *Refused.
func ParseLeaf(data []byte) (Leafed, error) {
	bad := func(what string) (Leafed, error) {
		return Leafed{}, Refuse("leaf", what, "leaf data as Leaf writes it")
	}
	rest, ok := bytes.CutPrefix(data, []byte(leafTag))
	if !ok || len(rest) < 28 {
		return bad("it does not begin with " + strconv.Quote(leafTag))
	}
	l := Leafed{
		Sequence: binary.BigEndian.Uint64(rest), Index: binary.BigEndian.Uint32(
			rest[8:]), Count: binary.BigEndian.Uint32(rest[12:]),
		StampNs: int64(binary.BigEndian.Uint64(rest[16:])), Reader: binary.BigEndian.Uint32(rest[24:]),
	}
	rest = rest[28:]
	var fields [4][]byte
	for i := range fields {
		if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			return bad("a field ends after it")
		}
		n := binary.BigEndian.Uint32(rest)
		fields[i], rest = rest[4:4+n], rest[4+n:]
	}
	if len(rest) != 0 {
		return bad("something follows it")
	}
	l.Tenant, l.Subject, l.Type, l.Body = string(fields[0]), string(fields[1]), string(
		fields[2]), bytes.Clone(fields[3])
	return l, nil
}

// Assemble returns the message whose records these are, all of them and in order,
// byte for byte as the store had it. The error is a *Refused.
func Assemble(records []Leafed) (Message, error) {
	bad := func(what string) (Message, error) {
		return Message{}, Refuse("message", what, "all records of one message, in order")
	}
	if len(records) == 0 || len(records) != int(max(records[0].Count, 1)) {
		return bad(fmt.Sprintf("%d records", len(records)))
	}
	first := records[0]
	for i, r := range records {
		same := r.Sequence == first.Sequence && r.StampNs == first.StampNs &&
			r.Subject == first.Subject && r.Type == first.Type &&
			r.Tenant == first.Tenant && r.Count == first.Count && r.Reader == first.Reader
		if !same || int(r.Index) != i {
			return bad(fmt.Sprintf("record %d is not of it", i))
		}
	}
	m := Message{Sequence: first.Sequence, StampNs: first.StampNs, Subject: first.Subject,
		ContentType: first.Type}
	switch {
	case first.Count == 0:
		m.Data = first.Body
	case first.Type == ContentTypeJSON:
		m.Data = first.Body
		whole := sha256.Sum256(m.Data)
		for i, r := range records[1:] {
			if !bytes.Equal(r.Body, whole[:]) {
				return bad(fmt.Sprintf("record %d is of another commit", i+1))
			}
		}
	case first.Type == "":
		m.Data = protowire.AppendTag(nil, fieldMinReader, protowire.VarintType)
		m.Data = protowire.AppendVarint(m.Data, uint64(first.Reader))
		for _, r := range records {
			m.Data = protowire.AppendTag(m.Data, fieldRecords, protowire.BytesType)
			m.Data = protowire.AppendBytes(m.Data, r.Body)
		}
	default:
		return bad(fmt.Sprintf("a commit of content type %q", first.Type))
	}
	return m, nil
}

// Tile is a full tile of hashes.
type Tile struct {
	Level  int
	N      uint64
	Hashes []Hash // TileWidth
}

// Edge is the right edge of a tree: of each level the tile that is not full yet. It
// gives the tiles as they fill, and the root. The zero Edge is the empty tree.
type Edge struct {
	size   uint64
	levels [][]Hash
}

// OpenEdge returns the edge of a tree of a size. read gives the first width hashes
// of a tile.
func OpenEdge(size uint64, read func(level int, n uint64, width int) ([]Hash, error)) (*Edge,
	error) {
	e := &Edge{size: size}
	for level, n := 0, size; n > 0; level, n = level+1, n>>tileHeight {
		var hashes []Hash
		if width := int(n % TileWidth); width > 0 {
			var err error
			if hashes, err = read(level, n>>tileHeight, width); err != nil {
				return nil, err
			}
		}
		e.levels = append(e.levels, append(make([]Hash, 0, TileWidth), hashes...))
	}
	return e, nil
}

// Size is the number of leaves.
func (e *Edge) Size() uint64 { return e.size }

// Partial returns the tile of a level that is not full; nil above the root.
func (e *Edge) Partial(level int) []Hash {
	if level >= len(e.levels) {
		return nil
	}
	return e.levels[level]
}

// Append adds a leaf and returns the tiles that it fills, from level 0 up.
func (e *Edge) Append(leaf Hash) (full []Tile) {
	e.size++
	for level, h, n := 0, leaf, e.size; ; level++ {
		if level == len(e.levels) {
			e.levels = append(e.levels, make([]Hash, 0, TileWidth))
		}
		e.levels[level] = append(e.levels[level], h)
		if len(e.levels[level]) < TileWidth {
			return full
		}
		n >>= tileHeight
		tile := Tile{level, n - 1, e.levels[level]}
		full = append(full, tile)
		e.levels[level], h = make([]Hash, 0, TileWidth), TileHash(tile.Hashes)
	}
}

// Clone is the edge as it is now; what is appended to the one changes the other not.
// They share memory, and may belong to two goroutines.
func (e *Edge) Clone() *Edge {
	levels := make([][]Hash, len(e.levels))
	for i, level := range e.levels {
		levels[i] = level[:len(level):len(level)] // hashes that are there are never written again
	}
	return &Edge{e.size, levels}
}

// Root is the hash of the tree, RFC 6962; of the empty one SHA-256 of nothing.
func (e *Edge) Root() Hash {
	var root Hash
	some := false
	for _, level := range e.levels { // from the right: the smallest subtree first
		for rest := level; len(rest) > 0; {
			n := len(rest) & -len(rest) // the largest subtree that ends here
			h := perfect(rest[len(rest)-n:])
			rest = rest[:len(rest)-n]
			if some {
				h = NodeHash(h, root)
			}
			root, some = h, true
		}
	}
	if !some {
		return emptyRoot()
	}
	return root
}

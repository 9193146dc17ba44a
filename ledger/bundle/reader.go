package bundle

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// ItemKind says what an Item is.
type ItemKind uint8

// Kinds of items.
const (
	Record     ItemKind = iota + 1 // one record
	Withheld                       // records that are not shown
	Checkpoint                     // of all that came before
	End                            // and nothing after it
)

// Item is what a bundle holds next. Data belongs to the reader until the next call.
type Item struct {
	Kind  ItemKind
	Index uint64      // of the record, or the first withheld one; of others: records before it
	Data  []byte      // Record: leaf data
	Nodes []Node      // Withheld
	Note  string      // Checkpoint
	Root  ledger.Hash // End
}

// Reader reads a bundle in memory that does not grow with it. It takes any bytes.
type Reader struct {
	r        io.Reader
	header   Header
	unpacker *zstd.Decoder
	payload  []byte
	raw      []byte
	rest     []byte // entries of the frame that are not read yet
	left     uint32 // and how many these are
	at       uint64 // records so far
	offset   int64  // of the next frame
	whole    int64  // after the last frame that was read whole, and is no end
	ended    bool
	err      error
}

// NewReader reads the beginning of a bundle. Errors: *Malformed, ErrCut, ErrLater, that of r.
func NewReader(r io.Reader) (*Reader, error) {
	unpacker, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(rawMax),
		zstd.WithDecoderMaxWindow(rawMax), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	b := &Reader{r: r, unpacker: unpacker}
	magic := make([]byte, len(Magic))
	n, err := io.ReadFull(r, magic)
	switch {
	case laterMagic.Match(magic[:n]):
		return nil, ErrLater
	case !bytes.Equal(magic[:n], []byte(Magic)[:n]):
		return nil, &Malformed{0, fmt.Sprintf("this is none, it does not begin with %q", Magic)}
	case err != nil:
		return nil, cut(err)
	}
	b.offset = int64(n)
	kind, payload, err := b.frame()
	switch {
	case err != nil:
		return nil, err
	case kind != frameHeader:
		return nil, b.bad("the first frame is no header")
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&b.header); err != nil || !bytes.Equal(encodeHeader(b.header), payload) {
		return nil, b.bad("its header is none of this version")
	}
	if err := b.header.Check(); err != nil {
		return nil, b.bad("%s", err.Error())
	}
	b.whole = b.offset
	return b, nil
}

// Header says what the bundle holds.
func (b *Reader) Header() Header { return b.header }

// cut is ErrCut for a file that ends too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	return err
}

func (b *Reader) bad(format string, a ...any) error {
	return &Malformed{b.whole, fmt.Sprintf(format, a...)}
}

// frame reads one frame whole.
func (b *Reader) frame() (byte, []byte, error) {
	b.whole = b.offset
	var head [headLen]byte
	if _, err := io.ReadFull(b.r, head[:]); err != nil {
		return 0, nil, cut(err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > payloadMax {
		return 0, nil, b.bad("a frame of %d bytes, at most %d", n, payloadMax)
	}
	if uint32(cap(b.payload)) < n+sumLen {
		b.payload = make([]byte, 0, n+sumLen)
	}
	b.payload = b.payload[:n+sumLen]
	if _, err := io.ReadFull(b.r, b.payload); err != nil {
		return 0, nil, cut(err)
	}
	payload := b.payload[:n]
	if s := sum(head[:], payload); !bytes.Equal(s[:], b.payload[n:]) {
		return 0, nil,
			b.bad("a frame has another sum than it says: the file was altered or damaged")
	}
	b.offset += int64(headLen + n + sumLen)
	return head[0], payload, nil
}

// Next returns the next item; io.EOF after the End. Errors: *Malformed, ErrCut, that
// of the file. All further calls return the same error.
func (b *Reader) Next() (Item, error) {
	if b.err != nil {
		return Item{}, b.err
	}
	if b.left > 0 {
		return b.entry()
	}
	if b.ended {
		b.err = io.EOF
		if n, err := io.ReadFull(b.r, make([]byte, 1)); n != 0 {
			b.err = b.bad("something follows its end")
		} else if !errors.Is(err, io.EOF) {
			b.err = err
		}
		return Item{}, b.err
	}
	kind, payload, err := b.frame()
	var item Item
	if err == nil {
		item, err = b.open(kind, payload)
	}
	b.err = err
	return item, err
}

func (b *Reader) open(kind byte, payload []byte) (Item, error) {
	switch kind {
	case frameRecords:
		return b.records(payload)
	case frameWithheld:
		return b.withheld(payload)
	case frameCheckpoint:
		if len(payload) > noteMax || !utf8.Valid(payload) {
			return Item{}, b.bad("a checkpoint that is no text of at most %d bytes", noteMax)
		}
		return Item{Kind: Checkpoint, Index: b.at, Note: string(payload)}, nil
	case frameEnd:
		if len(payload) != 8+ledger.LeafSize || binary.BigEndian.Uint64(payload) != b.at {
			return Item{}, b.bad("its end is not that of %d records", b.at)
		}
		b.ended = true
		return Item{Kind: End, Index: b.at, Root: ledger.Hash(payload[8:])}, nil
	default:
		return Item{}, b.bad("a frame of type %q", kind)
	}
}

func (b *Reader) records(payload []byte) (Item, error) {
	if len(payload) < 16 || binary.BigEndian.Uint64(payload) != b.at {
		return Item{}, b.bad("records that do not follow record %d", b.at)
	}
	count, size := binary.BigEndian.Uint32(payload[8:]), binary.BigEndian.Uint32(payload[12:])
	if count == 0 || size > rawMax {
		return Item{}, b.bad("%d records of %d bytes", count, size)
	}
	if uint32(cap(b.raw)) < size {
		b.raw = make([]byte, 0, size)
	}
	raw, err := b.unpacker.DecodeAll(payload[16:], b.raw[:0:size])
	if err != nil || uint32(len(raw)) != size {
		return Item{}, b.bad("records that cannot be unpacked")
	}
	b.rest, b.left = raw, count
	return b.entry()
}

// entry takes the next record of the frame.
func (b *Reader) entry() (Item, error) {
	data, rest, ok := ledger.NextEntry(b.rest)
	if b.left--; !ok || b.left == 0 && len(rest) != 0 {
		b.err = b.bad("a frame does not hold the records that it counts")
		return Item{}, b.err
	}
	b.rest = rest
	b.at++
	return Item{Kind: Record, Index: b.at - 1, Data: data}, nil
}

func (b *Reader) withheld(payload []byte) (Item, error) {
	if len(payload) < 16+nodeLen || (len(payload)-16)%nodeLen != 0 ||
		(len(payload)-16)/nodeLen > nodesMax || binary.BigEndian.Uint64(payload) != b.at {
		return Item{}, b.bad("withheld records that do not follow record %d", b.at)
	}
	item := Item{Kind: Withheld, Index: b.at}
	end := b.at
	for rest := payload[16:]; len(rest) > 0; rest = rest[nodeLen:] {
		n := Node{rest[0], ledger.Hash(rest[1:nodeLen])}
		if n.Level > levelMax-1 || end&(1<<n.Level-1) != 0 || end+1<<n.Level < end {
			return Item{}, b.bad("a subtree of level %d after %d records", n.Level, end)
		}
		item.Nodes = append(item.Nodes, n)
		end += 1 << n.Level
	}
	if end-b.at != binary.BigEndian.Uint64(payload[8:]) {
		return Item{}, b.bad("it says that %d records are withheld, and shows %d",
			binary.BigEndian.Uint64(payload[8:]), end-b.at)
	}
	b.at = end
	return item, nil
}

// Part says how far a bundle goes that may be continued.
type Part struct {
	Header Header
	Size   uint64 // records
	Offset int64  // after the last whole frame but the end: where Continue cuts the file
	Ended  bool   // it was whole
	Tree   Tree
}

// Scan reads a bundle as far as it is whole. The error is that of NewReader, a
// *Malformed in the middle, or that of r; a bundle that is cut off is none.
func Scan(r io.Reader) (Part, error) {
	b, err := NewReader(r)
	if err != nil {
		return Part{}, err
	}
	part := Part{Header: b.header, Offset: b.whole}
	for {
		item, err := b.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, ErrCut):
			return part, nil
		case err != nil:
			return part, err
		}
		switch item.Kind {
		case Record:
			part.Tree.Append(ledger.LeafHash(item.Data))
		case Withheld:
			for _, n := range item.Nodes {
				if err := part.Tree.AppendNode(n); err != nil {
					return part, err
				}
			}
		case End:
			part.Ended = true
			continue
		}
		if b.left == 0 {
			part.Size, part.Offset = b.at, b.offset
		}
	}
}

package bundle

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Writer writes a bundle, record by record, in memory that does not grow with it.
type Writer struct {
	w      io.Writer
	packer *zstd.Encoder
	at     uint64 // index of the next record
	raw    []byte // entries that wait for their frame
	first  uint64 // index of the first of them
	count  uint32
	gap    gap
	err    error
}

// NewWriter begins a bundle. The error is a *ledger.Refused, or that of w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(w, Magic); err != nil {
		return nil, err
	}
	if _, err := writeFrame(w, frameHeader, encodeHeader(h)); err != nil {
		return nil, err
	}
	return Continue(w, 0)
}

// Continue goes on with a bundle after its last whole frame, at size records (see
// Scan).
func Continue(w io.Writer, size uint64) (*Writer, error) {
	packer, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	return &Writer{w: w, packer: packer, at: size}, nil
}

// Record adds the next record, as its leaf data.
func (w *Writer) Record(leafData []byte) error {
	w.closeGap()
	if len(leafData) > rawMax-rawGoal-4 {
		return ledger.Refuse("record", fmt.Sprintf("leaf data of %d bytes", len(leafData)),
			fmt.Sprintf("at most %d", rawMax-rawGoal-4))
	}
	if w.count == 0 {
		w.first = w.at
	}
	w.raw = ledger.AppendEntry(w.raw, leafData)
	w.count++
	w.at++
	if len(w.raw) >= rawGoal {
		w.closeRecords()
	}
	return w.err
}

// Withhold adds the next records as a subtree, by its hash alone.
func (w *Writer) Withhold(n Node) error {
	w.closeRecords()
	if n.Level > levelMax-1 || w.at&(1<<n.Level-1) != 0 {
		return ledger.Refuse("withheld", fmt.Sprintf("a subtree of level %d after %d records",
			n.Level, w.at), "subtrees in their places")
	}
	if len(w.gap.nodes) == 0 {
		w.gap = gap{from: w.at, to: w.at}
	}
	w.gap.add(n)
	w.at = w.gap.to
	return w.err
}

// Checkpoint adds a signed checkpoint of all records so far.
func (w *Writer) Checkpoint(note string) error {
	if len(note) > noteMax {
		return ledger.Refuse("checkpoint", fmt.Sprintf("%d bytes", len(note)),
			fmt.Sprintf("at most %d", noteMax))
	}
	w.frame(frameCheckpoint, []byte(note))
	return w.err
}

// Flush makes whole frames of all that was added.
func (w *Writer) Flush() error {
	w.closeRecords()
	w.closeGap()
	return w.err
}

// End ends the bundle: size and root of the tree, which the caller has.
func (w *Writer) End(root ledger.Hash) error {
	payload := binary.BigEndian.AppendUint64(nil, w.at)
	w.frame(frameEnd, append(payload, root[:]...))
	return w.err
}

func (w *Writer) frame(kind byte, payload []byte) {
	if w.err == nil {
		w.err = w.Flush()
	}
	if w.err == nil {
		_, w.err = writeFrame(w.w, kind, payload)
	}
}

func (w *Writer) closeRecords() {
	if w.err != nil || w.count == 0 {
		return
	}
	payload := binary.BigEndian.AppendUint64(nil, w.first)
	payload = binary.BigEndian.AppendUint32(payload, w.count)
	payload = binary.BigEndian.AppendUint32(payload, uint32(len(w.raw)))
	_, w.err = writeFrame(w.w, frameRecords, w.packer.EncodeAll(w.raw, payload))
	w.raw, w.count = w.raw[:0], 0
}

func (w *Writer) closeGap() {
	if w.err != nil || len(w.gap.nodes) == 0 {
		return
	}
	payload := binary.BigEndian.AppendUint64(nil, w.gap.from)
	payload = binary.BigEndian.AppendUint64(payload, w.gap.to-w.gap.from)
	for _, n := range w.gap.nodes {
		payload = append(append(payload, n.Level), n.Hash[:]...)
	}
	_, w.err = writeFrame(w.w, frameWithheld, payload)
	w.gap = gap{}
}

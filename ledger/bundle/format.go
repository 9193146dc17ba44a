package bundle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Magic begins every bundle. Its number changes with the format.
const Magic = "sagenbaum/bundle/v1\n"

// laterMagic begins every bundle of a later format.
var laterMagic = regexp.MustCompile(`^sagenbaum/bundle/v([2-9]\n|[1-9][0-9])`)

// What a bundle holds.
const (
	Whole = "whole" // every record of the ledger, from the first on
	Since = "since" // every record from a sequence on
	Plan  = "plan"  // the records of one plan and its family, and what they rest on
)

// Types of frames.
const (
	frameHeader     = 'H'
	frameRecords    = 'R'
	frameWithheld   = 'W'
	frameCheckpoint = 'C'
	frameEnd        = 'E'
)

// Sizes, in bytes unless they say otherwise.
const (
	headLen    = 5       // of a frame: type and length
	sumLen     = 8       // of SHA-256 over a frame
	rawMax     = 2 << 20 // of the entries of one frame, unpacked
	rawGoal    = 1 << 20 // at which a writer begins the next frame
	payloadMax = rawMax + 4096
	levelMax   = 63
	nodeLen    = 1 + ledger.LeafSize
	nodesMax   = 2 * levelMax // of one frame of withheld records
	noteMax    = 64 << 10
	planMax    = 256
)

// Header says what a bundle holds.
type Header struct {
	Tenant string `json:"tenant"`
	Holds  string `json:"holds"`           // Whole, Since or Plan
	Plan   string `json:"plan,omitempty"`  // of Plan: its id
	Since  uint64 `json:"since,omitempty"` // of Since: the first sequence
}

// Check reports whether the header makes sense. The error is a *ledger.Refused.
func (h Header) Check() error {
	switch {
	case !ledger.ValidToken(h.Tenant):
		return ledger.Refuse("header.tenant", fmt.Sprintf("%.80q", h.Tenant), "a tenant")
	case h.Holds != Whole && h.Holds != Since && h.Holds != Plan:
		return ledger.Refuse("header.holds", fmt.Sprintf("%.80q", h.Holds), "whole, since or plan")
	case (h.Holds == Plan) != (h.Plan != "") || len(h.Plan) > planMax:
		return ledger.Refuse("header.plan", fmt.Sprintf("%.80q in a bundle that holds %s", h.Plan,
			h.Holds), "the plan of a bundle of one")
	case (h.Holds == Since) != (h.Since != 0):
		return ledger.Refuse("header.since", fmt.Sprintf("%d in a bundle that holds %s", h.Since,
			h.Holds), "the first sequence of a bundle of the rest")
	}
	return nil
}

// Node is a perfect subtree of 2^Level leaves.
type Node struct {
	Level uint8
	Hash  ledger.Hash
}

// ErrCut says that a bundle ends before its end: what came was right, and more is
// missing.
var ErrCut = errors.New("the bundle is cut off: it has no end")

// ErrLater says that a bundle is of a later format than this version reads.
var ErrLater = errors.New("the bundle was made by a newer version, in a format that this one " +
	"cannot read")

// Malformed says that the bytes are no bundle.
type Malformed struct {
	Offset  int64 // of the frame, in bytes
	Problem string
}

// Error reads "cannot read the bundle at offset 20: ...".
func (e *Malformed) Error() string {
	return fmt.Sprintf("cannot read the bundle at offset %d: %s", e.Offset, e.Problem)
}

// sum is what ends a frame.
func sum(head, payload []byte) (s [sumLen]byte) {
	h := sha256.New()
	h.Write(head)
	h.Write(payload)
	copy(s[:], h.Sum(nil))
	return s
}

// writeFrame writes one frame.
func writeFrame(w io.Writer, kind byte, payload []byte) (int64, error) {
	head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	s := sum(head, payload)
	frame := append(append(head, payload...), s[:]...)
	n, err := w.Write(frame)
	return int64(n), err
}

func encodeHeader(h Header) []byte {
	text, err := json.Marshal(h)
	if err != nil {
		panic("bundle: cannot encode a header: " + err.Error())
	}
	return text
}

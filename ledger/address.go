package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// LeafSize is the length of a leaf hash in bytes (SHA-256).
const LeafSize = sha256.Size

// Leaf returns the RFC 6962 leaf hash of one record: SHA-256 over a zero byte
// and the leaf data, which is
//
//	"sagenbaum/leaf/v1\n"
//	u64 sequence, u32 index, u32 count, i64 stamp     (big endian; count = records in the message)
//	u32 min_reader
//	u32 length + bytes of tenant, subject, content type, body
//
// The body is the record's bytes as received. In a JSON commit the body of
// record 0 is the whole message, of the others its SHA-256. What is not hashed
// may not influence the fold.
func Leaf(tenant string, m Message, index, count, minReader uint32, body []byte) [LeafSize]byte {
	leaf, _ := leafIn(nil, tenant, m, index, count, minReader, body)
	return leaf
}

// leafIn is Leaf with a buffer that is used again.
func leafIn(buf []byte, tenant string, m Message, index, count, minReader uint32, body []byte,
) ([LeafSize]byte, []byte) {
	size := 1 + len(leafTag) + 44 + len(tenant) + len(m.Subject) + len(m.ContentType) + len(body)
	buf = append(slices.Grow(buf[:0], size), 0)
	buf = AppendLeaf(buf, tenant, m, index, count, minReader, body)
	return sha256.Sum256(buf), buf
}

// leafTag begins all leaf data.
const leafTag = "sagenbaum/leaf/v1\n"

// AppendLeaf appends the leaf data of one record to buf, as Leaf describes it.
func AppendLeaf(buf []byte, tenant string, m Message, index, count, minReader uint32,
	body []byte) []byte {
	buf = append(buf, leafTag...)
	buf = binary.BigEndian.AppendUint64(buf, m.Sequence)
	buf = binary.BigEndian.AppendUint32(buf, index)
	buf = binary.BigEndian.AppendUint32(buf, count)
	buf = binary.BigEndian.AppendUint64(buf, uint64(m.StampNs))
	buf = binary.BigEndian.AppendUint32(buf, minReader)
	for _, s := range [...]string{tenant, m.Subject, m.ContentType} {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(s)))
		buf = append(buf, s...)
	}
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(body)))
	return append(buf, body...)
}

// FormatAddress writes an address as people see it: "seq.index-leaf" with the
// first 8 hex digits of the leaf, for example "17.0-9f86d081". A nil address is "-".
func FormatAddress(a *pb.Address) string {
	if a == nil {
		return "-"
	}
	return fmt.Sprintf("%d.%d-%s", a.Sequence, a.Index,
		hex.EncodeToString(a.Leaf[:min(4, len(a.Leaf))]))
}

// FormatFullAddress is FormatAddress with all 64 digits of the leaf, for
// programs.
func FormatFullAddress(a *pb.Address) string {
	text := make([]byte, 0, 2*LeafSize+32)
	text = append(strconv.AppendUint(text, a.GetSequence(), 10), '.')
	text = append(strconv.AppendUint(text, uint64(a.GetIndex()), 10), '-')
	return string(hex.AppendEncode(text, a.GetLeaf()))
}

// ParseAddress reads what FormatAddress writes, with a leaf of 8 to 64 digits.
func ParseAddress(text string) (*pb.Address, error) {
	place, leaf, ok := strings.Cut(text, "-")
	seq, index, ok2 := strings.Cut(place, ".")
	s, err := strconv.ParseUint(seq, 10, 64)
	i, err2 := strconv.ParseUint(index, 10, 32)
	h, err3 := hex.DecodeString(leaf)
	if !ok || !ok2 || err != nil || err2 != nil || err3 != nil || len(h) < 4 || len(h) > LeafSize {
		return nil, Refuse("address", fmt.Sprintf("%q is not an address", text),
			`"sequence.index-leaf", as in "17.0-9f86d081"`)
	}
	return &pb.Address{Sequence: s, Index: uint32(i), Leaf: h}, nil
}

// Purposes of a Key.
const (
	PurposeDo   = "do"   // of the forward, for the tool it calls
	PurposeUndo = "undo" // of its compensation
)

// Key returns the idempotency key of an action for one purpose: 32 lower-case hex digits
// of SHA-256 over tenant, plan and action. It is the same for every holder, and for every attempt
// until an owner asks for another one (RetryKey), and it is known before the forward is registered.
func Key(tenant, plan, action, purpose string) string {
	buf := make([]byte, 0, 256)
	for _, s := range [...]string{"sagenbaum/key/v1", tenant, plan, action, purpose} {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(s)))
		buf = append(buf, s...)
	}
	sum := sha256.Sum256(buf)
	return hex.EncodeToString(sum[:16])
}

// RetryKey returns the idempotency key that an owner has asked for in place of the key of an
// undo, by the record at an address. Each such record gives another one, of the form of Key.
func RetryKey(key string, at *pb.Address) string {
	buf := make([]byte, 0, 128)
	for _, s := range [...]string{"sagenbaum/key/v1/retry", key} {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(s)))
		buf = append(buf, s...)
	}
	buf = binary.BigEndian.AppendUint64(buf, at.GetSequence())
	buf = binary.BigEndian.AppendUint32(buf, at.GetIndex())
	sum := sha256.Sum256(buf)
	return hex.EncodeToString(sum[:16])
}

// ContractDigest is the content address of a contract: SHA-256 over a tag and its
// canonical JSON, as coordinator/contract writes it.
func ContractDigest(canonical []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte("sagenbaum/contract/v2\n"), canonical...))
}

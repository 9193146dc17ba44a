package rows

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Digest returns SHA-256 over every row of a state in key order, each key and
// value after its length (u32 big endian). Two states are the same fold if and
// only if their digests are equal (I7). Flush must have been called.
func Digest(kv KV) [sha256.Size]byte {
	digest, _ := DigestOf(kv, []byte{0}, []byte{0xff})
	return digest
}

// DigestOf is Digest over the rows with from <= key < to.
func DigestOf(kv KV, from, to []byte) (digest [sha256.Size]byte, rows int) {
	h := sha256.New()
	var n [4]byte
	write := func(b []byte) {
		binary.BigEndian.PutUint32(n[:], uint32(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for k, v := range kv.Scan(from, to) {
		rows++
		write(k)
		write(v)
	}
	return [sha256.Size]byte(h.Sum(nil)), rows
}

// FormatDigest writes a digest as 64 hex digits.
func FormatDigest(d [sha256.Size]byte) string { return hex.EncodeToString(d[:]) }

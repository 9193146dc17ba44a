package rows

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
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

// FactsDigest is Digest over working memory alone; count is how many facts there
// are, tombstones and evicted ones with them.
func FactsDigest(kv KV) (digest [sha256.Size]byte, count int) {
	return DigestOf(kv, Facts.Prefix(), After(Facts.Prefix()))
}

// FormatDigest writes a digest as 64 hex digits.
func FormatDigest(d [sha256.Size]byte) string { return hex.EncodeToString(d[:]) }

// Differences names up to limit rows in which two states differ.
func Differences(a, b KV, limit int) (list []string) {
	compare := func(a, b KV, missing string, both bool) {
		for k, v := range a.Scan([]byte{0}, []byte{0xff}) {
			if len(list) >= limit {
				return
			}
			switch other, ok := b.Get(k); {
			case !ok:
				list = append(list, fmt.Sprintf("%s: only %s", rowName(k), missing))
			case both && !bytes.Equal(v, other):
				list = append(list, rowName(k)+": not the same")
			}
		}
	}
	compare(a, b, "in the state", true)
	compare(b, a, "in the ledger", false)
	return list
}

// rowName names a row for people.
func rowName(k []byte) string {
	if k[0] == Facts.Prefix()[0] {
		return fmt.Sprintf("fact %q", k[1:])
	}
	return fmt.Sprintf("row %q", k)
}

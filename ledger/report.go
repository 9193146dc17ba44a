package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
)

// Reporter makes what a worker's own record about an attempt of an undo has to show: only the
// worker that was sent the command has it. A holder makes it of a secret of its process, so that
// a copy that it sends again has the same; the dispatch has the digest. It belongs to one
// goroutine.
type Reporter struct {
	mac  hash.Hash
	text []byte // of the last token
}

// NewReporter is one with a secret; nil where that is empty: no record has to show anything.
func NewReporter(secret []byte) *Reporter {
	if len(secret) == 0 {
		return nil
	}
	return &Reporter{mac: hmac.New(sha256.New, secret)}
}

// Token is what a record about an attempt has to show.
func (r *Reporter) Token(tenant, plan, action, key string, attempt uint32) string {
	r.text = r.text[:0]
	for _, part := range [...]string{"sagenbaum/report/v1", tenant, plan, action, key} {
		r.text = append(append(r.text, part...), '\n')
	}
	r.text = append(strconv.AppendUint(r.text, uint64(attempt), 10), '\n')
	r.mac.Reset()
	r.mac.Write(r.text)
	r.text = r.mac.Sum(r.text[:0])
	return hex.EncodeToString(r.text[:reportTokenSize])
}

// reportTokenSize is 128 bits.
const reportTokenSize = 16

// ReportDigest is what a dispatch has of a token.
func ReportDigest(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

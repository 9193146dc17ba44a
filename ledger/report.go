package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// ReportToken is what a worker's own record about an attempt of an undo has to show: only the
// worker that was sent the command has it. A holder makes it of a secret of its process, so that
// a copy that it sends again has the same; the dispatch has the digest.
func ReportToken(secret []byte, tenant, plan, action, key string, attempt uint32) string {
	text := make([]byte, 0, 256)
	for _, part := range [...]string{"sagenbaum/report/v1", tenant, plan, action, key} {
		text = append(append(text, part...), '\n')
	}
	text = append(strconv.AppendUint(text, uint64(attempt), 10), '\n')
	mac := hmac.New(sha256.New, secret)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil)[:reportTokenSize])
}

// reportTokenSize is 128 bits.
const reportTokenSize = 16

// ReportDigest is what a dispatch has of a token.
func ReportDigest(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

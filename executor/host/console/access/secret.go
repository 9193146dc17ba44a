package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// hash is of a token: by argon2id or, in the old form of a line, a SHA-256.
type hash struct {
	memory  uint32 // KiB; 0: sum is a SHA-256
	passes  uint32
	lanes   uint8
	salt    string
	sum     string
	oldForm bool // its line names no role
}

// Parameters of new hashes: what OWASP recommends first for argon2id. Memory and passes of a
// hash in a file are bounded, since each sign-in costs them.
const (
	hashMemory    = 19 << 10
	hashPasses    = 2
	hashBytes     = 32
	hashMemoryMax = 256 << 10
	hashPassesMax = 16
	hashLanesMax  = 8
)

const hashForm = "$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s"

var raw64 = base64.RawStdEncoding.Strict()

// newHash hashes a token under a salt of its own.
func newHash(token string) hash {
	salt := make([]byte, 16)
	rand.Read(salt) // never fails, as crypto/rand documents
	h := hash{memory: hashMemory, passes: hashPasses, lanes: 1, salt: string(salt)}
	h.sum = string(h.of(token))
	return h
}

// parseHash reads a hash in the form of the argon2 tools. The error is a *ledger.Refused.
func parseHash(text string) (h hash, err error) {
	wrong := func(problem string) (hash, error) {
		return hash{}, ledger.Refuse("token", problem,
			"$argon2id$v=19$m=19456,t=2,p=1$ with salt and hash, as `sagenbaum console users add` "+
				"makes it")
	}
	var salt, sum string
	head, rest, _ := strings.Cut(strings.TrimPrefix(text, "$"), "$m=")
	parts := strings.Split(rest, "$")
	if head != "argon2id$v=19" || len(parts) != 3 {
		return wrong("not in the form of argon2id")
	}
	salt, sum = parts[1], parts[2]
	if _, err := fmt.Sscanf(parts[0], "%d,t=%d,p=%d", &h.memory, &h.passes, &h.lanes); err != nil ||
		h.memory < 8 || h.memory > hashMemoryMax || h.passes < 1 || h.passes > hashPassesMax ||
		h.lanes < 1 || h.lanes > hashLanesMax || parts[0] != fmt.Sprintf("%d,t=%d,p=%d", h.memory,
		h.passes, h.lanes) {
		return wrong("its parameters are wrong, or cost too much")
	}
	saltBytes, err := raw64.DecodeString(salt)
	if err != nil || len(saltBytes) < 8 || len(saltBytes) > 64 {
		return wrong("its salt is none")
	}
	sumBytes, err := raw64.DecodeString(sum)
	if err != nil || len(sumBytes) < 16 || len(sumBytes) > 64 {
		return wrong("its hash is none")
	}
	h.salt, h.sum = string(saltBytes), string(sumBytes)
	return h, nil
}

// String is the hash as a file has it.
func (h hash) String() string {
	if h.memory == 0 {
		return "sha256:" + hex.EncodeToString([]byte(h.sum))
	}
	return fmt.Sprintf(hashForm, h.memory, h.passes, h.lanes, raw64.EncodeToString([]byte(h.salt)),
		raw64.EncodeToString([]byte(h.sum)))
}

func (h hash) of(token string) []byte {
	if h.memory == 0 {
		sum := sha256.Sum256([]byte(token))
		return sum[:]
	}
	length := uint32(len(h.sum))
	if length == 0 {
		length = hashBytes
	}
	return argon2.IDKey([]byte(token), []byte(h.salt), h.passes, h.memory, h.lanes, length)
}

func (h hash) matches(token string) bool {
	return subtle.ConstantTimeCompare(h.of(token), []byte(h.sum)) == 1
}

// decoy is computed where there is no hash to compare with, so that it takes as long.
var decoy = hash{memory: hashMemory, passes: hashPasses, lanes: 1, salt: "0123456789abcdef"}

// Secret is 32 bytes of randomness as text.
func Secret() string {
	var raw [32]byte
	rand.Read(raw[:]) // never fails, as crypto/rand documents
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// MasterKeySize is the length of a master key in bytes.
const MasterKeySize = 32

// idSize is the length of a key's id in bytes; it is written as hex digits.
const idSize = 8

// ParseMasterKey reads a master key as files and key services give it: 64 hex digits, or 32
// bytes in base64, with white space around it. The error is a *ledger.Refused, which says
// nothing of the text.
func ParseMasterKey(text []byte) ([]byte, error) {
	trimmed := string(bytes.TrimSpace(text))
	for _, decode := range [...]func(string) ([]byte, error){hex.DecodeString,
		base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString} {
		if key, err := decode(trimmed); err == nil && len(key) == MasterKeySize {
			return key, nil
		}
	}
	return nil, ledger.Refuse("master key",
		fmt.Sprintf("is not %d hex digits (it has %d characters)", 2*MasterKeySize, len(trimmed)),
		fmt.Sprintf("%d hex digits, or %d bytes in base64", 2*MasterKeySize, MasterKeySize))
}

// MasterKeyID is the id of a master key, 16 hex digits, which says nothing of the key itself.
// What a master key wraps names it by its id.
func MasterKeyID(master []byte) string {
	return hex.EncodeToString(derive(master, "sagenbaum/master/v1 id")[:idSize])
}

// derive makes a key of its own for one use.
func derive(key []byte, use string) []byte {
	out, err := hkdf.Key(sha256.New, key, nil, use, MasterKeySize)
	if err != nil {
		panic("vault: " + err.Error())
	}
	return out
}

// TenantKey is the key of a tenant, under which the keys of its plans are wrapped.
type TenantKey struct {
	ID  string // 16 hex digits, random
	key []byte
}

// String keeps a key out of logs.
func (k TenantKey) String() string { return "[the key " + k.ID + " of a tenant]" }

// GoString keeps a key out of logs.
func (k TenantKey) GoString() string { return k.String() }

// MarshalJSON keeps a key out of everything that is encoded by mistake.
func (k TenantKey) MarshalJSON() ([]byte, error) { return json.Marshal(k.String()) }

// newTenantKey makes a key at random.
func newTenantKey() (TenantKey, error) {
	raw := make([]byte, idSize+MasterKeySize)
	if _, err := rand.Read(raw); err != nil {
		return TenantKey{}, err
	}
	return TenantKey{ID: hex.EncodeToString(raw[:idSize]), key: raw[idSize:]}, nil
}

// boundTenant is what the wrapped key of a tenant is bound to.
func boundTenant(tenant, id string) []byte { return bound("sagenbaum/tenant-key/v1", tenant, id) }

// bound joins names without ambiguity.
func bound(names ...string) []byte {
	text, err := json.Marshal(names)
	if err != nil {
		panic("vault: names that are no JSON: " + err.Error())
	}
	return text
}

// errWrapped says that what is wrapped was changed, or wrapped under another key.
var errWrapped = errors.New("it was wrapped under another key, or changed")

// wrap encrypts a key under another one with AES-256-GCM: nonce and ciphertext.
func wrap(under, plain, to []byte) ([]byte, error) {
	aead, err := gcm(under)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return aead.Seal(nonce, nonce, plain, to), nil
}

// unwrap is the inverse of wrap. The error is errWrapped.
func unwrap(under, box, to []byte) ([]byte, error) {
	aead, err := gcm(under)
	if err != nil {
		return nil, err
	}
	if len(box) < aead.NonceSize() {
		return nil, errWrapped
	}
	plain, err := aead.Open(nil, box[:aead.NonceSize()], box[aead.NonceSize():], to)
	if err != nil || len(plain) != MasterKeySize {
		return nil, errWrapped
	}
	return plain, nil
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// mayAsk proves to another host that who asks for a tenant's key has the master key: no one
// else is given it, not even wrapped. The proof is for one reply subject, so that who has
// heard it gets no answer by it.
func mayAsk(master []byte, tenant, id, reply string) []byte {
	mac := hmac.New(sha256.New, derive(master, "sagenbaum/master/v1 ask"))
	mac.Write(bound(tenant, id, reply))
	return mac.Sum(nil)
}

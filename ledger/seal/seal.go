// Package seal encrypts single values of a payload under a key of their plan, so that
// they can be made unreadable for good while every byte of the ledger stays as it is.
//
// A sealed value takes the place of what it was, in the JSON around it:
//
//	{"card":{"sagenbaum/sealed/v1":"p1/3/input.card/0Jc3...","bytes":19},"amount":120}
//
// The text is plan, action, field and, in base64url without padding, nonce and
// ciphertext of AES-256-GCM. Tenant, plan, action and field are authenticated with it: a
// sealed value that was copied to another place, or changed, is not opened. The plaintext
// is the JSON as it stood, filled up with spaces to a multiple of 32 bytes, so that its
// length says little; bytes is that multiple.
//
// The nonce is the beginning of an HMAC-SHA256 over place and plaintext: the same value
// in the same place is sealed to the same bytes, which makes a repeated call repeat its
// record, and no two plaintexts share a nonce. Under one plan that is all it shows.
//
// The package is pure: keys come in. Who holds them: package executor/host, and
// docs/guide/erasure.md.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// KeySize is the length of a plan's key in bytes.
const KeySize = 32

// Key is the key of one plan.
type Key [KeySize]byte

// String keeps a key out of logs.
func (k Key) String() string { return "[a plan's key]" }

// GoString keeps a key out of logs.
func (k Key) GoString() string { return k.String() }

// MarshalJSON keeps a key out of everything that is encoded by mistake.
func (k Key) MarshalJSON() ([]byte, error) { return []byte(`"[a plan's key]"`), nil }

// LogValue keeps a key out of structured logs.
func (k Key) LogValue() string { return k.String() }

// Place is where a value is sealed. All of it is authenticated.
type Place struct {
	Tenant, Plan, Action string
	Field                string // as in "input.card"
}

// Mark is the name of a sealed value in its object.
const Mark = "sagenbaum/sealed/v1"

// ErrForged says that a sealed value was changed, copied from another place, or sealed
// under another key: trying again does not help.
var ErrForged = errors.New("the sealed value is not what was sealed in this place under this key")

// sealed is a sealed value in JSON.
type sealed struct {
	Text  string `json:"sagenbaum/sealed/v1"`
	Bytes int    `json:"bytes"`
}

// padTo is what plaintexts are filled up to a multiple of, in bytes.
const padTo = 32

// Seal seals one JSON value. The same value in the same place gives the same bytes.
func Seal(key Key, at Place, value json.RawMessage) json.RawMessage {
	plain := append([]byte{}, value...)
	for len(plain)%padTo != 0 {
		plain = append(plain, ' ')
	}
	aead, nonceKey := ciphers(key)
	mac := hmac.New(sha256.New, nonceKey)
	mac.Write(at.bytes())
	mac.Write(plain)
	nonce := mac.Sum(nil)[:aead.NonceSize()]
	box := aead.Seal(nonce, nonce, plain, at.bytes())
	out, err := json.Marshal(sealed{
		Text: at.Plan + "/" + at.Action + "/" + at.Field + "/" +
			base64.RawURLEncoding.EncodeToString(box),
		Bytes: len(plain),
	})
	if err != nil {
		panic("seal: a text that is no JSON: " + err.Error())
	}
	return out
}

// ciphers derives what encrypts and what makes nonces from a plan's key.
func ciphers(key Key) (cipher.AEAD, []byte) {
	derive := func(use string) []byte {
		out, err := hkdf.Key(sha256.New, key[:], nil, "sagenbaum/seal/v1 "+use, KeySize)
		if err != nil {
			panic("seal: " + err.Error())
		}
		return out
	}
	block, err := aes.NewCipher(derive("encrypt"))
	if err != nil {
		panic("seal: " + err.Error())
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("seal: " + err.Error())
	}
	return aead, derive("nonce")
}

// bytes is a place without ambiguity: each part after its length.
func (p Place) bytes() []byte {
	out := []byte("sagenbaum/seal/v1\n")
	for _, part := range [...]string{p.Tenant, p.Plan, p.Action, p.Field} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return out
}

// Value is a sealed value as it was found. What it says of itself is proven by Open only.
type Value struct {
	Plan, Action, Field string

	// Raw is the value as it was read, for a caller that leaves it closed.
	Raw json.RawMessage
	box []byte
}

// Name is how people see it: "[sealed input.card]".
func (v Value) Name() string { return "[sealed " + v.Field + "]" }

// parse reads a sealed value; ok is false for any other JSON.
func parse(raw json.RawMessage) (v Value, ok bool) {
	if len(raw) == 0 || raw[0] != '{' || !strings.Contains(string(raw), Mark) {
		return Value{}, false
	}
	var s map[string]json.RawMessage
	var text string
	if json.Unmarshal(raw, &s) != nil || len(s) != 2 || s["bytes"] == nil ||
		json.Unmarshal(s[Mark], &text) != nil {
		return Value{}, false
	}
	plan, rest, ok := strings.Cut(text, "/")
	action, rest, ok2 := strings.Cut(rest, "/")
	end := strings.LastIndexByte(rest, '/') // a field may have one: it is a name of the document
	if !ok || !ok2 || end < 0 {
		return Value{}, false
	}
	box, err := base64.RawURLEncoding.Strict().DecodeString(rest[end+1:])
	if err != nil {
		box = nil // it was one, and was changed: Open says so
	}
	return Value{plan, action, rest[:end], raw, box}, true
}

// Open returns what was sealed. The error is ErrForged.
func (v Value) Open(key Key, tenant string) (json.RawMessage, error) {
	aead, _ := ciphers(key)
	if len(v.box) < aead.NonceSize() {
		return nil, ErrForged
	}
	at := Place{tenant, v.Plan, v.Action, v.Field}
	plain, err := aead.Open(nil, v.box[:aead.NonceSize()], v.box[aead.NonceSize():], at.bytes())
	if err != nil {
		return nil, ErrForged
	}
	value := json.RawMessage(strings.TrimSpace(string(plain)))
	if !json.Valid(value) {
		return nil, fmt.Errorf("%w: it is no JSON", ErrForged)
	}
	return value, nil
}

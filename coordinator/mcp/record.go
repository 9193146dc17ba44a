package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// reference is what is recorded of a long value: the SHA-256 of a text, or of the JSON of
// anything else, and its size.
func reference(raw json.RawMessage) (json.RawMessage, error) {
	content := []byte(raw)
	var said string
	if json.Unmarshal(raw, &said) == nil {
		content = []byte(said)
	}
	sum := sha256.Sum256(content)
	return encode(map[string]any{"sha256": hex.EncodeToString(sum[:]), "bytes": len(content)})
}

// withKey adds the idempotency key to the arguments of a call.
func withKey(params json.RawMessage, name, key string) (json.RawMessage, error) {
	value, err := encode(key)
	if err != nil {
		return nil, err
	}
	arguments, err := withValue(memberOf(params, "arguments"), name, value)
	if err != nil {
		return nil, ledger.Refuse("arguments", err.Error(), "a JSON object")
	}
	return withValue(params, "arguments", arguments)
}

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

// withMember adds a member to the arguments of a call.
func withMember(arguments json.RawMessage, name, text string) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &members); err != nil {
			return nil, ledger.Refuse("arguments", err.Error(), "a JSON object")
		}
	}
	raw, err := encode(text)
	if err != nil {
		return nil, err
	}
	members[name] = raw
	return encode(members)
}

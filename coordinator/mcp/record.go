package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
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

// begun reports whether all that a failed call has left is a new file with a beginning of what it
// was to write, so that what undoes it is known: its server has found no room, as a rule.
func (s *Server) begun(t Tool, vars triggers.BindingVars, after json.RawMessage) bool {
	var err error
	if vars.Output, err = encode(map[string]json.RawMessage{"after": after}); err != nil {
		return false
	}
	for _, step := range t.Undo {
		var undo files.Undo
		with, err := s.x.object(step.With, vars)
		if err != nil || step.Call != callRestore || json.Unmarshal(with, &undo) != nil ||
			!files.Begun(undo) {
			return false
		}
	}
	return len(t.Undo) > 0
}

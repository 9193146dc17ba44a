package triggers

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
)

// Kept is a held condition as it is kept for long: what it reads of its scope and the
// literals of its text, without its program. That is the cache's, which may let it go.
// It belongs to the goroutine of the cache.
type Kept struct {
	home    *home
	params  []any // of the condition, which do not keep its text
	values  []any
	armedNs int64
}

// Keep returns what to keep of a held condition, or nil where that takes more than
// max bytes: then it is to be held again when it is asked again.
func (h *Held) Keep(max int) *Kept {
	if h.scope != nil || h.Size() > max {
		return nil
	}
	return &Kept{home: h.shape.home, params: h.params, values: h.values, armedNs: h.armedNs}
}

// Recall makes into the condition that is kept, and reports false where the cache has
// let its program go: then it is to be held again.
func (k *Kept) Recall(into *Held) bool {
	s := k.home.shape
	if s == nil {
		return false
	}
	s.used = true
	*into = Held{shape: s, params: k.params, values: k.values, armedNs: k.armedNs}
	return true
}

// Size is about how many bytes a Kept of the condition takes.
func (h *Held) Size() int {
	n := keptBytes
	for _, p := range h.params {
		n += 16 + valueBytes(p)
	}
	for _, v := range h.values {
		n += 16 + valueBytes(v)
	}
	return n
}

// keptBytes is what a Kept takes beside its parameters and values.
const keptBytes = 64

// absentBytes is what an absent value takes: most of them are shared.
func absentBytes(a *absent) int {
	switch a {
	case noAction, noOutput, noOutcome, noPresence, noVerdict, noDue:
		return 0
	}
	return 48 + len(a.wait.name)
}

// valueBytes is about how many bytes a ref.Val or an *absent takes beside what points
// to it.
func valueBytes(v any) int {
	switch v := v.(type) {
	case *absent:
		return absentBytes(v)
	case types.String:
		return 24 + len(v)
	case types.Bytes:
		return 32 + len(v)
	case *object:
		n := 64
		for i, key := range v.keys {
			n += 32 + valueBytes(key) + valueBytes(v.values[i])
		}
		return n
	case traits.Lister:
		n := 64
		for it := v.Iterator(); it.HasNext() == types.True; {
			n += 16 + valueBytes(it.Next())
		}
		return n
	}
	return 24
}

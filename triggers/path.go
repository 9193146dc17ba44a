package triggers

import (
	"encoding/json"
	"slices"

	"github.com/sagenbaum/sagenbaum/proto/rawjson"
)

// follow returns the bytes at the end of a path as they are, which is a part of the
// variable and must not be changed; where it leads nowhere, null and false. Evaluate has
// checked that the variables are JSON. Nothing is decoded on the way: of names that are
// there twice the last counts, as where all is decoded.
func follow(vars *BindingVars, path []any) (json.RawMessage, bool) {
	value := rawjson.TrimSpace(vars.of(path[0].(string)))
	for _, step := range path[1:] {
		switch s := step.(type) {
		case string:
			value = member(value, s)
		case int64:
			value = element(value, s)
		}
	}
	if len(value) == 0 {
		return json.RawMessage("null"), false
	}
	return value, true
}

// member is the value of a name in a JSON object; nil: it is not there, or this is none.
func member(object []byte, name string) (value []byte) {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	for rest := rawjson.TrimSpace(object[1:]); rest[0] != '}'; {
		var key, given []byte
		if key, given, rest = rawjson.Member(rest); rawjson.Is(key, name) {
			value = given
		}
	}
	return value
}

// element is the value at a place of a JSON array, from 0; nil: it is not there, or this
// is none.
func element(array []byte, at int64) []byte {
	if len(array) == 0 || array[0] != '[' || at < 0 {
		return nil
	}
	for rest := rawjson.TrimSpace(array[1:]); rest[0] != ']'; at-- {
		n := rawjson.ValueLen(rest)
		if at == 0 {
			return rest[:n:n]
		}
		rest = rawjson.PastComma(rest[n:])
	}
	return nil
}

// losePartial is lose for what is below actions and facts.
func (r *bindingRun) losePartial(reads []Read) {
	for _, read := range reads {
		if r.lost == nil && isBelow(r.vars.Partial, read.Path) &&
			!leads(r.vars.of(read.Path[0]), read.Path[1:]) {
			r.lost = &Missing{read.Path}
		}
	}
}

// isBelow reports whether a path leads into one of others.
func isBelow(others [][]string, path []string) bool {
	return slices.ContainsFunc(others, func(other []string) bool {
		return len(path) > len(other) && slices.Equal(path[:len(other)], other)
	})
}

// takesPartial finds a path that takes the whole of what was not kept as a whole.
func (b *Binding) takesPartial(partial [][]string) *Missing {
	for _, read := range b.paths {
		for _, p := range partial {
			if len(read.Path) <= len(p) && slices.Equal(read.Path, p[:len(read.Path)]) {
				return &Missing{read.Path}
			}
		}
	}
	return nil
}

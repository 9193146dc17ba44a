package triggers

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Project returns what a document has at some paths, as the expressions that read them
// find it: fields where they are, and items of lists at their places, with null for those
// between them that no one reads. It is nil when there is nothing at any of them. The
// empty path reads all of it.
func Project(document json.RawMessage, paths [][]string) json.RawMessage {
	var below []string // first steps, each once, in order
	rest := map[string][][]string{}
	for _, path := range paths {
		if len(path) == 0 {
			return document
		}
		if rest[path[0]] == nil {
			below = append(below, path[0])
		}
		rest[path[0]] = append(rest[path[0]], path[1:])
	}
	slices.Sort(below)
	var fields map[string]json.RawMessage
	if json.Unmarshal(document, &fields) == nil && fields != nil {
		return projectFields(fields, below, rest)
	}
	var items []json.RawMessage
	if json.Unmarshal(document, &items) == nil && items != nil {
		return projectItems(items, below, rest)
	}
	return nil
}

func projectFields(
	fields map[string]json.RawMessage, below []string, rest map[string][][]string,
) json.RawMessage {
	out := []byte{'{'}
	for _, name := range below {
		value, ok := fields[name]
		if !ok {
			continue
		}
		if value = Project(value, rest[name]); value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quote(name)...), ':'), value...)
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, '}')
}

func projectItems(
	items []json.RawMessage, below []string, rest map[string][][]string,
) json.RawMessage {
	var kept []json.RawMessage
	for _, name := range below {
		at, err := strconv.Atoi(name)
		if err != nil || at < 0 || at >= len(items) {
			continue
		}
		value := Project(items[at], rest[name])
		if value == nil {
			continue
		}
		for len(kept) <= at {
			kept = append(kept, json.RawMessage("null"))
		}
		kept[at] = value
	}
	if kept == nil {
		return nil
	}
	out := []byte{'['}
	for i, value := range kept {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, value...)
	}
	return append(out, ']')
}

// leads reports whether a path leads anywhere in a document.
func leads(document json.RawMessage, path []string) bool {
	for _, step := range path {
		var fields map[string]json.RawMessage
		var items []json.RawMessage
		at, err := strconv.Atoi(step)
		switch {
		case json.Unmarshal(document, &fields) == nil && fields != nil:
			document = fields[step]
		case err == nil && json.Unmarshal(document, &items) == nil && at >= 0 && at < len(items):
			document = items[at]
		default:
			return false
		}
	}
	return len(document) > 0
}

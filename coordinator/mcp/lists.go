package mcp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/triggers"
)

// lists adds the lists of a probe to its answer, one after the other.
func (x *expressions) lists(rules []List, vars *triggers.BindingVars) error {
	if len(rules) == 0 {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(vars.Probe, &members); err != nil {
		return fmt.Errorf("cannot make lists of an answer that is no object: %w", err)
	}
	for _, rule := range rules {
		list, err := x.list(rule, *vars)
		if err == nil {
			members[rule.Name], err = encode(list)
		}
		if err == nil {
			vars.Probe, err = encode(members)
		}
		if err != nil {
			return fmt.Errorf("cannot make the list %s: %w", rule.Name, err)
		}
	}
	return nil
}

func (x *expressions) list(rule List, vars triggers.BindingVars) ([]json.RawMessage, error) {
	items, err := x.items(rule.Of, vars)
	if err == nil && len(rule.First) > 0 {
		items, err = firstOf(items, rule.First)
	}
	if err == nil && rule.Each != "" {
		items, err = explode(items, rule.Each)
	}
	if err == nil {
		items, err = x.sieve(rule, items, vars)
	}
	if err == nil && len(rule.Shape) > 0 {
		items, err = reshape(items, rule.Shape)
	}
	return items, err
}

// items evaluates an expression that gives a list.
func (x *expressions) items(text string, vars triggers.BindingVars) ([]json.RawMessage, error) {
	raw, err := x.value("="+strings.TrimPrefix(text, "="), vars)
	items := []json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(raw, &items)
	}
	if items == nil && err == nil {
		err = fmt.Errorf("%q gives no list", text)
	}
	return items, err
}

// firstOf leaves the first of the items that are alike in some fields.
func firstOf(items []json.RawMessage, by []string) ([]json.RawMessage, error) {
	seen, out := set{}, []json.RawMessage{}
	for _, item := range items {
		var members map[string]any
		if err := json.Unmarshal(item, &members); err != nil {
			return nil, err
		}
		for _, name := range by {
			if _, there := members[name]; !there { // or all without it would be one
				return nil, fmt.Errorf("%s is not in each item", name)
			}
		}
		if key := keyOf(members, by); !seen[key] {
			seen[key], out = true, append(out, item)
		}
	}
	return out, nil
}

// explode makes an item for each element of a field.
func explode(items []json.RawMessage, field string) ([]json.RawMessage, error) {
	out := []json.RawMessage{}
	for _, item := range items {
		var members map[string]json.RawMessage
		var elements []json.RawMessage
		err := json.Unmarshal(item, &members)
		if err == nil {
			err = json.Unmarshal(members[field], &elements)
		}
		if err != nil {
			return nil, fmt.Errorf("%s is not a list in each item: %w", field, err)
		}
		for _, element := range elements {
			members[field] = element
			raw, err := encode(members)
			if err != nil {
				return nil, err
			}
			out = append(out, raw)
		}
	}
	return out, nil
}

// sieve leaves the items that a rule means.
func (x *expressions) sieve(rule List, items []json.RawMessage,
	vars triggers.BindingVars) ([]json.RawMessage, error) {
	text := cmp.Or(rule.Like, rule.Unlike)
	if text == "" {
		return items, nil
	}
	others, err := x.items(text, vars)
	if err != nil {
		return nil, err
	}
	as := rule.As
	if len(as) == 0 {
		as = rule.By
	}
	set := setOf(others, as)
	return slices.DeleteFunc(items, func(item json.RawMessage) bool {
		return set.has(item, rule.By, rule.Any) != (rule.Like != "")
	}), nil
}

// set are items by what is compared of them.
type set map[string]bool

// setOf is the set of items by some fields; of none, of values.
func setOf(items []json.RawMessage, by []string) set {
	s := set{}
	for _, item := range items {
		if len(by) > 0 {
			s[fields(item, by)] = true
		} else {
			s[scalar(item)] = true
		}
	}
	return s
}

// has reports whether an item is like one of the set in all fields by, or has one of its values in
// any of the others.
func (s set) has(item json.RawMessage, by, others []string) bool {
	if len(by) > 0 {
		return s[fields(item, by)]
	}
	return slices.ContainsFunc(others, func(f string) bool { return s[fields(item, []string{f})] })
}

// reshape gives items other fields. Those that are alike in all but their lists become one, with
// the elements of all: a server may leave out what it is given again, and not what is there twice.
func reshape(items []json.RawMessage, shape map[string]any) ([]json.RawMessage, error) {
	shaped, at := []map[string]any{}, map[string]int{}
	for _, item := range items {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(item, &members); err != nil {
			return nil, err
		}
		rest, own := map[string]any{}, map[string]json.RawMessage{}
		for name, from := range shape {
			if _, list := from.([]any); list {
				own[name] = members[fieldOf(from)]
			} else {
				rest[name] = members[fieldOf(from)]
			}
		}
		key := comparable(rest)
		i, known := at[key]
		if !known || len(own) == 0 {
			i = len(shaped)
			at[key], shaped = i, append(shaped, rest)
		}
		for name, element := range own {
			list, _ := shaped[i][name].([]json.RawMessage)
			shaped[i][name] = append(list, element)
		}
	}
	out := []json.RawMessage{}
	for _, rest := range shaped {
		raw, err := encode(rest)
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}

// fieldOf is the field that a shape names; empty: it names none.
func fieldOf(shape any) string {
	if list, ok := shape.([]any); ok && len(list) == 1 {
		shape = list[0]
	}
	name, _ := shape.(string)
	return name
}

// scalar is a value as fields has it.
func scalar(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	return comparable(v)
}

// fields are the values of some fields, as one text.
func fields(item json.RawMessage, names []string) string {
	var members map[string]any
	if json.Unmarshal(item, &members) != nil {
		return ""
	}
	return keyOf(members, names)
}

// keyOf is what fields gives of an item that was read.
func keyOf(members map[string]any, names []string) string {
	var parts []string
	for _, name := range names {
		parts = append(parts, comparable(members[name]))
	}
	return strings.Join(parts, "\x00")
}

// comparable is a value as JSON; a list in the order of its elements.
func comparable(v any) string {
	if list, ok := v.([]any); ok {
		var parts []string
		for _, element := range list {
			parts = append(parts, comparable(element))
		}
		slices.Sort(parts)
		return "[" + strings.Join(parts, ",") + "]"
	}
	raw, err := encode(v)
	if err != nil {
		return ""
	}
	return string(raw)
}

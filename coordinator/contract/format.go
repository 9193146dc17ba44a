package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Format writes a contract as a YAML document that Parse reads back to the same
// digest, with every default written out. Errors are those of Canonical.
func Format(c Contract) ([]byte, error) {
	tree, err := nodesOf(c)
	if err != nil {
		return nil, err
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	root.Content = append(root.Content, text("apiVersion"), text(APIVersion), text("kind"), text(Kind))
	root.Content = append(root.Content, tree.Content...)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("cannot format contract %s: %w", c.Capability, err)
	}
	return out.Bytes(), nil
}

// Change is one field in which two contracts differ; an empty text is none.
type Change struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// Diff returns the fields in which two contracts differ in meaning, sorted. Errors
// are those of Canonical.
func Diff(from, to Contract) ([]Change, error) {
	var flat [2]map[string]string
	for i, c := range []Contract{from, to} {
		tree, err := nodesOf(c)
		if err != nil {
			return nil, err
		}
		flat[i] = map[string]string{}
		flatten(tree, "", flat[i])
	}
	all := maps.Clone(flat[0])
	maps.Copy(all, flat[1])
	var changes []Change
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if flat[0][field] != flat[1][field] {
			changes = append(changes, Change{Field: field, From: flat[0][field], To: flat[1][field]})
		}
	}
	return changes, nil
}

func flatten(node *yaml.Node, field string, into map[string]string) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			flatten(node.Content[i+1], joined(field, node.Content[i].Value), into)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			flatten(item, fmt.Sprintf("%s[%d]", field, i), into)
		}
	}
	if len(node.Content) == 0 {
		into[field] = shown(node)
	}
}

// shown is a value without members on one line; a text that could be taken for
// something else is in quotes.
func shown(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "{}"
	case node.Kind == yaml.SequenceNode:
		return "[]"
	case node.Tag == "!!str" && (node.Value == "" || json.Valid([]byte(node.Value)) ||
		strings.TrimSpace(node.Value) != node.Value || strings.Contains(node.Value, "\n")):
		return argument.Quote(node.Value)
	}
	return node.Value
}

// nodesOf is the tree of a contract as people write it.
func nodesOf(c Contract) (*yaml.Node, error) {
	canonical, err := c.Canonical()
	if err != nil {
		return nil, err
	}
	if c, err = Decode(canonical); err != nil {
		return nil, err
	}
	return tree(reflect.ValueOf(c), ""), nil
}

// celFields are the fields whose whole text is CEL.
var celFields = []string{"answer", "external_ref", "ok", "done", "stop", "unchanged",
	"valid_until"}

func text(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

// tree turns a value of a contract into nodes. name is that of its field.
func tree(v reflect.Value, name string) *yaml.Node {
	switch v.Kind() {
	case reflect.Pointer:
		return tree(v.Elem(), name)
	case reflect.Interface:
		return literal(v.Interface())
	case reflect.Struct:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for i := range v.NumField() {
			member, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if !v.Field(i).IsZero() {
				node.Content = append(node.Content, text(member), tree(v.Field(i), member))
			}
		}
		return node
	case reflect.Map:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()),
			func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
			value := tree(v.MapIndex(key), key.String())
			if name == "triggers" {
				value = text(triggers.Spaced(value.Value))
			}
			node.Content = append(node.Content, text(key.String()), value)
		}
		return node
	case reflect.Slice:
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			node.Content = append(node.Content, tree(v.Index(i), name))
		}
		return node
	case reflect.String:
		if slices.Contains(celFields, name) {
			return text(triggers.Spaced(v.String()))
		}
		return text(v.String())
	case reflect.Int64:
		return text(FormatDuration(time.Duration(v.Int())))
	case reflect.Int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprint(v.Int())}
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v.Bool())}
	default:
		panic("contract: no such kind of field: " + v.Type().String())
	}
}

// literal turns an argument value into nodes.
func literal(value any) *yaml.Node {
	switch v := value.(type) {
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(string(v), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: string(v)}
	case string:
		if cel, ok := strings.CutPrefix(v, "="); ok {
			return text("=" + triggers.Spaced(cel))
		}
		return text(v)
	case []any:
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range v {
			node.Content = append(node.Content, literal(item))
		}
		return node
	case map[string]any:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			node.Content = append(node.Content, text(name), literal(v[name]))
		}
		return node
	default:
		panic(fmt.Sprintf("contract: no such value: %T", value))
	}
}

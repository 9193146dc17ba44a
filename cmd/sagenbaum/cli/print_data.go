package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Outputs of -o: a table for people, the others for programs.
const (
	outputTable = "table"
	OutputJSON  = "json"
	outputYAML  = "yaml"
)

var outputs = []string{outputTable, OutputJSON, outputYAML}

// YamlOut is where a command line writes with -o yaml: printJSON and printLine write
// the same value there in YAML, one document each.
type YamlOut struct {
	io.Writer
	written bool
}

// PrintJSON writes one value as indented JSON, or as -o says. Every command prints its
// data with this one or with printLine.
func PrintJSON(w io.Writer, v any) error {
	if y, ok := w.(*YamlOut); ok {
		return y.Print(v)
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

// PrintLine writes one value as one line of JSON, or as -o says.
func PrintLine(w io.Writer, v any) error {
	if y, ok := w.(*YamlOut); ok {
		return y.Print(v)
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

// Print writes a value with the names and the order of its JSON.
func (y *YamlOut) Print(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	node, err := yamlNode(decoder)
	if err != nil {
		return fmt.Errorf("cannot print YAML: %w", err)
	}
	if y.written {
		fmt.Fprintln(y.Writer, "---")
	}
	y.written = true
	out := yaml.NewEncoder(y.Writer)
	out.SetIndent(2)
	if err := out.Encode(node); err != nil {
		return fmt.Errorf("cannot print YAML: %w", err)
	}
	return out.Close()
}

// oldTruths are texts that readers of YAML 1.1 take for true or false.
var oldTruths = []string{"y", "n", "yes", "no", "on", "off"}

// yamlNode reads the next value of JSON, which is whole.
func yamlNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if v == '[' {
			node = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for decoder.More() {
			child, err := yamlNode(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := decoder.Token() // its end
		if len(node.Content) == 0 {
			node.Style = yaml.FlowStyle
		}
		return node, err
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if slices.Contains(oldTruths, strings.ToLower(v)) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil // as it is written
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}

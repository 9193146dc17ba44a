package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/triggers/nearest"
)

// Parse reads a file of contracts: one or more YAML documents. It is strict: an
// unknown field, a key given twice, a value of another kind and a YAML anchor are
// errors with their place. name is in the findings. The error is a Findings;
// the documents that could be read come beside it.
func Parse(name string, data []byte) ([]Source, error) {
	var sources []Source
	var findings Findings
	unread := eachDocument(name, data, func(d Document, node *yaml.Node) {
		s, problems := readContract(d, node)
		findings = append(findings, problems...)
		if len(problems) == 0 {
			sources = append(sources, s)
		}
	})
	findings = append(findings, unread...)
	if len(sources) == 0 && len(findings) == 0 {
		findings = wholeFile(name, 0, "no contract",
			"a document with apiVersion "+APIVersion+" and kind "+Kind)
	}
	return sources, findings.err()
}

// ReadDocument reads a file of one YAML document into a struct, whose fields are
// named by their json tags, as strictly as Parse does. Strings, numbers, truths,
// durations and lists and maps of them are read as such, an any as JSON has it. The
// error is a Findings.
func ReadDocument(name string, data []byte, into any) (*Document, error) {
	var first *Document
	var findings Findings
	unread := eachDocument(name, data, func(d Document, node *yaml.Node) {
		if first != nil {
			findings = append(findings, wholeFile(name, node.Line, "a second document",
				"a file of its own")...)
			return
		}
		first = &d
		r := &reader{source: first}
		r.read(node, "", reflect.ValueOf(into).Elem())
		findings = append(findings, r.findings...)
	})
	findings = append(findings, unread...)
	if first == nil && len(findings) == 0 {
		findings = wholeFile(name, 0, "no document", "")
	}
	return first, findings.err()
}

func wholeFile(name string, line int, message, hint string) Findings {
	return Findings{{Severity: Error, File: name, Line: line, Column: min(line, 1), Message: message,
		Hint: hint}}
}

// eachDocument calls yield for each document of a file and returns why the rest
// could not be read.
func eachDocument(name string, data []byte, yield func(Document, *yaml.Node)) Findings {
	if len(data) > FileSizeMax {
		return wholeFile(name, 0, fmt.Sprintf("%d bytes", len(data)),
			fmt.Sprintf("at most %d", FileSizeMax))
	}
	text := strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			line, message := syntaxError(err)
			return wholeFile(name, line, message, "")
		}
		if root.Kind != yaml.DocumentNode || len(root.Content) != 1 || root.Content[0].Tag == "!!null" {
			continue // nothing between two lines of dashes
		}
		node := root.Content[0]
		yield(Document{File: name, Line: node.Line, text: text, places: map[string]*yaml.Node{}}, node)
	}
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// syntaxError takes the line from an error of the YAML parser.
func syntaxError(err error) (line int, message string) {
	found := yamlLine.FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(found[1]) // the first line has no number
	return max(line, 1), "no YAML: " + strings.TrimPrefix(err.Error(), found[0])
}

// reader turns the nodes of one document into values.
type reader struct {
	source   *Document
	findings Findings
}

func readContract(at Document, node *yaml.Node) (Source, Findings) {
	s := Source{Document: at}
	r := &reader{source: &s.Document}
	var d document
	r.read(node, "", reflect.ValueOf(&d).Elem())
	if d.APIVersion != APIVersion && len(r.findings) == 0 {
		r.findings = append(r.findings, s.Finding("apiVersion", fmt.Sprintf("%q", d.APIVersion),
			"write "+APIVersion))
	}
	switch {
	case d.Kind == PackKind: // its fields are unknown here, and right
		r.findings = Findings{s.Finding("kind", fmt.Sprintf("%q, the contracts of an MCP server", d.Kind),
			"check it with sagenbaum mcp check --pack "+at.File+" -- COMMAND")}
	case d.Kind != Kind && len(r.findings) == 0:
		r.findings = append(r.findings, s.Finding("kind", fmt.Sprintf("%q", d.Kind),
			"write "+Kind))
	}
	s.Contract, s.Examples = d.Contract, d.Examples
	return s, r.findings
}

func (r *reader) refuse(node *yaml.Node, field, message, hint string) {
	r.findings = append(r.findings, Finding{Severity: Error, File: r.source.File, Line: node.Line,
		Column: node.Column, Field: field, Message: message, Hint: hint})
}

// read sets into, which is settable, from a node.
func (r *reader) read(node *yaml.Node, field string, into reflect.Value) {
	r.source.places[field] = node
	if node.Kind == yaml.AliasNode || node.Anchor != "" {
		r.refuse(node, field, "a YAML anchor or alias",
			"write the value out: a file is read without looking elsewhere")
		return
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" && into.Kind() != reflect.Interface {
		r.refuse(node, field, "no value", "leave the field out")
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		if into.Elem().Kind() == reflect.Int { // 0 is not the default
			r.whole(node, field, into.Elem())
			return
		}
		r.read(node, field, into.Elem())
	case reflect.Struct:
		r.mapping(node, field, func(key *yaml.Node, name string, value *yaml.Node) {
			r.member(key, joined(field, name), name, value, into)
		})
	case reflect.Map:
		into.Set(reflect.MakeMap(into.Type()))
		r.mapping(node, field, func(_ *yaml.Node, name string, value *yaml.Node) {
			element := reflect.New(into.Type().Elem()).Elem()
			place := joined(field, name)
			if field == "triggers" {
				place = field + "[" + name + "]"
			}
			r.read(value, place, element)
			into.SetMapIndex(reflect.ValueOf(name), element)
		})
	case reflect.Slice:
		if node.Kind != yaml.SequenceNode {
			r.refuse(node, field, "no list", "write - before each entry, or [a, b]")
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content)))
		for i, item := range node.Content {
			r.read(item, fmt.Sprintf("%s[%d]", field, i), into.Index(i))
		}
	case reflect.Interface:
		if value := r.value(node, field, 0); value != nil {
			into.Set(reflect.ValueOf(value))
		}
	default:
		r.scalar(node, field, into)
	}
}

func joined(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// mapping calls each for every member, each key once.
func (r *reader) mapping(node *yaml.Node, field string,
	each func(key *yaml.Node, name string, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		r.refuse(node, field, "no mapping", "write name: value")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch line, again := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Tag == "!!merge":
			r.refuse(key, field, "a key that is no text", "write name: value")
		case again:
			r.refuse(key, joined(field, key.Value), "given twice",
				fmt.Sprintf("the first is in line %d", line))
		default:
			seen[key.Value] = key.Line
			each(key, key.Value, value)
		}
	}
}

// member reads one field of a struct.
func (r *reader) member(key *yaml.Node, field, name string, value *yaml.Node, into reflect.Value) {
	var names []string
	for _, f := range reflect.VisibleFields(into.Type()) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			r.read(value, field, into.FieldByIndex(f.Index))
			return
		}
		if tag != "" {
			names = append(names, tag)
		}
	}
	hint := nearest.DidYouMean(name, names)
	if hint == "" {
		hint = "there is " + strings.Join(names, ", ")
	}
	r.refuse(key, field, "unknown field", hint)
}

// scalar reads a text, number, truth or duration.
func (r *reader) scalar(node *yaml.Node, field string, into reflect.Value) {
	if node.Kind != yaml.ScalarNode {
		r.refuse(node, field, "no single value", "write one value")
		return
	}
	switch {
	case into.Type() == reflect.TypeFor[time.Duration]():
		d, err := ParseDuration(node.Value)
		if err != nil {
			r.refuse(node, field, err.Error(), "")
			return
		}
		into.SetInt(int64(d))
		r.nonzero(node, field, into)
	case into.Kind() == reflect.String:
		if !slices.Contains(texts, node.Tag) {
			r.refuse(node, field, "a value of kind "+node.Tag, "write a text")
		}
		into.SetString(node.Value)
	case into.Kind() == reflect.Int:
		if r.whole(node, field, into) {
			r.nonzero(node, field, into)
		}
	case into.Kind() == reflect.Bool:
		is, err := truth(node)
		if err != nil {
			r.refuse(node, field, err.Error(), "write true or false")
		}
		into.SetBool(is)
	default:
		panic("contract: no such kind of field: " + into.Type().String())
	}
}

// texts are the kinds of scalar that mean their text.
var texts = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}

// whole reads a whole number; false after a refusal.
func (r *reader) whole(node *yaml.Node, field string, into reflect.Value) bool {
	n, err := strconv.Atoi(node.Value)
	if err != nil || node.Kind != yaml.ScalarNode || node.Tag != "!!int" {
		r.refuse(node, field, fmt.Sprintf("%q is no whole number", node.Value), "")
		return false
	}
	into.SetInt(int64(n))
	return true
}

// nonzero refuses a 0 that would be taken for a field that was left out: dedupe: 0s
// would be for ever, attempts: 0 five.
func (r *reader) nonzero(node *yaml.Node, field string, into reflect.Value) {
	if into.IsZero() {
		r.refuse(node, field, fmt.Sprintf("%q is nothing", node.Value),
			"leave the field out for its default, or write more than 0")
	}
}

// value reads a node as JSON. Numbers keep the text in which they are written.
func (r *reader) value(node *yaml.Node, field string, depth int) any {
	r.source.places[field] = node
	switch {
	case depth > argument.DepthMax:
		r.refuse(node, field, fmt.Sprintf("nested deeper than %d", argument.DepthMax), "a flatter value")
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		r.refuse(node, field, "a YAML anchor or alias",
			"write the value out: a file is read without looking elsewhere")
	case node.Kind == yaml.SequenceNode:
		list := make([]any, 0, len(node.Content))
		for i, item := range node.Content {
			list = append(list, r.value(item, fmt.Sprintf("%s[%d]", field, i), depth+1))
		}
		return list
	case node.Kind == yaml.MappingNode:
		members := map[string]any{}
		r.mapping(node, field, func(_ *yaml.Node, name string, value *yaml.Node) {
			members[name] = r.value(value, joined(field, name), depth+1)
		})
		return members
	case node.Kind == yaml.ScalarNode:
		value, err := scalarValue(node)
		if err != nil {
			r.refuse(node, field, err.Error(), "")
		}
		return value
	}
	return nil
}

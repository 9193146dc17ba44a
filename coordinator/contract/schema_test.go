package contract

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger"
)

const guide = "../../docs/guide"

// update writes the schema again: go test ./coordinator/contract -run Schema -update
var update = flag.Bool("update", false, "write docs/guide/contract.schema.json")

// schema is that of one document, for editors. Lint knows more.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	enum := func(values ...any) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: values} }
	s, err := jsonschema.For[document](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Duration](): {Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d))+$`},
		reflect.TypeFor[Class]():         enum(Compensable, Irreversible, Effectless),
		reflect.TypeFor[Fidelity]():      enum(Exact, Semantic, Lossy),
		reflect.TypeFor[OnInDoubt]():     enum(InDoubtProbe, InDoubtCompensate, InDoubtQuarantine),
		reflect.TypeFor[OnLate]():        enum(LateCompensate, LateQuarantine),
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", "Contract of Sagenbaum"
	s.Properties["apiVersion"].Enum, s.Properties["kind"].Enum = []any{APIVersion}, []any{Kind}
	inverse := s.Properties["inverse"]
	inverse.Properties["actuator"].Enum = []any{ActuatorNATS, ActuatorAgent, ActuatorMemory}
	inverse.Properties["approve"].Enum = []any{ApproveOwner}
	least, most := 0.0, 100.0
	inverse.Properties["jitter"].Minimum, inverse.Properties["jitter"].Maximum = &least, &most
	inverse.Properties["agent"].Properties["tools"].MinItems = jsonschema.Ptr(2)
	example := s.Properties["examples"].Items
	example.Properties["probes"].Items.Properties["presence"].Enum = []any{"present", "absent", "duplicate",
		"inconclusive"}
	example.Properties["errors"].Items.Properties["means"].Enum = []any{"done", "stop", "retry"}
	tidy(s)
	return s
}

// tidy takes null from what may be left out, and bounds the numbers.
func tidy(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if kinds := slices.DeleteFunc(s.Types, func(kind string) bool { return kind == "null" }); len(kinds) == 1 {
		s.Type, s.Types = kinds[0], nil
	}
	one, attempts := 1.0, float64(ledger.AttemptsMax)
	if a := s.Properties["attempts"]; a != nil {
		a.Minimum, a.Maximum = &one, &attempts
	}
	for _, name := range s.PropertyOrder {
		tidy(s.Properties[name])
	}
	tidy(s.Items)
}

func TestSchemaIsCurrent(t *testing.T) {
	want, err := json.MarshalIndent(schema(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	file := filepath.Join(guide, "contract.schema.json")
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not that of the Go types (%v); write it: go test ./coordinator/contract -run Schema -update", file,
			err)
	}
}

func TestSchemaAcceptsTheWorkedContracts(t *testing.T) {
	resolved, err := schema(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(guide, "contracts", "*.yaml"))
	if err != nil || len(files) != 8 {
		t.Fatalf("files %v (%v)", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(asJSON(t, string(data))); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	const head = "apiVersion: sagenbaum/v1\nkind: Contract\ncapability: a.b\n"
	for name, text := range map[string]string{
		"no class": head, "unknown class": head + "class: x\n", "unknown field": head + "class: effectless\ncolour: red\n",
		"no duration": head + "class: effectless\nvalid_for: soon\n", "null": head + "class: compensable\ninverse: ~\n",
		"one tool":  head + "class: compensable\ninverse: {call: a, agent: {tools: [a]}}\n",
		"attempts":  head + "class: compensable\ninverse: {call: a, attempts: 0}\n",
		"old":       "apiVersion: sagenbaum/v0\nkind: Contract\ncapability: a.b\nclass: effectless\n",
		"no number": head + "class: compensable\ninverse: {call: a, jitter: 101}\n",
	} {
		if resolved.Validate(asJSON(t, text)) == nil {
			t.Errorf("the schema accepts %s", name)
		}
	}
}

// asJSON reads one document as an editor does.
func asJSON(t *testing.T, text string) any {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	r := &reader{source: &Document{places: map[string]*yaml.Node{}}}
	encoded, err := argument.Encode(r.value(root.Content[0], "", 0))
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(encoded, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

package api_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// full is a command with all its fields.
func full() api.Command {
	return api.Command{Purpose: "undo", Tenant: "t", Plan: "p", Action: "a", Address: "1.0-ff", Capability: "undo.a",
		Arguments: json.RawMessage(`{"n":1.50}`), Opened: []string{"/n"}, Key: "0f", ReportToken: "aa", Attempt: 3,
		Term: 1<<64 - 1, BlindCleanup: true, DirtyFailure: true, HasForwardOutput: true, TimeoutMs: 1<<63 - 1,
		WorkerVersion: "v", Forward: "do.a", ExternalRef: "é\"x", Traceparent: "00-1-2-01", Delivers: true,
		Agent: &api.AgentTask{Tools: []string{"a"}, Prompt: "p", MaxTurns: 2, Model: "m"}}
}

// Each field that a command has is one of the test.
func TestAFullCommandHasAllFields(t *testing.T) {
	t.Parallel()
	c := reflect.ValueOf(full())
	for i := range c.NumField() {
		if c.Field(i).IsZero() {
			t.Errorf("it has no %s", c.Type().Field(i).Name)
		}
	}
}

// FuzzACommandIsReadAsTheDecoderReadsIt, however it is written.
func FuzzACommandIsReadAsTheDecoderReadsIt(f *testing.F) {
	plain := full()
	plain.Opened, plain.Delivers, plain.Agent = nil, false, nil
	for _, c := range []api.Command{{}, full(), plain} {
		text, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{``, `null`, `[]`, ` {} `, `{"plan":1}`, `{"Plan":"p"}`, `{"plan":"p","plan":null}`,
		`{"attempt":-1}`, `{"attempt":1.0}`, `{"attempt":4294967296,"plan":"p"}`, `{"timeout_ms":-5}`, `{"term":01}`,
		`{"blind_cleanup":1}`, `{"arguments":null,"key":"\u0061"}`, `{"other":{}}`, `{"key":"a","key":"b"}`, `{"tenant":[]}`,
		`{"arguments" : { "a" : 1 } }`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want api.Command
		failed := json.Unmarshal(text, &want)
		got, err := api.DecodeCommand(text)
		if !reflect.DeepEqual(got, want) || (err == nil) != (failed == nil) || err != nil && err.Error() != failed.Error() {
			t.Fatalf("%q: %+v (%v), want %+v (%v)", text, got, err, want, failed)
		}
	})
}

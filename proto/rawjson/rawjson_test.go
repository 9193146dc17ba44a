package rawjson_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/rawjson"
)

// FuzzMembersAreThoseOfTheDecoder: names and values are what encoding/json reads, one by one.
func FuzzMembersAreThoseOfTheDecoder(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { } `, `{"a":1}`, "{\t\"a\" : [1, {\"b\":\"}]\\\"\"}] ,\n\"a\":null}", `{"":"","é":"é"}`,
		`{"a\n":-1.5e3,"\u00e9":true}`, "{\"\xff\":\"\xff\"}", `{"\ud800":{"\\":"\\"}}`, `[1]`, `"a"`, `null`, `7`,
		`{"a":"","b":"\\","c":"\"","d":{},"e":[]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		type member struct {
			name  string
			value []byte
		}
		var want []member
		d := json.NewDecoder(bytes.NewReader(text))
		if first, err := d.Token(); err == nil && first == json.Delim('{') {
			for d.More() {
				name, err := d.Token()
				var value json.RawMessage
				if err != nil || d.Decode(&value) != nil {
					t.Fatalf("%q: %v", text, err)
				}
				want = append(want, member{name.(string), value})
			}
		}
		n := 0
		for name, value := range rawjson.Members(text) {
			if n == len(want) || want[n].name != string(name) || !bytes.Equal(want[n].value, value) {
				t.Fatalf("%q: member %d is %q: %q, want %v", text, n, name, value, want)
			}
			n++
		}
		if n != len(want) {
			t.Fatalf("%q: %d members, want %d", text, n, len(want))
		}
	})
}

// FuzzTextIsThatOfTheDecoder, also of what is no string, or not JSON.
func FuzzTextIsThatOfTheDecoder(f *testing.F) {
	for _, text := range []string{`""`, `"a"`, `"a\"b"`, `"\u00e9"`, "\"\xff\"", "\"\n\"", `"`, `"a`, `a"`, `1`, `null`, ``,
		`"a"b"`, ` "a"`, "\"\x7f\""} {
		f.Add([]byte(text), "a")
	}
	f.Fuzz(func(t *testing.T, quoted []byte, text string) {
		var want string
		failed := json.Unmarshal(quoted, &want)
		got, err := rawjson.Text(quoted)
		if got != want || (err == nil) != (failed == nil) {
			t.Fatalf("%q is %q (%v), want %q (%v)", quoted, got, err, want, failed)
		}
		name, err := rawjson.Name(quoted)
		if string(name) != want || (err == nil) != (failed == nil) {
			t.Fatalf("as a name %q is %q (%v), want %q (%v)", quoted, name, err, want, failed)
		}
		if is := rawjson.Is(quoted, text); is != (failed == nil && want == text) {
			t.Fatalf("whether %q is %q: %t", quoted, text, is)
		}
	})
}

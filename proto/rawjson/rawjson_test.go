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

// FuzzTwiceIsANameThatAnObjectHasTwice, as the decoder reads the names.
func FuzzTwiceIsANameThatAnObjectHasTwice(f *testing.F) {
	for _, text := range []string{`{"a":1,"a":2}`, ` [ 1 , { "x" : {"a":1,"b":[],"\u0061":{}} } ] `, `{"a":{"b":1},"b":{"a":"a"}}`,
		`[{"a":1},{"a":1}]`, `{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"8":8}`, `{}`, `[[],{}]`, `1`, ``,
		`{"a":"}","b":"{\"a\":1,\"a\":1}"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		place, found := rawjson.Twice(text)
		if want := twice(d); found != want || found != (place != "") {
			t.Fatalf("%q: %t at %q, want %t", text, found, place, want)
		}
	})
}

func twice(d *json.Decoder) (found bool) {
	token, _ := d.Token()
	start, _ := token.(json.Delim)
	if start == 0 {
		return false
	}
	names := map[string]bool{}
	for d.More() {
		if start == '{' {
			token, _ = d.Token()
			name, _ := token.(string)
			found = found || names[name]
			names[name] = true
		}
		found = twice(d) || found
	}
	_, _ = d.Token() // the end
	return found
}

func TestTwiceSaysWhere(t *testing.T) {
	for text, want := range map[string]string{`{"a":1,"b":[1,{"c":{"d":1,"d":2}}]}`: ".b[1].c.d", `[{"a":1,"a":1}]`: "[0].a",
		`{"a":{"a":1}}`: ""} {
		if got, _ := rawjson.Twice([]byte(text)); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

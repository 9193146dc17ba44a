package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/seal"
)

var (
	key   = seal.Key{1, 2, 3}
	place = seal.Place{Tenant: "t", Plan: "p1", Action: "3"}
)

func paths(t testing.TB, texts ...string) (list []seal.Path) {
	t.Helper()
	for _, text := range texts {
		p, err := seal.ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

func opener(key seal.Key, tenant string) func(seal.Value) (json.RawMessage, error) {
	return func(v seal.Value) (json.RawMessage, error) { return v.Open(key, tenant) }
}

const input = `{"amount":10.10,"card":{"number":"4000123412341234","cvc":7},"items":[{"n":1,"token":"tok-aaaa"},{"n":2}],"note":null}`

// TestSealedDocumentsOpenToTheSameBytes, keep everything else byte for byte, and show
// nothing of what is sealed.
func TestSealedDocumentsOpenToTheSameBytes(t *testing.T) {
	list := paths(t, "input.card", "input.items.*.token", "input.note", "input.missing", "output.id")
	sealed := seal.Document(key, place, "input", list, json.RawMessage(input))
	for _, secret := range []string{"4000", "cvc", "tok-"} {
		if bytes.Contains(sealed, []byte(secret)) {
			t.Errorf("%q shows in %s", secret, sealed)
		}
	}
	if !strings.HasPrefix(string(sealed), `{"amount":10.10,"card":{"sagenbaum/sealed/v1":"p1/3/input.card/`) ||
		!strings.HasSuffix(string(sealed), `{"n":2}],"note":null}`) {
		t.Errorf("%s", sealed)
	}
	opened, values, err := seal.Open(sealed, opener(key, "t"))
	if err != nil || string(opened) != input || len(values) != 2 {
		t.Errorf("%s, %d values, %v", opened, len(values), err)
	}
	if again := seal.Document(key, place, "input", list, json.RawMessage(input)); !bytes.Equal(again, sealed) {
		t.Error("the same document was sealed to other bytes")
	}
	if twice := seal.Document(key, place, "input", list, sealed); !bytes.Equal(twice, sealed) {
		t.Error("what is sealed was sealed again")
	}
	whole := seal.Document(key, place, "output", paths(t, "output"), json.RawMessage(` "pi_12345" `))
	if text, _, err := seal.Open(whole, opener(key, "t")); err != nil || string(text) != `"pi_12345"` {
		t.Errorf("%s, %v", text, err)
	}
	if redacted := seal.Redact(sealed); string(redacted) != `{"amount":10.10,"card":"[sealed input.card]","items":[{"n":1,"token":"[sealed input.items.0.token]"},{"n":2}],"note":null}` {
		t.Errorf("%s", redacted)
	}
}

// TestSealedValuesOpenInTheirPlaceOnly: another key, tenant, plan, action or field, and
// every flipped bit, is refused.
func TestSealedValuesOpenInTheirPlaceOnly(t *testing.T) {
	sealed := seal.Document(key, place, "input", paths(t, "input.card"), json.RawMessage(input))
	text := string(sealed)
	for name, forged := range map[string]string{
		"plan": strings.Replace(text, `"p1/3/`, `"p2/3/`, 1), "action": strings.Replace(text, `"p1/3/`, `"p1/4/`, 1),
		"field": strings.Replace(text, "/input.card/", "/input.cord/", 1),
	} {
		if _, _, err := seal.Open(json.RawMessage(forged), opener(key, "t")); !errors.Is(err, seal.ErrForged) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if _, _, err := seal.Open(sealed, opener(key, "u")); !errors.Is(err, seal.ErrForged) {
		t.Errorf("another tenant: %v", err)
	}
	if _, _, err := seal.Open(sealed, opener(seal.Key{1, 2, 4}, "t")); !errors.Is(err, seal.ErrForged) {
		t.Errorf("another key: %v", err)
	}
	start := strings.Index(text, "input.card/") + len("input.card/")
	end := start + strings.IndexByte(text[start:], '"')
	for i := start; i < end; i++ {
		flipped := []byte(text)
		if flipped[i]++; flipped[i] > 'z' {
			flipped[i] = '0'
		}
		if out, _, err := seal.Open(flipped, opener(key, "t")); err == nil && seal.Sealed(out) == false {
			t.Errorf("a flip at %d was opened", i-start)
		}
	}
}

// TestSealedLengthsSayLittle: what is not longer than 32 bytes looks alike.
func TestSealedLengthsSayLittle(t *testing.T) {
	short, long := seal.Seal(key, place, json.RawMessage(`1`)),
		seal.Seal(key, place, json.RawMessage(`"4000123412341234"`))
	if len(short) != len(long) || bytes.Equal(short, long) {
		t.Errorf("%s and %s", short, long)
	}
}

// TestSealPathsAreCheckedWithWhatWouldBeRight.
func TestSealPathsAreCheckedWithWhatWouldBeRight(t *testing.T) {
	for text, says := range map[string]string{
		"card": "as in input.card", "": "as in input.card", "input..x": "empty name", "input.": "empty name",
		"input.a/b": "no path may have", "input" + strings.Repeat(".a", 16): "at most 16",
	} {
		if _, err := seal.ParsePath(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	p := paths(t, "input.items.*.token")[0]
	for path, want := range map[string][2]bool{ // overlaps, inside
		"input": {true, false}, "input.items": {true, false}, "input.items.3.token": {true, false},
		"input.items.3.token.x": {true, true}, "input.items.3.n": {false, false}, "output": {false, false},
	} {
		steps := strings.Split(path, ".")
		if p.Overlaps(steps) != want[0] || p.Inside(steps) != want[1] {
			t.Errorf("%s: %v %v", path, p.Overlaps(steps), p.Inside(steps))
		}
	}
}

// TestSealKeysShowNowhere: neither in text, nor in JSON, nor in a log.
func TestSealKeysShowNowhere(t *testing.T) {
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", key, "in", struct{ K seal.Key }{key})
	raw, err := json.Marshal(map[string]any{"k": key})
	text := fmt.Sprintf("%v %+v %#v %s", key, key, key, key) + string(raw) + out.String()
	if err != nil || strings.Contains(text, "1 2 3") || strings.Contains(text, "010203") ||
		strings.Contains(text, "[1,2,3") || strings.Contains(text, "AQID") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestScrubTakesOpenedValuesOutOfTexts.
func TestScrubTakesOpenedValuesOutOfTexts(t *testing.T) {
	opened := []json.RawMessage{json.RawMessage(`{"number":"4000123412341234","pin":123456,"n":7}`),
		json.RawMessage(`"a\"quote"`)}
	got := seal.Scrub(`card 4000123412341234 with 123456 was declined, 7 times: a"quote and a\"quote`, opened)
	if got != "card [sealed] with [sealed] was declined, 7 times: [sealed] and [sealed]" {
		t.Error(got)
	}
}

// FuzzSealDocumentsOfAnyBytes: no input panics, and what is sealed opens to what it was.
func FuzzSealDocumentsOfAnyBytes(f *testing.F) {
	for _, text := range []string{input, `[]`, `{"a":{"sagenbaum/sealed/v1":"a/b/c/AAAA","bytes":1}}`,
		`{"a":{"a":1,"a":2}}`, `"x`, `{"\u0061":1}`} {
		f.Add([]byte(text))
	}
	list := []seal.Path{{"input", "a"}, {"input", "*", "token"}, {"input", "card"}}
	f.Fuzz(func(t *testing.T, text []byte) {
		seal.Redact(text)
		if !json.Valid(text) || seal.Sealed(text) {
			return
		}
		sealed := seal.Document(key, place, "input", list, text)
		opened, _, err := seal.Open(sealed, opener(key, "t"))
		if err != nil {
			t.Fatalf("%s: %v", sealed, err)
		}
		var a, b any
		if json.Unmarshal(text, &a) != nil {
			return // a number beyond a float64
		}
		if json.Unmarshal(opened, &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("%s opened to %s", text, opened)
		}
	})
}

// TestWhatWouldHaveToBeOpened: a part of a sealed value, or what is computed from one; whatever else is
// in the document, and however deep.
func TestWhatWouldHaveToBeOpened(t *testing.T) {
	at := seal.Place{Tenant: "t", Plan: "p", Action: "a", Field: "output.card"}
	box := string(seal.Seal(seal.Key{1}, at, json.RawMessage(`{"n":1}`)))
	document := json.RawMessage(`{"a":{"card":` + box + `,"x/~y":[1,` + box + `],"id":7},"deep":` +
		strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`)
	for _, c := range []struct {
		path   string
		copied bool
		want   string
	}{
		{"a card", true, ""}, {"a card n", true, "a.card"}, {"a card", false, "a.card"}, {"a", true, ""}, {"a", false, "a"},
		{"a id", false, ""}, {"a none", false, ""}, {"a x/~y 1 n", true, "a.x/~y.1"}, {"a x/~y 1", true, ""},
		{"a x/~y 0", false, ""}, {"a x/~y 2", false, ""}, {"deep 0 0", false, ""}, {"none", false, ""},
	} {
		if got := seal.Closed(document, strings.Fields(c.path), c.copied); got != c.want {
			t.Errorf("%s, copied %v: %q, want %q", c.path, c.copied, got, c.want)
		}
	}
}

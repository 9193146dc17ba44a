package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/seal"
)

var digest = strings.Repeat("0a", 32)

// TestReferencesAreFoundWhereverTheyAre, and nothing else is taken for one.
func TestReferencesAreFoundWhereverTheyAre(t *testing.T) {
	ref := seal.Blob{Plan: "p1", Digest: digest, Bytes: 7, Type: "text/plain"}
	text, err := json.Marshal(map[string]any{"a": []any{1, ref}, "b": map[string]any{"c": ref}, "d": "x"})
	if err != nil {
		t.Fatal(err)
	}
	found := seal.Blobs(text).Blobs
	if len(found) != 2 || found[0] != ref || found[1] != ref {
		t.Errorf("%+v in %s", found, text)
	}
	var read seal.Blob
	if one, _ := json.Marshal(ref); json.Unmarshal(one, &read) != nil || read != ref {
		t.Errorf("%+v", read)
	}
	for _, other := range []string{`"sagenbaum/blob/v1"`, `{"sagenbaum/blob/v1":"p1"}`, `[]`, `{}`,
		`{"sagenbaum/blob/v1":"/` + digest + `","bytes":1}`,
		`{"sagenbaum/blob/v1":"p1/` + strings.ToUpper(digest) + `","bytes":1}`,
		`{"sagenbaum/blob/v1":"p1/` + digest + `","bytes":-1}`,
		`{"sagenbaum/blob/v1":"p1/` + digest + `","bytes":67108865}`,
		`{"sagenbaum/blob/v1":"p1/` + digest + `","bytes":1,"more":2}`,
		`{"sagenbaum/blob/v1":"p1/` + digest + `0a","bytes":1}`} {
		if list := seal.Blobs([]byte(other)).Blobs; len(list) > 0 || json.Unmarshal([]byte(other), &read) == nil {
			t.Errorf("%s is taken for %+v", other, list)
		}
	}
}

// TestWhatHasTheMarkIsAReferenceOrWrong: its names count as they are read, and as they are written.
func TestWhatHasTheMarkIsAReferenceOrWrong(t *testing.T) {
	text := `"p1/` + digest + `"`
	for document, want := range map[string]int{
		`{"sagenbaum\/blob\/v1":"p1\/` + digest + `","bytes":1}`:                          1,
		`[{"a\n":{"\u0073agenbaum/blob/v1":` + text + `,"bytes":1}}]`:                     1,
		`{"sagenbaum/blob/v1":` + text + `,"bytes":1.0}`:                                  -1,
		`{"sagenbaum/blob/v1":` + text + `,"bytes":"1"}`:                                  -1,
		`{"sagenbaum/blob/v1":` + text + `,"bytes":1,"type":null}`:                        -1,
		`{"sagenbaum/blob/v1":` + text + `,"bytes":1,"bytes":1}`:                          -1,
		`{"sagenbaum/blob/v1":` + text + `,"Bytes":1}`:                                    -1,
		`{"sagenbaum/blob/v1":{"sagenbaum/blob/v1":` + text + `,"bytes":1}}`:              -2,
		`{"Sagenbaum/blob/v1":` + text + `,"bytes":1,"sagenbaum/blob/v1":` + text + `}`:   -1,
		`{"a":"sagenbaum/blob/v1","b":["sagenbaum/blob/v1",{"c":"\n"}],"sagenbaum":"\\"}`: 0,
	} {
		found := seal.Blobs([]byte(document))
		wrong := found.Wrong != nil
		if wrong != (want < 0) || want == 1 && len(found.Blobs) != 1 || want == -1 && len(found.Blobs) != 0 {
			t.Errorf("%s: %+v", document, found)
		}
		if want != 0 && (len(found.Texts) == 0 || found.Texts[0] != "p1/"+digest) {
			t.Errorf("%s keeps %q", document, found.Texts)
		}
	}
}

// TestNestingCostsNoTime: each level is read once. A pass for each took a second for these.
func TestNestingCostsNoTime(t *testing.T) {
	const levels = 9_000
	mark := `{"sagenbaum/blob/v1":`
	for _, document := range []string{
		strings.Repeat("[", levels) + `"sagenbaum/blob/v1"` + strings.Repeat("]", levels),
		strings.Repeat(mark, levels) + `1` + strings.Repeat("}", levels),
	} {
		if n := testing.AllocsPerRun(1, func() { seal.Blobs([]byte(document)) }); n > 20*levels {
			t.Errorf("%.40s: %.0f allocations for %d levels", document, n, levels)
		}
	}
	deep := strings.Repeat("[", 20_000) + `"sagenbaum/blob/v1"` + strings.Repeat("]", 20_000)
	if found := seal.Blobs([]byte(deep)); found.Wrong == nil {
		t.Error("what no one reads is taken")
	}
}

// TestChunksOpenInTheirPlanOnly, and the same bytes give the same chunk there.
func TestChunksOpenInTheirPlanOnly(t *testing.T) {
	plain := []byte("some bytes of a file")
	stored := seal.SealChunk(key, "t", "p1", plain)
	if again := seal.SealChunk(key, "t", "p1", plain); !bytes.Equal(again, stored) {
		t.Error("the same bytes gave another chunk")
	}
	if bytes.Contains(stored, plain[:8]) {
		t.Error("the chunk shows its bytes")
	}
	if opened, err := seal.OpenChunk(key, "t", "p1", stored); err != nil || !bytes.Equal(opened, plain) {
		t.Errorf("%q, %v", opened, err)
	}
	changed := bytes.Clone(stored)
	changed[len(changed)/2]++
	for name, open := range map[string]func() ([]byte, error){
		"another plan":   func() ([]byte, error) { return seal.OpenChunk(key, "t", "p2", stored) },
		"another tenant": func() ([]byte, error) { return seal.OpenChunk(key, "t2", "p1", stored) },
		"another key":    func() ([]byte, error) { return seal.OpenChunk(seal.Key{9}, "t", "p1", stored) },
		"changed":        func() ([]byte, error) { return seal.OpenChunk(key, "t", "p1", changed) },
		"cut":            func() ([]byte, error) { return seal.OpenChunk(key, "t", "p1", stored[:5]) },
	} {
		if _, err := open(); !errors.Is(err, seal.ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestManifestsShowNothingOfTheValue to who has no key, but the chunks that it is made of.
func TestManifestsShowNothingOfTheValue(t *testing.T) {
	m := seal.Manifest{Bytes: seal.BlobChunk + 1, SHA256: strings.Repeat("ef", 32), Chunks: []string{digest, digest}}
	stored := m.Format(key, "t", "p1")
	if strings.Contains(string(stored), m.SHA256) {
		t.Errorf("the digest of the value shows in %s", stored)
	}
	read, err := seal.ParseManifest(key, "t", "p1", stored)
	if err != nil || read.SHA256 != m.SHA256 || len(read.Chunks) != 2 || read.Bytes != m.Bytes {
		t.Errorf("%+v, %v", read, err)
	}
	if chunks, err := seal.ManifestChunks(stored); err != nil || len(chunks) != 2 {
		t.Errorf("%v, %v", chunks, err)
	}
	for _, wrong := range [][]byte{nil, []byte("{}"), bytes.Replace(stored, []byte(`"p1/`), []byte(`"p2/`), 1),
		bytes.Replace(stored, []byte(`"bytes":262145`), []byte(`"bytes":1`), 1)} {
		if _, err := seal.ParseManifest(key, "t", "p1", wrong); !errors.Is(err, seal.ErrForged) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	for _, wrong := range []seal.Manifest{{Bytes: 1, SHA256: digest}, {Bytes: -1, SHA256: digest}, {SHA256: "x"},
		{Bytes: 1, SHA256: digest, Chunks: []string{"x"}}, {Bytes: seal.BlobMax + 1, SHA256: digest}} {
		if wrong.Check() == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
}

package seal

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Bounds of blobs.
const (
	BlobMax      = 64 << 20       // bytes of one
	BlobChunk    = 256 << 10      // bytes of each of its chunks but the last
	BlobTypeMax  = 128            // bytes of a media type
	BlobsNamed   = 256            // blobs that one input, output or before-image may refer to
	BlobsBrought = 4 * BlobsNamed // that a command may bring, which is made of these
	blobChunks   = BlobMax / BlobChunk
	blobPlain    = "blob" // the field that the digest of a blob's bytes is sealed as
	blobAbout    = "sagenbaum/blob/v1\n"
	manifestV1   = 1
)

// BlobMark is the name of a reference in its object.
const BlobMark = "sagenbaum/blob/v1"

// Blob is a reference to a value that is too large for a record. It is JSON, and has the place of
// the value wherever that would be, so that bindings copy it as they copy any value:
//
//	{"sagenbaum/blob/v1":"p1/9f86d081…","bytes":1048576,"type":"text/plain"}
//
// The text is the plan that the blob belongs to, and the SHA-256 of its manifest. That names the
// sealed chunks by their digests: it tells nothing of the value once the key of the plan is
// destroyed, and whoever has the sealed bytes can hold them against it without any key.
type Blob struct {
	Plan   string
	Digest string // of the manifest, in lower-case hex
	Bytes  int64  // of the value
	Type   string // media type; empty: not said
}

// blobJSON is a Blob as it is written.
type blobJSON struct {
	Text  string `json:"sagenbaum/blob/v1"`
	Bytes int64  `json:"bytes"`
	Type  string `json:"type,omitempty"`
}

// Text is the plan and the digest.
func (b Blob) Text() string { return b.Plan + "/" + b.Digest }

// MarshalJSON writes the reference.
func (b Blob) MarshalJSON() ([]byte, error) {
	return json.Marshal(blobJSON{b.Text(), b.Bytes, b.Type})
}

// UnmarshalJSON reads a reference, and nothing else.
func (b *Blob) UnmarshalJSON(raw []byte) error {
	found, ok := ParseBlob(raw)
	if !ok {
		return errors.New("it is no reference to a blob: " + BlobWanted)
	}
	*b = found
	return nil
}

// BlobWanted is what a reference is.
const BlobWanted = `{"` + BlobMark + `": "PLAN/DIGEST", "bytes": N}, as it was given when the ` +
	`blob was stored`

// ParseBlob reads a reference; ok is false for any other JSON. Each of its names is written once,
// and exactly: whoever reads it by other rules must not read another blob.
func ParseBlob(raw json.RawMessage) (b Blob, ok bool) {
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	if token, err := in.Token(); err != nil || token != json.Delim('{') {
		return Blob{}, false
	}
	field := map[string]any{}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return Blob{}, false
		}
		text, _ := name.(string)
		if _, twice := field[text]; twice || text != BlobMark && text != "bytes" && text != "type" {
			return Blob{}, false
		}
		if field[text], err = in.Token(); err != nil {
			return Blob{}, false
		}
	}
	if _, err := in.Token(); err != nil || len(bytes.TrimSpace(raw[in.InputOffset():])) > 0 {
		return Blob{}, false
	}
	text, said := field[BlobMark].(string)
	number, counted := field["bytes"].(json.Number)
	kind, typed := field["type"].(string)
	if _, given := field["type"]; !said || !counted || given && !typed {
		return Blob{}, false
	}
	size, err := strconv.ParseInt(number.String(), 10, 64)
	plan, digest, ok := strings.Cut(text, "/")
	if !ok || err != nil || plan == "" || !ValidDigest(digest) || size < 0 || size > BlobMax ||
		len(kind) > BlobTypeMax {
		return Blob{}, false
	}
	return Blob{plan, digest, size, kind}, true
}

// ValidDigest reports whether a text is a SHA-256 in lower-case hex.
func ValidDigest(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && text == strings.ToLower(text)
}

// Blobby reports whether there may be a reference in a document, however its names are written.
func Blobby(document []byte) bool {
	if bytes.Contains(document, []byte(BlobMark)) {
		return true
	}
	if bytes.IndexByte(document, '\\') < 0 {
		return false
	}
	found := findBlobs(document)
	return found.Wrong != nil || len(found.Texts) > 0
}

// Marked is what has the mark of a reference in a document.
type Marked struct {
	Blobs []Blob // the references, in order
	// Texts are what each of the marks names, also in what is no reference: it is kept.
	Texts []string
	Wrong error // why what has the mark is no reference; of the first
}

// Blobs finds the references in a document, in one pass.
func Blobs(document json.RawMessage) Marked {
	if !Blobby(document) {
		return Marked{}
	}
	return findBlobs(document)
}

// Distinct are the references, each once.
func (m Marked) Distinct() []Blob {
	seen := make(map[Blob]bool, len(m.Blobs))
	return slices.DeleteFunc(slices.Clone(m.Blobs), func(b Blob) bool {
		was := seen[b]
		seen[b] = true
		return was
	})
}

// blobsDepth is how deeply a document may be nested: what is deeper no one reads as JSON.
const blobsDepth = 10_000

// level is an object or a list that a pass is in.
type level struct {
	began  int64
	object bool
	named  bool // the next token is a value
	marked bool
	leaf   bool   // it has no object or list in it
	name   string // of the member that is next
}

func findBlobs(document json.RawMessage) (found Marked) {
	in := json.NewDecoder(bytes.NewReader(document))
	in.UseNumber()
	for at := []level(nil); ; {
		token, err := in.Token()
		if err == io.EOF && len(at) == 0 {
			return found
		}
		if err == nil && len(at) > blobsDepth {
			err = fmt.Errorf("it is nested deeper than %d", blobsDepth)
		}
		if err != nil {
			found.Wrong = cmp.Or(found.Wrong, err)
			return found
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			last := at[len(at)-1]
			if at = at[:len(at)-1]; last.marked {
				found.add(last, document[last.began:in.InputOffset()])
			}
			continue
		}
		found.pass(at, token)
		if token == json.Delim('{') || token == json.Delim('[') {
			at = append(at, level{began: in.InputOffset() - 1, object: token == json.Delim('{'),
				leaf: true})
		}
	}
}

// pass notes a name, or a value, of the level that the pass is in.
func (m *Marked) pass(at []level, token json.Token) {
	if len(at) == 0 {
		return
	}
	in := &at[len(at)-1]
	if in.object && !in.named {
		in.name, _ = token.(string)
		in.named, in.marked = true, in.marked || in.name == BlobMark
		return
	}
	switch value := token.(type) {
	case json.Delim:
		in.leaf = false
	case string:
		if in.object && strings.EqualFold(in.name, BlobMark) {
			m.Texts = append(m.Texts, value)
		}
	}
	in.named = false
}

// add notes an object that has the mark.
func (m *Marked) add(in level, raw json.RawMessage) {
	if in.leaf {
		if b, ok := ParseBlob(raw); ok {
			m.Blobs = append(m.Blobs, b)
			return
		}
	}
	if m.Wrong == nil {
		m.Wrong = fmt.Errorf("%.160q is no reference to a blob", raw)
	}
}

// Digest is the SHA-256 of what is stored, in lower-case hex.
func Digest(stored []byte) string {
	sum := sha256.Sum256(stored)
	return hex.EncodeToString(sum[:])
}

// SealChunk seals a chunk of a blob under the key of its plan. The same bytes in the same plan
// give the same chunk, so that a blob that is stored again has the reference that it had.
func SealChunk(key Key, tenant, plan string, chunk []byte) []byte {
	aead, nonceKey := ciphers(key)
	about := blobPlace(tenant, plan)
	mac := hmac.New(sha256.New, nonceKey)
	mac.Write(about)
	mac.Write(chunk)
	out := make([]byte, aead.NonceSize(), aead.NonceSize()+len(chunk)+aead.Overhead())
	copy(out, mac.Sum(nil))
	return aead.Seal(out, out, chunk, about)
}

// OpenChunk returns what SealChunk has sealed. The error is ErrForged.
func OpenChunk(key Key, tenant, plan string, stored []byte) ([]byte, error) {
	aead, _ := ciphers(key)
	if len(stored) < aead.NonceSize() {
		return nil, ErrForged
	}
	chunk, err := aead.Open(nil, stored[:aead.NonceSize()], stored[aead.NonceSize():],
		blobPlace(tenant, plan))
	if err != nil {
		return nil, ErrForged
	}
	return chunk, nil
}

// blobPlace is what chunks are bound to, without ambiguity: each part after its length.
func blobPlace(tenant, plan string) []byte {
	out := []byte(blobAbout)
	for _, part := range [...]string{tenant, plan} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return out
}

// Manifest says what a blob is made of.
type Manifest struct {
	Bytes  int64    // of the value
	SHA256 string   // of the value, in hex; sealed where it is stored, for it could be guessed by
	Chunks []string // digests of the sealed chunks, in order
}

// manifestJSON is a Manifest as it is stored.
type manifestJSON struct {
	Version int             `json:"v"`
	Bytes   int64           `json:"bytes"`
	SHA256  json.RawMessage `json:"sha256"`
	Chunks  []string        `json:"chunks"`
}

// Check refuses a manifest that no blob has.
func (m Manifest) Check() error {
	switch {
	case m.Bytes < 0 || m.Bytes > BlobMax:
		return fmt.Errorf("a blob of %d bytes, at most %d", m.Bytes, int64(BlobMax))
	case int64(len(m.Chunks)) != (m.Bytes+BlobChunk-1)/BlobChunk:
		return fmt.Errorf("%d chunks for %d bytes, of %d bytes each but the last", len(m.Chunks),
			m.Bytes, BlobChunk)
	case !ValidDigest(m.SHA256):
		return errors.New("the digest of its bytes is no SHA-256 in hex")
	}
	for _, digest := range m.Chunks {
		if !ValidDigest(digest) {
			return errors.New("the digest of a chunk is no SHA-256 in hex")
		}
	}
	return nil
}

// ChunkSize is how many bytes of the value a chunk has, by its number from 0.
func (m Manifest) ChunkSize(number int) int {
	return int(min(m.Bytes-int64(number)*BlobChunk, BlobChunk))
}

// Format is the manifest as it is stored; its Digest is that of the blob.
func (m Manifest) Format(key Key, tenant, plan string) []byte {
	out, err := json.Marshal(manifestJSON{manifestV1, m.Bytes,
		Seal(key, Place{Tenant: tenant, Plan: plan, Field: blobPlain}, quote(m.SHA256)),
		append([]string{}, m.Chunks...)})
	if err != nil {
		panic("seal: a manifest that is no JSON: " + err.Error())
	}
	return out
}

// ParseManifest reads what Format has written. The error is ErrForged.
func ParseManifest(key Key, tenant, plan string, stored []byte) (m Manifest, err error) {
	var read manifestJSON
	if json.Unmarshal(stored, &read) != nil || read.Version != manifestV1 {
		return m, fmt.Errorf("%w: the manifest cannot be read", ErrForged)
	}
	sealed, ok := parse(read.SHA256)
	if !ok || sealed.Plan != plan || sealed.Field != blobPlain {
		return m, fmt.Errorf("%w: the manifest is of another plan", ErrForged)
	}
	sum, err := sealed.Open(key, tenant)
	if err != nil {
		return m, err
	}
	m = Manifest{Bytes: read.Bytes, Chunks: read.Chunks}
	if json.Unmarshal(sum, &m.SHA256) != nil || m.Check() != nil {
		return m, fmt.Errorf("%w: the manifest says what no blob is", ErrForged)
	}
	return m, nil
}

// ManifestChunks are the chunks that a manifest names, for those who have no key.
func ManifestChunks(stored []byte) ([]string, error) {
	var read manifestJSON
	if err := json.Unmarshal(stored, &read); err != nil || read.Version != manifestV1 ||
		len(read.Chunks) > blobChunks {
		return nil, fmt.Errorf("%w: the manifest cannot be read", ErrForged)
	}
	return read.Chunks, nil
}

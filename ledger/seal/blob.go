package seal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Bounds of blobs.
const (
	BlobMax     = 64 << 20  // bytes of one
	BlobChunk   = 256 << 10 // bytes of each of its chunks but the last
	BlobTypeMax = 128       // bytes of a media type
	BlobsNamed  = 256       // references that one command may bring
	blobChunks  = BlobMax / BlobChunk
	blobPlain   = "blob" // the field that the digest of a blob's bytes is sealed as
	blobAbout   = "sagenbaum/blob/v1\n"
	manifestV1  = 1
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

// ParseBlob reads a reference; ok is false for any other JSON.
func ParseBlob(raw json.RawMessage) (b Blob, ok bool) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' || !Blobby(raw) {
		return Blob{}, false
	}
	var read blobJSON
	in := json.NewDecoder(bytes.NewReader(raw))
	in.DisallowUnknownFields()
	if in.Decode(&read) != nil {
		return Blob{}, false
	}
	plan, digest, ok := strings.Cut(read.Text, "/")
	if !ok || plan == "" || !ValidDigest(digest) || read.Bytes < 0 || read.Bytes > BlobMax ||
		len(read.Type) > BlobTypeMax {
		return Blob{}, false
	}
	return Blob{plan, digest, read.Bytes, read.Type}, true
}

// ValidDigest reports whether a text is a SHA-256 in lower-case hex.
func ValidDigest(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && text == strings.ToLower(text)
}

// Blobby reports whether there may be a reference in a document.
func Blobby(document []byte) bool { return bytes.Contains(document, []byte(BlobMark)) }

// Blobs are the references in a document, in order. What has the mark and is none is left out.
func Blobs(document json.RawMessage) (list []Blob) {
	if !Blobby(document) {
		return nil
	}
	walk("", document, func(_ string, value json.RawMessage) bool {
		b, ok := ParseBlob(value)
		if ok {
			list = append(list, b)
		}
		return !ok
	})
	return list
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

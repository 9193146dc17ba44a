// Package witnesstest is a witness of checkpoints for tests.
package witnesstest

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Witness is a witness of one tenant over HTTP, written from the text of C2SP tlog-witness: it
// keeps the last tree that it has cosigned, and no other grows from it.
type Witness struct {
	URL    string // of its prefix for submissions
	Key    string // verifier key
	Signer *cosign.Signer
	t      *testing.T
	tenant string

	mu      sync.Mutex
	tenants note.Verifiers // keys of the tenant; nil: none yet
	size    uint64
	root    ledger.Hash
	asked   int
	away    bool
}

// New starts a witness, which knows no key of the tenant yet.
func New(t *testing.T, tenant string) *Witness {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, "witness.example/w1")
	if err != nil {
		t.Fatal(err)
	}
	w := &Witness{t: t, Key: public, tenant: tenant}
	if w.Signer, err = cosign.NewSignerForCosignatureV1(private); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.URL = server.URL + "/sub"
	return w
}

// Trusts gives the witness the tenant's first key.
func (w *Witness) Trusts(verifier string) {
	w.t.Helper()
	known, err := note.NewVerifier(verifier)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenants = note.VerifierList(known)
}

// Seen is the size of the tree that it has cosigned last, and how often it was asked.
func (w *Witness) Seen() (size uint64, asked int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size, w.asked
}

// Saw has it have cosigned another tree before.
func (w *Witness) Saw(size uint64, root ledger.Hash) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.size, w.root = size, root
}

// Leave has it answer nothing but an error, or answer again.
func (w *Witness) Leave(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

// ServeHTTP implements http.Handler.
func (w *Witness) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	body, err := io.ReadAll(in.Body)
	code, answer := http.StatusBadGateway, ""
	if !w.away && err == nil {
		code, answer = w.add(in, body)
	}
	if code == http.StatusConflict {
		out.Header().Set("Content-Type", "text/x.tlog.size")
	}
	out.WriteHeader(code)
	_, _ = io.WriteString(out, answer)
}

// add is add-checkpoint.
func (w *Witness) add(in *http.Request, body []byte) (code int, answer string) {
	if in.Method != http.MethodPost || in.URL.Path != "/sub/add-checkpoint" {
		return http.StatusNotFound, ""
	}
	head, message, ok := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	first, isOld := strings.CutPrefix(lines[0], "old ")
	old, err := strconv.ParseUint(first, 10, 63)
	if !ok || !isOld || err != nil {
		return http.StatusBadRequest, ""
	}
	var proof []ledger.Hash
	for _, line := range lines[1:] {
		h, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(h) != ledger.LeafSize {
			return http.StatusBadRequest, ""
		}
		proof = append(proof, ledger.Hash(h))
	}
	if w.tenants == nil {
		return http.StatusForbidden, ""
	}
	c, _, err := ledger.OpenCheckpoint(message, w.tenant, w.tenants)
	switch {
	case err != nil:
		return http.StatusForbidden, ""
	case old > c.Size:
		return http.StatusBadRequest, ""
	case old != w.size, old == c.Size && old > 0 && c.Root != w.root:
		return http.StatusConflict, fmt.Sprintf("%d\n", w.size)
	}
	before := w.root
	if old == 0 {
		before = new(ledger.Edge).Root()
	}
	if ledger.VerifyConsistency(old, c.Size, proof, before, c.Root) != nil {
		return http.StatusUnprocessableEntity, ""
	}
	text, _ := split(message)
	signed, err := note.Sign(&note.Note{Text: text}, w.Signer)
	if err != nil {
		w.t.Error(err)
		return http.StatusInternalServerError, ""
	}
	w.size, w.root = c.Size, c.Root
	_, cosignature := split(signed)
	return http.StatusOK, cosignature
}

// split splits a signed note into its text and its signature lines.
func split(message []byte) (text, signatures string) {
	text, signatures, _ = strings.Cut(string(message), "\n\n— ")
	return text + "\n", "— " + signatures
}

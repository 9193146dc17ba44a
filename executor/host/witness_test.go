package host

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

	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// testWitness is a witness of one tenant over HTTP, written from the text of C2SP
// tlog-witness: it keeps the last tree that it has cosigned, and no other grows from it.
type testWitness struct {
	t      *testing.T
	server *httptest.Server
	signer *cosign.Signer
	key    string // verifier key

	mu      sync.Mutex
	tenants note.Verifiers // keys of the tenant; nil: none yet
	size    uint64
	root    ledger.Hash
	asked   int
	away    bool
}

func newTestWitness(t *testing.T) *testWitness {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, "witness.example/w1")
	if err != nil {
		t.Fatal(err)
	}
	w := &testWitness{t: t, key: public}
	if w.signer, err = cosign.NewSignerForCosignatureV1(private); err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	return w
}

// trusts gives the witness the tenant's first key.
func (w *testWitness) trusts(verifier string) {
	w.t.Helper()
	known, err := note.NewVerifier(verifier)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenants = note.VerifierList(known)
}

func (w *testWitness) seen() (size uint64, asked int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size, w.asked
}

func (w *testWitness) ServeHTTP(out http.ResponseWriter, in *http.Request) {
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
func (w *testWitness) add(in *http.Request, body []byte) (code int, answer string) {
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
	c, _, err := ledger.OpenCheckpoint(message, "t", w.tenants)
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
	text, _ := tiles.SplitNote(message)
	signed, err := note.Sign(&note.Note{Text: text}, w.signer)
	if err != nil {
		w.t.Error(err)
		return http.StatusInternalServerError, ""
	}
	w.size, w.root = c.Size, c.Root
	_, cosignature := tiles.SplitNote(signed)
	return http.StatusOK, cosignature
}

// TestAWitnessCosignsAndOneThatIsAwayDelaysNothing: its signature is in the file, of
// cosignature/v1, beside the tenant's.
func TestAWitnessCosignsAndOneThatIsAwayDelaysNothing(t *testing.T) {
	t.Parallel()
	w := newTestWitness(t)
	r := newSigningRig(t)
	r.witness = proof.Witness{URL: w.server.URL + "/sub/", Key: w.key}
	_, stop := r.host("h1")
	r.asserts("k", 1)
	r.checkpoint()
	r.eventually("the witness refuses a key that it does not know", func() bool {
		return strings.Contains(r.status().Checkpoint.Away, "403")
	})
	if v := r.status().Checkpoint; v.Witness != "witness.example/w1" || v.Cosigned != 0 || v.Problem != "" ||
		v.WitnessAlarm {
		t.Fatalf("%+v", v)
	}
	w.trusts(r.key("h1").Verifier)
	cosigned := func() {
		t.Helper()
		r.eventually("it is cosigned", func() bool {
			v := r.status().Checkpoint
			return v.Cosigned == v.Size && v.Away == ""
		})
		r.wantCosigned(w.key)
	}
	cosigned() // a checkpoint is tried until it is cosigned, also of an idle tenant
	for i := range 300 {
		r.asserts("k", i)
	}
	r.checkpoint()
	cosigned()
	stop()
	r.host("h1") // it does not know any more what the witness has seen: 409 says it
	r.asserts("k", 2)
	r.checkpoint()
	cosigned()
	w.mu.Lock()
	w.away = true
	w.mu.Unlock()
	before, _ := w.seen()
	r.asserts("k", 3)
	if v := r.checkpoint(); v.Problem != "" || v.Size <= before {
		t.Fatalf("%+v", v)
	}
	r.eventually("it is away", func() bool { return r.status().Checkpoint.Away != "" })
	w.mu.Lock()
	w.away = false
	w.mu.Unlock()
	cosigned()
	r.wantProven(r.key("h1").Verifier)
}

// wantCosigned opens the published checkpoint with both keys.
func (r *rig) wantCosigned(key string) {
	r.t.Helper()
	verifier, err := cosign.NewVerifierForCosignatureV1(key)
	if err != nil {
		r.t.Fatal(err)
	}
	own, err := note.NewVerifier(r.key("h1").Verifier)
	if err != nil {
		r.t.Fatal(err)
	}
	_, sigs, err := ledger.OpenCheckpoint(r.file("h1"), "t", note.VerifierList(own, verifier))
	if err != nil || len(sigs) != 2 {
		r.t.Fatalf("%d signatures, %v\n%s", len(sigs), err, r.file("h1"))
	}
	if at, err := cosign.CoSigV1Timestamp(sigs[1]); err != nil || at.Unix() <= 0 {
		r.t.Fatalf("%v, %v", at, err)
	}
	if _, _, err := ledger.OpenCheckpoint(r.file("h1"), "t", note.VerifierList(verifier)); err == nil {
		r.t.Fatal("a checkpoint opens with the witness's key alone")
	}
}

// TestAWitnessThatHasSeenAnotherLedgerAlarms: of the same size, of a smaller one, and
// of more records than there are.
func TestAWitnessThatHasSeenAnotherLedgerAlarms(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]func(now uint64) uint64{
		"the same size":  func(now uint64) uint64 { return now },
		"a smaller tree": func(now uint64) uint64 { return now - 1 },
		"a larger tree":  func(now uint64) uint64 { return now + 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWitness(t)
			r := newSigningRig(t)
			_, stop := r.host("h1")
			r.asserts("k", 1)
			r.checkpoint()
			stop()
			last := r.signAlone("h1") // of all records; the next start says it, and asks
			w.trusts(r.key("h1").Verifier)
			w.size, w.root = size(last.Size), ledger.LeafHash([]byte("of another history"))
			r.witness = proof.Witness{URL: w.server.URL + "/sub", Key: w.key}
			r.host("h1")
			r.eventually("the alarm", func() bool { return r.status().Checkpoint.WitnessAlarm })
			r.asserts("k", 2)
			if v := r.checkpoint(); v.Problem != "" || v.Alarm || v.Away == "" || v.Cosigned != 0 {
				t.Fatalf("%+v", v) // it is told, and nothing stands still
			}
		})
	}
}

// TestAnAnswerThatIsNoCosignatureIsNotTaken.
func TestAnAnswerThatIsNoCosignatureIsNotTaken(t *testing.T) {
	t.Parallel()
	foreign := newTestWitness(t)
	forged := newTestWitness(t)
	forged.signer = foreign.signer // of the same name, with another key
	r := newSigningRig(t)
	r.witness = proof.Witness{URL: forged.server.URL + "/sub", Key: forged.key}
	r.host("h1")
	r.asserts("k", 1)
	r.checkpoint()
	forged.trusts(r.key("h1").Verifier)
	r.eventually("it is not taken", func() bool { return strings.Contains(r.status().Checkpoint.Away, "no cosignature") })
	if own, text := r.key("h1").Verifier, r.file("h1"); !ledger.SignedBy(text, "t", own) ||
		bytes.Count(text, []byte("\n— ")) != 1 {
		t.Fatalf("%s", text)
	}
}

package host

import (
	"bytes"
	"strings"
	"testing"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/host/proof/witnesstest"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestAWitnessCosignsAndOneThatIsAwayDelaysNothing: its signature is in the file, of
// cosignature/v1, beside the tenant's.
func TestAWitnessCosignsAndOneThatIsAwayDelaysNothing(t *testing.T) {
	t.Parallel()
	w := witnesstest.New(t, "t")
	r := newSigningRig(t)
	r.witness = proof.Witness{URL: w.URL + "/", Key: w.Key}
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
	w.Trusts(r.key("h1").Verifier)
	cosigned := func() {
		t.Helper()
		r.eventually("it is cosigned", func() bool { // a next one may come at any time
			v := r.status().Checkpoint
			return v.Cosigned == v.Size && v.Away == "" && r.isCosigned(w.Key)
		})
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
	w.Leave(true)
	before, _ := w.Seen()
	r.asserts("k", 3)
	if v := r.checkpoint(); v.Problem != "" || v.Size <= before {
		t.Fatalf("%+v", v)
	}
	r.eventually("it is away", func() bool { return r.status().Checkpoint.Away != "" })
	w.Leave(false)
	cosigned()
	r.wantProven(r.key("h1").Verifier)
}

// isCosigned opens the published checkpoint with both keys, and says whether it has both
// signatures; it opens with the tenant's alone, and not with the witness's.
func (r *rig) isCosigned(key string) bool {
	r.t.Helper()
	verifier, err := cosign.NewVerifierForCosignatureV1(key)
	if err != nil {
		r.t.Fatal(err)
	}
	own, err := note.NewVerifier(r.key("h1").Verifier)
	if err != nil {
		r.t.Fatal(err)
	}
	text := r.file("h1")
	if _, _, err := ledger.OpenCheckpoint(text, "t", note.VerifierList(verifier)); err == nil {
		r.t.Fatal("a checkpoint opens with the witness's key alone")
	}
	_, sigs, err := ledger.OpenCheckpoint(text, "t", note.VerifierList(own, verifier))
	if err != nil {
		r.t.Fatalf("%v\n%s", err, text)
	}
	if len(sigs) != 2 {
		return false
	}
	if at, err := cosign.CoSigV1Timestamp(sigs[1]); err != nil || at.Unix() <= 0 {
		r.t.Fatalf("%v, %v", at, err)
	}
	return true
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
			w := witnesstest.New(t, "t")
			r := newSigningRig(t)
			_, stop := r.host("h1")
			r.asserts("k", 1)
			r.checkpoint()
			stop()
			last := r.signAlone("h1") // of all records; the next start says it, and asks
			w.Trusts(r.key("h1").Verifier)
			w.Saw(size(last.Size), ledger.LeafHash([]byte("of another history")))
			r.witness = proof.Witness{URL: w.URL, Key: w.Key}
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
	foreign := witnesstest.New(t, "t")
	forged := witnesstest.New(t, "t")
	forged.Signer = foreign.Signer // of the same name, with another key
	r := newSigningRig(t)
	r.witness = proof.Witness{URL: forged.URL, Key: forged.Key}
	r.host("h1")
	r.asserts("k", 1)
	r.checkpoint()
	forged.Trusts(r.key("h1").Verifier)
	r.eventually("it is not taken", func() bool { return strings.Contains(r.status().Checkpoint.Away, "no cosignature") })
	if own, text := r.key("h1").Verifier, r.file("h1"); !ledger.SignedBy(text, "t", own) ||
		bytes.Count(text, []byte("\n— ")) != 1 {
		t.Fatalf("%s", text)
	}
}

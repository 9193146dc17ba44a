package ledger_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// grown is a tree of some leaves and the hashes of its perfect subtrees.
func grown(n int) (leaves []ledger.Hash, prover ledger.Prover) {
	levels := [][]ledger.Hash{nil}
	for i := range n {
		levels[0] = append(levels[0], ledger.LeafHash(fmt.Appendf(nil, "record %d", i)))
	}
	for len(levels[len(levels)-1]) > 1 {
		below, above := levels[len(levels)-1], []ledger.Hash(nil)
		for i := 0; i+1 < len(below); i += 2 {
			above = append(above, ledger.NodeHash(below[i], below[i+1]))
		}
		levels = append(levels, above)
	}
	return levels[0], ledger.Prover{Read: func(level int, index uint64) (ledger.Hash, error) {
		if level >= len(levels) || index >= uint64(len(levels[level])) {
			return ledger.Hash{}, fmt.Errorf("no hash %d of level %d", index, level)
		}
		return levels[level][index], nil
	}}
}

// The roots of the eight inputs that the reference implementation of RFC 6962 is
// tested with.
func TestAnEdgeHasTheRootsOfRFC6962(t *testing.T) {
	inputs := []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"}
	roots := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	var r ledger.Edge
	for i, want := range roots {
		if got := r.Root(); hex.EncodeToString(got[:]) != want || r.Size() != uint64(i) {
			t.Errorf("root of %d leaves is %x, want %s", i, got, want)
		}
		if i < len(inputs) {
			data, err := hex.DecodeString(inputs[i])
			if err != nil {
				t.Fatal(err)
			}
			r.Append(ledger.LeafHash(data))
		}
	}
}

func TestAnEdgeItsCloneAndAProverAgree(t *testing.T) {
	leaves, prover := grown(1500)
	var edge ledger.Edge
	clone, was := edge.Clone(), edge.Root()
	for i, leaf := range leaves {
		edge.Append(leaf)
		if i%97 == 0 || clone.Root() != was {
			if clone.Root() != was {
				t.Fatalf("%d leaves: the clone at %d has another root", i+1, clone.Size())
			}
			clone, was = edge.Clone(), edge.Root()
		}
		if want, err := prover.Root(uint64(i + 1)); err != nil || edge.Root() != want {
			t.Fatalf("%d leaves: edge %x, tlog %x, %v", i+1, edge.Root(), want, err)
		}
	}
}

func TestProofsVerifyAndNoChangedOneDoes(t *testing.T) {
	const most = 700
	leaves, prover := grown(most)
	random := rand.New(rand.NewPCG(6, 9))
	root := func(size uint64) ledger.Hash {
		h, err := prover.Root(size)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for range 2000 {
		size := 1 + random.Uint64N(most)
		index, older := random.Uint64N(size), random.Uint64N(size+1)
		inclusion, err := prover.Inclusion(index, size)
		if err != nil || ledger.VerifyInclusion(leaves[index], index, size, inclusion, root(size)) != nil {
			t.Fatalf("record %d of %d: %v", index, size, err)
		}
		consistency, err := prover.Consistency(older, size)
		if err != nil || ledger.VerifyConsistency(older, size, consistency, root(older), root(size)) != nil {
			t.Fatalf("%d of %d: %v", older, size, err)
		}
		for i := range inclusion {
			inclusion[i][random.IntN(32)] ^= 1 << random.IntN(8)
			if ledger.VerifyInclusion(leaves[index], index, size, inclusion, root(size)) == nil {
				t.Fatalf("record %d of %d: a proof with a changed hash verifies", index, size)
			}
		}
		wrong := leaves[index]
		wrong[0] ^= 1
		if ledger.VerifyInclusion(wrong, index, size, inclusion, root(size)) == nil {
			t.Fatalf("record %d of %d: another leaf verifies", index, size)
		}
		if other := root(older); older > 0 {
			other[31] ^= 1
			if ledger.VerifyConsistency(older, size, consistency, other, root(size)) == nil {
				t.Fatalf("%d of %d: another older root verifies", older, size)
			}
		}
		if ledger.VerifyConsistency(older, size, append(consistency, root(size)), root(older), root(size)) == nil {
			t.Fatalf("%d of %d: a proof that is too long verifies", older, size)
		}
	}
	for _, wrong := range []error{
		ledger.VerifyInclusion(leaves[0], 5, 5, nil, root(5)), ledger.VerifyInclusion(leaves[0], 1<<63, 1<<63+1, nil,
			root(5)),
		ledger.VerifyConsistency(6, 5, nil, root(6), root(5)), ledger.VerifyConsistency(1, 1<<63, nil, root(1), root(5)),
		ledger.VerifyConsistency(0, 5, nil, root(1), root(5)),
	} {
		if wrong == nil {
			t.Error("a proof over impossible sizes verifies")
		}
	}
	if _, err := prover.Inclusion(3, most+1); err == nil {
		t.Error("a proof was made from hashes that are not there")
	}
}

func TestACheckpointIsReadAsItIsWrittenAndOtherwiseRefused(t *testing.T) {
	c := ledger.Checkpoint{Origin: ledger.Origin("t"), Size: 256, Root: ledger.LeafHash(nil)}
	const text = "sagenbaum/t\n256\nbjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB0=\n"
	if c.Text() != text {
		t.Fatalf("text is %q", c.Text())
	}
	if got, err := ledger.ParseCheckpoint(text); err != nil || got != c {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, bad := range []string{
		"", "\n", text[:len(text)-1], text + "\n", text + "more\n", text[1:] +
			"x", strings.Replace(text, "256", "0256", 1), strings.Replace(text, "256", "-1", 1),
		strings.Replace(text, "256", "+256", 1), strings.Replace(text, "256", "9223372036854775808", 1), strings.Replace(text,
			"B0=", "B0", 1), strings.Replace(text, "B0=", "B1=", 1),
		strings.Replace(text, "sagenbaum/t", "", 1), strings.ReplaceAll(text, "\n", "\r\n"),
	} {
		if got, err := ledger.ParseCheckpoint(bad); err == nil {
			t.Errorf("%q is taken for %+v", bad, got)
		}
	}
}

func FuzzACheckpointIsParsedOrRefusedAndNeverPanics(f *testing.F) {
	f.Add("sagenbaum/t\n256\nbjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB0=\n")
	f.Add("a\n0\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ledger.ParseCheckpoint(text); err == nil && c.Text() != text {
			t.Fatalf("parsed %q, written anew %q", text, c.Text())
		}
	})
}

// madeKey makes a key from a seed.
func madeKey(name string, seed byte) (note.Signer, string) {
	private, public, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 64)), name)
	if err != nil {
		panic(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		panic(err)
	}
	return signer, public
}

func keyOf(t *testing.T, name string, seed byte) (note.Signer, note.Verifier) {
	t.Helper()
	signer, public := madeKey(name, seed)
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer, verifier
}

func TestASignedCheckpointOpensForItsTenantAndItsKeyOnly(t *testing.T) {
	signer, verifier := keyOf(t, "sagenbaum/t", 1)
	foreign, foreignVerifier := keyOf(t, "sagenbaum/t", 2)
	witness, witnessVerifier := keyOf(t, "witness.example", 3)
	c := ledger.Checkpoint{Origin: ledger.Origin("t"), Size: 7, Root: ledger.LeafHash([]byte("x"))}
	sign := func(c ledger.Checkpoint, by ...note.Signer) []byte {
		msg, err := note.Sign(&note.Note{Text: c.Text()}, by...)
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	known := note.VerifierList(verifier, witnessVerifier)
	if got, sigs, err := ledger.OpenCheckpoint(sign(c, signer, witness), "t", known); err != nil || got != c ||
		len(sigs) != 2 {
		t.Fatalf("%+v, %d signatures, %v", got, len(sigs), err)
	}
	if _, sigs, err := ledger.OpenCheckpoint(sign(c, signer, foreign), "t", known); err != nil || len(sigs) != 1 {
		t.Errorf("a signature of an unknown key counts or spoils the others: %d, %v", len(sigs), err)
	}
	changed := bytes.Replace(sign(c, signer), []byte("\n7\n"), []byte("\n8\n"), 1)
	other := c
	other.Origin = ledger.Origin("u")
	for name, err := range map[string]error{
		"a foreign key":       third(ledger.OpenCheckpoint(sign(c, foreign), "t", known)),
		"a witness alone":     third(ledger.OpenCheckpoint(sign(c, witness), "t", known)),
		"another tenant":      third(ledger.OpenCheckpoint(sign(c, signer), "u", known)),
		"another origin":      third(ledger.OpenCheckpoint(sign(other, signer), "t", known)),
		"a changed size":      third(ledger.OpenCheckpoint(changed, "t", known)),
		"nobody's":            third(ledger.OpenCheckpoint([]byte(c.Text()), "t", known)),
		"a key of the future": third(ledger.OpenCheckpoint(sign(c, signer), "t", note.VerifierList(foreignVerifier))),
	} {
		if err == nil {
			t.Errorf("%s: the checkpoint opens", name)
		}
	}
}

func third(_ ledger.Checkpoint, _ []note.Signature, err error) error { return err }

func TestARotationIsSignedByTheOldKeyOverTenantKeysAndSize(t *testing.T) {
	if err := ledger.VerifyRotation("t", rotation()); err != nil {
		t.Fatal(err)
	}
	_, third := madeKey("sagenbaum/t", 3)
	_, elsewhere := madeKey("sagenbaum/u", 3)
	source := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	check := func(k *pb.KeyRotated) error {
		return ledger.Check(&pb.Record{Term: 1, Kind: &pb.Record_KeyRotated{KeyRotated: k}}, source)
	}
	for name, change := range map[string]func(k *pb.KeyRotated){
		"another size":    func(k *pb.KeyRotated) { k.Size++ },
		"another new key": func(k *pb.KeyRotated) { k.NewKey = third },
		"another old key": func(k *pb.KeyRotated) { k.OldKey = third },
		"a flipped bit":   func(k *pb.KeyRotated) { k.Signature[9] ^= 1 },
	} {
		k := rotation()
		change(k)
		if ledger.VerifyRotation("t", k) == nil {
			t.Errorf("%s: the signature verifies", name)
		}
		if err := check(k); err != nil {
			t.Errorf("%s: %v", name, err) // its form is right: what it means is the fold's
		}
	}
	for name, change := range map[string]func(k *pb.KeyRotated){
		"a key of another tenant": func(k *pb.KeyRotated) { k.NewKey = elsewhere },
		"no key":                  func(k *pb.KeyRotated) { k.OldKey = "" },
		"the same key":            func(k *pb.KeyRotated) { k.NewKey = k.OldKey },
		"half a signature":        func(k *pb.KeyRotated) { k.Signature = k.Signature[:32] },
		"no reason":               func(k *pb.KeyRotated) { k.Reason = "" },
		"nobody":                  func(k *pb.KeyRotated) { k.Actor = "" },
	} {
		k := rotation()
		change(k)
		if check(k) == nil {
			t.Errorf("%s: the record is taken", name)
		}
	}
	lost := rotation()
	lost.Signature = nil
	if err := ledger.VerifyRotation("t", lost); !errors.Is(err, ledger.ErrKeyLost) || check(lost) != nil {
		t.Errorf("a rotation of a lost key: %v, %v", err, check(lost))
	}
	if ledger.VerifyRotation("u", rotation()) == nil {
		t.Error("another tenant's rotation verifies")
	}
}

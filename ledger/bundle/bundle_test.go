package bundle_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
)

// leaf is leaf data of some record.
func leaf(i int) []byte {
	m := ledger.Message{Sequence: uint64(i + 1), StampNs: int64(i), Subject: "saga.t.fact.s"}
	return ledger.AppendLeaf(nil, "t", m, 0, 1, 1, bytes.Repeat([]byte{byte(i)}, 40+i%7))
}

// rootByDefinition is the root of RFC 6962, section 2.1.
func rootByDefinition(hashes []ledger.Hash) ledger.Hash {
	if len(hashes) == 1 {
		return hashes[0]
	}
	k := 1
	for 2*k < len(hashes) {
		k *= 2
	}
	return ledger.NodeHash(rootByDefinition(hashes[:k]), rootByDefinition(hashes[k:]))
}

// written is a bundle of n records of which some are withheld, with a checkpoint behind
// each of the sizes.
func written(t testing.TB, n int, shown func(i int) bool, checkpoints ...int) (data []byte, hashes []ledger.Hash) {
	t.Helper()
	var out bytes.Buffer
	w, err := bundle.NewWriter(&out, bundle.Header{Tenant: "t", Holds: bundle.Plan, Plan: "p"})
	for i := 0; i < n && err == nil; i++ {
		if slices.Contains(checkpoints, i) {
			err = w.Checkpoint(fmt.Sprint("of ", i))
		}
		hashes = append(hashes, ledger.LeafHash(leaf(i)))
		if shown(i) {
			err = errors.Join(err, w.Record(leaf(i)))
		} else {
			err = errors.Join(err, w.Withhold(bundle.Node{Hash: hashes[i]}))
		}
	}
	if err == nil {
		err = w.End(rootByDefinition(hashes))
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), hashes
}

// TestWhatWasWrittenIsRead: records come back byte for byte and in their places, and the
// tree of shown and withheld ones has the root of all, for every pattern of withholding.
func TestWhatWasWrittenIsRead(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		n, percent := 1+r.IntN(600), r.IntN(101)
		show := make([]bool, n)
		for i := range show {
			show[i] = r.IntN(100) < percent
		}
		at := r.IntN(n)
		data, hashes := written(t, n, func(i int) bool { return show[i] }, at)
		b, err := bundle.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var tree bundle.Tree
		for {
			item, err := b.Next()
			if err == io.EOF {
				break
			}
			if err != nil || item.Index != tree.Size() {
				t.Fatal(seed, item.Index, tree.Size(), err)
			}
			switch item.Kind {
			case bundle.Record:
				if i := int(item.Index); !show[i] || !bytes.Equal(item.Data, leaf(i)) {
					t.Fatal(seed, "record", i)
				}
				tree.Append(ledger.LeafHash(item.Data))
			case bundle.Withheld:
				for _, node := range item.Nodes {
					if err := tree.AppendNode(node); err != nil {
						t.Fatal(err)
					}
				}
			case bundle.Checkpoint:
				if item.Note != fmt.Sprint("of ", at) || item.Index != uint64(at) || at > 0 &&
					tree.Root() != rootByDefinition(hashes[:at]) {
					t.Fatal(seed, item)
				}
			case bundle.End:
				if item.Root != tree.Root() || tree.Root() != rootByDefinition(hashes) {
					t.Fatal(seed, "root")
				}
			}
		}
		if tree.Size() != uint64(n) {
			t.Fatal(seed, tree.Size(), n)
		}
	}
}

// TestTheFormatIsThatOfTheDocumentation reads a bundle as the documentation of package
// ledger says it, byte for byte, with nothing of this package.
func TestTheFormatIsThatOfTheDocumentation(t *testing.T) {
	data, hashes := written(t, 11, func(i int) bool { return i != 4 && i != 6 && i != 7 }, 9)
	take := func(n int) []byte {
		t.Helper()
		if n > len(data) {
			t.Fatalf("%d bytes are wanted, and %d are left", n, len(data))
		}
		part := data[:n]
		data = data[n:]
		return part
	}
	if string(take(20)) != "sagenbaum/bundle/v1\n" {
		t.Fatal("it begins with something else")
	}
	var types []byte
	var at, ends uint64
	for len(data) > 0 {
		frame := data
		kind, n := take(1)[0], int(number(take(4)))
		payload := take(n)
		if sum := sha256.Sum256(frame[:5+n]); !bytes.Equal(take(8), sum[:8]) {
			t.Fatalf("frame %q has another sum", kind)
		}
		switch types = append(types, kind); kind {
		case 'H':
			if string(payload) != `{"tenant":"t","holds":"plan","plan":"p"}` {
				t.Fatalf("%s", payload)
			}
		case 'R':
			at = recordsByDocumentation(t, payload, at)
		case 'W':
			at = withheldByDocumentation(t, payload, at, hashes)
		case 'C':
			if at != 9 || string(payload) != "of 9" {
				t.Fatal("checkpoint", at, string(payload))
			}
		case 'E':
			if ends = number(payload[:8]); ledger.Hash(payload[8:]) != rootByDefinition(hashes) || len(payload) != 40 {
				t.Fatal("end")
			}
		}
	}
	if string(types) != "HRWRWRCRE" || at != 11 || ends != 11 {
		t.Fatalf("%s %d %d", types, at, ends)
	}
}

// number is a big endian number of any length.
func number(b []byte) uint64 { return binary.BigEndian.Uint64(append(make([]byte, 8-len(b)), b...)) }

// recordsByDocumentation reads a frame of records behind so many.
func recordsByDocumentation(t *testing.T, payload []byte, at uint64) uint64 {
	t.Helper()
	first, count, size := number(payload[:8]), number(payload[8:12]), number(payload[12:16])
	unpacker, err := zstd.NewReader(bytes.NewReader(payload[16:]))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(unpacker)
	if unpacker.Close(); err != nil || uint64(len(raw)) != size || first != at {
		t.Fatal(err, len(raw), size, first)
	}
	for range count {
		n := number(raw[:4])
		if !bytes.Equal(raw[4:4+n], leaf(int(at))) {
			t.Fatal("record", at)
		}
		raw = raw[4+n:]
		at++
	}
	if len(raw) > 0 {
		t.Fatal("something is behind the entries")
	}
	return at
}

// withheldByDocumentation reads a frame of withheld records behind so many.
func withheldByDocumentation(t *testing.T, payload []byte, at uint64, hashes []ledger.Hash) uint64 {
	t.Helper()
	first, count := number(payload[:8]), number(payload[8:16])
	if first != at || len(payload) != 16+33 && len(payload) != 16+2*33 {
		t.Fatal("withheld", first, len(payload))
	}
	for nodes := payload[16:]; len(nodes) > 0; nodes = nodes[33:] {
		width := uint64(1) << nodes[0]
		if at%width != 0 || ledger.Hash(nodes[1:33]) != rootByDefinition(hashes[at:at+width]) {
			t.Fatal("subtree at", at)
		}
		at += width
	}
	if at != first+count {
		t.Fatal("withheld", count)
	}
	return at
}

// TestACutFileIsContinued: from every place where it may be cut, a bundle goes on to the
// same records and root, and what is read before is right.
func TestACutFileIsContinued(t *testing.T) {
	data, hashes := written(t, 60, func(i int) bool { return i%9 != 4 }, 30)
	for cut := 1; cut < len(data); cut++ {
		part, err := bundle.Scan(bytes.NewReader(data[:cut]))
		if errors.Is(err, bundle.ErrCut) {
			continue // not even its header is there: begin again
		}
		if err != nil || part.Ended || part.Size != part.Tree.Size() {
			t.Fatal(cut, err, part.Ended, part.Size)
		}
		out := bytes.NewBuffer(bytes.Clone(data[:part.Offset]))
		w, err := bundle.Continue(out, part.Size)
		for i := int(part.Size); i < 60 && err == nil; i++ {
			err = w.Record(leaf(i))
		}
		if err = errors.Join(err, w.End(rootByDefinition(hashes))); err != nil {
			t.Fatal(cut, err)
		}
		again, err := bundle.Scan(bytes.NewReader(out.Bytes()))
		if err != nil || !again.Ended || again.Size != 60 || again.Tree.Root() != rootByDefinition(hashes) {
			t.Fatal(cut, err, again.Size)
		}
	}
	if part, err := bundle.Scan(bytes.NewReader(data)); err != nil || !part.Ended || part.Size != 60 {
		t.Fatal(part, err)
	}
}

// TestAByteThatChangedIsSeen wherever it is.
func TestAByteThatChangedIsSeen(t *testing.T) {
	data, _ := written(t, 20, func(i int) bool { return i%5 != 0 }, 7)
	for i := range data {
		changed := bytes.Clone(data)
		changed[i] ^= 1 << (i % 8)
		if err := readAll(changed); err == nil || err == io.EOF {
			t.Fatal("byte", i)
		}
	}
	if err := readAll(data); err != io.EOF {
		t.Fatal(err)
	}
}

func readAll(data []byte) error {
	b, err := bundle.NewReader(bytes.NewReader(data))
	for err == nil {
		_, err = b.Next()
	}
	return err
}

// TestABombIsRefused: a frame that unpacks to more than its length says, or than any may.
func TestABombIsRefused(t *testing.T) {
	var out bytes.Buffer
	w, err := bundle.NewWriter(&out, bundle.Header{Tenant: "t", Holds: bundle.Whole})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Record(make([]byte, 2<<20)); err == nil {
		t.Fatal("a record larger than a frame was taken")
	}
	if err := w.Record(make([]byte, 1<<19)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := readAll(out.Bytes()); !errors.Is(err, bundle.ErrCut) {
		t.Fatal(err)
	}
	for _, h := range []bundle.Header{{}, {Tenant: "t"}, {Tenant: "t", Holds: bundle.Plan},
		{Tenant: "t", Holds: bundle.Since}, {Tenant: "t", Holds: bundle.Whole, Plan: "p"}} {
		if _, err := bundle.NewWriter(io.Discard, h); err == nil {
			t.Errorf("%+v is a header", h)
		}
	}
	var tree bundle.Tree
	tree.Append(ledger.Hash{})
	if tree.AppendNode(bundle.Node{Level: 1}) == nil || tree.AppendNode(bundle.Node{Level: 63}) == nil {
		t.Error("a subtree stands where none may")
	}
}

// FuzzReader reads arbitrary bytes: nothing panics, and no item is out of its place.
func FuzzReader(f *testing.F) {
	data, _ := written(f, 20, func(i int) bool { return i%5 != 0 }, 7)
	f.Add(data)
	f.Add(data[:len(data)-9])
	f.Add([]byte(bundle.Magic))
	f.Add(append([]byte(bundle.Magic), binary.BigEndian.AppendUint32([]byte{'R'}, 1<<31)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := bundle.NewReader(bytes.NewReader(data))
		var tree bundle.Tree
		for err == nil {
			var item bundle.Item
			if item, err = b.Next(); err != nil {
				return
			}
			if item.Index != tree.Size() {
				t.Fatal(item.Index, tree.Size())
			}
			switch item.Kind {
			case bundle.Record:
				tree.Append(ledger.LeafHash(item.Data))
			case bundle.Withheld:
				for _, n := range item.Nodes {
					if err := tree.AppendNode(n); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}

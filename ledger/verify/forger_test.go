package verify_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// signer is a key with its verifier key.
type signer struct {
	note.Signer
	key string
}

func newSigner(t testing.TB, tenant string, seed byte) signer {
	t.Helper()
	secret, public, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 64)), ledger.Origin(tenant))
	if err != nil {
		t.Fatal(err)
	}
	s, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	return signer{s, public}
}

func (s signer) sign(t testing.TB, c ledger.Checkpoint) string {
	t.Helper()
	text, err := note.Sign(&note.Note{Text: c.Text()}, s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readGolden reads a golden ledger: a message a line, as package executor stores them.
func readGolden(t testing.TB, name string) (log []ledger.Message) {
	t.Helper()
	f, err := os.Open(filepath.Join("../../executor/testdata/golden", name+".ledger"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m ledger.Message
		field := strings.Fields(lines.Text())
		data := ""
		if len(field) > 4 {
			data = field[4]
		}
		if _, err := fmt.Sscan(field[0]+" "+field[1], &m.Sequence, &m.StampNs); err != nil {
			t.Fatal(err)
		}
		m.Subject = field[2]
		if field[3] != "-" {
			m.ContentType = field[3]
		}
		if m.Data, err = hex.DecodeString(data); err != nil {
			t.Fatal(err)
		}
		log = append(log, m)
	}
	return log
}

func goldenNames(t testing.TB) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../executor/testdata/golden/*.ledger")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".ledger"))
	}
	return names
}

// leavesOf is the leaf data of all records of messages. What no reader of this version
// can split is one leaf, as a host keeps it.
func leavesOf(t testing.TB, log []ledger.Message) (leaves [][]byte) {
	t.Helper()
	for _, m := range log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			leaves = append(leaves, ledger.AppendLeaf(nil, "t", m, 0, 0, 0, m.Data))
		}
		for _, e := range entries {
			leaves = append(leaves, ledger.AppendLeaf(nil, "t", m, e.Address.Index, e.Count, e.Reader, e.Body))
		}
	}
	return leaves
}

func rootOf(leaves [][]byte) ledger.Hash {
	var tree bundle.Tree
	for _, l := range leaves {
		tree.Append(ledger.LeafHash(l))
	}
	return tree.Root()
}

func head(leaves [][]byte) ledger.Checkpoint {
	return ledger.Checkpoint{Origin: ledger.Origin("t"), Size: uint64(len(leaves)), Root: rootOf(leaves)}
}

// packed is a whole bundle of leaves with checkpoints at its end.
func packed(t testing.TB, leaves [][]byte, notes ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := bundle.NewWriter(&out, bundle.Header{Tenant: "t", Holds: bundle.Whole})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leaves {
		if err := w.Record(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range notes {
		if err := w.Checkpoint(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(rootOf(leaves)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// commit is one message of a ledger that is forged.
type commit struct {
	message ledger.Message
	records []*pb.Record // none: not to be changed
	emptied bool         // all were taken away
}

// forger has a golden ledger, and what it makes of it.
type forger struct {
	t      testing.TB
	log    []*commit
	places map[*pb.Record][2]uint64 // as they were
	moved  map[[2]uint64]*pb.Record // what references to a record lead to instead
	atRest bool
}

func forge(t testing.TB, golden string) *forger {
	f := &forger{t: t, places: map[*pb.Record][2]uint64{}, moved: map[[2]uint64]*pb.Record{}}
	for _, m := range readGolden(t, golden) {
		c := &commit{message: m}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Record != nil && m.ContentType == "" && e.Count > 0 {
				c.records = append(c.records, e.Record)
				f.places[e.Record] = [2]uint64{m.Sequence, uint64(e.Address.Index)}
			}
		}
		if len(c.records) != len(entries) {
			c.records = nil
		}
		f.log = append(f.log, c)
	}
	return f
}

func (f *forger) at(sequence uint64) *commit { return f.log[sequence-1] }

// record is the one at a place.
func (f *forger) record(sequence uint64, index int) *pb.Record { return f.at(sequence).records[index] }

// drop takes a record away, and its message with the last one.
func (f *forger) drop(sequence uint64, indexes ...int) {
	c := f.at(sequence)
	var kept []*pb.Record
	for i, r := range c.records {
		if !slices.Contains(indexes, i) {
			kept = append(kept, r)
		}
	}
	c.records, c.emptied = kept, len(kept) == 0
}

// instead lets all references to a record lead to another one.
func (f *forger) instead(sequence uint64, index int, to uint64, at int) {
	f.moved[[2]uint64{sequence, uint64(index)}] = f.record(to, at)
}

// insert puts a commit before a sequence, with the stamp of that or of the last one.
func (f *forger) insert(sequence uint64, subject string, records ...*pb.Record) {
	stamp := f.log[min(int(sequence), len(f.log))-1].message.StampNs
	c := &commit{message: ledger.Message{Subject: subject, StampNs: stamp}, records: records}
	f.log = slices.Insert(f.log, int(sequence)-1, c)
}

func (f *forger) append(subject string, records ...*pb.Record) {
	f.insert(uint64(len(f.log)+1), subject, records...)
}

// messages writes the ledger anew: sequences without a gap, and every reference to a
// record that is still there leads to where it is now.
func (f *forger) messages() (log []ledger.Message) {
	f.t.Helper()
	byPlace := maps.Clone(f.moved)
	for _, c := range f.log {
		for _, r := range c.records {
			if at, ok := f.places[r]; ok {
				byPlace[at] = r
			}
		}
	}
	now := map[*pb.Record]*pb.Address{}
	for _, c := range f.log {
		if c.emptied {
			continue
		}
		m := c.message
		m.Sequence = uint64(len(log) + 1)
		if len(c.records) > 0 {
			for _, r := range c.records {
				relink(r.ProtoReflect(), byPlace, now)
			}
			var err error
			if m.Data, err = ledger.EncodeCommit(c.records); err != nil {
				f.t.Fatal(err)
			}
		}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			f.t.Fatal(err)
		}
		for i, r := range c.records {
			if i < len(entries) {
				now[r] = entries[i].Address
			}
		}
		log = append(log, m)
	}
	return log
}

// relink lets the addresses of a message that lead to a record lead to where it is now.
func relink(m protoreflect.Message, byPlace map[[2]uint64]*pb.Record, now map[*pb.Record]*pb.Address) {
	if a, ok := m.Interface().(*pb.Address); ok {
		if r := byPlace[[2]uint64{a.Sequence, uint64(a.Index)}]; r != nil && now[r] != nil && len(a.Leaf) > 0 {
			a.Sequence, a.Index, a.Leaf = now[r].Sequence, now[r].Index, now[r].Leaf
		}
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				relink(v.List().Get(i).Message(), byPlace, now)
			}
		case fd.Message() != nil && !fd.IsMap():
			relink(v.Message(), byPlace, now)
		}
		return true
	})
}

package verify_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// kept is what a tampered bundle is made of: the honest leaves and their signature, by
// a key that whoever tampers does not have.
type kept struct {
	t        testing.TB
	leaves   [][]byte
	messages []ledger.Message
	note     string
	other    signer
	before   string // given to the verifier
	key      signer
}

// without leaves leaves out.
func (k *kept) without(at int) [][]byte { return slices.Delete(slices.Clone(k.leaves), at, at+1) }

// changed has one message changed and all else as it was.
func (k *kept) changed(sequence uint64, change func(m *ledger.Message)) [][]byte {
	log := slices.Clone(k.messages)
	log[sequence-1].Data = bytes.Clone(log[sequence-1].Data)
	change(&log[sequence-1])
	return leavesOf(k.t, log)
}

func (k *kept) packed(leaves [][]byte, notes ...string) []byte {
	if notes == nil {
		notes = []string{k.note}
	}
	return packed(k.t, leaves, notes...)
}

// tamperings are bundles of the golden ledger S100-1 of which bytes were changed by
// somebody without the key.
var tamperings = []struct {
	name, rule string
	sequence   uint64 // it is in what the finding names
	make       func(k *kept) []byte
}{
	{"a bit of a record", "I2", 4, func(k *kept) []byte {
		return k.packed(k.changed(4, func(m *ledger.Message) { m.Data[len(m.Data)-4] ^= 1 }))
	}},
	{"a stamp", "I2", 6, func(k *kept) []byte {
		return k.packed(k.changed(6,
			func(m *ledger.Message) { m.StampNs++ }))
	}},
	{"a subject", "I2", 17, func(k *kept) []byte {
		return k.packed(k.changed(17, func(m *ledger.Message) { m.Subject = "saga.t.operator.mallory" }))
	}},
	{"a record that was dropped", "I3", 11, func(k *kept) []byte { return k.packed(k.without(17)) }},
	{"a message that was dropped", "I1", 7,
		func(k *kept) []byte { return k.packed(slices.Delete(slices.Clone(k.leaves), 7, 8)) }},
	{"a message that was dropped, and the others moved up", "I6", 9, func(k *kept) []byte {
		log := slices.Delete(slices.Clone(k.messages), 8, 9)
		for i := range log {
			log[i].Sequence = uint64(i + 1)
		}
		return k.packed(leavesOf(k.t, log))
	}},
	{"a message that was put in", "I1", 9, func(k *kept) []byte {
		extra := leavesOf(k.t, k.messages[8:9])
		return k.packed(slices.Insert(slices.Clone(k.leaves), 12, extra...))
	}},
	{"a message that is there twice, renumbered", "I2", 4, func(k *kept) []byte {
		log := slices.Insert(slices.Clone(k.messages), 4, k.messages[3])
		for i := range log {
			log[i].Sequence = uint64(i + 1)
		}
		return k.packed(leavesOf(k.t, log))
	}},
	{"two messages in the other order", "I1", 17, func(k *kept) []byte {
		log := slices.Clone(k.messages)
		log[16], log[15] = log[15], log[16]
		return k.packed(leavesOf(k.t, log))
	}},
	{"two records in the other order", "I3", 10, func(k *kept) []byte {
		l := slices.Clone(k.leaves)
		l[13], l[14] = l[14], l[13]
		return k.packed(l)
	}},
	{"another tenant's leaf", "I27", 13, func(k *kept) []byte {
		l := slices.Clone(k.leaves)
		m := k.messages[12]
		entries, err := ledger.Decode("t", m)
		if err != nil {
			k.t.Fatal(err)
		}
		for i, leaf := range l {
			if bytes.Equal(leaf, ledger.AppendLeaf(nil, "t", m, 0, 1, entries[0].Reader, entries[0].Body)) {
				l[i] = ledger.AppendLeaf(nil, "u", m, 0, 1, entries[0].Reader, entries[0].Body)
			}
		}
		return k.packed(l)
	}},
	{"leaf data that is none", "format", 21, func(k *kept) []byte {
		l := slices.Clone(k.leaves)
		l[len(l)-1] = []byte("sagenbaum/leaf/v2\n")
		return k.packed(l)
	}},
	{"signed again by a foreign key", "I2", 20,
		func(k *kept) []byte { return k.packed(k.leaves, k.other.sign(k.t, head(k.leaves))) }},
	{"a lie signed by a foreign key", "I2", 20, func(k *kept) []byte {
		l := k.changed(17, func(m *ledger.Message) { m.Subject = "saga.t.operator.mallory" })
		return k.packed(l, k.other.sign(k.t, head(l)))
	}},
	{"a signature that is broken", "I2", 20, func(k *kept) []byte {
		at := strings.LastIndex(k.note, " ") + 8
		c := byte('A')
		if k.note[at] == c {
			c = 'B'
		}
		return k.packed(k.leaves, k.note[:at]+string(c)+k.note[at+1:])
	}},
	{"a checkpoint of another size", "I2", 20, func(k *kept) []byte {
		return k.packed(k.leaves, strings.Replace(k.note, "\n36\n", "\n35\n", 1))
	}},
	{"a checkpoint of another ledger", "I2", 20, func(k *kept) []byte {
		s := newSigner(k.t, "u", 3)
		return k.packed(k.leaves, s.sign(k.t, ledger.Checkpoint{Origin: ledger.Origin("u"), Size: uint64(len(k.leaves)),
			Root: rootOf(k.leaves)}))
	}},
	{"a checkpoint of more records than there are", "I2", 20, func(k *kept) []byte {
		c := head(k.leaves)
		c.Size++
		return k.packed(k.leaves, k.key.sign(k.t, c))
	}},
	{"a checkpoint that is no text", "I2", 20, func(k *kept) []byte { return k.packed(k.leaves, "trust me") }},
	{"truncated, with the signature of what is left", "I2", 13, func(k *kept) []byte {
		l := k.leaves[:20]
		k.before = k.note
		return k.packed(l, k.key.sign(k.t, head(l)))
	}},
	{"a fork", "I2", 9, func(k *kept) []byte {
		l := k.changed(9, func(m *ledger.Message) { m.StampNs += 5 })
		k.before = k.note
		return k.packed(l, k.key.sign(k.t, head(l)))
	}},
	{"a fork behind the kept checkpoint's beginning, grown longer", "I2", 2, func(k *kept) []byte {
		k.before = k.key.sign(k.t, ledger.Checkpoint{Origin: ledger.Origin("t"), Size: 3, Root: rootOf(k.leaves[1:4])})
		return k.packed(k.leaves)
	}},
	{"a byte of the file", "format", 1, func(k *kept) []byte {
		data := k.packed(k.leaves)
		data[len(data)/3] ^= 4
		return data
	}},
	{"a file that claims another tenant", "I27", 1, func(k *kept) []byte {
		var out bytes.Buffer
		w, err := bundle.NewWriter(&out, bundle.Header{Tenant: "u", Holds: bundle.Whole})
		if err != nil {
			k.t.Fatal(err)
		}
		k.key = newSigner(k.t, "u", 1)
		for _, l := range k.leaves {
			if err := w.Record(l); err != nil {
				k.t.Fatal(err)
			}
		}
		if err := w.End(rootOf(k.leaves)); err != nil {
			k.t.Fatal(err)
		}
		return out.Bytes()
	}},
	{"a record that is withheld from the whole", "format", 4, func(k *kept) []byte {
		var out bytes.Buffer
		w, err := bundle.NewWriter(&out, bundle.Header{Tenant: "t", Holds: bundle.Whole})
		if err != nil {
			k.t.Fatal(err)
		}
		for i, l := range k.leaves {
			if i == 4 {
				err = w.Withhold(bundle.Node{Hash: ledger.LeafHash(l)})
			} else {
				err = w.Record(l)
			}
			if err != nil {
				k.t.Fatal(err)
			}
		}
		if err := w.Checkpoint(k.note); err != nil {
			k.t.Fatal(err)
		}
		if err := w.End(rootOf(k.leaves)); err != nil {
			k.t.Fatal(err)
		}
		return out.Bytes()
	}},
	{"an end of another root", "format", 20, func(k *kept) []byte {
		var out bytes.Buffer
		w, err := bundle.NewWriter(&out, bundle.Header{Tenant: "t", Holds: bundle.Whole})
		if err != nil {
			k.t.Fatal(err)
		}
		for _, l := range k.leaves {
			if err := w.Record(l); err != nil {
				k.t.Fatal(err)
			}
		}
		if err := w.End(rootOf(k.leaves[1:])); err != nil {
			k.t.Fatal(err)
		}
		return out.Bytes()
	}},
	{"a format that never was", "format", 1, func(k *kept) []byte {
		return append([]byte("sagenbaum/bundle/v0\n"), k.packed(k.leaves)[20:]...)
	}},
	{"something behind its end", "format", 21, func(k *kept) []byte { return append(k.packed(k.leaves), 'R') }},
}

// TestEveryTamperingIsNamed: without the key nothing can be changed unseen, and the
// verifier says by which rule and where.
func TestEveryTamperingIsNamed(t *testing.T) {
	if n := len(tamperings) + len(lies); n < 60 {
		t.Fatalf("%d forgeries", n)
	}
	for _, c := range tamperings {
		t.Run(c.name, func(t *testing.T) {
			log := readGolden(t, "cancelled")
			key := newSigner(t, "t", 1)
			k := &kept{t: t, leaves: leavesOf(t, log), messages: log, other: newSigner(t, "t", 2), key: key}
			k.note = key.sign(t, head(k.leaves))
			data := c.make(k)
			r := checked(t, data, verify.Options{Keys: []string{k.key.key}, Before: k.before})
			named := slices.ContainsFunc(r.Findings, func(f verify.Finding) bool {
				return f.Rule == c.rule && f.Sequence <= c.sequence && c.sequence <= max(f.Through, f.Sequence)
			})
			if r.Verdict != verify.Found || r.Exit() != 1 || !named {
				t.Fatalf("%s, %s; want %s at %d", r.Verdict, told(r), c.rule, c.sequence)
			}
		})
	}
}

// TestWhatIsNotProvenIsSaid: bundles with nothing wrong in them that prove less than
// everything, and say so.
func TestWhatIsNotProvenIsSaid(t *testing.T) {
	leaves := leavesOf(t, readGolden(t, "cancelled"))
	key, other := newSigner(t, "t", 1), newSigner(t, "t", 2)
	note := key.sign(t, head(leaves))
	whole := packed(t, leaves, note)
	given := verify.Options{Keys: []string{key.key}}
	newer := leavesOf(t, []ledger.Message{{Sequence: 1, Subject: "saga.t.executor", Data: []byte{1 << 3, 99}}})
	early := key.sign(t, head(leaves[:9]))
	for _, c := range []struct {
		name string
		data []byte
		o    verify.Options
		want string
	}{
		{"no key", whole, verify.Options{}, "no key was given"},
		{"no checkpoint", packed(t, leaves), given, "no checkpoint is signed"},
		{"a checkpoint of the beginning", packed(t, leaves, early), given, "covers 9 of 36"},
		{"cut off", whole[:len(whole)-60], given, "cut off"},
		{"cut off at once", whole[:30], given, "cut off"},
		{"the end of what was under way", packed(t, leaves[:18], key.sign(t, head(leaves[:18]))), given,
			"still unwinds"},
		{"a newer version", packed(t, newer), given, "nothing from here on is checked"},
		{"a newer format", []byte("sagenbaum/bundle/v2\n" + string(whole[20:])), given, "a newer version"},
		{"one much newer", []byte("sagenbaum/bundle/v10\nH"), given, "a newer version"},
		{"nothing that is signed", packed(t, nil, key.sign(t, head(nil))), given, "it has no record"},
		{"nothing that was nothing before", packed(t, nil, key.sign(t, head(nil))),
			verify.Options{Keys: []string{key.key}, Before: key.sign(t, head(nil))}, "it has no record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := checked(t, c.data, c.o)
			if r.Verdict != verify.CannotTell || r.Exit() != 2 || len(r.Findings) > 0 ||
				!strings.Contains(told(r), c.want) {
				t.Fatalf("%s, %s; want %q", r.Verdict, told(r), c.want)
			}
		})
	}
	// A bundle from before a rotation, and one that a forger has signed, are the same to whoever has
	// another key: it is a finding, which says what to look at.
	r := checked(t, packed(t, leaves, note), verify.Options{Keys: []string{other.key}})
	if text := told(r); r.Verdict != verify.Found || !strings.Contains(text, "signed by "+idOf(key)+" as it says") ||
		!strings.Contains(text, "in force is "+idOf(other)) || !strings.Contains(text, "the key from before") {
		t.Fatalf("by another key: %s %s", r.Verdict, told(r))
	}
	if r := checked(t, packed(t, leaves, note, other.sign(t, head(leaves))), given); r.Verdict != verify.Found ||
		strings.Contains(told(r), "the key from before") {
		t.Fatalf("one of two by another key: %s %s", r.Verdict, told(r))
	}
	if _, err := verify.Check(bytes.NewReader(whole), verify.Options{Keys: []string{"no key"}}); err == nil {
		t.Fatal("no key is taken for one")
	}
	if _, err := verify.Check(bytes.NewReader(whole), verify.Options{Before: "no checkpoint"}); err == nil {
		t.Fatal("no checkpoint is taken for one")
	}
}

func idOf(s signer) string { return fmt.Sprintf("%s+%08x", s.Name(), s.KeyHash()) }

// oddities are what golden ledgers hold that no honest system writes: they were made to
// show that a fold survives it, or an earlier version took an effect for absent that
// could still land, or held a pair with an expression that can never be carried out.
var oddities = map[string][]string{
	"C1-1":                 {"I6 at 58", "I6 at 59", "I6 at 60", "I6 at 64", "I23 at 67", "I6 at 68"},
	"S100-1":               {"I29 at 18", "I20 at 19", "I18 at 20"},
	"clock-and-checkpoint": {"I29 at 9", "I18 at 10", "I18 at 11"},
	"nothing-that-is-read": {"I27 at 9", "I27 at 9", "I4 at 12"},
	"repaired":             {"I1 at 5", "I1 at 6"},
}

// falseRoots is a golden ledger of made-up checkpoints and rotations: each is a finding.
const falseRoots = "signed"

// TestNoGoldenLedgerRaisesAFalseAlarm: every one is proven, or says why it cannot be;
// with a checkpoint kept from each earlier size.
func TestNoGoldenLedgerRaisesAFalseAlarm(t *testing.T) {
	key := newSigner(t, "t", 1)
	proven := 0
	for _, name := range goldenNames(t) {
		leaves := leavesOf(t, readGolden(t, name))
		for size := range len(leaves) + 1 {
			before := key.sign(t, head(leaves[:size]))
			r := checked(t, packed(t, leaves, key.sign(t, head(leaves))),
				verify.Options{Keys: []string{key.key}, Before: before})
			var found []string
			for _, f := range r.Findings {
				if f.Rule == "I2" && name == falseRoots {
					continue
				}
				found = append(found, ruleAt(f))
			}
			if name == falseRoots && r.Verdict != verify.Found {
				t.Fatalf("made-up roots are believed: %s", told(r))
			}
			if !slices.Equal(found, oddities[name]) || !r.Kept.Holds {
				t.Fatalf("%s: %s %s", name, r.Verdict, told(r))
			}
			if r.Verdict == verify.Proven {
				proven++
			}
		}
	}
	if proven < 100 {
		t.Fatalf("%d proven", proven)
	}
}

func ruleAt(f verify.Finding) string { return f.Rule + " at " + strconv.FormatUint(f.Sequence, 10) }

// TestKeysAreRotatedInTheLedger: a key is followed to the next by its own signature,
// and by no other.
func TestKeysAreRotatedInTheLedger(t *testing.T) {
	one, two, three := newSigner(t, "t", 1), newSigner(t, "t", 2), newSigner(t, "t", 3)
	build := func(signed, next signer, forgetful bool) []byte {
		f := forge(t, "E6-1")
		size := uint64(len(leavesOf(t, f.messages())))
		k := &pb.KeyRotated{OldKey: one.key, NewKey: next.key, Size: size, Reason: "yearly", Actor: "ops"}
		if !forgetful {
			n := []byte(ledger.RotationText("t", k))
			k.Signature, _ = signed.Sign(n)
		}
		f.append("saga.t.executor", &pb.Record{Term: 1, EpochNs: f.at(8).message.StampNs,
			Kind: &pb.Record_KeyRotated{KeyRotated: k}})
		leaves := leavesOf(t, f.messages())
		return packed(t, leaves, next.sign(t, head(leaves)))
	}
	for _, c := range []struct {
		name    string
		data    []byte
		keys    []string
		verdict string
	}{
		{"signed by the old key", build(one, two, false), []string{one.key}, verify.Proven},
		{"the new key given", build(one, two, false), []string{two.key}, verify.Proven},
		{"signed by another", build(three, two, false), []string{one.key}, verify.Found},
		{"not signed", build(three, two, true), []string{one.key}, verify.Found},
		{"not signed, and the new key given as well", build(three, two, true), []string{one.key, two.key},
			verify.Proven},
		{"neither key", build(one, two, false), []string{three.key}, verify.Found},
	} {
		if r := checked(t, c.data, verify.Options{Keys: c.keys}); r.Verdict != c.verdict {
			t.Errorf("%s: %s %s", c.name, r.Verdict, told(r))
		}
	}
}

// TestRecordedCheckpointsAreHeldAgainstTheRecordsBeforeThem also where the bundle itself
// brings none along.
func TestRecordedCheckpointsAreHeldAgainstTheRecordsBeforeThem(t *testing.T) {
	key := newSigner(t, "t", 1)
	with := func(change func(k *pb.CheckpointSigned)) *verify.Report {
		f := forge(t, "cancelled")
		leaves := leavesOf(t, f.messages())
		c := head(leaves[:20])
		k := &pb.CheckpointSigned{Size: c.Size, Root: c.Root[:], Note: key.sign(t, c)}
		if change != nil {
			change(k)
		}
		f.append("saga.t.executor", &pb.Record{Term: 1, EpochNs: f.at(20).message.StampNs,
			Kind: &pb.Record_CheckpointSigned{CheckpointSigned: k}})
		return checked(t, packed(t, leavesOf(t, f.messages())), verify.Options{Keys: []string{key.key}})
	}
	if r := with(nil); r.Verdict != verify.CannotTell || r.Signed.Size != 20 || r.Signed.Through != 12 ||
		!strings.Contains(told(r), "covers 20 of 37") {
		t.Fatalf("%s %+v %s", r.Verdict, r.Signed, told(r))
	}
	f := forge(t, "cancelled")
	for _, size := range []int{20, 12, 17} { // as a snapshot's digest is signed behind later ones
		c := head(leavesOf(t, f.messages())[:size])
		f.append("saga.t.executor", &pb.Record{Term: 1, EpochNs: f.at(20).message.StampNs,
			Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{
				Size: c.Size, Root: c.Root[:], Note: key.sign(t, c)}}})
	}
	leaves := leavesOf(t, f.messages())
	if r := checked(t, packed(t, leaves, key.sign(t, head(leaves))),
		verify.Options{Keys: []string{key.key}}); r.Verdict != verify.Proven || r.Signed.Checkpoints != 4 {
		t.Errorf("smaller checkpoints behind a larger one: %s %s", r.Verdict, told(r))
	}
	for name, change := range map[string]func(k *pb.CheckpointSigned){
		"another root": func(k *pb.CheckpointSigned) { k.Root = make([]byte, 32) },
		"another size": func(k *pb.CheckpointSigned) { k.Size = 19 },
		"a root that never was": func(k *pb.CheckpointSigned) {
			c := ledger.Checkpoint{Origin: ledger.Origin("t"), Size: 20, Root: ledger.Hash{1}}
			k.Root, k.Note = c.Root[:], key.sign(t, c)
		},
	} {
		if r := with(change); r.Verdict != verify.Found || r.Findings[0].Rule != "I2" {
			t.Errorf("%s: %s %s", name, r.Verdict, told(r))
		}
	}
}

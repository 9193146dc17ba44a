package verify

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// keys are those that checkpoints are signed with, by where they come into force.
type keys struct {
	tenant string
	given  []string // by the auditor, the first one first
	from   []uint64 // records after which key i of force is in force
	force  []note.Verifier
	names  []string

	strange *Finding // the first checkpoint of a key that may have been in force
	more    uint64
}

func newKeys(tenant string, given []string) (*keys, error) {
	k := &keys{tenant: tenant, given: given}
	for _, text := range given {
		if _, err := ledger.OpenKey("key", tenant, text); err != nil {
			return nil, err
		}
	}
	if len(given) > 0 {
		k.take(0, given[0])
	}
	return k, nil
}

func (k *keys) take(from uint64, text string) {
	verifier, err := ledger.OpenKey("key", k.tenant, text)
	if err != nil {
		return
	}
	k.from, k.force, k.names = append(k.from, from), append(k.force, verifier),
		append(k.names, text)
}

// at is the key in force for a tree of a size; nil: none is known.
func (k *keys) at(size uint64) (note.Verifier, string) {
	for i := len(k.from) - 1; i >= 0; i-- {
		if k.from[i] <= size {
			return k.force[i], k.names[i]
		}
	}
	return nil, ""
}

// open reads a signed checkpoint with the key in force. known is false where another
// key has signed it.
func (k *keys) open(
	text string, size uint64) (c ledger.Checkpoint, key string, known bool, err error,
) {
	verifier, key := k.at(size)
	if verifier == nil {
		body, _, _ := strings.Cut(text, "\n\n")
		c, err = ledger.ParseCheckpoint(body + "\n")
		return c, "", false, err
	}
	c, _, err = ledger.OpenCheckpoint([]byte(text), k.tenant, note.VerifierList(verifier))
	var unverified *note.UnverifiedNoteError
	if errors.As(err, &unverified) {
		c, err = ledger.ParseCheckpoint(unverified.Note.Text)
		return c, "", false, err
	}
	return c, key, err == nil, err
}

// endKeys notes the first checkpoint of a key that was not in force.
func (c *check) endKeys() {
	k := c.keys
	if k.strange == nil {
		return
	}
	f := *k.strange
	if k.more > 1 {
		f.Problem += fmt.Sprintf(", and %d more after it", k.more-1)
	}
	if c.report.Signed.Checkpoints == 0 {
		f.Problem += "; where the key was rotated after this bundle was made, check it with the " +
			"key from before: rotations are followed from the given key on, not back"
	}
	c.report.find(f)
}

// signersMax bounds the signers of a checkpoint that a finding names.
const signersMax = 3

// whose names the keys that a checkpoint says it is signed by, which nothing proves, and the one in
// force.
func (k *keys) whose(text string, size uint64) string {
	var by []string
	var unverified *note.UnverifiedNoteError
	if _, err := note.Open([]byte(text), note.VerifierList()); errors.As(err, &unverified) {
		for _, s := range unverified.Note.UnverifiedSigs[:min(signersMax,
			len(unverified.Note.UnverifiedSigs))] {
			by = append(by, fmt.Sprintf("%.80s+%08x", s.Name, s.Hash))
		}
	}
	verifier, _ := k.at(size)
	return fmt.Sprintf("it is signed by %s as it says, and in force is %s+%08x",
		strings.Join(by, " and "), verifier.Name(), verifier.KeyHash())
}

// rotated takes over a key. It is in force for trees that have the record.
func (c *check) rotated(r *pb.KeyRotated, sequence uint64) {
	k := c.keys
	if len(k.force) == 0 {
		return
	}
	bad := func(problem string) {
		c.report.find(Finding{Rule: "I2", Sequence: sequence,
			Problem: "the key of checkpoints is rotated, and " + problem})
	}
	if _, now := k.at(c.tree.Size()); r.OldKey != now {
		if r.NewKey == k.given[0] && len(k.force) == 1 && c.report.Signed.Checkpoints == 0 {
			k.strange, k.more = nil,
				0 // the given key begins here: what came before is of its forerunners
			return
		}
		if k.strange == nil {
			k.strange = &Finding{Rule: "I2", Sequence: sequence,
				Problem: "a key is rotated that was not in force"}
		}
		return
	}
	switch err := ledger.VerifyRotation(k.tenant, r); {
	case errors.Is(err, ledger.ErrKeyLost):
		for _, given := range k.given[1:] {
			if given == r.NewKey {
				c.report.Signed.Rotations = append(c.report.Signed.Rotations,
					fmt.Sprintf("at sequence %d to %s, which you gave: the old key was lost",
						sequence, r.NewKey))
				k.take(c.tree.Size(), r.NewKey)
				return
			}
		}
		c.report.doubt("signatures", sequence,
			"the key was lost and replaced by %s without its signature; give that key with --key "+
				"if you have it by a way of your own", r.NewKey)
		return
	case err != nil:
		bad(err.Error())
		return
	}
	c.report.Signed.Rotations = append(c.report.Signed.Rotations,
		fmt.Sprintf("at sequence %d to %s", sequence, r.NewKey))
	k.take(c.tree.Size(), r.NewKey)
}

// How much of the past is kept: a checkpoint that covers fewer records than there were
// pastMax to pastMax + pastStep records ago cannot be computed again.
const (
	pastMax  = 1 << 16
	pastStep = 1 << 9
)

// past is the trees of some time ago and the leaves since, for checkpoints that come
// after the records that they cover, in any order.
type past struct {
	trees  []moment      // pastStep leaves apart
	leaves []ledger.Hash // after the first of trees
	places []spot
	good   uint64 // sequence of the last record under a checkpoint that held
}

// spot is where a record is, and its stamp.
type spot struct {
	sequence uint64
	ns       int64
}

// moment is a tree as it was, and the spot of its last record.
type moment struct {
	tree    bundle.Tree
	through spot
}

// add takes a leaf; now is the tree before it, which ends at a spot.
func (p *past) add(now *bundle.Tree, through spot, leaf ledger.Hash, at spot) {
	if len(p.trees) == 0 || len(p.leaves) > 0 && len(p.leaves)%pastStep == 0 {
		p.trees = append(p.trees, moment{now.Clone(), through})
	}
	p.leaves, p.places = append(p.leaves, leaf), append(p.places, at)
	if len(p.leaves) > pastMax && len(p.trees) > 1 {
		n := p.trees[1].tree.Size() - p.trees[0].tree.Size()
		p.trees = p.trees[:copy(p.trees, p.trees[1:])]
		p.leaves = p.leaves[:copy(p.leaves, p.leaves[n:])]
		p.places = p.places[:copy(p.places, p.places[n:])]
	}
}

// reset begins again at a tree.
func (p *past) reset(now bundle.Tree, through spot) {
	p.trees, p.leaves, p.places = append(p.trees[:0], moment{now, through}), p.leaves[:0],
		p.places[:0]
}

// at is the tree of a size; false: it is too long ago, or has not come yet.
func (p *past) at(size uint64) (m moment, ok bool) {
	for _, t := range slices.Backward(p.trees) {
		if t.tree.Size() > size {
			continue
		}
		first := p.trees[0].tree.Size()
		if size > first+uint64(len(p.leaves)) {
			return moment{}, false
		}
		m = moment{t.tree.Clone(), t.through}
		for i := t.tree.Size() - first; i < size-first; i++ {
			m.tree.Append(p.leaves[i])
			m.through = p.places[i]
		}
		return m, true
	}
	return moment{}, size == 0 && len(p.trees) == 0
}

// signed holds a signed checkpoint against the tree of its size, which is past or
// present. sequence is that of its record; 0: it has none.
func (c *check) signed(text string, sequence uint64) {
	claimed, ok := Claimed(text)
	size := claimed.Size
	stands := max(sequence, c.report.Last)
	if !ok {
		c.report.find(Finding{Rule: "I2", Sequence: stands,
			Problem: "a checkpoint that cannot be read"})
		return
	}
	head, key, known, err := c.keys.open(text, size)
	switch {
	case err != nil:
		c.report.find(Finding{Rule: "I2", Sequence: stands, Problem: err.Error()})
		return
	case head.Origin != ledger.Origin(c.report.Tenant):
		c.report.find(Finding{Rule: "I2", Sequence: stands,
			Problem: fmt.Sprintf("a checkpoint of %.80q", head.Origin)})
		return
	case size > c.tree.Size():
		c.report.find(Finding{Rule: "I2", Sequence: stands,
			Problem: fmt.Sprintf("a checkpoint of %d records comes after %d", size,
				c.tree.Size())})
		return
	}
	then, kept := c.past.at(size)
	if !kept {
		c.report.doubt("a checkpoint", stands,
			"it covers %d records, and which they were is not kept so long", size)
		return
	}
	if then.tree.Root() != head.Root {
		c.report.find(Finding{Rule: "I2", Sequence: min(c.past.good+1, max(then.through.sequence, 1)),
			Through: then.through.sequence,
			Problem: fmt.Sprintf("the first %d records are not those that the checkpoint at "+
				"sequence %d was made of: one of these was changed, added, left out or moved",
				size, stands)})
		return
	}
	c.past.good = max(c.past.good, then.through.sequence)
	if !known {
		if len(c.keys.force) > 0 && c.keys.strange == nil {
			c.keys.strange = &Finding{Rule: "I2", Sequence: stands,
				Problem: "a checkpoint that no key in force has signed; " + c.keys.whose(text, size)}
		}
		c.keys.more++
		return
	}
	s := &c.report.Signed
	s.Checkpoints++
	if size >= s.Size {
		s.Size, s.Through, s.Key, s.Note = size, then.through.sequence, key, text
		s.Time = timeOf(then.through.ns)
	}
}

// Claimed is what a signed checkpoint says; its signatures are not looked at. ok is
// false for what is none.
func Claimed(text string) (c ledger.Checkpoint, ok bool) {
	body, _, ok := strings.Cut(text, "\n\n")
	if !ok {
		return c, false
	}
	c, err := ledger.ParseCheckpoint(body + "\n")
	return c, err == nil
}

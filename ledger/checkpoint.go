package ledger

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is the tree of a ledger at a size, as it is signed: the body of a C2SP
// tlog-checkpoint. Two checkpoints of one ledger that no proof of consistency joins
// say that someone has shown two histories.
//
// An auditor is given one verifier key, once, by a way of its own. The keys after it
// are in the ledger: each KeyRotated record is signed by the key that it ends
// (VerifyRotation), and the checkpoint of a size is signed by the key that is in
// force after the first so many records. So the auditor begins with the first
// known key, goes through the records in order, takes over the new key at each
// rotation that the present one has signed, and wants the signature of the present
// key on every checkpoint after it. A rotation without a signature says that the
// old key is lost: who goes on after it must have been given the new one.
type Checkpoint struct {
	Origin string // Origin of the tenant
	Size   uint64 // records
	Root   Hash
}

// Origin is the origin line of a tenant's checkpoints and the name of its keys.
func Origin(tenant string) string { return "sagenbaum/" + tenant }

// Text is the body: origin, size and root, each on a line.
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// ParseCheckpoint reads what Text writes, and nothing else: a body with further
// lines is not one of a ledger. The error is a *Refused.
func ParseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[0] == "" || lines[3] != "" {
		return Checkpoint{}, Refuse("checkpoint", fmt.Sprintf("%d lines", len(lines)-1),
			"origin, size and root, each on a line")
	}
	size, err := strconv.ParseUint(lines[1], 10, 63)
	if err != nil || strconv.FormatUint(size, 10) != lines[1] {
		return Checkpoint{}, Refuse("checkpoint.size", strconv.Quote(lines[1]),
			"a decimal number below 2^63")
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != LeafSize {
		return Checkpoint{}, Refuse("checkpoint.root", strconv.Quote(lines[2]), "32 bytes in base64")
	}
	return Checkpoint{lines[0], size, Hash(root)}, nil
}

// OpenCheckpoint reads a signed checkpoint of a tenant. A key of the tenant among
// verifiers must have signed it; the signatures are all that verifiers know, those
// of witnesses too. One that does not verify, of a key that is known, is an error.
func OpenCheckpoint(msg []byte, tenant string, verifiers note.Verifiers) (Checkpoint,
	[]note.Signature, error) {
	fail := func(err error) (Checkpoint, []note.Signature, error) {
		return Checkpoint{}, nil, fmt.Errorf("cannot open the checkpoint of tenant %s: %w", tenant, err)
	}
	n, err := note.Open(msg, verifiers)
	if err != nil {
		return fail(err)
	}
	c, err := ParseCheckpoint(n.Text)
	if err != nil {
		return fail(err)
	}
	origin := Origin(tenant)
	if c.Origin != origin {
		return fail(Refuse("checkpoint.origin", strconv.Quote(c.Origin), strconv.Quote(origin)))
	}
	if !slices.ContainsFunc(n.Sigs, func(s note.Signature) bool { return s.Name == origin }) {
		return fail(Refuse("checkpoint.signatures", "none of a key of the tenant",
			"one of the key "+origin))
	}
	return c, n.Sigs, nil
}

func emptyRoot() Hash { return sha256.Sum256(nil) }

// errTooLarge is what a proof over more leaves than an int64 counts gives.
var errTooLarge = errors.New("a tree has fewer than 2^63 leaves")

// VerifyInclusion checks that a leaf is at an index of the tree of a size with this
// root: the audit path of RFC 6962, section 2.1.1.
func VerifyInclusion(leaf Hash, index, size uint64, proof []Hash, root Hash) error {
	if size > math.MaxInt64 || index >= size {
		return fmt.Errorf("cannot verify the inclusion of record %d in %d records: %w", index, size,
			errTooLarge)
	}
	if err := tlog.CheckRecord(toTlog(proof), int64(size), tlog.Hash(root), int64(index),
		tlog.Hash(leaf)); err != nil {
		return fmt.Errorf("cannot verify the inclusion of record %d in %d records: %w", index, size, err)
	}
	return nil
}

// VerifyConsistency checks that the first size1 leaves of the tree with root2 are
// the tree with root1: the proof of RFC 6962, section 2.1.2. It is empty where the
// sizes are equal, and where size1 is 0.
func VerifyConsistency(size1, size2 uint64, proof []Hash, root1, root2 Hash) error {
	err := error(nil)
	switch {
	case size2 > math.MaxInt64:
		err = errTooLarge
	case size1 > size2:
		err = errors.New("the later tree is the smaller one")
	case size1 == 0 && (len(proof) > 0 || root1 != emptyRoot()):
		err = errors.New("the empty tree has one root, and needs no proof")
	case size1 > 0:
		err = tlog.CheckTree(toTlog(proof), int64(size2), tlog.Hash(root2), int64(size1),
			tlog.Hash(root1))
	}
	if err != nil {
		return fmt.Errorf("cannot verify that %d records grew to %d: %w", size1, size2, err)
	}
	return nil
}

// Prover makes proofs from the hashes of a tree. Read gives the root of the index-th
// perfect subtree of 2^level leaves.
type Prover struct {
	Read func(level int, index uint64) (Hash, error)
}

// Inclusion proves that the leaf at an index is in the tree of a size.
func (p Prover) Inclusion(index, size uint64) ([]Hash, error) {
	if size > math.MaxInt64 || index >= size {
		return nil, fmt.Errorf("cannot prove the inclusion of record %d in %d records: %w", index, size,
			errTooLarge)
	}
	proof, err := tlog.ProveRecord(int64(size), int64(index), p)
	if err != nil {
		return nil, fmt.Errorf("cannot prove the inclusion of record %d in %d records: %w", index, size,
			err)
	}
	return fromTlog(proof), nil
}

// Consistency proves that the tree of size1 leaves grew to the one of size2.
func (p Prover) Consistency(size1, size2 uint64) ([]Hash, error) {
	if size2 > math.MaxInt64 || size1 > size2 {
		return nil, fmt.Errorf("cannot prove that %d records grew to %d: %w", size1, size2, errTooLarge)
	}
	if size1 == 0 {
		return nil, nil
	}
	proof, err := tlog.ProveTree(int64(size2), int64(size1), p)
	if err != nil {
		return nil, fmt.Errorf("cannot prove that %d records grew to %d: %w", size1, size2, err)
	}
	return fromTlog(proof), nil
}

// Root is the root of the tree of a size.
func (p Prover) Root(size uint64) (Hash, error) {
	if size > math.MaxInt64 {
		return Hash{}, fmt.Errorf("cannot read the root of %d records: %w", size, errTooLarge)
	}
	if size == 0 {
		return emptyRoot(), nil
	}
	root, err := tlog.TreeHash(int64(size), p)
	if err != nil {
		return Hash{}, fmt.Errorf("cannot read the root of %d records: %w", size, err)
	}
	return Hash(root), nil
}

// ReadHashes is what tlog reads with.
func (p Prover) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		level, n := tlog.SplitStoredHashIndex(at)
		h, err := p.Read(level, uint64(n))
		if err != nil {
			return nil, err
		}
		hashes[i] = tlog.Hash(h)
	}
	return hashes, nil
}

func toTlog(hashes []Hash) []tlog.Hash {
	out := make([]tlog.Hash, len(hashes))
	for i, h := range hashes {
		out[i] = tlog.Hash(h)
	}
	return out
}

func fromTlog(hashes []tlog.Hash) []Hash {
	out := make([]Hash, len(hashes))
	for i, h := range hashes {
		out[i] = Hash(h)
	}
	return out
}

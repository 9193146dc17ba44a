package proof

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// signed is what became of a tree that was to be signed.
type signed struct {
	checkpoint ledger.Checkpoint
	note       []byte
	digest     []byte
	key        string      // verifier key
	tree       *tiles.Tree // of so many records, or more
	err        error
	noKey      bool // the key to sign with is not here, or cannot be used
}

// errForked says that a tree is no extension of one that was signed.
var errForked = errors.New("the ledger is not the one that was signed")

// signJob is one tree that is to be signed.
type signJob struct {
	tenant string
	keys   string               // folder of all tenants' keys
	named  string               // key in force, as the ledger names it
	last   *pb.CheckpointSigned // largest in the ledger
	tree   *tiles.Tree
	digest *stateDigest // nil: the whole tree is signed, and published
	file   *sync.Mutex
	log    *slog.Logger
}

func (j signJob) sign() (r signed, err error) {
	key, err := inForce(j.keys, j.tenant, j.named, lastNote(j.last))
	if errors.Is(err, errNoKey) {
		if key, err = NewKey(j.keys, j.tenant); err == nil {
			j.log.Warn("the tenant's first key was made: give auditors this verifier key", "key",
				key.Verifier, "file", key.Path)
		}
	}
	if err != nil {
		r.noKey = errors.Is(err, fs.ErrNotExist)
		return r, err
	}
	signer, err := key.Signer()
	if err != nil {
		r.noKey = !errors.As(err, new(*ledger.Refused)) // it is here, and others may read it
		return r, err
	}
	r.key, r.tree = key.Verifier, j.tree
	r.checkpoint = ledger.Checkpoint{Origin: ledger.Origin(j.tenant), Size: j.tree.Edge.Size(),
		Root: j.tree.Edge.Root()}
	if j.digest != nil {
		r.digest, r.checkpoint.Size = j.digest.digest, j.digest.records
		if r.checkpoint.Root, err = j.tree.Prover().Root(r.checkpoint.Size); err != nil {
			return r, err
		}
	}
	file, text, err := j.tree.Files.ReadCheckpoint()
	if err != nil {
		return r, err
	}
	last := ledger.Checkpoint{Size: j.last.GetSize()}
	copy(last.Root[:], j.last.GetRoot())
	for _, before := range [...]ledger.Checkpoint{last, file} {
		if err := j.extends(before, r.checkpoint); err != nil {
			return r, err
		}
	}
	if j.digest == nil && file.Size > last.Size && ledger.SignedBy(text, j.tenant, key.Verifier) {
		r.checkpoint, r.note = file, text // signed before, and never said in the ledger
		return r, nil
	}
	if r.note, err = note.Sign(&note.Note{Text: r.checkpoint.Text()}, signer); err != nil ||
		j.digest != nil {
		return r, err
	}
	return r, j.publish(r)
}

func lastNote(k *pb.CheckpointSigned) []byte {
	if k == nil {
		return nil
	}
	return []byte(k.Note)
}

// extends checks that of two checkpoints the larger is an extension of the smaller.
func (j signJob) extends(one, other ledger.Checkpoint) error {
	if one.Size > other.Size {
		one, other = other, one
	}
	if one.Size == 0 {
		return nil
	}
	if other.Size > j.tree.Edge.Size() {
		return fmt.Errorf("%w: a checkpoint of %d records was signed, and the ledger has %d", errForked,
			other.Size, j.tree.Edge.Size())
	}
	proof, err := j.tree.Prover().Consistency(one.Size, other.Size)
	if err != nil {
		return err
	}
	if err := ledger.VerifyConsistency(one.Size, other.Size, proof, one.Root, other.Root); err != nil {
		return fmt.Errorf("%w: %w", errForked, err)
	}
	return nil
}

// publish writes the checkpoint where tlog-tiles has it, when its tree is on disk: no
// checkpoint is shown to others that this host could not prove after a power cut.
func (j signJob) publish(r signed) error {
	files := j.tree.Files
	if err := files.Sync(); err != nil {
		return err
	}
	j.file.Lock()
	defer j.file.Unlock()
	return store.WriteSynced(files.Path(tiles.CheckpointName), r.note)
}

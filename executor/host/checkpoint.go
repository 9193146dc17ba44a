package host

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Names beside the tiles.
const (
	signingFile = "signing.new" // partial tiles of a checkpoint, while they are written
)

// signing signs a tenant's checkpoints, while this host holds the tenant: each tree
// that is to be signed is taken at the end of a turn, and checked, signed and written
// on a goroutine of its own, one at a time. Nothing waits for it. Then a record says
// it; a checkpoint's own record asks for no other.
//
// A tree is signed only if it is an extension of every checkpoint that is known to
// have been signed: the largest in the ledger, and the one in the file, which may be
// ahead of it where this host died in between. Then the record is appended late.
type signing struct {
	since   time.Time // when the first record came that no checkpoint covers; zero: none
	size    uint64    // of the last checkpoint
	retry   time.Time // nothing is signed before
	busy    bool
	covered time.Time   // since, of the tree that is being signed
	tree    uint64      // its size
	results chan signed // buffered 1
	timer   *time.Timer
	running sync.WaitGroup

	ready  *signed        // to be appended
	said   uint64         // size of the one whose record is on its way; 0: none is
	digest *stateDigest   // of a snapshot, to be signed
	floor  uint64         // records up to the last rotation: what is smaller the old key has signed
	rotate *rotationAsked // under way

	mu    sync.Mutex // guards all below, and the file
	shown view.Checkpoint
}

// stateDigest is the digest of the state that was folded from the first records.
type stateDigest struct {
	records uint64
	digest  []byte
}

// signed is what became of a tree that was to be signed.
type signed struct {
	checkpoint ledger.Checkpoint
	note       []byte
	digest     []byte
	key        string      // verifier key
	tree       *tiles.Tree // of so many records, or more
	err        error
}

// view is what a host adds to what the ledger says of checkpoints.
func (s *signing) view(v view.Checkpoint) view.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Key, v.Problem, v.Alarm = s.shown.Key, s.shown.Problem, s.shown.Alarm
	v.Witness, v.Cosigned, v.Away, v.WitnessAlarm = s.shown.Witness, s.shown.Cosigned, s.shown.Away,
		s.shown.WitnessAlarm
	return v
}

// errForked says that a tree is no extension of one that was signed.
var errForked = errors.New("the ledger is not the one that was signed")

// openSigning finds out, at the start of a session, what no checkpoint covers.
func (a *actor) openSigning() {
	s := &a.signing
	s.since, s.retry, s.busy, s.ready, s.said, s.digest, s.rotate = time.Time{}, time.Time{}, false,
		nil, 0, nil, nil
	s.results = make(chan signed, 1)
	row := a.state.Signed()
	s.size = row.GetSigned().GetSize()
	for leaf, err := range a.tiles.Records(s.size) {
		record := new(pb.Record)
		if err != nil || leaf.Type != "" || record.UnmarshalVT(leaf.Body) != nil ||
			record.GetCheckpointSigned() == nil {
			s.since = time.Now()
			break
		}
	}
}

// endSigning waits for the goroutines of the session, whose context has ended.
func (a *actor) endSigning() {
	s := &a.signing
	s.running.Wait()
	s.timer.Stop()
	if s.rotate != nil {
		s.rotate.answer <- view.RotationAnswer{Error: "the host let the tenant go before the rotation was folded; look at sagenbaum status"}
		s.rotate = nil
	}
}

// fenced forgets what was on its way. A checkpoint that did not reach the ledger is
// in the file, and a rotation is sent again in the next term.
func (s *signing) fenced() {
	s.said = 0
	if s.rotate != nil {
		s.rotate.sent = false
	}
}

// noteSigned follows what the ledger says of checkpoints and keys.
func (a *actor) noteSigned(e ledger.Entry, result executor.Result) {
	s := &a.signing
	effective := result.Verdict == executor.Effective
	if k := e.Record.GetCheckpointSigned(); k != nil {
		if k.Size == s.said {
			s.said = 0
		}
		if effective {
			s.size = max(s.size, k.Size)
			if k.Size+1 == a.state.Meta().Records { // nothing in between
				s.since = time.Time{}
			}
		}
		return
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if k := e.Record.GetKeyRotated(); k != nil {
		if effective {
			s.floor = a.state.Meta().Records
			a.log.Warn("checkpoints are signed by another key from here on", "old", k.OldKey, "new",
				k.NewKey, "actor", k.Actor, "reason", k.Reason)
		}
		a.rotated(k, result)
	}
}

// sign begins to sign, or sets the timer to when that is due. It comes at the end of
// a turn, when all that was folded is in the tiles.
func (a *actor) sign() {
	s := &a.signing
	if !a.holding() || s.busy || s.ready != nil || s.said != 0 {
		return
	}
	now := time.Now()
	if d := s.digest; d != nil && now.After(s.retry) {
		s.digest = nil
		if d.records >= s.floor && d.records > 0 && d.records <= a.tiles.Edge.Size() {
			a.startSigning(d)
			return
		}
	}
	if s.since.IsZero() {
		return
	}
	due := s.since.Add(a.host.checkpointAfter)
	if a.tiles.Edge.Size() >= s.size+a.host.checkpointRecords {
		due = now
	}
	if s.retry.After(due) {
		due = s.retry
	}
	if due.After(now) {
		s.timer.Reset(due.Sub(now))
		return
	}
	a.startSigning(nil)
}

// signSoon lets the next checkpoint be signed at the end of this turn, for an operator who is about
// to export the ledger, and says how many records it will cover.
func (a *actor) signSoon() view.SignAnswer {
	s := &a.signing
	if !a.holding() || s.since.IsZero() {
		return view.SignAnswer{Size: max(s.size, s.tree)} // what there is, is signed or on its way
	}
	s.since = s.since.Add(-a.host.checkpointAfter)
	return view.SignAnswer{Size: a.tiles.Edge.Size()}
}

// startSigning signs the tree as it is, or that of a digest, on a goroutine that ends
// with the result.
func (a *actor) startSigning(d *stateDigest) {
	s := &a.signing
	s.busy, s.covered = true, s.since
	if s.tree = a.tiles.Edge.Size(); d == nil {
		s.since = time.Time{}
	}
	j := signJob{
		tenant: a.tenant, keys: a.host.keysRoot(), named: a.state.Key(),
		last: a.state.Signed().GetSigned(),
		tree: tiles.NewTree(a.tiles.Files, a.tiles.Edge.Clone()), digest: d, file: &s.mu,
		results: s.results, log: a.log,
	}
	s.running.Go(j.run)
}

// signedNow takes a result. What could not be signed is tried again later.
func (a *actor) signedNow(r signed) {
	s := &a.signing
	s.busy = false
	s.mu.Lock()
	was := s.shown.Problem
	s.shown.Problem, s.shown.Alarm = "", false
	if r.err != nil {
		s.shown.Problem, s.shown.Alarm = r.err.Error(), errors.Is(r.err, errForked)
	} else {
		s.shown.Key = r.key
	}
	problem := s.shown.Problem
	s.mu.Unlock()
	if r.err == nil {
		s.size, s.ready = max(s.size, r.checkpoint.Size), &r
		if was != "" {
			a.log.Info("checkpoints are signed again", "size", r.checkpoint.Size)
		}
		if r.digest != nil {
			return
		}
		if r.checkpoint.Size < s.tree { // one that was signed before: the rest is still to be
			s.since = s.covered
		}
		a.witnesses.ask(r)
		return
	}
	if !s.covered.IsZero() {
		s.since = s.covered
	}
	s.retry = time.Now().Add(a.host.checkpointRetry)
	if problem != was {
		a.log.Error("no checkpoint: the ledger goes on without", "error", r.err, "forked",
			errors.Is(r.err, errForked))
	}
}

// tellDigest leaves the digest of a snapshot to the actor of its tenant.
func (h *Host) tellDigest(tenant string, records uint64, digest []byte) {
	for _, a := range h.actors {
		if a.tenant == tenant {
			a.tellDigest(stateDigest{records, digest})
		}
	}
}

// tellDigest leaves the digest of a snapshot to be signed; a later one takes its place.
func (a *actor) tellDigest(d stateDigest) {
	select {
	case <-a.digested:
	default:
	}
	select {
	case a.digested <- d:
	default:
	}
}

// proofRecords are the records about the tree that are to be appended.
func (a *actor) proofRecords() (records []*pb.Record) {
	s := &a.signing
	if s.ready == nil && (s.rotate == nil || s.rotate.sent) {
		return nil
	}
	epochNs := a.host.clock.now().UnixNano()
	if r := s.ready; r != nil {
		s.ready, s.said = nil, r.checkpoint.Size
		records = append(records, &pb.Record{Term: a.machine.Term(), EpochNs: epochNs,
			Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{
				Size: r.checkpoint.Size, Root: r.checkpoint.Root[:], StateDigest: r.digest,
				Note: string(r.note),
			}}})
	}
	if r := s.rotate; r != nil && !r.sent {
		r.sent = true
		records = append(records, &pb.Record{Term: a.machine.Term(), EpochNs: epochNs,
			Kind: &pb.Record_KeyRotated{KeyRotated: r.record}})
	}
	return records
}

// signJob is one tree that is to be signed.
type signJob struct {
	tenant  string
	keys    string               // folder of all tenants' keys
	named   string               // key in force, as the ledger names it
	last    *pb.CheckpointSigned // largest in the ledger
	tree    *tiles.Tree
	digest  *stateDigest // nil: the whole tree is signed, and published
	file    *sync.Mutex
	results chan<- signed
	log     interface{ Warn(string, ...any) }
}

func (j signJob) run() {
	r, err := j.sign()
	r.err = err
	j.results <- r
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
		return r, err
	}
	signer, err := key.signer()
	if err != nil {
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
	return r, j.publish(r, file.Size)
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

// publish writes the checkpoint where tlog-tiles has it, its partial tiles first, and
// removes those of the one before.
func (j signJob) publish(r signed, before uint64) error {
	files := j.tree.Files
	if err := files.WritePartials(j.tree.Edge, signingFile); err != nil {
		return err
	}
	j.file.Lock()
	defer j.file.Unlock()
	if err := store.WriteSynced(files.Path(tiles.CheckpointName), r.note); err != nil {
		return err
	}
	return files.DropPartials([]uint64{before, r.checkpoint.Size}, r.checkpoint.Size)
}

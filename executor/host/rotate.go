package host

import (
	"errors"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// rotationAsked is a rotation under way: asked for by an operator, answered when its
// record is folded.
type rotationAsked struct {
	record *pb.KeyRotated
	key    Key  // the new one
	sent   bool // its record is on its way, or stored
	answer chan any
}

// rotateKey makes a new key and has the old one sign that it takes over.
func (a *actor) rotateKey(r request) {
	refuse := func(text string) { r.answer <- view.RotationAnswer{Error: text} }
	s, q := &a.signing, r.rotation
	switch {
	case !a.holding():
		refuse("this host does not hold the tenant now; ask again")
		return
	case s.rotate != nil:
		refuse("another rotation is under way")
		return
	case q.Reason == "" || q.Actor == "" || len(q.Reason) > ledger.TextMax ||
		len(q.Actor) > ledger.TextMax:
		refuse("a rotation needs a reason and the name of who asks for it")
		return
	}
	record, key, err := a.newRotation(q)
	if err != nil {
		refuse("cannot rotate the key: " + err.Error())
		return
	}
	s.rotate = &rotationAsked{record: record, key: key, answer: r.answer}
}

// newRotation makes the key and the record of a rotation.
func (a *actor) newRotation(q view.RotationQuery) (*pb.KeyRotated, Key, error) {
	root := a.host.keysRoot()
	k := &pb.KeyRotated{OldKey: q.Lost, Size: a.tiles.Edge.Size(), Reason: q.Reason, Actor: q.Actor}
	var old Key
	if q.Lost == "" {
		var err error
		if old, err = inForce(root, a.tenant, a.state.Key(), lastNote(a.state.Signed().GetSigned())); err != nil {
			return nil, old, err
		}
		k.OldKey = old.Verifier
	} else if _, err := ledger.OpenKey("lost", a.tenant, q.Lost); err != nil {
		return nil, old, err
	} else if named := a.state.Key(); named != "" && named != q.Lost {
		return nil, old, ledger.Refuse("lost", "it is not in force", "the key "+named)
	}
	key, err := NewKey(root, a.tenant)
	if err != nil {
		return nil, old, err
	}
	k.NewKey = key.Verifier
	if q.Lost == "" {
		signer, err := old.signer()
		if err == nil {
			k.Signature, err = signer.Sign([]byte(ledger.RotationText(a.tenant, k)))
		}
		if err != nil {
			return nil, old, errors.Join(err, key.drop())
		}
	}
	return k, key, nil
}

// rotated answers who has asked for a rotation, when it is folded.
func (a *actor) rotated(k *pb.KeyRotated, result executor.Result) {
	r := a.signing.rotate
	if r == nil || r.record.NewKey != k.NewKey {
		return
	}
	a.signing.rotate = nil
	if result.Verdict != executor.Effective {
		if err := r.key.drop(); err != nil {
			a.log.Warn("a key that is not used is not removed", "file", r.key.Path, "error", err)
		}
		r.answer <- view.RotationAnswer{Error: "the rotation has no effect: " + result.Reason}
		return
	}
	r.answer <- view.RotationAnswer{OldKey: k.OldKey, NewKey: k.NewKey, File: r.key.Path, Size: k.Size,
		Signed: len(k.Signature) > 0}
}

// keyProblem says why this host could not sign; empty: it could.
func (a *actor) keyProblem(named string, last []byte) string {
	if _, err := inForce(a.host.keysRoot(), a.tenant, named, last); err != nil &&
		!errors.Is(err, errNoKey) {
		return err.Error()
	}
	return ""
}

package proof

import (
	"errors"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// rotationAsked is a rotation under way: asked for by an operator, answered when its
// record is folded.
type rotationAsked struct {
	record *pb.KeyRotated
	key    Key  // the new one
	sent   bool // its record is on its way, or stored
	answer func(api.RotationAnswer, error)
}

// Rotate makes a new key and has the old one sign that it takes over. The answer is given when
// the record of the rotation is folded, or when there is to be none; answer takes it without
// blocking.
func (s *Signer) Rotate(q api.RotationQuery, holding bool,
	answer func(api.RotationAnswer, error)) {
	refuse := func(text string) { answer(api.RotationAnswer{}, errors.New(text)) }
	switch {
	case !holding:
		refuse("this host does not hold the tenant now; ask again")
		return
	case s.rotate != nil:
		refuse("another rotation is under way")
		return
	case ledger.IsBlank(q.Reason) || q.Actor == "" || len(q.Actor) > ledger.TextMax:
		refuse("a rotation needs a reason and the name of the person who asks for it")
		return
	}
	record, key, err := s.newRotation(q)
	if err != nil {
		refuse("cannot rotate the key: " + err.Error())
		return
	}
	s.rotate = &rotationAsked{record: record, key: key, answer: answer}
}

// newRotation makes the key and the record of a rotation.
func (s *Signer) newRotation(q api.RotationQuery) (*pb.KeyRotated, Key, error) {
	root, tenant, named := s.cfg.KeysDir, s.cfg.Tenant, s.state.Key()
	k := &pb.KeyRotated{OldKey: q.Lost, Size: s.tiles.Edge.Size(), Reason: q.Reason, Actor: q.Actor}
	var old Key
	if q.Lost == "" {
		var err error
		old, err = inForce(root, tenant, named, lastNote(s.state.Signed().GetSigned()))
		if err != nil {
			return nil, old, err
		}
		k.OldKey = old.Verifier
	} else if _, err := ledger.OpenKey("lost", tenant, q.Lost); err != nil {
		return nil, old, err
	} else if named != "" && named != q.Lost {
		return nil, old, ledger.Refuse("lost", "it is not in force", "the key "+named)
	}
	key, err := NewKey(root, tenant)
	if err != nil {
		return nil, old, err
	}
	k.NewKey = key.Verifier
	if q.Lost == "" {
		signer, err := old.Signer()
		if err == nil {
			k.Signature, err = signer.Sign([]byte(ledger.RotationText(tenant, k)))
		}
		if err != nil {
			return nil, old, errors.Join(err, key.drop())
		}
	}
	return k, key, nil
}

// rotated answers the request for a rotation, when its record is folded.
func (s *Signer) rotated(k *pb.KeyRotated, effective bool, reason string) {
	r := s.rotate
	if r == nil || r.record.NewKey != k.NewKey {
		return
	}
	s.rotate = nil
	if !effective {
		if err := r.key.drop(); err != nil {
			s.cfg.Log.Warn("a key that is not used is not removed", "file", r.key.Path, "error", err)
		}
		r.answer(api.RotationAnswer{}, errors.New("the rotation has no effect: "+reason))
		return
	}
	r.answer(api.RotationAnswer{OldKey: k.OldKey, NewKey: k.NewKey, File: r.key.Path, Size: k.Size,
		Signed: len(k.Signature) > 0}, nil)
}

// KeyProblem says why this host could not sign, where the ledger names a key and has the
// note of a last checkpoint; empty: it could. Any goroutine may call it.
func (s *Signer) KeyProblem(named string, last []byte) string {
	if _, err := inForce(s.cfg.KeysDir, s.cfg.Tenant, named, last); err != nil &&
		!errors.Is(err, errNoKey) {
		return err.Error()
	}
	return ""
}

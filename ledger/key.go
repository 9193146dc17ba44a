package ledger

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/mod/sumdb/note"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// OpenKey reads a verifier key of a tenant, as note writes it: name, hash and the
// key, with a plus between them. The error is a *Refused.
func OpenKey(field, tenant, key string) (note.Verifier, error) {
	if len(key) > TextMax {
		return nil, Refuse(field, fmt.Sprintf("%d bytes", len(key)), "a verifier key")
	}
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return nil, Refuse(field, strconv.Quote(key)+" is no verifier key",
			"NAME+HASH+KEY, as sagenbaum key ls prints it")
	}
	if want := Origin(tenant); verifier.Name() != want {
		return nil, Refuse(field, "the key of "+strconv.Quote(verifier.Name()),
			"one of "+strconv.Quote(want))
	}
	return verifier, nil
}

// SignedBy reports whether a verifier key of the tenant has signed a checkpoint.
func SignedBy(checkpoint []byte, tenant, key string) bool {
	verifier, err := OpenKey("key", tenant, key)
	if err != nil {
		return false
	}
	_, _, err = OpenCheckpoint(checkpoint, tenant, note.VerifierList(verifier))
	return err == nil
}

// RotationText is what the old key signs of a KeyRotated record. It cannot be taken
// for a checkpoint, which has a number in its second line.
func RotationText(tenant string, k *pb.KeyRotated) string {
	return fmt.Sprintf("sagenbaum/rotation/v1\n%s\n%d\n%s\n%s\n", Origin(tenant), k.Size, k.OldKey,
		k.NewKey)
}

// ErrKeyLost says that a rotation has no signature: the old key was lost, and
// nothing but the holder's word joins the new one to it.
var ErrKeyLost = errors.New("the rotation is not signed: the old key was lost")

// VerifyRotation checks that the old key of a rotation has signed it. The errors are
// ErrKeyLost, or a *Refused.
func VerifyRotation(tenant string, k *pb.KeyRotated) error {
	old, err := OpenKey("key_rotated.old_key", tenant, k.OldKey)
	if err != nil {
		return err
	}
	if len(k.Signature) == 0 {
		return ErrKeyLost
	}
	if !old.Verify([]byte(RotationText(tenant, k)), k.Signature) {
		return Refuse("key_rotated.signature", "it does not verify",
			"the old key's signature over the rotation")
	}
	return nil
}

// checkRotated checks the form of a rotation; who may rotate which key is the fold's.
func checkRotated(tenant string, k *pb.KeyRotated) error {
	_, err1 := OpenKey("key_rotated.old_key", tenant, k.OldKey)
	_, err2 := OpenKey("key_rotated.new_key", tenant, k.NewKey)
	if err := firstOf(err1, err2); err != nil {
		return err
	}
	if k.OldKey == k.NewKey {
		return Refuse("key_rotated.new_key", "the old key again", "another key")
	}
	if n := len(k.Signature); n != 0 && n != ed25519.SignatureSize {
		return Refuse("key_rotated.signature", fmt.Sprintf("%d bytes", n),
			"64 bytes, or none when the old key is lost")
	}
	return owned("key_rotated", k.Reason, k.Actor)
}

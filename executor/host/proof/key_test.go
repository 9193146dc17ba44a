package proof

import (
	"crypto/rand"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

func TestKeysAreListedAndABadOneIsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if _, err := NewKey(root, "no tenant"); err == nil {
		t.Fatal("a key for a name that is none")
	}
	one, err := NewKey(root, "t")
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := Keys(root, "t"); err != nil || len(keys) != 1 || keys[0].Verifier != one.Verifier || !keys[0].Signs {
		t.Fatalf("%+v, %v", keys, err)
	}
	if _, err := one.Signer(); err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSuffix(one.Path, verifierSuffix) + signerSuffix
	if runtime.GOOS != "windows" {
		if err := os.Chmod(secret, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := one.Signer(); err == nil || !strings.Contains(err.Error(), "others may read "+secret) {
			t.Fatalf("a key that others may read: %v", err)
		}
	}
	foreign, _, err := note.GenerateKey(rand.Reader, "sagenbaum/t")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(secret, 0o600),
		os.WriteFile(secret, []byte(foreign), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Signer(); err == nil || strings.Contains(err.Error(), foreign) {
		t.Fatalf("a key that is not the one beside it: %v", err)
	}
	if err := os.WriteFile(one.Path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Keys(root, "t"); err == nil || !strings.Contains(err.Error(), one.Path) {
		t.Fatalf("%v", err)
	}
}

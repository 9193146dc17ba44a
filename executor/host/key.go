package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// A tenant's keys lie in a folder of their own, KEYS/TENANT: HASH.key has the key that
// signs, as note writes it, for its owner's eyes only; HASH.pub the verifier key that
// auditors get. A rotation adds a pair and leaves the old one there.
const (
	signerSuffix   = ".key"
	verifierSuffix = ".pub"
)

// Key is a key of a tenant in a folder of keys.
type Key struct {
	Verifier string    `json:"verifier"` // verifier key
	Signs    bool      `json:"signs"`    // the key that signs is there, too
	Made     time.Time `json:"made"`     // as the file says
	Path     string    `json:"path"`     // of HASH.pub
}

// keysRoot is the folder of all tenants' keys.
func (h *Host) keysRoot() string {
	if h.cfg.KeysDir != "" {
		return h.cfg.KeysDir
	}
	return filepath.Join(h.cfg.Dir, "keys")
}

// NewKey makes a key of a tenant below root, on disk when it returns.
func NewKey(root, tenant string) (Key, error) {
	fail := func(err error) (Key, error) {
		return Key{}, fmt.Errorf("cannot make a key for tenant %s: %w", tenant, err)
	}
	if !ledger.ValidToken(tenant) {
		return fail(ledger.Refuse("tenant", fmt.Sprintf("%q is no name", tenant), "1 to 64 letters, digits, '-' or '_'"))
	}
	private, public, err := note.GenerateKey(rand.Reader, ledger.Origin(tenant))
	if err != nil {
		return fail(err)
	}
	dir := filepath.Join(root, tenant)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	path := filepath.Join(dir, hashOf(public))
	if err := writeSynced(path+signerSuffix, []byte(private+"\n")); err != nil {
		return fail(err)
	}
	if err := writeSynced(path+verifierSuffix, []byte(public+"\n")); err != nil {
		return fail(err)
	}
	return Key{Verifier: public, Signs: true, Made: time.Now(), Path: path + verifierSuffix}, nil
}

// hashOf is the hash in a verifier key, 8 hex digits.
func hashOf(verifier string) string {
	_, rest, _ := strings.Cut(verifier, "+")
	hash, _, _ := strings.Cut(rest, "+")
	return hash
}

// Keys lists the keys of a tenant below root, the oldest first.
func Keys(root, tenant string) ([]Key, error) {
	dir := filepath.Join(root, tenant)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the keys of tenant %s: %w", tenant, err)
	}
	var keys []Key
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), verifierSuffix) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read a key of tenant %s: %w", tenant, err)
		}
		key := Key{Verifier: strings.TrimSpace(string(text)), Path: path}
		if _, err := ledger.OpenKey(path, tenant, key.Verifier); err != nil {
			return nil, fmt.Errorf("cannot read a key of tenant %s: %w", tenant, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read a key of tenant %s: %w", tenant, err)
		}
		key.Made = info.ModTime()
		_, err = os.Stat(strings.TrimSuffix(path, verifierSuffix) + signerSuffix)
		key.Signs = err == nil
		keys = append(keys, key)
	}
	slices.SortStableFunc(keys, func(a, b Key) int { return a.Made.Compare(b.Made) })
	return keys, nil
}

// signer opens the key that signs.
func (k Key) signer() (note.Signer, error) {
	text, err := os.ReadFile(strings.TrimSuffix(k.Path, verifierSuffix) + signerSuffix)
	if err != nil {
		return nil, err
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(text)))
	if err != nil { // without the text, which is secret
		return nil, fmt.Errorf("%s is no key as sagenbaum key new makes it", strings.TrimSuffix(k.Path, verifierSuffix)+signerSuffix)
	}
	name, rest, _ := strings.Cut(k.Verifier, "+")
	if signer.Name() != name || fmt.Sprintf("%08x", signer.KeyHash()) != rest[:min(len(rest), 8)] {
		return nil, fmt.Errorf("the key beside %s is another one", k.Path)
	}
	return signer, nil
}

// drop removes a key that was never used.
func (k Key) drop() error {
	err := os.Remove(strings.TrimSuffix(k.Path, verifierSuffix) + signerSuffix)
	return errors.Join(err, os.Remove(k.Path))
}

// errNoKey is what inForce returns where a tenant has no key at all, and has signed
// nothing.
var errNoKey = errors.New("the tenant has no key yet")

// inForce finds the key that signs a tenant's checkpoints: the one that the ledger
// names, or that has signed the last checkpoint there; before the first of either
// the newest one.
func inForce(root, tenant, named string, last []byte) (Key, error) {
	keys, err := Keys(root, tenant)
	if err != nil {
		return Key{}, err
	}
	own := slices.DeleteFunc(keys, func(k Key) bool { return !k.Signs })
	at := -1
	switch {
	case named != "":
		at = slices.IndexFunc(own, func(k Key) bool { return k.Verifier == named })
	case last != nil:
		at = slices.IndexFunc(own, func(k Key) bool { return ledger.SignedBy(last, tenant, k.Verifier) })
	case len(own) == 0:
		return Key{}, errNoKey
	default:
		at = len(own) - 1
	}
	if at >= 0 {
		return own[at], nil
	}
	which := "the key " + hashOf(named)
	if named == "" {
		which = "the key that has signed the last checkpoint"
	}
	return Key{}, fmt.Errorf("%s is not in %s: %w", which, filepath.Join(root, tenant), fs.ErrNotExist)
}

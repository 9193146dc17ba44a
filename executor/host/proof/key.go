package proof

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

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
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
	Signs    bool      `json:"signs"`    // the key that signs is there, too, and can be used
	Made     time.Time `json:"made"`     // as the file says
	Path     string    `json:"path"`     // of HASH.pub
	// Problem is why the key that signs cannot be used, where it is there.
	Problem string `json:"problem,omitempty"`
}

// NewKey makes a key of a tenant below root, on disk when it returns.
func NewKey(root, tenant string) (Key, error) {
	fail := func(err error) (Key, error) {
		return Key{}, fmt.Errorf("cannot make a key for tenant %s: %w", tenant, err)
	}
	if !ledger.ValidToken(tenant) {
		return fail(ledger.Refuse("tenant", fmt.Sprintf("%q is no name", tenant),
			ledger.TokenWanted))
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
	if err := store.WriteSynced(path+signerSuffix, []byte(private+"\n")); err != nil {
		return fail(err)
	}
	if err := store.WriteSynced(path+verifierSuffix, []byte(public+"\n")); err != nil {
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

// isVerifier reports whether a file of a tenant's folder is a verifier key by its name,
// HASH.pub. Others are someone else's.
func isVerifier(name string) bool {
	hash, is := strings.CutSuffix(name, verifierSuffix)
	return is && len(hash) == hashLen && strings.Trim(hash, "0123456789abcdef") == ""
}

// hashLen is the length of the hash in a verifier key, in hex digits.
const hashLen = 8

// keysWant is what a folder of keys is.
const keysWant = "--keys DIR with a folder of keys for each tenant, " +
	"as a host makes it in DATA/executor/keys"

// CheckKeys refuses a folder that is none of keys: one that is not there, one tenant's own
// folder, or one that has something else and no key. An empty folder is one where no key
// has been made yet. The error is a *ledger.Refused, or the file system's.
func CheckKeys(root string) error {
	refuse := func(problem, want string) error { return ledger.Refuse(root, problem, want) }
	if info, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		return refuse("there is no such folder", keysWant)
	} else if err == nil && !info.IsDir() {
		return refuse("is no folder", keysWant)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if isVerifier(entry.Name()) {
			return refuse("is the folder of one tenant's keys", "the folder above it, --keys "+
				filepath.Dir(filepath.Clean(root)))
		}
		// an error where it is a file, or closed to us
		below, err := os.ReadDir(filepath.Join(root, entry.Name()))
		if err == nil &&
			slices.ContainsFunc(below, func(e fs.DirEntry) bool { return isVerifier(e.Name()) }) {
			return nil
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return refuse(fmt.Sprintf("has no keys, and other things, as %q", entries[0].Name()), keysWant)
}

// Keys lists the keys of a tenant below root, the oldest first. Files that are not named
// as keys are left alone. The error is a *ledger.Refused for a file that is named as a key
// and is none of the tenant, or the file system's.
func Keys(root, tenant string) ([]Key, error) {
	dir := filepath.Join(root, tenant)
	fail := func(err error) ([]Key, error) { return nil, fmt.Errorf("tenant %s: %w", tenant, err) }
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	var keys []Key
	for _, entry := range entries {
		if !isVerifier(entry.Name()) {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return fail(err)
		}
		key := Key{Verifier: strings.TrimSpace(string(text)), Path: path}
		var refused *ledger.Refused
		if _, err := ledger.OpenKey(path, tenant, key.Verifier); errors.As(err, &refused) {
			return nil, ledger.Refuse(path, refused.Problem, "a verifier key of tenant "+tenant+
				" as its host has written it; put any other file away")
		} else if err != nil {
			return fail(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return fail(err)
		}
		key.Made = info.ModTime()
		if _, err := key.Signer(); err == nil {
			key.Signs = true
		} else if !errors.Is(err, fs.ErrNotExist) {
			key.Problem = err.Error()
		}
		keys = append(keys, key)
	}
	slices.SortStableFunc(keys, func(a, b Key) int { return a.Made.Compare(b.Made) })
	return keys, nil
}

// Signer opens the key that signs.
func (k Key) Signer() (note.Signer, error) {
	text, err := access.ReadOwn("the signing key",
		strings.TrimSuffix(k.Path, verifierSuffix)+signerSuffix)
	if err != nil {
		return nil, err
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(text)))
	if err != nil { // without the text, which is secret
		return nil, fmt.Errorf("%s is no key as sagenbaum key new makes it",
			strings.TrimSuffix(k.Path, verifierSuffix)+signerSuffix)
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
var errNoKey = errors.New("the tenant has no key yet; its host makes one with the first " +
	"checkpoint, at the latest serve --sign-after after the first record: ask again then")

// inForce finds the key that signs a tenant's checkpoints: the one that the ledger
// names, or that has signed the last checkpoint there; before the first of either
// the newest one.
func inForce(root, tenant, named string, last []byte) (Key, error) {
	keys, err := Keys(root, tenant)
	if err != nil {
		return Key{}, err
	}
	own := slices.DeleteFunc(keys, func(k Key) bool { return !k.Signs && k.Problem == "" })
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

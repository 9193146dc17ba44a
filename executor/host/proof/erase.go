package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// erasureTitle is the first line of what is signed of an erasure, so that it is never taken
// for a checkpoint. The second line is the JSON of a api.TenantErasure without its notes.
const erasureTitle = "sagenbaum/erased/v1"

// ErasureNote is what is signed of an erasure.
func ErasureNote(e api.TenantErasure) (string, error) {
	e.Notes = nil
	text, err := json.Marshal(e)
	return erasureTitle + "\n" + string(text) + "\n", err
}

// Erase completes what is said of an erasure with how the ledger is now, and signs it with the
// key in force. It is for the goroutine of the tenant's loop.
func (s *Signer) Erase(e *api.TenantErasure) error {
	root, tenant := s.cfg.KeysDir, s.cfg.Tenant
	key, err := inForce(root, tenant, s.state.Key(), lastNote(s.state.Signed().GetSigned()))
	if errors.Is(err, errNoKey) {
		key, err = NewKey(root, tenant)
	}
	if err != nil {
		return err
	}
	edge := s.tiles.Edge.Root()
	e.Records, e.Root, e.Key = s.tiles.Edge.Size(), edge[:], key.Verifier
	if last := s.state.Signed().GetSigned(); last != nil {
		e.CheckpointSize, e.CheckpointRoot = last.Size, last.Root
	}
	return key.signErasure(e)
}

// SignErasure signs an erasure again, with the key that has signed it before, where it is in
// the folder still; else it reports that it has not.
func SignErasure(root string, e *api.TenantErasure) (signed bool, err error) {
	keys, err := Keys(root, e.Tenant)
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(keys, func(k Key) bool { return k.Verifier == e.Key && k.Signs })
	if at < 0 {
		return false, nil
	}
	return true, keys[at].signErasure(e)
}

func (k Key) signErasure(e *api.TenantErasure) error {
	signer, err := k.Signer()
	if err != nil {
		return err
	}
	text, err := ErasureNote(*e)
	if err != nil {
		return err
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err == nil {
		e.Notes = append(e.Notes, string(signed))
	}
	return err
}

// OpenErasure reads what was signed of an erasure, and checks the signature. The error says
// what is wrong.
func OpenErasure(tenant, verifier, signed string) (e api.TenantErasure, err error) {
	if _, err := ledger.OpenKey("key", tenant, verifier); err != nil {
		return e, err
	}
	by, err := note.NewVerifier(verifier)
	if err != nil {
		return e, err
	}
	opened, err := note.Open([]byte(signed), note.VerifierList(by))
	if err != nil {
		return e, err
	}
	title, text, _ := strings.Cut(opened.Text, "\n")
	if title != erasureTitle {
		return e, fmt.Errorf("it is no erasure: it begins with %q", title)
	}
	return e, json.Unmarshal([]byte(text), &e)
}

// DropKeys destroys all keys of a tenant that sign. Again is harmless.
func DropKeys(root, tenant string) error {
	dir := filepath.Join(root, tenant)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			err = errors.Join(err, vault.Shred(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(err, os.RemoveAll(dir))
}

package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// Errors of a Folder.
var (
	// ErrNoTenantKey: a folder has no key of the tenant.
	ErrNoTenantKey = errors.New("there is no key of this tenant")

	// errOtherMaster: the folder is under another master key than this process has. It passes
	// when the host is started again.
	errOtherMaster = errors.New("no key is wrapped under the master key that this host has in " +
		"memory: start the host again")
)

// Folder keeps the keys of tenants, each wrapped under the master key in a file of its own,
// DIR/tenants/TENANT.key. It lies outside the data of the server, so that a copy of these data
// does not have what it takes to open them, not even with the master key. A key that was put
// there is on disk; one that was destroyed is overwritten and removed. Hosts may share a
// folder.
type Folder struct {
	dir  string
	disk disk

	// MasterFile is where the master key of this process was read; empty: from no file.
	MasterFile string
}

const (
	tenantsFolder = "tenants"
	keySuffix     = ".key"
	goneSuffix    = ".gone" // of a key that is being destroyed
	lockName      = "lock"
)

// tenantFile is a file of the folder.
type tenantFile struct {
	Tenant string `json:"tenant"`
	ID     string `json:"kid"`

	// Proposed: whether this is the tenant's key is not decided yet; nothing is wrapped under it.
	Proposed bool `json:"proposed,omitempty"`

	// Wrapped is the key, under one master key, or under two while a rewrap goes on.
	Wrapped []wrapping `json:"wrapped"`
}

// wrapping is the key of a tenant under a master key.
type wrapping struct {
	Master string `json:"master"` // id of the master key
	Key    []byte `json:"key"`    // nonce and ciphertext
}

// OpenFolder opens the folder of tenants' keys, which it makes where it is missing. The error
// is a *ledger.Refused for one that others may read, or the file system's.
func OpenFolder(dir string) (*Folder, error) {
	if err := os.MkdirAll(filepath.Join(dir, tenantsFolder), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of tenants' keys: %w", err)
	}
	info, err := os.Stat(filepath.Join(dir, tenantsFolder))
	if err != nil {
		return nil, fmt.Errorf("cannot use the folder of tenants' keys: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		path := filepath.Join(dir, tenantsFolder)
		return nil, ledger.Refuse("tenant keys",
			fmt.Sprintf("others may enter %s (mode %04o)", path, info.Mode().Perm()),
			"chmod 700 "+path)
	}
	return useFolder(dir)
}

// FindFolder is OpenFolder for a folder that must be there.
func FindFolder(dir string) (*Folder, error) {
	if _, err := os.Stat(filepath.Join(dir, tenantsFolder)); err != nil {
		return nil, fmt.Errorf("cannot use the folder of tenants' keys: %w", err)
	}
	return useFolder(dir)
}

func useFolder(dir string) (*Folder, error) {
	f := &Folder{dir: dir}
	if err := f.finish(); err != nil {
		return nil, fmt.Errorf("cannot finish the destruction of a tenant's key: %w", err)
	}
	return f, nil
}

// finish destroys what was about to be destroyed when a process was killed.
func (f *Folder) finish() error {
	gone, err := filepath.Glob(filepath.Join(f.dir, tenantsFolder, "*"+goneSuffix))
	if err != nil || len(gone) == 0 {
		return err
	}
	return f.locked(func() (err error) {
		for _, path := range gone {
			err = errors.Join(err, f.disk.destroy(path))
		}
		return err
	})
}

// Dir is the folder.
func (f *Folder) Dir() string { return f.dir }

func (f *Folder) path(tenant string) string {
	return filepath.Join(f.dir, tenantsFolder, tenant+keySuffix)
}

// locked works while no one else changes the folder.
func (f *Folder) locked(work func() error) error {
	path := filepath.Join(f.dir, lockName)
	lock, err := store.Lock(path)
	for late := time.Now().Add(lockWait); err != nil && time.Now().Before(late); {
		time.Sleep(lockPause)
		lock, err = store.Lock(path)
	}
	if err != nil {
		return fmt.Errorf("cannot lock %s, which another process may have: %w", path, err)
	}
	return errors.Join(work(), lock.Close())
}

// Bounds of the wait for the lock, which is held while a few small files are written.
const (
	lockWait  = 5 * time.Second
	lockPause = 10 * time.Millisecond
)

// Tenants are the names of the tenants that have a key here, in order.
func (f *Folder) Tenants() (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(f.dir, tenantsFolder))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if name, is := strings.CutSuffix(entry.Name(), keySuffix); is && ledger.ValidToken(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// read reads the file of a tenant. The error is ErrNoTenantKey where there is none.
func (f *Folder) read(tenant string) (file tenantFile, err error) {
	path := f.path(tenant)
	text, err := access.ReadOwn("tenant keys", path)
	var refused *ledger.Refused
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file, fmt.Errorf("%w in %s: %s", ErrNoTenantKey, f.dir, tenant)
	case errors.As(err, &refused):
		return file, err
	case err != nil:
		return file, fmt.Errorf("cannot read the key of tenant %s: %w", tenant, err)
	}
	if json.Unmarshal(text, &file) != nil || file.Tenant != tenant || file.ID == "" ||
		len(file.Wrapped) == 0 {
		return file, ledger.Refuse("tenant keys", path+" is no key of tenant "+tenant,
			"the file as a host has written it; put any other file away")
	}
	return file, nil
}

// open opens the key of a tenant. The error is ErrNoTenantKey where there is none, and a
// *ledger.Refused where it was wrapped under another master key.
func (f *Folder) open(tenant string, master []byte) (key TenantKey, proposed bool, err error) {
	file, err := f.read(tenant)
	if err != nil {
		return key, false, err
	}
	plain, err := file.unwrap(master)
	if err != nil {
		return key, false, fmt.Errorf("%s: %w", f.path(tenant), err)
	}
	return TenantKey{file.ID, plain}, file.Proposed, nil
}

// unwrap opens the key under the one of its master keys that this is.
func (t tenantFile) unwrap(master []byte) ([]byte, error) {
	id := MasterKeyID(master)
	at := slices.IndexFunc(t.Wrapped, func(w wrapping) bool { return w.Master == id })
	if at < 0 {
		return nil, ledger.Refuse("master key", fmt.Sprintf("the key of tenant %s was wrapped under "+
			"another master key: %s, and this is %s", t.Tenant, t.masters(), id),
			"the master key "+t.masters())
	}
	plain, err := unwrap(master, t.Wrapped[at].Key, boundTenant(t.Tenant, t.ID))
	if err != nil {
		return nil, ledger.Refuse("tenant keys", fmt.Sprintf("the key of tenant %s: %v", t.Tenant, err),
			"the file as a host has written it")
	}
	return plain, nil
}

// masters names the master keys that open the file.
func (t tenantFile) masters() string {
	ids := make([]string, len(t.Wrapped))
	for i, w := range t.Wrapped {
		ids[i] = w.Master
	}
	return strings.Join(ids, " or ")
}

// put writes the key of a tenant under a master key. The other keys of the folder must be
// under the same, which must be on disk still: a host that was not told of a rewrap would bring
// back the old one, or wrap under a key that no file has any more. The error is errOtherMaster
// then, or the file system's.
func (f *Folder) put(tenant string, key TenantKey, master []byte, proposed bool) error {
	return f.locked(func() error {
		if err := f.onDisk(master); err != nil {
			return err
		}
		if err := f.check(master); err != nil {
			return fmt.Errorf("%w: %v", errOtherMaster, err)
		}
		file := tenantFile{Tenant: tenant, ID: key.ID, Proposed: proposed}
		box, err := wrap(master, key.key, boundTenant(tenant, key.ID))
		if err != nil {
			return err
		}
		file.Wrapped = []wrapping{{MasterKeyID(master), box}}
		return f.write(file)
	})
}

// onDisk reports whether a master key is the one that its file has now.
func (f *Folder) onDisk(master []byte) error {
	if f.MasterFile == "" {
		return nil
	}
	text, err := access.ReadOwn("the master key", f.MasterFile)
	if err != nil {
		return fmt.Errorf("%w: %v", errOtherMaster, err)
	}
	key, err := ParseMasterKey(text)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s is no master key", errOtherMaster, f.MasterFile)
	case !bytes.Equal(key, master):
		return fmt.Errorf("%w: %s has the key %s, and this host %s", errOtherMaster, f.MasterFile,
			MasterKeyID(key), MasterKeyID(master))
	}
	return nil
}

// Check reports whether a master key opens all keys of the folder. The error is a
// *ledger.Refused that names the first one that it does not, or the file system's.
func (f *Folder) Check(master []byte) error { return f.check(master) }

func (f *Folder) check(master []byte) error {
	tenants, err := f.Tenants()
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		if _, _, err := f.open(tenant, master); err != nil && !errors.Is(err, ErrNoTenantKey) {
			return err
		}
	}
	return nil
}

// write puts a file in the place of the one before, whole or not at all.
func (f *Folder) write(file tenantFile) error {
	text, err := json.Marshal(file)
	if err != nil {
		return err
	}
	if err := f.disk.replace(f.path(file.Tenant), append(text, '\n')); err != nil {
		return fmt.Errorf("cannot write the key of tenant %s: %w", file.Tenant, err)
	}
	return nil
}

// Destroy makes the key of a tenant unreadable for good: it is moved away, overwritten and
// removed. Again is harmless, and after an error it must be done again.
func (f *Folder) Destroy(tenant string) error {
	if !ledger.ValidToken(tenant) {
		return ledger.Refuse("tenant", fmt.Sprintf("%q is no name", tenant),
			ledger.TokenWanted)
	}
	return f.locked(func() error {
		path := f.path(tenant)
		if err := f.disk.rename(path, path+goneSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot destroy the key of tenant %s: %w", tenant, err)
		}
		for _, left := range [...]string{path + goneSuffix, path + newSuffix} {
			if err := f.disk.destroy(left); err != nil {
				return fmt.Errorf("cannot destroy the key of tenant %s: %w", tenant, err)
			}
		}
		return nil
	})
}

package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Errors of a Directory.
var (
	ErrNoUser   = errors.New("there is no such user")
	ErrUserName = errors.New("there is a user of this name")
)

// Directory is the users of a server, in one file that holds no secret. Every change is on
// disk when its method returns. It is safe for concurrent use.
type Directory struct {
	path string

	mu      sync.Mutex
	users   []User // in the order of Compare
	byKey   map[string]User
	stamp   fileStamp
	changed chan struct{} // closed at the next change; nil: no one waits for it

	used uses
}

// fileStamp tells whether a file is another one than the one that was read.
type fileStamp struct {
	size     int64
	modified time.Time
}

// usersFile is what the file has.
type usersFile struct {
	Users []User `json:"users"`
}

// OpenDirectory reads the users in a file; one that is not there has none. The error is a
// *ledger.Refused where the file has what no user can be, or others may write it.
func OpenDirectory(path string) (*Directory, error) {
	d := &Directory{path: path}
	d.used.read(d.usedPath())
	_, err := d.Refresh()
	return d, err
}

// Refresh reads the file again if it was changed, and reports whether it was. After an error
// the users are what they were.
func (d *Directory) Refresh() (changed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refresh()
}

func (d *Directory) refresh() (bool, error) {
	info, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		changed := len(d.users) > 0
		if changed || d.stamp != (fileStamp{}) {
			d.keep(nil, fileStamp{})
		}
		return changed, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the users: %w", err)
	}
	stamp := fileStamp{info.Size(), info.ModTime()}
	if stamp == d.stamp {
		return false, nil
	}
	if info.Mode().Perm()&0o022 != 0 && os.PathSeparator == '/' {
		return false, ledger.Refuse("users", fmt.Sprintf("others may write %s (%v)", d.path,
			info.Mode().Perm()), "mode 0600: chmod 600 "+d.path)
	}
	text, err := os.ReadFile(d.path)
	if err != nil {
		return false, fmt.Errorf("cannot read the users: %w", err)
	}
	users, err := parseUsers(text)
	if err != nil {
		return false, err
	}
	d.keep(users, stamp)
	return true, nil
}

func parseUsers(text []byte) ([]User, error) {
	var file usersFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, ledger.Refuse("users", err.Error(), `{"users": [...]}`)
	}
	names, keys := map[string]bool{}, map[string]bool{}
	for i, u := range file.Users {
		var refused *ledger.Refused
		field := fmt.Sprintf("users[%d]", i)
		switch err := u.Check(); {
		case errors.As(err, &refused):
			return nil, ledger.Refuse(field+"."+refused.Field, refused.Problem, refused.Want)
		case names[u.ID()]:
			return nil, ledger.Refuse(field+".name", u.ID()+" is there twice", "one user of a name")
		case keys[u.Key]:
			return nil, ledger.Refuse(field+".key", "another user has it", "a key for each user")
		}
		names[u.ID()], keys[u.Key] = true, true
	}
	return file.Users, nil
}

// Changed is closed when the users are next changed, or read again from another file.
func (d *Directory) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.changed
}

// keep holds users in memory.
func (d *Directory) keep(users []User, stamp fileStamp) {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
	slices.SortFunc(users, Compare)
	d.users, d.stamp, d.byKey = users, stamp, make(map[string]User, len(users))
	for _, u := range users {
		d.byKey[u.Key] = u
	}
}

// Users are all users, by tenant and name.
func (d *Directory) Users() []User {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.users)
}

// Find returns the user of a tenant with a name. The error is ErrNoUser.
func (d *Directory) Find(tenant, name string) (User, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.index(tenant, name); i >= 0 {
		return d.users[i], nil
	}
	return User{}, fmt.Errorf("%w: %.80s of tenant %.80s", ErrNoUser, name, tenant)
}

// OfKey returns the user whose key it is.
func (d *Directory) OfKey(key string) (User, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u, ok := d.byKey[key]
	return u, ok
}

func (d *Directory) index(tenant, name string) int {
	return slices.IndexFunc(d.users,
		func(u User) bool { return u.Tenant == tenant && u.Name == name })
}

// Add adds a user. Errors: *ledger.Refused, ErrUserName.
func (d *Directory) Add(u User) error {
	if err := u.Check(); err != nil {
		return err
	}
	return d.change(func(users []User) ([]User, error) {
		for _, other := range users {
			if other.ID() == u.ID() {
				return nil, fmt.Errorf("%w: %s of tenant %s", ErrUserName, u.Name, u.Tenant)
			}
			if other.Key == u.Key {
				return nil, ledger.Refuse("key", "another user has it", "a key for each user")
			}
		}
		return append(users, u), nil
	})
}

// Put stores a user, or gives the user of that name its key. Errors as Add and Rotate have them.
func (d *Directory) Put(u User) error {
	if _, err := d.Find(u.Tenant, u.Name); err != nil {
		return d.Add(u)
	}
	_, err := d.Rotate(u.Tenant, u.Name, u.Key, u.Expires)
	return err
}

// Rotate gives a user another key; the one before is refused from then on. expires is when
// the user ends now; zero: as before. Errors: *ledger.Refused, ErrNoUser.
func (d *Directory) Rotate(tenant, name, key string, expires time.Time) (u User, err error) {
	err = d.change(func(users []User) ([]User, error) {
		i := d.index(tenant, name)
		if i < 0 {
			return nil, fmt.Errorf("%w: %.80s of tenant %.80s", ErrNoUser, name, tenant)
		}
		if _, taken := d.byKey[key]; taken {
			return nil, ledger.Refuse("key", "a user has it", "a new key")
		}
		u = users[i]
		u.Key, u.Revoked = key, nil // all tokens of the key before are refused
		if !expires.IsZero() {
			u.Expires = expires
		}
		users[i] = u
		return users, u.Check()
	})
	return u, err
}

// Remove removes a user. The error is ErrNoUser.
func (d *Directory) Remove(tenant, name string) error {
	return d.change(func(users []User) ([]User, error) {
		i := d.index(tenant, name)
		if i < 0 {
			return nil, fmt.Errorf("%w: %.80s of tenant %.80s", ErrNoUser, name, tenant)
		}
		return slices.Delete(users, i, i+1), nil
	})
}

// change replaces the users by what edit makes of a copy, on disk first.
func (d *Directory) change(edit func([]User) ([]User, error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.refresh(); err != nil {
		return err
	}
	users, err := edit(slices.Clone(d.users))
	if err != nil {
		return err
	}
	slices.SortFunc(users, Compare)
	text, err := json.MarshalIndent(usersFile{users}, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the users: %w", err)
	}
	if err := WriteSecret(d.path, append(text, '\n')); err != nil {
		return fmt.Errorf("cannot write the users: %w", err)
	}
	stamp := fileStamp{}
	if info, err := os.Stat(d.path); err == nil {
		stamp = fileStamp{info.Size(), info.ModTime()}
	}
	d.keep(users, stamp)
	return nil
}

// WriteSecret replaces a file that only its owner may read, and syncs it: after a crash there
// is the one before or this one. Its folder is made if missing, for its owner only.
func WriteSecret(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := replaceFile(path, text, (*os.File).Sync); err != nil {
		return err
	}
	if folder, err := os.Open(dir); err == nil {
		_ = folder.Sync() // not every system can
		folder.Close()
	}
	return nil
}

// replaceFile puts a file that only its owner may read in the place of another one, once finish has
// seen to it.
func replaceFile(path string, text []byte, finish func(*os.File) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, finish(file), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

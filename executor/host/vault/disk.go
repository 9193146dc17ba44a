package vault

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
)

// disk changes small secret files. Each thing that it does is on disk before the next.
type disk struct {
	// step is called before each thing that is done; an error ends the work there, as a kill
	// does. Nil, except in tests.
	step func(does, path string) error
}

// newSuffix is of a file that is to take the place of another.
const newSuffix = ".new"

func (d disk) before(does, path string) error {
	if d.step == nil {
		return nil
	}
	return d.step(does, path)
}

// replace puts text in the place of a file, whole or not at all. What the file held before is
// overwritten; on a file system that never writes in place that changes a copy only.
func (d disk) replace(path string, text []byte) error {
	if err := d.create(path+newSuffix, text); err != nil {
		return err
	}
	return d.supersede(path, path+newSuffix)
}

// supersede moves a file in the place of another, which is overwritten.
func (d disk) supersede(path, by string) error {
	old, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = d.rename(by, path)
	if old == nil {
		return err
	}
	if err == nil {
		err = d.overwrite(old)
	}
	return errors.Join(err, old.Close())
}

// create makes a file that its owner alone may read, in the place of one of that name.
func (d disk) create(path string, text []byte) error {
	if err := d.before("create", path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = d.before("write", path); err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = d.before("sync", path)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// rename moves a file within its folder, and has that on disk.
func (d disk) rename(from, to string) error {
	if err := d.before("rename", to); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return d.syncFolder(to)
}

func (d disk) syncFolder(of string) error {
	if err := d.before("sync folder", of); err != nil {
		return err
	}
	return store.SyncFile(filepath.Dir(of))
}

// overwrite fills an open file with random bytes of its size, on disk.
func (d disk) overwrite(f *os.File) error {
	if err := d.before("overwrite", f.Name()); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.CopyN(f, rand.Reader, info.Size()); err != nil {
		return err
	}
	return f.Sync()
}

// destroy overwrites a file and removes it; one that is not there is no error.
func (d disk) destroy(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := errors.Join(d.overwrite(f), f.Close()); err != nil {
		return err
	}
	if err := d.before("remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return d.syncFolder(path)
}

// Shred overwrites a secret file and removes it, on disk; one that is not there is no error.
func Shred(path string) error { return disk{}.destroy(path) }

// Supersede moves a secret file in the place of another, which is overwritten.
func Supersede(file, by string) error { return disk{}.supersede(file, by) }

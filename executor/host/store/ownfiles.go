package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Files and folders of the state hold inputs and outputs of actions: they are their
// owner's, whatever the process's umask is and whoever may enter the folder above them.
const (
	ownFile   = 0o600
	ownFolder = 0o700
)

// ownFS makes files that their owner alone may read. Pebble leaves that to the umask.
type ownFS struct{ vfs.FS }

// Create is as in vfs.FS.
func (o ownFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := o.FS.Create(name, category)
	return owned(name, f, err)
}

// OpenReadWrite is as in vfs.FS.
func (o ownFS) OpenReadWrite(
	name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption,
) (vfs.File, error) {
	f, err := o.FS.OpenReadWrite(name, category, options...)
	return owned(name, f, err)
}

// ReuseForWrite makes a new file instead: a log that is used again keeps, after what is
// written to it, what it held before, which may be a tenant's that was erased since.
func (o ownFS) ReuseForWrite(
	old, name string, category vfs.DiskWriteCategory,
) (vfs.File, error) {
	f, err := o.Create(name, category)
	if err != nil {
		return nil, err
	}
	if err := o.FS.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// MkdirAll is as in vfs.FS.
func (o ownFS) MkdirAll(dir string, _ os.FileMode) error { return o.FS.MkdirAll(dir, ownFolder) }

// Lock is as in vfs.FS.
func (o ownFS) Lock(name string) (io.Closer, error) {
	lock, err := o.FS.Lock(name)
	return owned(name, lock, err)
}

// Unwrap is as in vfs.FS.
func (o ownFS) Unwrap() vfs.FS { return o.FS }

// owned takes from others what they may do with a file that was just opened.
func owned[F io.Closer](name string, f F, err error) (F, error) {
	if err != nil {
		return f, err
	}
	if err := os.Chmod(name, ownFile); err != nil {
		var none F
		return none, errors.Join(err, f.Close())
	}
	return f, nil
}

// ownFiles does the same with what an earlier version has left in a folder. One that is
// not there has nothing.
func ownFiles(dir string) error {
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || info.Mode().Perm()&0o077 == 0:
			return err
		}
		switch {
		case entry.IsDir():
			return os.Chmod(name, ownFolder)
		case info.Mode().IsRegular():
			return os.Chmod(name, ownFile)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot keep others from reading %s: %w", dir, err)
	}
	return nil
}

// WriteSynced writes a small file, whole or not at all, and has it on disk.
func WriteSynced(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return SyncFile(filepath.Dir(path))
}

// SyncFile syncs a file or a folder.
func SyncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Lock takes a file as a lock, until it is closed or the process ends.
func Lock(name string) (io.Closer, error) { return ownFS{vfs.Default}.Lock(name) }

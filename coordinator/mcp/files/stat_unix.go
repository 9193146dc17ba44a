//go:build unix

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// owner is uid:gid.
func owner(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", s.Uid, s.Gid)
	}
	return ""
}

// identity is what a rename keeps.
func identity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", s.Dev, s.Ino)
	}
	return ""
}

// chown gives a file its owner back, as far as this process may: the bytes matter more.
func chown(path, owner string) error {
	var uid, gid int
	if _, err := fmt.Sscanf(owner, "%d:%d", &uid, &gid); err != nil {
		return nil // none is known
	}
	if err := os.Chown(path, uid, gid); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

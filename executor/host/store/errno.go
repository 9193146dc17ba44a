package store

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
)

// What Pebble's file lock returns when another process holds the folder.
const (
	errWouldBlock = syscall.EWOULDBLOCK
	errAgain      = syscall.EAGAIN
)

// closedDisk are what a disk says that takes no writes now, and failingDisk what one says
// that cannot be used: files that are open on it stay lost also when it is back.
var (
	closedDisk  = []error{ErrNoRoom, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, fs.ErrPermission}
	failingDisk = []error{syscall.EIO, syscall.ENXIO}
)

// Unwritable reports whether an error says that a disk cannot be written now: it is full,
// read-only, closed to this process, or failing. What is on it is as good as before.
func Unwritable(err error) bool { return isAny(err, closedDisk) || Failing(err) }

// Failing reports whether an error says that a disk cannot be used in this process.
func Failing(err error) bool { return isAny(err, failingDisk) }

// isAny reports whether an error is one of a list.
func isAny(err error, list []error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

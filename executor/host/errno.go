package host

import (
	"errors"
	"syscall"
)

// What Pebble's file lock returns when another process holds the folder.
const (
	errWouldBlock = syscall.EWOULDBLOCK
	errAgain      = syscall.EAGAIN
)

// diskFailed reports whether a disk cannot be used any more, not just now.
func diskFailed(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENXIO)
}

package host

import "syscall"

// What Pebble's file lock returns when another process holds the folder.
const (
	errWouldBlock = syscall.EWOULDBLOCK
	errAgain      = syscall.EAGAIN
)

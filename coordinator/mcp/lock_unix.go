//go:build unix

package mcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lock has the effects and undos of one server come one after the other, in all processes of a
// machine: what is asked before a call and after it is exact only then.
type lock struct {
	place chan struct{} // one element while it is held in this process
	file  *os.File
}

func newLock(path string) (*lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of a server: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock of a server: %w", err)
	}
	return &lock{place: make(chan struct{}, 1), file: file}, nil
}

// take returns when no one else has the lock; release gives it back.
func (l *lock) take(ctx context.Context) (release func(), err error) {
	select {
	case l.place <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		err := l.flock(syscall.LOCK_EX | syscall.LOCK_NB)
		if err == nil {
			return func() {
				_ = l.flock(syscall.LOCK_UN) // closing the file does, too
				<-l.place
			}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			<-l.place
			return nil, fmt.Errorf("cannot lock the server: %w", err)
		}
		select {
		case <-ctx.Done():
			<-l.place
			return nil, ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

// flock is flock(2) of the file, which may be closed meanwhile: by a gateway that does not wait any
// longer for a call.
func (l *lock) flock(how int) error {
	conn, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = conn.Control(func(fd uintptr) { refused = syscall.Flock(int(fd), how) })
	return errors.Join(err, refused)
}

func (l *lock) close() { _ = l.file.Close() } // it was closed before

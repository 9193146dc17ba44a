//go:build unix

package mcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// lock has the effects and undos of one server come one after the other, in all processes of a
// machine, and those of servers whose folders overlap: what is asked before a call and after it is
// exact only then.
type lock struct {
	place chan struct{} // one element while it is held in this process
	own   *os.File

	mu      sync.Mutex
	folders map[string]*os.File // by path: those that were locked, and the folders above them
	closed  bool
}

func newLock(path string) (*lock, error) {
	own, err := openLock(path)
	if err != nil {
		return nil, err
	}
	return &lock{place: make(chan struct{}, 1), own: own, folders: map[string]*os.File{}}, nil
}

func openLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of a server: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock of a server: %w", err)
	}
	return file, nil
}

// take returns when no one else has the lock, nor one of the folders, which are absolute, one above
// them, or one in them; release gives it back.
func (l *lock) take(ctx context.Context, folders ...string) (release func(), err error) {
	select {
	case l.place <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var held []*os.File
	release = func() {
		for _, file := range held {
			_ = flock(file, syscall.LOCK_UN) // closing the file does, too
		}
		<-l.place
	}
	hold := func(file *os.File, how int) error {
		err := waitFor(ctx, file, how)
		if err == nil {
			held = append(held, file)
		}
		return err
	}
	// All take the folders in the same order, after their own lock: no two wait for each other.
	err = hold(l.own, syscall.LOCK_EX)
	for _, f := range claims(folders) {
		if err != nil {
			break
		}
		how := syscall.LOCK_SH
		if f.whole {
			how = syscall.LOCK_EX
		}
		var file *os.File
		if file, err = l.folder(f.path); err == nil {
			err = hold(file, how)
		}
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// folder is the lock of a folder, beside that of the server.
func (l *lock) folder(path string) (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file := l.folders[path]
	if file != nil || l.closed {
		return file, nil
	}
	file, err := openLock(filepath.Join(filepath.Dir(l.own.Name()), folderLock(path)))
	if err == nil {
		l.folders[path] = file
	}
	return file, err
}

func waitFor(ctx context.Context, file *os.File, how int) error {
	for {
		err := flock(file, how|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("cannot lock the server: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

// flock is flock(2) of a file, which may be closed meanwhile: by a gateway that does not wait any
// longer for a call.
func flock(file *os.File, how int) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = conn.Control(func(fd uintptr) { refused = syscall.Flock(int(fd), how) })
	return errors.Join(err, refused)
}

func (l *lock) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	_ = l.own.Close() // it was closed before
	for _, file := range l.folders {
		_ = file.Close()
	}
}

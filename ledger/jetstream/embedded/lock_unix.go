//go:build unix

package embedded

import (
	"fmt"
	"os"
	"syscall"
)

// folderLock keeps a second server out of a folder. The kernel drops it when the
// process ends, however it ends.
type folderLock struct{ file *os.File }

func lockFolder(dir string) (*folderLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make folder %s: %w", dir, err)
	}
	file, err := os.OpenFile(lockPath(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock folder %s: %w", dir, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("cannot lock folder %s: %w: %w", dir, ErrInUse, err)
	}
	return &folderLock{file: file}, nil
}

// release gives the lock up, also where a process that is being started still has a copy of the
// file: closing it would leave the lock to that copy.
func (l *folderLock) release() {
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN) // then closing it does
	l.file.Close()
}

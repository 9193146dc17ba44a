package embedded

import (
	"fmt"
	"os"
	"syscall"
)

// folderLock keeps a second server out of a folder: a file that is open without
// sharing. The system closes it when the process ends, however it ends.
type folderLock struct{ handle syscall.Handle }

func lockFolder(dir string) (*folderLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make folder %s: %w", dir, err)
	}
	path, err := syscall.UTF16PtrFromString(lockPath(dir))
	if err != nil {
		return nil, fmt.Errorf("cannot lock folder %s: %w", dir, err)
	}
	handle, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot lock folder %s: %w: %w", dir, ErrInUse, err)
	}
	return &folderLock{handle: handle}, nil
}

func (l *folderLock) release() {
	syscall.CloseHandle(l.handle)
} //nolint:errcheck // the process ends

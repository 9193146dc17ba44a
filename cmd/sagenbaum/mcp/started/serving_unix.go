//go:build unix

package started

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Serve says that this process carries out the undos of a capability in a tenant, until it calls
// leave or ends, however it does. Errors: those of the file system.
func Serve(state, undo, tenant string) (leave func(), err error) {
	file, err := os.OpenFile(servingFile(state, undo, tenant), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot say who serves undos: %w", err)
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH) // Served lets go at once
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock %s: %w", file.Name(), err), file.Close())
	}
	return func() { _ = file.Close() }, nil // which lets go of it
}

// Served reports whether another process has called Serve, and runs. One that cannot be asked about
// does not.
func Served(state, undo, tenant string) bool {
	file, err := os.OpenFile(servingFile(state, undo, tenant), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer file.Close() // which lets go of it
	return errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB),
		syscall.EWOULDBLOCK)
}

// servingFile is locked by those who serve.
func servingFile(state, undo, tenant string) string {
	return filepath.Join(state, undo+"."+tenant+".serving")
}

//go:build linux || darwin || freebsd

package embedded

import "syscall"

// diskSize returns the bytes of the disk that a folder is on, used or free; 0
// when the system does not say.
func diskSize(dir string) int64 {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0
	}
	return int64(uint64(disk.Blocks) * uint64(disk.Bsize))
}

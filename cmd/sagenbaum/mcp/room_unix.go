//go:build linux || darwin || freebsd

package mcp

import "syscall"

// roomOf is what may still be written to the disk of a folder, in bytes.
func roomOf(dir string) (room int64, known bool) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, false
	}
	return int64(uint64(disk.Bavail) * uint64(disk.Bsize)), true
}

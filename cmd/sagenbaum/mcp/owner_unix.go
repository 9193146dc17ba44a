//go:build unix

package mcp

import (
	"os"
	"syscall"
)

// foreign reports whether neither root nor the user of this process owns a file.
func foreign(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Uid != 0 && int(s.Uid) != os.Geteuid()
}

package files

import (
	"io/fs"
	"syscall"
	"time"
)

// accessed is when a file was read last.
func accessed(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return stamp(time.Unix(int64(s.Atim.Sec), int64(s.Atim.Nsec)))
	}
	return ""
}

package embedded

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// syncLeft puts on disk what a server before this one, which was killed or did
// not sync, has written and not synced. This server finds such commits and
// acknowledges their retries as duplicates, and an acknowledgement must hold when
// the power fails. A file that is on disk already costs next to nothing.
func syncLeft(cfg Config) error {
	if cfg.NoSync {
		return nil
	}
	return filepath.WalkDir(cfg.Dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("cannot sync %s: %w", cfg.Dir, err)
		case entry.IsDir() && runtime.GOOS != "windows": // there a folder cannot be synced
			return syncPath(path, os.O_RDONLY)
		case entry.Type().IsRegular():
			return syncPath(path, os.O_RDWR)
		}
		return nil
	})
}

func syncPath(path string, flag int) error {
	file, err := os.OpenFile(path, flag, 0)
	if err == nil {
		err = file.Sync()
		file.Close()
	}
	if err != nil {
		return fmt.Errorf("cannot sync %s: %w", path, err)
	}
	return nil
}

package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// errManifest means that a state store's files are not all there and whole.
var errManifest = errors.New("the state store is not whole")

// checkManifest reads the manifest of a state store to its end, unless the store is
// marked as corrupt or lacks a log. Pebble takes a damaged record in it for the end: it
// then opens without the tables after that place, but with its log, and the state has a
// cursor for rows that are not there. Without a manifest it would take up the log alone.
func checkManifest(dir string) (err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, corruptMark)); err == nil {
		return fmt.Errorf("%w: a block was found corrupt", errManifest)
	}
	// A running store adds to its manifest.
	lock, err := pebble.LockDirectory(dir, ownFS{vfs.Default})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	found, err := pebble.Peek(dir, vfs.Default)
	if err != nil {
		return err
	}
	if !found.Exists {
		for _, pattern := range []string{"*.sst", "*.log"} {
			if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 { // the pattern is good
				return fmt.Errorf("%w: there is %s and no manifest", errManifest, filepath.Base(left[0]))
			}
		}
		return nil
	}
	needed, err := readManifest(found.ManifestFilename)
	if err != nil {
		return err
	}
	return checkLogs(dir, needed)
}

// corruptMark is the file in a state store's folder that says that Pebble has found
// a block of it corrupt, so that the next start folds again instead of finding it
// again.
const corruptMark = "CORRUPT"

// onCorrupt marks a state store in which Pebble finds a corrupt block, where it reads
// it or where it merges tables on a goroutine of its own, and tells its owner: such
// a store must not be used on. A disk that takes no mark has the block found again.
func onCorrupt(dir string, log *slog.Logger, tell func(error)) func(pebble.DataCorruptionInfo) {
	return func(found pebble.DataCorruptionInfo) {
		log.Error("the state store is corrupt; the next start folds the ledger again", "file", found.Path,
			"cause", found.Details.Error())
		if err := os.WriteFile(filepath.Join(dir, corruptMark), []byte(found.Path+"\n"), 0o600); err != nil {
			log.Error("cannot mark the state store as corrupt", "error", err)
		}
		tell(fmt.Errorf("%w: %s is corrupt", ErrState, filepath.Base(found.Path)))
	}
}

// readManifest reads a manifest to its end, and returns the first log that is needed.
func readManifest(name string) (needed uint64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close() // it is only read
	for r := record.NewReader(file, 0); ; {
		edit, err := r.Next()
		if errors.Is(err, io.EOF) {
			return needed, nil
		}
		var data []byte
		if err == nil {
			data, err = io.ReadAll(edit)
		}
		if err != nil {
			return 0, fmt.Errorf("%w: %s at %d: %v", errManifest, filepath.Base(name), r.Offset(), err)
		}
		needed = max(needed, neededLog(data))
	}
}

// DropManifests removes the manifests of an open store that come before the one in use, which
// Pebble keeps for debugging: a manifest names the first and the last row of each table that
// there was.
func DropManifests(dir string) error {
	used, err := pebble.Peek(dir, vfs.Default)
	if err != nil || !used.Exists {
		return err
	}
	last := filepath.Base(used.ManifestFilename)
	names, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	for _, name := range names {
		base := filepath.Base(name)
		if len(base) > len(last) || len(base) == len(last) && base >= last {
			continue
		}
		if problem := os.Remove(name); !errors.Is(problem, fs.ErrNotExist) {
			err = errors.Join(err, problem)
		}
	}
	return err
}

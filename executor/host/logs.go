package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// logsFile names the logs that a state store's folder has, a line each. Pebble takes up
// the logs that it finds, and does not miss one between its tables and a later log: the
// rows of that one would be gone, and later ones there.
const logsFile = "LOGS"

// logs keeps logsFile, on Pebble's own goroutines.
type logs struct {
	dir string
	log *slog.Logger
	mu  sync.Mutex
}

// listen has the file written whenever a log comes or goes.
func (l *logs) listen(events *pebble.EventListener) {
	events.WALCreated = func(pebble.WALCreateInfo) { l.write() }
	events.WALDeleted = func(pebble.WALDeleteInfo) { l.write() }
}

// write names the logs that there are now. It is synced: else the file could name one,
// after a power cut, that was deleted before. Where it cannot be written there is none,
// and no log is missed.
func (l *logs) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	path := filepath.Join(l.dir, logsFile)
	names, err := filepath.Glob(filepath.Join(l.dir, "*.log"))
	if err == nil {
		err = replaceSynced(path, names)
	}
	if err != nil {
		l.log.Warn("cannot note the logs of the state store", "error", errors.Join(err, os.Remove(path)))
	}
}

func replaceSynced(path string, names []string) (err error) {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	for _, name := range names {
		_, err = fmt.Fprintln(f, filepath.Base(name))
		if err != nil {
			break
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// checkLogs reports a log that a state store had when it was last used and has not any
// more. A file that is not there says nothing, nor does a line that was cut off.
func checkLogs(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, logsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range strings.Lines(string(data)) {
		name, whole := strings.CutSuffix(name, "\n")
		if !whole || filepath.Base(name) != name || !strings.HasSuffix(name, ".log") {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %s is gone", errManifest, name)
		}
	}
	return nil
}

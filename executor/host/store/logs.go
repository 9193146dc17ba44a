package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// logsFile names the logs that a state store's folder has, a line each. Pebble takes up
// the logs that it finds, and does not miss one between its tables and a later log: the
// rows of that one would be gone, and later ones there.
const logsFile = "LOGS"

// logs keeps logsFile. Writing it takes syncs, and a log is begun by whoever writes rows: so a
// log is named by Pebble's own goroutine that makes a table of the rows before it. Only a log that
// another one follows must be named by then: without the last one the rows are as they were before
// it.
type logs struct {
	dir    string
	log    *slog.Logger
	opened atomic.Bool // the store is: rows are written from now on
	due    atomic.Bool // the last log is not named yet
	mu     sync.Mutex
}

// listen has the file written when logs have come or gone.
func (l *logs) listen(events *pebble.EventListener) {
	events.WALCreated = func(pebble.WALCreateInfo) {
		if before := l.due.Swap(true); before || !l.opened.Load() {
			l.write()
		}
	}
	events.TableCreated = func(pebble.TableCreateInfo) {
		if l.due.Load() {
			l.write()
		}
	}
	events.WALDeleted = func(pebble.WALDeleteInfo) { l.write() }
}

// write names the logs that there are now. Where it cannot be written there is none, and
// no log is missed.
func (l *logs) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due.Store(false) // before it looks: a log that comes meanwhile is due again
	path := filepath.Join(l.dir, logsFile)
	names, err := filepath.Glob(filepath.Join(l.dir, "*.log"))
	text := ""
	for _, name := range names {
		text += filepath.Base(name) + "\n"
	}
	if err == nil {
		err = WriteSynced(path, []byte(text))
	}
	if err != nil {
		l.log.Warn("cannot note the logs of the state store", "error", errors.Join(err, os.Remove(path)))
	}
}

// checkLogs reports a log that a state store had when it was last used, has not any more,
// and needs: the manifest says from which on. Earlier ones may be deleted at any time. A
// file that is not there says nothing, nor does a line that is no log's name.
func checkLogs(dir string, needed uint64) error {
	data, err := os.ReadFile(filepath.Join(dir, logsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(data)) {
		number, isLog := strings.CutSuffix(line, ".log\n")
		if n, err := strconv.ParseUint(number, 10, 64); !isLog || err != nil || n < needed {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, number+".log")); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %s.log is gone", errManifest, number)
		}
	}
	return nil
}

// neededLog is the first log that is needed after an edit of the manifest; 0: the edit
// changes nothing of it. It comes (tag 2) before all else but the comparer's name (tag 1).
func neededLog(edit []byte) uint64 {
	for {
		tag, n := binary.Uvarint(edit)
		if n <= 0 {
			return 0
		}
		value, m := binary.Uvarint(edit[n:])
		switch edit = edit[n:]; {
		case m <= 0:
			return 0
		case tag == 2:
			return value
		case tag != 1 || value > uint64(len(edit)-m):
			return 0
		}
		edit = edit[m+int(value):]
	}
}

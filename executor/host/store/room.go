package store

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Room watches the disk of a store. Where it is full, writes wait: a turn is then late, and
// nothing is lost by that.
type Room struct {
	// Waits is told what writes wait for when they begin to wait, and then, with nothing, that
	// they do not any more; from any goroutine.
	Waits func(problem string)

	dir    string // there already
	log    *slog.Logger
	giveUp <-chan struct{} // closed: do not wait any more
}

// NewRoom watches the disk of a folder that is there already.
func NewRoom(dir string, log *slog.Logger, giveUp <-chan struct{}) Room {
	return Room{dir: dir, log: log, giveUp: giveUp, Waits: func(string) {}}
}

// there reports whether a write has a chance. What a file system does not tell
// counts as room.
func (r Room) there() bool {
	usage, err := vfs.Default.GetDiskUsage(r.dir)
	return err != nil || usage.AvailBytes >= RoomMin
}

// Await returns when a write that found the disk full may be tried again. Pebble
// calls it and lets all its writes wait meanwhile.
func (r Room) Await() {
	if r.there() {
		return
	}
	r.log.Error("the disk of the state store is full; waiting for room", "dir", r.dir, "bytes",
		RoomMin)
	r.Waits(fmt.Sprintf("waiting for room: less than %d bytes are free on the disk of %s", RoomMin,
		r.dir))
	defer r.Waits("")
	for !r.there() {
		select {
		case <-r.giveUp:
			return
		case <-time.After(roomPoll):
		}
	}
	r.log.Info("the disk of the state store has room again", "dir", r.dir)
}

// Pause waits a little before a write that found the disk full is tried again; false:
// do not try.
func (r Room) Pause() bool {
	select {
	case <-r.giveUp:
		return false
	case <-time.After(roomPoll):
		return true
	}
}

package sim

import (
	"encoding/json"
	"errors"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// memory is a Store in memory. Where the power is cut it keeps what each commit has
// overwritten, so that it can go back.
type memory struct {
	*rows.Pending
	stored   *rows.MemoryKV
	undoable bool
	commits  [][]row // not synced, the last one last, each with what it has overwritten
}

type row struct {
	key   string
	value []byte // before; nil: there was none
	was   bool
}

// turnsMax is how many commits a power cut may take.
const turnsMax = 16

func newMemory(undoable bool) *memory {
	m := &memory{undoable: undoable}
	m.Wipe()
	return m
}

// Commit implements Store.
func (m *memory) Commit() {
	var commit []row
	m.Drain(func(key string, value []byte) {
		k := []byte(key)
		if m.undoable {
			had, was := m.stored.Get(k)
			commit = append(commit, row{key, had, was})
		}
		if value == nil {
			m.stored.Delete(k)
		} else {
			m.stored.Set(k, value)
		}
	})
	if !m.undoable {
		return
	}
	m.commits = append(m.commits, commit)
	if len(m.commits) > turnsMax {
		m.commits = m.commits[1:]
	}
}

// Crash implements Store: what was not committed is lost, and of the last commits the share
// that lost says.
func (m *memory) Crash(lost int) {
	m.Forget()
	for range len(m.commits) * lost / 100 {
		last := len(m.commits) - 1
		for _, r := range m.commits[last] {
			if r.was {
				m.stored.Set([]byte(r.key), r.value)
			} else {
				m.stored.Delete([]byte(r.key))
			}
		}
		m.commits = m.commits[:last]
	}
}

// Wipe implements Store.
func (m *memory) Wipe() {
	m.stored, m.commits = rows.NewMemoryKV(), nil
	m.Pending = rows.NewPending(m.stored)
}

// Close implements Store.
func (m *memory) Close() {}

// archive reads the values of evicted facts back from the stream.
type archive struct {
	w *world
}

var errGone = errors.New("the stream does not answer")

// Value implements memory.Archive.
func (a archive) Value(at *pb.Address, key string) (json.RawMessage, error) {
	if a.w.chance(a.w.net, FaultArchive, 60) {
		a.w.sayFault(FaultArchive, "stream", "the value of fact %s cannot be read back", key)
		return nil, errGone
	}
	m, err := a.w.stream.memory.Get(background, at.Sequence)
	if err != nil {
		return nil, err
	}
	return executor.FactAt(tenant, m, at, key)
}

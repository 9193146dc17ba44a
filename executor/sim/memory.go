package sim

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// memory is a Store in memory. Where the power is cut it keeps what each turn has
// overwritten, so that it can go back.
type memory struct {
	*rows.MemoryKV
	undoable bool
	turn     []row   // what it has overwritten, in order
	turns    [][]row // committed and not synced, the last one last
}

type row struct {
	key   string
	value []byte // before; nil: there was none
	was   bool
}

// turnsMax is how many turns a power cut may take.
const turnsMax = 16

func newMemory(undoable bool) *memory {
	return &memory{MemoryKV: rows.NewMemoryKV(), undoable: undoable}
}

func (m *memory) note(key []byte) {
	if m.undoable {
		value, was := m.MemoryKV.Get(key)
		m.turn = append(m.turn, row{string(key), value, was})
	}
}

// Set implements rows.KV.
func (m *memory) Set(key, value []byte) {
	m.note(key)
	m.MemoryKV.Set(key, value)
}

// Delete implements rows.KV.
func (m *memory) Delete(key []byte) {
	m.note(key)
	m.MemoryKV.Delete(key)
}

// Commit implements Store.
func (m *memory) Commit() {
	if !m.undoable {
		return
	}
	m.turns = append(m.turns, m.turn)
	if len(m.turns) > turnsMax {
		m.turns = m.turns[1:]
	}
	m.turn = nil
}

// Crash implements Store: a turn that was not committed is lost, and of the last
// turns the share that lost says.
func (m *memory) Crash(lost int) {
	if !m.undoable {
		return
	}
	m.back(m.turn)
	m.turn = nil
	for range len(m.turns) * lost / 100 {
		last := len(m.turns) - 1
		m.back(m.turns[last])
		m.turns = m.turns[:last]
	}
}

func (m *memory) back(turn []row) {
	for _, r := range slices.Backward(turn) {
		if r.was {
			m.MemoryKV.Set([]byte(r.key), r.value)
		} else {
			m.MemoryKV.Delete([]byte(r.key))
		}
	}
}

// Wipe implements Store.
func (m *memory) Wipe() {
	m.MemoryKV, m.turn, m.turns = rows.NewMemoryKV(), nil, nil
}

// Close implements Store.
func (m *memory) Close() {}

// archive reads the values of evicted facts back from the stream.
type archive struct {
	w *world
}

var errGone = errors.New("the stream does not answer")

// Value implements executor.Archive.
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

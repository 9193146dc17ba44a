package ledger

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"
)

// Fault is what a Memory does to an append instead of storing it and saying so.
type Fault uint8

// The faults, as a broken network and a busy server make them.
const (
	FaultNone    Fault = iota
	FaultLost          // not stored, answered ErrInDoubt
	FaultKept          // stored, answered ErrInDoubt
	FaultRefused       // not stored, answered *Refused
	FaultBusy          // not stored, answered ErrBusy
)

// Memory is a Store in memory, for tests and the simulator. It is safe for
// concurrent use, starts no goroutine and promises nothing beyond the process.
// The methods below Head break it on purpose, so that guards can be tried.
type Memory struct {
	// Fault, when set, is asked before each append that is not refused. It is
	// called under the lock, in the order of the appends; set it before use.
	Fault func(Append) Fault

	tenant string
	stamp  func() int64

	mu        sync.Mutex // guards all below
	slots     []slot     // sequence 1 stands at index 0
	deleted   uint64
	ids       map[string]uint64 // commit ID -> sequence
	last      map[string]uint64 // subject -> its last sequence
	changed   chan struct{}     // closed and replaced whenever a reader may go on
	createdNs int64
}

type slot struct {
	message Message
	id      string // of the append; empty for Put
	dropped bool
}

// NewMemory returns an empty store of one tenant. stamp gives each message's
// time in unix ns; it is called under the store's lock.
func NewMemory(tenant string, stamp func() int64) *Memory {
	return &Memory{
		tenant: tenant, stamp: stamp, createdNs: stamp(),
		ids: map[string]uint64{}, last: map[string]uint64{}, changed: make(chan struct{}),
	}
}

// Append is as in Store.
func (m *Memory) Append(ctx context.Context, a Append) (uint64, error) {
	if err := a.Check(m.tenant); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("cannot append to %s: %w: %v", a.Subject, ErrInDoubt, ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fault := FaultNone
	if m.Fault != nil {
		fault = m.Fault(a)
	}
	switch fault {
	case FaultNone, FaultKept:
	case FaultLost:
		return 0, fmt.Errorf("cannot append to %s: %w: the append was lost", a.Subject, ErrInDoubt)
	case FaultRefused:
		return 0, Refuse("stream", "no room", "a stream with room")
	case FaultBusy:
		return 0, ErrBusy
	default:
		panic(fmt.Sprintf("ledger: no fault %d", fault))
	}
	sequence, err := m.store(a)
	if err == nil && fault == FaultKept {
		return 0, fmt.Errorf("cannot append to %s: %w: the reply was lost", a.Subject, ErrInDoubt)
	}
	return sequence, err
}

// store appends a unless its ID is known or its fence has moved. As on a server,
// the fence comes first, and the retry of what is last on its subject is known.
func (m *Memory) store(a Append) (uint64, error) {
	first, known := m.ids[a.ID]
	if a.FenceSubject != "" && m.last[a.FenceSubject] != a.Fence {
		if known && m.last[a.Subject] == first {
			return first, nil
		}
		return 0, fmt.Errorf("cannot append to %s: %w", a.Subject, ErrConflict)
	}
	if known {
		return first, nil
	}
	sequence := m.put(Message{Subject: a.Subject, Data: a.Data})
	m.slots[sequence-1].id = a.ID
	m.ids[a.ID] = sequence
	return sequence, nil
}

// put stores a message behind the last and wakes the readers.
func (m *Memory) put(msg Message) uint64 {
	msg.Sequence = uint64(len(m.slots)) + 1
	msg.StampNs = m.stamp()
	msg.Data = bytes.Clone(msg.Data)
	m.slots = append(m.slots, slot{message: msg})
	m.last[msg.Subject] = msg.Sequence
	m.wake()
	return msg.Sequence
}

func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Read is as in Store.
func (m *Memory) Read(ctx context.Context, from uint64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if err := m.readable(from); err != nil {
			yield(Message{}, err)
			return
		}
		for next := from; ; next++ {
			msg, err := m.wait(ctx, next)
			if !yield(msg, err) || err != nil {
				return
			}
		}
	}
}

// readable is guard G1 before the first message.
func (m *Memory) readable(from uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head().Readable(from)
}

// wait returns the message at a sequence as soon as it is there.
func (m *Memory) wait(ctx context.Context, sequence uint64) (Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Message{}, err
		}
		m.mu.Lock()
		last, changed := uint64(len(m.slots)), m.changed
		if sequence <= last {
			s := m.slots[sequence-1]
			m.mu.Unlock()
			if s.dropped {
				return Message{}, missing(sequence)
			}
			return s.message, nil
		}
		m.mu.Unlock()
		if sequence > last+1 {
			return Message{}, &Halted{Guard: "G1", Sequence: last, Problem: fmt.Sprintf("the stream ends here, and %d was read before", sequence-1)}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

func missing(sequence uint64) error {
	return &Halted{Guard: "G1", Sequence: sequence, Problem: "the record is missing"}
}

// Get is as in Store.
func (m *Memory) Get(ctx context.Context, sequence uint64) (Message, error) {
	if err := ctx.Err(); err != nil {
		return Message{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.head().Holds(sequence); err != nil {
		return Message{}, err
	}
	if s := m.slots[sequence-1]; !s.dropped {
		return s.message, nil
	}
	return Message{}, missing(sequence)
}

// Head is as in Store.
func (m *Memory) Head(ctx context.Context) (Head, error) {
	if err := ctx.Err(); err != nil {
		return Head{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head(), nil
}

func (m *Memory) head() Head {
	return Head{First: 1, Last: uint64(len(m.slots)), Deleted: m.deleted, CreatedNs: m.createdNs}
}

// Put stores a message as a foreign client would, unchecked, and returns its
// sequence: any subject, content type and bytes.
func (m *Memory) Put(subject, contentType string, data []byte) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.put(Message{Subject: subject, ContentType: contentType, Data: data})
}

// Drop loses the message at a sequence, as a flipped bit on disk does.
func (m *Memory) Drop(sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := &m.slots[sequence-1]; !s.dropped {
		s.dropped = true
		m.deleted++
	}
}

// Corrupt lets f change the message at a sequence; f owns the bytes it gets.
func (m *Memory) Corrupt(sequence uint64, f func(*Message)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	msg := m.slots[sequence-1].message
	msg.Data = bytes.Clone(msg.Data)
	f(&msg)
	m.slots[sequence-1].message = msg
}

// Truncate loses everything behind a sequence, as a lost tail does; what is
// appended then takes the lost sequences again.
func (m *Memory) Truncate(last uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, lost := range m.slots[last:] {
		delete(m.ids, lost.id)
	}
	kept := m.slots[:last:last]
	m.slots, m.deleted, m.last = kept, 0, map[string]uint64{}
	for i := range kept {
		if kept[i].dropped {
			m.deleted++
		} else {
			m.last[kept[i].message.Subject] = uint64(i) + 1
		}
	}
	m.wake()
}

// Forget empties the memory of commit IDs, as when the dedupe window has passed.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.ids)
}

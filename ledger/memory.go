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

// Memory is a Store in memory, for tests and the simulator: a model of a JetStream
// stream, held to the real server by TestStoreContract in ledger/jetstream. It is
// safe for concurrent use, starts no goroutine and promises nothing beyond the
// process. The methods below Head break it on purpose, so that guards can be tried.
type Memory struct {
	// BytesMax is the stream's capacity, 0: none. A message takes its subject, its
	// bytes and messageOverhead; one that has no room is ErrFull. Set it before use.
	BytesMax int64

	// Fault, when set, is asked before each append that is not refused. It is
	// called under the lock, in the order of the appends; set it before use.
	Fault func(Append) Fault

	tenant string
	stamp  func() int64

	mu        sync.Mutex        // guards all below
	slots     []slot            // sequence 1 is at index 0
	lost      uint64            // slots that are dropped
	bytes     int64             // taken of BytesMax
	ids       map[string]uint64 // commit ID -> sequence
	forgotten uint64            // the dedupe window has passed for the IDs up to this sequence
	last      map[string]uint64 // subject -> its last sequence
	muted     bool
	restarts  uint64        // readers compare where they are after each
	changed   chan struct{} // closed and replaced whenever a reader may go on
	createdNs int64
}

// messageOverhead is what a message takes beside its subject and bytes, as about in
// a stream on disk: its place, stamp, hash and the header with the ID.
const messageOverhead = 100

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
		return 0, fmt.Errorf("cannot append to %s: %w", a.Subject,
			Refuse("stream", "no room", "a stream with room"))
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

// store appends a unless its ID is known or its fence has moved. As jetstream.Store does,
// it finds the retry of what is last on its subject, remembered or not.
func (m *Memory) store(a Append) (uint64, error) {
	first, known := m.ids[a.ID]
	if known {
		return first, nil
	}
	if a.FenceSubject != "" && m.last[a.FenceSubject] != a.Fence {
		if last := m.last[a.Subject]; last != 0 && m.slots[last-1].id == a.ID {
			return last, nil
		}
		return 0, fmt.Errorf("cannot append to %s: %w", a.Subject, &Fenced{m.last[a.FenceSubject]})
	}
	if m.muted {
		return 0, fmt.Errorf("cannot append to %s: %w: no reply since a write error", a.Subject,
			ErrInDoubt)
	}
	msg := Message{Subject: a.Subject, Data: a.Data}
	if m.BytesMax > 0 && m.bytes+sizeOf(msg) > m.BytesMax {
		return 0, fmt.Errorf("cannot append to %s: %w", a.Subject, ErrFull)
	}
	return m.put(msg, a.ID), nil
}

func sizeOf(msg Message) int64 { return int64(len(msg.Subject)+len(msg.Data)) + messageOverhead }

// put stores a message after the last and wakes the readers.
func (m *Memory) put(msg Message, id string) uint64 {
	msg.Sequence = uint64(len(m.slots)) + 1
	msg.StampNs = m.stamp()
	msg.Data = bytes.Clone(msg.Data)
	m.slots = append(m.slots, slot{message: msg, id: id})
	m.bytes += sizeOf(msg)
	m.last[msg.Subject] = msg.Sequence
	if id != "" {
		m.ids[id] = msg.Sequence
	}
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
		r := memoryReader{store: m, next: from}
		if err := r.start(); err != nil {
			yield(Message{}, err)
			return
		}
		for {
			msg, err := r.wait(ctx)
			if !yield(msg, err) || err != nil {
				return
			}
		}
	}
}

// memoryReader is one Read.
type memoryReader struct {
	store    *Memory
	next     uint64
	last     Message // given out before next; Sequence 0: none
	restarts uint64  // of the store when the guards last looked
}

// start is guard G1 before the first message.
func (r *memoryReader) start() error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.restarts = r.store.restarts
	return r.store.head().Readable(r.next)
}

// wait returns the next message as soon as it is there.
func (r *memoryReader) wait(ctx context.Context) (Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Message{}, err
		}
		msg, changed, err := r.step()
		if changed == nil {
			return msg, err
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// step returns the next message, or what is closed when there may be one.
func (r *memoryReader) step() (Message, chan struct{}, error) {
	m := r.store
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.restarts != m.restarts {
		if err := r.again(); err != nil {
			return Message{}, nil, err
		}
	}
	if r.next > uint64(len(m.slots)) {
		return Message{}, m.changed, nil
	}
	s := m.slots[r.next-1]
	if s.dropped {
		return Message{}, nil, missing(r.next)
	}
	r.last = s.message
	r.next++
	return s.message, nil, nil
}

// again holds the guards G1 and G2 after a restart, as a reader of a server does.
func (r *memoryReader) again() error {
	r.restarts = r.store.restarts
	if err := r.store.head().Readable(r.next); err != nil || r.last.Sequence == 0 {
		return err
	}
	at := r.store.slots[r.last.Sequence-1]
	if at.dropped {
		return missing(r.last.Sequence)
	}
	now := at.message
	if now.StampNs != r.last.StampNs || now.Subject != r.last.Subject ||
		!bytes.Equal(now.Data, r.last.Data) {
		return &Halted{Guard: "G2", Sequence: now.Sequence,
			Problem: "the stream has another record here than was read before"}
	}
	return nil
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

// head counts what is lost after the first that is left, as a server does: a lost
// first record only moves First.
func (m *Memory) head() Head {
	first := uint64(1)
	for first <= uint64(len(m.slots)) && m.slots[first-1].dropped {
		first++
	}
	return Head{First: first, Last: uint64(len(m.slots)), Replicas: 1, Deleted: m.lost - (first - 1),
		CreatedNs: m.createdNs}
}

// Put stores a message as a foreign client would, unchecked, and returns its
// sequence: any subject, content type and bytes.
func (m *Memory) Put(subject, contentType string, data []byte) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.put(Message{Subject: subject, ContentType: contentType, Data: data}, "")
}

// Drop loses the message at a sequence, as a flipped bit on disk does.
func (m *Memory) Drop(sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.slots[sequence-1]
	if s.dropped {
		return
	}
	s.dropped = true
	m.lost++
	m.bytes -= sizeOf(s.message)
	subject := s.message.Subject
	if m.last[subject] != sequence {
		return
	}
	delete(m.last, subject)
	for at := sequence - 1; at > 0 && m.last[subject] == 0; at-- {
		if before := m.slots[at-1]; !before.dropped && before.message.Subject == subject {
			m.last[subject] = at
		}
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

// Truncate restarts the store without everything after a sequence, as a lost tail
// does; what is appended then takes the lost sequences again.
func (m *Memory) Truncate(last uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slots = m.slots[:last:last]
	m.forgotten = min(m.forgotten, last)
	m.restart()
}

// Restart is that of the server: what is stored is there, a muted stream speaks, IDs
// are known as far as their records and the dedupe window reach, and readers look
// again where they are.
func (m *Memory) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restart()
}

func (m *Memory) restart() {
	m.muted, m.lost, m.bytes = false, 0, 0
	m.ids, m.last = map[string]uint64{}, map[string]uint64{}
	for i, s := range m.slots {
		sequence := uint64(i) + 1
		if s.dropped {
			m.lost++
			continue
		}
		m.bytes += sizeOf(s.message)
		m.last[s.message.Subject] = sequence
		if s.id != "" && sequence > m.forgotten {
			m.ids[s.id] = sequence
		}
	}
	m.restarts++
	m.wake()
}

// Mute is one write error: until Restart nothing is stored, and who would have been
// answered that it is gets no reply.
func (m *Memory) Mute() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.muted = true
}

// Forget empties the memory of commit IDs, as when the dedupe window has passed.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.ids)
	m.forgotten = uint64(len(m.slots))
}

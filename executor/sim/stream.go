package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"google.golang.org/protobuf/encoding/protojson"
)

// stream is the ledger as it is stored: ledger.Memory, and what becomes of it.
type stream struct {
	w      *world
	memory *ledger.Memory
	skew   int64
	mute   bool
	noRoom bool
	busy   bool

	stored []stored // by sequence - 1, as they were appended; what the stream lost stays
}

// stored is one message with its entries, decoded once for all that read it.
type stored struct {
	message ledger.Message
	entries []ledger.Entry
	id      string
	copyOf  uint64 // the first message of the same append; 0: this is it
	term    uint64 // the latest that has begun

	unusable bool // it says what can never be carried out: nothing of it may count
}

// background has no deadline: nothing here waits.
var background = context.Background()

func newStream(w *world) *stream {
	s := &stream{w: w}
	s.memory = ledger.NewMemory(tenant, func() int64 { return w.now + s.skew })
	return s
}

// errSilent says that no reply came in time.
var errSilent = fmt.Errorf("no reply: %w", ledger.ErrInDoubt)

// arrive appends what has come to the stream. JSON is stored as a foreign client's.
func (s *stream) arrive(a ledger.Append, asJSON bool) (uint64, error) {
	switch {
	case s.noRoom:
		return 0, ledger.Refuse("stream", "no room", "a stream with room")
	case s.busy:
		return 0, ledger.ErrBusy
	}
	before := s.last()
	var sequence uint64
	if asJSON {
		sequence = s.memory.Put(a.Subject, ledger.ContentTypeJSON, a.Data)
	} else {
		var err error
		if sequence, err = s.memory.Append(background, a); err != nil {
			return 0, err
		}
	}
	if sequence > before {
		s.keep(sequence, a.ID)
	}
	return sequence, nil
}

// put stores bytes of a foreign client.
func (s *stream) put(subject, contentType string, data []byte) {
	s.keep(s.memory.Put(subject, contentType, data), "")
}

// keep decodes a message that was stored, and lets hosts and checks have it.
func (s *stream) keep(sequence uint64, id string) {
	m, err := s.memory.Get(background, sequence)
	if err != nil {
		panic("sim: cannot get what was stored: " + err.Error())
	}
	entries, err := ledger.Decode(tenant, m)
	if err != nil {
		panic("sim: a commit for a newer reader: " + err.Error())
	}
	kept := stored{message: m, entries: entries, id: id, term: s.termAt(sequence - 1)}
	for _, e := range entries {
		if e.Source.Term && e.Record.GetTermStarted() != nil {
			kept.term = max(kept.term, e.Record.Term)
		}
	}
	for i := len(s.stored) - 1; i >= 0 && id != ""; i-- {
		if s.stored[i].id == id {
			kept.copyOf = uint64(i) + 1
		}
		// A decision has its term in it, and the count of what was decided before.
		if other := &s.stored[i]; uint64(i)+1 < sequence && other.id != id && other.id != "" &&
			bytes.Equal(other.message.Data, m.Data) && executes(m.Subject) {
			s.w.check.fail("E1", sequence, "a commit of the executor is stored under another id than at %d",
				i+1)
		}
	}
	s.stored = append(s.stored[:sequence-1], kept) // after a lost tail its sequences are taken again
	s.w.mark(sequence, binary.BigEndian.Uint64(entries[len(entries)-1].Address.Leaf))
	s.w.check.stored(&s.stored[sequence-1])
	for _, h := range s.w.hosts {
		h.hears(sequence)
	}
}

// termAt is the latest term that has begun up to a sequence.
func (s *stream) termAt(sequence uint64) uint64 {
	if sequence == 0 {
		return 0
	}
	return s.stored[sequence-1].term
}

// executes reports whether a subject is that of the executor's decisions.
func executes(subject string) bool {
	source, ok := ledger.ParseSubject(subject)
	return ok && source.Class == ledger.ClassExecutor && !source.Term
}

func (s *stream) last() uint64 {
	head, err := s.memory.Head(background)
	if err != nil {
		panic("sim: " + err.Error())
	}
	return head.Last
}

// read gives a host the message at a sequence, decoded. What the stream has lost or
// changed is read as it is now.
func (s *stream) read(sequence uint64) (*stored, error) {
	m, err := s.memory.Get(background, sequence)
	if err != nil {
		return nil, err
	}
	if kept := &s.stored[sequence-1]; kept.message.StampNs == m.StampNs &&
		len(kept.message.Data) == len(m.Data) && &kept.message.Data[0] == &m.Data[0] {
		return kept, nil
	}
	entries, err := ledger.Decode(tenant, m)
	if err != nil {
		return nil, err
	}
	return &stored{message: m, entries: entries}, nil
}

// commit is one append on its way, over all its tries.
type commit struct {
	from   string // for the trace
	append ledger.Append
	asJSON bool
	host   *host  // that sends it; nil: someone else
	agent  *agent // likewise
}

const replyMax = 5 * second // until an append without a reply is in doubt

// try sends a commit once. done is called once, with what its writer learns.
func (w *world) try(c *commit, done func(uint64, error)) {
	delay := w.net.between(millisecond/2, 20*millisecond)
	silent := func() { w.after(replyMax, func() { done(0, errSilent) }) }
	if c.host != nil && c.host.cut {
		silent()
		return
	}
	if c.agent != nil && c.agent.cut() {
		w.holdBack(c)
		silent()
		return
	}
	if w.chance(w.net, FaultLostAppend, 8) {
		w.sayFault(FaultLostAppend, c.from, "append is lost on its way")
		silent()
		return
	}
	late := false
	if w.chance(w.net, FaultDelay, 15) {
		delay = w.net.between(20*millisecond, 12*second)
		if late = delay >= replyMax; late {
			silent()
		}
	}
	if w.chance(w.net, FaultDoubled, 8) {
		w.after(w.net.between(millisecond, 20*second), func() { w.again(c) })
	}
	w.after(delay, func() { w.arrived(c, late, delay, done) })
}

// again stores a second copy that the network has made.
func (w *world) again(c *commit) {
	if w.stream.mute || w.healed {
		return
	}
	w.sayFault(FaultDoubled, c.from, "a second copy of an append arrives")
	_, _ = w.stream.arrive(c.append, c.asJSON) // no one waits for its reply
}

func (w *world) arrived(c *commit, late bool, took int64, done func(uint64, error)) {
	if w.stream.mute {
		if !late {
			w.after(replyMax-took, func() { done(0, errSilent) })
		}
		return
	}
	sequence, err := w.stream.arrive(c.append, c.asJSON)
	switch {
	case err == nil:
		w.say(c.from, "append stored at %d: %s", sequence, w.stream.describe(sequence))
	case errors.Is(err, ledger.ErrConflict):
		w.say(c.from, "append refused by its fence")
	default:
		w.say(c.from, "append not stored: %v", err)
	}
	switch {
	case late:
	case w.chance(w.net, FaultLostAck, 10):
		w.sayFault(FaultLostAck, c.from, "the reply is lost")
		w.after(replyMax-took, func() { done(0, errSilent) })
	default:
		w.after(w.net.between(millisecond/2, 10*millisecond), func() { done(sequence, err) })
	}
}

// describe names the records of a message.
func (s *stream) describe(sequence uint64) string {
	if !s.w.options.Trace || sequence > uint64(len(s.stored)) {
		return ""
	}
	text := ""
	for i, e := range s.stored[sequence-1].entries {
		if i > 0 {
			text += ", "
		}
		text += describe(e)
	}
	return text
}

// persist appends records until they are stored, under one id. done learns the
// sequence, or false when the stream refused them or the writer has given up.
func (w *world) persist(from string, source ledger.Source, records []*pb.Record, r *random,
	gone func() bool, done func(uint64, bool)) {
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		panic("sim: " + err.Error())
	}
	w.persistOf(nil, from, source, data, records, r, gone, done)
}

// persistOf is persist of an agent's records, which may be cut off.
func (w *world) persistOf(a *agent, from string, source ledger.Source, data []byte,
	records []*pb.Record, r *random, gone func() bool, done func(uint64, bool)) {
	c := &commit{from: from, agent: a, append: ledger.Append{Subject: source.Subject(), ID: newID(r),
		Data: data}}
	if w.settings.json && r.percent(30) {
		c.asJSON, c.append.Data = true, toJSON(records)
	}
	pause := 50 * millisecond
	var result func(sequence uint64, err error)
	try := func() {
		if gone == nil || !gone() {
			w.try(c, result)
		}
	}
	result = func(sequence uint64, err error) {
		var refused *ledger.Refused
		switch {
		case err == nil:
			w.check.acknowledged(c, sequence)
			done(sequence, true)
		case errors.As(err, &refused) && refused.Field != "stream":
			panic("sim: a writer of this world wrote what no store takes: " + err.Error())
		default: // in doubt, busy, or no room: the same commit again
			w.after(pause, try)
			pause = min(2*pause, 2*second)
		}
	}
	try()
}

const hexDigits = "0123456789abcdef"

// newID is the id of an append.
func newID(r *random) string {
	var id [ledger.IDLen]byte
	for i := 0; i < len(id); i += 8 {
		x := r.next()
		for j := range 8 {
			id[i+j] = hexDigits[x>>(4*j)&15]
		}
	}
	return string(id[:])
}

// toJSON writes a commit as a client without protobuf does, without the spaces that
// protojson adds at random.
func toJSON(records []*pb.Record) []byte {
	loose, err := protojson.Marshal(&pb.Commit{MinReader: ledger.ReaderVersion, Records: records})
	if err != nil {
		panic("sim: " + err.Error())
	}
	var fields any
	if err := json.Unmarshal(loose, &fields); err != nil {
		panic("sim: " + err.Error())
	}
	data, err := json.Marshal(fields)
	if err != nil {
		panic("sim: " + err.Error())
	}
	return data
}

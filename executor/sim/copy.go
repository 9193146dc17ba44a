package sim

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// copied is a host's second copy of the ledger, as its tiles are, and what is kept beside
// them over a restart. What a host has folded is in it before it is state, so that only a
// power cut takes it from there (G3).
type copied struct {
	h         *host
	messages  []ledger.Message // by sequence - 1
	pending   []ledger.Message // that were not written
	createdNs int64            // of the stream, as of the last session
	cut       bool             // a power cut may have taken its end
	note      *turn.Halt       // of the last halt; nil: none
	restarts  int              // since a scrub has halted the host
	mayDie    bool             // the host may die while it is written
}

// add takes a message that is folded, or holds it against the copy where that has it.
func (c *copied) add(m ledger.Message) error {
	switch at := m.Sequence; {
	case at <= uint64(len(c.messages)):
		if !sameMessage(c.messages[at-1], m) {
			return &ledger.Halted{Guard: "G3", Sequence: at,
				Problem: "the stream has another record than the copy"}
		}
	case at > uint64(len(c.messages)+len(c.pending)):
		c.pending = append(c.pending, m)
	}
	return nil
}

func sameMessage(a, b ledger.Message) bool {
	return a.StampNs == b.StampNs && a.Subject == b.Subject && bytes.Equal(a.Data, b.Data)
}

// Flush is as turn.Machine.Flush has it.
func (c *copied) Flush() error {
	if c.mayDie {
		c.h.dies("folded, not committed")
	}
	c.messages, c.pending = append(c.messages, c.pending...), nil
	return nil
}

// cutPower takes a share of what was copied last.
func (c *copied) cutPower(lost int) {
	c.messages = c.messages[:len(c.messages)-min(len(c.messages), turnsMax)*lost/100]
	c.cut = true
}

// attach holds the copy against state and stream at the start of a session, and finds what
// an earlier one was halted for.
func (c *copied) attach(head ledger.Head) error {
	h := c.h
	c.pending, c.createdNs = nil, head.CreatedNs
	if at := h.cursor(); at > uint64(len(c.messages)) && !c.cut {
		h.w.check.fail("G3", at, "the state of %s has more than its second copy, which ends at %d",
			h.name, len(c.messages))
	}
	for at := uint64(len(c.messages)) + 1; at <= h.cursor(); at++ {
		m, err := h.w.stream.read(at)
		if err != nil {
			return err
		}
		c.messages = append(c.messages, m.message)
	}
	c.cut = false
	if c.note == nil {
		return nil
	}
	again, err := c.note.Again(head, uint64(len(c.messages)), c.same)
	if again != nil {
		return again
	}
	c.note = nil
	return err
}

// same reports whether the stream has the record of the copy at a sequence.
func (c *copied) same(sequence uint64) (bool, error) {
	m, err := c.h.w.stream.read(sequence)
	return err == nil && sameMessage(c.messages[sequence-1], m.message), nil
}

// rot changes a record that a host has folded long ago: no guard of a start finds it, only
// a scrub.
func (w *world) rot(h *host) {
	if h.state == nil || len(h.copy.messages) < 3 || h.cursor() < 3 {
		return
	}
	at := 1 + uint64(w.strike.below(int(min(h.cursor(), uint64(len(h.copy.messages))))-1))
	w.sayFault(FaultRotten, "stream", "has another record %d", at)
	w.check.tampered(FaultRotten, at)
	w.check.mustHalt = []*host{h}
	w.flip(at)
	w.after(w.strike.between(second, 5*second), h.scrub)
}

// flip changes a record of the stream, or changes it back.
func (w *world) flip(at uint64) {
	w.stream.memory.Corrupt(at, func(m *ledger.Message) { m.Data[len(m.Data)-1] ^= 4 })
}

// scrub reads the stream against the copy, as soon as there is a session.
func (h *host) scrub() {
	if !h.up || h.paused || h.cut || h.state == nil || h.halted != nil {
		h.w.after(second, h.scrub)
		return
	}
	for i := range h.copy.messages {
		at := uint64(i) + 1
		if same, _ := h.copy.same(at); !same {
			h.halt(&ledger.Halted{Guard: "G4", Sequence: at,
				Problem: "the stream has another record here than the copy"})
			return
		}
	}
}

// keepHalt keeps a halt for the next start. What a scrub has found is there at the first
// start that follows, and is mended before the second.
func (h *host) keepHalt(halted *ledger.Halted) {
	c := &h.copy
	kept, keep := turn.KeepHalt(halted, c.createdNs)
	if keep {
		c.note = &kept
	}
	if h.w.check.lostBy != FaultRotten || len(h.w.check.mustHalt) == 0 || h.w.check.mustHalt[0] != h {
		return
	}
	if !keep { // it was found when a fact was read: the scrub finds it again
		h.w.after(second, h.startAgain)
		return
	}
	switch c.restarts++; c.restarts {
	case 1:
		h.w.after(second, h.startAgain)
	case 2:
		h.w.after(second, func() {
			h.w.flip(h.w.check.lostAt)
			h.startAgain()
		})
	default:
		h.w.check.fail("L4", halted.Sequence, "halted, and record %d is mended: %s", h.w.check.lostAt,
			halted.Error())
		h.w.over = true
	}
}

// startAgain starts a halted host as its supervisor does.
func (h *host) startAgain() {
	h.wants = false
	h.w.say(h.name, "starts")
	h.start()
}

// attached sees a session begin: a host that a scrub has halted begins one only when the
// record is mended (G4).
func (c *checker) attached(h *host) {
	switch h.copy.restarts {
	case 1:
		c.fail("G4", c.lostAt, "%s goes on after a restart, and record %d is still another one", h.name,
			c.lostAt)
		c.w.over = true
	case 2:
		c.mustHalt, c.w.over = nil, true
	}
}

// confirms holds what the machine says of the clock against the records that were folded:
// an operator's word counts once, and only where it came after the session began (C1).
func (c *checker) confirms(h *host) {
	if want := h.confirmed > 0; h.confirms != want {
		c.fail("C1", h.cursor(), "%s: %d confirmations of its clock were folded, and it takes the "+
			"clock as right: %v", h.name, h.confirmed, h.confirms)
	}
	h.confirmed, h.confirms = 0, false
}

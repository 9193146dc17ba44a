package host

import (
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// ack is the result of an append.
type ack struct {
	append   turn.Append
	sequence uint64
	err      error
}

// acknowledged hands the result of the append in flight to the machine.
func (a *actor) acknowledged(k ack) error {
	if halted := new(ledger.Halted); k.append.Claim && errors.As(k.err, &halted) {
		return halted
	}
	reachable := a.host.cfg.Conn.IsConnected()
	switch a.session.Acknowledged(k.sequence, k.err, reachable, a.host.clock.instant().MonoNs) {
	case turn.Stored:
		a.board.Refused("")
		a.board.Stored(k.sequence)
	case turn.Beaten:
		a.log.Warn("another holder has begun a term")
		if k.append.Claim {
			return a.guards().Fence(a.life, k.append.Fence, k.err)
		}
	case turn.InDoubt:
		a.log.Warn("append in doubt; the same commit goes out again", "error", k.err)
	case turn.Mute:
		return fmt.Errorf("%w: %d appends in a row, the last: %w", ErrMute, turn.MissesMax, k.err)
	case turn.Refused:
		a.log.Error("append refused; it is tried again", "error", k.err)
		a.board.Refused(k.err.Error())
		if errors.Is(k.err, ledger.ErrFull) {
			a.bound.met()
		}
	}
	return nil
}

package host

import (
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// askRead reads messages out of the tiles, for those who may not use JetStream: no one but
// hosts should. The tiles have what was folded, byte for byte, also while the tenant is
// halted and of a ledger whose stream was repaired.
func (a *actor) askRead(q view.ReadQuery) any {
	if err := checkRead(q); err != nil {
		return a.refuseRequest(err)
	}
	tiles := a.copiesSeen()
	switch {
	case tiles == nil:
		return view.ErrorAnswer{Error: "cannot read: the ledger is not open yet"}
	case q.From == 0 && a.currentMode() != view.ModeHalted:
		a.catchUp() // what was acknowledged is a part of it
	case q.From > tiles.Last() && q.WaitMs > 0:
		wait := min(time.Duration(q.WaitMs)*time.Millisecond, waitMax)
		a.await(&waiter{sequence: q.From}, wait)
		tiles = a.copiesSeen() // of another session, perhaps
	}
	answer, err := tiles.StoredFrom(q)
	if err != nil {
		return view.ErrorAnswer{Error: "cannot read: " + err.Error()}
	}
	return answer
}

func checkRead(q view.ReadQuery) error {
	switch {
	case q.Limit < 0 || q.Limit > tiles.ReadLimitMax:
		want := fmt.Sprintf("1 to %d messages, or 0 for %d", tiles.ReadLimitMax, tiles.ReadLimitDefault)
		return ledger.Refuse("request.limit", fmt.Sprint(q.Limit), want)
	case q.BytesMax < 0 || q.BytesMax > tiles.ReadBytesMax:
		want := fmt.Sprintf("1 to %d bytes, or 0 for as many", tiles.ReadBytesMax)
		return ledger.Refuse("request.bytes_max", fmt.Sprint(q.BytesMax), want)
	case q.WaitMs < 0 || q.WaitMs > waitMax.Milliseconds():
		want := fmt.Sprintf("0 to %d ms", waitMax.Milliseconds())
		return ledger.Refuse("request.wait_ms", fmt.Sprint(q.WaitMs), want)
	}
	return nil
}

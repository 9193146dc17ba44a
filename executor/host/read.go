package host

import (
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Bounds of one answer to ledger.read.
const (
	readLimitDefault = 100
	readLimitMax     = 1000
	readBytesMax     = 512 << 10
	readOverhead     = 128 // bytes that one message takes in JSON beside its own
)

// askRead reads messages out of the tiles, for those who may not use JetStream: nobody but
// hosts should. The tiles have what was folded, byte for byte, also while the tenant is
// halted and of a ledger whose stream was repaired.
func (a *actor) askRead(q executor.ReadQuery) any {
	if err := checkRead(q); err != nil {
		return a.refuseRequest(err)
	}
	tiles := a.copiesSeen()
	switch {
	case tiles == nil:
		return executor.ErrorAnswer{Error: "cannot read: the ledger is not open yet"}
	case q.From == 0 && a.currentMode() != executor.ModeHalted:
		a.catchUp() // what was acknowledged is a part of it
	case q.From > tiles.last() && q.WaitMs > 0:
		wait := min(time.Duration(q.WaitMs)*time.Millisecond, waitMax)
		a.await(&waiter{sequence: q.From}, wait)
		tiles = a.copiesSeen() // of another session, perhaps
	}
	answer, err := tiles.storedFrom(q)
	if err != nil {
		return executor.ErrorAnswer{Error: "cannot read: " + err.Error()}
	}
	return answer
}

func checkRead(q executor.ReadQuery) error {
	switch {
	case q.Limit < 0 || q.Limit > readLimitMax:
		want := fmt.Sprintf("1 to %d messages, or 0 for %d", readLimitMax, readLimitDefault)
		return ledger.Refuse("request.limit", fmt.Sprint(q.Limit), want)
	case q.BytesMax < 0 || q.BytesMax > readBytesMax:
		want := fmt.Sprintf("1 to %d bytes, or 0 for as many", readBytesMax)
		return ledger.Refuse("request.bytes_max", fmt.Sprint(q.BytesMax), want)
	case q.WaitMs < 0 || q.WaitMs > waitMax.Milliseconds():
		want := fmt.Sprintf("0 to %d ms", waitMax.Milliseconds())
		return ledger.Refuse("request.wait_ms", fmt.Sprint(q.WaitMs), want)
	}
	return nil
}

// storedFrom are the messages from a sequence on, within the bounds of the question.
func (t *tileFiles) storedFrom(q executor.ReadQuery) (executor.ReadAnswer, error) {
	answer := executor.ReadAnswer{Last: t.last(), Messages: []executor.StoredMessage{}}
	if q.From == 0 {
		return answer, nil
	}
	limit, room := q.Limit, q.BytesMax
	if limit == 0 {
		limit = readLimitDefault
	}
	if room == 0 {
		room = readBytesMax
	}
	for m, err := range t.messages(q.From) {
		if err != nil {
			return answer, err
		}
		room -= len(m.Data) + len(m.Subject) + len(m.ContentType) + readOverhead
		if len(answer.Messages) > 0 && room < 0 {
			break
		}
		answer.Messages = append(answer.Messages, executor.StoredMessage{
			Sequence: m.Sequence, StampNs: m.StampNs, Subject: m.Subject,
			ContentType: m.ContentType, Data: m.Data,
		})
		if len(answer.Messages) == limit || room <= 0 {
			break
		}
	}
	return answer, nil
}

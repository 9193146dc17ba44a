package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// read reads messages out of the tiles, for clients that may not use JetStream: only hosts
// should. The tiles have what was folded, byte for byte, also while the tenant is
// halted and of a ledger whose stream was repaired.
func (d *Desk) read(q api.ReadQuery) (answer api.ReadAnswer, err error) {
	if err := checkRead(q); err != nil {
		return answer, alone{d.refuse(err)}
	}
	tiles := d.Board.Copies()
	switch {
	case tiles == nil:
		return answer, alone{errors.New("cannot read: the ledger is not open yet")}
	case q.From == 0 && d.Board.Mode() != api.ModeHalted:
		d.catchUp() // what was acknowledged is a part of it
	case q.From > tiles.Last() && q.WaitMs > 0:
		wait := min(time.Duration(q.WaitMs)*time.Millisecond, waitMax)
		d.Board.Await(q.From, wait)
		tiles = d.Board.Copies() // of another session, perhaps
	}
	if answer, err = tiles.StoredFrom(q); err != nil {
		return answer, alone{fmt.Errorf("cannot read: %w", err)}
	}
	return answer, nil
}

// streamWait bounds what JetStream is asked about a stream.
const streamWait = 3 * time.Second

// stream is what JetStream says of the tenant's stream, for those who may not ask it.
func (d *Desk) stream() (answer api.StreamAnswer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), streamWait)
	defer cancel()
	reply, err := d.Conn.RequestWithContext(ctx,
		"$JS.API.STREAM.INFO."+jetstream.StreamName(d.Tenant), nil)
	if err != nil {
		return answer, alone{fmt.Errorf("cannot ask JetStream: %w", err)}
	}
	answer.Stream = reply.Data
	var info struct {
		Cluster struct {
			Leader string `json:"leader"`
			Since  string `json:"leader_since"`
		} `json:"cluster"`
	}
	_ = json.Unmarshal(reply.Data, &info) // without a leader every server is the connected one
	leads := info.Cluster.Leader + " " + info.Cluster.Since
	err = d.Shared.strict.Check(ctx, d.Conn, d.Tenant, d.Durable, leads)
	if err != nil {
		answer.NotStrict = err.Error()
	}
	return answer, nil
}

func checkRead(q api.ReadQuery) error {
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

// export reads the tiles for a client that writes a bundle of them. It needs no session, and
// changes nothing: whoever asks goes on from where the last answer ended.
func (d *Desk) export(q api.ExportQuery) (answer api.ExportAnswer, err error) {
	tiles := d.Board.Copies()
	if tiles == nil {
		return answer, alone{errors.New("cannot export: the ledger is not open yet")}
	}
	if answer, err = tiles.Export(q); err != nil {
		return answer, alone{fmt.Errorf("cannot export: %w", err)}
	}
	return answer, nil
}

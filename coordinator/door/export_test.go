package door

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
)

// Kill has the door forget what it knows as if its process were killed: what it would still have
// queued or told is lost.
func (d *Door) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tenants {
		t.conn.Close()
	}
}

// Pulse sets how often a stream of events is looked at in which nothing happens.
func (w *Web) Pulse(d time.Duration) { w.pulse = d }

// Spare sets how long a blob may take beside its pace.
func (w *Web) Spare(d time.Duration) { w.spare = d }

// Blobs is how many blobs are moved.
func (d *Door) Blobs() int {
	d.blobs.mu.Lock()
	defer d.blobs.mu.Unlock()
	return d.blobs.all
}

// Conns is how many connections are open.
func (w *Web) Conns() int64 { return w.conns.Load() }

// ConnsMax is how many connections there may be.
const ConnsMax = connsMax

// Count is what the server calls for each connection.
func (w *Web) Count(conn net.Conn, state http.ConnState) { w.count(conn, state) }

// Begun answers plan.begin for a plan that this process takes nothing more for.
func (d *Door) Begun(ctx context.Context, who Caller, plan string) (State, error) {
	w, err := d.writer(who, "")
	if err != nil {
		return State{}, err
	}
	h, done, err := w.take(ctx, plan)
	if err != nil {
		return State{}, err
	}
	defer done()
	return d.begun(ctx, who, w, h)
}

// DeliveryOf is what plan.get says of a staged act.
var DeliveryOf = deliveryOf

// Explain is how a door tells what went wrong.
func Explain(err error) *Error { return explain(err) }

// Writers is how many writers the door has started.
func (d *Door) Writers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.writers)
}

// Fill has a caller use as many writers and requests as it may, but one request; empty gives them back.
func (d *Door) Fill(who Caller) (empty func()) {
	var taken []*shares
	for _, s := range []*shares{d.acts, d.calls} {
		for s.enter(who) == nil {
			taken = append(taken, s)
		}
	}
	d.calls.leave(who)
	return func() {
		for _, s := range taken[:len(taken)-1] {
			s.leave(who)
		}
	}
}

// Shares are places that users of tenants take.
type Shares struct{ *shares }

// NewShares makes places for requests.
func NewShares(max int) Shares { return Shares{newShares("requests", "are worked on", max)} }

// Enter takes a place, and Leave gives one back.
func (s Shares) Enter(who Caller) error { return s.enter(who) }

// Leave gives a place back.
func (s Shares) Leave(who Caller) { s.leave(who) }

// Superseded reports whether a writer has heard that another one has taken over a plan.
func (d *Door) Superseded(who Caller, writer, plan string) bool {
	d.mu.Lock()
	w := d.writers[writerKey{who.Tenant, who.Name, writer}]
	d.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return coordinator.Superseded(w.plans[plan].plan)
}

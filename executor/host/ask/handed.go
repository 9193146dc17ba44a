package ask

import (
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Request is what an operator asks of a tenant's loop: one of these, and the others are nil.
type Request struct {
	Rebuild *Handed[api.Nothing, api.DroppedAnswer]
	Sign    *Handed[api.Nothing, api.SignAnswer]
	Repair  *Handed[api.RepairQuery, api.RepairAnswer]
	Rotate  *Handed[api.RotationQuery, api.RotationAnswer]
	Erase   *Handed[api.TenantErasureQuery, api.TenantErasureAnswer]

	back back
}

// Refuse answers whichever it is: nothing was done.
func (r Request) Refuse(err error) { r.back.give(nil, alone{err}) }

// Handed is a request that the loop answers, once.
type Handed[Q, A any] struct {
	Query Q
	back  back
}

// Answer gives the answer without blocking, or says why there is none.
func (h *Handed[Q, A]) Answer(answer A, err error) { h.back.give(answer, err) }

// back is where an answer goes; buffered 1.
type back chan givenBack

type givenBack struct {
	answer any
	err    error
}

func (b back) give(answer any, err error) { b <- givenBack{answer, err} }

// Requests are what operators ask of the loop. Each must be answered.
func (d *Desk) Requests() <-chan Request { return d.requests }

// handingOver is the handler of what the loop carries out between two turns; as makes it the
// request that it is.
func handingOver[Q, A any](as func(*Handed[Q, A]) Request) func(*Desk, Q) (A, error) {
	return func(d *Desk, q Q) (A, error) {
		b := make(back, 1)
		got, err := d.handOver(as(&Handed[Q, A]{q, b}), b)
		answer, _ := got.(A) // what Handed.Answer was given
		return answer, err
	}
}

func (d *Desk) handOver(r Request, b back) (answer any, err error) {
	if unknown := d.Board.holderUnknown(); unknown != "" { // each host would carry it out
		return nil, alone{fmt.Errorf("nothing was done: %s", unknown)}
	}
	r.back = b
	ctx, cancel := d.untilGone()
	defer cancel()
	select {
	case d.requests <- r:
	case <-ctx.Done():
		return nil, alone{errors.New("the tenant is at something else; ask again")}
	}
	select {
	case given := <-b:
		return given.answer, given.err
	case <-ctx.Done():
		const text = "the host has stopped before it was done; look at sagenbaum status"
		return nil, alone{errors.New(text)}
	}
}

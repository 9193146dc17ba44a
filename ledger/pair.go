package ledger

import (
	"errors"
	"fmt"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// pairID names a pair in a commit.
type pairID struct{ plan, action string }

// halves are the places in a commit of the records of one pair.
type halves struct{ forwards, compensations []int }

// checkPairs holds the records of a commit to the rule that a forward and its
// compensation come together, the forward first, or not at all. A pair of
// which one half is refused is refused whole: a forward must not be held without its
// undo, nor an undo without what it is for. What is right knows its other half.
func checkPairs(entries []Entry) {
	var pairs map[pairID]*halves
	var list []*halves
	for i := range entries {
		r := entries[i].Record
		if r == nil {
			continue
		}
		forward := r.GetForwardRegistered() != nil
		if !forward && r.GetCompensationRegistered() == nil {
			continue
		}
		if pairs == nil {
			pairs = map[pairID]*halves{}
		}
		id := pairID{r.Plan, r.Action}
		h := pairs[id]
		if h == nil {
			h = &halves{}
			pairs[id], list = h, append(list, h)
		}
		if forward {
			h.forwards = append(h.forwards, i)
		} else {
			h.compensations = append(h.compensations, i)
		}
	}
	for _, h := range list {
		h.check(entries)
	}
}

// check refuses the records of a pair that is none, each with why, or names to each of
// the two its other half.
func (h *halves) check(entries []Entry) {
	const want = "forward_registered and compensation_registered of one action in one commit, " +
		"once each"
	if len(h.forwards) != 1 || len(h.compensations) != 1 {
		h.refuse(entries, Refuse("pair", "half of a pair", want))
		return
	}
	forward, compensation := &entries[h.forwards[0]], &entries[h.compensations[0]]
	switch {
	case forward.Err != nil:
		h.refuse(entries, otherHalf("forward_registered", forward.Err))
	case compensation.Err != nil:
		h.refuse(entries, otherHalf("compensation_registered", compensation.Err))
	case h.compensations[0] < h.forwards[0]:
		h.refuse(entries, Refuse("pair", "the compensation stands before its forward",
			"forward_registered first, then compensation_registered"))
	case stagedFault(forward, compensation) != nil:
		h.refuse(entries, stagedFault(forward, compensation))
	default:
		forward.Pair, compensation.Pair = compensation.Record, forward.Record
	}
}

func stagedFault(forward, compensation *Entry) error {
	return checkStaged(forward.Record.GetForwardRegistered(),
		compensation.Record.GetCompensationRegistered())
}

// refuse gives a reason to each half that has none of its own.
func (h *halves) refuse(entries []Entry, why error) {
	for _, list := range [...][]int{h.forwards, h.compensations} {
		for _, i := range list {
			if entries[i].Err == nil {
				entries[i].Err = why
			}
		}
	}
}

// otherHalf refuses a half for what is wrong with the other one.
func otherHalf(kind string, err error) error {
	var r *Refused
	if !errors.As(err, &r) {
		return Refuse("pair", "its "+kind+" is refused", "a pair that is right as a whole")
	}
	return Refuse("pair", fmt.Sprintf("its %s is refused: %s: %s", kind, r.Field, r.Problem), r.Want)
}

// CheckCommit is Check of the records of one commit, and of what they are together: the
// rules of pairs. Whoever appends may ask before.
func CheckCommit(records []*pb.Record, s Source) error {
	entries := make([]Entry, len(records))
	for i, r := range records {
		if err := Check(r, s); err != nil {
			return err
		}
		entries[i].Record = r
	}
	checkPairs(entries)
	for i := range entries {
		if entries[i].Err != nil {
			return entries[i].Err
		}
	}
	return nil
}

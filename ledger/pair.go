package ledger

import (
	"errors"
	"fmt"
	"slices"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// pairID names a pair in a commit.
type pairID struct{ plan, action string }

// halves are the records in a commit of one pair: their last places, and how many there are.
type halves struct {
	pairID
	forward, compensation   int
	forwards, compensations int
	why                     error // they are no pair; nil: they are one
}

// checkPairs holds the records of a commit to the rule that a forward and its
// compensation come together, the forward first, or not at all. A pair of
// which one half is refused is refused whole: a forward must not be held without its
// undo, nor an undo without what it is for. What is right knows its other half.
func checkPairs(entries []Entry) {
	var list pairs
	of := make([]int, len(entries)) // the number of its pair, from 1; 0: it is half of none
	for i := range entries {
		r := entries[i].Record
		forward := r.GetForwardRegistered() != nil
		if !forward && r.GetCompensationRegistered() == nil {
			continue
		}
		of[i] = list.number(pairID{r.Plan, r.Action})
		if h := &list.all[of[i]-1]; forward {
			h.forward, h.forwards = i, h.forwards+1
		} else {
			h.compensation, h.compensations = i, h.compensations+1
		}
	}
	for i := range list.all {
		list.all[i].check(entries)
	}
	for i, n := range of {
		if n != 0 && entries[i].Err == nil {
			entries[i].Err = list.all[n-1].why
		}
	}
}

// pairs are those of a commit.
type pairs struct {
	all    []halves
	places map[pairID]int // in all, once there are more than a few
}

// fewPairs are found faster one by one than in a map.
const fewPairs = 8

// number is that of a pair, from 1.
func (p *pairs) number(id pairID) int {
	if len(p.all) > fewPairs && p.places == nil {
		p.places = map[pairID]int{}
		for i, h := range p.all {
			p.places[h.pairID] = i
		}
	}
	at, known := p.places[id]
	if p.places == nil {
		at = slices.IndexFunc(p.all, func(h halves) bool { return h.pairID == id })
		known = at >= 0
	}
	if !known {
		at, p.all = len(p.all), append(p.all, halves{pairID: id})
		if p.places != nil {
			p.places[id] = at
		}
	}
	return at + 1
}

// check says why the two are no pair, or names to each of them its other half.
func (h *halves) check(entries []Entry) {
	const want = "forward_registered and compensation_registered of one action in one commit, " +
		"once each"
	if h.forwards != 1 || h.compensations != 1 {
		h.why = Refuse("pair", "half of a pair", want)
		return
	}
	forward, compensation := &entries[h.forward], &entries[h.compensation]
	switch {
	case forward.Err != nil:
		h.why = otherHalf("forward_registered", forward.Err)
	case compensation.Err != nil:
		h.why = otherHalf("compensation_registered", compensation.Err)
	case h.compensation < h.forward:
		h.why = Refuse("pair", "the compensation stands before its forward",
			"forward_registered first, then compensation_registered")
	case stagedFault(forward, compensation) != nil:
		h.why = stagedFault(forward, compensation)
	default:
		forward.Pair, compensation.Pair = compensation.Record, forward.Record
	}
}

func stagedFault(forward, compensation *Entry) error {
	return checkStaged(forward.Record.GetForwardRegistered(),
		compensation.Record.GetCompensationRegistered())
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
	var few [4]Entry // a pair takes two, and more are seldom checked at once
	entries := few[:0]
	for _, r := range records {
		if err := Check(r, s); err != nil {
			return err
		}
		entries = append(entries, Entry{Record: r})
	}
	checkPairs(entries)
	for i := range entries {
		if entries[i].Err != nil {
			return entries[i].Err
		}
	}
	return nil
}

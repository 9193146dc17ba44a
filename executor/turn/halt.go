package turn

import "github.com/sagenbaum/sagenbaum/ledger"

// Halt is a halt of a tenant as it is kept for the next session, beside the second copy
// of the ledger.
type Halt struct {
	Guard     string `json:"guard"`
	Sequence  uint64 `json:"sequence"`
	Problem   string `json:"problem"`
	CreatedNs int64  `json:"created_ns"` // of the stream, which it was found in
}

// KeepHalt returns what is kept of a halt that was found in a stream of this age; false:
// nothing, as the guard that found it finds it again, or it is not the ledger's.
func KeepHalt(h *ledger.Halted, createdNs int64) (kept Halt, keep bool) {
	return Halt{h.Guard, h.Sequence, h.Problem, createdNs},
		h.Guard == "G1" || h.Guard == "G3" || h.Guard == "G4" || h.Guard == "G5"
}

// Again returns the halt of an earlier session where it still holds, nil where it does
// not: the stream is another one, or the message is now the same as in the second copy.
// copied is the last sequence of that copy. same compares one message of stream and copy;
// one that cannot be read for good is not the same.
func (h Halt) Again(
	head ledger.Head, copied uint64, same func(sequence uint64) (bool, error),
) (*ledger.Halted, error) {
	if h.CreatedNs != head.CreatedNs || h.Sequence == 0 || h.Sequence > copied {
		return nil, nil
	}
	is, err := same(h.Sequence)
	if err != nil || is {
		return nil, err
	}
	return &ledger.Halted{Guard: h.Guard, Sequence: h.Sequence, Problem: h.Problem}, nil
}

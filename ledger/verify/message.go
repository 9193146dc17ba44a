package verify

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// shown are the records of one message that a bundle has.
type shown struct {
	records []ledger.Leafed
	leaves  []ledger.Hash
}

func (s *shown) add(l ledger.Leafed, leaf ledger.Hash) {
	s.records, s.leaves = append(s.records, l), append(s.leaves, leaf)
}

// whole: no record of the message is missing.
func (s *shown) whole() bool {
	return len(s.records) > 0 && len(s.records) == int(max(s.records[0].Count, 1))
}

// decode returns the message, of which Data is missing where it is not whole, and its
// entries. The error is a *ledger.Refused where the records are not of one message or
// are not what their leaves say, or a *ledger.Halted.
func (s *shown) decode(tenant string) (ledger.Message, []ledger.Entry, error) {
	if !s.whole() {
		return s.decodePart(tenant)
	}
	m, err := ledger.Assemble(s.records)
	if err != nil {
		return ledger.Message{}, nil, err
	}
	entries, err := ledger.Decode(tenant, m)
	if err != nil {
		return m, nil, err
	}
	same := len(entries) == len(s.leaves)
	for i, e := range entries {
		same = same && ledger.Hash(e.Address.Leaf) == s.leaves[i]
	}
	if !same {
		return m, nil, ledger.Refuse("message", "its records are others than their leaves say",
			"records as their store had them")
	}
	return m, entries, nil
}

// decodePart decodes what is shown of a message.
func (s *shown) decodePart(tenant string) (ledger.Message, []ledger.Entry, error) {
	first := s.records[0]
	m := ledger.Message{Sequence: first.Sequence, StampNs: first.StampNs, Subject: first.Subject,
		ContentType: first.Type}
	if first.Type != "" || len(s.records) > int(first.Count) {
		return m, nil, ledger.Refuse("message", "a part of one that cannot be read in part",
			"the whole message, or nothing of it")
	}
	data := protowire.AppendTag(nil, 1, protowire.VarintType)
	data = protowire.AppendVarint(data, uint64(first.Reader))
	for i, r := range s.records {
		same := r.Sequence == first.Sequence && r.StampNs == first.StampNs &&
			r.Subject == first.Subject && r.Type == first.Type &&
			r.Tenant == first.Tenant && r.Count == first.Count && r.Reader == first.Reader
		if !same || r.Index >= r.Count || i > 0 && r.Index <= s.records[i-1].Index {
			return m, nil, ledger.Refuse("message", "its records are not of one message, in order",
				"records as their store had them")
		}
		data = protowire.AppendBytes(protowire.AppendTag(data, 2, protowire.BytesType), r.Body)
	}
	part := m
	part.Data = data
	entries, err := ledger.Decode(tenant, part)
	if err != nil {
		return m, nil, err
	}
	if len(entries) != len(s.records) {
		return m, nil, ledger.Refuse("message", "a part of what is no commit",
			"records as their store had them")
	}
	for i := range entries {
		e := &entries[i]
		e.Address = &pb.Address{Sequence: first.Sequence, Index: s.records[i].Index,
			Leaf: slices.Clone(s.leaves[i][:])}
		e.Count = first.Count
	}
	m.Data = data
	return m, entries, nil
}

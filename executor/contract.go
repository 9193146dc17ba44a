package executor

import (
	"encoding/hex"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Published contracts are rows for people and agents to read. Registrations
// freeze what they need of theirs, so nothing here touches a held compensation
// (S11, S23).

func contractKey(capability string, sequence uint64, index uint32) []byte {
	return append(append(planKey(keyContract, capability), 0), recordKey(0, sequence, index)[1:]...)
}

func (s *State) contractPublished(e ledger.Entry, k *pb.ContractPublished) Result {
	prefix := append(planKey(keyContract, k.Capability), 0)
	var last []byte
	for _, v := range s.kv.Scan(prefix, after(prefix)) {
		last = append(last[:0], v...) // v is valid until the next step only
	}
	if last != nil {
		row := new(rowspb.ContractRow)
		decode("scan", last, row)
		if string(row.Digest) == string(k.Digest) {
			return repeated
		}
	}
	s.set(contractKey(k.Capability, e.Address.Sequence, e.Address.Index), encode(&rowspb.ContractRow{
		Digest: k.Digest, Contract: k.Contract, At: e.Address, AtNs: s.meta.TimeNs, By: e.Source.Name,
	}))
	return effective
}

// Contracts returns one page of published contracts in order of capability, each
// with its current revision or all of them, and the capability to continue after.
func (r *Reader) Contracts(q ContractQuery) (views []ContractView, next string) {
	from, to := []byte{keyContract}, after([]byte{keyContract})
	if q.After != "" {
		from = after(append(planKey(keyContract, q.After), 0))
	}
	if q.Capability != "" {
		from = append(planKey(keyContract, q.Capability), 0)
		to = after(from)
	}
	size := 0
	var group []ContractView // revisions of one capability
	flush := func() bool {
		if len(group) == 0 {
			return true
		}
		group[len(group)-1].Current = true
		if !q.Revisions {
			group = group[len(group)-1:]
		}
		add := len(mustJSON(group))
		if len(views) > 0 && (len(views)+len(group) > limitOf(q.Limit) || size+add > pageSizeMax) {
			next = views[len(views)-1].Capability
			return false
		}
		views, size, group = append(views, group...), size+add, nil
		return true
	}
	for k, v := range r.s.kv.Scan(from, to) {
		view := contractView(k, v)
		if len(group) > 0 && group[0].Capability != view.Capability {
			if !flush() {
				return views, next
			}
		}
		view.Revision = len(group) + 1
		group = append(group, view)
	}
	flush()
	return views, next
}

func contractView(k, v []byte) ContractView {
	row := new(rowspb.ContractRow)
	decode("scan", v, row)
	return ContractView{
		Capability: string(k[1 : len(k)-13]), Digest: hex.EncodeToString(row.Digest), By: row.By,
		At: ledger.FormatAddress(row.At), AtNs: row.AtNs, Contract: append([]byte(nil), row.Contract...),
	}
}

package executor

import (
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

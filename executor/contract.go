package executor

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Published contracts are rows for people and agents to read. Registrations
// freeze what they need of theirs, so nothing here touches a held compensation
// (S11, S23).

func (s *State) contractPublished(e ledger.Entry, k *pb.ContractPublished) Result {
	prefix := rows.Contracts.Within(k.Capability)
	var last []byte
	for _, v := range s.tx.Scan(prefix, rows.After(prefix)) {
		last = append(last[:0], v...) // v is valid until the next step only
	}
	if last != nil {
		row := rows.Contracts.Decode("scan", last)
		if string(row.Digest) == string(k.Digest) {
			return repeated
		}
	}
	at := rows.NamedPlace{Name: k.Capability, At: rows.At(e.Address)}
	rows.Contracts.Set(s.tx, at, &rowspb.ContractRow{
		Digest: k.Digest, Contract: k.Contract, At: e.Address, AtNs: s.meta.TimeNs, By: e.Source.Name,
	})
	return effective
}

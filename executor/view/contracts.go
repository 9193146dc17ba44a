package view

import (
	"encoding/hex"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Contracts returns one batch of published contracts in order of capability, each
// with its current revision or all of them, and the capability to continue after.
func (r *Reader) Contracts(q api.ContractQuery) (views []api.Contract, next string) {
	from, to := rows.Contracts.Prefix(), rows.After(rows.Contracts.Prefix())
	if q.After != "" {
		from = rows.After(rows.Contracts.Within(q.After))
	}
	if q.Capability != "" {
		from = rows.Contracts.Within(q.Capability)
		to = rows.After(from)
	}
	list := newBatch[api.Contract](q.Limit)
	var group []api.Contract // revisions of one capability
	flush := func() bool {
		if len(group) == 0 {
			return true
		}
		group[len(group)-1].Current = true
		if !q.Revisions {
			group = group[len(group)-1:]
		}
		more := list.add(group[0].Capability, group...)
		group = nil
		return more
	}
	for k, v := range r.tx.Scan(from, to) {
		shown := contractView(k, v)
		if len(group) > 0 && group[0].Capability != shown.Capability {
			if !flush() {
				return list.list, list.next
			}
		}
		shown.Revision = len(group) + 1
		group = append(group, shown)
	}
	flush()
	return list.list, list.next
}

func contractView(k, v []byte) api.Contract {
	row := new(rowspb.ContractRow)
	rows.Decode("scan", v, row)
	return api.Contract{
		Capability: string(k[1 : len(k)-13]), Digest: hex.EncodeToString(row.Digest), By: row.By,
		At: ledger.FormatAddress(row.At), AtNs: row.AtNs, Contract: append([]byte(nil), row.Contract...),
	}
}

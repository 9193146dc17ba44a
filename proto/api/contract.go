package api

import "encoding/json"

// ContractQuery asks for published contracts (contract.ls): the current revision of
// each capability, or of one capability, or all revisions.
type ContractQuery struct {
	Capability string `json:"capability,omitempty"`
	Revisions  bool   `json:"revisions,omitempty"` // all, not the current one only
	After      string `json:"after,omitempty"`     // capability; the batch starts after it
	Limit      int    `json:"limit,omitempty"`     // 1..1000, default 100
}

// ContractsAnswer answers contract.ls.
type ContractsAnswer struct {
	Contracts []Contract `json:"contracts"`
	Next      string     `json:"next,omitempty"`
}

// Contract is one published revision of a contract.
type Contract struct {
	Capability string          `json:"capability"`
	Digest     string          `json:"digest"`   // 64 hex digits
	Revision   int             `json:"revision"` // from 1
	Current    bool            `json:"current"`
	By         string          `json:"by"` // operator
	At         string          `json:"at"` // address
	AtNs       int64           `json:"at_ns"`
	Contract   json.RawMessage `json:"contract"` // canonical JSON
}

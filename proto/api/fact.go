package api

import "encoding/json"

// States of a fact, as in Fact.
const (
	FactInMemory  = "in memory"
	FactEvicted   = "evicted"   // its value is in the ledger only
	FactRetracted = "retracted" // a tombstone
)

// Fact is one fact.
type Fact struct {
	Key   string `json:"key"`
	State string `json:"state"`
	// Value: none of a tombstone; in lists none of an evicted fact.
	Value json.RawMessage `json:"value,omitempty"`
	// ReadFrom: fact.get of an evicted fact: the ledger, at this address.
	ReadFrom   string `json:"read_from,omitempty"`
	Bytes      uint64 `json:"bytes"`       // of key and value
	AssertedNs int64  `json:"asserted_ns"` // last assertion
	ChangedNs  int64  `json:"changed_ns"`  // last change of value
	// SinceNs: its place in the eviction queue: asserted or brought back then, to the minute.
	SinceNs     int64  `json:"since_ns,omitempty"`
	Asserted    string `json:"asserted,omitempty"`   // address of the last assertion
	By          string `json:"by,omitempty"`         // source; empty: the executor
	Plan        string `json:"plan,omitempty"`       // what it was asserted or retracted for
	Action      string `json:"action,omitempty"`     //
	About       string `json:"about,omitempty"`      // that action's registration
	Compensates bool   `json:"compensates"`          // as the undo of that action
	Cause       string `json:"cause,omitempty"`      // Compensates: the dispatch of that undo
	Evicted     string `json:"evicted,omitempty"`    // address of the eviction in force
	Reingested  string `json:"reingested,omitempty"` // address of what brought it back
	Tombstone   string `json:"tombstone,omitempty"`  // address of the retraction
	RetractedNs int64  `json:"retracted_ns,omitempty"`
	// Asked: address of an operator's request that is not carried out yet.
	Asked    string `json:"asked,omitempty"`
	Watched  bool   `json:"watched"`  // a held lease reads it
	Oversize bool   `json:"oversize"` // memory.queue: larger than the capacity
}

// FactQuery asks for one fact (fact.get), or for its history (fact.history).
type FactQuery struct {
	Key string `json:"key"`
	// Limit: fact.history: the latest so many, 1..1000, default 100.
	Limit    int    `json:"limit,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"` // answer once this has been folded
}

// FactAnswer answers fact.get.
type FactAnswer struct {
	Fact Fact `json:"fact"`
	// Refused: what the fold said of the records at FactQuery.Sequence.
	Refused []string `json:"refused,omitempty"`
}

// FactsQuery asks for facts in order of key (fact.ls).
type FactsQuery struct {
	Prefix string `json:"prefix,omitempty"` // of the key
	State  string `json:"state,omitempty"`  // one of the states of a fact; empty: in memory or evicted
	After  string `json:"after,omitempty"`  // key; the batch starts after it
	Limit  int    `json:"limit,omitempty"`  // 1..1000, default 100
}

// FactsAnswer answers fact.ls.
type FactsAnswer struct {
	Facts []Fact `json:"facts"`
	Next  string `json:"next,omitempty"` // key to continue after; empty: no more
}

// FactEvent is one record in the history of a fact.
type FactEvent struct {
	Key string `json:"key"`
	At  string `json:"at"` // address of the record
	// Kind: fact_asserted, fact_retracted, fact_evicted, fact_reingested.
	Kind    string          `json:"kind"`
	StampNs int64           `json:"stamp_ns"`
	By      string          `json:"by,omitempty"` // source; empty: the executor
	Value   json.RawMessage `json:"value,omitempty"`
	Plan    string          `json:"plan,omitempty"`
	Action  string          `json:"action,omitempty"`
	// Compensates: address: an action's registration, or an eviction.
	Compensates string `json:"compensates,omitempty"`
	// Fact: address of the assertion that was evicted or brought back.
	Fact    string `json:"fact,omitempty"`
	Cause   string `json:"cause,omitempty"`   // address of the dispatch, or of an operator's request
	Bytes   uint64 `json:"bytes,omitempty"`   // of an eviction
	Watched bool   `json:"watched,omitempty"` // of an eviction: a held lease read it
}

// FactHistoryAnswer answers fact.history, the latest event last.
type FactHistoryAnswer struct {
	Events []FactEvent `json:"events"`
	More   bool        `json:"more"` // there were earlier ones
}

package api

// Memory is the state of working memory.
type Memory struct {
	Capacity   int64  `json:"capacity"` // bytes; 0: no limit
	Bytes      uint64 `json:"bytes"`    // of keys and values in memory
	Facts      uint64 `json:"facts"`    // in memory
	Evicted    uint64 `json:"evicted"`  // facts whose value is in the ledger only
	Tombstones uint64 `json:"tombstones"`
	Evictions  uint64 `json:"evictions"` // so far
	Applied    uint64 `json:"applied"`   // sequence
}

// MemoryAnswer answers memory.status.
type MemoryAnswer struct {
	Memory Memory `json:"memory"`
}

// QueueQuery asks what would be evicted next (memory.queue).
type QueueQuery struct {
	Limit int `json:"limit,omitempty"` // of each list, 1..1000, default 100
}

// QueueAnswer answers memory.queue: what is next in its order, then the
// latest evictions, the latest last.
type QueueAnswer struct {
	Memory Memory      `json:"memory"`
	Next   []Fact      `json:"next"`
	Latest []FactEvent `json:"latest"`
}

// RebuildAnswer answers memory.rebuild: the state and the same ledger folded again from the
// beginning.
type RebuildAnswer struct {
	Applied  uint64   `json:"applied"` // sequence up to which both are folded
	Equal    bool     `json:"equal"`
	State    string   `json:"state"` // digest of all rows, 64 hex digits
	Rebuilt  string   `json:"rebuilt"`
	Facts    string   `json:"facts"` // digest of working memory
	Refolded string   `json:"refolded"`
	Rows     int      `json:"rows"`             // facts compared
	Differ   []string `json:"differ,omitempty"` // the first rows that do
	TookMs   int64    `json:"took_ms"`
}

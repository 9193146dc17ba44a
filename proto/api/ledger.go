package api

import "encoding/json"

// ReadQuery asks a host for messages of the ledger as they are stored (ledger.read), in
// the order of their sequences. An answer has at most Limit messages of at most BytesMax
// bytes in all, and one message where there is any: the next question starts after its last one.
type ReadQuery struct {
	From     uint64 `json:"from,omitempty"`      // sequence of the first; 0: none is wanted
	Limit    int    `json:"limit,omitempty"`     // messages, 1..1000, default 100
	BytesMax int    `json:"bytes_max,omitempty"` // 1..524288, default 524288
	WaitMs   int64  `json:"wait_ms,omitempty"`   // for the first, where it is still to come
}

// ReadAnswer answers a ReadQuery.
type ReadAnswer struct {
	Last     uint64          `json:"last"` // sequence of the last message that can be read
	Messages []StoredMessage `json:"messages"`
}

// StoredMessage is one message byte for byte as the stream had it when it was folded.
// Its leaves, and so the addresses of its records, cover all of these fields.
type StoredMessage struct {
	Sequence    uint64 `json:"sequence"`
	StampNs     int64  `json:"stamp_ns"`
	Subject     string `json:"subject"`
	ContentType string `json:"content_type,omitempty"` // the only header that has a meaning
	Data        []byte `json:"data"`
}

// StreamAnswer answers ledger.stream: what JetStream says of the tenant's stream.
type StreamAnswer struct {
	Stream json.RawMessage `json:"stream"` // as $JS.API.STREAM.INFO answers
	// NotStrict is why JetStream may take requests with unknown fields; empty: it does not.
	NotStrict string `json:"not_strict,omitempty"`
}

// ExportQuery asks a host for the entries of its tiles (ledger.export).
type ExportQuery struct {
	Index    uint64 `json:"index,omitempty"`     // of the first record
	Sequence uint64 `json:"sequence,omitempty"`  // instead: of the first message; 0: see Index
	BytesMax int    `json:"bytes_max,omitempty"` // of entries; 0: none are wanted
	Tree     bool   `json:"tree,omitempty"`      // also Nodes and Checkpoint
}

// ExportAnswer answers an ExportQuery.
type ExportAnswer struct {
	Size uint64 `json:"size"` // records in the tiles
	// Last: sequence of the last message that is whole there.
	Last    uint64 `json:"last"`
	Index   uint64 `json:"index"`             // of the first record that follows
	Entries []byte `json:"entries,omitempty"` // as ledger.AppendEntry writes them
	// Nodes: the perfect subtrees of the records before Index.
	Nodes      []ExportNode `json:"nodes,omitempty"`
	Checkpoint string       `json:"checkpoint,omitempty"`
}

// SignAnswer says how many records the next checkpoint covers (ledger.sign); the file
// with it follows in a moment, where this host can sign.
type SignAnswer struct {
	Size uint64 `json:"size"`
	// Later: this host does not hold the tenant yet, as after its start, and signs nothing; ask again.
	Later bool `json:"later,omitempty"`
}

// ExportNode is the root of a perfect subtree of 2^Level records.
type ExportNode struct {
	Level uint8  `json:"level"`
	Hash  []byte `json:"hash"`
}

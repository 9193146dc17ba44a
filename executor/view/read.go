package view

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
	Error    string          `json:"error,omitempty"`
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

package view

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
	Error      string       `json:"error,omitempty"`
}

// SignAnswer says how many records the next checkpoint covers (ledger.sign); the file
// with it follows in a moment, where this host can sign.
type SignAnswer struct {
	Size  uint64 `json:"size"`
	Error string `json:"error,omitempty"`
}

// ExportNode is the root of a perfect subtree of 2^Level records.
type ExportNode struct {
	Level uint8  `json:"level"`
	Hash  []byte `json:"hash"`
}

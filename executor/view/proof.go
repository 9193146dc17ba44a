package view

// Rotation is one rotation of the key that checkpoints are signed by.
type Rotation struct {
	At      string `json:"at"` // address of its record
	StampNs int64  `json:"stamp_ns"`
	OldKey  string `json:"old_key"` // verifier key
	NewKey  string `json:"new_key"`
	Signed  bool   `json:"signed"` // by the old key; else that one was lost
	Reason  string `json:"reason"`
	Actor   string `json:"actor"`
}

// Checkpoint is what status says of a tenant's checkpoints.
type Checkpoint struct {
	Size    uint64 `json:"size"`     // records of the largest in the ledger; 0: none yet
	StampNs int64  `json:"stamp_ns"` // of its record
	Root    []byte `json:"root,omitempty"`
	Key     string `json:"key,omitempty"`     // verifier key that this host signs with
	Problem string `json:"problem,omitempty"` // why this host does not sign
	// the ledger is not the one that was signed
	Alarm   bool   `json:"alarm,omitempty"`
	Witness string `json:"witness,omitempty"` // name of its key
	// size of the largest checkpoint that it has cosigned
	Cosigned uint64 `json:"cosigned,omitempty"`
	Away     string `json:"away,omitempty"` // why it has not cosigned the last one
	// it says that the ledger is not the one that it has seen
	WitnessAlarm bool       `json:"witness_alarm,omitempty"`
	Rotations    []Rotation `json:"rotations,omitempty"`
}

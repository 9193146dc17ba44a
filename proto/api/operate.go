package api

// RepairQuery asks for a new stream in place of a halted tenant's (ledger.repair).
type RepairQuery struct {
	DryRun bool   `json:"dry_run,omitempty"` // say what it would do, and change nothing
	Reason string `json:"reason"`
	Actor  string `json:"actor"`
}

// RepairAnswer says what a repair did, or would do. Sequences are those of the old
// stream, as in "3, 7-9".
type RepairAnswer struct {
	DryRun  bool   `json:"dry_run,omitempty"`
	Problem string `json:"problem"` // what had halted the tenant
	Tiles   uint64 `json:"tiles"`   // last sequence that the tiles had before
	// Through: and have now, with what the old stream could add to them: stamps and addresses are
	// kept.
	Through uint64 `json:"through"`
	Size    uint64 `json:"size"` // records up to there
	Root    string `json:"root"` // of their tree
	OldLast uint64 `json:"old_last"`
	Lost    string `json:"lost"`    // could not be read anywhere
	Carried string `json:"carried"` // appended again, with new addresses
	Dropped string `json:"dropped"` // could be read, and were not appended: in File
	File    string `json:"file,omitempty"`
	Kept    string `json:"kept,omitempty"` // copy of the old stream's own files
}

// RotationQuery asks that checkpoints be signed by a new key from here on (key.rotate).
type RotationQuery struct {
	Reason string `json:"reason"`
	Actor  string `json:"actor"`
	// Lost is the verifier key that is in force and was lost: nothing but the holder's
	// word joins the new one to it. Empty: the old key signs the rotation.
	Lost string `json:"lost,omitempty"`
}

// RotationAnswer says which key signs from here on.
type RotationAnswer struct {
	OldKey string `json:"old_key"` // verifier key
	NewKey string `json:"new_key"`
	File   string `json:"file"`   // of the new one, on the holder's machine
	Size   uint64 `json:"size"`   // records when it was asked for
	Signed bool   `json:"signed"` // by the old key
}

// DroppedAnswer answers rebuild.
type DroppedAnswer struct {
	Applied uint64 `json:"applied"` // last sequence of the state that was dropped
}

// ScrubAnswer answers ledger.scrub: the stream was read against the tiles.
type ScrubAnswer struct {
	Compared uint64 `json:"compared"` // messages of the stream that are as in the tiles
	Alone    uint64 `json:"alone"`    // messages that only the tiles have, after a repair
	Records  uint64 `json:"records"`
	// Differs: first sequence of the stream that is not as in the tiles.
	Differs uint64 `json:"differs,omitempty"`
	Problem string `json:"problem,omitempty"`
	TookMs  int64  `json:"took_ms"`
}

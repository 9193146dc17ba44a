package api

import "slices"

// TenantErasureQuery asks that a tenant be erased, for good (tenant.erase).
type TenantErasureQuery struct {
	Tenant string `json:"tenant"` // its name again, so that no other one is meant
	Reason string `json:"reason"`
	Actor  string `json:"actor"`
	Force  bool   `json:"force,omitempty"` // also while plans are not at their end
}

// TenantErasure is the erasure of a tenant. A host that signs it signs its JSON.
type TenantErasure struct {
	Tenant string `json:"tenant"`
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
	AtNs   int64  `json:"at_ns"`
	Holder string `json:"holder"`           // host that was asked
	Forced bool   `json:"forced,omitempty"` // plans were not at their end

	// The ledger as it was: records, and the root of their tree, in base64.
	Records uint64 `json:"records"`
	Root    []byte `json:"root"`
	// The last checkpoint in it that was signed; none: 0.
	CheckpointSize uint64 `json:"checkpoint_size,omitempty"`
	CheckpointRoot []byte `json:"checkpoint_root,omitempty"`

	Key  string `json:"key"`           // verifier key that the signatures are by
	Kid  string `json:"kid,omitempty"` // of the tenant's key that was destroyed; empty: it had none
	Done *Done  `json:"done,omitempty"`

	// Notes are what was signed, the latest last: when it was asked for, and when it was done.
	Notes []string `json:"notes,omitempty"`
}

// Done says that nothing of a tenant is left at the server and at one of its hosts.
type Done struct {
	AtNs int64  `json:"at_ns"`
	Host string `json:"host"`
}

// TenantErasureAnswer answers tenant.erase.
type TenantErasureAnswer struct {
	Erasure *TenantErasure `json:"erasure,omitempty"`
	// Refused: why what the ledger has forbids it; nothing is wrong with the request.
	Refused string `json:"refused,omitempty"`
}

// TenantMay is what a tenant may do, and what it uses of it.
type TenantMay struct {
	Suspended bool `json:"suspended,omitempty"`
	// RequireNames: plans need a writer, and facts, verdicts and requests an id.
	RequireNames bool       `json:"require_names,omitempty"`
	By           string     `json:"by"`
	Reason       string     `json:"reason,omitempty"`
	Revision     uint64     `json:"revision"` // of the entry in the control stream
	Limits       []LimitUse `json:"limits,omitempty"`
}

// Near reports whether a limit is used up, or nearly.
func (m *TenantMay) Near() bool { return slices.ContainsFunc(m.Limits, LimitUse.Near) }

// Limits of LimitUse that no TenantRequest changes.
const (
	LimitBytes = "bytes"      // of the ledger
	LimitBlobs = "blob_bytes" // of its host
)

// LimitUse is a limit that counts what is there, and how much of it is used.
type LimitUse struct {
	Limit string `json:"limit"`
	Used  uint64 `json:"used"`
	Most  uint64 `json:"most"`
}

// Near reports whether it is used up, or nearly: more than four fifths of it.
func (l LimitUse) Near() bool { return l.Used > l.Most/5*4 }

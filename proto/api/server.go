package api

import "encoding/json"

// TenantsAnswer answers TenantLs: the tenants that the host serves, by name.
type TenantsAnswer struct {
	Tenants []string `json:"tenants"`
	// Entries are what the control stream says of them, by name. A tenant that only a flag of
	// its host names has none.
	Entries []TenantEntry `json:"entries,omitempty"`
	// Forgotten are those whose tiles the host has, and that nothing names: the control stream was
	// lost. Nothing is done for them.
	Forgotten []string `json:"forgotten,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// States of a tenant, as the control stream has them.
const (
	TenantActive    = "active"
	TenantSuspended = "suspended"
)

// TenantEntry is all that is wished of a tenant: a change is another entry, not a difference.
type TenantEntry struct {
	Tenant string       `json:"tenant"`
	State  string       `json:"state"` // TenantActive or TenantSuspended
	Limits TenantLimits `json:"limits"`
	// RequireNames: plans need a writer, and facts, verdicts and requests an id.
	RequireNames bool   `json:"require_names,omitempty"`
	By           string `json:"by"` // who has changed it last
	Reason       string `json:"reason,omitempty"`
	AtNs         int64  `json:"at_ns"` // when, unix ns
	// Revision is the entry's sequence in the control stream. It is not stored in it.
	Revision uint64 `json:"revision,omitempty"`
}

// TenantLimits bound what a tenant may use. 0: the default; docs/guide/tenants.md has them all.
type TenantLimits struct {
	OpenPlans uint64 `json:"open_plans,omitempty"` // open at once
	Facts     uint64 `json:"facts,omitempty"`      // that are not retracted
	Records   uint64 `json:"records,omitempty"`    // of one agent or source in a second
	Bytes     uint64 `json:"bytes,omitempty"`      // of its ledger on disk
	// HeldConditions are what open plans and their actions have declared, at one time.
	HeldConditions uint64 `json:"held_conditions,omitempty"`
	// DefaultDeadline is, in seconds, how long a plan that names no deadline is open.
	DefaultDeadline uint64 `json:"default_deadline,omitempty"`
	// Connections of the tenant, over which no agent or source gets into the embedded server.
	Connections uint64 `json:"connections,omitempty"`
}

// TenantRequest asks for a change of a tenant (TenantAdd, TenantLimit, TenantSuspend,
// TenantResume), or for what is so (TenantShow).
type TenantRequest struct {
	Tenant string `json:"tenant"`
	// Limits are set by add and limits; what is 0 in them stays as it is.
	Limits TenantLimits `json:"limits"`
	Reset  []string     `json:"reset,omitempty"` // limits: names of those that get their default again
	// RequireNames is set by add and limits; null: it stays as it is.
	RequireNames *bool  `json:"require_names,omitempty"`
	Actor        string `json:"actor,omitempty"`
	Reason       string `json:"reason,omitempty"`
	DryRun       bool   `json:"dry_run,omitempty"` // say what would be so, and change nothing
}

// TenantAnswer answers a TenantRequest.
type TenantAnswer struct {
	Entry   *TenantEntry `json:"entry,omitempty"`
	Changed bool         `json:"changed,omitempty"` // it was not so before
	// Effective are the limits with the defaults filled in.
	Effective *TenantLimits `json:"effective,omitempty"`

	Error string `json:"error,omitempty"`
	Field string `json:"field,omitempty"` // of the request, where it is what is wrong
	Want  string `json:"want,omitempty"`  // what would be right
}

// ErasedQuery asks by TenantErased for the erasure of a tenant, whoever serves it.
type ErasedQuery struct {
	Tenant string `json:"tenant"`
}

// ErasedAnswer answers an ErasedQuery.
type ErasedAnswer struct {
	Erasure json.RawMessage `json:"erasure,omitempty"` // a TenantErasure; none: it was not erased
	Error   string          `json:"error,omitempty"`
}

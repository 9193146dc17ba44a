package tenancy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Limit is one of the limits of a tenant.
type Limit struct {
	Name    string // as in JSON, with '_'
	Default uint64 // 0: none
	Min     uint64
	Max     uint64
	What    string // that it counts, for people
	of      func(*api.TenantLimits) *uint64
}

// Of is the limit's place in limits.
func (l Limit) Of(limits *api.TenantLimits) *uint64 { return l.of(limits) }

// Flag is how the command line names it.
func (l Limit) Flag() string { return "--" + strings.ReplaceAll(l.Name, "_", "-") }

// IsSpan reports whether the limit is a time, in seconds.
func (l Limit) IsSpan() bool { return l.Name == "default_deadline" }

// Limits are all limits, in the order in which people read them.
func Limits() []Limit { return slices.Clone(limits) }

var limits = []Limit{
	{"open_plans", 1_000_000, 1, 100_000_000, "plans that are open at once",
		func(l *api.TenantLimits) *uint64 { return &l.OpenPlans }},
	{"facts", 10_000_000, 1, 1_000_000_000, "facts that are not retracted",
		func(l *api.TenantLimits) *uint64 { return &l.Facts }},
	{"held_conditions", 10_000_000, 1, 1_000_000_000,
		"conditions that open plans hold at one time",
		func(l *api.TenantLimits) *uint64 { return &l.HeldConditions }},
	{"records", 0, 1, 1_000_000, "records of one agent or source in a second",
		func(l *api.TenantLimits) *uint64 { return &l.Records }},
	{"bytes", 0, 16 << 20, 1 << 50, "bytes of its ledger",
		func(l *api.TenantLimits) *uint64 { return &l.Bytes }},
	{"default_deadline", 0, 1, uint64(ledger.DurationMax / time.Second),
		"seconds that a plan which names no deadline is open",
		func(l *api.TenantLimits) *uint64 { return &l.DefaultDeadline }},
	{"connections", 10_000, 1, 1_000_000,
		"connections of the tenant, over which no agent or source gets into the embedded server",
		func(l *api.TenantLimits) *uint64 { return &l.Connections }},
}

// Effective are limits with the defaults filled in; 0 is none.
func Effective(l api.TenantLimits) api.TenantLimits {
	for _, limit := range limits {
		if v := limit.of(&l); *v == 0 {
			*v = limit.Default
		}
	}
	return l
}

// CheckLimits refuses a limit that is out of its bounds; 0 is the default.
func CheckLimits(l api.TenantLimits) error {
	for _, limit := range limits {
		if v := *limit.of(&l); v != 0 && (v < limit.Min || v > limit.Max) {
			return ledger.Refuse("limits."+limit.Name, fmt.Sprint(v),
				fmt.Sprintf("%d to %d %s", limit.Min, limit.Max, limit.What))
		}
	}
	return nil
}

// Names are the names of all limits.
func Names() (names []string) {
	for _, limit := range limits {
		names = append(names, limit.Name)
	}
	return names
}

// Check refuses an entry that no one could have meant.
func Check(e api.TenantEntry) error {
	switch {
	case !ledger.ValidToken(e.Tenant):
		return ledger.Refuse("tenant", fmt.Sprintf("%.80q is no name", e.Tenant), ledger.TokenWanted)
	case e.State != api.TenantActive && e.State != api.TenantSuspended:
		return ledger.Refuse("state", fmt.Sprintf("%.80q", e.State),
			api.TenantActive+" or "+api.TenantSuspended)
	}
	if err := checkAsker(e.By); err != nil {
		return err
	}
	return CheckLimits(e.Limits)
}

// checkAsker refuses a change of which no one could say who asks for it.
func checkAsker(actor string) error {
	if !ledger.ValidToken(actor) {
		return ledger.Refuse("actor", fmt.Sprintf("%.80q is no name", actor),
			"the name of the person who asks, "+ledger.TokenWanted)
	}
	return nil
}

// Parse reads the entry of a tenant as the stream has it. The error is a *ledger.Refused.
func Parse(tenant string, value []byte, revision uint64) (e api.TenantEntry, err error) {
	if err := json.Unmarshal(value, &e); err != nil {
		return e, ledger.Refuse("entry", err.Error(), "one JSON object")
	}
	if e.Tenant != tenant {
		return e, ledger.Refuse("tenant", fmt.Sprintf("%.80q, on the subject of %s", e.Tenant, tenant),
			"the tenant of the subject")
	}
	e.Revision, e.Reason = revision, ledger.TextTo(e.Reason, ledger.TenantReasonMax)
	return e, Check(e)
}

// format is the entry as the stream has it.
func format(e api.TenantEntry) ([]byte, error) {
	e.Revision = 0
	return json.Marshal(e)
}

// same reports whether two entries wish for the same.
func same(a, b api.TenantEntry) bool {
	return a.State == b.State && a.Limits == b.Limits && a.RequireNames == b.RequireNames
}

// ParseRequest reads a request; a field that it does not have is refused, and a limit of 0.
func ParseRequest(body []byte) (r api.TenantRequest, err error) {
	if err := ledger.ReadRequest(body, &r, "request"); err != nil {
		return r, err
	}
	var given struct {
		Limits map[string]uint64 `json:"limits"`
	}
	if err := json.Unmarshal(body, &given); err != nil {
		return r, ledger.Refuse("limits", err.Error(), "numbers by name: "+strings.Join(Names(), ", "))
	}
	for _, limit := range limits {
		if n, ok := given.Limits[limit.Name]; ok && n == 0 {
			return r, ledger.Refuse("limits."+limit.Name, "0", fmt.Sprintf("%d to %d %s", limit.Min,
				limit.Max, limit.What))
		}
	}
	return r, nil
}

// Record is what a holder says of an entry in the ledger of its tenant: what the fold counts, with
// the defaults filled in.
func Record(e api.TenantEntry) *pb.TenantChanged {
	l := Effective(e.Limits)
	r := &pb.TenantChanged{Revision: e.Revision, By: e.By, RequireNames: e.RequireNames,
		Limits: &pb.TenantLimits{OpenPlans: l.OpenPlans, Facts: l.Facts, Records: l.Records,
			HeldConditions: l.HeldConditions, DefaultDeadline: l.DefaultDeadline}}
	if e.State == api.TenantSuspended {
		r.Suspended, r.Reason = true, e.Reason
	}
	return r
}

package ledger

import (
	"fmt"
	"strings"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TenantReasonMax bounds the reason for a change of a tenant, in bytes: every refusal that
// follows from it says it again.
const TenantReasonMax = 512

// TenantLimit is a limit of TenantLimits, by the name of its field.
type TenantLimit string

// The limits that the fold counts.
const (
	LimitOpenPlans TenantLimit = "open_plans"
	LimitFacts     TenantLimit = "facts"
	LimitRecords   TenantLimit = "records"

	LimitHeldConditions TenantLimit = "held_conditions"
)

// counted says what each limit counts, as in "10 of 10 plans are open".
var counted = map[TenantLimit]string{
	LimitOpenPlans: "plans are open", LimitFacts: "facts are held",
	LimitRecords:        "records were written in this second",
	LimitHeldConditions: "conditions would be held",
}

// flagOf are the flags of the limits, of the command that changes them.
var flagOf = map[TenantLimit]string{
	LimitOpenPlans: "--open-plans", LimitFacts: "--facts", LimitRecords: "--records",
	LimitHeldConditions: "--held-conditions",
}

const limitField = "limits."

// OverLimit says that a tenant uses all that a limit allows. The error is a *Refused.
func OverLimit(tenant string, limit TenantLimit, use, most uint64) error {
	return Refuse(limitField+string(limit), fmt.Sprintf("%d of %d %s", use, most, counted[limit]),
		fmt.Sprintf("fewer, or more from who runs the server: sagenbaum tenant limits %s %s N", tenant,
			flagOf[limit]))
}

// NameRequired refuses what a tenant does not take without a name: a plan whose record names no
// writer, and a record that needs an id and has none. The error is a *Refused.
func NameRequired(tenant string, t *pb.TenantChanged, r *pb.Record, c Class) error {
	field, want := "writer", TokenWanted
	switch {
	case !t.GetRequireNames(), c == ClassAgent && r.Writer != "", TakesID(c) && r.Id != "":
		return nil
	case TakesID(c):
		field, want = "id", IDWanted
	case c != ClassAgent:
		return nil
	}
	return Refuse(field, "missing, and tenant "+tenant+" requires it", want+
		"; who runs the server can change that: sagenbaum tenant limits "+tenant+
		" --require-names=false")
}

// Suspended says that a tenant is suspended, by whom and why. The error is a *Refused.
func Suspended(tenant string, t *pb.TenantChanged) error {
	return Refuse("tenant", suspendedBy+t.By+": "+t.Reason,
		"an active tenant; who runs the server resumes it: sagenbaum tenant resume "+tenant)
}

const suspendedBy = "suspended by "

// ReasonUnopened is why a plan whose opening was refused has failed. Where it is told, the reason
// of the refusal follows.
const ReasonUnopened = "its opening was refused"

// ReasonParent begins why a plan has failed that is not a part of the one that it names as its
// parent; the parent, and what kept it from that, follow.
const ReasonParent = "its parent plan "

// TenantRefusal is what OverLimit or Suspended has said, where it is the reason of a plan's end, or
// of a record's refusal; nil: the reason is another one.
func TenantRefusal(reason string) *Refused {
	text := WhyRefused(strings.TrimPrefix(reason, ReasonUnopened+": "))
	field, text, _ := strings.Cut(text, ": ")
	end := strings.LastIndex(text, wants)
	isTenant := field == "tenant" && strings.HasPrefix(text, suspendedBy)
	if end < 0 || !isTenant && !strings.HasPrefix(field, limitField) {
		return nil
	}
	return &Refused{Field: field, Problem: text[:end], Want: text[end+len(wants):]}
}

// checkTenant holds the rules of what is said of a tenant.
func checkTenant(field string, t *pb.TenantChanged) error {
	if t == nil {
		return nil
	}
	if t.Suspended && t.Reason == "" {
		return Refuse(field+".reason", "missing", "why the tenant is suspended")
	}
	if len(t.Reason) > TenantReasonMax {
		return Refuse(field+".reason", fmt.Sprintf("%d bytes", len(t.Reason)),
			fmt.Sprintf("at most %d", TenantReasonMax))
	}
	return firstOf(token(field+".by", t.By), text(field+".reason", t.Reason))
}

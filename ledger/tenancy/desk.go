package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Store keeps the entries. What Put has stored is there after a crash.
type Store interface {
	// Get returns the last entry of a tenant and its revision; nil and 0: it has none.
	Get(ctx context.Context, tenant string) (value []byte, revision uint64, err error)
	// Put stores an entry after the one of a revision, or 0 for none. The error is
	// ledger.ErrConflict when that is not the last one.
	Put(ctx context.Context, tenant string, value []byte, after uint64) (revision uint64, err error)
}

// Desk changes entries, as requests ask for it.
type Desk struct {
	Store Store
	// Erased says when a tenant was erased; empty: it was not.
	Erased func(ctx context.Context, tenant string) (at string, err error)
	Now    func() time.Time
}

// conflictsMax bounds the tries of a change that others are faster than.
const conflictsMax = 20

// Do carries out one request. An error is in the answer, where it is what is wrong with the
// request, by its field.
func (d Desk) Do(ctx context.Context, verb string, r api.TenantRequest) api.TenantAnswer {
	var err error
	for range conflictsMax {
		var a api.TenantAnswer
		if a, err = d.do(ctx, verb, r); err == nil {
			return a
		}
		if !errors.Is(err, ledger.ErrConflict) {
			break
		}
	}
	return Failed(err)
}

// Failed is the answer that says an error.
func Failed(err error) api.TenantAnswer {
	answer := api.TenantAnswer{Error: err.Error()}
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		answer.Error, answer.Field, answer.Want = refused.Problem, refused.Field, refused.Want
	}
	return answer
}

func (d Desk) do(ctx context.Context, verb string,
	r api.TenantRequest) (a api.TenantAnswer, err error) {
	if !ledger.ValidToken(r.Tenant) {
		return a, ledger.Refuse("tenant", fmt.Sprintf("%.80q is no name", r.Tenant), ledger.TokenWanted)
	}
	if verb != api.TenantShow {
		r.Reason = ledger.TextTo(r.Reason, ledger.TenantReasonMax)
		if err := checkAsker(r.Actor); err != nil {
			return a, err
		}
	}
	value, revision, err := d.Store.Get(ctx, r.Tenant)
	if err != nil {
		return a, err
	}
	var was *api.TenantEntry
	if revision != 0 {
		e, err := Parse(r.Tenant, value, revision)
		if err != nil {
			return a, fmt.Errorf("cannot read the entry of tenant %s: %w", r.Tenant, err)
		}
		was = &e
	}
	at, err := d.Erased(ctx, r.Tenant)
	switch {
	case err != nil:
		return a, err
	case at != "":
		return a, ledger.Refuse("tenant", fmt.Sprintf("tenant %s was erased at %s, and its name is "+
			"never used again", r.Tenant, at), "another name")
	}
	is, err := change(verb, was, r)
	if err != nil {
		return a, err
	}
	a.Entry = is
	if changed := verb != api.TenantShow && (was == nil || !same(*was, *is)); changed {
		if err := d.put(ctx, is, revision, r.DryRun); err != nil {
			return a, err
		}
		a.Changed = true
	}
	effective := Effective(is.Limits)
	a.Effective = &effective
	return a, nil
}

func (d Desk) put(ctx context.Context, e *api.TenantEntry, after uint64, dryRun bool) error {
	e.AtNs = d.Now().UnixNano()
	if err := Check(*e); err != nil {
		return err
	}
	value, err := format(*e)
	if err != nil || dryRun {
		return err
	}
	e.Revision, err = d.Store.Put(ctx, e.Tenant, value, after)
	return err
}

// change is the entry of a tenant after a request; was is nil where it has none.
func change(verb string, was *api.TenantEntry, r api.TenantRequest) (*api.TenantEntry, error) {
	if was == nil {
		if verb != api.TenantAdd {
			return nil, ledger.Refuse("tenant", "there is no tenant "+r.Tenant,
				"one that sagenbaum tenant ls lists, or sagenbaum tenant add "+r.Tenant)
		}
		was = &api.TenantEntry{Tenant: r.Tenant, State: api.TenantActive}
		is := *was
		is.By, is.Reason = r.Actor, r.Reason
		return &is, merge(&is, r)
	}
	is := *was
	switch verb {
	case api.TenantShow:
		return &is, nil
	case api.TenantAdd:
		if err := merge(&is, r); err != nil {
			return nil, err
		}
		if !same(*was, is) || was.State != api.TenantActive {
			return nil, ledger.Refuse("tenant", fmt.Sprintf("tenant %s is there, %s, with other limits",
				r.Tenant, was.State), "another name, or sagenbaum tenant limits "+r.Tenant)
		}
	case api.TenantLimit:
		if err := CheckChange(r); err != nil {
			return nil, err
		}
		if err := merge(&is, r); err != nil {
			return nil, err
		}
	case api.TenantSuspend:
		if was.State == api.TenantSuspended {
			return nil, ledger.Refuse("state", fmt.Sprintf("tenant %s is suspended since %s, by %s: %s",
				r.Tenant, instant(was.AtNs), was.By, was.Reason),
				"an active tenant; sagenbaum tenant resume "+r.Tenant)
		}
		if ledger.IsBlank(r.Reason) {
			return nil, ledger.Refuse("reason", "missing", "why, in a few words: agents are told")
		}
		is.State = api.TenantSuspended
	case api.TenantResume:
		if was.State == api.TenantActive {
			return nil, ledger.Refuse("state", "tenant "+r.Tenant+" is active", "a suspended tenant")
		}
		is.State = api.TenantActive
	default:
		return nil, ledger.Refuse("verb", fmt.Sprintf("%.80q is none", verb), strings.Join([]string{
			api.TenantAdd, api.TenantShow, api.TenantLimit, api.TenantSuspend, api.TenantResume}, ", "))
	}
	if !same(*was, is) {
		is.By, is.Reason = r.Actor, r.Reason
		if verb == api.TenantLimit && is.State == api.TenantSuspended {
			// Agents are told who has suspended it and why, and not what else has changed.
			is.By, is.Reason = was.By, was.Reason
		}
	}
	return &is, nil
}

// CheckChange refuses a change of limits that says none, or one twice.
func CheckChange(r api.TenantRequest) error {
	if r.Limits == (api.TenantLimits{}) && len(r.Reset) == 0 && r.RequireNames == nil {
		return ledger.Refuse("limits", "no limit is given", "one of "+flagNames())
	}
	return merge(&api.TenantEntry{}, r)
}

// merge sets the limits that a request gives, and whether names are required.
func merge(is *api.TenantEntry, r api.TenantRequest) error {
	if r.RequireNames != nil {
		is.RequireNames = *r.RequireNames
	}
	into := &is.Limits
	if err := CheckLimits(r.Limits); err != nil {
		return err
	}
	for _, name := range r.Reset {
		at := slices.IndexFunc(limits, func(l Limit) bool { return l.Name == name })
		if at < 0 {
			return ledger.Refuse("reset", fmt.Sprintf("%.80q is no limit", name),
				"one of "+strings.Join(Names(), ", "))
		}
		if *limits[at].of(&r.Limits) != 0 {
			return ledger.Refuse("reset", name+" is given, too", "a value, or its default")
		}
		*limits[at].of(into) = 0
	}
	for _, limit := range limits {
		if v := *limit.of(&r.Limits); v != 0 {
			*limit.of(into) = v
		}
	}
	return nil
}

func flagNames() string {
	var names []string
	for _, limit := range limits {
		names = append(names, limit.Flag())
	}
	return strings.Join(names, ", ")
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }

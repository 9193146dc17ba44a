package executor

import (
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Page is a call to an owner. Number is the action's in its plan; 0: the plan.
type Page struct {
	Number uint32
	api.Page
}

// Paged says that a hook has taken a page.
type Paged struct {
	Plan   string
	Number uint32
	Kind   string
	Hook   string
}

// page asks for a page to an owner; it stays a row until a hook has taken it, so
// that a restart forgets none. a is nil for one about a plan.
func (s *State) page(p *plan, a *action, kind, reason string, at *pb.Address) {
	row := &rowspb.PageRow{Kind: kind, Hook: api.PageDefault, Reason: reason, At: at,
		AtNs: s.meta.TimeNs}
	if hook := a.hook(); hook != "" {
		row.Hook = hook
	}
	rows.Pages.Set(s.tx, pageID(p.id, number(a), kind), row)
	s.pages = append(s.pages, s.pageOf(p, a, row))
}

func (a *action) hook() string {
	if a == nil {
		return ""
	}
	return a.fixed.Compensation.GetPage()
}

// number is an action's number; 0 for none.
func number(a *action) uint32 {
	if a == nil {
		return 0
	}
	return a.id.N
}

func (s *State) pageOf(p *plan, a *action, row *rowspb.PageRow) Page {
	page := Page{Number: number(a), Page: api.Page{
		ID: ledger.FormatFullAddress(row.At), Kind: row.Kind, Hook: row.Hook, Tenant: s.tenant,
		Plan:  p.id,
		Label: p.row.Declared.Label, Owner: s.owner(p), Agent: p.row.Agent, Reason: row.Reason,
		AtNs: row.AtNs,
	}}
	if a != nil {
		page.Action, page.Capability = a.fixed.Id, a.fixed.Forward.GetCapability()
		if row.Kind == api.PageWindowClosing {
			page.ClosesNs = a.row.ClosesNs
		}
	}
	return page
}

// ownerPaged closes the page that the record names: a later one of the same kind
// stays open.
func (s *State) ownerPaged(e ledger.Entry, p *plan, k *pb.OwnerPaged) Result {
	id := pageID(p.id, s.number(p.id, e.Record.Action), k.Kind)
	row := rows.Pages.Find(s.tx, id)
	if row == nil || !sameAddress(e.Record.Cause, row.At) {
		return void("no such page of kind %s about action %q of plan %s is open", k.Kind, e.Record.Action,
			p.id)
	}
	rows.Pages.Delete(s.tx, id)
	return effective
}

// pageID names the row of a page.
func pageID(plan string, n uint32, kind string) rows.Paged {
	return rows.Paged{Action: rows.Action{Plan: plan, N: n}, Kind: kind}
}

// unpage closes the page of a kind that its owner has answered, or that has lost its
// subject, and reports whether it was open; a is nil for one about a plan.
func (s *State) unpage(p *plan, a *action, kind string) (open bool) {
	key := rows.Pages.Key(pageID(p.id, number(a), kind))
	if _, open = s.tx.Get(key); !open {
		return false
	}
	s.tx.Delete(key)
	s.pages = slices.DeleteFunc(s.pages, func(page Page) bool { // asked for since the last Pages
		return page.Plan == p.id && page.Number == number(a) && page.Kind == kind
	})
	closed := Page{Number: number(a), Page: api.Page{Kind: kind, Plan: p.id}}
	if a != nil {
		closed.Action = a.fixed.Id
	}
	if s.base == nil {
		s.closed = append(s.closed, closed)
	}
	return true
}

// Closed returns what the folds since the last call have closed of pages that no one may
// have taken: their owners have answered. Of a page it has what it was about.
func (s *State) Closed() []Page {
	out := s.closed
	s.closed = nil
	return out
}

// Pages returns the pages that the folds since the last call have asked for.
func (s *State) Pages() []Page {
	out := s.pages
	s.pages = nil
	return out
}

// Unpaged returns every page that no hook has taken yet, in key order: what a new
// holder sends again, under the same ids. Flush must have been called.
func (s *State) Unpaged() []Page {
	var out []Page
	from := rows.Pages.Prefix()
	for k, v := range s.tx.Scan(from, rows.After(from)) {
		row := rows.Pages.Decode("scan", v)
		id := rows.ParseAction(k[:len(k)-len(row.Kind)])
		p := s.plan(id.Plan)
		var a *action
		if id.N != 0 {
			a = s.action(id.Plan, id.N)
		}
		out = append(out, s.pageOf(p, a, row))
	}
	return out
}

// paged records what hooks have taken.
func (d *decider) paged(list []Paged) {
	for _, in := range list {
		p := d.state.plan(in.Plan)
		if p == nil || in.Number > p.row.Actions {
			continue
		}
		row := rows.Pages.Find(d.state.tx, pageID(in.Plan, in.Number, in.Kind))
		if row == nil || row.At.GetSequence() == 0 {
			continue // answered meanwhile; or this very commit asks for it again, and no hook has that one
		}
		r := &pb.Record{Plan: p.id, Cause: row.At,
			Kind: &pb.Record_OwnerPaged{OwnerPaged: &pb.OwnerPaged{Hook: clip(in.Hook), Kind: in.Kind}}}
		if in.Number != 0 {
			a := d.state.action(p.id, in.Number)
			r.Action, r.About = a.fixed.Id, a.fixed.Registered
		}
		d.propose(r)
	}
}

package executor

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/arguments"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Command is a call that may be sent, because its record was folded and found
// effective: an undo, or a question. Number is the action's number in its plan.
type Command struct {
	Number uint32
	// Actuator is ledger.ActuatorMemory for an undo in working memory; otherwise a
	// worker carries it out.
	Actuator string
	// ResendUntilNs is the instant (unix ns) from which on a copy must not be sent,
	// because the provider may have forgotten the key: whoever would send one hands
	// back an Answer without a Reply instead. 0: no limit.
	ResendUntilNs int64
	// Unsure says that this also holds for the first copy: an earlier attempt may have acted.
	Unsure bool
	// UnservedNs is the instant (unix ns) from which on an Answer may say that no one
	// takes it; 0: never.
	UnservedNs int64
	// UnservedAfterNs is how long no one has taken it then.
	UnservedAfterNs int64
	// Handler names, for people, the handler in an agent's code that carries it out;
	// empty: a worker does.
	Handler string
	// SentNs is when a first attempt was dispatched, as recorded (unix ns); 0: not known.
	SentNs int64
	// Behind is the action whose undo is to be done before this command may be sent; empty:
	// it may be sent. UntilNs is the instant (unix ns) after which it may not be sent any more
	// before it counts.
	Behind  string
	UntilNs int64
	// Earlier says that an earlier term has recorded it, and may have sent it.
	Earlier bool
	// ReportDigest is that of the token which a report of it has to show; empty: none has to.
	ReportDigest []byte
	// ForwardTrace and PlanTrace are the W3C trace contexts of the agent, as recorded
	// with the forward and with the plan; empty: none.
	ForwardTrace, PlanTrace string
	api.Command
}

// Notice tells an agent what became of its plan.
type Notice struct {
	Plan, Agent, State, Reason string
	Action, Verdict, By        string // of a supervisor's verdict
	UndoneAs                   string // the plan that undoes this committed one
	Presence                   string // of the effect of the action, as far as it is known by now
	Savepoint                  string // that the plan was rewound to
	FromAction                 string // that it is undone from on, or was, and goes on
	Parts                      uint32 // how often it went on so, or was rewound by an operator
	Counted                    bool   // it is the last of Parts
	Asked                      uint64 // sequence of the request that had it rewound; 0: a lease
	At                         uint64 // sequence of what rewound or ended it, or moved its deadline
	Writer, HandedTo           string // the process that has resumed it; the agent that has it now
	DueNs                      int64  // that the plan has now, in unix ns: it was moved
}

func (a *action) command(row *rowspb.CommandRow) Command {
	p := a.plan
	s := p.s
	arguments := row.Arguments
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	c := a.fixed.Compensation
	command := Command{Number: a.id.N, UnservedNs: unservedFrom(a), UnservedAfterNs: unservedAfter(c),
		ForwardTrace: string(a.fixed.Forward.Trace), PlanTrace: string(p.row.Declared.GetTrace()),
		Command: api.Command{
			Tenant: s.tenant, Plan: p.id, Action: a.fixed.Id,
			Address:   ledger.FormatFullAddress(a.fixed.Registered),
			Arguments: json.RawMessage(arguments), Term: s.meta.Term, WorkerVersion: c.WorkerVersion,
			Forward: a.fixed.Forward.Capability, ExternalRef: a.name(),
			BlindCleanup: blind(a), DirtyFailure: dirty(a), HasForwardOutput: hasOutput(a),
		}}
	if k := row.Asked; k != nil {
		command.Purpose = api.PurposeProbe
		if k.Question == pb.Question_QUESTION_VERIFY {
			command.Purpose = api.PurposeVerify
		}
		command.Capability, command.Key, command.Attempt, command.TimeoutMs = k.Capability, k.Key,
			k.Attempt, k.TimeoutNs/1e6
		return command
	}
	k := row.Dispatched
	command.Purpose, command.Capability, command.Key, command.Attempt = ledger.PurposeUndo,
		k.Capability, k.Key, k.Attempt
	command.BlindCleanup, command.DirtyFailure, command.HasForwardOutput = k.BlindCleanup,
		k.DirtyFailure, k.HasForwardOutput
	command.TimeoutMs, command.WorkerVersion = k.TimeoutNs/1e6, k.WorkerVersion
	command.ReportDigest, command.Delivers = k.ReportDigest, delivers(a)
	command.Earlier = a.row.Ahead == nil && a.row.Dispatched.GetSequence() < s.meta.TermSequence
	if k.Attempt == 1 {
		command.SentNs = a.row.SentNs
	}
	tries := a.attempts()
	command.ResendUntilNs, command.Unsure = tries.ResendUntil(), delivers(a) && tries.Unsure()
	if c.HandlerVersion != "" {
		command.Handler = api.HandlerText(a.fixed.Id, c.HandlerVersion, p.row.Agent)
	}
	if inMemory(a) {
		command.Actuator = ledger.ActuatorMemory
	}
	if t := c.Agent; t != nil {
		command.Agent = &api.AgentTask{Tools: t.Tools, Prompt: t.Prompt, MaxTurns: t.MaxTurns,
			Model: t.Model}
	}
	return command
}

// Commands returns what the folds since the last call have allowed to be sent.
func (s *State) Commands() []Command {
	out := s.commands
	s.commands = nil
	return out
}

// About is an action of a plan. At most one command about it is on its way.
type About struct{ Plan, Action string }

// Compare orders by plan, then by action.
func (a About) Compare(b About) int {
	return cmp.Or(strings.Compare(a.Plan, b.Plan), strings.Compare(a.Action, b.Action))
}

// Landed returns the actions whose commands the folds since the last call have ended: one
// has an answer, or needs none. Another command about the same action may have followed;
// Outstanding says which one is waited for.
func (s *State) Landed() []About {
	out := s.landed
	s.landed = nil
	return out
}

// Notices returns what the folds since the last call have to tell agents.
func (s *State) Notices() []Notice {
	out := s.notices
	s.notices = nil
	return out
}

// InFlight returns every command that is dispatched and unanswered, in key
// order: what a host sends again after a restart, with the same keys (S21).
// Flush must have been called.
func (s *State) InFlight() []Command {
	var ids []rows.Action
	from := rows.Flights.Prefix()
	for k := range s.tx.Scan(from, rows.After(from)) {
		ids = append(ids, rows.ParseAction(k))
	}
	out := make([]Command, 0, len(ids))
	for _, id := range ids {
		a := s.action(id.Plan, id.N)
		row, _ := rows.Commands.Load(s.tx, id)
		out = append(out, a.command(row))
	}
	return out
}

// Outstanding reports whether this call still waits for its answer.
func (s *State) Outstanding(planID string, n uint32, purpose string, attempt uint32) bool {
	p := s.plan(planID)
	if p == nil || n == 0 || n > p.row.Actions {
		return false
	}
	return outstandingCall(s.action(planID, n), purpose, attempt)
}

// Expected reports whether this call still waits for its answer, or was recorded ahead and
// waits for its turn.
func (s *State) Expected(planID string, n uint32, purpose string, attempt uint32) bool {
	if s.Outstanding(planID, n, purpose, attempt) {
		return true
	}
	p := s.plan(planID)
	return p != nil && n >= 1 && n <= p.row.Actions && purpose == ledger.PurposeUndo &&
		attempt == 1 && s.action(planID, n).row.Ahead != nil
}

// Awaits reports whether an answer still says something: its call waits for it, or will, or
// it tells of an undo that was carried out after all.
func (s *State) Awaits(in Answer) bool {
	if s.Expected(in.Plan, in.Number, in.Purpose, in.Attempt) {
		return true
	}
	p := s.plan(in.Plan)
	return p != nil && in.Number >= 1 && in.Number <= p.row.Actions &&
		tellsLate(p, s.action(in.Plan, in.Number), in)
}

func outstandingCall(a *action, purpose string, attempt uint32) bool {
	if asksOpenly(a) {
		return purpose == api.PurposeProbe && a.row.Asked == attempt
	}
	if a.row.Undo != rowspb.Undo_UNDO_DISPATCHED || a.fixed.Child != "" || a.row.Confirmed {
		return false
	}
	switch a.row.Asking {
	case pb.Question_QUESTION_UNSPECIFIED:
		return purpose == ledger.PurposeUndo && a.row.Attempt == attempt
	case pb.Question_QUESTION_VERIFY:
		return purpose == api.PurposeVerify && a.row.Asked == attempt
	default:
		return purpose == api.PurposeProbe && a.row.Asked == attempt
	}
}

// dispatchOf builds the control fields of a dispatch from the frozen
// registration.
func (a *action) dispatchOf(attempt uint32) *pb.CompensationDispatched {
	c := a.fixed.Compensation
	return &pb.CompensationDispatched{
		Attempt: attempt, Capability: c.Capability, Key: a.key(),
		BlindCleanup: blind(a), DirtyFailure: dirty(a), HasForwardOutput: hasOutput(a),
		TimeoutNs: timeoutOf(c), WorkerVersion: c.WorkerVersion,
		WaitedNs: max(a.plan.s.meta.TimeNs-max(a.row.ReadyNs, a.row.DueNs), 0),
	}
}

// hasOutput reports whether an action's forward completed with an output that
// arguments can bind to.
func hasOutput(a *action) bool { return !blind(a) && a.row.HasOutput }

// unheard says that something has become known of the effect of an action since its dispatch was
// decided, or "": after an operator's report its agent may name another effect, or an output.
func (s about) unheard(k *pb.CompensationDispatched) string {
	a, folded := s.a, s.e.Record.Folded
	said := folded != 0 && folded < a.row.WordAt
	same := k.HasForwardOutput == hasOutput(a) &&
		(k.DirtyFailure == dirty(a) || s.meta.HolderFold < ledger.DirtySince)
	if s.meta.HolderFold < ledger.EffectsSince || !said && same {
		return ""
	}
	return "what is known of the effect of action " + a.fixed.Id +
		" changed before the dispatch landed"
}

// key is the idempotency key of an action's undo, the same for every attempt until its owner
// asks for another one.
func (a *action) key() string { return a.keyOf(math.MaxUint32) }

// keyOf is the key of one attempt.
func (a *action) keyOf(attempt uint32) string {
	if key := a.attempts().Key(attempt); key != "" {
		return key
	}
	return a.firstKey()
}

// KeyOf is the key of one attempt of an undo.
func (a *Action) KeyOf(attempt uint32) string { return a.a.keyOf(attempt) }

func (a *action) firstKey() string {
	if a.fixed.Key != "" {
		return a.fixed.Key
	}
	return ledger.Key(a.plan.s.tenant, a.id.Plan, a.fixed.Id, ledger.PurposeUndo)
}

// readOthers adds what expressions read of other actions of the plan, or of that which it delivers:
// of those registered before this one, so that no later one changes what its undo does.
func readOthers(a *action, vars *triggers.BindingVars, readers []*triggers.Binding) {
	s, p := a.plan.s, a.plan
	if p.row.Delivers {
		p = s.plan(p.row.Origin)
	}
	var list []arguments.Other
	for _, id := range arguments.Keys("actions", readers) {
		x := s.byName(p.id, id)
		if x == nil || x.fixed.Child != "" || x.fixed.DutyOf != 0 ||
			!laterThan(a.origin().fixed.Registered, x.fixed.Registered) {
			continue
		}
		if staged(x) && p != a.plan {
			x = cmp.Or(s.byName(a.plan.id, id), x)
		}
		payload := x.payload()
		list = append(list, arguments.Other{ID: id, Input: payload.Input, Output: payload.Output,
			Before: payload.Before, ExternalRef: x.row.ExternalRef, Incomplete: x.row.OutputIncomplete,
			Unnamed: x.row.ReferenceIncomplete && x.row.ExternalRef == ""})
	}
	arguments.AddOthers(vars, list)
}

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
func (p *plan) page(a *action, kind, reason string, at *pb.Address) {
	s := p.s
	row := &rowspb.PageRow{Kind: kind, Hook: api.PageDefault, Reason: reason, At: at,
		AtNs: s.meta.TimeNs}
	if hook := a.hook(); hook != "" {
		row.Hook = hook
	}
	rows.Pages.Set(s.tx, pageID(p.id, number(a), kind), row)
	s.pages = append(s.pages, p.pageOf(a, row))
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

func (p *plan) pageOf(a *action, row *rowspb.PageRow) Page {
	page := Page{Number: number(a), Page: api.Page{
		ID: ledger.FormatFullAddress(row.At), Kind: row.Kind, Hook: row.Hook, Tenant: p.s.tenant,
		Plan: p.id, Label: p.row.Declared.Label, Owner: p.owner(), Agent: p.row.Agent,
		Reason: row.Reason, AtNs: row.AtNs,
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
func (s *fold) ownerPaged(p *plan, k *pb.OwnerPaged) Result {
	id := pageID(p.id, s.number(p.id, s.e.Record.Action), k.Kind)
	row := rows.Pages.Find(s.tx, id)
	if row == nil || !sameAddress(s.e.Record.Cause, row.At) {
		return void("no such page of kind %s about action %q of plan %s is open", k.Kind,
			s.e.Record.Action, p.id)
	}
	rows.Pages.Delete(s.tx, id)
	at := ledger.FormatFullAddress(row.At) // it may have been asked for since the last Pages
	s.pages = slices.DeleteFunc(s.pages, func(p Page) bool { return p.ID == at && p.Kind == k.Kind })
	return effective
}

// pageID names the row of a page.
func pageID(plan string, n uint32, kind string) rows.Paged {
	return rows.Paged{Action: rows.Action{Plan: plan, N: n}, Kind: kind}
}

// unpage closes the page of a kind that its owner has answered, or that has lost its
// subject, and reports whether it was open; a is nil for one about a plan.
func (p *plan) unpage(a *action, kind string) (open bool) {
	s := p.s
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
		out = append(out, p.pageOf(a, row))
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

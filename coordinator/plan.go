package coordinator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/coordinator/internal/opening"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/pause"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/value"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// PlanSpec declares a plan for Begin. All fields are optional.
type PlanSpec struct {
	ID    string // unique in the tenant; default a new ULID
	Label string // for people
	Owner string // who answers for it when it is quarantined

	// Input is what the plan is to do: one JSON value, or what encoding/json takes, of at most 16 KiB
	// (ledger.PlanInputMax). The arguments of its undos may read it, as plan.input. It is recorded as
	// it is: secrets belong into the inputs of actions, where a contract has them sealed. nil:
	// nothing.
	Input any

	// Deadline is how long after Begin an open plan is undone; DeadlineAt names
	// the instant instead. The agent's clock gives the instant, the ledger's
	// decides when it is passed. Neither: no deadline.
	Deadline   time.Duration
	DeadlineAt time.Time

	// Triggers are standing conditions, name -> CEL; one that turns true unwinds
	// the plan.
	Triggers map[string]string
	// AfterCommit names those of Triggers that are held after the commit, too, until the first undo
	// window of the plan's actions closes. Without such a window they end with the commit. A child
	// plan has none.
	AfterCommit []string

	Labels      map[string]string // what triggers read as plan.labels
	Concurrency int               // compensations in flight at once; default 8, at most 1024

	// OnUndoFailure says what an unwind does with the actions that a quarantined one
	// came after; default HaltUnlessLast.
	OnUndoFailure OnUndoFailure

	// SecondApprover has an owner's answer to a quarantine count only when a second
	// operator has given the same.
	SecondApprover bool

	// DoubtAtCommit says what a Commit does about actions that are in doubt; default
	// SettleDoubtAtCommit. A child plan has none: the commit of its root decides.
	DoubtAtCommit DoubtAtCommit

	// Parent is the plan that this one is a part of, ParentAction the action of it
	// that this one comes after; default the one registered last. What a child has
	// done stays held with its parent, also after the child's own Commit.
	Parent       string
	ParentAction string

	// A plan takes child plans of its own agent. AttachToken lets others attach theirs:
	// a secret of 16 to 64 bytes, of which the ledger gets the SHA-256. ParentToken is that
	// of Parent, when it is another agent's plan; the ledger gets it as it is. The token ends when
	// an operator hands the plan to another agent.
	AttachToken string
	ParentToken string
}

// OnUndoFailure says how an unwind goes on around a quarantined action.
type OnUndoFailure uint8

// What an unwind does with the actions that a quarantined one came after.
const (
	// HaltUnlessLast leaves them as they are until its owner has answered; except what an
	// irreversible act came after, if nothing that came after that act was undone: they are undone.
	HaltUnlessLast OnUndoFailure = iota
	// ContinueOnUndoFailure undoes them nevertheless; the plan still ends quarantined.
	ContinueOnUndoFailure
	// HaltOnUndoFailure leaves them as they are, whatever is quarantined.
	HaltOnUndoFailure
)

// DoubtAtCommit says what the commit of a plan does about actions of which no one knows
// whether they happened.
type DoubtAtCommit uint8

// What a commit does about doubt.
const (
	SettleDoubtAtCommit DoubtAtCommit = iota // it waits: probes are asked, then the owner
	// the plan is committed at once, and the ledger names them
	AcceptDoubtAtCommit
)

// Plan is a plan of this process. It is safe for concurrent use.
type Plan struct {
	c     *Coordinator
	id    string
	since time.Time       // when this process began or recalled it
	vars  json.RawMessage // what the arguments of questions read as plan

	input json.RawMessage // with which it was opened

	opened *pb.PlanOpened // as recorded, or to be

	vault *vault

	asked bool // its ID may be another plan's: the first pair waits until it is known to be taken

	mu sync.Mutex
	acts
	outgoing
	marks

	confirmed bool          // a pair of this process was taken
	resumed   bool          // another process had begun it
	follows   uint64        // what had made the writer before that, where this process has resumed it
	heard     time.Time     // when that executor was asked which said last that the plan is open
	lost      error         // another process has resumed the plan
	deadline  time.Time     // as declared, or moved, as far as known; zero: none
	deadlines uint64        // sequence of the record that has set it; 0: not known
	within    time.Duration // the deadline, where it was declared as a time from Begin
	openedNs  int64         // when the ledger took the opening; of an earlier process
	replays   bool          // a Run's: what a call returns must be what is recorded
	end       *ending
	told      *told         // its end, where this process has failed or cancelled it
	rewinding *rewinding    // asked for and not known to be over
	unwound   error         // while the plan is being undone, as far as known; wraps ErrUnwinding
	parts     undoneParts   // of the plan, and of which its caller was told
	partly    bool          // unwound: of a part, and the plan is to go on
	wentBack  []uint64      // sequences of requests to do so that its caller knows to be over
	looked    time.Time     // when an executor was asked whether it does
	changed   chan struct{} // closed, and replaced, when a waiting call should look again
}

// Begin opens a plan. Its PlanOpened record is queued with the first action and
// shares that commit; call Flush to have it durable before. A plan without
// actions needs no undo, so nothing is lost with an agent that dies before.
// A child's parent, if it is an open plan of this coordinator, is flushed first: it
// must be in the ledger before.
//
// With an ID that is given an executor is asked whether the plan exists; then, and for a
// child of another agent's plan, the first action waits until an executor says that the
// ledger has taken it. Errors: *Refused, ErrPlanExists, ErrClosed, as of Flush.
func (c *Coordinator) Begin(ctx context.Context, plan PlanSpec) (*Plan, error) {
	if err := cmp.Or(ctx.Err(), c.committer.taking()); err != nil {
		return nil, fmt.Errorf("cannot begin plan: %w", err)
	}
	given := plan.ID != ""
	if !given {
		plan.ID = ulid.Make().String()
	}
	now := time.Now()
	record, err := c.planOpened(plan, now)
	if err == nil {
		err = notPassed(plan, now)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot begin plan %q: %w", plan.ID, err)
	}
	record.GetPlanOpened().Trace = traceparent(ctx)
	p := newPlan(c, record)
	p.within = plan.Deadline
	p.asked = given || plan.Parent != "" && c.plan(plan.Parent) == nil
	if err := c.hold(p); err != nil {
		return nil, fmt.Errorf("cannot begin plan %q: %w", plan.ID, err)
	}
	if given {
		err = c.unused(ctx, plan.ID)
	}
	if err == nil {
		err = c.follow(ctx, plan)
	}
	if err != nil {
		c.forget(p)
		return nil, fmt.Errorf("cannot begin plan %q: %w", plan.ID, err)
	}
	return p, nil
}

func newPlan(c *Coordinator, opening *pb.Record) *Plan {
	var deadline time.Time
	if ns := opening.GetPlanOpened().DeadlineNs; ns != 0 {
		deadline = time.Unix(0, ns)
	}
	return &Plan{
		c: c, id: opening.Plan, since: time.Now(), deadline: deadline, vault: newVault(c, opening.Plan),
		opened: opening.GetPlanOpened(), vars: c.planVars(opening), changed: make(chan struct{}),
		input:    opening.Payload.GetInput(),
		acts:     acts{actions: map[string]*action{}, reserved: map[string]bool{}},
		outgoing: outgoing{committer: c.committer, of: opening.Plan, opening: opening},
	}
}

// Begin opens a child of this plan, as Coordinator.Begin does with PlanSpec.Parent.
func (p *Plan) Begin(ctx context.Context, child PlanSpec) (*Plan, error) {
	if child.Parent != "" && child.Parent != p.id {
		return nil, fmt.Errorf("cannot begin plan %q: %w", child.ID,
			ledger.Refuse("plan.parent", fmt.Sprintf("%q", child.Parent), "this plan, or nothing"))
	}
	child.Parent = p.id
	p.mu.Lock()
	err := p.shut()
	p.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("cannot begin plan %q: %w", child.ID, err)
	}
	return p.c.Begin(ctx, child)
}

// follow makes the parent of a plan durable, if it is one of this coordinator.
func (c *Coordinator) follow(ctx context.Context, child PlanSpec) error {
	p := c.plan(child.Parent)
	if p == nil {
		return nil // of another process, or none
	}
	p.mu.Lock()
	err := p.shut()
	if err == nil && child.ParentAction != "" &&
		(p.actions[child.ParentAction] == nil || p.actions[child.ParentAction].pair.failed()) {
		err = ledger.Refuse("plan.parent_action",
			fmt.Sprintf("%q is no action of plan %s", child.ParentAction,
				p.id), "the id of an action registered before")
	} else if err == nil && child.ParentAction != "" {
		err = isLast("plan.parent_action", p.actions[child.ParentAction])
	}
	p.mu.Unlock()
	if err == nil {
		err = p.flush(ctx, true)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	p.children = append(p.children, p.count)
	return nil
}

func (c *Coordinator) planVars(opening *pb.Record) json.RawMessage {
	opened := opening.GetPlanOpened()
	vars := planVars{ID: opening.Plan, Label: opened.Label, Owner: opened.Owner, Agent: c.agent}
	for _, l := range opened.Labels {
		if vars.Labels == nil {
			vars.Labels = map[string]string{}
		}
		vars.Labels[l.Key] = l.Value
	}
	vars.Input = opening.Payload.GetInput()
	return mustJSON(vars)
}

// planOpened checks a declaration and makes its record.
func (c *Coordinator) planOpened(plan PlanSpec, now time.Time) (*pb.Record, error) {
	opened := &pb.PlanOpened{
		Label: plan.Label, Owner: plan.Owner, SecondApprover: plan.SecondApprover,
		ParentPlan: plan.Parent, ParentAction: plan.ParentAction,
	}
	switch plan.OnUndoFailure {
	case HaltUnlessLast:
		opened.OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_HALT_UNLESS_LAST
	case ContinueOnUndoFailure:
		opened.OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_CONTINUE
	case HaltOnUndoFailure:
		opened.OnUndoFailure = pb.OnUndoFailure_ON_UNDO_FAILURE_HALT
	default:
		return nil, ledger.Refuse("plan.on_undo_failure", fmt.Sprint(plan.OnUndoFailure),
			"HaltUnlessLast, ContinueOnUndoFailure or HaltOnUndoFailure")
	}
	if plan.AttachToken != "" {
		digest := sha256.Sum256([]byte(plan.AttachToken))
		opened.AttachDigest = digest[:]
	}
	opened.ParentToken = []byte(plan.ParentToken)
	switch {
	case plan.AttachToken != "" && (len(plan.AttachToken) < attachTokenMin ||
		len(plan.AttachToken) > ledger.TokenLenMax):
		return nil, ledger.Refuse("plan.attach_token", fmt.Sprintf("%d bytes", len(plan.AttachToken)),
			fmt.Sprintf("a secret of %d to %d bytes", attachTokenMin, ledger.TokenLenMax))
	case plan.DoubtAtCommit > AcceptDoubtAtCommit:
		return nil, ledger.Refuse("plan.doubt_at_commit", fmt.Sprint(plan.DoubtAtCommit),
			"SettleDoubtAtCommit or AcceptDoubtAtCommit")
	case plan.DoubtAtCommit != SettleDoubtAtCommit && plan.Parent != "":
		return nil, ledger.Refuse("plan.doubt_at_commit", "given for a child plan",
			"none: the commit of its root decides")
	case plan.DoubtAtCommit == AcceptDoubtAtCommit:
		opened.DoubtAtCommit = pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT
	}
	switch {
	case plan.Parent != "" && plan.Parent == plan.ID:
		return nil, ledger.Refuse("plan.parent", "the plan itself", "another plan")
	case plan.Deadline != 0 && !plan.DeadlineAt.IsZero():
		return nil, ledger.Refuse("plan.deadline_at", "given beside deadline", "one of the two")
	}
	var err error
	if opened.DeadlineNs, err = plan.deadlineNs(now); err != nil {
		return nil, err
	}
	if plan.Concurrency < 0 || plan.Concurrency > ledger.ConcurrencyMax {
		return nil, ledger.Refuse("plan.concurrency", fmt.Sprint(plan.Concurrency),
			fmt.Sprintf("0 to %d", ledger.ConcurrencyMax))
	}
	opened.Concurrency = uint32(plan.Concurrency)
	for _, key := range slices.Sorted(maps.Keys(plan.Labels)) {
		opened.Labels = append(opened.Labels, &pb.Label{Key: key, Value: plan.Labels[key]})
	}
	if opened.Triggers, err = c.language.triggers("plan", plan.Triggers); err != nil {
		return nil, err
	}
	if err := heldAfter(opened.Triggers, plan.AfterCommit); err != nil {
		return nil, err
	}
	input, err := value.Encode("plan.input", plan.Input)
	if err != nil {
		return nil, err
	}
	if len(input) > ledger.PlanInputMax {
		return nil, ledger.Refuse("plan.input", fmt.Sprintf("%d bytes", len(input)),
			fmt.Sprintf("at most %d: give large values to its actions", ledger.PlanInputMax))
	}
	record := opening.Recorded(plan.ID, opened, input)
	return record, c.check(plan.ID, record)
}

// heldAfter has the conditions of these names held after the commit.
func heldAfter(list []*pb.Trigger, names []string) error {
	for i, name := range names {
		at := slices.IndexFunc(list, func(t *pb.Trigger) bool { return t.Name == name })
		if at < 0 {
			return ledger.Refuse(fmt.Sprintf("plan.after_commit[%d]", i),
				fmt.Sprintf("%q: there is no such condition", name), "the name of one of triggers")
		}
		list[at].AfterCommit = true
	}
	return nil
}

// deadlineNs is when a plan that begins now is undone, in unix ns; 0: never.
func (p *PlanSpec) deadlineNs(now time.Time) (int64, error) {
	if err := ledger.CheckSpan("plan.deadline", p.Deadline, ledger.DurationMax); err != nil {
		return 0, err
	}
	switch {
	case p.Deadline != 0:
		return ledger.InstantNs("plan.deadline", now.Add(p.Deadline))
	case !p.DeadlineAt.IsZero():
		return ledger.InstantNs("plan.deadline_at", p.DeadlineAt)
	default:
		return 0, nil
	}
}

// notPassed refuses a deadline that has passed before its plan is opened: all that the
// plan did would be undone at once.
func notPassed(plan PlanSpec, now time.Time) error {
	if plan.DeadlineAt.IsZero() || plan.DeadlineAt.After(now) {
		return nil
	}
	return ledger.Refuse("plan.deadline_at", "it has passed: "+plan.DeadlineAt.Format(time.RFC3339),
		"an instant to come")
}

// check holds the ledger's rules for records of one bundle, and its size.
func (c *Coordinator) check(plan string, records ...*pb.Record) error {
	source := ledger.Source{Tenant: c.tenant, Class: ledger.ClassAgent, Name: c.agent, Plan: plan}
	for _, r := range records {
		r.Writer = c.writer
		ledger.CutTexts(r)
	}
	if err := ledger.CheckCommit(records, source); err != nil {
		return err
	}
	size := commitOverhead
	for _, r := range records {
		size += ledger.RecordSize(r)
	}
	if size > ledger.CommitSizeMax {
		return ledger.Refuse("records", fmt.Sprintf("%d bytes", size),
			fmt.Sprintf("at most %d bytes; pass larger arguments by reference", ledger.CommitSizeMax))
	}
	return nil
}

// ID is the plan's id in the ledger.
func (p *Plan) ID() string { return p.id }

// Flush returns when everything this plan has queued is durable, its opening
// included. Errors as of Commit, without the executor's.
func (p *Plan) Flush(ctx context.Context) error {
	if err := p.flush(ctx, true); err != nil {
		return fmt.Errorf("cannot flush plan %q: %w", p.id, err)
	}
	return nil
}

func (p *Plan) flush(ctx context.Context, opening bool) error {
	p.mu.Lock()
	if opening || p.opening == nil {
		if err := p.queue(); err != nil {
			p.mu.Unlock()
			return err
		}
	}
	pending := slices.Clone(p.deferred)
	p.mu.Unlock()
	for _, b := range pending {
		p.c.committer.hurry(b)
	}
	for _, b := range pending {
		if _, err := p.c.wait(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// ended says why no further call is taken, or nil. Called with mu held.
func (p *Plan) ended() error {
	if p.lost != nil {
		return p.lost
	}
	if p.end != nil && !(p.end.bundle != nil && p.end.bundle.failed()) {
		if p.end.waits {
			return closed("plan committing (its commit waits: Commit again, Fail or Cancel)")
		}
		return closed("plan " + cmp.Or(p.end.became, p.end.verb))
	}
	return nil
}

// unwinding says that the plan is being undone, as far as known, or nil. Called
// with mu held.
func (p *Plan) unwinding() error {
	if r := p.rewinding; r != nil && r.bundle != nil && r.bundle.failed() {
		p.reopen(r, false) // refused after its caller had given up
	}
	return p.unwound
}

// shut says why nothing new is taken, or nil. Called with mu held.
func (p *Plan) shut() error {
	if err := p.ended(); err != nil {
		return err
	}
	return p.astray()
}

// astray is unwinding, or says, once, what was undone of the plan. Called with mu held.
func (p *Plan) astray() error {
	err := p.unwinding()
	if err == nil && len(p.parts.untold)+len(p.parts.backs) > 0 {
		told := p.parts.tell()
		last := told[len(told)-1]
		return &PartUndone{Plan: p.id, Action: last.Action, Reason: last.Reason,
			Savepoint: last.Savepoint, Parts: told}
	}
	return err
}

// change wakes the calls that wait for news of this plan. Called with mu held.
func (p *Plan) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// changes returns a channel that the next change closes.
func (p *Plan) changes() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// unwind takes a notice that the plan is being undone.
func (p *Plan) unwind(n api.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unwinding() != nil && (!p.partly || n.FromAction != "") {
		return
	}
	p.unwound = undone(ErrUnwinding, n.State, n.Reason)
	p.partly = n.FromAction != ""
	p.change()
	undone := p.reached(n.FromAction)
	p.interrupt(p.unwound, undone, false)
	abandon(p, undone) // also those whose callers have gone: an executor would wait for them
}

// committedElsewhere takes a notice that the plan is committed. When this process has not
// done that, another one has.
func (p *Plan) committedElsewhere() {
	p.mu.Lock()
	ours := p.end != nil
	p.mu.Unlock()
	if !ours {
		p.supersede()
	}
}

// hearEnd takes what an executor that was asked says of a plan that is not open any more. undone is
// false where it is committed: then what runs may end, and is what settles a commit that waits.
func hearEnd(p *Plan, answer api.OutcomeAnswer) (undone bool) {
	switch answer.State {
	case ledger.StateCommitting, ledger.StateCommitted:
		p.committedElsewhere()
		return false
	}
	p.unwind(api.Notice{State: answer.State, Reason: answer.Reason, FromAction: answer.FromAction})
	return true
}

// MoveDeadline gives the plan another deadline, earlier or later, or its first one: an instant to
// come. reason is for the record, and required. An executor says that the ledger has taken it; that
// someone else has moved the deadline meanwhile is an error. A deadline that has come is not moved
// any more, nor that of a plan that ends.
//
// Errors: *Refused, ErrUnwinding, ErrInDoubt (call again), ErrUnconfirmed, ErrClosed, as of Flush.
func (p *Plan) MoveDeadline(ctx context.Context, to time.Time, reason string) error {
	return MoveDeadlineAfter(ctx, p, 0, to, reason)
}

// MoveDeadlineAfter is MoveDeadline for one who has seen the deadline that a record has set, by its
// sequence, as DeadlineOf says it: it is refused where another record has set it since, and a call
// that is repeated moves it once. 0: the one that is in force.
func MoveDeadlineAfter(ctx context.Context, p *Plan, follows uint64, to time.Time,
	reason string) error {
	if err := moveDeadline(ctx, p, follows, to, reason); err != nil {
		return fmt.Errorf("cannot move the deadline of plan %q: %w", p.id, err)
	}
	return nil
}

// DeadlineOf is when a plan is undone if it is still open, as far as this process knows, and the
// sequence of the record that has set it. The zero time: never; 0: it is not known.
func DeadlineOf(p *Plan) (at time.Time, set uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deadline, p.deadlines
}

func moveDeadline(ctx context.Context, p *Plan, follows uint64, to time.Time,
	reason string) error {
	ns, err := ledger.InstantNs("deadline", to)
	moved := &pb.DeadlineMoved{DeadlineNs: ns, Follows: max(follows, 1), Reason: reason}
	record := &pb.Record{Plan: p.id, Kind: &pb.Record_DeadlineMoved{DeadlineMoved: moved}}
	if err == nil && ledger.IsBlank(reason) {
		err = ledger.Refuse("deadline_moved.reason", "empty", "why, in a few words")
	}
	if err == nil {
		err = p.c.check(p.id, record)
	}
	switch {
	case err != nil:
		return err
	case p.c.bus == nil:
		return ledger.Refuse("config.conn", "missing",
			"a connection to NATS: an executor says what deadline there is")
	}
	if err := p.flush(ctx, true); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.c.confirmTimeout)
	defer cancel()
	answer, err := answered(ctx, p, p.Stored())
	if err != nil {
		return err
	}
	moved.Follows = cmp.Or(follows, answer.DueSet)
	b, err := queueMove(ctx, p, record)
	if err != nil {
		return err
	}
	seq, err := p.c.wait(ctx, b)
	if err != nil {
		return err
	}
	if answer, err = answered(ctx, p, seq); err != nil {
		return err
	}
	if len(answer.Refused) > 0 {
		return refusedBy(answer, "deadline", "an instant to come, of a plan that is open")
	}
	return nil
}

// queueMove queues the record of a deadline that is moved.
func queueMove(ctx context.Context, p *Plan, record *pb.Record) (b *bundle, err error) {
	if err := p.c.committer.enter(ctx, p.c.appendTimeout); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err = p.shut(); err == nil {
		b, err = p.queueCall(record)
	}
	if err != nil {
		p.c.committer.leave() // nothing was queued with the place
	}
	return b, err
}

// answered asks an executor until it has folded a record of the plan, or ctx ends.
func answered(ctx context.Context, p *Plan, seq uint64) (api.OutcomeAnswer, error) {
	last := errNobody
	for ctx.Err() == nil {
		answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: seq})
		if err == nil {
			return answer, nil
		}
		if last = err; errors.Is(err, ErrConnectionClosed) {
			break
		}
		pause.For(ctx, askDelay)
	}
	return api.OutcomeAnswer{}, unconfirmed(last)
}

// setDeadline notes the deadline that a record has set, unless a later one is known. What waits for
// the deadline looks at it when it comes.
func setDeadline(p *Plan, ns int64, set uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if set < p.deadlines {
		return
	}
	if at := time.Unix(0, ns); ns != 0 && !at.Equal(p.deadline) {
		p.deadline = at
		for _, a := range p.order {
			if a.state == actionRunning {
				a.endBy(at)
			}
		}
	}
	p.deadlines = set
}

// lookDue asks an executor for the deadline of the plan once it has passed, as far as known: it may
// have been moved, and the notice of that been lost.
func lookDue(ctx context.Context, p *Plan) {
	p.mu.Lock()
	due := passed(p) != nil && p.unwound == nil
	p.mu.Unlock()
	if due && p.c.bus != nil && p.Stored() != 0 {
		ctx, cancel := context.WithTimeout(ctx, p.c.confirmTimeout)
		defer cancel()
		_, _ = answered(ctx, p, p.Stored()) // it is noted; where no one answers, the deadline stays
	}
}

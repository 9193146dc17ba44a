package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// plans are the plans of the gateway's clients.
type plans struct {
	g *Gateway

	mu      sync.Mutex
	clients int           // that are there, or whose plans are not seen to yet
	gone    chan struct{} // closed when there are none; nil: no one waits
	byID    map[string]*tracked
	current map[*sdk.ServerSession]*tracked   // that calls without a plan belong to
	begun   map[*sdk.ServerSession][]*tracked // by each connection, those that are not settled
	opening map[any]chan struct{}             // a connection or an id whose plan is being opened
	budgets map[*sdk.ServerSession]*budget    // of those that have begun a plan
	news    map[*sdk.ServerSession]*news      // that connections have not been told

	stood   []*tracked // of clients that came over HTTP and have gone: not all of them was undone
	dropped int        // of those, too long ago to be remembered
}

func newPlans(g *Gateway) *plans {
	return &plans{g: g, byID: map[string]*tracked{}, current: map[*sdk.ServerSession]*tracked{},
		begun: map[*sdk.ServerSession][]*tracked{}, opening: map[any]chan struct{}{},
		budgets: map[*sdk.ServerSession]*budget{}, news: map[*sdk.ServerSession]*news{}}
}

// tracked is a plan with what the gateway knows of its effects.
type tracked struct {
	plan *coordinator.Plan
	turn chan struct{} // one element while an effect is under way

	mu      sync.Mutex
	effects []*effect
	failed  map[string]bool   // actions of this process that have not happened
	results map[string]*keyed // by the action of a call with a key
	marks   int               // number of the savepoint before the next effect
	mark    string            // its name, once it is set; empty: it is not
	marking chan struct{}     // closed when mark is known
	parts   []error           // of it that were undone: a savepoint has heard it, and no client
	over    error             // why no effect joins it any more
	settled bool              // it has ended for good, and all of it is undone or stays
	budget  budget            // of undos without a connection

	used time.Time // when it was last asked for; guarded by the plans
}

func fingerprint(server, tool string, arguments json.RawMessage) string {
	sum := sha256.Sum256([]byte(server + "\x00" + tool + "\x00" + string(arguments)))
	return hex.EncodeToString(sum[:])
}

// begin opens a plan for a connection. Its first savepoint is stored with it.
func (p *plans) begin(ctx context.Context, session *sdk.ServerSession,
	spec coordinator.PlanSpec) (*tracked, error) {
	if wait := p.waits(session, time.Now()); wait > 0 {
		return nil, overdrawn(wait, "the next plan")
	}
	if spec.Deadline == 0 {
		spec.Deadline = p.g.config.Deadline
	}
	plan, err := p.g.agent.Begin(ctx, spec)
	if err != nil {
		return nil, err
	}
	t := track(plan)
	t.marks = 1
	t.markNow(ctx)
	p.keep(t, session)
	return t, nil
}

func track(plan *coordinator.Plan) *tracked {
	marking := make(chan struct{})
	close(marking)
	return &tracked{plan: plan, turn: make(chan struct{}, 1), results: map[string]*keyed{},
		failed: map[string]bool{}, marking: marking}
}

func (p *plans) keep(t *tracked, session *sdk.ServerSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(time.Now())
	p.byID[t.plan.ID()], t.used = t, time.Now()
	for _, begun := range p.begun { // it is taken back from another process
		for i, before := range begun {
			if before.plan.ID() == t.plan.ID() {
				begun[i] = t
			}
		}
	}
	if session != nil {
		if len(p.begun[session]) == 0 && p.g.remote.Load() {
			p.clients++
			go func() { // ends with the session, and the undo of its plans
				defer p.goes()
				_ = session.Wait() // however it has ended
				stand, err := p.left(session)
				p.remember(stand)
				if err != nil {
					p.g.logger.Warn("not all is undone", "tenant", p.g.config.Tenant, "error", err)
				}
			}()
		}
		if p.budgets[session] == nil {
			p.budgets[session] = &budget{}
		}
		p.current[session] = t
		p.begun[session] = append(slices.DeleteFunc(p.begun[session], (*tracked).isSettled), t)
	}
}

// of finds the plan of a call: the one that it names, or that of its connection, which is begun
// with its first effect.
func (p *plans) of(ctx context.Context, session *sdk.ServerSession, id string,
	begin bool) (*tracked, error) {
	t := p.known(session, id)
	switch {
	case t != nil:
		return t, nil
	case id == "" && !begin:
		if err := untold(ctx, p.g, session, nil); err != nil {
			return nil, err
		}
		return nil, p.none(session)
	}
	release, err := p.alone(ctx, session, id)
	if err != nil {
		return nil, err
	}
	defer release()
	switch t := p.known(session, id); {
	case t != nil: // another call has opened it meanwhile
		return t, nil
	case id != "":
		return p.resume(ctx, id)
	}
	return p.begin(ctx, session, coordinator.PlanSpec{Label: "MCP session",
		OnUndoFailure: coordinator.HaltOnUndoFailure})
}

// none says that no plan is open on a connection, and which was the last one.
func (p *plans) none(session *sdk.ServerSession) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := "no plan is open on this connection"
	if session == nil {
		text = "the call names no plan"
	}
	if begun := p.begun[session]; len(begun) > 0 {
		text += "; the last one was " + begun[len(begun)-1].plan.ID()
	}
	return ledger.Refuse("plan", text, "the id of a plan, or a call that has an effect first")
}

// notice has the next effect of a connection begin another plan, where one has ended on another's
// word, and a connection hears of it now.
func (p *plans) notice(t *tracked, past coordinator.Past, by *sdk.ServerSession) {
	switch past.State {
	case ledger.StateOpen, ledger.StateUnwinding:
		return
	}
	if over := t.ended(); over != nil && !errors.Is(over, coordinator.ErrUnwinding) {
		return // but of one that was being undone it is known now what it has come to
	}
	why := errors.New(ended(past))
	if past.State != ledger.StateCommitted && past.State != ledger.StateCommitting {
		why = fmt.Errorf("%w: %w", coordinator.ErrUnwound, why)
	}
	p.drop(t, why, by)
}

// known finds a plan of this process.
func (p *plans) known(session *sdk.ServerSession, id string) *tracked {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.byID[id]
	if id == "" {
		t = p.current[session]
	}
	if t != nil {
		t.used = time.Now()
	}
	return t
}

// alone waits until no other call opens a plan for the connection, or the plan with the id: calls
// of one client come at the same time.
func (p *plans) alone(ctx context.Context, session *sdk.ServerSession, id string) (
	release func(), err error) {
	var key any = session
	if id != "" {
		key = id
	}
	for {
		p.mu.Lock()
		other := p.opening[key]
		if other == nil {
			done := make(chan struct{})
			p.opening[key] = done
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.opening, key)
				p.mu.Unlock()
				close(done)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// resume goes on with a plan of an earlier process.
func (p *plans) resume(ctx context.Context, id string) (*tracked, error) {
	plan, err := p.g.agent.Resume(ctx, id)
	if err != nil {
		return nil, err
	}
	t := track(plan)
	var past coordinator.Past
	if err = plan.TellAgain(ctx); err == nil { // its client need not have heard it
		past, err = p.g.agent.Past(ctx, id, plan.Stored())
	}
	if err != nil {
		plan.Forget()
		return nil, err
	}
	t.effects, t.marks = p.g.recollect(past)
	t.learn(past)
	t.marks++
	t.markNow(ctx)
	p.keep(t, nil)
	return t, nil
}

// markPrefix begins the names of the savepoints.
const markPrefix = "before-"

func markName(n int) string { return markPrefix + strconv.Itoa(n) }

// drop has the next effect of a connection begin another plan. One that has not ended it, and does
// not hear of it now, is told. A plan that another process has taken over is let go: who names it
// takes it back. It returns why, with how to go on.
func (p *plans) drop(t *tracked, why error, by *sdk.ServerSession) error {
	taken := errors.Is(why, coordinator.ErrSuperseded)
	if taken && !errors.As(why, new(*coordinator.HandedOver)) {
		why = fmt.Errorf("%w: where plan %s is open still, a call that names it (plan, or _meta %s) "+
			"goes on with it here", why, t.plan.ID(), planMeta)
	}
	t.mu.Lock()
	t.over = why
	clear(t.results) // the ledger knows of them still
	t.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for session, current := range p.current {
		if current == t {
			delete(p.current, session)
			p.endedBy(by, session, t)
		}
	}
	if taken && p.byID[t.plan.ID()] == t {
		p.forget(t)
	}
	return why
}

// left does what the configuration says about the plans of a client that has gone, and lets go of
// them. What is undone then is waited for: this gateway may be the only one that undoes it. stand
// are the plans that are not known to be as the configuration wants them. Errors: what of them.
func (p *plans) left(session *sdk.ServerSession) (stand []*tracked, err error) {
	p.mu.Lock()
	begun := p.begun[session]
	delete(p.begun, session)
	delete(p.current, session)
	delete(p.budgets, session)
	unheard := p.news[session]
	delete(p.news, session)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	var ending []*tracked
	var errs []error
	for _, t := range begun {
		switch waits, err := p.leave(ctx, t, unheard); {
		case waits:
			ending = append(ending, t)
		case err != nil && p.g.config.OnDisconnect != LeavePlan:
			stand = append(stand, t)
			errs = append(errs, fmt.Errorf("plan %s of a client that has gone is not ended: %w",
				t.plan.ID(), err))
		}
	}
	late, done := context.WithTimeout(context.Background(), leaveWait)
	defer done()
	for _, t := range ending {
		if p.g.work == nil {
			break // a worker elsewhere undoes them
		}
		wait := p.g.undone
		if t.delivers() {
			wait = p.g.ended
		}
		if err := wait(late, t); err != nil {
			stand, errs = append(stand, t), append(errs, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range begun {
		p.letGo(t)
	}
	return stand, errors.Join(errs...)
}

// remember keeps plans that stood when their clients went, for Close.
func (p *plans) remember(stand []*tracked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stood = append(p.stood, stand...)
	if over := len(p.stood) - stoodMax; over > 0 {
		p.dropped += over
		p.stood = slices.Delete(p.stood, 0, over)
	}
}

// stand says what is still there of the plans of clients that have gone before the gateway ends.
func (p *plans) stand() error {
	p.mu.Lock()
	stood, dropped := p.stood, p.dropped
	p.stood = nil
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	var errs []error
	for _, t := range stood {
		errs = append(errs, p.g.ended(ctx, t))
	}
	if dropped > 0 {
		errs = append(errs, fmt.Errorf("%d more plans of clients that have gone stood then, and were "+
			"not looked at again: 'sagenbaum plan ls' shows them", dropped))
	}
	return errors.Join(errs...)
}

// ended is undone for a plan that its client has left some time ago: it may be committed by now.
func (g *Gateway) ended(ctx context.Context, t *tracked) error {
	past, err := g.look(ctx, t)
	if err == nil && past.State == ledger.StateCommitted {
		return g.isMade(ctx, t)
	}
	return g.undone(ctx, t)
}

// leave does that with one plan; a part of it was undone, of which its client has not heard, is
// committed by no one. waits: it is being undone.
func (p *plans) leave(ctx context.Context, t *tracked, unheard *news) (waits bool, err error) {
	onDisconnect := p.g.config.OnDisconnect
	if onDisconnect != LeavePlan && coordinator.Superseded(t.plan) {
		past, err := p.g.look(ctx, t)
		if err == nil && past.State == ledger.StateOpen {
			return false, coordinator.ErrSuperseded
		}
	}
	if t.ended() != nil { // its client or its deadline began what undoes it
		return onDisconnect == FailPlan && p.g.unwinds(ctx, t) || p.g.makes(ctx, t), nil
	}
	switch onDisconnect {
	case CommitPlan:
		if err = errors.Join(t.tell(ctx), unheard.partsOf(t)); err == nil {
			err = t.plan.Commit(ctx)
		}
		if undoneInstead(err) && t.overs(err) {
			err = nil // someone else was faster
		}
		waits = err == nil && t.delivers()
	case FailPlan:
		if err = t.plan.Fail(ctx, "its client has gone"); undoneInstead(err) && t.overs(err) {
			err = nil // someone else was faster
		}
		waits = err == nil
	case LeavePlan:
		err = t.plan.Flush(ctx)
	}
	if err != nil {
		p.g.logger.Warn("a plan stays open until its deadline", "tenant", p.g.config.Tenant,
			"plan", t.plan.ID(), "error", err)
	}
	return waits, err
}

// unwinds reports whether a plan is being undone.
func (g *Gateway) unwinds(ctx context.Context, t *tracked) bool {
	past, err := g.look(ctx, t)
	return err == nil && past.State == ledger.StateUnwinding
}

// makes reports whether calls that were staged in a plan, which is committed, are not made yet.
func (g *Gateway) makes(ctx context.Context, t *tracked) bool {
	if !t.delivers() {
		return false
	}
	past, err := g.look(ctx, t)
	return err == nil && past.State == ledger.StateCommitted && t.delivers()
}

// undone waits until a plan that was failed is undone. Errors: what is not undone.
func (g *Gateway) undone(ctx context.Context, t *tracked) error {
	_, waits := t.plan.Wait(ctx)
	past, err := g.look(context.WithoutCancel(ctx), t)
	if err != nil {
		return fmt.Errorf("plan %s of a client that has gone is being undone, and what is left is not "+
			"known: %w", t.plan.ID(), errors.Join(waits, err))
	}
	var stand []string
	for _, e := range t.report(past, (*effect).there).Stands {
		stand = append(stand, fmt.Sprintf("%s as action %s (%s)", e.Tool, e.Action, e.How))
	}
	if len(stand) == 0 {
		return nil
	}
	return fmt.Errorf("plan %s of a client that has gone is %s, and these calls are not undone: %s. "+
		"'sagenbaum plan show %s' says more, and 'sagenbaum mcp worker' undoes what no gateway does",
		t.plan.ID(), past.State, strings.Join(stand, ", "), t.plan.ID())
}

// comes counts a client.
func (p *plans) comes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients++
}

// goes counts a client that has gone, and whose plans are seen to.
func (p *plans) goes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients--
	if p.clients == 0 && p.gone != nil {
		close(p.gone)
		p.gone = nil
	}
}

// empty is closed when no client is there.
func (p *plans) empty() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone == nil {
		p.gone = make(chan struct{})
	}
	gone := p.gone
	if p.clients == 0 {
		close(gone)
		p.gone = nil
	}
	return gone
}

// errLetGo says that the gateway does not know of a plan any more.
var errLetGo = errors.New("the client that has begun it has gone: call again to go on with it")

// letGo forgets a plan unless a call of it is under way. Whoever names it again goes on with what
// the ledger has of it. Called with mu held.
func (p *plans) letGo(t *tracked) {
	select {
	case t.turn <- struct{}{}:
	default:
		return
	}
	defer func() { <-t.turn }()
	t.mu.Lock()
	if t.over == nil {
		t.over = errLetGo
	}
	t.mu.Unlock()
	coordinator.GiveUp(t.plan) // its client may have left it waiting for a verdict
	p.forget(t)
}

// forgetAll lets go of all plans.
func (p *plans) forgetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.byID {
		p.letGo(t)
	}
}

// forget has this gateway not know of a plan. Called with mu held.
func (p *plans) forget(t *tracked) {
	delete(p.byID, t.plan.ID())
	p.g.forgetBefore(t.plan.ID())
	t.plan.Forget()
}

// sweep forgets the plans of clients that have gone, and those that ended while their client
// stayed: at once where they are settled, and otherwise once no one has asked about them for a
// while, or where there are too many. Called with mu held.
func (p *plans) sweep(now time.Time) {
	held := map[*tracked]bool{}
	for _, t := range p.current {
		held[t] = true
	}
	for _, begun := range p.begun {
		for _, t := range begun {
			held[t] = held[t] || !t.isSettled()
		}
	}
	var rest []*tracked
	for _, t := range p.byID {
		switch {
		case held[t]:
		case t.isSettled() || now.Sub(t.used) > SessionIdle:
			p.letGo(t)
		default:
			rest = append(rest, t)
		}
	}
	if len(rest) <= leftMax {
		return
	}
	slices.SortFunc(rest, func(a, b *tracked) int { return a.used.Compare(b.used) })
	for _, t := range rest[:len(rest)-leftMax] {
		p.letGo(t)
	}
}

func (t *tracked) isSettled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settled
}

// take waits until no other effect of the plan is under way and its last savepoint is stored.
func (t *tracked) take(ctx context.Context) (release func(), err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := t.awaitMark(ctx); err != nil {
		<-t.turn
		return nil, err
	}
	return func() { <-t.turn }, nil
}

// awaitMark waits until a savepoint that is on its way is stored, or is not.
func (t *tracked) awaitMark(ctx context.Context) error {
	t.mu.Lock()
	marking := t.marking
	t.mu.Unlock()
	select {
	case <-marking:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note adds an effect; one that a look at the ledger has found meanwhile is this one.
func (t *tracked) note(e *effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.mark = t.mark
	for i, found := range t.effects {
		if found.Action == e.Action {
			t.effects[i] = e
			return
		}
	}
	t.effects = append(t.effects, e)
}

// unknow takes back what a look at the ledger has found of a call that has not happened, and has no
// later one find it: its outcome may be on the way.
func (t *tracked) unknow(action string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed[action] = true
	t.effects = slices.DeleteFunc(t.effects, func(e *effect) bool { return e.Action == action })
}

// doubtful finds an effect of which no one knows whether it happened.
func (t *tracked) doubtful(print, past string) *effect {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.effects {
		if e.State == stateInDoubt && (e.print == print || e.past == past) {
			return e
		}
	}
	return nil
}

// ended says why the plan takes no effect any more.
func (t *tracked) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// overs reports whether no effect joins the plan any more after an error. A plan that is being
// undone in part is open again soon.
func (t *tracked) overs(err error) bool {
	if errors.Is(err, coordinator.ErrUnwinding) && t.plan.GoesBack() {
		return false
	}
	for _, end := range []error{
		coordinator.ErrUnwinding, coordinator.ErrUnwound, coordinator.ErrClosed,
		coordinator.ErrSuperseded, coordinator.ErrErased, coordinator.ErrPlanExists, errCommitted} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

func named(plan string) string { return fmt.Sprintf("plan %s", plan) }

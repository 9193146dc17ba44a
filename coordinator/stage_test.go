package coordinator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// mails are contracts of which one is staged always, one if its agent wants it, and one never.
func mails() []contract.Contract {
	deliver := &contract.Deliver{With: map[string]any{"to": "=input.to"}, Dedupe: time.Hour}
	return []contract.Contract{files(),
		{Capability: "mail.send", Class: contract.Irreversible, Stage: contract.StageCommit, Deliver: deliver},
		{Capability: "mail.note", Class: contract.Irreversible, Deliver: deliver},
		{Capability: "mail.plain", Class: contract.Irreversible}}
}

// mailer is a live agent with such contracts, whose worker sends mails.
type mailer struct {
	*live
	mu   sync.Mutex
	sent []string
}

func newMailer(t *testing.T) *mailer {
	l := &mailer{live: newLive(t, coordinator.Config{Contracts: mails()})}
	send := func(_ context.Context, c api.Command) (worker.Result, error) {
		key := ledger.Key("default", strings.TrimSuffix(c.Plan, "~0"), c.Action, ledger.PurposeDo)
		if !c.Delivers || c.Key != key {
			t.Errorf("%s is sent as an undo, or under another key: %+v", c.Action, c)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sent = append(l.sent, string(c.Arguments))
		return worker.Result{}, nil
	}
	l.undo("mail.send", send)
	l.undo("mail.note", send)
	return l
}

func (l *mailer) mails() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.sent, " ")
}

func mailTo(id, to string) coordinator.Action {
	return coordinator.Action{ID: id, Capability: "mail.send", Input: map[string]any{"to": to}}
}

// delivered wants what became of what is staged in a plan.
func (l *mailer) delivered(p *coordinator.Plan, state string, ids ...string) {
	l.t.Helper()
	d, err := p.Delivered(l.t.Context())
	if err != nil || d.State != state || !slices.Equal(d.Delivered, ids) {
		l.t.Errorf("%+v, %v; want %s: %q", d, err, state, ids)
	}
}

// TestWhatIsStagedIsSentOnceItsPlanIsCommitted, in its order, and not before; a plan that is undone
// sends nothing.
func TestWhatIsStagedIsSentOnceItsPlanIsCommitted(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	for _, a := range []coordinator.Action{mailTo("m", "ann"), mailTo("n", "bob"), mailTo("m", "ann"),
		{ID: "x", Capability: "mail.note", Input: map[string]any{"to": "cy"}}} {
		if err := p.Stage(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	l.do(p, "b")
	if _, err := p.Delivered(t.Context()); !isRefused(err, "plan") {
		t.Errorf("before the commit: %v", err)
	}
	if got := l.mails(); got != "" {
		t.Errorf("sent before the commit: %s", got)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.delivered(p, ledger.StateDelivered, "m", "n", "x")
	if got := l.mails(); got != `{"to":"ann"} {"to":"bob"} {"to":"cy"}` {
		t.Errorf("sent %s", got)
	}

	q := l.begin(coordinator.PlanSpec{})
	l.do(q, "a")
	if err := q.Stage(t.Context(), mailTo("m", "dan")); err != nil {
		t.Fatal(err)
	}
	if err := q.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	l.ends(q, ledger.StateCompensated)
	if _, err := q.Delivered(t.Context()); !errors.Is(err, coordinator.ErrUnwound) {
		t.Errorf("of a plan that was undone: %v", err)
	}
	if got := l.mails(); strings.Contains(got, "dan") {
		t.Errorf("sent %s", got)
	}

	none := l.begin(coordinator.PlanSpec{})
	l.do(none, "a")
	if err := none.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := none.Delivered(t.Context()); err != nil || d.Plan != "" {
		t.Errorf("nothing is staged: %+v, %v", d, err)
	}
}

func isRefused(err error, field string) bool {
	var refused *coordinator.Refused
	return errors.As(err, &refused) && refused.Field == field
}

// TestWhatCannotBeStaged is refused by its field, and nothing is stored.
func TestWhatCannotBeStaged(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	if err := p.Stage(t.Context(), mailTo("m", "ann")); err != nil {
		t.Fatal(err)
	}
	stages := func(a coordinator.Action) error { return p.Stage(t.Context(), a) }
	does := func(a coordinator.Action) error { _, err := p.Do(t.Context(), a, nothing); return err }
	after := writes("z", "z")
	after.After = []string{"m"}
	pivot, review := mailTo("z", "ann"), mailTo("z", "ann")
	pivot.Pivot, review.Review = true, true
	note := coordinator.Action{ID: "m", Capability: "mail.note", Input: map[string]any{"to": "ann"}}
	for _, c := range []struct {
		err   error
		field string
	}{
		{stages(writes("z", "z")), "contract[file.write].deliver"},
		{stages(coordinator.Action{ID: "z", Capability: "mail.plain"}), "contract[mail.plain].deliver"},
		{does(mailTo("z", "ann")), "action.stage"},
		{p.Report(t.Context(), mailTo("z", "ann"), coordinator.Outcome{}), "action.stage"},
		{stages(pivot), "action.pivot"}, {stages(review), "action.review"},
		{does(after), "action.after[0]"},
		{stages(mailTo("m", "bob")), "action.id"}, {stages(note), "action.id"},
		{p.Settle(t.Context(), "m", coordinator.Outcome{}, nil), "action"},
	} {
		if !isRefused(c.err, c.field) {
			t.Errorf("%v, want it refused by %s", c.err, c.field)
		}
	}
	if _, err := p.Begin(t.Context(), coordinator.PlanSpec{ParentAction: "m"}); !isRefused(err, "plan.parent_action") {
		t.Errorf("a child of a staged act: %v", err)
	}
	if err := p.Fail(t.Context(), "no"); err != nil {
		t.Fatal(err)
	}
	if err := stages(mailTo("y", "ann")); !errors.Is(err, coordinator.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	l.ends(p, ledger.StateCompensated)
	if got := l.mails(); got != "" {
		t.Errorf("sent %s", got)
	}
}

// TestAStagedActOutlivesItsProcess: the next one finds it, and neither doubts nor repeats it.
func TestAStagedActOutlivesItsProcess(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{ID: "kept"})
	l.do(p, "a")
	if err := p.Stage(t.Context(), mailTo("m", "ann")); err != nil {
		t.Fatal(err)
	}
	second, err := coordinator.New(coordinator.Config{Conn: l.connect("a1"), Tenant: "default", Agent: "a1",
		Contracts: mails()})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close(t.Context())
	q, err := second.Resume(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	if past := q.Recorded(); len(past) != 2 || !past[1].Staged {
		t.Errorf("recorded %+v", past)
	}
	for _, a := range []coordinator.Action{mailTo("m", "ann"), mailTo("n", "bob")} {
		if err := q.Stage(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Stage(t.Context(), mailTo("m", "bob")); !isRefused(err, "action.id") {
		t.Errorf("another act under its id: %v", err)
	}
	if err := q.Report(t.Context(), coordinator.Action{ID: "m", Capability: "mail.note",
		Input: map[string]any{"to": "ann"}}, coordinator.Outcome{}); !isRefused(err, "action.id") {
		t.Errorf("reported as done: %v", err)
	}
	if err := q.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.delivered(q, ledger.StateDelivered, "m", "n")
	if got := l.mails(); got != `{"to":"ann"} {"to":"bob"}` {
		t.Errorf("sent %s", got)
	}
}

// TestAStagedActIsRecalled by another process under the same writer: it is staged, with no doubt and
// no outcome, and the plan goes on after it; also where it has ended meanwhile.
func TestAStagedActIsRecalled(t *testing.T) {
	l := newMailer(t)
	under := func() *coordinator.Coordinator {
		c, err := coordinator.New(coordinator.Config{Conn: l.connect("a1"), Tenant: "default", Agent: "a1",
			Writer: "door", Contracts: mails()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := under()
	p, err := first.Begin(t.Context(), coordinator.PlanSpec{ID: "door1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stage(t.Context(), mailTo("m", "ann")); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := under()
	defer second.Close(context.WithoutCancel(t.Context()))
	r, err := second.Recall(t.Context(), "door1")
	if err != nil || r.State != ledger.StateOpen {
		t.Fatalf("%+v, %v", r, err)
	}
	if past := r.Plan.Recorded(); len(past) != 1 || !past[0].Staged || past[0].Outcome == api.OutcomeInDoubt {
		t.Errorf("recorded %+v", past)
	}
	if err := r.Plan.Settle(t.Context(), "m", coordinator.Outcome{}, nil); !isRefused(err, "action") {
		t.Errorf("its outcome: %v", err)
	}
	if _, err := r.Plan.DoAgain(t.Context(), mailTo("m", "ann"), nothing); err == nil {
		t.Error("it is done by its agent")
	}
	for _, a := range []coordinator.Action{mailTo("m", "ann"), mailTo("n", "bob")} {
		if err := r.Plan.Stage(t.Context(), a); err != nil {
			t.Errorf("%s: %v", a.ID, err)
		}
	}
	if err := r.Plan.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.delivered(r.Plan, ledger.StateDelivered, "m", "n")
	third := under()
	defer third.Close(context.WithoutCancel(t.Context()))
	if r, err = third.Recall(t.Context(), "door1"); err != nil || r.State != ledger.StateCommitted {
		t.Fatalf("%+v, %v", r, err)
	}
	l.delivered(r.Plan, ledger.StateDelivered, "m", "n")
	if err := r.Plan.Settle(t.Context(), "m", coordinator.Outcome{}, nil); !isRefused(err, "action") {
		t.Errorf("its outcome, after the end: %v", err)
	}
	if got := l.mails(); got != `{"to":"ann"} {"to":"bob"}` {
		t.Errorf("sent %s", got)
	}
}

// TestAStagedActThatWasDroppedWithAPartIsSaidToBe: its agent may stage another one.
func TestAStagedActThatWasDroppedWithAPartIsSaidToBe(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{})
	l.do(p, "a")
	if err := p.Savepoint(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stage(t.Context(), mailTo("m", "ann")); err != nil {
		t.Fatal(err)
	}
	if err := p.UnwindTo(t.Context(), "s", "another way"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stage(t.Context(), mailTo("m", "ann")); !errors.Is(err, coordinator.ErrPartUndone) {
		t.Errorf("staged again under its id: %v", err)
	}
	if err := p.Stage(t.Context(), mailTo("n", "bob")); err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.delivered(p, ledger.StateDelivered, "n")
	if got := l.mails(); got != `{"to":"bob"}` {
		t.Errorf("sent %s", got)
	}
}

// TestADeliveryWaitsWithItsCommit for the word of an owner, and what was staged stays staged.
func TestADeliveryWaitsWithItsCommit(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	lose(t, p, "mail.plain", "a")
	if err := p.Stage(t.Context(), mailTo("m", "ann")); err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(t.Context()); !errors.Is(err, coordinator.ErrCommitWaits) {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	d, err := p.Delivered(soon)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the commit waits: %+v, %v", d, err)
	}
	l.resolve("p", "a", pb.Resolution_RESOLUTION_ACCEPTED)
	l.delivered(p, ledger.StateDelivered, "m")
}

// TestDeliveriesOfAChildWaitForItsRoot: what it has staged is not nothing until then.
func TestDeliveriesOfAChildWaitForItsRoot(t *testing.T) {
	l := newMailer(t)
	root := l.begin(coordinator.PlanSpec{})
	var parts []*coordinator.Plan
	for _, id := range []string{"m", "n"} {
		part, err := root.Begin(t.Context(), coordinator.PlanSpec{})
		if err != nil {
			t.Fatal(err)
		}
		if err = part.Stage(t.Context(), mailTo(id, "ann")); err != nil {
			t.Fatal(err)
		}
		if err = part.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part)
	}
	soon, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if d, err := parts[0].Delivered(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the root's commit: %+v, %v", d, err)
	}
	if err := root.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.delivered(parts[0], ledger.StateDelivered, "m")
	l.delivered(parts[1], ledger.StateDelivered, "n")
}

// TestAFunctionThatIsRunAgainStagesNothingTwice: its first run ends before it has said all.
func TestAFunctionThatIsRunAgainStagesNothingTwice(t *testing.T) {
	l := newMailer(t)
	var runs int
	run := func(stop bool) error {
		c, err := coordinator.New(coordinator.Config{Conn: l.connect("a1"), Tenant: "default", Agent: "a1",
			Contracts: mails()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.WithoutCancel(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return replay.Run(ctx, c, replay.Config{Plan: coordinator.PlanSpec{ID: "run"}, Function: "mails"},
			func(ctx context.Context, p *replay.Plan) error {
				runs++
				if err := p.Stage(ctx, replay.Action{ID: "m", Capability: "mail.send",
					Input: map[string]any{"to": "ann"}}); err != nil {
					return err
				}
				if stop {
					cancel()
					return ctx.Err()
				}
				return p.Stage(ctx, replay.Action{ID: "n", Capability: "mail.send", Input: map[string]any{"to": "bob"}})
			})
	}
	if err := run(true); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first run: %v", err)
	}
	if err := run(false); err != nil || runs != 2 {
		t.Fatalf("the second run: %v, %d runs", err, runs)
	}
	d, err := l.agent.Delivered(t.Context(), "run")
	if err != nil || d.State != ledger.StateDelivered || !slices.Equal(d.Delivered, []string{"m", "n"}) {
		t.Errorf("%+v, %v", d, err)
	}
	if got := l.mails(); got != `{"to":"ann"} {"to":"bob"}` {
		t.Errorf("sent %s", got)
	}
}

// TestAnActThatTheLedgerDoesNotTakeIsNotStaged: another process has taken the plan over, or an
// operator has cancelled it; its agent is told so before it goes on.
func TestAnActThatTheLedgerDoesNotTakeIsNotStaged(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{ID: "lost"})
	l.do(p, "a")
	if _, err := l.another(t).Resume(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stage(t.Context(), mailTo("m", "ann")); !errors.Is(err, coordinator.ErrSuperseded) {
		t.Errorf("of another process: %v", err)
	}
	q := l.begin(coordinator.PlanSpec{})
	l.do(q, "a")
	l.append(ledger.Source{Tenant: "default", Class: ledger.ClassOperator, Name: "ops"}, &pb.Record{Plan: q.ID(),
		Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Reason: "no", Actor: "ops"}}})
	var err error // of an act that the ledger took just before the unwind began there is none yet
	for end := time.Now().Add(testenv.Patience); err == nil && time.Now().Before(end); {
		err = q.Stage(t.Context(), mailTo("m", "ann"))
	}
	if !errors.Is(err, coordinator.ErrUnwinding) && !errors.Is(err, coordinator.ErrUnwound) {
		t.Errorf("of a plan that is undone: %v", err)
	}
	l.ends(q, ledger.StateCompensated)
}

// TestADroppedActIsNotStagedAgainUnderItsID, in this process or the next: with the same input it is
// said to be dropped, with another one it is another act.
func TestADroppedActIsNotStagedAgainUnderItsID(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	l.do(p, "a")
	if err := p.Savepoint(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stage(t.Context(), mailTo("m", "ann")); err != nil {
		t.Fatal(err)
	}
	if err := p.UnwindTo(t.Context(), "s", "another way"); err != nil {
		t.Fatal(err)
	}
	again := func(p *coordinator.Plan, who string) {
		t.Helper()
		if err := p.Stage(t.Context(), mailTo("m", "bob")); !isRefused(err, "action.id") {
			t.Errorf("%s, with another input: %v", who, err)
		}
		for range 2 {
			var recorded *coordinator.Recorded
			err := p.Stage(t.Context(), mailTo("m", "ann"))
			if !errors.Is(err, coordinator.ErrPartUndone) || !errors.As(err, &recorded) || !recorded.Undone {
				t.Errorf("%s, with the same input: %v", who, err)
			}
		}
	}
	again(p, "here")
	second, err := coordinator.New(coordinator.Config{Conn: l.connect("a1"), Tenant: "default", Agent: "a1",
		Contracts: mails()})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close(context.WithoutCancel(t.Context()))
	q, err := second.Resume(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	again(q, "resumed")
	if err := q.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.delivered(q, "")
	if got := l.mails(); got != "" {
		t.Errorf("sent %s", got)
	}
}

// TestWhatAnExecutorSaysOfAStagedAct is what Stage returns.
func TestWhatAnExecutorSaysOfAStagedAct(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{})
	if err := p.Stage(t.Context(), mailTo("m", "ann")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		state, undo string
		whole       bool
		want        error
	}{
		{ledger.StateOpen, "staged", false, nil},
		{ledger.StateCommitting, "staged", true, nil},
		{ledger.StateCommitted, "delivering", true, nil},
		{ledger.StateCommitted, "dropped", true, nil}, // Delivered says so
		{ledger.StateOpen, "dropped", false, coordinator.ErrPartUndone},
		{ledger.StateUnwinding, "staged", true, coordinator.ErrUnwinding},
		{ledger.StateUnwinding, "staged", false, nil}, // a part that it is not in
		{ledger.StateUnwinding, "dropped", false, coordinator.ErrUnwound},
		{ledger.StateFailed, "dropped", true, coordinator.ErrUnwinding},
	} {
		err := coordinator.StagedAs(p, "m", api.OutcomeAnswer{State: c.state, Undo: c.undo, Whole: c.whole})
		if c.want == nil && err != nil || !errors.Is(err, c.want) {
			t.Errorf("%s, %s, whole %t: %v, want %v", c.state, c.undo, c.whole, err, c.want)
		}
	}
}

// TestWhatAStagedActComesAfter: what is staged comes after the last of both kinds, and all else
// after the last act that is not. So it is in the process that goes on.
func TestWhatAStagedActComesAfter(t *testing.T) {
	l := newMailer(t)
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	for _, id := range []string{"a", "m", "b", "n", "c", "o", "x"} {
		if strings.Contains("mnox", id) {
			if err := p.Stage(t.Context(), mailTo(id, "ann")); err != nil {
				t.Fatal(err)
			}
		} else {
			l.do(p, id)
		}
	}
	comes := func(p *coordinator.Plan, who string) {
		t.Helper()
		for id, want := range map[string]string{"a": "", "m": "a", "b": "a", "n": "b m", "c": "b", "o": "c n", "x": "o c"} {
			got := coordinator.After(p, id)
			slices.Sort(got)
			wanted := strings.Fields(want)
			slices.Sort(wanted)
			if !slices.Equal(got, wanted) {
				t.Errorf("%s, %s comes after %q, want %q", who, id, got, wanted)
			}
		}
	}
	comes(p, "here")
	second, err := coordinator.New(coordinator.Config{Conn: l.connect("a1"), Tenant: "default", Agent: "a1",
		Contracts: mails()})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close(context.WithoutCancel(t.Context()))
	q, err := second.Resume(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	comes(q, "resumed")
}

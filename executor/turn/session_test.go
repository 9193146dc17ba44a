package turn

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// outside is a world that notes what a session does to it, and in which order. It has an answer
// to each command before Send returns.
type outside struct {
	t      *testing.T
	now    Instant
	out    *Outbound // that was opened last
	did    []string
	append *Append // the last one
	sent   []executor.Command
	broken error // of Open
	locked bool
}

func (o *outside) do(format string, args ...any) { o.did = append(o.did, fmt.Sprintf(format, args...)) }

func (o *outside) Inputs(bool) (Instant, []*pb.Record)       { return o.now, nil }
func (o *outside) Folded()                                   { o.do("folded") }
func (o *outside) Close(Down)                                { o.do("close") }
func (o *outside) Confirm()                                  { o.do("confirm") }
func (o *outside) Forget(plan string)                        { o.do("forget %s", plan) }
func (o *outside) Begin(c executor.Command) executor.Command { c.Traceparent = "begun"; return c }
func (o *outside) Tell(notices []executor.Notice, tells bool) {
	o.do("tell %d %v", len(notices), tells)
}
func (o *outside) Append(a Append)          { o.do("append"); o.append = &a }
func (o *outside) Wake(wakes bool, _ int64) { o.do("wake %v", wakes) }
func (o *outside) Page(d *Delivery)         { o.held(true); o.do("page %s", d.Page.ID) }
func (o *outside) Unpage(d *Delivery)       { o.held(true); o.do("unpage %s", d.Page.ID) }
func (o *outside) Drop(f *Flight)           { o.held(true); o.do("drop %s", f.Attempt.Action) }
func (o *outside) Destroy()                 { o.held(false); o.do("destroy") }
func (o *outside) Lock()                    { o.held(false); o.locked = true }
func (o *outside) Unlock()                  { o.held(true); o.locked = false }

func (o *outside) held(locked bool) {
	if o.locked != locked {
		o.t.Helper()
		o.t.Fatalf("after %v: the lock is held: %v", o.did, o.locked)
	}
}

func (o *outside) Open(out *Outbound) error {
	out.Flights.MayRun = func() bool { return true }
	out.Dispatcher, out.Pager, out.Eraser, o.out = o, o, o, out
	o.do("open")
	return o.broken
}

func (o *outside) Send(f *Flight) {
	o.held(false)
	if may, _ := o.out.Flights.MaySend(f, o.now.EpochNs); !may || f.Command.Traceparent != "begun" {
		o.t.Fatalf("%+v leaves", f)
	}
	o.sent = append(o.sent, f.Command)
	o.do("send %s", f.Attempt.Action)
	v := o.out.Flights.Result(f, Result{Fate: Replied, Reply: api.Reply{Status: api.StatusDone}}, o.now)
	if v.Next != nil {
		o.Send(v.Next)
	}
}

// did takes what a world has seen.
func (o *outside) took() []string {
	did := o.did
	o.did = nil
	return did
}

// inTerm is a session that holds its tenant, of a state without plans, and the world outside.
func inTerm(t *testing.T) (*Session, *outside) {
	t.Helper()
	s, o := NewSession(Config{}, executor.Open(rows.NewMemoryKV(), "t", nil), 0), &outside{t: t}
	o.carry(s, Ready{Up: true})
	o.took()
	return s, o
}

// carry has a session carry out one step.
func (o *outside) carry(s *Session, r Ready) (more bool) {
	o.t.Helper()
	more, err := s.carryOut(r, Inputs{}, o.now, o)
	if err != nil {
		o.t.Fatal(err)
	}
	return more
}

func (o *outside) wants(did ...string) {
	o.t.Helper()
	if got := o.took(); !slices.Equal(got, did) {
		o.t.Errorf("it does %q, want %q", got, did)
	}
}

// TestATermBeginsAndEndsWithItsSends: the machine's word and what is on its way are one. A new
// holder sends what an earlier one may have sent; whoever does not hold sends nothing.
func TestATermBeginsAndEndsWithItsSends(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	s, o := &Session{Machine: b.m}, &outside{t: t, now: Instant{EpochNs: 10}}
	turn := func() {
		t.Helper()
		if err := s.Turn(o); err != nil {
			t.Fatal(err)
		}
	}
	claims := func() {
		t.Helper()
		b.m.Lead(true, "h1")
		turn()
		if o.append == nil || !o.append.Claim || s.Outbound() != nil {
			t.Fatalf("no claim: %+v", o.append)
		}
		b.m.Acknowledged(b.at+1, nil, true, 0)
		b.stored(terms, o.append.Data)
	}
	b.records(agent, planOf(t)...)
	claims()
	turn()
	if len(o.sent) != 0 || o.append.Claim || s.Outbound() != o.out {
		t.Fatalf("%v: it sends what was not read back, or decides nothing: %+v", o.did, o.append)
	}
	b.m.Acknowledged(3, nil, true, 0)
	b.stored(executes, o.append.Data)
	turn()
	if len(o.sent) != 1 || o.sent[0].Term != 1 {
		t.Fatalf("the undo does not leave: %+v", o.sent)
	}
	b.m.Lead(false, "")
	turn()
	if s.Outbound() != nil || o.did[len(o.did)-2] != "close" {
		t.Fatalf("%v: something of the term is left", o.did)
	}
	claims()
	turn()
	if len(o.sent) != 2 || o.sent[1].Term != 2 || o.sent[1].Key != o.sent[0].Key {
		t.Fatalf("it is not sent again: %+v", o.sent)
	}
}

// TestTheOldTermEndsBeforeTheNextIsClaimed: and with it all that was on its way.
func TestTheOldTermEndsBeforeTheNextIsClaimed(t *testing.T) {
	t.Parallel()
	s, o := inTerm(t)
	o.carry(s, Ready{Down: new(Down), Append: &Append{Claim: true}, Wakes: true})
	o.wants("close", "append", "wake true")
	if s.Outbound() != nil {
		t.Error("something of the old term is on its way")
	}
	o.carry(s, Ready{Folded: true, Touched: []About{{Plan: "p", Action: "a"}}})
	o.wants("folded", "tell 0 false", "wake false")
}

// TestASessionThatCannotSendEnds: it holds a tenant and nothing would leave.
func TestASessionThatCannotSendEnds(t *testing.T) {
	t.Parallel()
	s, o := NewSession(Config{}, executor.Open(rows.NewMemoryKV(), "t", nil), 0), &outside{t: t}
	o.broken = errors.New("no connection")
	if _, err := s.carryOut(Ready{Up: true, Send: []Sending{undoOf("a", "")}}, Inputs{}, o.now, o); !errors.Is(err,
		o.broken) || s.Outbound() != nil {
		t.Errorf("%v, %v", err, s.Outbound())
	}
	o.wants("open")
}

// TestWhatIsRecordedAheadIsKnownBeforeWhatItGoesBehind: an answer that comes at once finds the
// next command, which leaves without a turn in between.
func TestWhatIsRecordedAheadIsKnownBeforeWhatItGoesBehind(t *testing.T) {
	t.Parallel()
	s, o := inTerm(t)
	o.carry(s, Ready{Ahead: []Sending{undoOf("b", "a"), undoOf("c", "b")}, Send: []Sending{undoOf("a", "")}})
	o.wants("send a", "send b", "send c", "wake false")
}

// TestWhatNoOneWaitsForIsDropped, and what takes the place of another one drops that.
func TestWhatNoOneWaitsForIsDropped(t *testing.T) {
	t.Parallel()
	s, o := inTerm(t)
	flies := func(action string, attempt uint32) {
		x := undoOf(action, "")
		x.Attempt = attempt
		if taken, _ := s.Outbound().Flights.Take(x, 0); taken == nil {
			t.Fatal(action)
		}
	}
	flies("a", 1)
	flies("b", 1)
	second := undoOf("b", "")
	second.Attempt = 2
	o.carry(s, Ready{Touched: []About{{Plan: "p", Action: "a"}}, Send: []Sending{second}})
	o.wants("drop a", "drop b", "send b", "wake false")
}

// TestAPageOutlivesTheEndOfTheOneBefore: what was folded may have ended a page and asked for
// another one about the same.
func TestAPageOutlivesTheEndOfTheOneBefore(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		s, o := inTerm(t)
		first, second := pageOf("1", "a", "payments"), pageOf("2", "a", "payments")
		o.carry(s, Ready{Pages: []executor.Page{first}})
		o.wants("page 1", "wake false")
		r := Ready{Closed: []executor.Page{first}, Pages: []executor.Page{second}}
		if taken {
			r = Ready{Taken: []Taken{{About{Plan: "p", Action: "a"}, first.Kind, "payments"}}, Pages: r.Pages}
		}
		o.carry(s, r)
		o.wants("unpage 1", "page 2", "wake false")
	}
}

// TestPagesLeaveTheStateWhenThereIsRoom: those that had none when they were asked for.
func TestPagesLeaveTheStateWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	s, o := &Session{Machine: b.m}, &outside{t: t}
	b.records(agent, planOf(t)[:1]...)
	claim := &pb.Record{Plan: "p", Action: "lone",
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}
	data, err := ledger.EncodeCommit([]*pb.Record{claim})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := ledger.Decode("t", ledger.Message{Sequence: 2, StampNs: 2, Subject: agent.Subject(), Data: data})
	if err == nil {
		err = b.m.Begin(2, len(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.m.Fold(entries[0]) // it is refused, and its owner is paged for what it claims
	pages := b.m.state.Unpaged()
	if len(pages) != 1 {
		t.Fatalf("%+v", pages)
	}
	o.carry(s, Ready{Up: true}) // with no room
	o.wants("open", "wake false")
	s.Outbound().Pages.rooms.free = true
	o.carry(s, Ready{})
	o.wants("page "+pages[0].ID, "wake false")
	o.carry(s, Ready{})
	o.wants("wake false")
}

// TestKeysAreForgottenBeforeACommandLeaves: none is opened with the key of an erased plan. The
// key is destroyed once, and nothing is left when that is recorded.
func TestKeysAreForgottenBeforeACommandLeaves(t *testing.T) {
	t.Parallel()
	s, o := inTerm(t)
	o.carry(s, Ready{Erased: []Erased{{"p", false}}, Send: []Sending{undoOf("a", "")}, Erase: []string{"p"},
		Folded: true, Tells: true})
	o.wants("folded", "forget p", "send a", "destroy", "tell 0 true", "wake false")
	o.out.Erasures.Result("p", true)
	o.carry(s, Ready{Erased: []Erased{{"p", true}}})
	o.wants("forget p", "wake false")
	if left := o.out.Erasures.All(); len(left) != 0 {
		t.Errorf("%v are on their way", left)
	}
}

// TestWhoHearsOfARecordMayAskAboutIt: questions find what was folded before a command, a page or a
// notice leaves.
func TestWhoHearsOfARecordMayAskAboutIt(t *testing.T) {
	t.Parallel()
	s, o := inTerm(t)
	o.carry(s, Ready{Send: []Sending{undoOf("a", "")}, Pages: []executor.Page{pageOf("1", "b", "ops")}, Folded: true})
	o.wants("folded", "send a", "page 1", "tell 0 false", "wake false")
}

// TestWhatNeedsNoRecordIsGivenUp: a page that was taken and a key that is gone, and nothing of
// which the step has not heard.
func TestWhatNeedsNoRecordIsGivenUp(t *testing.T) {
	t.Parallel()
	s, o := inTerm(t)
	o.carry(s, Ready{Pages: []executor.Page{pageOf("1", "a", "ops"), pageOf("2", "b", "ops")},
		Erase: []string{"p", "q"}})
	o.took()
	out := s.Outbound()
	take := func(id, action, plan string) {
		out.Pages.Take(out.Pages.At(KeyOf(pageOf(id, action, "ops").Page)), "ops")
		out.Erasures.Result(plan, true)
	}
	take("1", "a", "p")
	for _, c := range []struct {
		more bool
		did  string
	}{{true, "unpage 1"}, {false, "unpage 2"}} {
		var in Inputs
		in.Paged, in.Destroyed = out.settling()
		if c.more {
			take("2", "b", "q") // meanwhile
		}
		if more, err := s.carryOut(Ready{Settled: true}, in, o.now, o); more != c.more || err != nil {
			t.Errorf("more: %v, %v", more, err)
		}
		o.wants(c.did, "wake false")
	}
	if out.Pages.Len() != 0 || len(out.Erasures.All()) != 0 {
		t.Errorf("left: %v, %v", out.Pages.All(), out.Erasures.All())
	}
}

package host

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/actuators"
	"github.com/sagenbaum/sagenbaum/executor/host/ask"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// byHand is an actuator whose results the test gives.
type byHand struct{ done []func(actuators.Result) }

func (b *byHand) Send(_ api.Command, done func(actuators.Result)) { b.done = append(b.done, done) }

func repliedDone() actuators.Result {
	return actuators.Result{Fate: actuators.Replied, Reply: api.Reply{Status: api.StatusDone}}
}

func repliedFailed() actuators.Result {
	return actuators.Result{Fate: actuators.Replied, Reply: api.Reply{Status: api.StatusFailed}}
}

// instant is a clock that no one guards.
func instant() turn.Instant {
	ns := time.Now().UnixNano()
	return turn.Instant{EpochNs: ns, MonoNs: ns}
}

// settled says that no call waits for an answer.
func settled(string, uint32, string, uint32) bool { return false }

// TestAnAnswerToWhatIsNotOnItsWayIsNone, unless it says that an undo is done: it comes after
// another command for the same action has taken its place, after the ledger has settled the
// attempt, a second time, or after this host has stepped down.
func TestAnAnswerToWhatIsNotOnItsWayIsNone(t *testing.T) {
	t.Parallel()
	b := new(byHand)
	d := newDispatcher(new(turn.Flights), b, instant, nil)
	first, second := command(), command()
	second.Attempt = 2
	d.send(turn.Sending{Command: first})
	d.send(turn.Sending{Command: second})
	b.done[0](repliedFailed())
	if got := d.take(); len(got) != 0 {
		t.Errorf("the answer to a command whose place is taken: %+v", got)
	}
	b.done[1](repliedDone())
	if got := d.take(); len(got) != 1 || got[0].Attempt != 2 {
		t.Errorf("the answer that is waited for: %+v", got)
	}
	b.done[1](repliedFailed())
	if got := d.take(); len(got) != 0 {
		t.Errorf("a second answer: %+v", got)
	}
	d.send(turn.Sending{Command: first})
	d.prune([]turn.About{{Plan: "p", Action: "a"}}, settled)
	b.done[2](repliedFailed())
	if got := d.take(); len(got) != 0 {
		t.Errorf("an answer to what is settled: %+v", got)
	}
	d.send(turn.Sending{Command: second})
	d.stop()
	b.done[3](repliedDone())
	d.send(turn.Sending{Command: first})
	if got := d.take(); len(got) != 0 || len(b.done) != 4 {
		t.Errorf("after the end of its term: %+v, %d commands", got, len(b.done))
	}
	flying := newDispatcher(new(turn.Flights), b, instant, nil)
	flying.send(turn.Sending{Command: first})
	flying.stop()
	b.done[4](repliedDone())
	if len(flying.take()) != 0 {
		t.Error("a dispatcher that has stopped takes an answer")
	}
}

// TestAHostThatStepsDownKeepsNothingOfItsTerm: neither the claim nor what workers have said,
// which the next holder asks for itself.
func TestAHostThatStepsDownKeepsNothingOfItsTerm(t *testing.T) {
	t.Parallel()
	a, sent, _ := holdingActor(t)
	a.session.Answer(executor.Answer{Plan: "p", Number: 1})
	d := a.out.dispatch
	a.session.Lead(false, "")
	a.step(t, new(bare))
	ended := a.out == nil && a.session.Outbound() == nil
	if a.holding() || a.session.Term() != 0 || !ended {
		t.Errorf("holding=%v term=%d", a.holding(), a.session.Term())
	}
	d.send(turn.Sending{Command: command()})
	if len(sent.sent) != 0 || len(d.flying) != 0 {
		t.Error("its dispatcher still sends")
	}
}

// TestAHostThatEndsTellsTheOthers: it gives its lease back, and says so, with a subject for
// an answer as every request has one; a host that stands by need not wait for its end.
func TestAHostThatEndsTellsTheOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	told := make(chan *nats.Msg, 10)
	if _, err := r.conn.ChanSubscribe(api.QuerySubject("t", ask.VerbReleased), told); err != nil {
		t.Fatal(err)
	}
	h, stop := r.host("h1")
	r.eventually("h1 holds", func() bool { return r.status().Mode == api.ModeHolding })
	holders := h.holders
	if lock, err := holders.Current(t.Context(), "t"); err != nil || lock.Holder == "" {
		t.Fatal(lock, err)
	}
	if len(told) != 0 {
		t.Fatal("it is said before its end")
	}
	stop()
	if lock, err := holders.Current(t.Context(), "t"); err != nil || lock.Holder != "" {
		t.Errorf("%q still holds the tenant: %v", lock.Holder, err)
	}
	select {
	case m := <-told:
		if m.Reply == "" {
			t.Error("it has no subject for an answer: no host listens to that")
		}
	case <-time.After(testenv.Patience):
		t.Error("nobody is told")
	}
}

// TestAReleaseIsHeard: a host that stands by takes the tenant as soon as its holder has
// given it back, and does not wait for the end of the lease.
func TestAReleaseIsHeard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.leaseTTL = 30 * time.Minute // a host that stands by looks every 10 minutes
	first, stop := r.host("h1")
	r.eventually("h1 holds", func() bool {
		return r.status().Holder == first.cfg.Holder && r.status().Mode == api.ModeHolding
	})
	second, _ := r.host("h2")
	h2 := second.roster.order[0]
	inMode := func(mode string) bool { return h2.board.Mode() == mode }
	r.eventually("h2 stands by", func() bool { return inMode(api.ModeStandby) })
	<-time.After(time.Second) // it has looked for the lease
	stop()
	r.eventually("h2 has heard of the release, and holds", func() bool { return inMode(api.ModeHolding) })
}

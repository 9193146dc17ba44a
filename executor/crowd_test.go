package executor_test

import (
	"fmt"
	"runtime"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// crowd is a plan of so many actions whose blind undos wait until their forwards can no longer
// land, all of them until the same instant, and then for one of eight places in flight.
type crowd struct {
	t        *testing.T
	state    *State
	sequence uint64
	nowNs    int64
}

func (c *crowd) store(source ledger.Source, records ...*pb.Record) {
	c.t.Helper()
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		c.t.Fatal(err)
	}
	c.sequence++
	for _, r := range foldMessage(c.t, c.state, ledger.Message{Sequence: c.sequence, StampNs: c.nowNs,
		Subject: source.Subject(), Data: data}) {
		if r.Verdict != Effective {
			c.t.Fatal(r)
		}
	}
}

func newCrowd(t *testing.T, actions int) *crowd {
	c := &crowd{t: t, state: OpenWith(rows.NewMemoryKV(), "t", nil, triggers.NewCache(100)), nowNs: epoch0}
	c.store(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: FoldVersion}}})
	agent := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: "p"}
	of := func(records ...*pb.Record) []*pb.Record {
		for _, r := range records {
			r.Plan = "p"
		}
		return records
	}
	c.store(agent, of(opened(0))...)
	for n := 0; n < actions; n += 100 {
		var records []*pb.Record
		for i := range 100 {
			records = append(records, pair(fmt.Sprintf("a%05d", n+i),
				func(f *pb.ForwardRegistered, _ *pb.CompensationRegistered) {
					f.Branch, f.Late, f.SettleNs = true, pb.Late_LATE_UNSPECIFIED, 60*second
				})...)
		}
		c.store(agent, of(records...)...)
	}
	c.store(agent, of(planFailed())...)
	return c
}

// turns decides until nothing is left to do now; workers undo what they are sent.
func (c *crowd) turns() (undone int) {
	for {
		var answers []Answer
		for _, k := range c.state.Commands() {
			undone++
			answers = append(answers, Answer{Plan: k.Plan, Number: k.Number, Purpose: k.Purpose, Attempt: k.Attempt,
				Reply: &api.Reply{Status: api.StatusDone}})
		}
		records := c.state.Decide(Input{EpochNs: c.nowNs, Answers: answers, SizeMax: 60 << 10})
		if len(records) == 0 {
			return undone
		}
		c.store(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...)
	}
}

// TestWaitingForRoomCostsWhatBegins: when an undo ends, there is room for one of those that wait,
// and one is looked at. The count is of allocations, for each look has one.
func TestWaitingForRoomCostsWhatBegins(t *testing.T) {
	each := map[int]float64{}
	for _, actions := range []int{1000, 10_000} {
		c := newCrowd(t, actions)
		if undone := c.turns(); undone != 0 {
			t.Fatalf("%d were undone before their forwards could no longer land", undone)
		}
		c.nowNs += 3600 * second
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		undone := c.turns()
		runtime.ReadMemStats(&after)
		if undone != actions {
			t.Fatalf("%d of %d were undone", undone, actions)
		}
		each[actions] = float64(after.Mallocs-before.Mallocs) / float64(actions)
		t.Logf("%d actions: %.0f allocations each", actions, each[actions])
	}
	if each[10_000] > 1.3*each[1000] {
		t.Errorf("each of 10,000 costs %.1f times each of 1,000", each[10_000]/each[1000])
	}
}

// TestWhatFoundNoRoomBeginsWhenThereIsSome: also when the undo that took it ends by its owner's word,
// which asks the holder for nothing.
func TestWhatFoundNoRoomBeginsWhenThereIsSome(t *testing.T) {
	s := newSchedule(t)
	s.play("open:1 a<:settle=60s b<:settle=60s a? b? a=late b=late fail turn @1h turn")
	calls := s.state.InFlight()
	if len(calls) != 1 {
		t.Fatalf("%+v are in flight, and there is room for one", calls)
	}
	first := calls[0].Action
	s.play("resolve:" + first + " turn")
	if calls := s.state.InFlight(); len(calls) != 1 || calls[0].Action == first {
		t.Errorf("%+v are in flight, and the owner has answered for %s", calls, first)
	}
}

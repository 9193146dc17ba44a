package executor_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// frozen is a tenant under a holder of this fold version whose logical time is ahead of every
// stamp to come, and how it came there.
func frozen(t *testing.T, how string, version uint32) *schedule {
	s := newSchedule(t)
	holder := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
	term := func(n uint64, epochNs int64) {
		s.must(s.append(holder, &pb.Record{Term: n, EpochNs: epochNs,
			Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: version}}}))
	}
	term(2, 0)
	switch how {
	case "the holder's clock is ahead":
		term(3, s.now+int64(time.Hour))
	case "the server's clock is set back":
		s.now += int64(time.Hour)
		s.stamped("other", "1")
		s.now -= int64(time.Hour)
	case "the server's clock stands": // its stamps are one instant
	}
	return s
}

// stamped asserts a fact at the stamp that the server has now.
func (s *schedule) stamped(key, value string) {
	s.t.Helper()
	data, err := ledger.EncodeCommit([]*pb.Record{asserted(key, value)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.must(s.raw(factory.Subject(), "", data))
}

// TestWhatCameAfterArmingIsDecidedByTheLedger, and not by clocks that stand or go back: a fact
// of before does not count, and one behind it does, at once.
func TestWhatCameAfterArmingIsDecidedByTheLedger(t *testing.T) {
	for _, how := range []string{"the holder's clock is ahead", "the server's clock is set back",
		"the server's clock stands"} {
		for _, condition := range []string{
			`seen("x")`,
			`first_at("x") > plan.opened_at`,
			`last_at("x") > first_at("y")`,
			`at("x") > at("y")`,
			`since("x") > since("y")`,
			`seen("x") && before(timestamp("2030-01-01T00:00:00Z"))`,
			`at_least(2, "x", duration("2h"))`,
			`count("x", duration("2h")) == 2`,
			`latest(9, "x", plan.opened_at, duration("2h")).size() == 1`,
			`within("x", plan.opened_at, duration("2h"))`,
		} {
			t.Run(how+", "+condition, func(t *testing.T) {
				s := frozen(t, how, FoldVersion)
				s.stamped("x", "1")
				s.must(s.agent("p", opened(0, when("mine", condition))))
				s.do("p", "a")
				s.stamped("y", "1")
				s.turn()
				if got := s.show("p").State; got != "open" {
					t.Fatalf("%s for what came before its arming", got)
				}
				s.stamped("x", "2")
				s.now++ // it may be the nanosecond that the fact is behind
				s.turn()
				if got := s.show("p").State; got != "compensated" {
					t.Fatalf("%s after the fact", got)
				}
				s.wantRefolded()
			})
		}
	}
}

// TestAWindowBeginsBehindWhatWasBefore, though no clock has moved between the two.
func TestAWindowBeginsBehindWhatWasBefore(t *testing.T) {
	for _, how := range []string{"the holder's clock is ahead", "the server's clock is set back"} {
		s := frozen(t, how, FoldVersion)
		s.stamped("paid", "1")
		s.must(s.agent("p", opened(0, when("mine", `absent_for("paid", plan.opened_at, duration("10m"))`))))
		s.do("p", "a")
		s.now += int64(2 * time.Hour)
		s.turn()
		if got := s.show("p").State; got != "compensated" {
			t.Fatalf("%s: %s, and was paid before it was opened only", how, got)
		}
	}
}

// TestAnEarlierHolderLetTimeStand: its ledger means what it meant.
func TestAnEarlierHolderLetTimeStand(t *testing.T) {
	s := frozen(t, "the holder's clock is ahead", ledger.LaterSince-1)
	s.must(s.agent("p", opened(0, when("mine", `seen("x")`))))
	s.do("p", "a")
	before := s.state.Meta().TimeNs
	s.stamped("x", "1")
	s.now++
	s.turn()
	if got := fmt.Sprint(s.show("p").State, s.state.Meta().TimeNs-before); got != "open0" {
		t.Fatal(got)
	}
}

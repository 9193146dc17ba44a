package executor_test

import (
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestAPlanThatNamesNoDeadlineHasThatOfItsTenant from its opening on: a root, opened under a holder
// that knows of it; it may be moved, and what the tenant says later changes no plan that is there.
func TestAPlanThatNamesNoDeadlineHasThatOfItsTenant(t *testing.T) {
	for _, c := range []struct {
		name, setup, want string
		version           uint32
	}{
		{"it comes", "open a a+ @30s", "compensated: a=compensated [a]", FoldVersion},
		{"and not before", "open a a+ @29s", "open: a=held []", FoldVersion},
		{"one that names its own", "open@90s a a+ @89s", "open: a=held []", FoldVersion},
		{"it is moved", "open a a+ moves:60s @59s", "open: a=held []", FoldVersion},
		{"it is moved, and comes", "open a a+ move:60s @60s", "compensated: a=compensated [a]", FoldVersion},
		{"a child ends with its root", "open@90s a a+ q/open^ q/b q/b+ @89s", "open: a=held plan:q=held []", FoldVersion},
		{"a plan that a pair opens", "a a+ @30s", "compensated: a=compensated [a]", FoldVersion},
		{"a condition reads it", "open:due=5s a a+ @25s", "compensated: a=compensated [a]", FoldVersion},
		{"what an earlier holder has opened", "open a a+ @30s", "open: a=held []", ledger.MovedSince - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSchedule(t)
			s.underHolder(c.version)
			s.governed(&pb.TenantChanged{Limits: &pb.TenantLimits{DefaultDeadline: 30}})
			s.play(c.setup)
			if got := s.outcome(); got != c.want {
				t.Errorf("%s gives %s, want %s", c.setup, got, c.want)
			}
			s.wantRefolded()
		})
	}
	s := newSchedule(t)
	s.underHolder(FoldVersion)
	s.governed(&pb.TenantChanged{Limits: &pb.TenantLimits{DefaultDeadline: 30}})
	s.play("open a a+")
	if shown := s.show("p"); shown.DeadlineNs != shown.OpenedNs+30*second || !shown.DefaultDeadline ||
		shown.DeadlineMoved != nil {
		t.Errorf("%+v", shown)
	}
	s.governed(&pb.TenantChanged{Limits: &pb.TenantLimits{}})
	s.play("q/open q/b q/b+ @31s")
	if p, q := s.show("p").State, s.show("q").State; p != ledger.StateCompensated || q != ledger.StateOpen {
		t.Errorf("p is %s, q is %s", p, q)
	}
}

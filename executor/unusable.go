package executor

import (
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// unusable says why a well-formed record of an agent can never do what it says, or nil.
// A registration is looked at whole, from either of its halves: a forward must not be
// held without its undo. Only the records decide: what a text compiles to depends on
// the text alone, and so do the words in which it is refused (triggers.Error.Brief).
func (s *State) unusable(e ledger.Entry) error {
	switch k := e.Record.Kind.(type) {
	case *pb.Record_PlanOpened:
		return s.unusableTriggers("plan_opened", k.PlanOpened.Triggers)
	case *pb.Record_ForwardRegistered:
		return s.unusablePair(k.ForwardRegistered, e.Pair.GetCompensationRegistered())
	case *pb.Record_CompensationRegistered:
		return s.unusablePair(e.Pair.GetForwardRegistered(), k.CompensationRegistered)
	default:
		return nil
	}
}

// pastDeadline refuses a deadline that cannot have been meant: it had passed, by more
// than clocks differ and an append may wait, when the ledger took the plan. since is the
// earlier of the plan's own stamp and the logical time before it: a stamp that is ahead
// by itself is the server's error, and not the agent's.
func pastDeadline(p *pb.PlanOpened, since int64) error {
	if p.DeadlineNs == 0 || p.DeadlineNs > since-int64(ledger.DeadlinePastMax) {
		return nil
	}
	return ledger.Refuse("plan_opened.deadline_ns",
		"it had passed when the plan was opened: "+instant(p.DeadlineNs),
		"unix nanoseconds of an instant to come, or 0 for none")
}

func (s *State) unusablePair(f *pb.ForwardRegistered, c *pb.CompensationRegistered) error {
	if c == nil || c == s.usable {
		return nil
	}
	if err := s.unusableCompensation(c); err != nil {
		return err
	}
	if f.GetClass() == pb.Class_CLASS_EFFECTLESS && c.Capability != "" {
		return ledger.Refuse("forward_registered.class",
			"effectless, and "+c.Capability+" is registered to undo it",
			"compensable, or no compensation_registered.capability")
	}
	if f.GetLate() == pb.Late_LATE_REFUSED && !s.namesForward(c) {
		return ledger.Refuse("forward_registered.late",
			"refused, and no argument of the undo reads meta.forward_key",
			"a binding that does, by which the provider knows what to refuse")
	}
	s.usable = c
	return nil
}

func (s *State) unusableCompensation(c *pb.CompensationRegistered) error {
	const at = "compensation_registered."
	if err := s.unusableBindings(at, c.Bindings); err != nil {
		return err
	}
	if err := s.unusableTriggers("compensation_registered", c.Triggers); err != nil {
		return err
	}
	if err := s.unusableReader(at+"done", c.Done, "bool"); err != nil {
		return err
	}
	if err := s.unusableReader(at+"stop", c.Stop, "bool"); err != nil {
		return err
	}
	if p := c.Probe; p != nil {
		if err := s.unusableBindings(at+"probe.call.", p.Call.GetBindings()); err != nil {
			return err
		}
		if err := s.unusableReader(at+"probe.answer", p.Answer, "string"); err != nil {
			return err
		}
		if err := s.unusableReader(at+"probe.external_ref", p.ExternalRef, ""); err != nil {
			return err
		}
	}
	if v := c.Verify; v != nil {
		if err := s.unusableBindings(at+"verify.call.", v.Call.GetBindings()); err != nil {
			return err
		}
		return s.unusableReader(at+"verify.ok", v.Ok, "bool")
	}
	return nil
}

func (s *State) unusableTriggers(at string, list []*pb.Trigger) error {
	for i, t := range list {
		if _, err := s.condition(t.Condition); err != nil {
			return uncompiled(fmt.Sprintf("%s.triggers[%d].condition", at, i), err,
				`a condition in CEL, as in plan.status == "failed"`)
		}
	}
	return nil
}

func (s *State) unusableBindings(at string, list []*pb.Binding) error {
	for i, b := range list {
		if s.between != nil {
			s.between(false)
		}
		if err := s.programs.CheckBinding(b.Expression); err != nil {
			return uncompiled(fmt.Sprintf("%sbindings[%d].expression", at, i), err,
				"CEL over input, output, before, plan and meta, as in output.id")
		}
	}
	return nil
}

// unusableReader refuses what does not compile, and what can only ever be of another
// kind than it must be; kind is as CEL names it, or empty for any.
func (s *State) unusableReader(field, text, kind string) error {
	if text == "" {
		return nil
	}
	reader, err := s.programs.Reader(text)
	if err != nil {
		return uncompiled(field, err, "CEL over the answer and what a binding reads")
	}
	switch is := reader.Type(); {
	case kind == "", is == kind, is == "dyn", is == "null_type":
		return nil
	default:
		return ledger.Refuse(field, "the result is "+is, "a "+kind)
	}
}

// namesForward reports whether the undo tells its provider which forward it undoes: by
// an argument, or as a handler in the agent's code, which is told.
func (s *State) namesForward(c *pb.CompensationRegistered) bool {
	if c.HandlerVersion != "" {
		return true
	}
	for _, b := range c.Bindings {
		binding, err := s.programs.Binding(b.Expression)
		if err == nil && binding.ReadsField("meta", "forward_key") {
			return true
		}
	}
	return false
}

// uncompiled refuses an expression; want is for one whose error says nothing better.
func uncompiled(field string, err error, want string) error {
	var e *triggers.Error
	if !errors.As(err, &e) {
		panic("executor: an expression is refused without a place: " + err.Error())
	}
	problem, hint := e.Brief()
	if hint == "" {
		hint = want
	}
	return ledger.Refuse(field, "does not compile: "+problem, hint)
}

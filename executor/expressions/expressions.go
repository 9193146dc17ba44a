// Package expressions compiles the CEL of records.
package expressions

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Compiler compiles what records hold in CEL, and says of a registration that can never do what
// it says why not. Only the records decide: what a text compiles to depends on the text alone,
// and so do the words in which it is refused (triggers.Error.Brief).
type Compiler struct {
	Programs *triggers.Cache
	// Between is called before a text that may have to be compiled; costly says that it will
	// take milliseconds. nil: nothing is.
	Between func(costly bool)
	usable  *pb.CompensationRegistered // let pass last, of a pair that comes twice
	fold    uint32                     // of the holder for whom Pair looks
}

// Condition compiles a condition, or finds it compiled. A text that no one has compiled
// yet takes as long as a costly evaluation.
func (x *Compiler) Condition(text string) (*triggers.Condition, error) {
	if x.Between != nil && !x.Programs.Knows(text) {
		x.Between(true)
	}
	return x.Programs.Condition(text)
}

// Counts reports whether a condition reads how many actions its plan has.
func (x *Compiler) Counts(condition string) bool {
	return x.reads(condition, "plan.actions", "plan.step")
}

// Idles reports whether a condition reads when the agent of its plan last wrote.
func (x *Compiler) Idles(condition string) bool { return x.reads(condition, "plan.active_at") }

// IsDue reports whether a condition reads the deadline of its plan.
func (x *Compiler) IsDue(condition string) bool { return x.reads(condition, "plan.deadline") }

// reads reports whether a condition reads one of names. No name is written otherwise, so most
// conditions need not be compiled.
func (x *Compiler) reads(condition string, names ...string) bool {
	for _, name := range names {
		if strings.Contains(condition, name[strings.IndexByte(name, '.')+1:]) {
			c, err := x.Condition(condition)
			return err == nil && c.Reads(names...)
		}
	}
	return false
}

// Opening looks at what a plan declares, for a holder with a version of the fold. The error is as
// Pair has it.
func (x *Compiler) Opening(o *pb.PlanOpened, fold uint32) error {
	return x.triggers("plan_opened", o.Triggers, fold)
}

// Pair looks at a registration whole, from either of its halves, for a holder with a version of the
// fold: a forward must not be held without its undo. The error is a *ledger.Refused that names the
// field; c may be nil.
func (x *Compiler) Pair(f *pb.ForwardRegistered, c *pb.CompensationRegistered, fold uint32) error {
	if c == nil || c == x.usable {
		return nil
	}
	x.fold = fold
	if err := x.compensation(c, fold); err != nil {
		return err
	}
	if f.GetClass() == pb.Class_CLASS_EFFECTLESS && c.Capability != "" {
		return ledger.Refuse("forward_registered.class",
			"effectless, and "+c.Capability+" is registered to undo it",
			"compensable, or no compensation_registered.capability")
	}
	if f.GetLate() == pb.Late_LATE_REFUSED && !x.namesForward(c) {
		return ledger.Refuse("forward_registered.late",
			"refused, and no argument of the undo reads meta.forward_key",
			"a binding that does, by which the provider knows what to refuse")
	}
	if d := f.GetDeliver(); d != nil {
		if err := x.delivery(d, fold); err != nil {
			return ledger.InDelivery(err)
		}
	}
	x.usable = c
	return nil
}

// delivery looks at how a staged act is made: from what is there before it has happened.
func (x *Compiler) delivery(d *pb.CompensationRegistered, fold uint32) error {
	const at = "compensation_registered."
	if err := x.compensation(d, fold); err != nil {
		return err
	}
	call := d.Probe.GetCall().GetBindings()
	for i, b := range slices.Concat(d.Bindings, call) {
		field := fmt.Sprintf("%sbindings[%d].expression", at, i)
		if i >= len(d.Bindings) {
			field = fmt.Sprintf("%sprobe.call.bindings[%d].expression", at, i-len(d.Bindings))
		}
		binding, err := x.Programs.Binding(b.Expression)
		if err != nil {
			panic("expressions: a binding compiled, and does not any more: " + err.Error())
		}
		if err := x.readsResult(field, binding); err != nil {
			return err
		}
	}
	for _, r := range [...]struct{ field, text string }{{"done", d.Done}, {"stop", d.Stop},
		{"probe.answer", d.Probe.GetAnswer()}, {"probe.external_ref", d.Probe.GetExternalRef()}} {
		if r.text == "" {
			continue
		}
		reader, err := x.Programs.Reader(r.text)
		if err != nil {
			panic("expressions: a reader compiled, and does not any more: " + err.Error())
		}
		if err := x.readsResult(at+r.field, reader); err != nil {
			return err
		}
	}
	return nil
}

// readsResult refuses an expression that reads what its act has left.
func (x *Compiler) readsResult(field string, b *triggers.Binding) error {
	want := "input, plan and meta"
	if ledger.Knows(x.fold, ledger.OthersSince) {
		want = "input, plan, meta, actions and facts"
	}
	for _, name := range [...]string{"output", "before"} {
		if b.Reads(name) {
			return ledger.Refuse(field, "reads "+name+", and nothing has been called yet",
				want)
		}
	}
	return nil
}

// ofHolder is the error of a text as the holder finds it, where err is that of now: those of before
// OthersSince know of an action only what is its own.
func (x *Compiler) ofHolder(text string, reader bool, err error) error {
	if ledger.Knows(x.fold, ledger.OthersSince) || err == nil && !mentionsElements(text) {
		return err
	}
	return cmp.Or(x.Programs.CheckOwn(text, reader), err)
}

// mentionsElements reports whether a text may read other actions, or facts. No name is written
// otherwise.
func mentionsElements(text string) bool {
	return strings.Contains(text, "actions") || strings.Contains(text, "facts")
}

// ReadersOf are the expressions of calls, compiled, that read other actions ("actions") or facts
// ("facts"), for a holder with a version of the fold. A call may be nil.
func (x *Compiler) ReadersOf(variable string, fold uint32,
	calls ...*pb.CompensationRegistered) (readers []*triggers.Binding) {
	if !ledger.Knows(fold, ledger.OthersSince) {
		return nil
	}
	for _, c := range calls {
		for text := range textsOf(c) {
			if !strings.Contains(text, variable) {
				continue
			}
			if reader, err := x.Programs.Reader(text); err == nil && reader.Reads(variable) {
				readers = append(readers, reader)
			}
		}
	}
	return readers
}

// textsOf are the expressions of a call, but for its conditions.
func textsOf(c *pb.CompensationRegistered) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range [...][]*pb.Binding{c.GetBindings(), c.GetProbe().GetCall().GetBindings(),
			c.GetVerify().GetCall().GetBindings()} {
			for _, b := range list {
				if !yield(b.Expression) {
					return
				}
			}
		}
		for _, text := range [...]string{c.GetUnchanged(), c.GetDone(), c.GetStop(),
			c.GetProbe().GetAnswer(), c.GetProbe().GetExternalRef(), c.GetVerify().GetOk()} {
			if !yield(text) {
				return
			}
		}
	}
}

// elements bounds what a call reads of others.
func (x *Compiler) elements(c *pb.CompensationRegistered) error {
	for _, variable := range [...]string{"actions", "facts"} {
		read := 0
		for _, reader := range x.ReadersOf(variable, x.fold, c) {
			read += len(reader.Keys(variable))
		}
		if read > ledger.ElementsMax {
			return ledger.Refuse("compensation_registered",
				fmt.Sprintf("its expressions read %d %s", read, variable),
				fmt.Sprintf("at most %d", ledger.ElementsMax))
		}
	}
	return nil
}

func (x *Compiler) compensation(c *pb.CompensationRegistered, fold uint32) error {
	if err := x.elements(c); err != nil {
		return err
	}
	const at = "compensation_registered."
	// With unchanged, what the probe has found is at hand.
	if err := x.bindings(at, c.Bindings, c.Unchanged != ""); err != nil {
		return err
	}
	if err := x.reader(at+"unchanged", c.Unchanged, "bool"); err != nil {
		return err
	}
	if err := x.triggers("compensation_registered", c.Triggers, fold); err != nil {
		return err
	}
	if err := x.reader(at+"done", c.Done, "bool"); err != nil {
		return err
	}
	if err := x.reader(at+"stop", c.Stop, "bool"); err != nil {
		return err
	}
	if p := c.Probe; p != nil {
		call := p.Call.GetBindings()
		if err := x.bindings(at+"probe.call.", call, false); err != nil {
			return err
		}
		if err := x.reader(at+"probe.answer", p.Answer, "string"); err != nil {
			return err
		}
		if err := x.reader(at+"probe.external_ref", p.ExternalRef, ""); err != nil {
			return err
		}
	}
	if v := c.Verify; v != nil {
		call := v.Call.GetBindings()
		if err := x.bindings(at+"verify.call.", call, false); err != nil {
			return err
		}
		return x.reader(at+"verify.ok", v.Ok, "bool")
	}
	return nil
}

// triggers looks at the triggers of the record that at names.
func (x *Compiler) triggers(at string, list []*pb.Trigger, fold uint32) error {
	for i, t := range list {
		field := fmt.Sprintf("%s.triggers[%d].condition", at, i)
		condition, err := x.Condition(t.Condition)
		switch {
		case err != nil:
			return uncompiled(field, err, `a condition in CEL, as in plan.status == "failed"`)
		case !ledger.Knows(fold, ledger.ActiveSince) && condition.Reads("plan.active_at"):
			return ledger.Refuse(field, "does not compile: plan has no field active_at",
				"what an executor of this version knows of a plan")
		case !ledger.Knows(fold, ledger.PrefixSince) && condition.ReadsPrefix():
			return ledger.Refuse(field, "does not compile: all facts at once",
				"what an executor of this version knows of facts")
		}
	}
	return nil
}

func (x *Compiler) checkReader(text string) error {
	_, err := x.Programs.Reader(text)
	return err
}

func (x *Compiler) bindings(at string, list []*pb.Binding, reader bool) error {
	check := x.Programs.CheckBinding
	if reader {
		check = x.checkReader
	}
	what := "CEL over input, output, before, plan and meta, as in output.id"
	if ledger.Knows(x.fold, ledger.WholeSince) {
		what = "CEL over input, output, before, plan, meta, actions and facts, as in output.id"
	}
	for i, b := range list {
		if x.Between != nil {
			x.Between(false)
		}
		if err := x.ofHolder(b.Expression, reader, check(b.Expression)); err != nil {
			return uncompiled(fmt.Sprintf("%sbindings[%d].expression", at, i), err, what)
		}
	}
	return nil
}

// reader refuses what does not compile, and what can only ever be of another
// kind than it must be; kind is as CEL names it, or empty for any.
func (x *Compiler) reader(field, text, kind string) error {
	if text == "" {
		return nil
	}
	reader, err := x.Programs.Reader(text)
	if err = x.ofHolder(text, true, err); err != nil {
		return uncompiled(field, err, "CEL over the answer and what a binding reads")
	}
	switch is := reader.Type(); {
	case kind == "", is == kind, is == "dyn", is == "null_type":
		return nil
	default:
		return ledger.Refuse(field, "the result is "+is, "a "+kind)
	}
}

// NamesEffect reports whether an argument of the undo is what the provider calls the effect.
// Holders of before OthersSince did not ask whose external_ref it is.
func (x *Compiler) NamesEffect(c *pb.CompensationRegistered, fold uint32) bool {
	return slices.ContainsFunc(c.Bindings, func(b *pb.Binding) bool {
		if !strings.Contains(b.Expression, "external_ref") || fold < ledger.OthersSince {
			return strings.Contains(b.Expression, "external_ref")
		}
		binding, err := x.Programs.Reader(b.Expression)
		return err == nil && binding.ReadsField("meta", "external_ref")
	})
}

// namesForward reports whether the undo tells its provider which forward it undoes: by
// an argument, or as a handler in the agent's code, which is told.
func (x *Compiler) namesForward(c *pb.CompensationRegistered) bool {
	if c.HandlerVersion != "" {
		return true
	}
	for _, b := range c.Bindings {
		compile := x.Programs.Binding
		if c.Unchanged != "" {
			compile = x.Programs.Reader
		}
		binding, err := compile(b.Expression)
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
		panic("expressions: an expression is refused without a place: " + err.Error())
	}
	problem, hint := e.Brief()
	if hint == "" {
		hint = want
	}
	return ledger.Refuse(field, "does not compile: "+problem, hint)
}

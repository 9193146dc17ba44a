package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// expression is a text of a record that somebody will evaluate one day.
type expression struct {
	field, text string
	as          use
}

// use is what an expression is for.
type use uint8

const (
	condition use = iota
	argument
	truth   // read from an answer: true or false
	word    // read from an answer: a text
	reading // read from an answer: anything
)

// declared lists the conditions of triggers.
func declared(at string, list []*pb.Trigger) (all []expression) {
	for i, t := range list {
		field := fmt.Sprintf("%s.triggers[%d].condition", at, i)
		all = append(all, expression{field, t.Condition, condition})
	}
	return all
}

func argumentsOf(at string, list []*pb.Binding) (all []expression) {
	for i, b := range list {
		field := fmt.Sprintf("%s.bindings[%d].expression", at, i)
		all = append(all, expression{field, b.Expression, argument})
	}
	return all
}

// expressionsOf lists all that a registration has.
func expressionsOf(c *pb.CompensationRegistered) (all []expression) {
	const at = "compensation_registered"
	probe, verify := c.GetProbe(), c.GetVerify()
	all = slices.Concat(declared(at, c.Triggers), argumentsOf(at, c.Bindings),
		argumentsOf(at+".probe.call", probe.GetCall().GetBindings()),
		argumentsOf(at+".verify.call", verify.GetCall().GetBindings()))
	for _, e := range []expression{
		{at + ".done", c.Done, truth}, {at + ".stop", c.Stop, truth},
		{at + ".verify.ok", verify.GetOk(), truth}, {at + ".probe.answer", probe.GetAnswer(), word},
		{at + ".probe.external_ref", probe.GetExternalRef(), reading},
	} {
		if e.text != "" {
			all = append(all, e)
		}
	}
	return all
}

// wrong says what is wrong with the first expression that cannot be evaluated.
func (b *book) wrong(list []expression) string {
	for _, e := range list {
		if why := b.wrongWith(e); why != "" {
			return e.field + ": " + why
		}
	}
	return ""
}

func (b *book) wrongWith(e expression) string {
	var err error
	var r *triggers.Binding
	switch e.as {
	case condition:
		_, err = b.programs.Condition(e.text)
	case argument:
		err = b.programs.CheckBinding(e.text)
	default:
		r, err = b.programs.Reader(e.text)
	}
	if err != nil {
		var where *triggers.Error
		if errors.As(err, &where) {
			problem, _ := where.Brief()
			return "does not compile: " + problem
		}
		return "does not compile"
	}
	if r == nil || e.as == reading || r.Type() == "dyn" || r.Type() == "null_type" {
		return ""
	}
	if want := map[use]string{truth: "bool", word: "string"}[e.as]; r.Type() != want {
		return "the result is " + r.Type() + ", not " + want
	}
	return ""
}

// unusable is what an agent said well and cannot have meant: nothing of it counts. Of a
// pair neither half does.
func (b *book) unusable(e ledger.Entry) (v verdict, is bool) {
	r := e.Record
	if k := r.GetPlanOpened(); k != nil {
		if why := b.wrong(declared("plan_opened", k.Triggers)); why != "" {
			return refused("I4", "%s", why), true
		}
		return effective, false
	}
	f, c := r.GetForwardRegistered(), r.GetCompensationRegistered()
	switch {
	case f != nil:
		c = e.Pair.GetCompensationRegistered()
	case c != nil:
		f = e.Pair.GetForwardRegistered()
	}
	if c == nil {
		return effective, false
	}
	if why := b.wrong(expressionsOf(c)); why != "" {
		return refused("I17", "%s", why), true
	}
	if c.Capability != "" && f.GetClass() == pb.Class_CLASS_EFFECTLESS {
		return refused("I17", "forward_registered.class: it has no effect, and has an undo"), true
	}
	if f.GetLate() == pb.Late_LATE_REFUSED && c.HandlerVersion == "" && !b.tellsForward(c) {
		return refused("I17", "forward_registered.late: the undo does not name its forward"), true
	}
	return effective, false
}

// tellsForward reports whether an argument of the undo has the key of its forward.
func (b *book) tellsForward(c *pb.CompensationRegistered) bool {
	return slices.ContainsFunc(c.Bindings, func(x *pb.Binding) bool {
		if !strings.Contains(x.Expression, "meta") {
			return false
		}
		argument, err := b.programs.Binding(x.Expression)
		return err == nil && argument.ReadsField("meta", "forward_key")
	})
}

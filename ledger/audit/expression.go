package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// expression is a text of a record that someone will evaluate one day.
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
func wrong(programs *triggers.Cache, list []expression) string {
	for _, e := range list {
		if why := wrongWith(programs, e); why != "" {
			return e.field + ": " + why
		}
	}
	return ""
}

func wrongWith(programs *triggers.Cache, e expression) string {
	var err error
	var r *triggers.Binding
	switch e.as {
	case condition:
		_, err = programs.Condition(e.text)
	case argument:
		err = programs.CheckBinding(e.text)
	default:
		r, err = programs.Reader(e.text)
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

// tellsForward reports whether an argument of the undo has the key of its forward.
func tellsForward(programs *triggers.Cache, c *pb.CompensationRegistered) bool {
	return slices.ContainsFunc(c.Bindings, func(x *pb.Binding) bool {
		if !strings.Contains(x.Expression, "meta") {
			return false
		}
		argument, err := programs.Binding(x.Expression)
		return err == nil && argument.ReadsField("meta", "forward_key")
	})
}

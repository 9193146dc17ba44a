package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/internal/argument"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Sensitive fields are sealed before they are recorded, and opened for the worker alone.
// So nothing may be computed from them where they are sealed, nothing that is in the
// clear may show them, and no decision may read them.

// checkSensitive parses the paths and holds every other field to them. It says whether
// a call of the undo takes a sealed value.
func (x *compiler) checkSensitive(c contract.Contract, out *Compiled) (sealed bool) {
	if len(c.Sensitive) > seal.PathsMax {
		x.refuse("sensitive", fmt.Sprintf("%d paths", len(c.Sensitive)),
			fmt.Sprintf("at most %d", seal.PathsMax))
	}
	for i, text := range c.Sensitive {
		path, err := seal.ParsePath(text)
		switch {
		case err != nil:
			x.refuse(fmt.Sprintf("sensitive[%d]", i), err.Error(),
				"input, output or before and names below it, as in input.card")
		case path[0] == "output" && c.Deliver != nil:
			x.refuse(fmt.Sprintf("sensitive[%d]", i),
				text+", and what a delivery returns is recorded as it is",
				"fields of input, or a worker that returns none of it")
		case path[0] == "before" && c.Before == nil:
			x.refuse(fmt.Sprintf("sensitive[%d]", i), text+", and the contract asks for no before-image",
				"a before, or none of its fields")
		default:
			out.Sensitive = append(out.Sensitive, path)
		}
	}
	if len(out.Sensitive) == 0 {
		return false
	}
	for i, name := range c.Lift {
		for _, path := range out.Sensitive {
			if path[0] != "before" && path.Overlaps([]string{path[0], name}) {
				x.refuse(fmt.Sprintf("lift[%d]", i),
					name+" is sensitive, and what is lifted is in the clear", "fields of which nothing is "+
						"sensitive")
				break
			}
		}
	}
	x.inTheClear(c, out)
	t, of := out.sent()
	for _, call := range []struct {
		field    string
		bindings []*pb.Binding
	}{{of + ".with", t.Bindings}, {"probe.with",
		t.Probe.GetCall().GetBindings()}, {"inverse.verify.with", t.Verify.GetCall().GetBindings()}} {
		for _, b := range call.bindings {
			sealed = x.moves(call.field+"."+b.Name, b.Expression, out.Sensitive, t.Actuator) || sealed
		}
	}
	return sealed
}

// inTheClear refuses expressions whose result is recorded as it is, or decides
// something, and that read a sensitive field.
func (x *compiler) inTheClear(c contract.Contract, out *Compiled) {
	t, of := out.sent()
	for _, e := range []struct{ field, text string }{
		{"valid_until", c.ValidUntil}, {of + ".done", t.Done}, {of + ".stop",
			t.Stop}, {"inverse.verify.ok", t.Verify.GetOk()},
		{"probe.answer", t.Probe.GetAnswer()}, {"probe.external_ref", t.Probe.GetExternalRef()},
		{"inverse.unchanged", t.Unchanged},
	} {
		if e.text == "" {
			continue
		}
		b, err := x.programs.Reader(argument.CEL(e.text))
		if err != nil {
			continue // refused before
		}
		for _, read := range b.Paths() {
			if path := sensitiveAt(out.Sensitive, read); path != nil {
				x.refuse(e.field, "reads "+path.String()+", which is sensitive",
					"what is in the clear: a decision must be the same when the key is gone")
			}
		}
	}
}

// moves refuses an argument that computes from a sensitive field, or takes a part of it,
// and reports whether it moves one.
func (x *compiler) moves(field, text string, paths []seal.Path, actuator string) (sealed bool) {
	b, err := x.programs.Reader(text)
	if err != nil {
		return false // refused before
	}
	for _, read := range b.Paths() {
		path := sensitiveAt(paths, read)
		switch {
		case path == nil:
			continue
		case actuator == contract.ActuatorMemory:
			x.refuse(field, "takes "+path.String()+", which is sensitive, into working memory",
				"no sensitive field: facts are in the clear")
		case !read.Copied:
			x.refuse(field, "computes from "+path.String()+", which is sensitive",
				"the field as it is, as in ="+path.String()+"; the worker gets it opened and may compute")
		case slices.ContainsFunc(paths, func(p seal.Path) bool { return p.Inside(read.Path) }):
			x.refuse(field, "takes a part of "+path.String()+", which is sealed as a whole",
				"the whole of it, or sensitive: ["+strings.Join(read.Path, ".")+"]")
		}
		sealed = true
	}
	return sealed
}

// sensitiveAt is the sensitive path that a read may touch, or nil.
func sensitiveAt(paths []seal.Path, read triggers.Read) seal.Path {
	for _, path := range paths {
		if path.Overlaps(read.Path) {
			return path
		}
	}
	return nil
}

package sim

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// taken is what was recorded of an action that bindings read.
type taken struct {
	input, image, output []byte
	external             string
}

// argued: a call takes what its bindings make of what was recorded (I30). What is read
// here is looked up step by step, without the language of bindings; what another record
// must be asked for, as of a duty, the audit beside knows.
func (c *checker) argued(at uint64, p *planCheck, it *itemCheck, r *pb.Record) {
	bindings := it.compensation.GetBindings()
	lists := []taken{it.taken}
	if k := r.GetProbeAsked(); k != nil {
		call := it.compensation.GetProbe().GetCall()
		if k.Question == pb.Question_QUESTION_VERIFY {
			call = it.compensation.GetVerify().GetCall()
		}
		bindings = call.GetBindings()
		lists = append(lists, it.earlier) // its outcome may have come behind the question
	}
	var have map[string]any
	if json.Unmarshal(r.Payload.GetArguments(), &have) != nil || len(have) != len(bindings) {
		c.fail("I30", at, "%s of plan %s is called with %s, and has %d bindings",
			it.id, p.id, r.Payload.GetArguments(), len(bindings))
		return
	}
	for _, b := range bindings {
		got, right := have[b.Name], false
		for _, from := range lists {
			want, known := c.naively(b.Expression, p, it, from)
			right = right || !known || reflect.DeepEqual(got, want)
		}
		if !right {
			want, _ := c.naively(b.Expression, p, it, it.taken)
			c.fail("I30", at, "%s of plan %s is called with %s=%v, and %s is %v",
				it.id, p.id, b.Name, got, b.Expression, want)
		}
	}
}

// naively evaluates a binding; known is false where this check does not know.
func (c *checker) naively(
	expression string, p *planCheck, it *itemCheck, from taken,
) (want any, known bool) {
	root, field, isPath := strings.Cut(expression, ".")
	read := func(document []byte) (any, bool) {
		var fields map[string]any
		if len(document) > 0 && json.Unmarshal(document, &fields) != nil {
			return nil, false
		}
		return fields[field], true
	}
	switch {
	case !isPath:
		return want, json.Unmarshal([]byte(expression), &want) == nil
	case root == "input":
		return read(from.input)
	case root == "before":
		return read(from.image)
	case root == "output" && !it.duty:
		return read(from.output)
	case expression == "meta.forward_key":
		return ledger.Key(tenant, planOf(p.id), originOf(it.id), ledger.PurposeDo), true
	case expression == "meta.external_ref" && !it.duty:
		if from.external == "" {
			return nil, true
		}
		return from.external, true
	}
	return nil, false
}

// takes follows what is recorded of an action that bindings read.
func (it *itemCheck) takes(r *pb.Record) {
	switch k := r.Kind.(type) {
	case *pb.Record_ForwardCompleted:
		it.earlier = it.taken
		if it.external = k.ForwardCompleted.ExternalRef; len(r.Payload.GetOutput()) > 0 {
			it.output = r.Payload.GetOutput()
		}
	case *pb.Record_ProbeAnswered:
		ref, effect := k.ProbeAnswered.ExternalRef, k.ProbeAnswered.Question == pb.Question_QUESTION_EFFECT
		if ref != "" && effect {
			it.external = ref
		}
	}
}

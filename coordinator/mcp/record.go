package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/rawjson"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// reference is what is recorded of a long value: the SHA-256 of a text, or of the JSON of
// anything else, and its size.
func reference(raw json.RawMessage) (json.RawMessage, error) {
	content := []byte(raw)
	var said string
	if json.Unmarshal(raw, &said) == nil {
		content = []byte(said)
	}
	sum := sha256.Sum256(content)
	return encode(map[string]any{"sha256": hex.EncodeToString(sum[:]), "bytes": len(content)})
}

// withKey adds the idempotency key to the arguments of a call.
func withKey(params json.RawMessage, name, key string) (json.RawMessage, error) {
	value, err := encode(key)
	if err != nil {
		return nil, err
	}
	arguments, err := withValue(memberOf(params, "arguments"), name, value)
	if err != nil {
		return nil, ledger.Refuse("arguments", err.Error(), "a JSON object")
	}
	return withValue(params, "arguments", arguments)
}

// begun reports whether all that a failed call has left is a new file with a beginning of what it
// was to write, so that what undoes it is known: its server has found no room, as a rule.
func (s *Server) begun(t Tool, vars triggers.BindingVars, after json.RawMessage) bool {
	var err error
	if vars.Output, err = encode(map[string]json.RawMessage{"after": after}); err != nil {
		return false
	}
	for _, step := range t.Undo {
		var undo files.Undo
		with, err := s.x.object(step.With, vars)
		if err != nil || step.Call != callRestore || json.Unmarshal(with, &undo) != nil ||
			!files.Begun(undo) {
			return false
		}
	}
	return len(t.Undo) > 0
}

// output is what is recorded of an answer: what the undo reads, as far as its command has room, and
// the result for a call that is made again with its key. Of one that is too large what the undo
// reads of it is kept.
func (u *run) output(before, after json.RawMessage) map[string]json.RawMessage {
	output, room := map[string]json.RawMessage{}, inputMax
	if input, err := u.r.recorded(); err == nil && u.r.contract.reads(outputRead) {
		if left, err := u.r.contract.room(u.r.tool, input, before); err == nil {
			room = left
		}
		if len(after) > 0 && len(after) <= room {
			output["after"] = after
			room -= len(after)
		}
	}
	said := structured(u.result)
	switch digest, err := encode(u.result.Meta[largeMeta]); {
	case isLarge(u.result) && err == nil && len(digest) <= room:
		output["answer"] = digest
	case isLarge(u.result): // what it said is not known
	case len(said) <= room:
		output[resultVariable] = said
	default:
		if part := u.r.server.x.readOf(u.r.contract, said); len(part) > 0 && len(part) <= room {
			output[resultVariable], output["part"] = part, json.RawMessage("true")
		}
	}
	return output
}

// outputRead is the variable in which an undo reads what is recorded of an answer.
const outputRead = "output"

// undoing are the expressions of what undoes a tool.
func (x *expressions) undoing(t Tool) (all []*triggers.Binding, err error) {
	var texts []any
	for _, step := range t.Undo {
		texts = append(texts, step.With, condition(step.When))
	}
	for _, guard := range t.Stop {
		texts = append(texts, condition(guard.When))
	}
	texts = append(texts, condition(t.Done))
	if t.Probe != nil {
		texts = append(texts, t.Probe.With, t.Probe.keeps())
	}
	for _, text := range texts {
		if all, err = x.within(text, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// keeps are the expressions of what a question keeps of its answer, and makes of it; nil asks
// nothing.
func (a *Ask) keeps() (texts []any) {
	if a == nil {
		return nil
	}
	for _, keep := range a.Keep {
		texts = append(texts, condition(keep.Like))
	}
	for _, list := range a.Lists {
		texts = append(texts, condition(list.Of), condition(list.Like), condition(list.Unlike))
	}
	return texts
}

// condition is a text that is CEL as an argument has it.
func condition(text string) any {
	if text == "" {
		return nil
	}
	return "=" + strings.TrimPrefix(text, "=")
}

// readOf is what the undo of a tool reads of an answer; empty: nothing.
func (x *expressions) readOf(t Tool, said json.RawMessage) json.RawMessage {
	all, err := x.undoing(t)
	if err != nil {
		return nil // the pack was refused
	}
	var paths [][]string
	for _, b := range all {
		for _, read := range b.Paths() {
			switch {
			case read.Path[0] != outputRead:
			case len(read.Path) == 1:
				return nil // all of it
			case read.Path[1] == resultVariable:
				paths = append(paths, read.Path[2:])
			}
		}
	}
	return triggers.Project(said, paths)
}

// lacking says what the undo of a call reads of an answer, and what is recorded does not have;
// empty: nothing, as far as is known before a probe is asked.
func (u *run) lacking(before json.RawMessage, output map[string]json.RawMessage) string {
	recorded, err := encode(output)
	if err != nil {
		return ""
	}
	missing := u.missing(before, recorded)
	if missing == "" {
		return u.misnamed(before, recorded)
	}
	if place, twice := rawjson.Twice(answerOf(u.result)); twice {
		return missing + ", as its answer has a name twice, at " + value(place)
	}
	output = map[string]json.RawMessage{"after": output["after"], resultVariable: structured(u.result)}
	whole, err := encode(output)
	if err == nil && (isLarge(u.result) || u.missing(before, whole) != missing) {
		return missing + ", which was too large to be kept"
	}
	return missing + ", which its answer did not have"
}

// lack notes what the undo reads, and what is recorded does not have: then it is not exact.
func (e *effect) lack(what string) {
	if e.lacks = what; what != "" {
		e.Fidelity = ""
	}
}

// missing is the first path of an output that a call of the undo reads, and that leads nowhere.
func (u *run) missing(before, output json.RawMessage) string {
	x := u.r.server.x
	vars := triggers.BindingVars{Input: object(u.r.arguments), Before: before, Output: output}
	for _, step := range u.r.contract.Undo {
		if made, err := x.holds(step.When, vars); err != nil || !made {
			continue // or it is known once the probe is asked
		}
		arguments, err := x.within(step.With, nil)
		if err != nil {
			return ""
		}
		reckoned := vars
		reckoned.Incomplete = true
		for _, b := range arguments {
			var not *triggers.Missing
			if _, err := b.Evaluate(reckoned); errors.As(err, &not) && len(not.Path) > 1 {
				return strings.Join(not.Path, ".")
			}
		}
	}
	return ""
}

// misnamed says of the first call of the undo that is not made for want of a name what was given as
// one; empty: there is none, as far as is known before a probe is asked.
func (u *run) misnamed(before, output json.RawMessage) string {
	s := u.r.server
	vars := triggers.BindingVars{Input: object(u.r.arguments), Before: before, Output: output}
	for _, step := range u.r.contract.Undo {
		if made, err := s.x.holds(step.When, vars); err != nil || !made {
			continue // or it is known once the probe is asked
		}
		not, err := s.x.anonymous(step.With, s.schema(step.Tool), vars)
		if err == nil && not != nil && not.is != "" {
			return strings.Join(not.paths[0], ".") + ", which is " + not.is
		}
	}
	return ""
}

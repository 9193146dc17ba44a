package executor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// What workers answer becomes a record: the outcome of an attempt, the next
// question about it, or what a question found.

// answer turns a worker's answer into its record, if the call still waits.
func (d *decider) answer(in Answer) {
	p := d.state.plan(in.Plan)
	if p == nil || in.Number == 0 || in.Number > p.row.Actions {
		return
	}
	a := d.state.action(p.id, in.Number)
	switch {
	case tellsLate(p, a, in):
		if d.told(p, a, in) {
			d.plan(p.id)
		}
		return
	case !p.asks() && !asksOpenly(a) || !outstandingCall(a, in.Purpose, in.Attempt):
		return
	case in.Purpose == ledger.PurposeUndo && late(a, in.Attempt): // its record has been told late
		return
	case in.Unserved && (unservedFrom(a) == 0 || d.in.EpochNs < unservedFrom(a)):
		return
	}
	if in.Purpose != ledger.PurposeUndo {
		if d.found(p, a, in) {
			d.plan(p.id)
		}
		return
	}
	if a.attempts().ReportedDone() && (in.Reply == nil || in.Reply.Status != api.StatusDone) {
		return // its own report says better
	}
	if d.attempted(p, a, in) {
		d.plan(p.id)
	}
}

// attempted records what became of one attempt of an undo.
func (d *decider) attempted(p *plan, a *action, in Answer) bool {
	reply := in.Reply
	if in.Unserved {
		r := d.about(p, a, a.row.Dispatched)
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
			Attempt: in.Attempt, Code: codeUnserved, Unserved: true, InDoubt: in.Reached || reachedBefore(a),
			Message: clip(unservedText(p, a, a.fixed.Compensation.Capability)),
		}}
		return d.propose(r)
	}
	if reply == nil {
		r := d.about(p, a, a.row.Dispatched)
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
			Attempt: in.Attempt, Code: "timeout", InDoubt: true,
			Message: "no answer within " + time.Duration(timeoutOf(a.fixed.Compensation)).String(),
		}}
		return d.propose(r)
	}
	timing := timingOf(in)
	done, final, note := reply.Status == api.StatusDone, reply.Status == api.StatusStop, ""
	changed := reply.Status == api.StatusChanged
	if !done && !changed && reply.Code != api.CodeBlob {
		done, final, note = d.meaning(p, a, reply, final)
	}
	if done {
		k := &pb.CompensationSucceeded{Attempt: in.Attempt, ExternalRef: clip(reply.ExternalRef),
			Worker: clip(reply.Worker), Timing: timing}
		if reply.Status != api.StatusDone {
			k.Code = clip(reply.Code)
		}
		return d.done(p, a, k, output(reply), a.row.Dispatched)
	}
	r := d.about(p, a, a.row.Dispatched)
	r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
		Attempt: in.Attempt, Code: clip(reply.Code), Message: clip(joinText(clip(reply.Message), note)),
		Final: final || changed, Changed: changed, Worker: clip(reply.Worker), Timing: timing,
		InDoubt: reply.Status == api.StatusInDoubt || delivers(a) && in.Reached,
	}}
	if kept := output(reply); changed && len(kept) > 0 { // what is there
		r.Payload = &pb.Payload{Output: kept}
	}
	return d.propose(r)
}

// inWords is why a delivery is its owner's, with the words of a worker that had some: in this turn,
// or before.
func (d *decider) inWords(a *action, why string) string {
	if why != noteUnsure {
		return why
	}
	said := &pb.CompensationFailed{}
	tried := rows.Attempt{Action: a.id, Attempt: a.row.Unsure}
	if row := rows.Attempts.Find(a.plan.s.tx, tried); row != nil {
		said.Worker, said.Code, said.Message = row.Worker, row.Code, row.Message
	}
	for _, r := range d.records {
		if k := r.GetCompensationFailed(); k != nil && r.Plan == a.plan.id && r.Action == a.fixed.Id {
			said = k
		}
	}
	if said.Worker == "" {
		return why
	}
	return "in doubt: nothing says whether it was done; its worker said " +
		joinText(said.Code, said.Message)
}

// codeUnserved is the code of an attempt that no worker has taken.
const codeUnserved = "unserved"

// timingOf is where the time of an answered attempt went, as its worker says.
func timingOf(in Answer) *pb.Timing {
	reply := in.Reply
	return &pb.Timing{
		QueuedNs: max(in.QueuedNs, 0), WorkNs: max(reply.WorkNs, 0),
		SetupNs: max(reply.SetupNs, 0), ToolNs: max(reply.ToolNs, 0), LlmNs: max(reply.LLMNs, 0),
	}
}

// tellsLate reports whether an answer says that an attempt is done which no one waits for
// any more: its owner was faster, or has had it tried again.
func tellsLate(p *plan, a *action, in Answer) bool {
	if in.Purpose != ledger.PurposeUndo || in.Reply == nil || in.Reply.Status != api.StatusDone {
		return false
	}
	switch {
	// the last: this very answer
	case !made(a, in.Attempt) || inMemory(a) || a.attempts().HeardDone(in.Attempt) ||
		in.Attempt == a.row.Answered:
		return false
	case late(a, in.Attempt):
		return true
	case p.row.Phase != rowspb.Phase_PHASE_UNWINDING || outstandingCall(a, in.Purpose, in.Attempt):
		return false
	default:
		return inFlight(a, in.Attempt) && !a.attempts().ReportedDone() &&
			a.row.Asking != pb.Question_QUESTION_VERIFY
	}
}

// told records what tellsLate found.
func (d *decider) told(p *plan, a *action, in Answer) bool {
	reply := in.Reply
	k := &pb.CompensationSucceeded{Attempt: in.Attempt, ExternalRef: clip(reply.ExternalRef),
		Worker: clip(reply.Worker), Timing: timingOf(in)}
	if !late(a, in.Attempt) {
		return d.done(p, a, k, output(reply), a.row.Dispatched)
	}
	r := d.about(p, a, cmp.Or(a.row.Settled, a.row.Dispatched))
	r.Kind = &pb.Record_CompensationSucceeded{CompensationSucceeded: k}
	return d.propose(r)
}

// outputMax bounds what is kept of an answer's output, in bytes.
const outputMax = 16 << 10

// output is what is kept of an answer's output.
func output(reply *api.Reply) []byte {
	if len(reply.Output) > outputMax || !json.Valid(reply.Output) {
		return nil
	}
	return reply.Output
}

// meaning asks the contract what a failure means: undone already, or never.
func (d *decider) meaning(p *plan, a *action, reply *api.Reply,
	stop bool) (done, final bool, note string) {
	c := a.fixed.Compensation
	fill := func(v *triggers.BindingVars) {
		v.Error = mustJSON(errorVars{clip(reply.Code), clip(reply.Message)})
		v.Result = output(reply)
	}
	for _, q := range [...]struct {
		name, expression string
		to               *bool
	}{{"done", c.Done, &done}, {"stop", c.Stop, &final}} {
		if q.expression == "" {
			continue
		}
		value, err := a.read(q.expression, fill)
		if err != nil && !errors.Is(err, triggers.ErrNotThere) {
			note = q.name + " of the contract cannot be evaluated: " + clip(err.Error())
		}
		*q.to = err == nil && string(value) == "true"
	}
	return done, final || stop, note
}

// errorVars is what an expression reads as error. What the answer does not say is not there.
type errorVars struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// done records an undo that says done, or asks the check that the contract wants
// after it.
func (d *decider) done(p *plan, a *action, k *pb.CompensationSucceeded, result []byte,
	cause *pb.Address) bool {
	r := d.about(p, a, cause)
	verify := a.fixed.Compensation.Verify
	if verify == nil || k.Verified || k.Probed {
		r.Kind = &pb.Record_CompensationSucceeded{CompensationSucceeded: k}
		if len(result) > 0 {
			r.Payload = &pb.Payload{Output: result}
		}
		return d.changeFact(p, a, r) && d.propose(r)
	}
	asked := &pb.ProbeAsked{
		Attempt: a.row.Asked + 1, Capability: verify.Call.Capability, Key: a.keyOf(k.Attempt),
		Question: pb.Question_QUESTION_VERIFY,
		Done:     k, TimeoutNs: cmp.Or(verify.Call.TimeoutNs, timeoutDefault),
	}
	arguments, err := a.arguments(verify.Call.Bindings)
	if err != nil {
		r.Kind = &pb.Record_CompensationFailed{CompensationFailed: &pb.CompensationFailed{
			Attempt: a.row.Attempt, Code: codeUnverified, Final: true, Worker: k.Worker, Timing: k.Timing,
			Message: clip("cannot build the check after the undo: " + err.Error()),
		}}
		return d.propose(r)
	}
	r.Kind = &pb.Record_ProbeAsked{ProbeAsked: asked}
	r.Payload = &pb.Payload{Arguments: arguments, Output: result}
	if ledger.RecordSize(r) > dispatchMax {
		r.Payload.Output = nil
	}
	return d.propose(r)
}

// found records what a question found.
func (d *decider) found(p *plan, a *action, in Answer) bool {
	k := &pb.ProbeAnswered{Attempt: in.Attempt, Question: a.row.Asking}
	r := d.about(p, a, a.row.Dispatched)
	switch reply := in.Reply; {
	case in.Unserved:
		k.Unserved = true
		k.Message = clip(unservedText(p, a, callOf(a.fixed.Compensation, a.row.Asking).GetCapability()))
	case reply == nil:
		k.Message = "no answer in time"
	case reply.Status != api.StatusDone:
		k.Message, k.Worker = clip(joinText(clip(reply.Code), clip(reply.Message))), clip(reply.Worker)
	default:
		k.Worker = clip(reply.Worker)
		if kept := output(reply); len(kept) > 0 {
			r.Payload = &pb.Payload{Output: kept}
		}
		var err error
		if a.row.Asking == pb.Question_QUESTION_VERIFY {
			k.Presence, err = d.readVerify(p, a, reply)
		} else {
			err = d.readProbe(p, a, reply, k)
			if err == nil {
				err = d.readChange(p, a, reply, k)
			}
		}
		if err != nil {
			k.Presence, k.ExternalRef, k.Duplicates, k.Message = pb.Presence_PRESENCE_UNSPECIFIED, "", nil,
				clip(err.Error())
			k.Change = pb.Change_CHANGE_UNSPECIFIED
		}
	}
	r.Kind = &pb.Record_ProbeAnswered{ProbeAnswered: k}
	return d.propose(r)
}

// readVerify reads the answer to a check: true means that the effect is gone.
func (d *decider) readVerify(p *plan, a *action, reply *api.Reply) (pb.Presence, error) {
	result := a.commandRow().GetResult()
	value, err := a.read(a.fixed.Compensation.Verify.Ok, func(v *triggers.BindingVars) {
		v.Verify, v.Result = output(reply), result
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("ok of the contract's verify: %w", err)
	case string(value) == "true":
		return pb.Presence_PRESENCE_ABSENT, nil
	case string(value) == "false":
		return pb.Presence_PRESENCE_PRESENT, nil
	default:
		return 0, fmt.Errorf("ok of the contract's verify is %s, neither true nor false", value)
	}
}

// readChange reads into k whether what a probe has found is as the forward left it. It is an error
// not to know only where an attempt waits for that alone; elsewhere it is asked once more.
func (d *decider) readChange(p *plan, a *action, reply *api.Reply, k *pb.ProbeAnswered) error {
	if !finds(k) || !compares(a) || p.committing() {
		return nil
	}
	value, err := a.read(a.fixed.Compensation.Unchanged,
		func(v *triggers.BindingVars) { v.Probe = output(reply) })
	switch {
	case err != nil:
		err = fmt.Errorf("unchanged of the contract: %w", err)
	case string(value) == "true":
		k.Change = pb.Change_CHANGE_NONE
	case string(value) == "false":
		k.Change = pb.Change_CHANGE_FOREIGN
	default:
		err = fmt.Errorf("unchanged of the contract is %s, neither true nor false", value)
	}
	if !mustJudge(a, k) {
		return nil
	}
	return err
}

// readProbe reads the answer to a probe into k, as the contract says, or else
// as it is.
func (d *decider) readProbe(p *plan, a *action, reply *api.Reply, k *pb.ProbeAnswered) error {
	probe := a.fixed.Compensation.Probe
	var plain struct {
		Presence    json.RawMessage `json:"presence"`
		ExternalRef json.RawMessage `json:"external_ref"`
		Reason      json.RawMessage `json:"reason"`
	}
	if err := json.Unmarshal(output(reply), &plain); err != nil && probe.Answer == "" {
		return fmt.Errorf("the answer has no presence: %w", err)
	}
	for _, q := range [...]struct {
		name, expression string
		to               *json.RawMessage
	}{{"answer", probe.Answer, &plain.Presence},
		{"external_ref", probe.ExternalRef, &plain.ExternalRef}} {
		if q.expression == "" {
			continue
		}
		value, err := a.read(q.expression,
			func(v *triggers.BindingVars) { v.Probe = output(reply) })
		if q.name == "external_ref" && errors.Is(err, triggers.ErrNotThere) {
			value, err = nil, nil // it has no name
		}
		if err != nil {
			return fmt.Errorf("%s of the contract's probe: %w", q.name, err)
		}
		*q.to = value
	}
	refs, err := references(plain.ExternalRef)
	if err == nil && len(refs) > 0 && !ledger.ExactJSON(output(reply)) {
		err = errors.New("the answer has text that is no Unicode: the name of an effect in it may be " +
			"another one")
	}
	if err != nil {
		return err
	}
	switch presence := text(plain.Presence); presence {
	case "present":
		k.Presence = pb.Presence_PRESENCE_PRESENT
		if len(refs) > 1 {
			return fmt.Errorf("present with %d external refs: more than one effect is a duplicate",
				len(refs))
		}
		if len(refs) > 0 {
			k.ExternalRef = refs[0]
		}
	case "absent":
		k.Presence = pb.Presence_PRESENCE_ABSENT
	case "duplicate":
		switch {
		case len(refs) == 0:
			return errors.New("a duplicate without the external_ref of the extra effect")
		case len(refs) == 1:
			k.Duplicates = refs
		default:
			k.ExternalRef, k.Duplicates = refs[0], refs[1:]
		}
		k.Presence = pb.Presence_PRESENCE_DUPLICATE
	case "inconclusive":
		k.Message = text(plain.Reason)
	default:
		return fmt.Errorf("the answer is %q: want present, absent, duplicate or inconclusive",
			clip(presence))
	}
	return nil
}

// duplicatesMax bounds the extra effects of one answer.
const duplicatesMax = 32

// text is a JSON value as a reference has it: a string without its quotes, a number
// as it is, and nothing for null.
func text(value json.RawMessage) string {
	var s string
	switch {
	case len(value) == 0 || string(value) == "null":
		return ""
	case json.Unmarshal(value, &s) == nil:
		return clip(s)
	default:
		return clip(string(value))
	}
}

// references reads one external ref, or a list of them. What would not be kept whole is an
// error, which its owner sees: an effect that is left out, or named by a part of its name,
// would still be there after an end that says it is not.
func references(value json.RawMessage) (refs []string, err error) {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		list = []json.RawMessage{value}
	}
	for _, item := range list {
		switch ref := text(item); {
		case !ledger.ExactJSON(item):
			return nil, errors.New("an external_ref is no Unicode text")
		case len(item) > textMax:
			return nil, fmt.Errorf("an external_ref has %d bytes, at most %d are kept", len(item),
				textMax)
		case ref != "":
			refs = append(refs, ref)
		}
	}
	if len(refs) > duplicatesMax+1 {
		return nil, fmt.Errorf("the answer names %d effects, at most %d are kept: some would stay",
			len(refs), duplicatesMax+1)
	}
	return refs, nil
}

// clip keeps a worker's text within what a record of the holder takes.
func clip(s string) string { return ledger.TextTo(s, textMax) }

const textMax = ledger.TextMax / 4

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("executor: cannot encode " + err.Error())
	}
	return b
}

// bindable reports whether an output is more than nothing.
func bindable(output []byte) bool { return len(output) > 0 && string(output) != "null" }

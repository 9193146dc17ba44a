package executor_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/cockroachdb/datadriven"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// What scripts print.

// show answers the commands that change nothing.
func (s *script) show(d *datadriven.TestData) string {
	s.t.Helper()
	r := view.NewReader(s.kv, "t", s)
	switch d.Cmd {
	case "plan":
		return planText(s.world.show(arg(d)))
	case "plans":
		views, _ := r.Plans(api.Filter{State: option(d, "state")})
		return lines(views, func(v api.Plan) string { return v.Plan + " is " + v.State })
	case "records":
		out := s.recordsAfter(s.printed, arg(d) == "causes")
		s.printed = uint64(len(s.log))
		return out
	case "commands":
		return s.commandsText(arg(d) == "full")
	case "undos":
		views, _, err := r.Undos(api.UndoQuery{Plan: option(d, "plan"), Action: option(d, "action"),
			Capability: option(d, "capability")})
		if err != nil {
			return err.Error()
		}
		return lines(views, undoLine)
	case "preview":
		return s.preview(arg(d), option(d, "to"))
	case "quarantine":
		views, _ := r.Quarantined(api.ListQuery{})
		return lines(views, planText)
	case "status":
		v := r.Status()
		return fmt.Sprintf("held %d, open %d, unwinding %d, quarantined %d, ended %d, in flight %d", v.Held, v.Open,
			v.Unwinding, v.Quarantined, v.Ended, v.InFlight)
	case "why":
		return s.whyText(arg(d))
	case "contracts":
		views, _ := r.Contracts(api.ContractQuery{Revisions: true})
		return lines(views, func(v api.Contract) string {
			return fmt.Sprintf("%s revision %d by %s%s: %s", v.Capability, v.Revision, v.By, flag(" (current)", v.Current),
				v.Contract)
		})
	case "fact", "facts", "queue":
		return s.showFacts(r, d)
	case "notices":
		out := lines(s.notices, noticeLine)
		s.notices = nil
		return out
	}
	d.Fatalf(s.t, "no such command: %s", d.Cmd)
	return ""
}

func (s *script) preview(plan, to string) string {
	s.t.Helper()
	shown, err := view.NewReader(s.kv, "t", nil).Preview(api.PreviewQuery{Plan: plan, To: to}, s.now)
	if err != nil {
		return err.Error()
	}
	return previewText(shown)
}

func (s *script) whyText(plan string) string {
	s.t.Helper()
	v := s.why(plan)
	out := lines(v.Steps, func(step api.WhyStep) string {
		from, fired := "", " is cut"
		switch {
		case step.By == "fact":
			from = "fact " + step.Key + flag(" retracted", step.Retracted) + " of the undo of " + step.Undone + " -> "
		case step.By != "":
			from = step.By + " -> "
		}
		if step.Fired != "" {
			fired = " fired"
		}
		return fmt.Sprintf("%d. %s%s %s%s", step.Depth, from, step.Plan, step.Lease, fired) + joined(": ", step.Reason)
	})
	if v.Cycle != nil {
		out += "\n" + v.Cycle.String()
	}
	return out
}

func lines[T any](list []T, line func(T) string) string {
	var out []string
	for _, v := range list {
		out = append(out, line(v))
	}
	return strings.Join(out, "\n")
}

func flag(word string, set bool) string {
	if set {
		return word
	}
	return ""
}

// since writes an instant as a duration after the start.
func since(ns int64) string { return "@" + time.Duration(ns-epoch0).String() }

func (s *script) commandsText(full bool) string {
	sent := s.sent
	s.sent = nil
	if !full {
		return lines(sent, commandLine)
	}
	return lines(sent, func(c Command) string {
		b, err := json.MarshalIndent(c.Command, "", "  ")
		if err != nil {
			s.t.Fatal(err)
		}
		return string(b)
	})
}

func commandLine(c Command) string {
	out := fmt.Sprintf("%s %s %s/%s attempt %d key %s %s", c.Purpose, c.Capability, c.Plan, c.Action, c.Attempt, c.Key[:8],
		c.Arguments)
	out += flag(" blind_cleanup", c.BlindCleanup) + flag(" dirty_failure", c.DirtyFailure) + flag(" has_forward_output",
		c.HasForwardOutput)
	if c.ExternalRef != "" {
		out += " external_ref:" + c.ExternalRef
	}
	if c.WorkerVersion != "" {
		out += " worker_version:" + c.WorkerVersion
	}
	if c.Agent != nil {
		out += " agent:" + string(MustJSON(c.Agent))
	}
	return out
}

func pageLine(p Page) string {
	id, _, _ := strings.Cut(p.ID, "-")
	out := fmt.Sprintf("page %s for hook %s: %s %s: %s", id, p.Hook, p.Kind, p.Plan+joined("/", p.Action), p.Reason)
	if p.Owner != "" {
		out += ", owner " + p.Owner
	}
	return out
}

func noticeLine(n Notice) string {
	out := n.Agent + ": " + n.Plan + " is " + n.State
	for _, f := range [...]struct{ name, value string }{{"action", n.Action}, {"verdict", n.Verdict}, {"by", n.By},
		{"handed_to", n.HandedTo},
		{"savepoint", n.Savepoint}, {"reason", n.Reason}} {
		if f.value != "" {
			out += " " + f.name + ":" + strconv.Quote(f.value)
		}
	}
	if ledger.HasEnded(n.State) && n.At > 0 {
		out += fmt.Sprintf(" at:%d", n.At)
	}
	return out
}

func planText(v api.Plan) string {
	out := v.Plan + " is " + v.State
	for _, f := range [...]struct{ name, value string }{
		{"reason", v.Reason}, {"owner", v.Owner}, {"part of", v.Parent}, {"undoes", v.Origin}, {"undone as", v.UndoneAs},
		{"back to", v.ToSavepoint},
	} {
		if f.value != "" {
			out += "; " + f.name + " " + f.value
		}
	}
	for _, sp := range v.Savepoints {
		out += fmt.Sprintf("; savepoint %s after %d", sp.Name, sp.Actions)
	}
	if len(v.Orphans) > 0 {
		out += "; acts that were refused: " + strings.Join(v.Orphans, " ")
	}
	for _, c := range v.Cuts {
		out += fmt.Sprintf("; lease %s is cut: %s", c.Lease, c.Why) + joined(", proposed ", c.Proposal)
	}
	for _, a := range v.Actions {
		out += "\n" + actionLine(a)
	}
	return out
}

func actionLine(a api.Action) string {
	out := fmt.Sprintf("  %s: %s %s, %s", a.Action, a.Class, a.Outcome, a.Undo)
	if a.Child != "" {
		out = fmt.Sprintf("  %s: child plan, %s", a.Action, a.Undo)
	}
	if a.Attempt > 0 {
		out += fmt.Sprintf(", attempt %d", a.Attempt)
	}
	for _, f := range [...]struct{ name, value string }{
		{"verdict", a.Verdict}, {"asking", a.Asking}, {"presence", a.Presence}, {"duty of", a.DutyOf},
		{"waits for", a.WaitsFor},

		{"proposed", a.Proposal}, {"resolved as", a.Resolution}, {"by", a.ResolvedBy}, {"because", a.ResolvedReason},
		{"evidence", a.Evidence},
	} {
		if f.value != "" {
			out += ", " + f.name + " " + f.value
		}
	}
	if a.DueNs != 0 {
		out += ", due " + since(a.DueNs)
	}
	if a.ClosesNs != 0 {
		out += ", window closes " + since(a.ClosesNs)
	}
	if a.AliveNs != 0 {
		out += ", may be at work until " + since(a.AliveNs)
	}
	if a.Note != "" {
		out += ": " + a.Note
	}
	if a.Faster != "" {
		out += "\n    " + a.Faster
	}
	return out
}

func undoLine(v api.Undo) string {
	about, _, _ := strings.Cut(v.About, "-")
	out := fmt.Sprintf("%s/%s (%s, %s) by %s attempt %d key %s: %s", v.Plan, v.Action, v.Capability, about, v.Compensation,
		v.Attempt, v.Key[:8], v.State)
	out += flag(" blind_cleanup", v.BlindCleanup) + flag(" dirty_failure", v.DirtyFailure) + flag(" has_forward_output",
		v.HasForwardOutput)
	for _, f := range [...]struct {
		name string
		ns   int64
	}{{"waited", v.WaitedNs}, {"queued", v.QueuedNs}, {"work", v.WorkNs}, {"setup", v.SetupNs}, {"tool", v.ToolNs},
		{"llm", v.LLMNs}} {
		if f.ns != 0 {
			out += " " + f.name + ":" + time.Duration(f.ns).String()
		}
	}
	if v.Worker != "" {
		out += " worker:" + v.Worker
	}
	return out + joined(" ", JoinText(v.Code, v.Message))
}

func joined(sign, text string) string {
	if text == "" {
		return ""
	}
	return sign + text
}

func previewText(v api.Preview) string {
	out := fmt.Sprintf("%s is %s and would end %s", v.Plan, v.State, v.End)
	if v.Refused != "" {
		return fmt.Sprintf("%s is %s; refused: %s", v.Plan, v.State, v.Refused)
	}
	if len(v.Outstanding) > 0 {
		out += "; outstanding: " + strings.Join(v.Outstanding, " ")
	}
	for _, step := range v.Steps {
		out += fmt.Sprintf("\n  %d. %s %s/%s (%s %s)", step.Stage, step.Step, step.Plan, step.Action, step.Class,
			step.Outcome)
		out += joined(" by ", step.Inverse) + joined(" ", string(step.Arguments)) + joined(" fidelity ",
			step.Fidelity) + joined(" owner ", step.Owner) + joined(": ", step.Reason)
	}
	return out
}

// unprinted are fields that scripts do not show: noise, or shown by commands.
var unprinted = map[string]bool{
	"key": true, "condition": true, "timeout_ns": true, "waited_ns": true, "holder": true, "fold_version": true,
	"depth": true, "number": true, "attempts": true, "backoff_ns": true, "concurrency": true, "label": true,
	"sequence": true, "index": true,
}

// recordLine is a record in one line: who wrote it, its kind, what it is about, and
// its fields.
func recordLine(from ledger.Source, r *pb.Record) string {
	who := from.Name
	if from.Class == ledger.ClassExecutor {
		who = "holder"
	}
	out := who + ": " + ledger.KindOf(r).Name
	if r.Plan != "" {
		out += " " + r.Plan
	}
	if r.Action != "" {
		out += "/" + r.Action
	}
	if event, ok := view.Event(ledger.Entry{Address: new(pb.Address), Source: from, Record: r}); ok {
		out += " " + event.Key + joined("=", string(event.Value))
	}
	m := r.ProtoReflect()
	oneof := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if oneof == nil {
		return out
	}
	body := m.Get(oneof).Message()
	fields := body.Descriptor().Fields()
	for i := range fields.Len() {
		out += fieldText(body, fields.Get(i))
	}
	return out
}

func fieldText(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	name, v := string(f.Name()), m.Get(f)
	switch {
	case name == "presence":
		return " presence:" + presenceWord(pb.Presence(v.Enum()))
	case unprinted[name] || !m.Has(f), name == "grace_ns" && v.Int() == graceOfTests, name == "late" &&
		v.Enum() == protoreflect.EnumNumber(pb.Late_LATE_NEVER):
		return ""
	case f.IsList() && f.Kind() == protoreflect.StringKind:
		var items []string
		for i := range v.List().Len() {
			items = append(items, v.List().Get(i).String())
		}
		return " " + name + ":" + strings.Join(items, ",")
	case f.IsList():
		return ""
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return " " + name
	case protoreflect.EnumKind:
		return " " + name + ":" + enumWord(f.Enum(), v.Enum())
	case protoreflect.StringKind:
		if strings.ContainsAny(v.String(), " :\"") {
			return " " + name + ":" + strconv.Quote(v.String())
		}
		return " " + name + ":" + v.String()
	case protoreflect.Uint32Kind:
		return fmt.Sprintf(" %s:%d", name, v.Uint())
	case protoreflect.Int64Kind:
		if v.Int() > epoch0/2 {
			return " " + name + ":" + since(v.Int())
		}
		return " " + name + ":" + time.Duration(v.Int()).String()
	default:
		return ""
	}
}

func presenceWord(p pb.Presence) string {
	if p == pb.Presence_PRESENCE_UNSPECIFIED {
		return "inconclusive"
	}
	return PresenceName(p)
}

// enumWord is the value of an enum without what all values of it begin with.
func enumWord(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	v := e.Values().ByNumber(n)
	if v == nil {
		return strconv.Itoa(int(n))
	}
	prefix, _, _ := strings.Cut(string(e.Values().ByNumber(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix))
}

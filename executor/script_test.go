package executor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/view"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A script is a file of commands and of what a person should see after each; in
// front of it stands what it shows. `go test -run S27 -rewrite ./executor` writes
// what is seen now into the file: the difference must be read against the statement.
//
//	new                     another ledger
//
//	play                    words of a schedule (see there); prints what was refused, and why
//	open a a+ fail turn
//
//	pair a                  a pair with more than marks; the rest as of schedules
//	compensation worker_version: "v3" bindings { name: "ref" expression: "output.ref" }
//	forward after: "b" branch: true
//	input {"id":7}
//	before {"old":1}
//
//	append agent:a1         one commit, a record a line; also operator:ann, worker:w1, verdict:law, holder, fact:x
//	plan: "p" action: "a" forward_completed { external_ref: "x7" }
//
//	publish do.a            a contract, as its operator does
//	{"class":"irreversible"}
//
//	reply a                 what a's worker answers, call by call, as JSON; a.probe, a.verify likewise
//	{"status":"failed","code":"gone"}
//
//	answer a queued=5ms     what a late worker answers at last
//	{"status":"done","work_ns":7}
//
//	plan p                  the plan and its actions: class, outcome of the forward, undo
//	plans [state=open]      all plans, or those in a state
//	records [causes]        what was appended since the last time, with the number of its commit: who, kind,
//	                        plan/action, fields; refused and copies
//	commands [full]         what workers were sent since the last time
//	undos plan=p            attempts; of action=a, of capability=do.a
//	preview p [to=s]        what an unwind would do now
//	limits depth=2 plan=8   of cascades, from here on
//	why p                   the chain of causes behind its unwind, or behind the first of its leases that is cut
//	quarantine              the plans that wait for their owners
//	status                  counters
//	contracts               published, with all revisions
//	memory max=40           working memory has a capacity of 40 bytes; prints what is in it
//	fact k                  a fact; its history: what the ledger says of it
//	facts                   all of them
//	queue                   what would be evicted next, and the latest evictions
//	pages [taken]           who was called since the last time; or who is to be, and the hooks take it
//	notices                 what agents were told since the last time
//	sweep [at=1000h]        another turn, now or then; it changes nothing, byte for byte, or it prints what
//	restart                 all state is lost; the next holder folds the ledger, sends again what is in flight, goes on
//	race                    two holders decide from the same state and both append: what becomes of the second
type script struct {
	*schedule
	replies map[string][]json.RawMessage
	sent    []Command // not printed yet
	printed uint64    // sequence up to which records were printed
	pages   []Page
	notices []Notice
}

func newScript(t *testing.T) *script {
	s := &script{schedule: newSchedule(t), replies: map[string][]json.RawMessage{}, printed: 1}
	s.worker = s.work
	return s
}

// work notes a command and answers it.
func (s *script) work(c Command) *api.Reply {
	s.sent = append(s.sent, c)
	name := c.Action
	if c.Purpose != ledger.PurposeUndo {
		name += "." + c.Purpose
	}
	list := s.replies[name]
	if len(list) == 0 {
		return s.answer(c)
	}
	if len(list) > 1 {
		s.replies[name] = list[1:]
	}
	return s.reply(list[0])
}

func (s *script) reply(text []byte) *api.Reply {
	reply := new(api.Reply)
	if err := json.Unmarshal(text, reply); err != nil {
		s.t.Fatal(err)
	}
	return reply
}

// runScript runs the commands of a file. watch looks at the script after each.
func runScript(t *testing.T, path string, watch func(*script)) {
	t.Helper()
	s := newScript(t)
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "new" {
			s.rebuilt()
			s = newScript(t)
		}
		s.t = t
		out := s.command(d)
		s.pages = append(s.pages, s.state.Pages()...)
		s.notices = append(s.notices, s.state.Notices()...)
		s.goesOn()
		if watch != nil {
			watch(s)
		}
		return out
	})
	s.rebuilt()
}

// goesOn wants every unwind to have a call out, or one that is due, unless there is
// something to decide (S26).
func (s *script) goesOn() {
	s.t.Helper()
	for _, p := range plansOf(s.kv) {
		if p.Row.Phase == rowspb.Phase_PHASE_UNWINDING && p.Row.InFlight == 0 && len(p.Row.Settling) == 0 &&
			!PlanHasWork(p) {
			s.t.Fatalf("plan %s unwinds with no call out", p.ID)
		}
	}
}

// rebuilt wants the ledger alone to give the same state, byte for byte.
func (s *script) rebuilt() {
	s.t.Helper()
	for _, batch := range []int{1, 7, 1000} {
		if rows.Digest(s.refold(batch)) != rows.Digest(s.kv) {
			s.t.Fatalf("another digest with batches of %d", batch)
		}
	}
}

func (s *script) command(d *datadriven.TestData) string {
	s.t.Helper()
	switch d.Cmd {
	case "new":
		return ""
	case "play", "pair", "append", "publish":
		sequence := uint64(len(s.log))
		s.write(d)
		return s.refused(sequence)
	case "reply":
		s.replies[arg(d)] = nil
		for line := range strings.Lines(d.Input) {
			s.replies[arg(d)] = append(s.replies[arg(d)], json.RawMessage(line))
		}
		return ""
	case "answer":
		s.answerLate(d)
		return ""
	case "memory":
		return s.memory(option(d, "max"))
	case "sweep":
		return s.sweep(option(d, "at"))
	case "restart":
		return s.restart()
	case "race":
		return s.race()
	case "limits":
		d.MaybeScanArgs(s.t, "depth", &s.limits.Depth)
		d.MaybeScanArgs(s.t, "plan", &s.limits.Plan)
		return ""
	case "pages":
		return s.called(arg(d) == "taken")
	}
	return s.show(d)
}

// arg is the first argument of a command, or "".
func arg(d *datadriven.TestData) string {
	if len(d.CmdArgs) == 0 {
		return ""
	}
	return d.CmdArgs[0].Key
}

// option is an argument of the form name=value, or "".
func option(d *datadriven.TestData, name string) string {
	if a, ok := d.Arg(name); ok {
		return strings.Join(a.Vals, ",")
	}
	return ""
}

// write appends what a command says to the ledger.
func (s *script) write(d *datadriven.TestData) {
	s.t.Helper()
	switch d.Cmd {
	case "play":
		s.play(d.Input)
	case "pair":
		s.agent(s.plan, s.pair(arg(d), d.Input)...)
	case "publish":
		digest := ledger.ContractDigest([]byte(d.Input))
		s.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"},
			&pb.Record{Kind: &pb.Record_ContractPublished{
				ContractPublished: &pb.ContractPublished{Capability: arg(d), Digest: digest[:], Contract: []byte(d.Input)}}})
	case "append":
		var records []*pb.Record
		for line := range strings.Lines(d.Input) {
			r := new(pb.Record)
			s.parse(line, r)
			s.leaf(r.About)
			records = append(records, r)
		}
		s.append(s.source(arg(d), records[0]), records...)
	}
}

// source is whose record a commit is.
func (s *script) source(who string, first *pb.Record) ledger.Source {
	s.t.Helper()
	class, name, _ := strings.Cut(who, ":")
	source := ledger.Source{Tenant: "t", Name: name}
	switch class {
	case "agent":
		source.Class, source.Plan = ledger.ClassAgent, first.Plan
	case "operator":
		source.Class = ledger.ClassOperator
	case "worker":
		source.Class = ledger.ClassWorker
	case "verdict":
		source.Class = ledger.ClassVerdict
	case "fact":
		source.Class = ledger.ClassFact
	case "holder":
		source.Class, source.Term = ledger.ClassExecutor, first.GetTermStarted() != nil
	default:
		s.t.Fatalf("no such source: %s", who)
	}
	return source
}

// leaf completes an address of the ledger.
func (s *script) leaf(a *pb.Address) {
	s.t.Helper()
	if a == nil || len(a.Leaf) > 0 {
		return
	}
	entries, err := ledger.Decode("t", s.log[a.Sequence-1])
	if err != nil {
		s.t.Fatal(err)
	}
	a.Leaf = entries[a.Index].Address.Leaf
}

func (s *script) parse(text string, m proto.Message) {
	s.t.Helper()
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		s.t.Fatal(err)
	}
}

// pair is that of schedules with what the lines say besides.
func (s *script) pair(id, lines string) []*pb.Record {
	s.t.Helper()
	records := pair(id)
	for line := range strings.Lines(lines) {
		word, text, _ := strings.Cut(line, " ")
		switch word {
		case "forward":
			more := new(pb.ForwardRegistered)
			s.parse(text, more)
			proto.Merge(records[0].GetForwardRegistered(), more)
		case "compensation":
			more := new(pb.CompensationRegistered)
			s.parse(text, more)
			proto.Merge(records[1].GetCompensationRegistered(), more)
		case "input":
			records[0].Payload = &pb.Payload{Input: []byte(text)}
		case "before":
			records[1].Payload = &pb.Payload{Before: []byte(text)}
		default:
			s.t.Fatalf("no such part of a pair: %s", word)
		}
	}
	return records
}

// answerLate is an answer that came only now.
func (s *script) answerLate(d *datadriven.TestData) {
	s.t.Helper()
	var answers []Answer
	for _, c := range s.state.InFlight() {
		if c.Action == arg(d) {
			queued, _ := time.ParseDuration(option(d, "queued"))
			answers = append(answers, Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt,
				Reply: s.reply([]byte(d.Input)), QueuedNs: int64(queued)})
		}
	}
	if len(answers) != 1 {
		s.t.Fatalf("%d calls about %s are in flight", len(answers), arg(d))
	}
	s.turn(answers...)
}

// sweep looks at everything once more.
func (s *script) sweep(at string) string {
	s.t.Helper()
	before, digest := uint64(len(s.log)), rows.Digest(s.kv)
	s.turn()
	if at != "" {
		d, err := time.ParseDuration(at)
		if err != nil {
			s.t.Fatal(err)
		}
		s.at(d)
	}
	if uint64(len(s.log)) == before && rows.Digest(s.kv) == digest {
		return "nothing changed"
	}
	return s.recordsAfter(before, false)
}

// restart loses everything but the ledger.
func (s *script) restart() string {
	s.t.Helper()
	kv := s.refold(1)
	if rows.Digest(kv) != rows.Digest(s.kv) {
		s.t.Fatal("another digest")
	}
	s.kv = kv
	s.state = OpenWith(s.kv, "t", s, s.programs)
	s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: s.state.Meta().Term + 1,
		Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: FoldVersion}}})
	var out []string
	var answers []Answer
	for _, c := range s.state.InFlight() {
		out = append(out, "again: "+commandLine(c))
		if answer := s.world.work(c); answer != nil {
			answers = append(answers, *answer)
		}
	}
	for _, p := range s.state.Unpaged() {
		out = append(out, "again: "+pageLine(p))
	}
	s.turn(answers...)
	return strings.Join(out, "\n")
}

// race appends one decision twice: two holders saw the same state.
func (s *script) race() string {
	s.t.Helper()
	records := s.decide(nil)
	holder := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
	s.must(s.append(holder, records...))
	sequence := uint64(len(s.log))
	s.append(holder, records...)
	out := s.recordsAfter(sequence, false)
	s.turn()
	return out
}

// called prints the pages since the last time; or all that are open, and their hooks
// take them.
func (s *script) called(taken bool) string {
	s.t.Helper()
	list := s.pages
	if s.pages = nil; taken {
		list = s.state.Unpaged()
	}
	var out []string
	var paged []Paged
	for _, p := range list {
		out = append(out, pageLine(p))
		paged = append(paged, Paged{Plan: p.Plan, Number: p.Number, Kind: p.Kind, Hook: p.Hook})
	}
	if taken {
		records := s.state.Decide(Input{EpochNs: s.now, Paged: paged, SizeMax: 60 << 10})
		if len(records) > 0 {
			s.must(s.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
		}
		s.turn()
	}
	return strings.Join(out, "\n")
}

// refused prints what was refused or void behind a sequence.
func (s *script) refused(sequence uint64) string {
	var out []string
	for _, r := range view.NewReader(s.kv, "t", nil).Refusals(sequence, 1000) {
		out = append(out, strings.TrimSpace(r.Kind+" "+r.Plan)+": "+unprefixed(r.Reason))
	}
	return strings.Join(out, "\n")
}

// unprefixed is the reason of a refusal without the word.
func unprefixed(reason string) string { return strings.TrimPrefix(reason, "refused: ") }

// recordsAfter prints the records behind a sequence, with what they go back to.
func (s *script) recordsAfter(sequence uint64, causes bool) string {
	s.t.Helper()
	state := OpenWith(rows.NewMemoryKV(), "t", s, s.programs)
	at := map[string]*pb.Record{}
	var out []string
	for _, m := range s.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			at[place(e.Address, e)] = e.Record
			result := state.Apply(e)
			if m.Sequence <= sequence {
				continue
			}
			line := fmt.Sprintf("%d ", m.Sequence) + recordLine(e.Source, e.Record)
			if causes {
				line += link(" <- ", at[place(e.Record.Cause, e)]) + link(" about ", at[place(e.Record.About, e)])
			}
			line += [...]string{Effective: "", Repeated: " (copy)", Refused: " (refused: " + unprefixed(result.Reason) + ")",
				Void: " (void: " + result.Reason + ")"}[result.Verdict]
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// place names a record of the ledger; a relative address is one of e's commit.
func place(a *pb.Address, e ledger.Entry) string {
	sequence := a.GetSequence()
	if sequence == 0 {
		sequence = e.Address.Sequence
	}
	if a == nil {
		return ""
	}
	return fmt.Sprint(sequence, ".", a.Index)
}

func link(sign string, r *pb.Record) string {
	if r == nil {
		return ""
	}
	return sign + ledger.KindOf(r).Name
}

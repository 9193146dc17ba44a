package executor

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A schedule is one line of what happens to plan p, in order; see play. A word
// counts as done if its records are effective; in front of it "!" wants them
// refused or void, and "=" wants them to be copies.
//
//	open  open:2  open@5s         open the plan; at most 2 undos in flight; a deadline
//	a  a<b,c  a<                  pair a after the one before; after b and c; after none
//	a:irr  :eff  :askme  :probe   irreversible, effectless, on_in_doubt quarantine or probe
//	a+  a-  a?                    the forward completed, failed, is in doubt
//	fail  cancel  commit          the agent ends the plan
//	stop                          an operator cancels it
//	turn  @5s                     decide and let workers answer; the same at 5 s
//	a=stop  a=fail,lost,done      what the worker of a's undo answers, call by call;
//	                              lost: no answer in time, late: a report will follow
//	tell:a#1=done                 a worker reports on attempt 1 (done, fail, stop)
//	resolve:a  halt:a  retry:a    an operator's word on a quarantined action
//	lone:x                        a forward without its registration
//	judge:a=block                 a verdict
//	fact:k=1  forget:k            a fact is asserted, retracted
//	again                         the last commit once more, as it was
type schedule struct {
	*world
	answers map[string][]string
	last    ledger.Message
}

func newSchedule(t *testing.T) *schedule {
	s := &schedule{world: newWorld(t), answers: map[string][]string{}}
	s.worker = func(c Command) *ledger.Reply {
		list := s.answers[c.Action]
		if len(list) == 0 {
			return &ledger.Reply{Status: ledger.StatusDone}
		}
		if len(list) > 1 {
			s.answers[c.Action] = list[1:]
		}
		switch list[0] {
		case "done":
			return &ledger.Reply{Status: ledger.StatusDone}
		case "fail":
			return &ledger.Reply{Status: ledger.StatusFailed, Code: "locked", Message: "try later"}
		case "stop":
			return &ledger.Reply{Status: ledger.StatusStop, Code: "protected", Message: "never"}
		case "late":
			return &ledger.Reply{Status: ledger.StatusWorking}
		case "lost":
			return nil
		}
		t.Fatalf("no such answer: %s", list[0])
		return nil
	}
	return s
}

func (s *schedule) play(line string) {
	s.t.Helper()
	for word := range strings.FieldsSeq(line) {
		want := Effective
		switch {
		case word[0] == '!':
			want, word = Refused, word[1:]
		case word[0] == '=':
			want, word = Repeated, word[1:]
		}
		before := len(s.log)
		for _, r := range s.word(word) {
			got := r.Verdict
			if got == Void {
				got = Refused
			}
			if got != want || got != Effective && r.Reason == "" {
				s.t.Fatalf("%q in %q: %+v", word, line, r)
			}
		}
		if word != "turn" && word[0] != '@' && len(s.log) == before+1 {
			s.last = s.log[before]
		}
	}
}

func (s *schedule) word(word string) []Result {
	s.t.Helper()
	verb, rest, _ := strings.Cut(word, ":")
	switch {
	case word == "turn":
		s.turn()
		return nil
	case word == "again":
		return s.raw(s.last.Subject, s.last.ContentType, s.last.Data)
	case word[0] == '@':
		d, err := time.ParseDuration(word[1:])
		if err != nil {
			s.t.Fatal(err)
		}
		s.at(d)
		return nil
	case verb == "open" || strings.HasPrefix(word, "open@"):
		return s.agent("p", s.open(word))
	case word == "fail":
		return s.agent("p", planFailed())
	case word == "cancel":
		return s.agent("p", &pb.Record{Kind: &pb.Record_PlanCancelled{PlanCancelled: &pb.PlanCancelled{Reason: "changed my mind"}}})
	case word == "commit":
		return s.agent("p", planCommitted())
	case word == "stop":
		return s.operator("", &pb.Record{Kind: &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Reason: "stop it", Actor: "ops"}}})
	case verb == "lone":
		return s.agent("p", pair(rest)[0])
	case verb == "fact" || verb == "forget":
		return s.fact(rest)
	case verb == "resolve" || verb == "halt" || verb == "retry" || verb == "tell" || verb == "judge":
		return s.about(verb, rest)
	case strings.Contains(word, "="):
		id, list, _ := strings.Cut(word, "=")
		s.answers[id] = strings.Split(list, ",")
		return nil
	}
	return s.forward(word)
}

func (s *schedule) open(word string) *pb.Record {
	r := opened(0)
	if _, in, ok := strings.Cut(word, "@"); ok {
		d, err := time.ParseDuration(in)
		if err != nil {
			s.t.Fatal(err)
		}
		r.GetPlanOpened().DeadlineNs = epoch0 + int64(d)
	}
	if _, n, ok := strings.Cut(word, ":"); ok {
		limit, err := strconv.Atoi(n)
		if err != nil {
			s.t.Fatal(err)
		}
		r.GetPlanOpened().Concurrency = uint32(limit)
	}
	return r
}

// forward is a+, a-, a? or the registration of a pair.
func (s *schedule) forward(word string) []Result {
	id := word[:len(word)-1]
	switch word[len(word)-1] {
	case '+':
		return s.agent("p", completed(id))
	case '-':
		return s.agent("p", failedForward(id))
	case '?':
		return s.agent("p", inDoubt(id))
	}
	head, marks, _ := strings.Cut(word, ":")
	id, after, branch := strings.Cut(head, "<")
	return s.agent("p", pair(id, func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		f.Branch = branch
		if after != "" {
			f.After = strings.Split(after, ",")
		}
		switch marks {
		case "":
		case "irr":
			f.Class, c.Capability = pb.Class_CLASS_IRREVERSIBLE, ""
		case "eff":
			f.Class, c.Capability = pb.Class_CLASS_EFFECTLESS, ""
		case "askme":
			c.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_QUARANTINE
		case "probe":
			c.Probe = "probe." + id
		default:
			s.t.Fatalf("no such mark: %s", marks)
		}
	})...)
}

func (w *world) operator(action string, r *pb.Record) []Result {
	w.t.Helper()
	r.Plan, r.Action = "p", action
	return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ops"}, r)
}

func (w *world) fact(text string) []Result {
	w.t.Helper()
	key, value, ok := strings.Cut(text, "=")
	r := &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: key}}}
	if ok {
		r.Kind = &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: key, Value: json.RawMessage(value)}}
	}
	return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassFact, Name: "sensor"}, r)
}

func resolvedBy(halt bool) *pb.Record {
	return &pb.Record{Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{
		Outcome: pb.Resolution_RESOLUTION_DONE, Reason: "did it by hand", Actor: "ops", Evidence: "ticket", Halt: halt}}}
}

// about is an operator's, worker's or supervisor's word on one action.
func (s *schedule) about(verb, rest string) []Result {
	s.t.Helper()
	head, answer, _ := strings.Cut(rest, "=")
	action, attempt, _ := strings.Cut(head, "#")
	switch verb {
	case "resolve", "halt":
		return s.operator(action, resolvedBy(verb == "halt"))
	case "retry":
		return s.operator(action, &pb.Record{Kind: &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Actor: "ops"}}})
	case "judge":
		outcome := pb.VerdictOutcome_value["VERDICT_OUTCOME_"+strings.ToUpper(answer)]
		return s.append(ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "compliance"}, &pb.Record{Plan: "p", Action: action,
			Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: pb.VerdictOutcome(outcome), Reason: "policy 7"}}})
	}
	n, err := strconv.Atoi(attempt)
	if err != nil {
		s.t.Fatal(err)
	}
	answers := map[string]pb.Answer{"done": pb.Answer_ANSWER_DONE, "fail": pb.Answer_ANSWER_FAILED, "stop": pb.Answer_ANSWER_STOP}
	return s.report(action, uint32(n), undoKey(action), answers[answer])
}

func (w *world) report(action string, attempt uint32, key string, answer pb.Answer) []Result {
	w.t.Helper()
	return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassWorker, Name: "w1"}, &pb.Record{Plan: "p", Action: action,
		Kind: &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{Attempt: attempt, Key: key, Answer: answer, Code: "c"}}})
}

// outcome is the state of plan p, its actions, and in brackets what workers
// undid, in that order.
func (w *world) outcome() string {
	w.t.Helper()
	return w.show("p").State + ": " + w.undos("p") + " [" + strings.Join(w.undone, " ") + "]"
}

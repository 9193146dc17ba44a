package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
)

// Verb is what a host can be asked: its name, what it takes, and what answers it. Each is
// declared once, below: a host has a handler of these types for it, and who asks it gets an
// answer of this type, or a *Problem.
//
// What is generic here and around it is so thin that it is inlined: the linker keeps the whole
// text of a struct with each function that is compiled for it.
type Verb[Q, A any] struct{ Call }

// Call is a verb without its types.
type Call struct {
	Name string
	on   func(tenant, name string) string
}

// Subject is where a tenant's host is asked it.
func (c Call) Subject(tenant string) string { return c.on(tenant, c.Name) }

// Decode reads the answer to it. The error is the *Problem that came instead, or beside what is
// known, or it says that the text is no answer.
func (v Verb[Q, A]) Decode(text []byte) (answer A, err error) {
	err = DecodeAnswer(text, &answer)
	return answer, err
}

// Nothing is what a verb takes that takes nothing.
type Nothing struct{}

// Problem is what comes instead of an answer, or beside one that is empty.
type Problem struct {
	Text  string `json:"error,omitempty"`
	Field string `json:"field,omitempty"` // of the request that is wrong, as in "request.plan"
	Want  string `json:"want,omitempty"`  // what would be right there
	// Behind is set where the sequence of the question was not folded in time; ask again.
	Behind bool `json:"behind,omitempty"`
	// Again: it may pass; ask again.
	Again bool `json:"again,omitempty"`
}

// CodeQuestions is the field of a Problem that says that too many questions of the user, or of its
// tenant, wait for an answer.
const CodeQuestions = "questions"

// Error is the text of the problem.
func (p *Problem) Error() string { return p.Text }

// ProblemOf is an error as it is said to the one that asks.
func ProblemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return &Problem{Text: cmp.Or(err.Error(), "unknown error")}
}

// EncodeAnswer is an answer as it is sent: the value, nil: none, and beside it what is wrong, nil:
// nothing. A value is a struct.
func EncodeAnswer(value any, problem *Problem) ([]byte, error) {
	if problem == nil {
		return json.Marshal(value)
	}
	text, err := json.Marshal(problem)
	if value == nil || err != nil {
		return text, err
	}
	body, err := json.Marshal(value)
	switch body = bytes.TrimSuffix(body, []byte("}")); {
	case err != nil || len(body) < 2:
		return text, err // the value has no fields
	case len(text) == 2: // nor has the problem
		return append(body, '}'), nil
	}
	return append(append(body, ','), text[1:]...), nil
}

// DecodeAnswer is Verb.Decode into what answer points to.
func DecodeAnswer(text []byte, answer any) error {
	if err := json.Unmarshal(text, answer); err != nil {
		return err
	}
	if !bytes.Contains(text, []byte(`"error"`)) {
		return nil // as most are
	}
	problem := new(Problem)
	if err := json.Unmarshal(text, problem); err != nil {
		return err
	}
	if problem.Text != "" {
		return problem
	}
	return nil
}

func question[Q, A any](name string) Verb[Q, A] { return Verb[Q, A]{Call{name, QuerySubject}} }

func request[Q, A any](name string) Verb[Q, A] { return Verb[Q, A]{Call{name, AdminSubject}} }

// What is asked about the state of a tenant, on QuerySubject.
var (
	PlanLs         = question[Filter, PlansAnswer]("plan.ls")
	PlanFind       = question[FindQuery, FindAnswer]("plan.find")
	PlanShow       = question[PlanQuery, PlanAnswer]("plan.show")
	PlanWhy        = question[WhyQuery, WhyAnswer]("plan.why")
	PlanOutcome    = question[OutcomeQuery, OutcomeAnswer]("plan.outcome")
	PlanPreview    = question[PreviewQuery, PreviewAnswer]("plan.preview")
	TriggerExplain = question[ExplainQuery, ExplainAnswer]("trigger.explain")
	UndoLs         = question[UndoQuery, UndosAnswer]("undo.ls")
	ContractLs     = question[ContractQuery, ContractsAnswer]("contract.ls")
	QuarantineLs   = question[ListQuery, PlansAnswer]("quarantine.ls")
	RefusedLs      = question[ListQuery, RefusedAnswer]("refused.ls")
	DueLs          = question[ListQuery, UpcomingAnswer]("due.ls")
	CapabilityLs   = question[Nothing, CapabilitiesAnswer]("capability.ls")
	WorkerLs       = question[Nothing, WorkersAnswer]("worker.ls")
	WorkerServed   = question[ServedQuery, ServedAnswer]("worker.served")
	TenantStatus   = question[Nothing, StatusAnswer]("status")
	TenantHost     = question[Nothing, HostAnswer]("host") // each host answers for itself
	LedgerRead     = question[ReadQuery, ReadAnswer]("ledger.read")
	LedgerStream   = question[Nothing, StreamAnswer]("ledger.stream")
	FactGet        = question[FactQuery, FactAnswer]("fact.get")
	FactLs         = question[FactsQuery, FactsAnswer]("fact.ls")
	FactHistory    = question[FactQuery, FactHistoryAnswer]("fact.history")
	ReviewLs       = question[ReviewQuery, ReviewAnswer]("review.ls")
	MemoryStatus   = question[Nothing, MemoryAnswer]("memory.status")
	MemoryQueue    = question[QueueQuery, QueueAnswer]("memory.queue")
	MemoryRebuild  = question[Nothing, RebuildAnswer]("memory.rebuild")
)

// What operators ask of the host of a tenant, on AdminSubject.
var (
	LedgerScrub  = request[Nothing, ScrubAnswer]("ledger.scrub")
	LedgerExport = request[ExportQuery, ExportAnswer]("ledger.export")
	LedgerSign   = request[Nothing, SignAnswer]("ledger.sign")
	LedgerRepair = request[RepairQuery, RepairAnswer]("ledger.repair")
	Rebuild      = request[Nothing, DroppedAnswer]("rebuild")
	TenantErase  = request[TenantErasureQuery, TenantErasureAnswer]("tenant.erase")
	KeyRotate    = request[RotationQuery, RotationAnswer]("key.rotate")
)

// PlanReveal is PlanShow with the sealed values in the clear, on RevealSubject.
var PlanReveal = Verb[PlanQuery, PlanAnswer]{Call{"reveal",
	func(tenant, _ string) string { return RevealSubject(tenant) }}}

// PlanHistory is what an agent asks about its own plans, on HistorySubject.
func PlanHistory(agent string) Verb[HistoryQuery, HistoryAnswer] {
	return question[HistoryQuery, HistoryAnswer](HistoryVerb + agent)
}

// OwnPreview is PlanPreview of an agent's own plans, on PreviewSubject.
func OwnPreview(agent string) Verb[PreviewQuery, PreviewAnswer] {
	return question[PreviewQuery, PreviewAnswer](PreviewVerb + agent)
}

// PlanKey is how an agent asks for the key of a plan of its own, on KeySubject.
func PlanKey(agent string) Verb[KeyQuery, KeyAnswer] {
	return Verb[KeyQuery, KeyAnswer]{Call{"key",
		func(tenant, _ string) string { return KeySubject(tenant, agent) }}}
}

package host

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	wireForward = `"forwardRegistered":{"capability":"do.a","class":"CLASS_COMPENSABLE"}`
	wireUndo    = `"compensationRegistered":{"capability":"undo.a"}`
)

// pairOf is a pair in JSON: what its halves have beside a capability.
func pairOf(forward, undo string) string {
	with := func(text, more string) string {
		if more == "" {
			return text
		}
		return strings.TrimSuffix(text, "}") + "," + more + "}"
	}
	return fmt.Sprintf(`{"plan":"PLAN","action":"a",%s},{"plan":"PLAN","action":"a",%s}`, with(wireForward, forward),
		with(wireUndo, undo))
}

// wrongMessages are what clients without a library get wrong. PLAN is a plan of the
// agent that is open.
var wrongMessages = []struct {
	name, subject, records, want string // want: how the reason begins, behind "refused: "
}{
	{"an unknown kind", "", `{"plan":"PLAN","planCommit":{}}`,
		"records[0].planCommit: there is no such field; want did you mean planCommitted?"},
	{"an unknown field of a pair", "", pairOf("", `"timeout":"5s"`),
		"pair: its compensation_registered is refused: records[1].compensationRegistered.timeout: there is no such field; " +
			"want did you mean timeoutNs?"},
	{"a number as a word", "", pairOf("", `"attempts":"three"`),
		"pair: its compensation_registered is refused: records[1].compensationRegistered.attempts: not a whole number"},
	{"a payload as it is", "", `{"plan":"PLAN","action":"a","forwardCompleted":{},"payload":{"output":{"id":1}}}`,
		"records[0].payload.output: not base64"},
	{"a payload that is no JSON", "", `{"plan":"PLAN","action":"a","forwardCompleted":{},"payload":{"arguments":"aWQ="}}`,
		"payload.arguments: not JSON"},
	{"no kind", "", `{"plan":"PLAN"}`, "kind: the record has none"},
	{"two kinds", "", `{"plan":"PLAN","planCommitted":{},"planFailed":{}}`,
		"records[0].planFailed: given beside planCommitted"},
	{"no plan", "", `{"planCommitted":{}}`, `plan: "" is not a plan id`},
	{"another plan than the subject's", "", `{"plan":"other","planCommitted":{}}`, `plan: "other" on the subject of plan`},
	{"a plan with a dot", "", `{"plan":"a.b","planCommitted":{}}`, `plan: "a.b" is not a plan id`},
	{"no action", "", strings.ReplaceAll(pairOf("", ""), `"action":"a",`, ""), `action: "" is not an action id`},
	{"an action with a space", "", strings.ReplaceAll(pairOf("", ""), `"action":"a"`, `"action":"a b"`),
		`action: "a b" is not an action id`},
	{"an action with the sign of duties", "", strings.ReplaceAll(pairOf("", ""), `"action":"a"`, `"action":"a~1"`),
		`action: "a~1" is not an action id`},
	{"a forward alone", "", `{"plan":"PLAN","action":"a",` + wireForward + `}`, "pair: half of a pair"},
	{"an undo alone", "", `{"plan":"PLAN","action":"a",` + wireUndo + `}`, "pair: half of a pair"},
	{"the undo first", "", `{"plan":"PLAN","action":"a",` + wireUndo + `},{"plan":"PLAN","action":"a",` + wireForward +
		`}`, "pair: the compensation stands before its forward"},
	{"no class", "",
		`{"plan":"PLAN","action":"a","forwardRegistered":{"capability":"do.a"}},{"plan":"PLAN","action":"a",` + wireUndo +
			`}`, "forward_registered.class: undeclared"},
	{"a class by its own name", "", strings.ReplaceAll(pairOf("", ""), "CLASS_COMPENSABLE", "compensable"),
		`records[0].forwardRegistered.class: "compensable" is none of its values; want CLASS_COMPENSABLE`},
	{"a class that nobody knows", "", strings.ReplaceAll(pairOf("", ""), `"CLASS_COMPENSABLE"`, "9"),
		"forward_registered.class: undeclared"},
	{"no capability", "", strings.ReplaceAll(pairOf("", ""), "do.a", ""), `forward_registered.capability: ""`},
	{"a capability with a space", "", strings.ReplaceAll(pairOf("", ""), "undo.a", "undo a"),
		`pair: its compensation_registered is refused: compensation_registered.capability: "undo a"`},
	{"a negative timeout", "", pairOf(`"timeoutNs":-1`, ""), "forward_registered.timeout_ns: out of range"},
	{"a negative settle", "", pairOf(`"settleNs":"-1"`, ""), "forward_registered.settle_ns: out of range"},
	{"a negative backoff", "", pairOf("", `"backoffNs":-5`),
		"pair: its compensation_registered is refused: compensation_registered.backoff_ns: out of range"},
	{"a negative window", "", pairOf("", `"validForNs":-5`),
		"pair: its compensation_registered is refused: compensation_registered.valid_for_ns: negative"},
	{"a timeout of a year", "", pairOf("", `"timeoutNs":"31536000000000000"`),
		"pair: its compensation_registered is refused: compensation_registered.timeout_ns: out of range"},
	{"a thousand attempts", "", pairOf("", `"attempts":1000`),
		"pair: its compensation_registered is refused: compensation_registered.attempts: 1000"},
	{"a word of doubt that nobody knows", "", pairOf("", `"onInDoubt":9`),
		"pair: its compensation_registered is refused: compensation_registered.on_in_doubt"},
	{"an argument that does not compile", "", pairOf("", `"bindings":[{"name":"id","expression":"outptu.id"}]`),
		`compensation_registered.bindings[0].expression: does not compile: 1:1: undeclared name "outptu"; want did you mean output?`},
	{"an argument without a name", "", pairOf("", `"bindings":[{"expression":"output.id"}]`),
		"pair: its compensation_registered is refused: compensation_registered.bindings[0]: no name"},
	{"a trigger that does not compile", "", pairOf("", `"triggers":[{"name":"x","condition":"plan.status = 1"}]`),
		"compensation_registered.triggers[0].condition: does not compile: a single =; want use =="},
	{"done that does not compile", "", pairOf("", `"done":"error.code =="`),
		"compensation_registered.done: does not compile"},
	{"stop that is no truth", "", pairOf("", `"stop":"'gone'"`),
		"compensation_registered.stop: the result is string; want a bool"},
	{"a probe whose answer does not compile", "", pairOf("", `"probe":{"call":{"capability":"find.a"},"answer":"probe."}`),
		"compensation_registered.probe.answer: does not compile"},
	{"a probe without a call", "", pairOf("", `"probe":{}`),
		"pair: its compensation_registered is refused: compensation_registered.probe.call.capability"},
	{"late refused, by nobody who is told", "", pairOf(`"late":"LATE_REFUSED"`, ""),
		"forward_registered.late: refused, and no argument of the undo reads meta.forward_key"},
	{"the key of another action", "", pairOf("", `"key":"mine"`),
		"pair: its compensation_registered is refused: compensation_registered.key: not the key of this action"},
	{"after an action that is not there", "", pairOf(`"after":["b"]`, ""), ""},
	{"after itself", "", pairOf(`"after":["a"]`, ""), ""},
	{"a completion of nothing", "", `{"plan":"PLAN","action":"z","forwardCompleted":{}}`, ""},
	{"a savepoint without a number", "", `{"plan":"PLAN","savepointSet":{"name":"s"}}`, ""},
	{"back to a savepoint that is not there", "", `{"plan":"PLAN","unwindRequested":{"toSavepoint":"s","number":1}}`, ""},
	{"an observation by an agent", "", `{"factAsserted":{"key":"k","value":"MQ=="}}`,
		`fact_asserted: not allowed on a subject of class "agent"`},
	{"a decision by an agent", "", `{"plan":"PLAN","planEnded":{}}`,
		`plan_ended: not allowed on a subject of class "agent"`},
	{"an owner's word by an agent", "",
		`{"plan":"PLAN","action":"a","resolved":{"outcome":1,"reason":"x","actor":"x","evidence":"x"}}`,
		`resolved: not allowed on a subject of class "agent"`},
	{"a term of an agent's own", "", `{"plan":"PLAN","planCommitted":{},"term":"1"}`, "term: set outside the executor"},
	{"a plan of an agent on another's subject", "saga.t.fact.s", `{"plan":"PLAN","planCommitted":{}}`,
		`plan_committed: not allowed on a subject of class "fact"`},
	{"a fact without a key", "saga.t.fact.s", `{"factAsserted":{"value":"MQ=="}}`, "fact_asserted.key: empty"},
	{"a fact that is no JSON", "saga.t.fact.s", `{"factAsserted":{"key":"k","value":"aWQ="}}`,
		"fact_asserted.value: not JSON"},
	{"a fact without a value", "saga.t.fact.s", `{"factAsserted":{"key":"k"}}`, "fact_asserted.value: not JSON"},
	{"a verdict without an outcome", "saga.t.verdict.v", `{"plan":"PLAN","action":"a","verdictGiven":{}}`,
		"verdict_given.outcome: not given"},
	{"a verdict on nothing", "saga.t.verdict.v",
		`{"plan":"PLAN","action":"z","verdictGiven":{"outcome":"VERDICT_OUTCOME_BLOCK"}}`, ""},
	{"a report without an answer", "saga.t.worker.w",
		`{"plan":"PLAN","action":"a","compensationReported":{"attempt":1,"key":"k"}}`,
		"compensation_reported.answer: not given"},
	{"a contract that is not its digest's", "saga.t.operator.o",
		`{"contractPublished":{"capability":"do.a","contract":"e30="}}`, "contract_published.digest"},
	{"a duplicate label", "saga.t.agent.py.NEW",
		`{"plan":"NEW","planOpened":{"labels":[{"key":"a","value":"1"},{"key":"a","value":"2"}]}}`,
		"plan_opened.labels[1].key"},
	{"a label without a key", "saga.t.agent.py.NEW", `{"plan":"NEW","planOpened":{"labels":[{"value":"1"}]}}`,
		"plan_opened.labels[0].key"},
	{"a deadline in seconds", "saga.t.agent.py.NEW", `{"plan":"NEW","planOpened":{"deadlineNs":"1767323045"}}`,
		"plan_opened.deadline_ns: it had passed when the plan was opened: 1970-01-01T00:00:01Z"},
	{"a deadline as a date", "saga.t.agent.py.NEW", `{"plan":"NEW","planOpened":{"deadlineNs":"2026-01-01"}}`,
		"records[0].planOpened.deadlineNs: not a whole number"},
	{"a negative deadline", "saga.t.agent.py.NEW", `{"plan":"NEW","planOpened":{"deadlineNs":-1}}`,
		"plan_opened.deadline_ns: negative"},
	{"a condition that does not compile", "saga.t.agent.py.NEW",
		`{"plan":"NEW","planOpened":{"triggers":[{"name":"x","condition":"facts["}]}}`,
		"plan_opened.triggers[0].condition: does not compile"},
	{"two triggers of one name", "saga.t.agent.py.NEW",
		`{"plan":"NEW","planOpened":{"triggers":[{"name":"x","condition":"true"},{"name":"x","condition":"false"}]}}`,
		"plan_opened.triggers[1].name"},
	{"a plan that is part of itself", "saga.t.agent.py.NEW", `{"plan":"NEW","planOpened":{"parentPlan":"NEW"}}`,
		"plan_opened.parent_plan"},
	{"a plan in other letters", "saga.t.agent.py.NEW", `{"Plan":"NEW","planOpened":{}}`,
		"records[0].Plan: there is no such field; want did you mean plan?"},
	{"a parent's action without a parent", "saga.t.agent.py.NEW", `{"plan":"NEW","planOpened":{"parentAction":"a"}}`,
		"plan_opened.parent_action"},
}

// stores publishes a commit in JSON as a client without a library does, and returns where
// it is; the server has said yes to it.
func (r *rig) stores(subject, records string) uint64 {
	r.t.Helper()
	return r.publishes(subject, ledger.ContentTypeJSON, []byte(`{"records":[`+records+`]}`))
}

// TestTheWireSaysNoToMistakes: each message is stored, for the server knows nothing of
// its meaning; the fold refuses all records of it, by the field and with what would be
// right, and attributes them to the plan.
func TestTheWireSaysNoToMistakes(t *testing.T) {
	r := newRig(t)
	r.host("a")
	r.caughtUp()
	at := make([]uint64, len(wrongMessages))
	plans := make([]*strings.Replacer, len(wrongMessages))
	for i, c := range wrongMessages {
		plans[i] = strings.NewReplacer("PLAN", fmt.Sprint("p", i), "NEW", fmt.Sprint("n", i))
		subject := "saga.t.agent.py.PLAN"
		r.stores(plans[i].Replace(subject), plans[i].Replace(`{"plan":"PLAN","planOpened":{}}`))
		if c.subject != "" {
			subject = c.subject
		}
		at[i] = r.stores(plans[i].Replace(subject), plans[i].Replace(c.records))
	}
	r.caughtUp()
	refused := map[uint64][]api.Refused{}
	for after, more := uint64(0), true; more; {
		var page api.RefusedAnswer
		if err := r.ask("refused.ls", api.ListQuery{AfterSequence: after, Limit: 1000}, &page); err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Refused {
			refused[v.Sequence] = append(refused[v.Sequence], v)
			after = v.Sequence
		}
		more = len(page.Refused) > 0
	}
	for i, c := range wrongMessages {
		got := refused[at[i]]
		var records []json.RawMessage
		if err := json.Unmarshal([]byte("["+c.records+"]"), &records); err != nil || len(got) != len(records) {
			t.Errorf("%s: %d of %d records are refused, %v", c.name, len(got), len(records), err)
			continue
		}
		if !strings.Contains(got[0].Reason, c.want) {
			t.Errorf("%s: %s\nwant %s", c.name, got[0].Reason, c.want)
		}
		named := strings.Contains(c.records, "PLAN") || strings.Contains(c.records, "NEW") || c.subject == ""
		if want := plans[i].Replace(map[bool]string{true: "NEW", false: "PLAN"}[strings.Contains(c.subject, "NEW")]); named &&
			got[0].Plan != want {
			t.Errorf("%s: it is shown under plan %q, want %q", c.name, got[0].Plan, want)
		}
	}
}

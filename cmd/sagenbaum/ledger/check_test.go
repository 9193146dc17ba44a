package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

const opened = `{"records":[{"plan":"p1","planOpened":{"owner":"travel"}}]}`

// pair is a commit with a pair, whose undo reads an expression.
func pair(action, expression string) string {
	return fmt.Sprintf(`{"records":[{"plan":"p1","action":%q,"forwardRegistered":{"capability":"a.b","class":"CLASS_COMPENSABLE"}},
		{"plan":"p1","action":%q,"compensationRegistered":{"capability":"a.c","bindings":[{"name":"x","expression":%q}]}}]}`,
		action, action, expression)
}

func TestCommitsAreFoldedAsAnExecutorDoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, subject, text, want string }{
		{"a pair", "", opened + pair("a", "output.id"), "effective effective effective"},
		{"twice", "", opened + opened, "effective repeated"},
		{"an expression", "", opened + pair("a", "outptu.id"), "effective refused refused"},
		{"half a pair", "", opened + `{"records":[{"plan":"p1","action":"a","forwardRegistered":{"capability":"a.b","class":"CLASS_EFFECTLESS"}}]}`,
			"effective refused pair"},
		{"a misspelt field", "", `{"records":[{"plan":"p1","planOpend":{}}]}`, "refused records[0].planOpend"},
		{"no plan", "", `{"records":[{"plan":"p1","planCommitted":{}}]}`, "refused"},
		{"a fact", "", `{"records":[{"factAsserted":{"key":"k","value":"MQ=="}}]}`, "effective"},
		{"a fact on an agent's subject", "saga.default.agent.a._", `{"records":[{"factAsserted":{"key":"k","value":"MQ=="}}]}`,
			"refused fact_asserted"},
		{"an operator", "", opened + `{"records":[{"plan":"p1","cancelRequested":{"actor":"me"}}]}`, "effective effective"},
		{"another plan's subject", "saga.default.agent.a.p2", opened, "refused plan"},
	} {
		answer, err := Check("default", c.subject, []byte(c.text), time.Unix(1_900_000_000, 0))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, r := range answer.Records {
			got = append(got, strings.TrimSpace(r.Disposition+" "+r.Field))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s: %+v", c.name, s, c.want, answer)
		}
	}
	for _, c := range [][2]string{{"", ""}, {"", "{"}, {"", `[]`}, {"no.subject", opened}} {
		if answer, err := Check("default", c[0], []byte(c[1]), time.Now()); err == nil &&
			(len(answer.Records) == 0 || answer.Records[0].Disposition != "refused") {
			t.Errorf("%q on %q: %+v", c[1], c[0], answer)
		}
	}
}

// TestTheTailSaysOnceThatARecordIsRefused, though the error says so too.
func TestTheTailSaysOnceThatARecordIsRefused(t *testing.T) {
	m := ledger.Message{Sequence: 1, Subject: "saga.default.agent.a.p1", Data: []byte(`{"records":[{"plan":"p1",
		"action":"a","forwardRegistered":{"capability":"a.b","class":"CLASS_COMPENSABLE"}}]}`),
		ContentType: ledger.ContentTypeJSON}
	entries, err := ledger.Decode("default", m)
	if err != nil || len(entries) != 1 || entries[0].Err == nil {
		t.Fatalf("%+v, %v", entries, err)
	}
	got := tailer{}.line(m, entries[0], entries)
	if !strings.HasSuffix(got, "refused: "+strings.TrimPrefix(entries[0].Err.Error(), "refused: ")) ||
		strings.Count(got, "refused: ") != 1 {
		t.Error(got)
	}
}

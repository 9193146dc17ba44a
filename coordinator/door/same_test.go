package door_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

// other is a request under the id of an earlier one that states something else.
func (l *live) other(ask caller, user, verb, body, field, what string) {
	l.t.Helper()
	e := l.refused(ask, user, verb, body, 409, field)
	problem, _ := e["problem"].(string)
	if !strings.Contains(problem, "another "+what) && !strings.Contains(problem, "its "+what) ||
		e["stored"] != "nothing" {
		l.t.Errorf("%s %s: %v, want that its %s differs", verb, body, e, what)
	}
}

// TestAnIDThatIsGivenAgainIsOfTheSameAction, in the process that has registered it and after a crash.
func TestAnIDThatIsGivenAgainIsOfTheSameAction(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	act := `{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"},"after":["z"],"branch":true,"pivot":true}`
	report := `{"plan":"p","action":"b","capability":"file.write","input":{"path":"x"},"after":["z"],"output":{"n":1},"external_ref":"r1","before":{"text":"1"}}`
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.report", `{"plan":"p","action":"z","capability":"page.read"}`)
	for range 2 {
		for range 2 {
			l.good(l.post, "tripper", "plan.act", act)
			l.good(l.post, "tripper", "plan.report", report)
		}
		for what, change := range map[string][2]string{"input": {"Rome", "Oslo"}, "after": {`["z"]`, `[]`},
			"branch": {`,"branch":true`, ""}, "pivot": {`,"pivot":true`, ""}, "capability": {"hotel.book", "page.read"},
			"review": {`"branch"`, `"review":true,"branch"`}} {
			l.other(l.post, "tripper", "plan.act", strings.Replace(act, change[0], change[1], 1), "action", what)
		}
		for what, change := range map[string][2]string{"input": {`"x"`, `"y"`}, "after": {`["z"]`, `[]`},
			"output": {`{"n":1}`, `{"n":2}`}, "external_ref": {"r1", "r2"}, "before": {`{"text":"1"}`, `null`},
			"pivot": {`"after"`, `"pivot":true,"after"`}} {
			l.other(l.post, "tripper", "plan.report", strings.Replace(report, change[0], change[1], 1), "action", what)
		}
		l.crash()
	}
	outcome := `{"plan":"p","action":"a","outcome":"completed","external_ref":"e1"}`
	l.good(l.post, "tripper", "plan.outcome", outcome)
	l.other(l.post, "tripper", "plan.outcome", strings.Replace(outcome, "e1", "e2", 1), "outcome", "external_ref")
	l.good(l.post, "tripper", "plan.savepoint", `{"plan":"p","savepoint":"s"}`)
	l.good(l.post, "tripper", "plan.savepoint", `{"plan":"p","savepoint":"t"}`)
	back := `{"plan":"p","savepoint":"t","number":1}`
	for range 2 {
		l.good(l.post, "tripper", "plan.unwind_to", back)
	}
	l.other(l.post, "tripper", "plan.unwind_to", strings.Replace(back, `"t"`, `"s"`, 1), "number", "savepoint")
}

// TestAnIDOfARecordIsOfOneRecord: of a fact and of a verdict, also after the time for which the
// server knows it, and after a crash of the host within that.
func TestAnIDOfARecordIsOfOneRecord(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"a","capability":"page.read"}`)
	put := `{"id":"i1","key":"k","value":{"n":1.0}}`
	give := `{"id":"i1","plan":"p","action":"a","verdict":"allow","reason":"fine"}`
	fact := l.good(l.post, "scanner", "fact.put", put)
	verdict := l.good(l.post, "boss", "verdict.give", give)
	check := func() {
		t.Helper()
		if again := l.good(l.post, "scanner", "fact.put", put); again["sequence"] != fact["sequence"] {
			t.Errorf("a fact again: %v, %v", fact, again)
		}
		if again := l.good(l.post, "boss", "verdict.give", give); again["sequence"] != verdict["sequence"] {
			t.Errorf("a verdict again: %v, %v", verdict, again)
		}
		l.other(l.post, "scanner", "fact.put", strings.Replace(put, "1.0", "2.0", 1), "id", "value")
		l.other(l.post, "scanner", "fact.put", strings.Replace(put, `"k"`, `"l"`, 1), "id", "key")
		l.other(l.post, "scanner", "fact.put", strings.Replace(put, `}}`, `},"plan":"p"}`, 1), "id", "plan")
		l.other(l.post, "scanner", "fact.retract", `{"id":"i1","key":"k"}`, "id", "verb")
		l.other(l.post, "boss", "verdict.give", strings.Replace(give, "allow", "block", 1), "id", "verdict")
		l.other(l.post, "boss", "verdict.give", strings.Replace(give, "fine", "good", 1), "id", "reason")
	}
	check()
	l.crash()
	check()
	client, err := js.New(l.root)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.Stream(t.Context(), jetstream.StreamName(tenant))
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond
	if _, err := client.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testenv.Patience); ; <-time.After(20 * time.Millisecond) { // until ids are forgotten
		first := l.good(l.post, "scanner", "fact.put", `{"id":"i2","key":"m","value":1}`)
		<-time.After(200 * time.Millisecond)
		l.crash()
		again := l.good(l.post, "scanner", "fact.put", `{"id":"i2","key":"m","value":1}`)
		if first["sequence"] != again["sequence"] {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the server does not forget ids")
		}
	}
	fact, verdict = l.good(l.post, "scanner", "fact.put", put), l.good(l.post, "boss", "verdict.give", give)
	<-time.After(300 * time.Millisecond)
	check()
	l.knownForGood()
}

// knownForGood puts a fact under an id that no one but the ledger knows by the end.
func (l *live) knownForGood() {
	l.t.Helper()
	id := ulid.Make()
	put := fmt.Sprintf(`{"id":%q,"key":"n","value":1}`, id)
	l.good(l.post, "scanner", "fact.put", put)
	l.good(l.post, "scanner", "fact.put", `{"key":"n","value":2}`)
	<-time.After(300 * time.Millisecond)
	l.crash()
	again := l.good(l.post, "scanner", "fact.put", put)
	if value := again["fact"].(map[string]any)["value"]; value != 2.0 {
		l.t.Errorf("a fact that is put again under its id has another value now: %v", value)
	}
	l.refused(l.post, "scanner", "fact.put", strings.Replace(put, ":1}", ":3}", 1), 409, "id")
	old := strings.Replace(put, id.String(), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", 1)
	l.refused(l.post, "scanner", "fact.put", old, 422, "id")
}

// TestAPlanThatIsBegunAgainIsTheSame, in the process that has begun it and after a crash.
func TestAPlanThatIsBegunAgainIsTheSame(t *testing.T) {
	l := newLive(t)
	begin := `{"plan":"p","label":"trip","owner":"me","deadline":"2h","concurrency":3,"labels":{"a":"b"},"triggers":{"t":"false"}}`
	at := `{"plan":"q","deadline_at":"2100-01-01T00:00:00Z"}`
	for range 2 {
		l.good(l.post, "tripper", "plan.begin", begin)
		l.good(l.post, "tripper", "plan.begin", strings.Replace(begin, `"owner"`, `"on_undo_failure":"halt_unless_last","owner"`, 1))
		l.refused(l.post, "tripper", "plan.begin",
			strings.Replace(begin, `"owner"`, `"on_undo_failure":"halt","owner"`, 1), 422, "on_undo_failure")
		l.good(l.post, "tripper", "plan.begin", at)
		for field, change := range map[string][2]string{"label": {"trip", "walk"}, "owner": {"me", "you"},
			"deadline": {"2h", "3h"}, "concurrency": {"3", "4"}, "labels": {`"b"`, `"c"`}, "triggers": {"false", "true"},
			"second_approver": {`"owner"`, `"second_approver":true,"owner"`},
			"on_undo_failure": {`"owner"`, `"on_undo_failure":"continue","owner"`},
			"doubt_at_commit": {`"owner"`, `"doubt_at_commit":"accept","owner"`},
			"attach_token":    {`"owner"`, `"attach_token":"0123456789abcdef","owner"`}} {
			l.refused(l.post, "tripper", "plan.begin", strings.Replace(begin, change[0], change[1], 1), 422, field)
		}
		l.refused(l.post, "tripper", "plan.begin", strings.Replace(begin, `"deadline":"2h",`, "", 1), 422, "deadline")
		l.refused(l.post, "tripper", "plan.begin", strings.Replace(begin, "2h", "90m", 1), 422, "deadline")
		l.refused(l.post, "tripper", "plan.begin", strings.Replace(at, "2100", "2101", 1), 422, "deadline")
		l.refused(l.post, "tripper", "plan.begin", `{"plan":"q","deadline":"2h"}`, 422, "deadline")
		l.crash()
	}
}

// TestAnotherOutcomeIsToldWithWhatDiffers, in the process that has taken the first one and after a
// crash; of one that is no completion, which one is recorded.
func TestAnotherOutcomeIsToldWithWhatDiffers(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"}}`)
	done := `{"plan":"p","action":"a","outcome":"completed","output":{"booking":"1"},"external_ref":"e1"}`
	for range 2 {
		l.good(l.post, "tripper", "plan.outcome", done)
		for body, want := range map[string][2]string{
			strings.Replace(done, `"1"`, `"2"`, 1): {"action a: completed with another output (as recorded)",
				"the output that is recorded, in plan.get"},
			strings.Replace(done, "e1", "e2", 1): {"action a: completed with another external_ref (as recorded)",
				"the external_ref that is recorded, in plan.get"},
			`{"plan":"p","action":"a","outcome":"in_doubt"}`: {"action a: completed (as recorded)",
				"the outcome that is recorded: completed"},
		} {
			e := l.refused(l.post, "tripper", "plan.outcome", body, 409, "outcome")
			if e["stored"] != "nothing" || e["want"] != want[1] || !strings.HasSuffix(e["problem"].(string), want[0]) {
				t.Errorf("%s: %v, want %q", body, e, want)
			}
		}
		l.crash()
	}
}

// TestACommitNamesWhatStillRuns: the first actions whose outcomes were not told.
func TestACommitNamesWhatStillRuns(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	for i, want := range []string{"1 forwards still run: a", "2 forwards still run: a, b",
		"3 forwards still run: a, b, c", "4 forwards still run: a, b, c, ..."} {
		l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"`+"abcd"[i:i+1]+`","capability":"page.read"}`)
		if e := l.refused(l.post, "tripper", "plan.commit", `{"plan":"p"}`, 422, "plan"); e["problem"] != want {
			t.Errorf("%v, want %q", e, want)
		}
	}
}

// TestNoTimeAtAll is no deadline that a plan may have, and a request that waits for so long does not wait.
func TestNoTimeAtAll(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	for _, zero := range []string{"0s", "0", "0.000000s", "-0s"} {
		e := l.refused(l.post, "tripper", "plan.begin", `{"plan":"p","deadline":"`+zero+`"}`, 422, "deadline")
		if e["stored"] != "nothing" || e["want"] != "at least 1ms, or no such field" {
			t.Errorf("%s: %v", zero, e)
		}
	}
	set := l.good(l.post, "tripper", "plan.begin", `{"plan":"p","deadline":"1h"}`)["deadline_set"]
	l.refused(l.post, "tripper", "plan.deadline", deadline("p", `"deadline":"0s"`, set), 422, "deadline")
	began := time.Now()
	got := l.good(l.post, "tripper", "plan.wait", `{"plan":"p","wait":"0s"}`)
	if waited := time.Since(began); got["state"] != "open" || waited >= door.WaitDefault {
		t.Errorf("%v after %v", got, waited)
	}
}

// TestAnIDThatAnotherUserHasTakenIsTheSourcesAllTheSame: JetStream keeps one list of ids for all
// subjects of a ledger, and that of a request can be guessed.
func TestAnIDThatAnotherUserHasTakenIsTheSourcesAllTheSame(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"p"}`)
	l.good(l.post, "tripper", "plan.act", `{"plan":"p","action":"a","capability":"hotel.book","input":{"city":"Rome"}}`)
	agent := l.as("tripper")
	take := func(class ledger.Class, name, id string) {
		t.Helper()
		taken := ledger.Source{Tenant: tenant, Class: class, Name: name}
		own := ledger.Source{Tenant: tenant, Class: ledger.ClassAgent, Name: "tripper", Plan: "p"}
		sum := sha256.Sum256([]byte(taken.Subject() + "\n" + id))
		m := nats.NewMsg(own.Subject())
		m.Header.Set(nats.MsgIdHdr, hex.EncodeToString(sum[:ledger.IDLen/2]))
		m.Data = []byte(`{"records":[]}`)
		err := agent.PublishMsg(m)
		if err == nil {
			err = agent.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	take(ledger.ClassFact, "scanner", "order-9")
	take(ledger.ClassVerdict, "boss", "block-1")
	put := `{"id":"order-9","key":"order/9","value":"lost"}`
	first := l.good(l.post, "scanner", "fact.put", put)
	if again := l.good(l.post, "scanner", "fact.put", put); again["sequence"] != first["sequence"] {
		t.Errorf("%v, and again %v", first, again)
	}
	l.other(l.post, "scanner", "fact.put", `{"id":"order-9","key":"order/9","value":"found"}`, "id", "value")
	block := `{"id":"block-1","plan":"p","action":"a","verdict":"block","reason":"no"}`
	first = l.good(l.post, "boss", "verdict.give", block)
	if again := l.good(l.post, "boss", "verdict.give", block); again["sequence"] != first["sequence"] {
		t.Errorf("%v, and again %v", first, again)
	}
}

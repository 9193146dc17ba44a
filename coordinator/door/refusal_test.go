package door_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// refusedByTheFold are those that are found to be wrong when they are in the ledger.
var refusedByTheFold = []string{`{"key":"k","value":1,"plan":"open","action":"nobody"}`,
	`{"plan":"open","action":"nobody","verdict":"block","reason":"no"}`,
	`{"plan":"none","action":"run","verdict":"block","reason":"no"}`}

// wrong is a request that must be refused, with the field that it names.
type wrong struct {
	user, verb, body string
	status           int
	field            string
}

// good is one request of each verb that its decoder takes.
var good = map[string]string{
	"plan.begin":     `{"plan":"q"}`,
	"plan.act":       `{"plan":"open","action":"x","capability":"hotel.book","input":{"city":"Rome"}}`,
	"plan.outcome":   `{"plan":"open","action":"run","outcome":"completed"}`,
	"plan.report":    `{"plan":"open","action":"x","capability":"hotel.book"}`,
	"plan.savepoint": `{"plan":"open","savepoint":"s9"}`,
	"plan.unwind_to": `{"plan":"open","savepoint":"s","number":1}`,
	"plan.deadline":  `{"plan":"open","deadline":"2h","reason":"r","follows":1}`,
	"plan.commit":    `{"plan":"open"}`,
	"plan.fail":      `{"plan":"open","reason":"r"}`,
	"plan.cancel":    `{"plan":"open","reason":"r"}`,
	"plan.wait":      `{"plan":"open","wait":"1s"}`,
	"plan.get":       `{"plan":"open"}`,
	"plan.preview":   `{"plan":"open"}`,
	"plan.resume":    `{"plan":"open"}`,
	"plan.find":      `{"state":"open"}`,
	"fact.put":       `{"key":"k","value":1}`,
	"fact.retract":   `{"key":"k"}`,
	"verdict.give":   `{"plan":"open","action":"run","verdict":"allow"}`,
	"review.list":    `{"limit":1}`,
}

// userOf is who may ask a verb.
func userOf(verb string) string {
	switch {
	case strings.HasPrefix(verb, "fact."):
		return "scanner"
	case strings.HasPrefix(verb, "plan."):
		return "tripper"
	}
	return "boss"
}

// byHand are the mistakes that one makes by hand, among them those that the wire says yes to: what
// is stored there is refused by the fold, if at all, after the tool was called.
var byHand = []wrong{
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","inputs":{}}`, 422, "inputs"},
	{"", "plan.act", `{"plan":"open","action":"x","capabilty":"hotel.book"}`, 422, "capabilty"},
	{"", "plan.act", `{"plan":"open","action":"x"}`, 422, "capability"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.bok"}`, 422, "capability"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel book"}`, 422, "capability"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":""}`, 422, "capability"},
	{"", "plan.act", `{"plan":"open","capability":"hotel.book"}`, 422, "action"},
	{"", "plan.act", `{"plan":"open","action":"a b","capability":"hotel.book"}`, 422, "action"},
	{"", "plan.act", `{"plan":"open","action":"","capability":"hotel.book"}`, 422, "action"},
	{"", "plan.act", `{"action":"x","capability":"hotel.book"}`, 422, "plan"},
	{"", "plan.act", `{"plan":"none","action":"x","capability":"hotel.book"}`, 422, "plan"},
	{"", "plan.act", `{"plan":"theirs","action":"x","capability":"hotel.book"}`, 422, "plan"},
	{"", "plan.act", `{"plan":"done","action":"x","capability":"hotel.book"}`, 409, ""},
	{"", "plan.act", `{"plan":"open","action":"run","capability":"hotel.book","input":{"city":"Oslo"}}`, 409, "action"},
	{"", "plan.act", `{"plan":"open","action":"run","capability":"page.read"}`, 409, "action"},
	{"", "plan.act", `{"plan":"open","action":"told","capability":"page.read"}`, 409, "action"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","after":["nobody"]}`, 422, "after[0]"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","after":["x"]}`, 422, "after[0]"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","after":"run"}`, 422, "after"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","after":[1]}`, 422, "after[0]"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","review":"yes"}`, 422, "review"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","wait":"2h"}`, 422, "wait"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","wait":"-1s"}`, 422, "wait"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","wait":5}`, 422, "wait"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","input":"` + strings.Repeat("x", 70_000) + `"}`, 422, "body"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","input":"` + strings.Repeat("x", 300_000) + `"}`, 422, "body"},
	{"", "plan.act", `{"plan":"open","action":"x","action":"y","capability":"hotel.book"}`, 422, "action"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","writer":"nobody else"}`, 422, "writer"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","writer":"another"}`, 409, "writer"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"HOTEL.book"}`, 422, "capability"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","input":{"city":"Rome"}`, 422, "body"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book"}{}`, 422, "body"},
	{"", "plan.act", "\xff\xfe{\"plan\":\"open\"}", 422, "body"},
	{"", "plan.act", `{"plan":"open","action":"x\ud800","capability":"hotel.book"}`, 422, "action"},
	{"", "plan.act", "{\"plan\":\"open\",\"action\":\"x\xe9\",\"capability\":\"hotel.book\"}", 422, "action"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","input":"` + "\xe9\"}", 422, "input"},
	{"", "plan.act", `{"plan":"open","action":"x","capability":"hotel.book","input":{"city":"\ud800"}}`, 422, "input"},
	{"", "plan.begin", "{\"plan\":\"q\",\"owner\":\"\xe9\"}", 422, "owner"},
	{"", "plan.begin", "{\"plan\":\"q\",\"labels\":{\"\xe9\":\"x\"}}", 422, "labels"},
	{"", "fact.put", "{\"id\":\"i\",\"key\":\"k\",\"value\":\"\xe9\"}", 422, "value"},
	{"", "plan.begin", `{"plan":"theirs"}`, 409, "plan"},
	{"", "plan.begin", `{"plan":"open","label":"another"}`, 422, "label"},
	{"", "plan.begin", `{"plan":"open","writer":"another"}`, 409, "plan"},
	{"", "plan.begin", `{"plan":"_"}`, 422, "plan"},
	{"", "plan.begin", `{"plan":"a.b"}`, 422, "plan"},
	{"", "plan.begin", `{"plan":"` + strings.Repeat("p", 65) + `"}`, 422, "plan"},
	{"", "plan.begin", `{"plan":"q","deadline":"-2h"}`, 422, "deadline"},
	{"", "plan.begin", `{"plan":"q","deadline":"two hours"}`, 422, "deadline"},
	{"", "plan.begin", `{"plan":"q","deadline":7200}`, 422, "deadline"},
	{"", "plan.begin", `{"plan":"q","deadline_at":"2001-01-01T00:00:00Z"}`, 422, "deadline_at"},
	{"", "plan.begin", `{"plan":"q","deadline_at":"tomorrow"}`, 422, "deadline_at"},
	{"", "plan.begin", `{"plan":"q","deadline_at":"2600-01-01T00:00:00Z"}`, 422, "deadline_at"},
	{"", "plan.begin", `{"plan":"q","deadline_at":"0001-01-01T00:00:00Z"}`, 422, "deadline_at"},
	{"", "plan.begin", `{"plan":"q","deadline":"30us"}`, 422, "deadline"},
	{"", "plan.begin", `{"plan":"q","deadline":"2000000h"}`, 422, "deadline"},
	{"", "plan.begin", `{"plan":"q","deadline_at":1700000000}`, 422, "deadline_at"},
	{"", "plan.begin", `{"plan":"q","deadline":"2h","deadline_at":"2100-01-01T00:00:00Z"}`, 422, "deadline_at"},
	{"", "plan.begin", `{"plan":"q","triggers":{"t":"outptu.x =="}}`, 422, "triggers[t]"},
	{"", "plan.begin", `{"plan":"q","triggers":{"t":""}}`, 422, "triggers[t]"},
	{"", "plan.begin", `{"plan":"q","triggers":{"t":1}}`, 422, "triggers.t"},
	{"", "plan.begin", `{"plan":"q","triggers":["true"]}`, 422, "triggers"},
	{"", "plan.begin", `{"plan":"q","labels":{"a":1}}`, 422, "labels.a"},
	{"", "plan.begin", `{"plan":"q","labels":{"a":"1","a":"2"}}`, 422, "labels.a"},
	{"", "plan.begin", `{"plan":"q","concurrency":2000}`, 422, "concurrency"},
	{"", "plan.begin", `{"plan":"q","concurrency":-1}`, 422, "concurrency"},
	{"", "plan.begin", `{"plan":"q","concurrency":1.5}`, 422, "concurrency"},
	{"", "plan.begin", `{"plan":"q","concurrency":"8"}`, 422, "concurrency"},
	{"", "plan.begin", `{"plan":"q","on_undo_failure":"stop"}`, 422, "on_undo_failure"},
	{"", "plan.begin", `{"plan":"q","doubt_at_commit":"ignore"}`, 422, "doubt_at_commit"},
	{"", "plan.begin", `{"plan":"q","attach_token":"short"}`, 422, "attach_token"},
	{"", "plan.begin", `{"plan":"q","attach_token":"` + strings.Repeat("a", 65) + `"}`, 422, "attach_token"},
	{"", "plan.begin", `{"plan":"q","parent":"q"}`, 422, "parent"},
	{"", "plan.begin", `{"plan":"q","parent_action":"a"}`, 422, "parent_action"},
	{"", "plan.begin", `{"plan":"q","parent":"open","parent_action":"nobody"}`, 422, "parent_action"},
	{"", "plan.begin", `{"plan":"q","parent":"open","doubt_at_commit":"accept"}`, 422, "doubt_at_commit"},
	{"", "plan.begin", `{"plan":"q","parent_token":"0123456789abcdef"}`, 422, "parent_token"},
	{"", "plan.begin", `{"plan":"q","owner":"` + strings.Repeat("x", 5000) + `"}`, 422, "owner"},
	{"", "plan.outcome", `{"plan":"open","action":"nobody","outcome":"completed"}`, 422, "action"},
	{"", "plan.outcome", `{"plan":"open","action":"run"}`, 422, "outcome"},
	{"", "plan.outcome", `{"plan":"open","action":"run","outcome":"failed"}`, 422, "outcome"},
	{"", "plan.outcome", `{"plan":"open","action":"run","outcome":"Completed"}`, 422, "outcome"},
	{"", "plan.outcome", `{"plan":"open","action":"run","outcome":"in_doubt","output":{}}`, 422, "output"},
	{"", "plan.outcome", `{"plan":"open","action":"run","outcome":"not_taken","external_ref":"r"}`, 422, "external_ref"},
	{"", "plan.outcome", `{"plan":"open","action":"run","outcome":"completed","message":"m"}`, 422, "message"},
	{"", "plan.outcome", `{"plan":"open","action":"told","outcome":"not_taken"}`, 409, "outcome"},
	{"", "plan.outcome", `{"plan":"open","action":"told","outcome":"in_doubt"}`, 409, "outcome"},
	{"", "plan.outcome", `{"plan":"open","action":"told","outcome":"completed","output":2}`, 409, "outcome"},
	{"", "plan.outcome", `{"plan":"open","action":"run","outcome":"completed","writer":"another"}`, 409, "writer"},
	{"", "plan.report", `{"plan":"open","action":"x","capability":"file.write","input":{"path":"x"}}`, 422, "before"},
	{"", "plan.report", `{"plan":"open","action":"run","capability":"hotel.book","input":{"city":"Rome"}}`, 409, "action"},
	{"", "plan.report", `{"plan":"open","action":"x","capability":"nothing.known"}`, 422, "capability"},
	{"", "plan.report", `{"plan":"open","action":"x","capability":"file.write","before":"` + strings.Repeat("x", 40_000) + `"}`, 422, "before"},
	{"", "plan.report", `{"plan":"open","action":"x","capability":"hotel.book","review":true}`, 422, "review"},
	{"", "plan.savepoint", `{"plan":"open","savepoint":"two words"}`, 422, "savepoint"},
	{"", "plan.savepoint", `{"plan":"open","savepoint":""}`, 422, "savepoint"},
	{"", "plan.savepoint", `{"plan":"done","savepoint":"s"}`, 409, ""},
	{"", "plan.unwind_to", `{"plan":"open","savepoint":"nowhere","number":1}`, 422, "savepoint"},
	{"", "plan.unwind_to", `{"plan":"open","savepoint":"s","number":0}`, 422, "number"},
	{"", "plan.unwind_to", `{"plan":"open","savepoint":"s","number":2}`, 422, "number"},
	{"", "plan.unwind_to", `{"plan":"open","savepoint":"s"}`, 422, "number"},
	{"", "plan.unwind_to", `{"plan":"done","savepoint":"s","number":1}`, 409, ""},
	{"", "plan.deadline", `{"plan":"open","reason":"r","follows":1}`, 422, "deadline"},
	{"", "plan.deadline", `{"plan":"open","deadline":"2h","deadline_at":"2100-01-01T00:00:00Z","reason":"r","follows":1}`, 422, "deadline_at"},
	{"", "plan.deadline", `{"plan":"open","deadline":"-2h","reason":"r","follows":1}`, 422, "deadline"},
	{"", "plan.deadline", `{"plan":"open","deadline_at":"2600-01-01T00:00:00Z","reason":"r","follows":1}`, 422, "deadline_at"},
	{"", "plan.deadline", `{"plan":"open","deadline":"2h","reason":"","follows":1}`, 422, "reason"},
	{"", "plan.deadline", `{"plan":"open","deadline":"2h","reason":"  ","follows":1}`, 422, "reason"},
	{"", "plan.deadline", `{"plan":"open","deadline":"2h","reason":"r","follows":0}`, 422, "follows"},
	{"", "plan.deadline", `{"plan":"open","deadline":"2h","reason":"r","follows":2000000}`, 422, "follows"},
	{"", "plan.deadline", `{"plan":"open","deadline":"2h","reason":"r","follows":1}`, 422, "follows"},
	{"", "plan.deadline", `{"plan":"none","deadline":"2h","reason":"r","follows":1}`, 422, "plan"},
	{"", "plan.deadline", `{"plan":"theirs","deadline":"2h","reason":"r","follows":1}`, 422, "plan"},
	{"", "plan.commit", `{"plan":"open"}`, 422, "plan"}, // a tool of it is being called
	{"", "plan.commit", `{"plan":"undone"}`, 409, "plan"},
	{"", "plan.commit", `{"plan":"open","reason":"good"}`, 422, "reason"},
	{"", "plan.fail", `{"plan":"done","reason":"r"}`, 409, "plan"},
	{"", "plan.cancel", `{"plan":"done"}`, 409, "plan"},
	{"", "plan.wait", `{"plan":"none"}`, 422, "plan"},
	{"", "plan.wait", `{"plan":"open","wait":"61s"}`, 422, "wait"},
	{"", "plan.get", `{"plan":"theirs"}`, 422, "plan"},
	{"", "plan.preview", `{"plan":"open","to":"nowhere"}`, 422, "to"},
	{"", "plan.preview", `{"plan":"theirs"}`, 422, "plan"},
	{"", "plan.resume", `{"plan":"theirs"}`, 422, "plan"},
	{"", "plan.find", `{"state":"half"}`, 422, "state"},
	{"", "plan.find", `{"limit":1001}`, 422, "limit"},
	{"", "plan.find", `{"agent":"other"}`, 422, "agent"},
	{"", "fact.put", `{"key":"","value":1}`, 422, "key"},
	{"", "fact.put", `{"key":"` + strings.Repeat("k", 300) + `","value":1}`, 422, "key"},
	{"", "fact.put", `{"key":"k","value":"` + strings.Repeat("v", 70_000) + `"}`, 422, "body"},
	{"", "fact.put", `{"key":"k","value":1,"id":"a b"}`, 422, "id"},
	{"", "fact.put", `{"key":"k","value":1,"action":"a"}`, 422, "plan"},
	{"", "fact.put", `{"key":"k","value":1,"plan":"open","action":"nobody"}`, 422, "action"},
	{"", "fact.retract", `{"key":"k","value":1}`, 422, "value"},
	{"", "verdict.give", `{"plan":"open","action":"run","verdict":"maybe"}`, 422, "verdict"},
	{"", "verdict.give", `{"plan":"open","action":"nobody","verdict":"block","reason":"no"}`, 422, "action"},
	{"", "verdict.give", `{"plan":"none","action":"run","verdict":"block","reason":"no"}`, 422, "plan"},
	{"", "verdict.give", `{"plan":"open","action":"run","verdict":"block","scope":"tenant"}`, 422, "scope"},
	{"", "verdict.give", `{"plan":"open","action":"run","verdict":"block"}`, 422, "reason"},
	{"", "verdict.give", `{"plan":"open","action":"run","verdict":"redirect","reason":" \t\n"}`, 422, "reason"},
	{"", "verdict.give", `{"plan":"open","action":"run","verdict":"redirect"}`, 422, "reason"},
	{"", "verdict.give", `{"plan":"open","action":"run","verdict":"allow","scope":"plan"}`, 422, "scope"},
	{"", "plan.preview", `{"plan":"open","action":"nobody"}`, 422, "action"},
	{"", "plan.preview", `{"plan":"open","action":"run","to":"s"}`, 422, "action"},
	{"", "review.list", `{"after":"zz"}`, 422, "after"},
	{"", "review.list", `{"limit":5000}`, 422, "limit"},
	{"", "review.list", `{"plan":"open"}`, 422, "action"},
	{"", "review.list", `{"action":"x"}`, 422, "plan"},
	{"", "review.list", `{"plan":"open","action":"x","after":"00"}`, 422, "after"},
}

// byRule are the mistakes that any field can have: nothing, another type, a second time; and any
// body.
func byRule() (all []wrong) {
	values := []string{`1`, `"x"`, `true`, `{}`, `[]`, `null`}
	for _, v := range door.Verbs() {
		schema := v.Request
		all = append(all, wrong{"", v.Name, ``, 422, "body"}, wrong{"", v.Name, `[]`, 422, "body"},
			wrong{"", v.Name, `"text"`, 422, "body"}, wrong{"", v.Name, `null`, 422, "body"},
			wrong{"", v.Name, good[v.Name][:len(good[v.Name])-1] + `,"no_such_field":1}`, 422, "no_such_field"})
		for i := range schema.NumField() {
			f := schema.Field(i)
			name, kind := f.Tag.Get("json"), f.Type.Kind().String()+f.Type.Name()
			var given map[string]json.RawMessage
			if err := json.Unmarshal([]byte(good[v.Name]), &given); err != nil {
				panic(err)
			}
			if f.Tag.Get("req") != "" {
				less := maps.Clone(given)
				delete(less, name)
				all = append(all, wrong{"", v.Name, text(less), 422, name})
			}
			takes := map[string][]int{"stringstring": {1, 5}, "boolbool": {2, 5}, "intint": {0, 5}, "slice": {4, 5},
				"map": {3, 5}, "int64Duration": {5}, "structInstant": {5}, "sliceRawMessage": {0, 1, 2, 3, 4, 5}}[kind]
			for j, value := range values {
				if slices.Contains(takes, j) {
					continue
				}
				other := maps.Clone(given)
				other[name] = json.RawMessage(value)
				all = append(all, wrong{"", v.Name, text(other), 422, name})
			}
		}
	}
	return all
}

func text(v any) string {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(body)
}

// TestAPlanThatExistsIsSaidToBeWhose, with what the door has for it, once.
func TestAPlanThatExistsIsSaidToBeWhose(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.good(l.post, "other", "plan.begin", `{"plan":"theirs"}`)
	l.good(l.post, "tripper", "plan.begin", `{"plan":"open"}`)
	for begin, want := range map[string][2]any{
		`{"plan":"theirs"}`: {"the plan exists already: a plan of agent other", "an id of its own for each plan"},
		`{"plan":"open","writer":"another"}`: {"the plan exists already: it is open, begun by another process",
			"plan.resume, to go on with it, or an id of its own for each plan"},
	} {
		e := l.refused(l.post, "tripper", "plan.begin", begin, 409, "plan")
		if e["problem"] != want[0] || e["want"] != want[1] {
			t.Errorf("%v; want %v", e["problem"], e["want"])
		}
	}
}

// TestWrongMessagesAreRefusedByTheirField: each names what is wrong, says that nothing is stored,
// and lets no tool be called.
func TestWrongMessagesAreRefusedByTheirField(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	other := l.request(l.as("other"), "other")
	l.good(other, "other", "plan.begin", `{"plan":"theirs"}`)
	for _, s := range [][2]string{{"plan.begin", `{"plan":"open","writer":"door"}`},
		{"plan.act", `{"plan":"open","action":"told","capability":"hotel.book"}`},
		{"plan.outcome", `{"plan":"open","action":"told","outcome":"completed","output":1}`},
		{"plan.savepoint", `{"plan":"open","savepoint":"s"}`},
		{"plan.act", `{"plan":"open","action":"run","capability":"hotel.book","input":{"city":"Rome"}}`},
		{"plan.begin", `{"plan":"done"}`}, {"plan.commit", `{"plan":"done"}`},
		{"plan.begin", `{"plan":"undone"}`}, {"plan.fail", `{"plan":"undone"}`}} {
		l.good(l.post, "tripper", s[0], s[1])
	}
	before := l.records()
	ways := map[string]caller{"http": l.post}
	conns := map[string]caller{}
	for _, u := range []string{"tripper", "scanner", "boss"} {
		conns[u] = l.request(l.as(u), u)
	}
	ways["nats"] = func(user, verb, body string) (int, map[string]any) { return conns[user](user, verb, body) }
	all := append(slices.Clone(byHand), byRule()...)
	if len(all) < 222 {
		t.Errorf("only %d", len(all))
	}
	for name, ask := range ways {
		for _, w := range all {
			e := l.refused(ask, userOf(w.verb), w.verb, w.body, w.status, w.field)
			stored := door.StoredNothing
			if slices.Contains(refusedByTheFold, w.body) {
				stored = door.StoredAll
			}
			if e["stored"] != stored {
				t.Errorf("%s: %s %.100s: %v", name, w.verb, w.body, e)
			}
		}
	}
	t.Logf("%d wrong messages, each over NATS and HTTP", len(all))
	for kind, n := range l.records() {
		switch kind {
		case "fact_asserted", "verdict_given", "plan_resumed": // refused by the fold
		default:
			if n != before[kind] {
				t.Errorf("%d records of kind %s, %d before", n, kind, before[kind])
			}
		}
	}
}

// TestAnAgentActsOnlyAsItself.
func TestAnAgentActsOnlyAsItself(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	token, begin := l.token("tripper"), `{"plan":"p1"}`
	for _, c := range []struct {
		token, path string
		status      int
		field       string
	}{
		{token, "/v1/default/other/plan.begin", 403, "name"}, {token, "/v1/second/tripper/plan.begin", 403, "tenant"},
		{token, "/v1/second/far/plan.begin", 403, "tenant"}, {token, "/v1/default/tripper/fact.put", 403, "verb"},
		{token, "/v1/default/tripper/verdict.give", 403, "verb"}, {token, "/v1/default/tripper/review.list", 403, "verb"},
		{token, "/v1/default/boss/verdict.give", 403, "name"}, {token, "/v1/default/scanner/fact.put", 403, "name"},
		{l.token("scanner"), "/v1/default/scanner/plan.begin", 403, "verb"},
		{l.token("boss"), "/v1/default/boss/plan.begin", 403, "verb"},
		{l.token("reader"), "/v1/default/reader/plan.get", 401, "authorization"},
		{l.token("far"), "/v1/default/far/plan.begin", 403, "tenant"},
		{l.token("w1"), "/v1/default/w1/plan.begin", 401, "authorization"},
		{"", "/v1/default/tripper/plan.begin", 401, "authorization"},
		{"x", "/v1/default/tripper/plan.begin", 401, "authorization"},
		{token[:len(token)-4] + "AAAA", "/v1/default/tripper/plan.begin", 401, "authorization"},
		{"sbt1_.", "/v1/default/tripper/plan.begin", 401, "authorization"},
		{token, "/v1/default/tripper/plan.nothing", 404, "verb"},
		{token, "/v1/default/tripper", 404, ""}, {token, "/v1/../tripper/plan.begin", 404, ""},
	} {
		status, answer := l.send(c.token, c.path, "application/json", begin)
		e, _ := answer["error"].(map[string]any)
		if field, _ := e["field"].(string); status != c.status || field != c.field || e["want"] == nil {
			t.Errorf("%s: %d %v, want %d with field %q", c.path, status, answer, c.status, c.field)
		}
	}
	if status, _ := l.send(token, "/v1/default/tripper/plan.begin", "text/plain", begin); status != 422 {
		t.Errorf("another content type: %d", status)
	}
	conn := l.as("tripper")
	for _, subject := range []string{api.DoorSubject(tenant, "other", "plan.begin"),
		api.DoorSubject("second", "far", "plan.begin"),
		api.DoorSubject(tenant, "tripper", "fact.put"), api.DoorSubject(tenant, "boss", "verdict.give")} {
		if err := conn.PublishRequest(subject, conn.NewRespInbox(), []byte(begin)); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := l.records()["plan_opened"]; n != 0 {
		t.Errorf("%d plans were opened", n)
	}
	if err := l.users.Remove(tenant, "tripper"); err != nil {
		t.Fatal(err)
	}
	status, _ := l.send(token, "/v1/default/tripper/plan.begin", "application/json", begin)
	if status != http.StatusUnauthorized {
		t.Errorf("a user that was removed: %d", status)
	}
}

// TestTheOpenAPIDocumentHasEveryVerb.
func TestTheOpenAPIDocumentHasEveryVerb(t *testing.T) {
	var doc struct {
		OpenAPI    string
		Paths      map[string]any
		Components struct {
			Schemas map[string]struct{ Required []string }
		}
	}
	if err := json.Unmarshal(door.OpenAPI("1"), &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatalf("%v %q", err, doc.OpenAPI)
	}
	page, err := os.ReadFile("../../docs/door.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range door.Verbs() {
		if !strings.Contains(string(page), "`"+v.Name+"`") {
			t.Errorf("docs/door.md does not name %s", v.Name)
		}
		if doc.Paths["/v1/{tenant}/{name}/"+v.Name] == nil {
			t.Errorf("%s is missing", v.Name)
		}
	}
	if got := fmt.Sprint(doc.Components.Schemas["ActRequest"].Required); got != "[plan action capability]" {
		t.Errorf("plan.act requires %s", got)
	}
}

package api_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

func given(purpose string) api.Command {
	return api.Command{Purpose: purpose, Key: "0f3a", Attempt: 2}
}

// TestAFieldThatCannotBeReadCostsOnlyItself: what a worker has done stays done, whatever else it
// says of it.
func TestAFieldThatCannotBeReadCostsOnlyItself(t *testing.T) {
	done := api.Reply{Key: "0f3a", Attempt: 2, Status: api.StatusDone}
	const head = `{"key":"0f3a","attempt":2,"status":"done"`
	for _, c := range []struct {
		text   string
		change func(r *api.Reply)
		unread string // fields
	}{
		{head + `}`, nil, ""},
		{head + `,"external_ref":481516}`, func(r *api.Reply) { r.ExternalRef = "481516" }, ""},
		{head + `,"external_ref":18446744073709551617.50}`, func(r *api.Reply) { r.ExternalRef = "18446744073709551617.50" }, ""},
		{head + `,"code":404}`, func(r *api.Reply) { r.Code = "404" }, ""},
		{head + `,"message":-1e3,"worker":7}`, func(r *api.Reply) { r.Message, r.Worker = "-1e3", "7" }, ""},
		{head + `,"work_ns":4.1e6,"setup_ns":"12","tool_ns":3.0,"llm_ns":null}`,
			func(r *api.Reply) { r.WorkNs, r.SetupNs, r.ToolNs = 4_100_000, 12, 3 }, ""},
		{head + `,"until_ms":1.7960832e12}`, func(r *api.Reply) { r.UntilMs = 1796083200000 }, ""},
		{`{"key":"0f3a","attempt":2.0,"status":"done"}`, nil, ""},
		{`{"key":"0f3a","attempt":"2","status":"done"}`, nil, ""},
		{`{"Key":"0f3a","ATTEMPT":2e0,"Status":"done","Code":null}`, nil, ""},
		{" \n" + head + `,"more":{"a":[1,"}"]},"code":"x"} ` + "\n", func(r *api.Reply) { r.Code = "x" }, ""},
		{head + `,"output":{"a":NaN},"code":"x"}`, func(r *api.Reply) { r.Code = "x" }, "reply.output"},
		{head + `,"output":-Infinity}`, nil, "reply.output"},
		{head + `,"output":[1}],"code":"x"}`, nil, "reply.output reply"},
		{head + `,"output":null}`, func(r *api.Reply) { r.Output = []byte("null") }, ""},
		{head + `,"external_ref":{"id":1},"code":["a"],"message":true,"worker":NaN}`, nil,
			"reply.worker reply.code reply.message reply.external_ref"},
		{head + `,"code":"a` + "\n" + `b","message":"\x1b","worker":"w"}`, func(r *api.Reply) { r.Worker = "w" },
			"reply.code reply.message"},
		{head + `,"message":"He said "no"","worker":"w"}`, func(r *api.Reply) { r.Worker = "w" }, "reply.message"},
		{head + `,"work_ns":-1,"setup_ns":1.5,"tool_ns":1e40,"llm_ns":"long","until_ms":,"code":"x"}`,
			func(r *api.Reply) { r.Code = "x" }, "reply.until_ms reply.work_ns reply.setup_ns reply.tool_ns reply.llm_ns"},
		{head + `,"code":"a","code":"a","worker":"v","worker":"w"}`, func(r *api.Reply) { r.Code = "a" }, "reply.worker"},
		{head + `}warning: deprecated`, nil, "reply"},
		{head + `,"code":"x","output":{"a":`, func(r *api.Reply) { r.Code = "x" }, "reply"},
		{head + `,"code":"x",message:"y"}`, func(r *api.Reply) { r.Code = "x" }, "reply"},
	} {
		want := done
		if c.change != nil {
			c.change(&want)
		}
		got, unread, err := given("undo").ReadReply([]byte(c.text))
		var names []string
		for _, m := range unread {
			names = append(names, m.Field)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || strings.Join(names, " ") != c.unread {
			t.Errorf("%s:\nread %+v, %v, %v\nwant %+v, unread %q", c.text, got, unread, err, want, c.unread)
		}
	}
}

// TestAQuestionIsNotAnsweredWithoutItsOutput: an output that cannot be read must not be taken for
// one that is not there.
func TestAQuestionIsNotAnsweredWithoutItsOutput(t *testing.T) {
	for _, purpose := range []string{api.PurposeProbe, api.PurposeVerify, api.PurposeBefore} {
		for _, output := range []string{`{"n":NaN}}`, `{"n":1},"output":2}`, `[1`} {
			r, unread, err := given(purpose).ReadReply([]byte(`{"key":"0f3a","attempt":2,"status":"done","output":` + output))
			if err != nil || len(unread) == 0 || r.Status != api.StatusFailed || r.Code != api.CodeBadReply || r.Output != nil {
				t.Errorf("%s, %s: %+v, %v, %v", purpose, output, r, unread, err)
			}
		}
		r, _, err := given(purpose).ReadReply([]byte(`{"key":"0f3a","attempt":2,"status":"done"}`))
		if err != nil || r.Status != api.StatusDone {
			t.Errorf("%s without output: %+v, %v", purpose, r, err)
		}
	}
}

// TestWhatDoesNotSayWhatItAnswersIsNoAnswer: and what cannot be read is not quoted, as it may be
// secret.
func TestWhatDoesNotSayWhatItAnswersIsNoAnswer(t *testing.T) {
	for text, field := range map[string]string{
		`{"attempt":2,"status":"done"}`:                                 "reply.key",
		`{"key":["0f3a"],"attempt":2,"status":"done"}`:                  "reply.key",
		`{"key":"0f3a","key":"secret","attempt":2,"status":"done"}`:     "reply.key",
		`{"key":"0f3a","attempt":1,"status":"done"}`:                    "reply.attempt",
		`{"key":"0f3a","attempt":2.5,"status":"done"}`:                  "reply.attempt",
		`{"key":"0f3a","attempt":-2,"status":"done"}`:                   "reply.attempt",
		`{"key":"0f3a","attempt":4294967298,"status":"done"}`:           "reply.attempt",
		`{"key":"0f3a","attempt":"secret","status":"done","code":NaN}`:  "reply.attempt",
		`{"key":"0f3a","attempt":{"secret":2},"status":"done","a":1,}]`: "reply.attempt",
		`{"key":"0f3a","status":"done","attempt":2`:                     "reply.attempt", // of 23, perhaps
		`{"key":"0f3a","attempt":2,"message":"x`:                        "",
		`{'key':'0f3a','attempt':2,'status':'done'}`:                    "reply.key",
		`["secret"]`: "",
		`secret`:     "",
		``:           "",
	} {
		_, unread, err := given("undo").ReadReply([]byte(text))
		var wrong *api.Mismatch
		if err == nil || len(unread) > 0 || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", text, unread, err)
		}
		if errors.As(err, &wrong) != (field != "") || wrong != nil && wrong.Field != field {
			t.Errorf("%s: %v, want a refusal of %q", text, err, field)
		}
	}
}

// FuzzReadReply: no text stops who reads it, and what is taken has been said.
func FuzzReadReply(f *testing.F) {
	for _, text := range []string{`{"key":"0f3a","attempt":2,"status":"done"}`, `{"output":{"a":NaN}} x`, `{"a`, `{"a":"\`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, unread, err := given("undo").ReadReply(text)
		if err == nil && (r.Key != "0f3a" || r.Attempt != 2 || min(r.WorkNs, r.SetupNs, r.ToolNs, r.LLMNs, r.UntilMs) < 0) {
			t.Errorf("%q: %+v", text, r)
		}
		if slices.Contains(unread, nil) {
			t.Errorf("%q: %v", text, unread)
		}
	})
}

func TestAPageIsTakenByItsID(t *testing.T) {
	got, unread, err := api.ReadTaking([]byte(`{"id":"2.0-ab","by":7,"more":NaN}`))
	if err != nil || got != (api.Taking{ID: "2.0-ab", By: "7"}) || len(unread) > 0 {
		t.Errorf("%+v, %v, %v", got, unread, err)
	}
	got, unread, err = api.ReadTaking([]byte(`{"id":"2.0-ab","by":{"name":"ann"}}`))
	if err != nil || got.ID != "2.0-ab" || got.By != "" || len(unread) != 1 {
		t.Errorf("%+v, %v, %v", got, unread, err)
	}
}

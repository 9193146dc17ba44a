package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func (w *wired) answers(capability string, a Answerer) {
	w.t.Helper()
	if err := w.Answer(capability, a); err != nil {
		w.t.Fatal(err)
	}
}

// question is a probe of the world about the action that command(key) undoes.
func question(key, purpose string) api.Command {
	c := command(key)
	c.Purpose, c.Capability, c.Forward, c.ExternalRef = purpose, "file.stat", "file.write", "inode-7"
	return c
}

func TestS109WhatAnAnswerersEndMeans(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer Answer
		err    error
		want   api.Reply
	}{
		{"present", Present("r"), nil,
			api.Reply{Status: "done", Output: json.RawMessage(`{"presence":"present","external_ref":"r"}`)}},
		{"absent", Absent(), nil, api.Reply{Status: "done", Output: json.RawMessage(`{"presence":"absent"}`)}},
		{"duplicate", Duplicate("r2"), nil,
			api.Reply{Status: "done", Output: json.RawMessage(`{"presence":"duplicate","external_ref":"r2"}`)}},
		{"inconclusive", Inconclusive("two of three say no"), nil,
			api.Reply{Status: "done", Output: json.RawMessage(`{"presence":"inconclusive","reason":"two of three say no"}`)}},
		{"its own", Answer{Output: []int{1}}, nil, api.Reply{Status: "done", Output: json.RawMessage(`[1]`)}},
		{"nothing", Answer{}, nil, api.Reply{Status: "done", Output: json.RawMessage(`null`)}},
		{"failed", Answer{}, errors.New("locked"), api.Reply{Status: "failed", Code: "error", Message: "locked"}},
		{"stop", Answer{}, Stop(errors.New("no such account")),
			api.Reply{Status: "stop", Code: "stop", Message: "no such account"}},
		{"later", Answer{}, Working(time.Now()),
			api.Reply{Status: "failed", Code: "bad_answer", Message: "a question cannot be answered later"}},
		{"too large", Answer{Output: strings.Repeat("x", OutputMax)}, nil,
			api.Reply{Status: "failed", Code: "bad_answer",
				Message: fmt.Sprintf("output left out: %d bytes, at most %d", OutputMax+2, OutputMax)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := wire(t, nil)
			w.answers("file.stat", func(_ context.Context, got api.Command) (Answer, error) {
				if got.Forward != "file.write" || got.ExternalRef != "inode-7" || got.Key != "k1" {
					t.Errorf("question %+v", got)
				}
				return c.answer, c.err
			})
			for _, purpose := range []string{api.PurposeProbe, api.PurposeVerify, api.PurposeBefore} {
				got := <-w.send(question("k1", purpose))
				got.Worker, got.WorkNs = "", 0
				want := question("k1", purpose).Answer(c.want)
				if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
					t.Errorf("%s: got %+v, want %+v", purpose, got, want)
				}
			}
		})
	}
}

func TestACommandMustFitItsSubject(t *testing.T) {
	w := wire(t, nil)
	w.handle("file.stat", func(context.Context, api.Command) (Result, error) { return Result{}, nil })
	w.answers("file.stat", func(context.Context, api.Command) (Answer, error) { return Absent(), nil })
	for _, c := range []struct {
		subject, purpose, code string
	}{
		{"undo.default.file.stat", "", ""},
		{"undo.default.file.stat", ledger.PurposeUndo, ""},
		{"undo.default.file.stat", api.PurposeProbe, CodeBadCommand},
		{"undo.default.file.stat", api.PurposeBefore, CodeBadCommand},
		{"ask.default.file.stat", api.PurposeVerify, ""},
		{"ask.default.file.stat", ledger.PurposeUndo, CodeBadCommand},
		{"ask.default.file.stat", "", CodeBadCommand},
		{"ask.default.file.stat", "look", CodeBadCommand},
	} {
		if r := <-w.sendTo(c.subject, question("k1", c.purpose)); r.Code != c.code ||
			(r.Status == api.StatusDone) != (c.code == "") {
			t.Errorf("purpose %q on %s: %+v", c.purpose, c.subject, r)
		}
	}
	wantRefused(t, w.Answer("file.stat", func(context.Context, api.Command) (Answer, error) { return Absent(), nil }),
		"capability")
	wantRefused(t, w.Answer("file.stat2", nil), "answerer")
}

// TestAQuestionDoesNotFence: agents may ask, and must not be able to keep the
// executor's commands out.
func TestAQuestionDoesNotFence(t *testing.T) {
	w := wire(t, nil)
	w.handle("file.delete", func(context.Context, api.Command) (Result, error) { return Result{}, nil })
	w.answers("file.stat", func(context.Context, api.Command) (Answer, error) { return Absent(), nil })
	for _, c := range []struct {
		purpose string
		term    uint64
		code    string
	}{
		{api.PurposeProbe, 1 << 60, ""},
		{ledger.PurposeUndo, 3, ""},
		{api.PurposeProbe, 2, CodeStaleTerm},
		{api.PurposeVerify, 2, CodeStaleTerm},
		{api.PurposeBefore, 0, ""},
		{api.PurposeBefore, 1 << 60, ""},
		{ledger.PurposeUndo, 3, ""},
		{ledger.PurposeUndo, 2, CodeStaleTerm},
	} {
		q := question("k1", c.purpose)
		if c.purpose == ledger.PurposeUndo {
			q = command("k1")
		}
		q.Term = c.term
		if r := <-w.send(q); r.Code != c.code {
			t.Errorf("%s of term %d: %+v", c.purpose, c.term, r)
		}
	}
}

// TestAQuestionWaitsForTheUndoOfItsKey: an undo that timed out may still be at
// work; what is asked about it then is answered when it has ended (S30).
func TestAQuestionWaitsForTheUndoOfItsKey(t *testing.T) {
	w := wire(t, func(c *Config) { c.Concurrency = 1 })
	started, finish, order := make(chan struct{}), make(chan struct{}), make(chan string, 10)
	w.handle("file.delete", func(context.Context, api.Command) (Result, error) {
		close(started)
		<-finish
		order <- "undo"
		return Result{ExternalRef: "undone"}, nil
	})
	w.answers("file.stat", func(_ context.Context, c api.Command) (Answer, error) {
		order <- c.Purpose
		return Absent(), nil
	})
	undo := w.send(command("k1"))
	<-started
	probe, verify := w.send(question("k1", api.PurposeProbe)), w.send(question("k1", api.PurposeVerify))
	w.waitBehind("k1", 2)
	again := w.send(question("k1", api.PurposeProbe)) // joins the first probe, or asks once more after it
	close(finish)
	if r := <-undo; r.ExternalRef != "undone" {
		t.Errorf("undo: %+v", r)
	}
	for _, answer := range []<-chan api.Reply{probe, verify, again} {
		if r := <-answer; r.Status != api.StatusDone || string(r.Output) != `{"presence":"absent"}` {
			t.Errorf("answer %+v", r)
		}
	}
	if first := <-order; first != "undo" {
		t.Errorf("%s came first", first)
	}
	if n := len(w.places); n > 1 {
		t.Errorf("%d places are taken", n)
	}
}

// TestAQuestionIsAnsweredAsItWasAsked: agents may ask, under any key. What they ask about
// another object must not be what the executor, or another agent, is answered.
func TestAQuestionIsAnsweredAsItWasAsked(t *testing.T) {
	for _, purpose := range []string{api.PurposeProbe, api.PurposeBefore} {
		w := wire(t, nil)
		started, finish := make(chan struct{}, 2), make(chan struct{})
		w.answers("file.stat", func(_ context.Context, c api.Command) (Answer, error) {
			started <- struct{}{}
			<-finish
			if string(c.Arguments) == `{"path":"/tmp/a"}` {
				return Present("inode 7"), nil
			}
			return Absent(), nil
		})
		forged := question("k1", purpose)
		forged.Arguments, forged.Term = json.RawMessage(`{"path":"/nowhere"}`), 1<<60
		other := w.send(forged)
		<-started
		own := w.send(question("k1", purpose))
		if err := w.executor.Flush(); err != nil {
			t.Fatal(err)
		}
		for joined := false; !joined; { // taken in, one way or the other
			w.mu.Lock()
			if f := w.flights["k1"]; f != nil {
				joined = len(f.waiting) > 1 || len(f.behind) > 0
			}
			w.mu.Unlock()
		}
		close(finish)
		if r := <-other; string(r.Output) != `{"presence":"absent"}` {
			t.Errorf("%s: the forged question is answered %+v", purpose, r)
		}
		if r := <-own; string(r.Output) != `{"presence":"present","external_ref":"inode 7"}` {
			t.Errorf("%s: the executor is answered %s, what another question asked", purpose, r.Output)
		}
	}
}

// waitBehind returns when n flights are after the one of a key.
func (w *wired) waitBehind(key string, n int) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		w.mu.Lock()
		have := 0
		if f := w.flights[key]; f != nil {
			have = len(f.behind)
		}
		w.mu.Unlock()
		if have == n {
			return
		}
		if err := w.executor.Flush(); err != nil { // a round trip to the server, instead of a sleep
			w.t.Fatal(err)
		}
	}
	w.t.Fatalf("no %d flights behind key %s", n, key)
}

func TestS31TheReplyTellsWhereTheTimeWent(t *testing.T) {
	w := wire(t, nil)
	for name, failure := range map[string]error{"file.delete": nil, "file.erase": errors.New("locked")} {
		w.handle(name, func(context.Context, api.Command) (Result, error) {
			return Result{Timing: Timing{Setup: 1, Tool: 2, LLM: 3}}, failure
		})
		c := command("k1")
		c.Capability = name
		if r := <-w.sendTo("undo.default."+name, c); r.SetupNs != 1 || r.ToolNs != 2 || r.LLMNs != 3 || r.WorkNs <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	w.answers("file.stat", func(context.Context, api.Command) (Answer, error) {
		return Answer{Timing: Timing{Tool: 4}}, nil
	})
	if r := <-w.send(question("k1", api.PurposeProbe)); r.ToolNs != 4 {
		t.Errorf("%+v", r)
	}
}

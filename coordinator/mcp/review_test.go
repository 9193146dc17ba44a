package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// waits waits until one action waits for a verdict, and returns it.
func (w *world) waits() api.Review {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), testenv.Patience)
	defer cancel()
	for {
		reply, err := w.conn.RequestWithContext(ctx, api.ReviewLs.Subject("default"), []byte("{}"))
		if err != nil {
			w.t.Fatal(err)
		}
		var answer api.ReviewAnswer
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			w.t.Fatal(err)
		}
		if len(answer.Reviews) == 1 {
			return answer.Reviews[0]
		}
	}
}

// A call that waits for a verdict is one of a supervisor: the person at the client is told where it
// is given, and not asked for it, also where the client could ask.
func TestACallThatWaitsForAVerdictSaysSo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		outcome pb.VerdictOutcome
		says    string
		notes   []string
	}{
		{pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW, "", []string{"a"}},
		{pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK, "policy 7", []string{}},
	} {
		t.Run(test.outcome.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.notes(t)
			pack := config.Packs[0]
			add := pack.Tools["add"]
			add.Review = true
			pack.Tools["add"] = add
			heard, asked := make(chan *sdk.ProgressNotificationParams, 1), make(chan string, 1)
			c := w.gateway(mcp.Config{ServeUndos: true}, &sdk.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
					heard <- r.Params
				},
				ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					asked <- r.Params.Message
					return &sdk.ElicitResult{Action: "accept"}, nil
				},
			}, config)
			done := make(chan *sdk.CallToolResult, 1)
			t.Cleanup(func() {
				for range done { // the call has ended with the context of the test
				}
			})
			go func() {
				defer close(done)
				params := &sdk.CallToolParams{Name: "add", Arguments: map[string]any{"text": "a"}}
				params.SetProgressToken("mine")
				r, err := c.session.CallTool(t.Context(), params)
				if err != nil {
					t.Error(err)
					return
				}
				done <- r
			}()
			told, waits := <-heard, w.waits()
			if told.ProgressToken != "mine" || !strings.Contains(told.Message, "sagenbaum review allow") ||
				!strings.Contains(told.Message, waits.Plan) {
				t.Errorf("the client is told %+v of %s", told, waits.Plan)
			}
			if got := lines(file); len(got) != 0 {
				t.Errorf("it was called before its verdict: %v", got)
			}
			w.appends(ledger.Source{Tenant: "default", Class: ledger.ClassVerdict, Name: "compliance"},
				&pb.Record{Plan: waits.Plan, Action: waits.Action, Kind: &pb.Record_VerdictGiven{
					VerdictGiven: &pb.VerdictGiven{Outcome: test.outcome, Reason: "policy 7"}}})
			r := <-done
			if r == nil || r.IsError != (test.says != "") || !strings.Contains(said(r), test.says) {
				t.Errorf("the call says %+v %s", r, said(r))
			}
			if got := lines(file); !slices.Equal(got, test.notes) {
				t.Errorf("the notes are %v, want %v", got, test.notes)
			}
			select {
			case message := <-asked:
				t.Errorf("the person at the client is asked %q", message)
			default:
			}
		})
	}
}

// needsVerdict is a pack in which calls of a tool wait for a verdict.
func needsVerdict(pack mcp.Pack, tool string) mcp.Pack {
	pack.Tools = maps.Clone(pack.Tools)
	t := pack.Tools[tool]
	t.Review = true
	pack.Tools[tool] = t
	return pack
}

// reviewedFiles is the filesystem server on a folder, whose calls of write_file wait for verdicts.
func (w *world) reviewedFiles(dir string) mcp.ServerConfig {
	w.t.Helper()
	packs, err := mcp.BuiltIn()
	if err != nil {
		w.t.Fatal(err)
	}
	config := w.files(dir)
	for _, pack := range packs {
		if pack.Files {
			config.Packs = append(config.Packs, needsVerdict(pack, "write_file"))
		}
	}
	return config
}

// calling calls a tool, and returns where its result will be.
func (c *client) calling(ctx context.Context, tool string, arguments map[string]any,
	meta sdk.Meta) <-chan *sdk.CallToolResult {
	done := make(chan *sdk.CallToolResult, 1)
	c.t.Cleanup(func() { <-done }) // nil where it was taken: the call has ended with its context
	go func() {
		defer close(done)
		r, err := c.session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments, Meta: meta})
		if err == nil {
			done <- r
		} else if ctx.Err() == nil {
			c.t.Error(err)
		}
	}()
	return done
}

// allows allows the one action that waits for a verdict.
func (w *world) allows() {
	w.t.Helper()
	w.rules(w.waits(), pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW)
}

// rules gives a verdict on an action.
func (w *world) rules(on api.Review, outcome pb.VerdictOutcome) {
	w.t.Helper()
	w.appends(ledger.Source{Tenant: "default", Class: ledger.ClassVerdict, Name: "compliance"},
		&pb.Record{Plan: on.Plan, Action: on.Action, Kind: &pb.Record_VerdictGiven{
			VerdictGiven: &pb.VerdictGiven{Outcome: outcome}}})
}

// attempts counts the dispatches of the undos of a plan.
func (w *world) attempts(plan string) (n int) {
	w.t.Helper()
	for _, r := range w.records(plan) {
		if r.GetCompensationDispatched() != nil {
			n++
		}
	}
	return n
}

// records are those of a plan so far.
func (w *world) records(plan string) (list []*pb.Record) {
	w.t.Helper()
	store, err := jetstream.Open(w.t.Context(), jetstream.Config{Conn: w.conn, Tenant: "default",
		DurableServer: w.durable})
	if err != nil {
		w.t.Fatal(err)
	}
	head, err := store.Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for message, err := range store.Read(w.t.Context(), 1) {
		if err != nil {
			w.t.Fatal(err)
		}
		entries, err := ledger.Decode("default", message)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Record.Plan == plan {
				list = append(list, e.Record)
			}
		}
		if message.Sequence == head.Last {
			break
		}
	}
	return list
}

// The undo of another plan needs no second attempt because of a call that waits for a verdict.
func TestAnUndoDoesNotWaitForAVerdict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, file := w.notes(t)
	config.Packs[0] = needsVerdict(config.Packs[0], "add")
	plan := planOf(w.gateway(mcp.Config{}, nil, config).call("slow", map[string]any{"text": "earlier"}))
	c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
	added := c.calling(t.Context(), "add", map[string]any{"text": "a"}, nil)
	w.waits()
	w.undoes(plan, "")
	if got := lines(file); len(got) != 0 {
		t.Errorf("the notes are %v", got)
	}
	if n := w.attempts(plan); n != 1 {
		t.Errorf("the undo has taken %d attempts", n)
	}
	w.allows()
	if r := <-added; r == nil || r.IsError || !slices.Equal(lines(file), []string{"a"}) {
		t.Errorf("the call says %+v, the notes are %v", r, lines(file))
	}
}

// What an undo would put back is what is there when the call is made, or it is not made.
func TestACallIsNotMadeWhereWhatWasThereHasChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"nothing": nil,
		"another file in the folder": func(path string) error {
			return os.WriteFile(path+".other", nil, 0o644)
		},
		"its bytes": func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o644) },
		"its mode":  func(path string) error { return os.Chmod(path, 0o600) },
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte("before"), 0o644), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, dir := newWorld(t), t.TempDir()
			path := filepath.Join(dir, "a.txt")
			if err := os.WriteFile(path, []byte("before"), 0o644); err != nil {
				t.Fatal(err)
			}
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, w.reviewedFiles(dir))
			wrote := c.calling(t.Context(), "write_file", map[string]any{"path": path, "content": "ours"}, nil)
			w.waits()
			made := name == "nothing" || strings.HasPrefix(name, "another")
			if change != nil {
				if err := change(path); err != nil {
					t.Fatal(err)
				}
			}
			there := picture(t, dir)
			w.allows()
			r := <-wrote
			switch {
			case r == nil:
				t.Fatal("the call has no answer")
			case made && r.IsError:
				t.Errorf("the call says %s", said(r))
			case !made && (!r.IsError || !strings.Contains(said(r), "has changed while it waited") ||
				!strings.HasSuffix(said(r), "Nothing was done.")):
				t.Errorf("the call says %s", said(r))
			case !made && differ(there, picture(t, dir)) != "":
				t.Errorf("the folder has changed: %s", differ(there, picture(t, dir)))
			}
			if !made {
				return
			}
			if r := c.reports("plan_fail", nil); r.State != "compensated" {
				t.Errorf("the plan is %+v", r)
			}
			if content, err := os.ReadFile(path); err != nil || string(content) != "before" {
				t.Errorf("after its undo there is %q, %v", content, err)
			}
		})
	}
}

// A call with a key that its client has given up is made when it is repeated, as long as what was
// there before it is known; otherwise it says so.
func TestACallThatWasGivenUpUnderReviewIsMadeWhenItIsRepeated(t *testing.T) {
	t.Parallel()
	for _, between := range []bool{false, true} {
		t.Run(fmt.Sprint("another call between: ", between), func(t *testing.T) {
			t.Parallel()
			w, dir := newWorld(t), t.TempDir()
			c := w.gateway(mcp.Config{}, nil, w.reviewedFiles(dir))
			path := filepath.Join(dir, "a.txt")
			arguments, key := map[string]any{"path": path, "content": "ours"}, sdk.Meta{"sagenbaum/key": "k"}
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			first := c.calling(ctx, "write_file", arguments, key)
			w.waits()
			giveUp()
			<-first
			if between {
				c.does("create_directory", map[string]any{"path": filepath.Join(dir, "sub")})
			}
			w.allows()
			again := c.call("write_file", arguments, "sagenbaum/key", "k")
			for strings.Contains(said(again), "context canceled") { // the first one is still being given up
				again = c.call("write_file", arguments, "sagenbaum/key", "k")
			}
			_, missing := os.ReadFile(path)
			switch {
			case !between && (again.IsError || missing != nil):
				t.Errorf("repeated it says %s: %v", said(again), missing)
			case between && (!again.IsError || missing == nil ||
				!strings.Contains(said(again), "is not known here any more")):
				t.Errorf("repeated it says %s: %v", said(again), missing)
			}
		})
	}
}

// What a server says beside of what is meant is no change, where the contract keeps what is meant.
func TestAnAnswerOfWhichAPartIsKeptIsComparedByThatPart(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		t.Run(fmt.Sprint("keeps: ", keeps), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, file := w.notes(t)
			pack := needsVerdict(config.Packs[0], "add")
			add := pack.Tools["add"]
			add.Before = &mcp.Ask{Tool: "tell"}
			if keeps {
				add.Before.Keep = map[string]mcp.Keep{"notes": {Like: "[{'text': input.text}]", By: []string{"text"}}}
			}
			pack.Tools["add"], pack.Tools["tell"] = add, mcp.Tool{Class: contract.Effectless}
			config.Packs[0] = pack
			c := w.gateway(mcp.Config{}, nil, config)
			for _, text := range []string{"a", "b"} {
				added := c.calling(t.Context(), "add", map[string]any{"text": text}, nil)
				w.allows()
				if r := <-added; r == nil || r.IsError == keeps {
					t.Errorf("the call says %s", said(r))
				}
			}
			if got := len(lines(file)); keeps && got != 2 || !keeps && got != 0 {
				t.Errorf("there are %d notes", got)
			}
		})
	}
}

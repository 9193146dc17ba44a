package mcp_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
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

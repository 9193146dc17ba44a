package mcp_test

import (
	"context"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// What a server answers to a call that was given up counts: its undo reads the answer, and the call is
// no doubt. An error says nothing, for it may be an answer to the cancellation.
func TestALateAnswerOfACallThatWasGivenUpCounts(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"it is cancelled": true, "it takes too long": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, file, c := session(t)
			calls := func(tool, text string) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				called := make(chan struct{})
				go func() {
					defer close(called)
					_, _ = c.session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: note{Text: text},
						Meta: sdk.Meta{"sagenbaum/key": text}}) // it is given up
				}()
				if w.until("it is called", func() bool { return strings.Contains(strings.Join(lines(file), " "), text) }); gone {
					cancel()
				}
				<-called
			}
			c.does("add", map[string]any{"text": "earlier"})
			calls("lazy", "late")
			calls("hang", "doubt") // once nothing of the other one can happen any more
			c.does("add", map[string]any{"text": "next"})
			states := map[string]string{}
			for _, e := range c.reports("what_can_be_undone", nil).Can {
				states[e.Tool] = e.How
			}
			if states["lazy"] != "exact" || !strings.Contains(states["hang"], "no one knows whether it has happened") {
				t.Errorf("can be undone: %v", states)
			}
			if again := c.call("lazy", map[string]any{"text": "late"}, "sagenbaum/key", "late"); again.IsError ||
				said(again) != "added" || strings.Count(strings.Join(lines(file), " "), "late") != 1 {
				t.Errorf("repeated with its key: %s", said(again))
			}
			if got := c.reports("plan_fail", nil); got.State != "compensated" || len(lines(file)) != 0 {
				t.Errorf("%+v, left %v", got, lines(file))
			}
		})
	}
}

// An answer that comes while the plan is being undone is in time for its undo.
func TestALateAnswerCountsWhileItsPlanIsBeingUndone(t *testing.T) {
	t.Parallel()
	w, file, c := session(t)
	w.givesUp(c, "lazy", file)
	if got := c.reports("plan_fail", nil); got.State != "compensated" || len(lines(file)) != 0 {
		t.Errorf("%+v, left %v", got, lines(file))
	}
}

// An answer that comes before the server is told that no one waits counts as well, and an error proves
// nothing.
func TestALateAnswerIsWhatItSays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"soon": "exact", "error": "no one knows whether it has happened"} {
		w, file, c := session(t)
		w.leaves(c, "lazy", text, file)
		if err := appendNote(file, note{Text: "go"}); err != nil {
			t.Fatal(err)
		}
		c.does("add", map[string]any{"text": "next"}) // once nothing of the other one can happen any more
		for _, e := range c.reports("what_can_be_undone", nil).Can {
			if e.Tool == "lazy" && !strings.Contains(e.How, want) {
				t.Errorf("%s: %s", text, e.How)
			}
		}
	}
}

package agentloop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/sagenbaum/sagenbaum/coordinator/worker/agentloop"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A model undoes an action with the tools that its contract has named, here one that answers from a
// script: it closes the pull request, and says that it is done.
func Example() {
	script := []string{
		`{"tool_calls":[{"id":"1","type":"function","function":{"name":"git_pr_close","arguments":"{\"pr\":7}"}}]}`,
		`{"content":"{\"status\":\"done\",\"message\":\"closed\"}"}`,
	}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"choices":[{"message":%s}]}`, script[0])
		script = script[1:]
	}))
	defer model.Close()
	call := func(_ context.Context, c agentloop.Call) (any, error) {
		fmt.Println(c.Tool, string(c.Arguments), "under", c.Key)
		return map[string]string{"state": "closed"}, nil
	}
	handler, err := agentloop.New(agentloop.Config{
		Endpoint: model.URL + "/v1/chat/completions", Model: "small",
		Tools: map[string]agentloop.Tool{
			"git.pr.close":      {Description: "closes a pull request", Call: call},
			"git.branch.delete": {Description: "deletes a branch of no open pull request", Call: call},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// worker.Handle("git.pr.undo", handler) has it called with commands like this one.
	result, err := handler(context.Background(), api.Command{
		Capability: "git.pr.undo", Forward: "git.pr.open", Arguments: json.RawMessage(`{"pr":7}`),
		Key: "0f3a5c7e9b1d2f4a6c8e0b1d3f5a7c9e", Attempt: 1, TimeoutMs: 10_000,
		Agent: &api.AgentTask{Tools: []string{"git.pr.close", "git.branch.delete"},
			Prompt: "Close the pull request, and delete its branch if you have made it."},
	})
	output, _ := json.Marshal(result.Output) // it is kept with the record of the undo
	fmt.Println(string(output), err)
	// Output:
	// git.pr.close {"pr":7} under 0f3a5c7e9b1d2f4a6c8e0b1d3f5a7c9e
	// {"model":"small","turns":2,"called":[{"tool":"git.pr.close"}],"message":"closed"} <nil>
}

package cmdtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// Get asks a URL and returns the status and the body of the answer.
func Get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// ServeWatched starts `serve` with its numbers, and returns where they are.
func ServeWatched(t *testing.T, args ...string) (_ *Served, address string) {
	t.Helper()
	command := ServeCommand(t, DataDir(t),
		append([]string{"--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}, args...)...)
	s := ServeAs(t, "", command)
	var r serve.Ready
	if err := json.Unmarshal([]byte(s.Said), &r); err != nil || r.Metrics == "" {
		t.Fatalf("serve says nothing of its numbers: %s", s.Said)
	}
	return s, "http://" + r.Metrics
}

// FreeAddress is one that nothing listens on now.
func FreeAddress(t *testing.T) string {
	t.Helper()
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

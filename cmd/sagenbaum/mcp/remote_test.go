package mcp

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// A server at a URL is read from a client's configuration, and from the flags of a gateway in it,
// with headers from the environment that the gateway has.
func TestAServerAtAURLIsReadFromAConfiguration(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("TEST_TOKEN", "own")
	entries, err := new(options).readFile(hostedFile(t, `
		"a": {"type": "http", "url": "https://example.com/a", "headers": {"Authorization": "Bearer ${TEST_TOKEN}",
			"X-B": "${TEST_NONE:-none}"}, "settle": "90s", "instance": "mine", "roots": ["/srv"], "env": {"A": "1"}},
		"b": {"command": "sagenbaum", "args": ["mcp", "--url", "https://example.com/b?c=d", "--settle", "45s", "--header",
			"Authorization=TEST_TOKEN"], "env": {"TEST_TOKEN": "of the client"}},
		"c": {"command": "/bin/sagenbaum", "args": ["mcp", "--url", "http://127.0.0.1:1", "--server-name", "x"]}`))
	if err != nil || len(entries) != 3 {
		t.Fatal(err, entries)
	}
	for i, want := range []mcp.ServerConfig{
		{Name: "a", URL: "https://example.com/a", Headers: map[string]string{"Authorization": "Bearer own", "X-B": "none"},
			Settle: 90 * time.Second, Instance: "mine"},
		{Name: "example-com", URL: "https://example.com/b?c=d", Headers: map[string]string{"Authorization": "of the client"},
			Settle: 45 * time.Second},
		{Name: "x", URL: "http://127.0.0.1:1"},
	} {
		got := entries[i].config
		if got.Name != want.Name || got.URL != want.URL || !maps.Equal(got.Headers, want.Headers) ||
			got.Settle != want.Settle || got.Instance != want.Instance || entries[i].problem != nil {
			t.Errorf("%+v, %v, want %+v", got, entries[i].problem, want)
		}
		if err := entries[i].hostable(); err != nil {
			t.Errorf("a host does not serve it: %v", err)
		}
		got.State = t.TempDir()
		if server, err := mcp.NewServer(got); err != nil {
			t.Error(err)
		} else {
			server.Close()
		}
	}
}

// What is missing is named, and what may be a secret is not said.
func TestAServerAtAURLThatCannotBeCalledIsSaid(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	const secret = "Bearer s3cret"
	const gateway = `{"command": "sagenbaum", "args": ["mcp", "--url", "https://a", `
	for entry, want := range map[string]string{
		`{"url": "https://a", "headers": {"B": "${TEST_NONE}"}}`:                       "headers.B: there is no variable TEST_NONE",
		`{"type": "sse", "url": "https://a"}`:                                          `type is "sse"`,
		`{"url": "https://a", "settle": "0s"}`:                                         `settle is "0s": want 1ms to `,
		gateway + `"--settle", "0s"]}`:                                                 `"--settle" flag: want 1ms to `,
		`{"url": "https://a", "settle": "soon"}`:                                       `settle is "soon"`,
		`{"url": "http://example.com/?key=` + secret + `"}`:                            "http is for this machine alone",
		`{"headers": {"A": "1"}}`:                                                      "has no command",
		gateway + `"--header", "A=TEST_NONE"]}`:                                        "--header A names no variable",
		gateway + `"--header", "A=` + secret + `"]}`:                                   "--header A names no variable",
		gateway + `"--header", "A=1", "--header", "` + secret + `"]}`:                  "--header A names no variable",
		gateway + `"--header", "` + secret + `"]}`:                                     "--header 1 of 1 has no =",
		gateway + `"--", "cat"]}`:                                                      "--url names the server",
		`{"command": "sagenbaum", "args": ["mcp", "--header", "A=HOME", "--", "cat"]}`: "--header without --url",
	} {
		_, said := asked(t, 0, hostedFile(t, fmt.Sprintf(`"x": %s`, entry)))
		said = strings.ReplaceAll(said, `\"`, `"`)
		if !strings.Contains(said, want) || strings.Contains(said, "s3cret") {
			t.Errorf("%s: it says %s, want %s", entry, said, want)
		}
	}
	o := &options{url: "https://a", file: "x"}
	var f *cli.Failure
	if _, err := o.read(nil); !errors.As(err, &f) || f.Code != cli.ExitUsage {
		t.Errorf("--url and --config: %v", err)
	}
	o = &options{url: "https://a", settle: time.Minute}
	if line := strings.Join(o.workerLine(nil), " "); !strings.HasSuffix(line, "--url https://a --settle 1m0s") {
		t.Errorf("its worker is %s", line)
	}
	for _, wrong := range []string{"-1m", "0s", "0", "1ns", "90000h", "soon"} {
		flags := pflag.NewFlagSet("mcp", pflag.ContinueOnError)
		o.flags(flags)
		if err := flags.Parse([]string{"--settle", wrong}); err == nil ||
			!strings.Contains(err.Error(), `"--settle" flag: want 1ms to `) {
			t.Errorf("--settle %s: %v", wrong, err)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// lab runs a command line of the lab in this process.
func lab(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Execute(t.Context(), newRoot(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func labJSON[T any](t *testing.T, args ...string) (v T) {
	t.Helper()
	_, stdout, stderr := lab(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s%s", err, stdout, stderr)
	}
	return v
}

func TestSimRunsAWorldAndShowsIt(t *testing.T) {
	code, one, stderr := lab(t, "sim", "--seed", "7", "--trace")
	if code != cli.ExitGood {
		t.Errorf("one world: exit code %d: %s", code, stderr)
	}
	for _, text := range []string{"holds term 1", "plan_opened", ": effective", "! crash: dies", "no rule is broken"} {
		if !strings.Contains(one, text) {
			t.Errorf("the trace does not show %q", text)
		}
	}
	shown := labJSON[simView](t, "sim", "--seed", "7")
	if !strings.Contains(one, shown.TraceHash) || shown.Options != "seed=7" || shown.Records == 0 {
		t.Errorf("as JSON: %+v", shown)
	}
	many := labJSON[simsView](t, "sim", "--seed", "1", "--seeds", "20")
	if many.Worlds != 20 || len(many.Failures) != 0 || len(many.Faults) == 0 {
		t.Errorf("many: %+v", many)
	}
}

func TestSimRefusesWhatMakesNoSense(t *testing.T) {
	for _, args := range [][]string{{"--without", "crush"}, {"--drop", "9"}, {"--hosts", "-1"}, {"--seeds", "0"},
		{"--seeds", "2", "--trace"}} {
		code, _, stderr := lab(t, append([]string{"sim"}, args...)...)
		if code != cli.ExitUsage || !strings.Contains(stderr, "next:") {
			t.Errorf("%s: exit code %d, %s", strings.Join(args, " "), code, stderr)
		}
	}
}

func TestTheServerIsTheOneThatIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "another")
	if err := os.WriteFile(file, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := serverBinary(t.Context(), file, t.TempDir())
	if err != nil || got != file {
		t.Errorf("%q, %v, want %q", got, err, file)
	}
}

func TestEveryCommandOfTheLabHasAnExample(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() != "help" && (cmd.Short == "" || cmd.Example == "") {
			t.Errorf("%s has no short text or no example", cmd.CommandPath())
		}
	}
}

package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const evil = "a\x1b]0;pwn\x07b\u202ec\u200bd\u009be\u2066f"

func TestForPeopleReachesEveryStringAndLeavesTheOriginal(t *testing.T) {
	plan := api.Plan{
		Plan: evil, Labels: map[string]string{evil: evil}, Orphans: []string{evil},
		Actions: []api.Action{{Note: evil, Input: json.RawMessage(`"` + "\u202e" + `"`), After: []int{1, 2},
			Leases: []api.Lease{{Waits: []string{evil}}}}},
	}
	raw, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	clean := cli.ForPeople(plan)
	shown, err := json.Marshal(clean)
	if err != nil {
		t.Fatal(err)
	}
	if text := clean.Actions[0].Leases[0].Waits[0] + clean.Orphans[0] + clean.Labels[cli.Printable(evil)] + string(
		clean.Actions[0].Input); text != cli.Printable(text) {
		t.Errorf("something is left: %s", shown)
	}
	if again, err := json.Marshal(plan); err != nil || string(again) != string(raw) ||
		len(clean.Actions[0].After) != 2 {
		t.Errorf("the original changed to %s, or the copy lost numbers (%v)", again, err)
	}
}

func TestErrorsNeverSendEscapesToTheTerminal(t *testing.T) {
	var out strings.Builder
	broken := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		return cli.Fail(cli.ExitFailed, "see "+evil, "broken: %s", evil)
	}}
	if code := cli.Execute(t.Context(), broken, nil, nil, &out); code != cli.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	checkPrintable(t, "finish", out.String())
}

func checkPrintable(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && (unicode.Is(unicode.Cf, r) || unicode.IsControl(r)) {
			t.Errorf("%s sends %U to the terminal: %q", what, r, text)
			return
		}
	}
}

// What an agent writes into its labels, reasons and payloads reaches an
// operator's terminal as visible text, and programs exactly as it was.
func TestWhatAnAgentWroteReachesATerminalAsTextOnly(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	agent, err := coordinator.New(coordinator.Config{Conn: cmdtest.Dial(t, s.URL), Tenant: "default", Agent: "tester",
		Contracts: []contract.Contract{
			{Capability: "mail.send", Class: contract.Irreversible},
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	plan, err := agent.Begin(ctx, coordinator.PlanSpec{ID: "p1", Label: "label " + evil, Owner: "owner " + evil})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Report(ctx, coordinator.Action{Capability: "mail.send", Input: evil},
		coordinator.Outcome{Output: evil, ExternalRef: evil}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Fail(ctx, "reason "+evil); err != nil {
		t.Fatal(err)
	}
	s.Ask(t, "default", "plan", "cancel", "p1", "--wait") // whatever it says: the unwind has ended then
	for _, line := range []string{
		"plan ls", "plan tree p1", "plan show p1", "quarantine ls", "ledger tail --since 1", "status", "doctor",
		"plan show " + strings.ReplaceAll(evil, " ", ""), "plan " + evil,
		"quarantine resolve p1 " + evil + " --as done --reason x --evidence y",
		"quarantine resolve p1 1 --as done --reason x --evidence " + evil,
	} {
		r := s.Ask(t, "default", strings.Fields(line)...)
		if r.Stdout+r.Stderr == "" {
			t.Errorf("%q says nothing", line)
		}
		checkPrintable(t, line, r.Stdout+r.Stderr)
	}
	shown := cmdtest.Decoded[api.Plan](t, s.Ask(t, "default", "plan", "show", "p1", "-o", "json"))
	if shown.Label != "label "+evil || shown.Owner != "owner "+evil || shown.Actions[0].Evidence != evil {
		t.Errorf("JSON is not exact: %q, %q, %q", shown.Label, shown.Owner, shown.Actions[0].Evidence)
	}
	tail := s.Ask(t, "default", "ledger", "tail", "--since", "1", "-o", "json")
	if label, _ := json.Marshal("label " + evil); !strings.Contains(tail.Stdout, strings.Trim(string(label), `"`)) &&
		!strings.Contains(tail.Stdout, "\u202e") {
		t.Errorf("the JSON of tail is not exact: %s", tail.Stdout)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

func TestColourIsTheOnlyEscapeThatTablesSend(t *testing.T) {
	var out strings.Builder
	tab := cli.Table{Head: []string{"A", "B"},
		Paint: func(_ int, cell string) string { return cli.Pen{Color: true}.State(cell) }}
	tab.Add(evil, "open")
	tab.Write(&out)
	if got := strings.NewReplacer("\x1b[36m", "", "\x1b[0m", "").Replace(out.String()); strings.Contains(got, "\x1b") ||
		!strings.Contains(out.String(), "\x1b[36mopen") {
		t.Errorf("the table is %q", out.String())
	}
	if cli.WantsColor(os.Stdin) && cli.WantsColor(&out) {
		t.Error("a buffer is no terminal")
	}
}

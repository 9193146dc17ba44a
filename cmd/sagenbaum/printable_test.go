package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/executor"
)

const evil = "a\x1b]0;pwn\x07b\u202ec\u200bd\u009be\u2066f"

func TestPrintableShowsWhatATerminalWouldObey(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"plain ä 漢 ─ 😀", "plain ä 漢 ─ 😀"},
		{"\x1b]0;pwn\x07", `\x1b]0;pwn\x07`},
		{"\u202egnp.exe", `\u202egnp.exe`},
		{"\u2066\u2069\u200b\u200f\ufeff\u00ad", `\u2066\u2069\u200b\u200f\ufeff\xad`},
		{"\u009b31m", `\x9b31m`},
		{"\x9b31m", "\uFFFD31m"}, // C1 as a byte is no UTF-8
		{"two\nlines\tand\u2028more", "two lines and more"},
		{"\U000e0041", `\U000e0041`},
		{"\u3164", `\u3164`},
	} {
		if got := printable(c.text); got != c.want {
			t.Errorf("printable(%q) is %q, want %q", c.text, got, c.want)
		}
	}
}

func TestForPeopleReachesEveryStringAndLeavesTheOriginal(t *testing.T) {
	view := executor.PlanView{
		Plan: evil, Labels: map[string]string{evil: evil}, Orphans: []string{evil},
		Actions: []executor.ActionView{{Note: evil, Input: json.RawMessage(`"` + "\u202e" + `"`), After: []int{1, 2}, Leases: []executor.LeaseView{{Waits: []string{evil}}}}},
	}
	raw, err := json.Marshal(view)
	if err != nil {
		t.Fatal(err)
	}
	clean := forPeople(view)
	shown, err := json.Marshal(clean)
	if err != nil {
		t.Fatal(err)
	}
	if text := clean.Actions[0].Leases[0].Waits[0] + clean.Orphans[0] + clean.Labels[printable(evil)] + string(clean.Actions[0].Input); text != printable(text) {
		t.Errorf("something is left: %s", shown)
	}
	if again, err := json.Marshal(view); err != nil || string(again) != string(raw) || len(clean.Actions[0].After) != 2 {
		t.Errorf("the original changed to %s, or the copy lost numbers (%v)", again, err)
	}
}

func TestErrorsNeverSendEscapesToTheTerminal(t *testing.T) {
	var out strings.Builder
	if code := finish(&out, fail(exitFailed, "see "+evil, "broken: %s", evil)); code != exitFailed {
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
	s := serveFor(t, dataDir(t), "--listen", "127.0.0.1:0")
	agent, err := coordinator.New(coordinator.Config{Conn: dial(t, s.url), Tenant: "default", Agent: "tester", Contracts: []contract.Contract{
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
	if err := plan.Report(ctx, coordinator.Action{Capability: "mail.send", Input: evil}, coordinator.Outcome{Output: evil, ExternalRef: evil}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Fail(ctx, "reason "+evil); err != nil {
		t.Fatal(err)
	}
	s.ask(t, "default", "plan", "cancel", "p1", "--wait") // whatever it says: the unwind has ended then
	for _, line := range []string{
		"plan ls", "plan tree p1", "plan show p1", "quarantine ls", "ledger tail --since 1", "status", "doctor",
		"plan show " + strings.ReplaceAll(evil, " ", ""), "plan " + evil, "quarantine resolve p1 " + evil + " --as done --reason x --evidence y",
		"quarantine resolve p1 1 --as done --reason x --evidence " + evil,
	} {
		r := s.ask(t, "default", strings.Fields(line)...)
		if r.stdout+r.stderr == "" {
			t.Errorf("%q says nothing", line)
		}
		checkPrintable(t, line, r.stdout+r.stderr)
	}
	shown := decoded[executor.PlanView](t, s.ask(t, "default", "plan", "show", "p1", "-o", "json"))
	if shown.Label != "label "+evil || shown.Owner != "owner "+evil || shown.Actions[0].Evidence != evil {
		t.Errorf("JSON is not exact: %q, %q, %q", shown.Label, shown.Owner, shown.Actions[0].Evidence)
	}
	tail := s.ask(t, "default", "ledger", "tail", "--since", "1", "-o", "json")
	if label, _ := json.Marshal("label " + evil); !strings.Contains(tail.stdout, strings.Trim(string(label), `"`)) && !strings.Contains(tail.stdout, "\u202e") {
		t.Errorf("the JSON of tail is not exact: %s", tail.stdout)
	}
	s.end(t).wants(t, "serve", exitGood)
}

func TestColourIsTheOnlyEscapeThatTablesSend(t *testing.T) {
	var out strings.Builder
	tab := table{head: []string{"A", "B"}, paint: func(_ int, cell string) string { return pen{color: true}.state(cell) }}
	tab.add(evil, "open")
	tab.write(&out)
	if got := strings.NewReplacer("\x1b[36m", "", "\x1b[0m", "").Replace(out.String()); strings.Contains(got, "\x1b") || !strings.Contains(out.String(), "\x1b[36mopen") {
		t.Errorf("the table is %q", out.String())
	}
	if wantsColor(os.Stdin) && wantsColor(&out) {
		t.Error("a buffer is no terminal")
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// wrongLines are command lines with what the hint of each says.
var wrongLines = []struct{ line, hint string }{
	{"plna", "sagenbaum plan"},
	{"plan sho x", "sagenbaum plan show"},
	{"plan show", "sagenbaum plan show --help"},
	{"plan show a b", "sagenbaum plan show --help"},
	{"plan ls --state sleeping", "--state open|"},
	{"plan ls --limit 0", "--limit"},
	{"plan ls --nonsense", "sagenbaum plan ls --help"},
	{"plan ls -o xml", "-o table, -o json, -o yaml"},
	{"plan ls --filter pln.held", "plan"},
	{"plan tree p --watch --every 1ms", "--every 1s"},
	{"context use nowhere", "sagenbaum context ls"},
	{"status --context nowhere", "sagenbaum context ls"},
	{"clock confirm", "--reason"},
	{"ledger show x", "sagenbaum ledger show 14"},
	{"man", "sagenbaum man --help"},
	{"worker show", "sagenbaum worker show --help"},
	{"serve --log xml", "--log text|json"},
	{"serve --stuck-after 0s", "--stuck-after 10m"},
	{"serve --sign-after -1s", "--sign-after 10s"},
	{"serve --page-escalate 0s", "--page-escalate 15m"},
	{"serve --metrics x", "--metrics 127.0.0.1:9464"},
	{"plan ls --tenant a.b", "--tenant: 1 to 64"},
	{"plan ls --timeout 0s", "--timeout 5s"},
	{"plan cancel p --actor a.b", "--actor NAME"},
	{"quarantine resolve p 1", "--reason"},
	{"quarantine resolve p 1 --reason x", "--as done|lost|accepted"},
	{"quarantine resolve p 1 --reason x --as undone", "--as done|lost|accepted"},
	{"quarantine resolve p 1 --reason x --as skipped", "--as done|lost|accepted"},
	{"quarantine resolve p 1 --reason x --as done", "--evidence ticket:OPS-91"},
	{"quarantine retry p 1", "--reason"},
	{"quarantine retry p 1 --reason x --actor a.b", "--actor NAME"},
	{"quarantine skip p 1", "--reason"},
	{"quarantine skip p 1 --reason x --evidence y", "sagenbaum quarantine skip --help"},
	{"quarantine show p", "sagenbaum quarantine show --help"},
	{"plan report p 1 --reason x", "sagenbaum quarantine resolve"},
	{"plan report p 1 --present", "--reason"},
	{"plan report p 1 --present --reason x --output {", "--output"},
	{"plan unwind p", "--reason"},
	{"plan unwind p --reason x --actor a.b", "--actor NAME"},
	{"plan unwind p --reason x --wait-timeout 0s", "--wait-timeout 1m"},
	{"plan preview", "sagenbaum plan preview --help"},
	{"plan show a.b", "sagenbaum plan ls"},
	{"plan preview a.b", "sagenbaum plan ls"},
	{"trigger explain a.b", "sagenbaum plan ls"},
	{"lease show a.b x", "sagenbaum plan ls"},
	{"review allow a.b 1", "sagenbaum plan ls"},
	{"undo show a.b 1", "sagenbaum plan ls"},
	{"doctor --plan a.b", "sagenbaum doctor --help"},
	{"ledger tail --plan a.b", "sagenbaum ledger tail --help"},
	{"ledger export -f x --plan a.b", "sagenbaum ledger export --help"},
	{"undo --plan a.b", "sagenbaum undo --help"},
	{"plan ls --after a.b", "--after: the next of the batch before"},
	{"plan ls --after 7/other/p", "--after: the next of the batch before"},
	{"undo ls --plan p --after x", "--after: the next of a page"},
	{"user add x --role agnet", "--role: one of agent, worker"},
	{"user add x --role host", "--role: one of agent, worker"},
	{"user add a.b --role agent", "NAME: 1 to 64"},
	{"user add x --role agent --reveal", "--reveal: role operator"},
	{"user rm a.b", "sagenbaum user ls"},
	{"user token revoke x nope", "ID: 16 small letters"},
	{"tenant limits x", "one of --open-plans"},
	{"key rotate --reason x --lost nope", "--lost: NAME+HASH+KEY"},
	{"undo ls", "--plan PLAN"},
	{"undo ls --plan p --capability a.b", "--plan PLAN"},
	{"undo ls --action 1 --capability a.b", "--plan PLAN"},
	{"undo ls --capability a..b", "--capability NAME"},
	{"undo ls --plan p --limit 0", "--limit 100"},
	{"fact put k", "sagenbaum fact put --help"},
	{"fact put k 1 --retract", "sagenbaum fact put --help"},
	{"fact put k {", "a text is JSON in quotes"},
	{"fact put k 1 --source a.b", "--source NAME"},
	{"fact put k 1 --action a", "--plan PLAN --action ACTION"},
	{"fact put k 1 --plan a.b", "sagenbaum fact put --help"},
	{"fact get", "sagenbaum fact get --help"},
	{"fact ls --limit 0", "--limit 100"},
	{"fact ls --evicted --retracted", "one of the two"},
	{"fact history k --limit 0", "--limit 100"},
	{"memory queue --limit 0", "--limit 100"},
	{"memory evict", "sagenbaum memory evict --help"},
	{"memory evict a a", "sagenbaum memory evict --help"},
	{"memory restore a --actor a.b", "--actor NAME"},
	{"memory rebuild", "sagenbaum memory rebuild --check"},
	{"memory rebuild --check --wait-timeout 0s", "--wait-timeout 1h"},
	{"serve --memory-bytes -1", "--memory-bytes"},
	{"ledger tail --since minus", "sagenbaum ledger tail --help"},
	{"serve --listen nowhere", "--listen 127.0.0.1:4222"},
	{"serve --listen 127.0.0.1:99999", "0 takes a free one"},
	{"serve --listen 127.0.0.1:-1", "--listen 127.0.0.1:4222"},
	{"serve --max-store -1", "--max-store"},
	{"serve --tls-cert cert.pem", "--tls-cert FILE --tls-key FILE"},
	{"serve --tls-key key.pem", "--tls-cert FILE --tls-key FILE"},
	{"serve --listen 0.0.0.0:0 --open", "without --open"}, {"serve --users x", "sagenbaum user add"},
	{"serve --console nowhere", "--console 127.0.0.1:4280"},
	{"serve --console-cert cert.pem", "--console-cert FILE --console-key FILE"},
	{"plan cancel p --wait --wait-timeout -1s", "--wait-timeout 1m"},
	{"serve --tenant a --tenant a", "once"},
	{"serve --nats nats://127.0.0.1:1 --no-sync", "external server"},
	{"serve --accept-lossy-broker", "--nats URL"},
	{"trigger lint", "sagenbaum trigger lint --help"},
	{"trigger lint x --file y", "sagenbaum trigger lint --help"},
	{"trigger test", "sagenbaum trigger test --help"},
	{"trigger test x --at yesterday", "--at 2026"},
	{"trigger tset", "sagenbaum trigger test"},
	{"completion tcsh", "bash"},
	{"help nothing", "sagenbaum --help"},
	{"status extra", "sagenbaum status --help"},
}

func TestWrongCommandLinesAreUsageErrors(t *testing.T) {
	for _, c := range wrongLines {
		r := cmdtest.Run(t, strings.Fields(c.line)...)
		r.Wants(t, c.line, cli.ExitUsage, "next: ", c.hint)
		if r.Stdout != "" {
			t.Errorf("%s: stdout is not pure: %q", c.line, r.Stdout)
		}
	}
}

func TestAReasonOfSpacesIsNone(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"quarantine retry p 1", "quarantine skip p 1", "plan report p 1 --present",
		"plan unwind p", "plan erase p", "plan adopt p --agent b", "plan deadline p --in 2h", "plan resume p",
		"clock confirm", "key rotate", "ledger repair", "tenant suspend t", "tenant erase t", "undo --last 1"} {
		r := cmdtest.Run(t, append(strings.Fields(line), "--reason", " ")...)
		r.Wants(t, line, cli.ExitUsage, "reason")
	}
}

func TestWithoutAServerEveryQuestionEndsWith69(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"plan ls", "plan show p", "plan tree p", "plan cancel p", "quarantine ls",
		"quarantine resolve p 1 --as done --reason x --evidence y", "quarantine show p 1",
		"quarantine retry p 1 --reason x",
		"quarantine skip p 1 --reason x", "plan unwind p --reason x", "plan preview p", "undo ls --plan p",
		"ledger tail", "status",
		"doctor", "doctor --plan p",
	} {
		command := cmdtest.Sagenbaum(t, strings.Fields(line)...)
		command.Env = append(command.Env, "SAGENBAUM_SERVER=nats://secret:word@127.0.0.1:1") // doctors read arguments
		r := cmdtest.Finished(t, command)
		r.Wants(t, line, cli.ExitNoServer, "127.0.0.1:1", "next: sagenbaum serve")
		if r.Stdout != "" || strings.Contains(r.Stderr, "word@") {
			t.Errorf("%s: stdout %q, or a password in stderr %q", line, r.Stdout, r.Stderr)
		}
	}
}

func TestEveryCommandExplainsItselfWithAnExample(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s has no short text or no example", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	root := newRoot()
	walk(root)
	r := cmdtest.Run(t, "--help")
	r.Wants(t, "--help", cli.ExitGood)
	for _, name := range []string{"serve", "demo", "plan", "quarantine", "ledger", "status", "doctor", "version",
		"completion", "Exit codes"} {
		if !strings.Contains(r.Stdout, name) {
			t.Errorf("help does not mention %s", name)
		}
	}
	if strings.Contains(r.Stdout, "demo-agent") {
		t.Error("help shows the demo's own commands")
	}
}

func TestCompletionCoversFourShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := cmdtest.Run(t, "completion", shell)
		r.Wants(t, shell, cli.ExitGood)
		if !strings.Contains(r.Stdout, "sagenbaum") || r.Stderr != "" {
			t.Errorf("%s: %d bytes, stderr %q", shell, len(r.Stdout), r.Stderr)
		}
	}
}

func TestVersionIsJSONOnRequest(t *testing.T) {
	v := cmdtest.Decoded[cli.VersionView](t, cmdtest.Run(t, "version", "-o", "json"))
	if v.Reader == 0 || v.Fold == 0 || v.Go == "" || v.NATS == "" {
		t.Errorf("version %+v leaves something out", v)
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	contractcmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/contract"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// contractFolder is a folder of contract files, name to text without its head.
func contractFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		writeContractFile(t, dir, name, text)
	}
	return dir
}

func writeContractFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("apiVersion: sagenbaum/v1\nkind: Contract\n"+text),
		0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	chargeContract = "capability: payments.charge\nclass: compensable\nprobe: {call: payments.get}\nsettle: " +
		"10s\ninverse:\n  call: payments.refund\n  with: {charge: " +
		"'=has(output.id) ? output.id : meta.external_ref', forward: =meta.forward_key}\n"
	sendContract = "capability: email.send\nclass: irreversible\n"
)

func TestContractLintReadsLikeACompiler(t *testing.T) {
	t.Parallel()
	dir := contractFolder(t, map[string]string{
		"good.yaml": chargeContract,
		"bad.yaml": "capability: a.b\nclass: compensable\nprobe: {call: a.get}\nlate: never\ninverse:\n  call: " +
			"a.c\n  with:\n    id: =outptu.id\n",
		"worse.yml": "capability: a.d\nklass: effectless\n",
		"notes.txt": "not looked at",
	})
	said := cmdtest.Run(t, "contract", "lint", dir)
	said.Wants(t, "contract lint", cli.ExitLook, "2 contracts, 2 errors, 0 warnings")
	want := filepath.Join(dir,
		"bad.yaml") + ":10:10: error: inverse.with.id: undeclared name \"outptu\"; did you mean output?\n"
	if !strings.Contains(said.Stdout, want) ||
		!strings.Contains(said.Stdout, "worse.yml:4:1: error: klass: unknown field; did you mean class?\n") {
		t.Errorf("lint says\n%s", said.Stdout)
	}
	shown := cmdtest.Decoded[contractcmd.LintView](t,
		cmdtest.Run(t, "contract", "lint", filepath.Join(dir, "bad.yaml"), "-o", "json"))
	if shown.Contracts != 1 || shown.Errors != 1 || shown.Findings[0].Line != 10 ||
		shown.Findings[0].Severity != contract.Error {
		t.Errorf("lint says %+v", shown)
	}
	cmdtest.Run(t, "contract", "lint", filepath.Join(dir, "good.yaml")).Wants(t, "contract lint",
		cli.ExitGood, "1 contract, 0 errors, 0 warnings")
	cmdtest.Run(t, "contract", "lint", filepath.Join(dir, "none.yaml")).Wants(t, "contract lint",
		cli.ExitFailed, "no such file")
	cmdtest.Run(t, "contract", "lint", t.TempDir()).Wants(t, "contract lint", cli.ExitFailed,
		"no contract in")
	cmdtest.Run(t, "contract", "lint").Wants(t, "contract lint", cli.ExitUsage,
		"sagenbaum contract lint --help")
	cmdtest.Run(t, "contract", "apply").Wants(t, "contract apply", cli.ExitUsage, "contract apply -f DIR")
	cmdtest.Run(t, "contract", "apply", "-f", dir, "--actor", "a.b").Wants(t, "contract apply",
		cli.ExitUsage, "--actor NAME")
	cmdtest.Run(t, "contract", "apply", "-f", dir, "--server", "nats://127.0.0.1:1").Wants(t,
		"contract apply", cli.ExitFailed, "2 errors; nothing is published", "bad.yaml:10:10")
}

// A contract goes from its file into the ledger and back; only what differs is
// published, and every revision stays.
// What checks files alone does not mind that the credentials of a context are gone.
func TestContractLintNeedsNoCredentials(t *testing.T) {
	t.Parallel()
	dir := contractFolder(t, map[string]string{"good.yaml": sendContract})
	gone := filepath.Join(dir, "gone.creds")
	cmdtest.Run(t, "contract", "lint", dir, "--creds", gone).Wants(t, "contract lint", cli.ExitGood,
		"1 contract, 0 errors")
	cmdtest.Run(t, "contract", "lint", "--workers", dir, "--creds", gone).Wants(t, "contract lint --workers",
		cli.ExitFailed, "gone.creds")
}

func TestContractsArePublishedAsRevisions(t *testing.T) {
	t.Parallel()
	server := cmdtest.ServeFor(t, t.TempDir(), "--tenant", "acme", "--no-sync")
	dir := contractFolder(t, map[string]string{"charge.yaml": chargeContract})
	ask := func(args ...string) cmdtest.Result { return server.Ask(t, "acme", args...) }
	wantsOut := func(r cmdtest.Result, what string, code int, lines ...string) {
		t.Helper()
		r.Wants(t, what, code)
		for _, line := range lines {
			if !strings.Contains(r.Stdout, line) {
				t.Errorf("%s says\n%s\nwant %s", what, r.Stdout, line)
			}
		}
	}
	ask("contract", "ls").Wants(t, "contract ls", cli.ExitGood, "no contract is published", "contract apply -f DIR")
	wantsOut(ask("contract", "diff", "-f", dir), "diff of a new one", cli.ExitLook, "payments.charge: new, in "+dir)
	wantsOut(ask("contract", "apply", "-f", dir, "--dry-run"), "dry run", cli.ExitGood,
		"payments.charge: new, would be published, after revision 0")
	wantsOut(ask("contract", "apply", "-f", dir, "--actor", "ana"), "apply", cli.ExitGood,
		"payments.charge: new, published as revision 1")
	again := cmdtest.Decoded[contractcmd.ContractsDiff](t, ask("contract", "apply", "-f", dir, "-o", "json"))
	if again.Sequence != 0 || len(again.Contracts) != 1 || again.Contracts[0].State != contractcmd.ContractSame ||
		again.Contracts[0].Revision != 1 {
		t.Errorf("an unchanged contract was published again: %+v", again)
	}
	wantsOut(ask("contract", "diff", "-f", dir), "diff of the same", cli.ExitGood,
		"payments.charge: unchanged, revision 1")

	writeContractFile(t, dir, "charge.yaml", chargeContract+"  attempts: 9\nvalid_for: 180d\n")
	writeContractFile(t, dir, "send.yaml", sendContract)
	wantsOut(ask("contract", "diff", "-f", dir), "diff", cli.ExitLook, "payments.charge: changed from revision 1",
		"  ~ inverse.attempts: 5 -> 9", "  + valid_for: 180d", "email.send: new")
	wantsOut(ask("contract", "apply", "-f", dir), "apply", cli.ExitGood,
		"payments.charge: changed, published as revision 2", "email.send: new, published as revision 1")

	wantsOut(ask("contract", "ls"), "ls", cli.ExitGood, "email.send", "payments.charge  2", "payments.refund", "180d")
	listed := cmdtest.Decoded[api.ContractsAnswer](t, ask("contract", "ls", "--revisions", "-o", "json"))
	if len(listed.Contracts) != 3 || listed.Contracts[1].By != "ana" || listed.Contracts[1].Current ||
		!listed.Contracts[2].Current || listed.Contracts[2].By != "tester" {
		t.Errorf("revisions %+v", listed)
	}
	wantsOut(ask("contract", "show", "payments.charge"), "show", cli.ExitGood,
		"# revision 2, current, published by tester", "  attempts: 9\n", "output.id : meta.external_ref", "valid_for: 180d")
	wantsOut(ask("contract", "show", "payments.charge@1"), "show @1", cli.ExitGood, "# revision 1, published by ana",
		"attempts: 5")
	wantsOut(ask("contract", "show", "payments.charge@"+listed.Contracts[1].Digest[:8]), "show @digest", cli.ExitGood,
		"# revision 1")
	ask("contract", "show", "payments.charge@7").Wants(t, "show @7", cli.ExitFailed, `has no revision "7"`)
	ask("contract", "show", "a.b").Wants(t, "show a.b", cli.ExitFailed, "no contract of a.b is published")

	shown := ask("contract", "show", "payments.charge@1")
	if err := os.WriteFile(filepath.Join(dir, "charge.yaml"), []byte(shown.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	back := cmdtest.Decoded[contractcmd.ContractsDiff](t,
		ask("contract", "apply", "-f", filepath.Join(dir, "charge.yaml"), "-o", "json"))
	if len(back.Contracts) != 1 || back.Contracts[0].Revision != 3 ||
		back.Contracts[0].Digest != listed.Contracts[1].Digest || back.Sequence == 0 {
		t.Errorf("what is shown publishes %+v, want revision 3 with the digest of revision 1", back)
	}
	if err := os.Remove(filepath.Join(dir, "send.yaml")); err != nil {
		t.Fatal(err)
	}
	wantsOut(ask("contract", "diff", "-f", dir), "diff without a file", cli.ExitLook,
		"email.send: missing: revision 1 is published, and in no file")
}

func TestContractPagesAreReadToTheEnd(t *testing.T) {
	t.Parallel()
	url := answering(t, map[string]func([]byte) any{"contract.ls": func(data []byte) any {
		var q api.ContractQuery
		if err := json.Unmarshal(data, &q); err != nil {
			return api.Problem{Text: err.Error()}
		}
		next := map[string]string{"": "a.a", "a.a": "a.b", "a.b": "a.c"}[q.After]
		answer := api.ContractsAnswer{Contracts: []api.Contract{{Capability: next, Revision: 1,
			Current: true, Digest: "0123456789", Contract: []byte(`{"a":1}`)}}}
		if next != "a.c" {
			answer.Next = next
		}
		return answer
	}})
	answer := cmdtest.Decoded[api.ContractsAnswer](t,
		cmdtest.Run(t, "contract", "ls", "--server", url, "-o", "json"))
	if len(answer.Contracts) != 3 || answer.Contracts[2].Capability != "a.c" {
		t.Errorf("contracts %+v", answer)
	}
	r := cmdtest.Run(t, "contract", "show", "a.b", "--server", url)
	if r.Wants(t, "a contract of a newer version", cli.ExitGood); !strings.Contains(r.Stdout, `"a": 1`) {
		t.Errorf("show says %s", r.Stdout)
	}
}

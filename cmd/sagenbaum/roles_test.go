package main

import (
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// rolesOfCommands are the rows of the table of roles in docs/cli.md: for each, users who have just
// that role, and what they run, with the exit code where it is not 0.
var rolesOfCommands = []struct {
	row   string
	users []string // see TestEachRowOfTheTableOfRolesHolds
	lines []string
}{
	{"all commands that read, `ledger export` | auditor", []string{"auditor"}, []string{
		"status", "plan ls", "plan show p1", "plan why p1", "1 plan preview p1", "contract ls", "fact ls", "fact get k",
		"fact history k", "memory status", "quarantine ls", "undo ls --plan p1", "worker ls", "host ls", "1 review ls",
		"ledger export -f DIR/auditor.bundle"}},
	{"commands that act on a plan, `ledger scrub`, `ledger repair`, `key rotate`, `rebuild`, also with `--check` " +
		"| operator", []string{"operator"}, []string{
		"fact get k", "plan unwind p2 --reason x", "ledger scrub", "2 ledger repair --reason x",
		"key rotate --reason x", "rebuild --check",
		"rebuild", "memory evict k"}},
	{"`plan show --reveal`, `plan blob` | operator, added with `--reveal`", []string{"revealer"},
		[]string{"plan show p1 --reveal"}},
	{"`fact put` | source", []string{"source"}, []string{
		"fact put k 1", "fact put k 2 --plan p1 --action a", "fact put k --retract", "fact put other --retract",
		"75 fact put k 1 --plan p1 --action nobody", "75 fact put k 1 --plan nowhere --action a"}},
	{"`review allow`, `review block`, `review redirect`, `review ls` | supervisor", []string{"supervisor"}, []string{
		"1 review ls", "review show p1 a", "review allow p1 a --reason ok", "review block p1 b --reason no",
		"review redirect p1 c --reason other", "75 review allow p1 nobody"}},
	{"`user` | who runs the server", []string{"local"}, []string{
		"user ls", "user show source", "user add x --role agent", "user rotate x", "user rm x"}},
	{"`tenant ls` | who runs the server, operators and auditors of all tenants",
		[]string{"local", "operators", "auditors"}, []string{"tenant ls"}},
	{"`tenant add`, `limits`, `suspend`, `resume` | who runs the server, and operators of all tenants",
		[]string{"local", "operators"}, []string{"tenant add shop", "tenant limits shop --facts 10",
			"tenant suspend shop --reason x", "tenant resume shop --reason x"}},
}

// TestEachRowOfTheTableOfRolesHolds: a user of just the role that docs/cli.md names runs the
// commands of the row, without saying who it is.
func TestEachRowOfTheTableOfRolesHolds(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	creds := map[string]string{"local": filepath.Join(dir, "auth", "local.creds")}
	for _, u := range [][]string{{"auditor", "auditor"}, {"operator", "operator"}, {"revealer", "operator", "--reveal"},
		{"source", "source"}, {"supervisor", "supervisor"}, {"operators", "operator", "--all-tenants"},
		{"auditors", "auditor", "--all-tenants"}} {
		creds[u[0]] = s.User(t, u[0], u[1], u[2:]...)
	}
	writeContractFile(t, dir, "send.yaml", sendContract)
	s.Ask(t, "default", "contract", "apply", "-f", filepath.Join(dir, "send.yaml"), "--actor", "op").Wants(t,
		"contract apply", cli.ExitGood)
	for _, plan := range []string{"p2", "p1"} {
		bodies := []string{`{"plan":"` + plan + `","owner":"travel"}`}
		for _, action := range []string{"a", "b", "c"} {
			bodies = append(bodies, `{"plan":"`+plan+`","action":"`+action+
				`","capability":"email.send","input":{"to":"x"},"review":true,"wait":"1ms"}`)
		}
		for i, body := range bodies {
			verb := "plan.act"
			if i == 0 {
				verb = "plan.begin"
			}
			if status, answer := askDoor(t, creds["local"], verb, body); status != http.StatusOK {
				t.Fatalf("%s %s: %d %v", verb, body, status, answer)
			}
		}
	}
	s.Ask(t, "default", "fact", "put", "k", "1", "--source", "before").Wants(t, "fact put", cli.ExitGood)
	document, err := os.ReadFile(cmdtest.InCheckout(t, "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(document), "| for | a role |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) != len(rolesOfCommands) {
		t.Fatalf("docs/cli.md has %d rows, and %d are tried", len(rows), len(rolesOfCommands))
	}
	for i, row := range rolesOfCommands {
		if rows[i] != "| "+row.row+" |" {
			t.Errorf("docs/cli.md has the row %s, and this is tried: %s", rows[i], row.row)
		}
		for j, user := range row.users {
			for _, line := range row.lines {
				code := map[string]int{"1 ": cli.ExitLook, "2 ": cli.ExitFailed, "75": cli.ExitConflict}[line[:2]]
				line = strings.ReplaceAll(strings.TrimLeft(line, "0123456789 "), "DIR", dir)
				line = strings.ReplaceAll(line, "shop", "shop"+string('0'+rune(j)))
				args := append(strings.Fields(line), "--server", s.URL, "--creds", creds[user],
					"--timeout", "60s") // a fold that was dropped is made anew
				if r := cmdtest.Run(t, args...); r.Code != code || strings.Contains(r.Stderr, "not allowed") {
					t.Errorf("%s: %s: code %d, want %d: %s", user, line, r.Code, code, r.Stderr)
				}
			}
		}
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheDoctorOfEveryRole finds nothing broken where it may not look, finds the key of who runs
// the server, which the Unix user of the test can read, and tells that one of a damaged file.
func TestTheDoctorOfEveryRole(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir)
	local := filepath.Join(dir, "auth", "local.creds")
	for role, flags := range map[string][]string{"agent": nil, "source": nil, "supervisor": nil, "auditor": nil,
		"worker": {"--serve", "a.b"}, "pager": nil} {
		r := cmdtest.Run(t, "doctor", "--server", s.URL, "--creds", s.User(t, role, role, flags...))
		if strings.Contains(r.Stdout, "FAIL") ||
			runtime.GOOS == "linux" && (r.Code != cli.ExitLook || !strings.Contains(r.Stdout, local)) {
			t.Errorf("%s: code %d: %s%s", role, r.Code, r.Stdout, r.Stderr)
		}
	}
	users := filepath.Join(dir, "auth", "users")
	if r := s.Ask(t, "default", "doctor"); !strings.Contains(r.Stdout, "7 users, as their file has it") {
		t.Errorf("%s", r.Stdout)
	}
	if err := os.WriteFile(users, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.Ask(t, "default", "doctor"); r.Code != cli.ExitLook ||
		!strings.Contains(r.Stdout, "no change of their file is taken") {
		t.Errorf("code %d: %s", r.Code, r.Stdout)
	}
	s.Ask(t, "default", "user", "ls").Wants(t, "user ls", cli.ExitGood, "these are the users of before")
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

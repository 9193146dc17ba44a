package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// advised are the checks of the doctor that give advice, and the functions of tests, of this package
// or of the exercises, that make the finding, follow the advice and see that the finding is gone.
var advised = map[string][]string{
	"worker": here, "capability": here, "quarantine": here, "deadlines": here, "windows": here,
	"conditions": here, "records": here, "writers": here, "durability": here,

	"fold": {"TestTheAdviceOnAFoldThatStandsStillIsFollowed", "TestTheAdviceOnAFoldThatIsUnderWayIsFollowed"},
	"executor": {"TestTheAdviceOnAFullLedgerIsFollowed", "TestTheAdviceOnTheClockIsFollowed",
		"TestTheAdviceOnSeveralHostsIsFollowed", "TestTheAdviceOnAFoldThatIsUnderWayIsFollowed",
		"TestAFullDiskIsSaidByStatusAndDoctor",
		"TestADamagedLedgerIsSeenAndRepairedFromTheCommandLine"},
	"handler": {"TestAHandlerThatNoProcessOffersIsSeen"},
	"server":  {"TestTheAdviceOnAServerThatIsNotStrictIsFollowed"},
	"ledger":  {"TestTheAdviceOnALedgerWithAGapIsFollowed"},
	"hosts":   {"TestTheAdviceOnSeveralHostsIsFollowed", "TestTheAdviceOnAHostThatIsDegradedIsFollowed"},
	"checkpoint": {"TestTheAdviceOnAKeyThatIsAwayIsFollowed", "TestKeysAreMadeListedAndRotatedFromTheCommandLine",
		"TestTheAdviceOnAnotherHistoryIsFollowed"},
	"witness":  {"TestTheAdviceOnAnotherHistoryIsFollowed"},
	"key":      {"TestTheAdviceOnSeveralHostsIsFollowed"},
	"pages":    {"TestTheAdviceOnPagesIsFollowed"},
	"replicas": {"TestTheAdviceOnReplicasIsFollowed", "TestTheAdviceOnALedgerWithoutALeaderIsFollowed"},
	"room":     {"TestTheAdviceOnAFullLedgerIsFollowed"},
	"limits":   {"TestTheAdviceOnALimitIsFollowed"},
	"disk":     {"TestAFullDiskIsSaidByStatusAndDoctor"},
	"clock":    {"TestTheAdviceOnTheClockIsFollowed"},
	"replies":  {"TestTheAdviceOnAnswersOfWorkersIsFollowed"},
	"fields":   {"TestTheAdviceOnAnswersOfWorkersIsFollowed"},

	"entry":     {"TestTheAdviceOnAnOpenServerIsFollowed", "TestTheAdviceOnAWideRoleIsFollowed"},
	"role":      {"TestTheAdviceOnAWideRoleIsFollowed"},
	"accounts":  onConf,
	"roles":     onConf,
	"passwords": onConf,
	"responses": onConf,
	"jetstream": onConf,
	"imports":   onConf,
	"arguments": {"TestProgramsThatShowSecretsAreFound"},
	"seed":      {"TestTheDoctorSeesAgentsOfItsOwnServer"},
	"users":     {"TestTheAdviceOnDamagedUsersIsFollowed"},
	"tenants":   {"TestTheAdviceOnTenantsThatAreForgottenIsFollowed"},
	"sealed":    {"TestTheAdviceOnALostTenantKeyIsFollowed"},
}

var onConf = []string{"TestTheAdviceOnAConfigurationIsFollowed"}

var here = []string{"TestTheDoctorsAdviceIsFollowed"}

// parsed are files of Go by pattern.
func parsed(t *testing.T, patterns ...string) (files []*ast.File) {
	t.Helper()
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
			must(t, err)
			files = append(files, file)
		}
	}
	return files
}

// textIn is the text of a literal; empty: it is none.
func textIn(e ast.Expr) (text string) {
	if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == gotoken.STRING {
		text, _ = strconv.Unquote(literal.Value)
	}
	return text
}

// textsIn are the texts in a part of a program.
func textsIn(n ast.Node) map[string]bool {
	texts := map[string]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			texts[textIn(e)] = true
		}
		return true
	})
	return texts
}

// advisingIn are the checks that a function gives advice for: by their names, or by a constant or a
// field of it that is named check.
func advisingIn(f *ast.FuncDecl, given map[string]bool) {
	named := ""
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if n.Names[0].Name == "check" && len(n.Values) > 0 {
				named = textIn(n.Values[0])
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "check" && textIn(n.Value) != "" {
				given[textIn(n.Value)] = true
			}
		case *ast.CallExpr:
			called, ok := n.Fun.(*ast.Ident)
			if !ok || len(n.Args) < 2 || called.Name != "warn" && called.Name != "broken" {
				break
			}
			if text := textIn(n.Args[0]); text != "" {
				given[text] = true
			} else if named != "" {
				given[named] = true
			}
		}
		return true
	})
}

// TestTheDoctorGivesNoOtherAdvice: whoever adds one says which test follows it; there is such a test,
// and it names the check.
func TestTheDoctorGivesNoOtherAdvice(t *testing.T) {
	t.Parallel()
	given, texts := map[string]bool{}, map[string]map[string]bool{}
	for _, file := range parsed(t, "doctor/*.go", "*_test.go", "exercise/*/*_test.go") {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok:
			case f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test"):
				texts[f.Name.Name] = textsIn(f)
			case file.Name.Name == "doctor":
				advisingIn(f, given)
			}
		}
	}
	for check := range given {
		if len(advised[check]) == 0 {
			t.Errorf("advice of check %s is followed nowhere: name the test that follows it", check)
		}
	}
	for check, tests := range advised {
		if !given[check] {
			t.Errorf("the doctor gives no advice of check %s any more", check)
		}
		for _, test := range tests {
			if !texts[test][check] {
				t.Errorf("check %s: there is no %s, or it does not name the check", check, test)
			}
		}
	}
}

// asking runs command lines in this process, as who runs the server: processes cost more.
func asking(t *testing.T, url string) cmdtest.Asking {
	return func(args ...string) cmdtest.Result {
		args = append(args, "--server", url, "--tenant", "default")
		if creds, ok := cmdtest.LocalOf(url); ok {
			args = append(args, "--creds", creds)
		}
		var stdout, stderr bytes.Buffer
		code := again(t.Context(), args, &stdout, &stderr)
		return cmdtest.Result{Code: code, Stdout: stdout.String(), Stderr: stderr.String()}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// neglect leaves what the doctor gives advice about: beside plans stuck and lonely one without an end,
// with a window that closes and a condition in error, a refused record, and a plan without a writer.
func neglect(t *testing.T, s *cmdtest.Served, conn *nats.Conn) {
	t.Helper()
	cmdtest.Trouble(t, s, "default") // plans stuck and lonely
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "careless",
		Contracts: []contract.Contract{{Capability: "seat.hold", Class: contract.Compensable, ValidFor: time.Hour,
			Late: contract.LateNever, Inverse: &contract.Inverse{Call: "room.free"}}}})
	must(t, err)
	endless, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "endless",
		Triggers: map[string]string{"dear": `facts["price"] > 5.0`}})
	must(t, err)
	must(t, endless.Report(t.Context(), coordinator.Action{Capability: "seat.hold"}, coordinator.Outcome{}))
	must(t, agent.Close(t.Context()))
	publishJSON(t, conn, "saga.default.fact.fares", `{"records":[{"factAsserted":{"key":"price","value":"InR4dCI="}}]}`)
	publishJSON(t, conn, "saga.default.agent.careless.nameless", `{"records":[{"plan":"nameless","planOpened":{}}]}`)
	publishJSON(t, conn, "saga.default.agent.careless.endless",
		`{"records":[{"plan":"endless","planOpend":{}}]}`)
}

// TestTheDoctorsAdviceIsFollowed: each command that it names runs, shows what it is about, and what
// the advice leads to leaves the doctor nothing to say of it.
func TestTheDoctorsAdviceIsFollowed(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--no-sync")
	conn := cmdtest.Dial(t, s.URL)
	neglect(t, s, conn)
	looked := func(old string) func(check string) doctor.Finding {
		r := s.Ask(t, "default", "doctor", "--old", old, "-o", "json")
		return func(check string) doctor.Finding { return findingOf(t, r, check) }
	}
	sick := looked("1ms")
	shows := map[string]string{ // what the advice's commands say
		"quarantine": "mail.send", "deadlines": "seat.hold", "windows": "room.free", "conditions": "price",
		"records": "planOpend",
	}
	for _, check := range []string{"worker", "capability", "quarantine", "deadlines", "windows", "conditions", "records",
		"writers", "durability"} {
		f := sick(check)
		if f.State != "warn" || f.Next == "" {
			t.Errorf("%s: %+v", check, f)
			continue
		}
		lines, said := cmdtest.Commands(f.Next), ""
		for _, line := range lines {
			r := s.Ask(t, "default", line...)
			if said += r.Stdout; r.Code != cli.ExitGood && r.Code != cli.ExitLook {
				t.Errorf("%s: %q ends with %d: %s%s", check, line, r.Code, r.Stdout, r.Stderr)
			}
		}
		if want := shows[check]; (want == "") != (len(lines) == 0) || !strings.Contains(said, want) {
			t.Errorf("%s: %q shows no %q: %s", check, f.Next, want, said)
		}
	}
	// what they lead to
	if n := sick("capability").Next; !strings.Contains(n, "start a worker for room.free") ||
		!strings.Contains(sick("worker").Next, "start a worker for room.free") {
		t.Errorf("it asks for another worker: %s", n)
	}
	cmdtest.Freeing(t, conn, "default")
	s.Ask(t, "default", "quarantine", "resolve", "stuck", "1", "--as", "accepted", "--reason", "it was read",
		"--evidence", "mail 7", "--actor", "ana").Wants(t, "resolve", cli.ExitGood)
	s.Ask(t, "default", "plan", "cancel", "endless", "--reason", "forgotten", "--actor", "ana", "--wait").
		Wants(t, "plan cancel", cli.ExitGood)
	s.Ask(t, "default", "plan", "cancel", "nameless", "--reason", "forgotten", "--actor", "ana", "--wait").
		Wants(t, "plan cancel", cli.ExitGood)
	publishJSON(t, conn, "saga.default.agent.careful.named", `{"records":[{"plan":"named","writer":"p7","planOpened":{}}]}`)
	cmdtest.Eventually(t, "a doctor that has nothing to say of what was done", func() (string, bool) {
		well, open := looked("24h"), []string{}
		for _, check := range []string{"worker", "capability", "quarantine", "deadlines", "windows", "conditions"} {
			if f := well(check); f.State != "ok" {
				open = append(open, check+": "+f.Text)
			}
		}
		return strings.Join(open, "; "), len(open) == 0
	})
	named := func(detail string) bool { return strings.HasPrefix(detail, "plan named ") }
	if f := looked("1ms")("writers"); slices.ContainsFunc(f.Details, named) {
		t.Errorf("a plan with a writer has none: %+v", f)
	}
	s.End(t)
	s = cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0") // without --no-sync
	if f := looked("24h")("durability"); f.State != "ok" {
		t.Errorf("durability: %+v", f)
	}
	s.End(t)
}

// TestTheAdviceOfPlanWhyIsFollowed: the commands that it prints are typed as they stand, with a reason
// and a name, and do what they say; what it points to shows what it is about.
func TestTheAdviceOfPlanWhyIsFollowed(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	defer l.stop(t)
	printed := func(plan string, code int, like string) string {
		t.Helper()
		out := l.run(t, code, "plan why "+plan).Stdout
		found := regexp.MustCompile(`(?m)` + like).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("plan why %s gives no advice like %s:\n%s", plan, like, out)
		}
		return strings.NewReplacer("WHY", "'as plan why says'", "NAME", "ana").Replace(found[1])
	}
	says(t, l.run(t, cli.ExitGood, printed("shop-1", cli.ExitGood, `what it holds: sagenbaum (.*)$`)), "room.book",
		"moved")
	story := l.run(t, cli.ExitGood, "plan why shop-1").Stdout
	sequence := regexp.MustCompile(`plan_opened@(\d+)`).FindStringSubmatch(story)
	if sequence == nil || !strings.Contains(story, "any of them: sagenbaum ledger show SEQUENCE") {
		t.Fatalf("no record to look at:\n%s", story)
	}
	says(t, l.run(t, cli.ExitGood, "ledger show "+sequence[1]), "plan_opened")

	l.run(t, cli.ExitGood, "plan cancel shop-1 --reason 'the shop moves' --actor ana")
	for _, step := range []struct{ cut, like, told, state string }{
		{"price-3", `^  next: sagenbaum (plan resume .*)$`, "goes on from depth 1, as told by ana", "compensated"},
		{"stock-6", `^    or: sagenbaum (plan cancel .*)$`, "", "compensated"},
		{"shop-9", `^    or: sagenbaum (plan give-up .*)$`, "given up, as told by ana", "open"},
	} {
		l.cut(t, step.cut)
		says(t, l.run(t, cli.ExitGood, printed(step.cut, cli.ExitLook, step.like)), step.told)
		cmdtest.Eventually(t, step.cut+" is "+step.state, func() (string, bool) {
			plan := cmdtest.Decoded[api.Plan](t, l.run(t, cli.ExitGood, "plan show "+step.cut+" -o json"))
			return plan.State, plan.State == step.state && len(plan.Cuts) == 0
		})
	}
	l.run(t, cli.ExitGood, "quarantine ls")
}

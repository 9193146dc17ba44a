package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/triggers"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/trigger"
)

const triggerGuide = "../../docs/guide/triggers"

// guideTimelines are the absolute paths of the timelines of the guide.
func guideTimelines(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(triggerGuide + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if files[i], err = filepath.Abs(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func timelineFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "timeline.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The guide's timelines go as they say, each through the command, and the page
// names each of them.
func TestTimelinesOfTheGuideGoAsExpected(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/triggers.md")
	if err != nil {
		t.Fatal(err)
	}
	files := guideTimelines(t)
	if len(files) < 20 {
		t.Errorf("%d timelines, want 20 or more", len(files))
	}
	views := cmdtest.Decoded[[]trigger.CourseView](t,
		cmdtest.Run(t, append([]string{"trigger", "test", "-o", "json"}, files...)...))
	ran := map[string]int{}
	for _, v := range views {
		if ran[filepath.Base(v.File)]++; !v.OK {
			t.Errorf("%s %s: %s", v.File, v.Case, v.Unmet)
		}
	}
	armed, err := time.Parse(time.RFC3339, trigger.ArmedDefault)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		test, err := trigger.ReadTriggerTest(file, data, armed, triggers.NewCache(1))
		if err != nil {
			t.Fatal(err)
		}
		for i := range test.Cases {
			if !test.Cases[i].Expects {
				t.Errorf("%s: case %d expects nothing", file, i)
			}
		}
		name := filepath.Base(file)
		if ran[name] != len(test.Cases) {
			t.Errorf("%s: %d of %d cases ran", name, ran[name], len(test.Cases))
		}
		if !strings.Contains(string(page), "(guide/triggers/"+name+")") {
			t.Errorf("docs/triggers.md does not link to %s", name)
		}
	}
}

// What the page shows of a command is what the command prints.
func TestTheTriggerPageShowsWhatIsPrinted(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/triggers.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, block := range strings.Split(string(page), "\n    $ sagenbaum trigger ")[1:] {
		line, rest, _ := strings.Cut(block, "\n")
		if strings.HasPrefix(line, "explain ") {
			continue // it needs an executor: see TestThePageShowsWhatExplainPrints
		}
		var want strings.Builder
		for printed := range strings.Lines(rest) {
			text, indented := strings.CutPrefix(printed, "    ")
			if !indented && printed != "\n" {
				break
			}
			if strings.HasPrefix(text, "$ ") {
				break // the next command
			}
			want.WriteString(text)
		}
		args := append([]string{"trigger"}, strings.Split(strings.ReplaceAll(line, "'", ""), " ")...)
		if i := strings.Index(line, "'"); i >= 0 { // one quoted argument at the end
			args = append([]string{"trigger"}, append(strings.Fields(line[:i]), strings.Trim(line[i:], "'"))...)
		}
		command := cmdtest.Sagenbaum(t, args...)
		command.Dir = root
		if got := cmdtest.Finished(t, command).Stdout; strings.TrimSpace(got) != strings.TrimSpace(want.String()) {
			t.Errorf("trigger %s prints\n%s\nand the page shows\n%s", line, got, want.String())
		}
		shown++
	}
	if shown < 3 {
		t.Errorf("the page shows %d commands, want 3 or more", shown)
	}
	const example = "docs/guide/triggers/either"
	text, err := os.ReadFile(filepath.Join(root, example+".yaml"))
	if err != nil || !strings.Contains(string(page), "```yaml\n"+string(text)+"```\n") {
		t.Errorf("the page does not show %s.yaml as it is (%v)", example, err)
	}
	svg := filepath.Join(t.TempDir(), "either.svg")
	command := cmdtest.Sagenbaum(t, "trigger", "test", example+".yaml", "--svg", svg)
	command.Dir = root
	cmdtest.Finished(t, command)
	drawn, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(filepath.Join(root, example+".svg")); err != nil || !bytes.Equal(kept, drawn) {
		t.Errorf("%s.svg is not what is drawn (%v); draw it again with --svg", example, err)
	}
}

func TestATimelineThatGoesOtherwiseEndsWithOne(t *testing.T) {
	t.Parallel()
	for expect, want := range map[string]string{
		"{fires: never}": "FAIL fires at 8s; expected never to fire",
		"{fires: 9s}":    "FAIL fires at 8s; expected to fire at 9s",
		"{moot: true}":   "FAIL fires at 8s; expected never to fire",
		"{fires: 8s}":    "ok fires at 8s",
		"{moot: false}":  "ok fires at 8s",
	} {
		file := timelineFile(t,
			"condition: plan.status == \"failed\"\nsteps: [{at: 8s, plan: failed}]\nexpect: "+expect+"\n")
		code := cli.ExitGood
		if strings.HasPrefix(want, "FAIL") {
			code = cli.ExitLook
		}
		r := cmdtest.Run(t, "trigger", "test", file)
		if r.Wants(t, expect, code, "1 file, 1 case"); !strings.Contains(r.Stdout, want+"\n") {
			t.Errorf("expect: %s prints\n%s\nwant %s", expect, r.Stdout, want)
		}
	}
	file := timelineFile(t, "condition: after(plan.deadline)\nplan: {deadline: 1h}\n")
	r := cmdtest.Run(t, "trigger", "test", file)
	if r.Wants(t, "nothing expected", cli.ExitGood); !strings.Contains(r.Stdout, "\nfires at 1h\n") {
		t.Errorf("a timeline that expects nothing prints\n%s", r.Stdout)
	}
	shown := cmdtest.Decoded[[]trigger.CourseView](t,
		cmdtest.Run(t, "trigger", "test", file, "--at", "2030-01-01T00:00:00Z", "-o", "json"))[0]
	if shown.Armed != "2030-01-01T00:00:00Z" || !shown.Fires || *shown.FiresNs != int64(time.Hour) ||
		shown.Spans[0].Waits[0] != "time 2030-01-01T01:00:00Z" {
		t.Errorf("armed in 2030: %+v", shown)
	}
}

func TestTimelineFilesAreReadStrictly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"condition: plan.stauts == 'x'\n": ":1:16: error: condition: plan has no field " +
			"stauts; did you mean status?",
		"condition: 'true'\nplan: {deadlin: 3h}\n": ":2:8: error: plan.deadlin: unknown field; did " +
			"you mean deadline?",
		"condition: 'true'\nsteps: [{at: 10, fact: k, value: 1}]\n": `:2:14: error: steps[0].at: "10" is no duration`,
		"condition: 'true'\nsteps: [{fact: k, value: 1}]\n": "steps[0].at: no " +
			"instant; add at: 10s",
		"condition: 'true'\nsteps: [{at: 1s, fact: k}]\n": "steps[0]: a fact " +
			"without a value; add value: true",
		"condition: 'true'\nsteps: [{at: 1s, fact: k, value: 1, retract: on}]": `is no truth`,
		"condition: 'true'\nsteps: [{at: 1s, fact: k, value: 1, plan: open}]": "steps[0]: 2 things " +
			"that happen; one of fact, plan",
		"condition: 'true'\nsteps: [{at: 1s, plan: faild}]": `steps[0].plan: "faild"; did you mean failed?`,
		"condition: 'true'\nsteps: [{at: 1s, plan: open, by: ana}]": "steps[0].by: beside " +
			"plan; it belongs to verdict",
		"condition: 'true'\nsteps: [{at: 1s, verdict: block}]": "steps[0]: there is no " +
			"action; add action: {}",
		"condition: 'true'\nsteps: [{at: 2h, actions: 1}]\nuntil: 1h\n": "steps[0].at: 2h is " +
			"after until",
		"condition: 'true'\nsteps: [{at: 1s, actions: -1}]": "steps[0].actions: -1; " +
			"0 or more",
		"condition: 'true'\nsteps: [{at: 40000d, actions: 1}]": "out of reach",
		"condition: 'true'\naction: {input: [1]}\n":            "action.input: no mapping",
		"condition: 'true'\naction: {}\nsteps: [{at: 1s, outcome: failed, output: {a: 1}}]": "output: of a forward " +
			"that is failed",
		"condition: 'true'\nexpect: {}\n":                      "expect: nothing is expected",
		"condition: 'true'\nexpect: {fires: 3s, moot: true}\n": "what is moot never fires",
		"condition: 'true'\nexpect: {fires: -3s}\n":            "-3s is before arming",
		"condition: 'true'\nuntil: 0s\n":                       "an offset above zero",
		"condition: 'true'\ncases: [{name: a}]\nuntil: 1h\n":   "beside steps, until or expect of the file",
		"condition: 'true'\n---\ncondition: 'false'\n":         "a second document",
		"condition: &a 'true'\n":                               "a YAML anchor or alias",
		"":                                                     "no document",
	} {
		r := cmdtest.Run(t, "trigger", "test", timelineFile(t, text))
		if r.Wants(t, text, cli.ExitFailed, want, "cannot read the timelines", "nothing was run"); r.Stdout != "" {
			t.Errorf("%q prints %s", text, r.Stdout)
		}
	}
	cmdtest.Run(t, "trigger", "test", t.TempDir()).Wants(t, "an empty folder", cli.ExitFailed,
		"no timeline in")
	cmdtest.Run(t, "trigger", "test", "none.yaml").Wants(t, "no file", cli.ExitFailed, "no such file")
}

func TestTriggerLintSaysWhatAConditionReads(t *testing.T) {
	t.Parallel()
	r := cmdtest.Run(t, "trigger", "lint",
		`absent_for("confirmed/" + action.order, action.at, duration("15m")) || facts["x"].z == 1`)
	r.Wants(t, "lint", cli.ExitGood)
	for _, want := range []string{"OK\n", "reads        action, clock, facts\n", "facts        x, computed ones\n",
		"fires        may, it depends", "at most 15 steps"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("lint prints\n%s\nwant %q", r.Stdout, want)
		}
	}
	condition, err := triggers.Compile("after(plan.deadline)")
	if err != nil {
		t.Fatal(err)
	}
	in := cmdtest.Sagenbaum(t, "trigger", "lint", "--file", "-", "-o", "json")
	in.Stdin = strings.NewReader("after( plan.deadline ) // of the plan\n")
	v := cmdtest.Decoded[trigger.TriggerView](t, cmdtest.Finished(t, in))
	if v.Digest != fmt.Sprintf("%x", condition.Digest()) || v.Normal != "after(plan.deadline)" ||
		!slices.Equal(v.Reads, []string{"clock", "plan"}) || v.Fires != trigger.FiresMay || !v.OK {
		t.Errorf("lint says %+v", v)
	}
	for expression, want := range map[string]string{
		"!after(plan.deadline)": "fires        never: no future makes it true",
		"1 < 2":                 "fires        at once: it is true whatever is known",
		"1 / 0 == 1":            "fires        never: an error whatever is known: division by zero",
	} {
		if r := cmdtest.Run(t, "trigger", "lint", expression); r.Code != cli.ExitGood ||
			!strings.Contains(r.Stdout, want) {
			t.Errorf("lint %s ends with %d and prints\n%s", expression, r.Code, r.Stdout)
		}
	}
}

func TestTriggerLintPointsAtWhatIsWrong(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`plan.stauts == "failed"`: "refused 1:5: plan has no field stauts; did you mean status?\n  " +
			"plan.stauts == \"failed\"\n      ^\n",
		"true &&\n\tfatcs[\"ä\"] == 1": "refused 2:2: undeclared name \"fatcs\"; did you mean facts?\n   " +
			"fatcs[\"ä\"] == 1\n   ^\n",
		"\"\u202e\" == \"\" && plan.now == 1": "refused 1:18: plan has no field now; there is id, ",
		"":                                    "refused 1:1: empty; write a condition",
	} {
		r := cmdtest.Run(t, "trigger", "lint", expression)
		if r.Wants(t, expression, cli.ExitLook); !strings.HasPrefix(r.Stdout, want) {
			t.Errorf("lint %q prints\n%s\nwant\n%s", expression, r.Stdout, want)
		}
	}
	long := trigger.Pointed(strings.Repeat("a", 400), 1, 300)
	if len(long) != 2 || !strings.HasPrefix(long[0], "…") || !strings.HasSuffix(long[0], "…") ||
		len([]rune(long[0])) > trigger.PointedMax+2 {
		t.Errorf("a long line is shown as %q", long)
	}
	if got := trigger.Pointed("a\tb\u202e", 1, 99); len(got) != 2 || got[0] != `a b\u202e` || got[1] != "         ^" {
		t.Errorf("beyond the end it points at %q", got)
	}
}

func TestTriggerLintLooksIntoContracts(t *testing.T) {
	t.Parallel()
	dir := contractFolder(t, map[string]string{
		"good.yaml": "capability: email.send\nclass: irreversible\nlift: [order]\ntriggers:\n  late: " +
			"absent_for(\"read/\" + action.order, action.at, duration(\"1h\"))\n",
		"bad.yaml": "capability: sms.send\nclass: irreversible\ntriggers:\n  worse: |\n    plan.status == " +
			"\"failed\" &&\n      veridct.outcome == \"block\"\n",
		"none.yaml": "klass: effectless\n",
	})
	r := cmdtest.Run(t, "trigger", "lint", "--contract", dir)
	r.Wants(t, "lint --contract", cli.ExitLook)
	for _, want := range []string{
		"good.yaml: email.send triggers[late]: OK\n",
		"bad.yaml:8:7: sms.send triggers[worse]: refused 2:3: undeclared name \"veridct\"; did you mean verdict?\n",
		"none.yaml:3:1: error: klass: unknown field; did you mean class?\n",
	} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("lint --contract prints\n%s\nwant %s", r.Stdout, want)
		}
	}
	shown := cmdtest.Decoded[trigger.ContractTriggersView](t,
		cmdtest.Run(t, "trigger", "lint", "--contract", filepath.Join(dir, "good.yaml"), "-o", "json"))
	if len(shown.Triggers) != 1 || !shown.Triggers[0].OK || !shown.Triggers[0].Computed || len(shown.Findings) != 0 {
		t.Errorf("lint --contract says %+v", shown)
	}
}

// wellFormed fails the test when data is no XML with one svg element at its root.
func wellFormed(t *testing.T, data []byte) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(data))
	for root := true; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("the SVG is no XML: %v", err)
		}
		if start, ok := token.(xml.StartElement); ok && root {
			if root = false; start.Name.Local != "svg" {
				t.Fatalf("the root is %s", start.Name.Local)
			}
		}
	}
}

func TestStripsAreDrawnAsSVG(t *testing.T) {
	t.Parallel()
	file := timelineFile(t, `condition: seen("<a>") || seen("b")
cases:
  - {name: "<&\u202e>", steps: [{at: 1s, fact: <b/>, value: "]]>&amp;\u0001"}, {at: 2s, fact: b, value: 1}, {at: 2s, fact: b, value: 2}], expect: {fires: 2s}}
  - {name: never, until: 1h, expect: {fires: 1h}}
`)
	out := filepath.Join(t.TempDir(), "strip.svg")
	args := []string{"trigger", "test", "--svg", out, file}
	cmdtest.Run(t, args...).Wants(t, "--svg", cli.ExitLook)
	first, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, first)
	for _, want := range []string{"fires at 2s", ">FAIL ", "expected to fire at 1h", "&lt;&amp;\\u202e&gt;", ">2-3<"} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("the SVG does not contain %q", want)
		}
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	cmdtest.Run(t, args...)
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(first, again) {
		t.Errorf("drawn again it is another (%v)", err)
	}
	cmdtest.Run(t, "trigger", "test", "--svg", filepath.Join(t.TempDir(), "no", "x.svg"), file).Wants(t,
		"no folder", cli.ExitFailed, "cannot write the strip")
}

// FuzzTimeline holds that every file is refused with its place, or runs to an end
// and can be drawn, in bounded time.
func FuzzTimeline(f *testing.F) {
	files, err := filepath.Glob(triggerGuide + "/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("condition: count(\"k\", duration(\"3ns\")) > 2\nsteps:\n  - {at: -1ns, fact: k, value: null}\n  - {at: " +
		"0.0001d, fact: k, value: 1e400}\nuntil: 36500d\n")
	armed, err := time.Parse(time.RFC3339, trigger.ArmedDefault)
	if err != nil {
		f.Fatal(err)
	}
	programs := triggers.NewCache(16)
	f.Fuzz(func(t *testing.T, text string) {
		began := testenv.CPU()
		test, err := trigger.ReadTriggerTest("fuzz.yaml", []byte(text), armed, programs)
		if err != nil {
			var findings contract.Findings
			if !errors.As(err, &findings) || len(findings) == 0 {
				t.Errorf("refused with %v", err)
			}
			return
		}
		views, err := trigger.RunTriggerTests([]*trigger.TriggerTest{test}, armed)
		if err == nil {
			var out bytes.Buffer
			for i := range views {
				trigger.WriteCourse(&out, cli.Pen{}, &views[i], i == 0)
			}
			wellFormed(t, trigger.DrawCourses(views))
		}
		if took := testenv.CPU() - began; took > 10*time.Second {
			t.Errorf("%d bytes take %v", len(text), took)
		}
	})
}

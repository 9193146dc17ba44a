package trigger

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	contractcmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/contract"
)

// ArmedDefault is the instant at which the leases of trigger test are armed, fixed
// so that a timeline always runs the same.
const ArmedDefault = "2026-03-01T12:00:00Z"

// armedYears bound --at, so that no offset leaves what a record can hold.
var armedYears = [2]int{1970, 2100}

// CourseView is how one case went.
type CourseView struct {
	File        string      `json:"file"`
	Case        string      `json:"case,omitempty"`
	Condition   string      `json:"condition"`
	Armed       string      `json:"armed"`
	OK          bool        `json:"ok"`
	Unmet       string      `json:"unmet,omitempty"` // what was expected otherwise
	Fires       bool        `json:"fires"`
	FiresNs     *int64      `json:"fires_ns,omitempty"` // after arming, as all that ends in _ns
	Moot        bool        `json:"moot"`
	MootNs      *int64      `json:"moot_ns,omitempty"`
	Retired     bool        `json:"retired"` // with its plan
	RetiredNs   *int64      `json:"retired_ns,omitempty"`
	EndNs       int64       `json:"end_ns"`
	Evaluations int         `json:"evaluations"`
	Events      []eventView `json:"events"`
	Spans       []spanView  `json:"spans"`

	course  triggers.Course
	expects bool
}

type eventView struct {
	AtNs int64  `json:"at_ns"`
	What string `json:"what"`
}

type spanView struct {
	FromNs int64    `json:"from_ns"`
	ToNs   int64    `json:"to_ns"`
	Truth  string   `json:"truth"`
	Moot   bool     `json:"moot"`
	Waits  []string `json:"waits,omitempty"`
	Error  string   `json:"error,omitempty"`
	Events []int    `json:"events,omitempty"` // that began it; none: arming, or a flip of the clock
	After  bool     `json:"after_firing,omitempty"`

	Retired bool `json:"retired,omitempty"` // the plan is not open, so it is not asked
}

func newTriggerTest(s *cli.Settings) *cobra.Command {
	var at, svg string
	cmd := &cobra.Command{
		Use: "test FILE|DIR...",
		Short: "Run conditions against timelines and show their truth over time, offline (exit " +
			"code 1 when one goes otherwise than expected)",
		Long: `Run conditions against timelines, on a clock of their own: what happens is read from
a YAML file, the condition is evaluated at arming, at every event and at every
instant at which the clock alone could change its answer. Shows the truth over
time as a table and as a strip. docs/triggers.md explains the format.`,
		Example: `  sagenbaum trigger test docs/guide/triggers/absence.yaml
  sagenbaum trigger test docs/guide/triggers
  sagenbaum trigger test absence.yaml --svg absence.svg
  sagenbaum trigger test absence.yaml -o json | jq '.[].fires_ns'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Fail(cli.ExitUsage, cmd.CommandPath()+" --help",
					"%s takes FILE or DIR, got none", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			armed, err := time.Parse(time.RFC3339Nano, at)
			if err != nil || armed.Year() < armedYears[0] || armed.Year() > armedYears[1] {
				return cli.Fail(cli.ExitUsage, "--at "+ArmedDefault,
					"%q is no instant between %d and %d", at, armedYears[0], armedYears[1])
			}
			tests, err := readTriggerTests(cmd.ErrOrStderr(), args, armed)
			if err != nil {
				return cli.Failed("read the timelines", err)
			}
			views, err := RunTriggerTests(tests, armed)
			if err != nil {
				return cli.Failed("run the timelines", err)
			}
			if svg != "" {
				if err := os.WriteFile(svg, DrawCourses(views), 0o644); err != nil {
					return cli.Failed("write the strip", err)
				}
			}
			return finishTriggerTest(cmd, s, tests, views)
		},
	}
	cmd.Flags().StringVar(&at, "at", ArmedDefault, "the `INSTANT` of arming, in RFC 3339")
	cmd.Flags().StringVar(&svg, "svg", "", "write the strips to `FILE` as SVG, too")
	return cmd
}

// readTriggerTests reads files and folders. What is wrong with them goes to stderr,
// line by line.
func readTriggerTests(stderr io.Writer, paths []string, armed time.Time) ([]*TriggerTest, error) {
	var tests []*TriggerTest
	wrong := 0
	programs := triggers.NewCache(triggerPrograms)
	for _, path := range paths {
		files, err := contractcmd.YamlFiles(path, "timeline")
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			test, err := ReadTriggerTest(file, data, armed, programs)
			var findings contract.Findings
			switch {
			case errors.As(err, &findings):
				for _, f := range findings {
					fmt.Fprintln(stderr, cli.Printable(f.String()))
				}
				wrong += len(findings)
			case err != nil:
				return nil, err
			default:
				tests = append(tests, test)
			}
		}
	}
	if wrong > 0 {
		return nil, cli.Fail(cli.ExitFailed, "docs/triggers.md has the format",
			"cannot read the timelines: %s; nothing was run", cli.CountOf(wrong, "error"))
	}
	return tests, nil
}

// RunTriggerTests runs the cases of test files on a clock of their own, which starts at armed.
func RunTriggerTests(tests []*TriggerTest, armed time.Time) ([]CourseView, error) {
	var views []CourseView
	for _, test := range tests {
		for i := range test.Cases {
			c := &test.Cases[i]
			course, err := test.condition.Run(c.timeline)
			var refused *triggers.TimelineError
			if errors.As(err, &refused) {
				return nil, fmt.Errorf("%s: %s: %w", test.file, cli.Dash(c.name),
					ledger.Refuse(refused.Field, refused.Problem, refused.Want))
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", test.file, cli.Dash(c.name), err)
			}
			views = append(views, viewOf(test, c, course, armed))
		}
	}
	return views, nil
}

func viewOf(test *TriggerTest, c *timelineCase, course triggers.Course,
	armed time.Time) CourseView {
	v := CourseView{File: test.file, Case: c.name, Condition: test.text,
		Armed: armed.UTC().Format(time.RFC3339Nano),
		Unmet: c.unmet(&course), Fires: course.Fires, Moot: course.Moot, Retired: course.Retired,
		EndNs: course.EndNs, Evaluations: course.Evaluations,
		Events: []eventView{}, course: course, expects: c.Expects}
	v.OK = v.Unmet == ""
	if course.Fires {
		v.FiresNs = &course.FiresNs
	}
	if course.Moot {
		v.MootNs = &course.MootNs
	}
	if course.Retired {
		v.RetiredNs = &course.RetiredNs
	}
	for i := range course.Events {
		v.Events = append(v.Events, eventView{course.Events[i].AtNs, course.Events[i].String()})
	}
	for i := range course.Spans {
		span := &course.Spans[i]
		shown := spanView{FromNs: span.FromNs, ToNs: span.ToNs, Truth: span.Truth.String(),
			Moot: span.Moot, Waits: span.Waits, Events: span.Events, After: span.After,
			Retired: span.Retired}
		if span.Err != nil {
			shown.Error = span.Err.Error()
		}
		v.Spans = append(v.Spans, shown)
	}
	return v
}

func finishTriggerTest(cmd *cobra.Command, s *cli.Settings, tests []*TriggerTest,
	views []CourseView) error {
	unmet := 0
	for i := range views {
		if !views[i].OK {
			unmet++
		}
	}
	if s.JSON() {
		if err := cli.PrintJSON(cmd.OutOrStdout(), views); err != nil {
			return err
		}
	} else {
		for i := range views {
			first := i == 0 || views[i].File != views[i-1].File
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			WriteCourse(cmd.OutOrStdout(), s.Pen(cmd), &views[i], first)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", s.Pen(cmd).Dim(stripLegend))
		fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s, %d not as expected\n",
			cli.CountOf(len(tests), "file"), cli.CountOf(len(views), "case"), unmet)
	}
	return cli.Look(nil, unmet > 0)
}

// stripWidth is how many columns a strip takes.
const stripWidth = 78

// stripLegend explains the marks of all strips.
const stripLegend = "F fires, x moot, R retired, 1-9 a-z what happens, * beyond z, ~ the clock, " +
	"// drawn short, + a nanosecond later"

// truthColors are the SGR codes of the truths, and of what is said of a case.
var truthColors = map[string]string{"true": "33;1", "unknown": "36", "false": "2"}

// WriteCourse prints one case: its truth over time as a table, then as a strip.
func WriteCourse(out io.Writer, p cli.Pen, v *CourseView, first bool) {
	if first {
		fmt.Fprintf(out, "%s\n", p.Bold(cli.Printable(v.File)))
		for line := range strings.Lines(v.Condition) {
			fmt.Fprintln(out, "  "+cli.Printable(strings.TrimRight(line, "\r\n")))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, v.verdict(p))
	t := cli.Table{Head: []string{"AT", "", "WHAT HAPPENS", "TRUTH", ""},
		Paint: func(column int, cell string) string {
			if column == 3 {
				return p.In(truthColors[strings.TrimSpace(cell)], cell)
			}
			return cell
		}}
	for _, m := range v.rows() {
		t.Add(triggers.FormatOffset(m.atNs), m.mark, cli.Clip(m.what, 44), m.truth, m.why)
	}
	t.Write(out)
	fmt.Fprintln(out)
	strip := triggers.NewStrip(v.course)
	for i, line := range strip.Text(stripWidth) {
		if lane := []string{"true", "unknown", "false"}; i < len(lane) {
			name, rest, _ := strings.Cut(line, "|")
			line = name + "|" + p.In(truthColors[lane[i]], rest)
		}
		fmt.Fprintln(out, line)
	}
}

// verdict is the line that says how a case went.
func (v *CourseView) verdict(p cli.Pen) string {
	name := cli.Printable(v.Case)
	if name != "" {
		name += ": "
	}
	text := "never fires"
	switch {
	case v.Fires:
		text = "fires at " + triggers.FormatOffset(*v.FiresNs)
	case v.Moot:
		text = "never fires, moot since " + triggers.FormatOffset(*v.MootNs)
	case v.Retired:
		text = "never fires, retired at " + triggers.FormatOffset(*v.RetiredNs)
	}
	switch {
	case !v.OK:
		return p.In("31;1", "FAIL") + " " + name + text + "; " + v.Unmet
	case v.expects:
		return p.In("32", "ok") + " " + name + text
	}
	return name + text
}

// courseRow is one row of the table: something that happens, or the clock.
type courseRow struct {
	atNs  int64
	mark  string // as on the axis of the strip
	what  string
	truth string
	why   string
}

// rows are the events and the spans by time. The truth of an instant is in
// its last row, for that is when the condition is evaluated.
func (v *CourseView) rows() []courseRow {
	var rows []courseRow
	events, c := 0, &v.course
	upTo := func(ns int64) {
		for ; events < len(c.Events) && c.Events[events].AtNs <= ns; events++ {
			e := &c.Events[events]
			rows = append(rows,
				courseRow{atNs: e.AtNs, mark: string(c.Mark(events)), what: e.String()})
		}
	}
	for i := range c.Spans {
		span := &c.Spans[i]
		before := len(rows)
		if upTo(span.FromNs - 1); i > 0 {
			tellAgain(rows[before:], &c.Spans[i-1])
		}
		if upTo(span.FromNs); i == 0 {
			rows = append(rows, courseRow{what: "armed"})
		} else if len(span.Events) == 0 {
			rows = append(rows, courseRow{atNs: span.FromNs, mark: "~", what: "the clock"})
		}
		last := &rows[len(rows)-1]
		last.truth, last.why = span.Truth.String(), v.why(span)
	}
	before := len(rows)
	upTo(c.EndNs)
	tellAgain(rows[before:], &c.Spans[len(c.Spans)-1])
	return rows
}

// tellAgain writes the truth beside events that did not change it.
func tellAgain(rows []courseRow, span *triggers.Span) {
	for i := range rows {
		if i+1 == len(rows) || rows[i+1].atNs != rows[i].atNs {
			rows[i].truth, rows[i].why = span.Truth.String(), "as before"
		}
	}
}

// why says what a truth means for the lease.
func (v *CourseView) why(span *triggers.Span) string {
	switch {
	case v.Fires && span.FromNs == *v.FiresNs:
		return "FIRES"
	case span.After:
		return "after the firing"
	case v.Retired && span.FromNs == *v.RetiredNs:
		return "retired with the plan"
	case span.Retired:
		return "not asked: the plan is not open"
	case span.Moot:
		return "moot: no future makes it true"
	case span.Err != nil:
		return "waits: " + strings.TrimPrefix(span.Err.Error(), "cannot evaluate condition: ")
	case len(span.Waits) > 0:
		return "waits for " + strings.Join(v.fromArming(span.Waits), ", ")
	}
	return ""
}

// fromArming writes the instants among waits as offsets, as all others here are.
func (v *CourseView) fromArming(waits []string) []string {
	armed, err := time.Parse(time.RFC3339Nano, v.Armed)
	out := slices.Clone(waits)
	for i, wait := range out {
		text, ok := strings.CutPrefix(wait, "time ")
		if at, bad := time.Parse(time.RFC3339Nano, text); ok && bad == nil && err == nil {
			out[i] = "time " + triggers.FormatOffset(at.UnixNano()-armed.UnixNano())
		}
	}
	return out
}

// Package trigger is `sagenbaum trigger`: check, test and explain conditions.
package trigger

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	contractcmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/contract"
)

// triggerPrograms is how many compiled conditions a command remembers.
const triggerPrograms = 256

// Command holds the commands about conditions.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "trigger",
		Short: "Check conditions, test them over time, explain what armed ones answer",
		Long: `Check conditions and try them over time, offline: what a condition reads, whether
it can fire at all, and its truth at every instant of a timeline. explain asks the
executor what the held conditions of a plan answer now. The language is in
docs/triggers.md.`,
		Example: `  sagenbaum trigger lint 'after(plan.deadline)'
  sagenbaum trigger test docs/guide/triggers/absence.yaml
  sagenbaum trigger explain 01JD39QK`,
	}, newTriggerLint(s), newTriggerTest(s), cli.Watchable(s, newTriggerExplain(s)))
}

// TriggerView is what trigger lint says of one condition.
type TriggerView struct {
	Source   string   `json:"source,omitempty"` // the contract and the name it has there
	OK       bool     `json:"ok"`
	Digest   string   `json:"digest,omitempty"`
	Normal   string   `json:"normal_form,omitempty"`
	Keys     []string `json:"keys"`
	Computed bool     `json:"computed_keys"`
	Reads    []string `json:"reads"` // action, clock, facts, plan, verdict
	Fires    string   `json:"fires,omitempty"`
	Why      string   `json:"why,omitempty"`
	StepsMax int      `json:"steps_max,omitempty"`

	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`

	text string
}

// What trigger lint says about whether a condition fires.
const (
	FiresMay    = "may"
	firesAtOnce = "at once"
)

func newTriggerLint(s *cli.Settings) *cobra.Command {
	var file, contracts string
	cmd := &cobra.Command{
		Use:   "lint EXPR",
		Short: "Check a condition and say what it reads and costs, offline (exit code 1 on errors)",
		Example: `  sagenbaum trigger lint 'plan.status == "failed"'
  sagenbaum trigger lint --file condition.cel
  echo 'after(plan.deadline)' | sagenbaum trigger lint --file -
  sagenbaum trigger lint --contract docs/guide/contracts`,
		Args: func(cmd *cobra.Command, args []string) error {
			given := len(args)
			for _, text := range []string{file, contracts} {
				if text != "" {
					given++
				}
			}
			if given != 1 {
				return cli.Fail(cli.ExitUsage, cmd.CommandPath()+" --help",
					"%s takes one of EXPR, --file FILE, --file - and --contract FILE|DIR",
					cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if contracts != "" {
				return lintContractTriggers(cmd, s, contracts)
			}
			text, err := conditionText(cmd.InOrStdin(), file, args)
			if err != nil {
				return cli.Failed("read the condition", err)
			}
			seen := lintCondition(triggers.NewCache(1), text)
			return finishLint(cmd, s, []TriggerView{seen}, seen)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "read the condition from `FILE`, - for standard input")
	cmd.Flags().StringVar(&contracts, "contract", "",
		"check all triggers in the contracts of `FILE|DIR`")
	return cmd
}

// conditionMax is how many bytes are kept of a file with one condition, more than a
// condition may have. What comes after them is counted only.
const conditionMax = 1 << 16

// byteOrderMark is what some editors put before UTF-8.
const byteOrderMark = "\ufeff"

func conditionText(stdin io.Reader, file string, args []string) (string, error) {
	if file == "" {
		return args[0], nil
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, conditionMax))
	if err != nil {
		return "", err
	}
	more, err := io.Copy(io.Discard, in)
	if err != nil {
		return "", err
	}
	if more > 0 {
		return "", &ledger.Refused{Field: "file",
			Problem: fmt.Sprintf("%d bytes", conditionMax+more),
			Want:    fmt.Sprintf("at most %d", ledger.ExpressionMax)}
	}
	return strings.TrimRight(strings.TrimPrefix(string(text), byteOrderMark), " \t\r\n"), nil
}

// lintCondition looks at one condition.
func lintCondition(programs *triggers.Cache, text string) TriggerView {
	v := TriggerView{text: text, Keys: []string{}, Reads: []string{}}
	condition, err := programs.Condition(text)
	if err != nil {
		v.Line, v.Column, v.Message = 1, 1, err.Error()
		var refused *triggers.Error
		if errors.As(err, &refused) {
			v.Line, v.Column, v.Message, v.Hint = refused.Line, refused.Column, refused.Message, refused.Hint
		}
		return v
	}
	digest := condition.Digest()
	v.OK, v.Digest = true, hex.EncodeToString(digest[:])
	v.Normal, v.StepsMax = triggers.Normalise(text), condition.StepsMax()
	constant, computed := condition.Keys()
	for _, key := range constant {
		v.Keys = append(v.Keys, triggers.ShownKey(key))
	}
	v.Computed = computed
	for _, root := range []struct {
		name string
		read bool
	}{{"action", condition.ReadsAction()}, {"clock", condition.ReadsClock()},
		{"facts", computed || len(constant) > 0},
		{"plan", condition.ReadsPlan()}, {"verdict", condition.ReadsVerdict()}} {
		if root.read {
			v.Reads = append(v.Reads, root.name)
		}
	}
	switch truth, stopped := condition.Foregone(); {
	case truth == triggers.True:
		v.Fires, v.Why = firesAtOnce, "it is true whatever is known"
	case stopped != nil:
		v.Fires, v.Why = never, "an error whatever is known: "+strings.TrimPrefix(stopped.Error(),
			"cannot evaluate condition: ")
	case truth == triggers.False:
		v.Fires, v.Why = never, "no future makes it true"
	default:
		v.Fires = FiresMay
		if unheard := programs.Unheard(text); unheard != nil {
			v.Why = "but " + unheard.Message + "; " + unheard.Hint
		}
	}
	return v
}

// finishLint prints what was found and ends the command; asJSON is what JSON shows.
func finishLint(cmd *cobra.Command, s *cli.Settings, views []TriggerView, asJSON any) error {
	if s.JSON() {
		if err := cli.PrintJSON(cmd.OutOrStdout(), asJSON); err != nil {
			return err
		}
	} else {
		for i := range views {
			writeTriggerView(cmd.OutOrStdout(), s.Pen(cmd), &views[i])
		}
	}
	return cli.Look(nil, slices.ContainsFunc(views, func(v TriggerView) bool { return !v.OK }))
}

func writeTriggerView(out io.Writer, p cli.Pen, v *TriggerView) {
	name := ""
	if v.Source != "" {
		name = cli.Printable(v.Source) + ": "
	}
	if !v.OK {
		hint := ""
		if v.Hint != "" {
			hint = "; " + v.Hint
		}
		fmt.Fprintf(out, "%s%s %d:%d: %s\n", name, p.In("31;1", "refused"), v.Line, v.Column,
			cli.Printable(v.Message+hint))
		for _, line := range Pointed(v.text, v.Line, v.Column) {
			fmt.Fprintln(out, "  "+line)
		}
		return
	}
	keys := make([]string, 0, len(v.Keys)+1)
	for _, key := range v.Keys {
		keys = append(keys, cli.Printable(key))
	}
	if v.Computed {
		keys = append(keys, "computed ones")
	}
	fires := map[string]string{FiresMay: "may, it depends on what happens", firesAtOnce: "at once",
		never: never}[v.Fires]
	if v.Why != "" {
		fires += ": " + cli.Printable(v.Why)
	}
	fmt.Fprintf(out, "%s%s\n", name, p.In("32", "OK"))
	for _, line := range [][2]string{
		{"digest", v.Digest}, {"normal form", cli.Printable(v.Normal)},
		{"reads", cli.Dash(strings.Join(v.Reads, ", "))},
		{"facts", cli.Dash(strings.Join(keys, ", "))}, {"fires", fires},
		{"cost", fmt.Sprintf("at most %d steps an evaluation", v.StepsMax)},
	} {
		fmt.Fprintf(out, "  %-12s %s\n", line[0], line[1])
	}
}

// PointedMax is how much of a line is shown around the place of an error.
const PointedMax = 100

// Pointed returns a line of a text and a caret below a column of it, counted from 1
// in characters.
func Pointed(text string, line, column int) []string {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) || !utf8.ValidString(text) {
		return nil
	}
	runes := []rune(strings.TrimRight(lines[line-1], "\r"))
	at := min(max(column-1, 0), len(runes))
	if len(runes) == 0 {
		return nil
	}
	from, before, after := 0, "", ""
	if len(runes) > PointedMax {
		if from = max(at-PointedMax/2, 0); from > 0 {
			before = "…"
		}
		if to := from + PointedMax; to < len(runes) {
			runes, after = runes[:to], "…"
		}
	}
	shown := before + cli.Printable(string(runes[from:at]))
	return []string{shown + cli.Printable(string(runes[at:])) + after,
		strings.Repeat(" ", utf8.RuneCountInString(shown)) + "^"}
}

// ContractTriggersView is the answer of trigger lint --contract.
type ContractTriggersView struct {
	Triggers []TriggerView     `json:"triggers"`
	Findings contract.Findings `json:"findings"` // why a file could not be read
}

// lintContractTriggers looks at every trigger of every contract below a path.
func lintContractTriggers(cmd *cobra.Command, s *cli.Settings, path string) error {
	files, err := contractcmd.YamlFiles(path, "contract")
	if err != nil {
		return cli.Failed("read the contracts", err)
	}
	programs := triggers.NewCache(triggerPrograms)
	answer := ContractTriggersView{Triggers: []TriggerView{}, Findings: contract.Findings{}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return cli.Failed("read the contracts", err)
		}
		sources, err := contract.Parse(file, data)
		var findings contract.Findings
		if errors.As(err, &findings) {
			answer.Findings = append(answer.Findings, findings...)
		}
		for i := range sources {
			answer.Triggers = append(answer.Triggers, contractTriggers(programs, &sources[i])...)
		}
	}
	if !s.JSON() {
		for _, f := range answer.Findings {
			fmt.Fprintln(cmd.OutOrStdout(), cli.Printable(f.String()))
		}
		if len(answer.Triggers) == 0 && len(answer.Findings) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "no contract of %s has a trigger\n", cli.Printable(path))
		}
	}
	if err := finishLint(cmd, s, answer.Triggers, answer); err != nil || len(answer.Findings) == 0 {
		return err
	}
	return cli.ErrLook
}

// contractTriggers looks at the triggers of one contract. Errors are placed in its
// file.
func contractTriggers(programs *triggers.Cache, source *contract.Source) []TriggerView {
	var views []TriggerView
	for _, name := range slices.Sorted(maps.Keys(source.Triggers)) {
		text := strings.TrimPrefix(strings.TrimLeft(source.Triggers[name], " \t\r\n"), "=")
		v := lintCondition(programs, text)
		field := "triggers[" + name + "]"
		v.Source = fmt.Sprintf("%s: %s %s", source.File, source.Capability, field)
		if !v.OK {
			at := contract.Problem{Line: v.Line, Column: v.Column}
			place := source.ExpressionFinding(field, text, at)
			v.Source = fmt.Sprintf("%s:%d:%d: %s %s", source.File, place.Line, place.Column,
				source.Capability, field)
		}
		views = append(views, v)
	}
	return views
}

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// commandLines are the command lines of sagenbaum in a text, as a shell would split
// it; placeholders in capitals stay words.
func commandLines(text string) (lines []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if i := strings.Index(line, "<(sagenbaum "); i >= 0 {
			line, _, _ = strings.Cut(line[i+2:], ")")
		}
		if strings.HasPrefix(line, "sagenbaum ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// shellWords splits a command line, up to a pipe, a redirection or a comment.
func shellWords(t *testing.T, line string) (words []string) {
	t.Helper()
	var word strings.Builder
	in, quote := false, rune(0)
	end := func() {
		if in {
			words = append(words, word.String())
			word.Reset()
			in = false
		}
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ' || r == '\t':
			end()
		case r == '|' || r == '>' || r == '<' || r == ';' || r == '&' || r == '#' && !in:
			end()
			return words
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quote != 0 {
		t.Errorf("%s: a quote is not closed", line)
	}
	end()
	return words
}

// parses reports what is wrong with a command line: an unknown command or flag, a value
// that a flag does not take, or a number of arguments that the command does not.
func parses(t *testing.T, line string) error {
	t.Helper()
	words := shellWords(t, line)[1:]
	root := newRoot()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return cli.UnknownCommand(cmd, rest[0])
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.Args == nil || cmd.HasSubCommands() {
		return nil
	}
	return cmd.Args(cmd, cmd.Flags().Args())
}

func everyCommand(root *cobra.Command) (all []*cobra.Command) {
	all = append(all, root)
	for _, child := range root.Commands() {
		all = append(all, everyCommand(child)...)
	}
	return all
}

// What the help shows can be typed: every example of every command names commands,
// flags and values that there are, and one of them is of the command itself.
func TestEveryExampleParses(t *testing.T) {
	for _, cmd := range everyCommand(newRoot()) {
		lines, own := commandLines(cmd.Example), false
		for _, line := range lines {
			if err := parses(t, line); err != nil {
				t.Errorf("%s --help: %s: %v", cmd.CommandPath(), line, err)
			}
			own = own || strings.Contains(line+" ", cmd.CommandPath()+" ") || strings.HasPrefix(line, "sagenbaum help")
		}
		if !own && !cmd.Hidden && len(lines) > 0 && !strings.Contains(cmd.Example, cmd.Name()) || len(lines) == 0 &&
			!cmd.Hidden {
			t.Errorf("%s --help has no example of its own: %q", cmd.CommandPath(), cmd.Example)
		}
	}
	for _, bad := range []string{"sagenbaum plan lss", "sagenbaum plan ls --limti 3", "sagenbaum plan ls --limit x",
		"sagenbaum plan show", "sagenbaum plan show a b"} {
		if parses(t, bad) == nil {
			t.Errorf("%q passes: the test finds nothing", bad)
		}
	}
}

// Lists and what is shown are alike everywhere: every list has --filter, and --watch
// where it comes from a server; every object that is listed is shown.
func TestEveryListCanBeFilteredAndEveryObjectShown(t *testing.T) {
	for _, group := range newRoot().Commands() {
		kinds := map[string]*cobra.Command{}
		for _, cmd := range group.Commands() {
			kinds[cmd.Name()] = cmd
			for _, alias := range cmd.Aliases {
				kinds[alias] = cmd
			}
		}
		ls := kinds["ls"]
		if ls == nil || group.Name() == "ledger" || group.Name() == "key" { // one of each tenant
			continue
		}
		if kinds["show"] == nil {
			t.Errorf("%s is listed and never shown", group.Name())
		}
		if ls.Flags().Lookup("filter") == nil {
			t.Errorf("%s has no --filter", ls.CommandPath())
		}
	}
}

// docs/cli.md and the commands say the same: each command line and flag there is one,
// and each command is in its table.
func TestTheReferenceKnowsEveryCommandAndNoOther(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for _, line := range commandLines(doc) {
		if err := parses(t, line); err != nil {
			t.Errorf("docs/cli.md: %s: %v", line, err)
		}
	}
	flags := map[string]bool{"--help": true}
	root := newRoot()
	all := everyCommand(root)
	for _, cmd := range all {
		add := func(f *pflag.Flag) { flags["--"+f.Name] = true }
		cmd.Flags().VisitAll(add)
		cmd.PersistentFlags().VisitAll(add)
		if cmd == root || cmd.Hidden || cmd.HasSubCommands() {
			continue
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "sagenbaum ")
		if !regexp.MustCompile("`" + regexp.QuoteMeta(name) + "[` ]").MatchString(doc) {
			t.Errorf("docs/cli.md does not name %s", name)
		}
	}
	for _, flag := range regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(doc, -1) {
		if !flags[flag] {
			t.Errorf("docs/cli.md names %s, which no command has", flag)
		}
	}
}

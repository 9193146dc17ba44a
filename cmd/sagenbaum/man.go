package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write a manual page for each command into a folder",
		Example: "  sagenbaum man /usr/local/share/man/man1\n  sagenbaum man . && man " +
			"./sagenbaum-plan-tree.1",
		Args: cli.Exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return cli.Fail(cli.ExitFailed, "sagenbaum man DIR, one that can be written",
					"cannot write manual pages: %v", err)
			}
			n, err := writeManual(cmd.Root(), args[0])
			if err != nil {
				return cli.Fail(cli.ExitFailed, "sagenbaum man DIR, one that can be written",
					"cannot write manual pages: %v", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d manual pages in %s\n", n, args[0])
			return nil
		},
	}
}

// writeManual writes the pages of a command and all below it that are not hidden.
func writeManual(cmd *cobra.Command, dir string) (pages int, err error) {
	for _, child := range cmd.Commands() {
		if child.Hidden || !child.IsAvailableCommand() && child.Name() != "help" {
			continue
		}
		n, err := writeManual(child, dir)
		if err != nil {
			return 0, err
		}
		pages += n
	}
	cmd.InitDefaultHelpFlag()
	for _, name := range []string{"actor", "source"} { // whoever writes the pages
		if f := cmd.Flags().Lookup(name); f != nil {
			f.DefValue = ""
		}
	}
	path := filepath.Join(dir, pageOf(cmd)+".1")
	return pages + 1, os.WriteFile(path, []byte(manual(cmd)), 0o644)
}

func pageOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manual is the page of one command in roff. Its text is that of --help, laid out for a
// terminal already, so that nothing is filled or hyphenated.
func manual(cmd *cobra.Command) string {
	var page strings.Builder
	fmt.Fprintf(&page, ".TH \"%s\" \"1\" \"\" \"sagenbaum %s\" \"Sagenbaum\"\n",
		strings.ToUpper(pageOf(cmd)), cli.ReadVersion().Version)
	section := func(name, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			fmt.Fprintf(&page, ".SH %s\n.nf\n%s\n.fi\n", name, roff.Replace("\n" + text)[1:])
		}
	}
	long := cmd.Long
	if long == "" {
		long = cmd.Short
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, pageOf(cmd.Parent())+"(1)")
	}
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			also = append(also, pageOf(child)+"(1)")
		}
	}
	fmt.Fprintf(&page, ".SH NAME\n%s \\- %s\n", roff.Replace(pageOf(cmd)), roff.Replace(cmd.Short))
	section("SYNOPSIS", cmd.UseLine())
	section("DESCRIPTION", long)
	section("OPTIONS", cmd.NonInheritedFlags().FlagUsagesWrapped(manWidth))
	section("OPTIONS INHERITED FROM PARENT COMMANDS", cmd.InheritedFlags().FlagUsagesWrapped(manWidth))
	section("EXAMPLE", cmd.Example)
	section("SEE ALSO", strings.Join(also, ",\n"))
	return page.String()
}

const manWidth = 72 // columns, so that a page with its margin fits a terminal of 80

// roff has what troff would read otherwise: its escape, a point that begins a line, and the
// hyphen and the quote, which are others in print.
var roff = strings.NewReplacer(`\`, `\e`, "\n.", "\n\\&.", "-", `\-`, "'", `\(aq`)

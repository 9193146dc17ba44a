package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// manDate is in the pages instead of today, so that the same binary always writes
// the same pages.
var manDate = time.Unix(0, 0).UTC()

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
	cmd.DisableAutoGenTag = true
	cmd.InitDefaultHelpFlag()
	for _, name := range []string{"actor", "source"} { // whoever writes the pages
		if f := cmd.Flags().Lookup(name); f != nil {
			f.DefValue = ""
		}
	}
	file, err := os.Create(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
	if err != nil {
		return 0, err
	}
	header := &doc.GenManHeader{Section: "1", Source: "sagenbaum " + cli.ReadVersion().Version,
		Manual: "Sagenbaum", Date: &manDate}
	if err := doc.GenMan(cmd, header, file); err != nil {
		file.Close()
		return 0, err
	}
	return pages + 1, file.Close()
}

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

func newVersion(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary and what it is built from",
		Example: "  sagenbaum version\n  sagenbaum version -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readVersion()
			if s.json() {
				return printJSON(cmd.OutOrStdout(), v)
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "sagenbaum %s %s %s\n", v.Version, v.Go, v.Platform)
			fmt.Fprintf(out, "reader %d, fold %d, nats-server %s\n", v.Reader, v.Fold, dash(v.NATS))
			if v.Commit != "" {
				fmt.Fprintf(out, "commit %s\n", v.Commit)
			}
			return nil
		},
	}
}

// versionView is what `version` tells: the binary and the formats it reads.
type versionView struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Reader   int    `json:"reader_version"` // of commits, see ledger.ReaderVersion
	Fold     int    `json:"fold_version"`
	NATS     string `json:"nats_server,omitempty"`
}

func readVersion() versionView {
	v := versionView{
		Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Reader: ledger.ReaderVersion, Fold: executor.FoldVersion,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version // of the tag it was built from, or (devel)
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			v.Commit = setting.Value
		}
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/nats-io/nats-server/v2" {
			v.NATS = dep.Version
		}
	}
	return v
}

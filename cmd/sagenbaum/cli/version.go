package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// VersionView is what `version` tells: the binary and the formats it reads.
type VersionView struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Reader   int    `json:"reader_version"` // of commits, see ledger.ReaderVersion
	Fold     int    `json:"fold_version"`
	NATS     string `json:"nats_server,omitempty"`
}

// ReadVersion reads what this binary is built from.
func ReadVersion() VersionView {
	v := VersionView{
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

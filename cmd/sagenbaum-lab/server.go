package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

const serverPackage = "github.com/sagenbaum/sagenbaum/cmd/sagenbaum"

// serverBinary returns the server to start: the one that was named, the one beside this
// binary, or one built into dir from the module that the lab runs in.
func serverBinary(ctx context.Context, named, dir string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "sagenbaum")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	built := filepath.Join(dir, "sagenbaum")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", built,
		serverPackage).CombinedOutput(); err != nil {
		return "", cli.Fail(cli.ExitFailed,
			"--sagenbaum FILE, or run it in a checkout of the source",
			"cannot build the server: %v: %s", err, out)
	}
	return built, nil
}

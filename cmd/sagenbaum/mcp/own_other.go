//go:build !unix

package mcp

import "os/exec"

// detach does nothing here: a child goes on when this process ends.
func detach(*exec.Cmd) {}

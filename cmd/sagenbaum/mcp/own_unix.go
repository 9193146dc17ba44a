//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// detach has a child go on when this process, its group or its terminal ends.
func detach(child *exec.Cmd) { child.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

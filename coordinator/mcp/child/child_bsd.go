//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// bind gives a child a group of its own.
func bind(child *exec.Cmd) { child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

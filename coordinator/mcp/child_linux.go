package mcp

import (
	"os/exec"
	"syscall"
)

// bind has a child end with this process, and gives it a group of its own.
func bind(child *exec.Cmd) {
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// endGroup kills what a child has left behind: its group is its own.
func endGroup(child *exec.Cmd) {
	if child != nil && child.Process != nil {
		_ = syscall.Kill(-child.Process.Pid, syscall.SIGKILL) // an error says that none is left
	}
}

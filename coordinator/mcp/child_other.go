//go:build !linux

package mcp

import "os/exec"

// bind leaves it to the end of its input to end a child with this process.
func bind(*exec.Cmd) {}

func endGroup(child *exec.Cmd) {
	if child != nil && child.Process != nil {
		_ = child.Process.Kill() // an error says that it is gone
	}
}

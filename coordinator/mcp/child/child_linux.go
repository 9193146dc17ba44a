package child

import (
	"os/exec"
	"syscall"
)

// bind has a child end with this process, and gives it a group of its own.
func bind(child *exec.Cmd) {
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

//go:build unix

package child

import (
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"strconv"
	"syscall"
)

// end kills what a child has left behind: its group is its own.
func end(child *exec.Cmd) {
	_ = syscall.Kill(-child.Process.Pid, syscall.SIGKILL) // an error says that none is left
}

// watch is a process that kills the group of a child when its input ends without a word, as it does
// when the process that has started both is killed: what the child itself has started gets no
// signal then, and need not read the input that ends. It is in a group of its own, so that who
// kills that of a gateway does not kill it, too.
type watch struct {
	in      io.WriteCloser
	command *exec.Cmd
}

const watching = `trap '' HUP INT TERM; read -r word; [ "$word" = end ] || kill -s KILL -- "-$1"`

func watched(group int) (*watch, error) {
	command := exec.Command("/bin/sh", "-c", watching, "sagenbaum-watch", strconv.Itoa(group))
	command.Env = []string{}
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		_ = in.Close()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // a system without a shell has few that start others
		}
		return nil, err
	}
	return &watch{in, command}, nil
}

// release ends it: the group is gone, and another may have its number one day.
func (w *watch) release() {
	_, _ = io.WriteString(w.in, "end\n") // it may be gone
	_ = w.in.Close()
	go func() { _ = w.command.Wait() }() // ends at once
}

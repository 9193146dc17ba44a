// Package child runs servers as children of this process, which they and what they have started do
// not outlive, however it ends.
package child

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a child, with all that it has started. It is safe for concurrent use.
type Process struct {
	command *exec.Cmd
	grace   time.Duration

	mu    sync.Mutex
	watch *watch // ends the others when this process has ended without a word; nil: none does
}

// New is a child that Start starts. It has grace to end once its input has, and once more when it
// is told to.
func New(command *exec.Cmd, grace time.Duration) *Process {
	bind(command)
	return &Process{command: command, grace: grace}
}

// Start starts it. Closing its input ends it. Errors: those of the operating system.
func (p *Process) Start() (in io.WriteCloser, out io.ReadCloser, err error) {
	pipe, err := p.command.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start a server: %w", err)
	}
	stdin, err := p.command.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start a server: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.command.Start(); err != nil {
		return nil, nil, fmt.Errorf("cannot start a server: %w", err)
	}
	if p.watch, err = watched(p.command.Process.Pid); err != nil {
		_ = p.command.Process.Kill() // it has just begun
		_ = p.command.Wait()
		return nil, nil, fmt.Errorf("cannot watch over a server: %w", err)
	}
	return &input{WriteCloser: stdin, of: p}, io.NopCloser(pipe), nil
}

// End kills what a child has left behind. A child that is none, or does not run, is left alone.
func (p *Process) End() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command.Process == nil {
		return
	}
	end(p.command)
	if p.watch != nil {
		p.watch.release()
		p.watch = nil
	}
}

// input is that of a child.
type input struct {
	io.WriteCloser
	of *Process
}

// Close closes it, and waits until the child has ended, which is told to after a while, and killed
// after another.
func (i *input) Close() error {
	if err := i.WriteCloser.Close(); err != nil {
		return fmt.Errorf("cannot close the input of a server: %w", err)
	}
	command := i.of.command
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }() // ends with the child
	for _, tell := range []func() error{
		func() error { return command.Process.Signal(syscall.SIGTERM) },
		command.Process.Kill,
		func() error { return nil },
	} {
		late := time.NewTimer(i.of.grace)
		select {
		case err := <-ended:
			late.Stop()
			return err
		case <-late.C:
		}
		if err := tell(); err != nil { // some systems know no other signal
			_ = command.Process.Kill() // it may have ended now
		}
	}
	return errors.New("a server does not end")
}

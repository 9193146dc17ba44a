// Package process runs a command of this binary as a child that never outlives its parent.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Process is a child of the demo: this same binary under another command. It
// ends when its standard input does, so that none outlives the demo, however
// the demo ends.
type Process struct {
	name    string
	Command *exec.Cmd
	stdin   io.Closer
	Lines   chan string // of its standard output; closed when it ends
	ended   chan struct{}
	err     error // how it ended; read after ended is closed
	log     string
}

// linesMax is how many lines of a child may wait to be read.
const linesMax = 64

// Start starts a child whose standard error goes to a file in dir. Two
// goroutines serve it until it ends: one reads its output, one waits for it.
func Start(self, dir, name string, args ...string) (*Process, error) {
	p := &Process{name: name, Lines: make(chan string, linesMax), ended: make(chan struct{}),
		log: dir + "/" + name + ".log"}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	p.Command = exec.Command(self, args...)
	p.Command.Stderr = log
	if p.stdin, err = p.Command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.Command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.Lines <- lines.Text()
		}
		close(p.Lines)
		p.err = p.Command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Line returns the next line that the child printed.
func (p *Process) Line(ctx context.Context) (string, error) {
	select {
	case line, ok := <-p.Lines:
		if !ok {
			<-p.ended
			return "", fmt.Errorf("%s ended before it said anything more (%v); its log is %s",
				p.name, p.err, p.log)
		}
		return line, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s said nothing: %w; its log is %s", p.name, ctx.Err(), p.log)
	}
}

// Kill is kill -9: the child has no chance to do anything. It returns when the
// child is gone.
func (p *Process) Kill() {
	p.Command.Process.Kill() // an error says that it is gone already
	for range p.Lines {
	}
	<-p.ended
}

// stopWait is how long a child may take to end by itself.
const stopWait = 5 * time.Second

// Stop asks the child to end, by ending its input, and kills it if it does not.
func (p *Process) Stop() {
	p.stdin.Close()
	late := time.AfterFunc(stopWait, func() { p.Command.Process.Kill() })
	defer late.Stop()
	for range p.Lines {
	}
	<-p.ended
}

// Wait returns when the child has ended, with an error when it did not end well.
func (p *Process) Wait(ctx context.Context) error {
	for {
		select {
		case <-p.ended:
			if p.err != nil {
				return fmt.Errorf("%s failed (%w); its log is %s", p.name, p.err, p.log)
			}
			return nil
		case <-p.Lines:
		case <-ctx.Done():
			return fmt.Errorf("%s does not end: %w; its log is %s", p.name, ctx.Err(), p.log)
		}
	}
}

// UntilInputEnds returns a context that ends with the reader, for a process
// that must not outlive the one that started it.
func UntilInputEnds(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with its input, at the latest with the process
		if _, err := io.Copy(io.Discard, in); err == nil || !errors.Is(err, os.ErrClosed) {
			cancel()
		}
	}()
	return ctx, cancel
}

package mcp

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"
)

// inputMax is how many bytes a client may say before anyone listens; further ones wait.
const inputMax = 1 << 20

// input is standard input, read as soon as it comes: a client may go while its servers are being
// started, and nothing else says so.
type input struct {
	from io.Reader

	mu    sync.Mutex
	moved sync.Cond // of what follows
	held  bytes.Buffer
	err   error // why there is no more; nil: there may be
}

// leftTime is how long the servers of a client that has gone may still take to start: it may have
// said all that it has to say.
const leftTime = 30 * time.Second

// hearWhile reads what a client says; starting ends with ctx, or leftTime after it has gone.
func hearWhile(ctx context.Context, from io.Reader) (in *input, starting context.Context) {
	starting, stop := context.WithCancel(ctx)
	in = hear(from, func() { time.AfterFunc(leftTime, stop) })
	return in, starting
}

// hear reads what a client says, and calls gone when it has gone.
func hear(from io.Reader, gone func()) *input {
	i := &input{from: from}
	i.moved.L = &i.mu
	go func() { // ends with the input
		defer gone()
		for chunk := make([]byte, 32<<10); ; {
			n, err := from.Read(chunk)
			if !i.took(chunk[:n], err) {
				return
			}
		}
	}()
	return i
}

// took keeps what was read, and waits until there is room for more. False: nothing follows.
func (i *input) took(chunk []byte, err error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, _ = i.held.Write(chunk) // of a buffer, it has no error
	if err != nil && i.err == nil {
		i.err = err
	}
	i.moved.Broadcast()
	for i.held.Len() >= inputMax && i.err == nil {
		i.moved.Wait()
	}
	return i.err == nil
}

// Read returns what the client has said, and io.EOF once it has gone.
func (i *input) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for i.held.Len() == 0 && i.err == nil {
		i.moved.Wait()
	}
	if i.held.Len() == 0 {
		return 0, i.err
	}
	defer i.moved.Broadcast()
	return i.held.Read(p)
}

// Close has a read under way, and each later one, end. A file that is read is closed.
func (i *input) Close() error {
	i.mu.Lock()
	if i.err == nil {
		i.err = io.ErrClosedPipe
	}
	i.held.Reset()
	i.moved.Broadcast()
	i.mu.Unlock()
	if c, ok := i.from.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

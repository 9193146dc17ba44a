package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// rest has a server run only while undos need it. It is zero for a server that runs from Start to
// Close.
type rest struct {
	after time.Duration // that it goes on without an undo

	mu    sync.Mutex
	found bool // its pack, when it was started for the first time
	using int  // undos that need it
	timer *time.Timer
}

// needed starts a server that rests, and returns what lets it rest again. One that does not start
// is tried again for as long as the attempt lasts: what it lacks may come back. Errors: notStarted,
// or ctx's, with why it does not start.
func (s *Server) needed(ctx context.Context) (release func(), err error) {
	r := &s.rest
	if r.after == 0 {
		return func() {}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	for pause := startPause; r.using == 0; pause = min(2*pause, startPauseMax) {
		if err = s.Start(ctx); err == nil {
			break
		}
		if s.isClosed() {
			return nil, err
		}
		s.logger.Warn("a server that an undo needs does not start", "server", s.config.Name,
			"error", err)
		wait := pause
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline) - startSay
			if left <= 0 { // a time-out would be doubt, and no server has got anything
				return nil, &notStarted{fmt.Errorf("%w%s", err, said("; it says: ", s.last.text()))}
			}
			wait = min(pause, left)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
	if !r.found {
		r.found = true
		s.prune()
	}
	r.using++
	return s.unneeded, nil
}

// notStarted says that there was no server all the time that an attempt may take: nothing was done.
// It is none of the errors of a context, which would say that no one knows.
type notStarted struct{ cause error }

func (e *notStarted) Error() string { return e.cause.Error() }

// Code is what is recorded beside the message.
func (e *notStarted) Code() string { return "not_started" }

// lastLine passes on what a server says on stderr, and keeps the last line of it: a server that
// ends as soon as it is started says there why. It is safe for concurrent use.
type lastLine struct {
	to io.Writer

	mu   sync.Mutex
	line []byte
	more bool // the line may go on
}

// Write passes a part of it on.
func (l *lastLine) Write(text []byte) (int, error) {
	l.mu.Lock()
	for part := range bytes.Lines(text) {
		if len(bytes.TrimSpace(part)) > 0 {
			if !l.more {
				l.line = nil
			}
			l.line = append(l.line, part[:min(len(part), errorMax-min(len(l.line), errorMax))]...)
		}
		l.more = !bytes.HasSuffix(part, []byte("\n"))
	}
	l.mu.Unlock()
	return l.to.Write(text)
}

// text is the last line that is not empty.
func (l *lastLine) text() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.TrimSpace(l.line))
}

// unneeded has a server rest once it was not needed for a while.
func (s *Server) unneeded() {
	r := &s.rest
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.using--; r.using == 0 {
		r.timer = time.AfterFunc(r.after, func() { // ends at once, or with the server
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.using == 0 {
				s.end()
			}
		})
	}
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// end ends a server, which the next undo starts again.
func (s *Server) end() {
	s.mu.Lock()
	session, process := s.session, s.child
	s.session, s.child = nil, nil
	s.mu.Unlock()
	s.stop(session, process)
}

// prune removes images and trash that are older than every undo window.
func (s *Server) prune() {
	err := errors.Join(s.pruneGrants(), s.pruneKeys())
	if s.files != nil {
		err = errors.Join(err, s.files.Prune(KeptFor))
	}
	if err != nil {
		s.logger.Warn("old images stay", "server", s.config.Name, "error", err)
	}
}

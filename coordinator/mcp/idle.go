package mcp

import (
	"context"
	"errors"
	"fmt"
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
// is tried again for as long as the attempt lasts: what it lacks may come back. Errors: ctx's, with
// why it does not start.
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
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
	if !r.found {
		r.found = true
		s.prune()
	}
	r.using++
	return s.unneeded, nil
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

package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// answer is how a call has ended.
type answer struct {
	result *sdk.CallToolResult
	err    error
}

// failed reports whether the server has said that the call failed.
func (a answer) failed() bool {
	var wire *jsonrpc.Error
	return errors.As(a.err, &wire) || a.err == nil && failed(a.result)
}

// goesOn reports whether the server may still be at work on a call that has ended: it is at a URL,
// and has said nothing.
func (s *Server) goesOn(a answer) bool {
	return s.remote() && a.err != nil && !a.failed() && !errors.Is(a.err, errNotReached)
}

// act calls a tool that has an effect. settled is closed once nothing of the call can happen any
// more. Errors: as call, or why it was given up.
func (s *Server) act(ctx context.Context, c toolCall) (result *sdk.CallToolResult,
	settled <-chan struct{}, err error) {
	ended := make(chan struct{})
	if ctx.Err() != nil {
		close(ended)
		return nil, ended, fmt.Errorf("%w: %w", errNotReached, context.Cause(ctx))
	}
	c.name = fmt.Sprint(s.named.Add(1))
	s.calls.begin(c.name)
	answered := make(chan answer, 1)
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() { // ends with the call, at the latest when the server is ended
		defer cancel()
		defer s.calls.done(c.name)
		result, err := s.call(calling, c)
		answered <- answer{result, err}
	}()
	select {
	case a := <-answered:
		if s.goesOn(a) {
			time.AfterFunc(s.config.Settle, func() { close(ended) })
		} else {
			close(ended)
		}
		return a.result, ended, a.err
	case <-ctx.Done():
	}
	sent := s.calls.giveUp(c.name)
	go func() { // ends with the call
		defer close(ended)
		if sent {
			s.finish(calling, cancel, c, context.Cause(ctx), answered)
			return
		}
		late := time.AfterFunc(s.config.Settle/2, cancel) // a start that takes too long
		defer late.Stop()
		<-answered
	}()
	if !sent {
		return nil, ended, fmt.Errorf("%w: %w", errNotReached, context.Cause(ctx))
	}
	return nil, ended, context.Cause(ctx)
}

// finish returns once nothing of a call that was given up can happen any more. It may be answered
// soon; then it is cancelled, and a server that is told need not answer, nor has it stopped when it
// answers with an error; and a server that goes on for all that is ended. One at a URL cannot be
// ended: it has all of the time to settle.
func (s *Server) finish(ctx context.Context, cancel func(), c toolCall, why error,
	answered <-chan answer) {
	late := time.NewTimer(s.config.Settle / 4)
	defer late.Stop()
	select {
	case a := <-answered:
		if s.goesOn(a) {
			<-time.After(s.config.Settle)
		}
		return
	case <-late.C:
	}
	go func() { // ends with the call, or its server
		if err := s.calls.cancel(ctx, c.name, why.Error()); err != nil {
			s.logger.Debug("a server does not know that a call was given up", "server", s.config.Name,
				"tool", c.tool, "error", err)
		}
	}()
	rest, end := s.config.Settle/4, s.kill
	if s.remote() {
		rest, end = s.config.Settle*3/4, cancel
	}
	late.Reset(rest)
	select {
	case a := <-answered:
		if a.failed() || s.goesOn(a) {
			<-late.C
		}
	case <-late.C:
		s.logger.Warn("a call that was given up has no answer: it is not waited for any longer",
			"server", s.config.Name, "tool", c.tool)
		end()
		<-answered
	}
}

// kill ends the server at once; the next call starts it again.
func (s *Server) kill() {
	s.mu.Lock()
	session, process := s.session, s.child
	s.mu.Unlock()
	if process != nil { // else it has ended
		process.End()
	}
	if session != nil {
		s.await(context.Background(), session)
	}
}

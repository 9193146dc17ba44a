//go:build !unix

package mcp

import "context"

// lock has the effects and undos of one server come one after the other, in this process.
type lock struct{ place chan struct{} }

func newLock(string) (*lock, error) { return &lock{make(chan struct{}, 1)}, nil }

func (l *lock) take(ctx context.Context, _ ...string) (release func(), err error) {
	select {
	case l.place <- struct{}{}:
		return func() { <-l.place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lock) close() {}
